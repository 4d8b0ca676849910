#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use moteseal_core::schema::Schema;
use moteseal_device::hosted::Feed as _;
use moteseal_device::runner::{LiveReading, Recorded};
use moteseal_net::link::{self, until_up};
use moteseal_net::mqtt::{Backoff, Options, Version};
use moteseal_service::metrics::Table;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::mapping::{Mapping, Settings};

/// The timeout for steps that must not fail.
const LONG: Duration = Duration::from_secs(30);

/// Mosquitto, on a free port of the loopback interface.
struct Broker {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Broker {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.path().join("mosquitto.conf");
        let text = format!(
            "user root\nmax_queued_messages 0\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
        );
        std::fs::write(&config, text).unwrap();
        // Debian installs it here, which is not in every user's PATH.
        let path = "/usr/sbin/mosquitto";
        let program = if Path::new(path).exists() { path } else { "mosquitto" };
        let mut command = Command::new(program);
        command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("mosquitto is missing: run tools/setup.sh test");
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, port, _folder: folder }
    }

    /// Publishes the numbers of a range with QoS 1.
    fn publish(&self, topic: &str, numbers: std::ops::Range<u64>) {
        let mut command = Command::new("mosquitto_pub");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-q",
            "1",
            "-l",
            "-t",
            topic,
        ]);
        let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        for number in numbers {
            writeln!(stdin, "{{\"n\": {number}}}").unwrap();
        }
        drop(stdin);
        assert!(process.wait().unwrap().success());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Source {
    intake: Arc<Intake>,
    table: Arc<Table>,
    state: watch::Receiver<link::State>,
    stop: watch::Sender<bool>,
    run: JoinHandle<()>,
}

impl Source {
    /// Starts a source whose messages have the topic `name`.
    async fn start(broker: &Broker, version: Version, name: &str) -> Self {
        let url = format!("mqtt://127.0.0.1:{}", broker.port);
        let backoff =
            Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(100) };
        let options = Options { version, backoff, ..Options::new(url, "group") };
        let filters = vec![name.to_owned()];
        let subscriber = Subscriber::new(&options, name, filters.clone(), ROOM).unwrap();
        let mut state = subscriber.state();
        let columns = vec!["n::u32".to_owned()];
        let mapping = Mapping::new(&Settings { columns, ..Settings::default() }).unwrap();
        let table = Arc::new(Table::new());
        let intake = Arc::new(Intake::new(
            name.to_owned(),
            mapping,
            false,
            (Arc::clone(&table), Arc::default()),
        ));
        let (stop, mut stopped) = watch::channel(false);
        let of = Arc::clone(&intake);
        let run = tokio::spawn(async move {
            let stop = async { _ = stopped.wait_for(|stop| *stop).await };
            run(subscriber, filters, of, stop, async {}).await;
        });
        timeout(LONG, until_up(state.clone())).await.unwrap().unwrap();
        state.mark_unchanged();
        Self { intake, table, state, stop, run }
    }

    /// Starts a device.
    fn device(&self) -> mpsc::Receiver<LiveReading> {
        let (readings, records) = mpsc::channel(128);
        self.intake.run(readings);
        records
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        timeout(LONG, self.run).await.unwrap().unwrap();
    }
}

/// Receives readings, and says that they are durable. Returns their numbers.
async fn record(device: &mut mpsc::Receiver<LiveReading>, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        let reading = timeout(LONG, device.recv()).await.expect("nothing arrives").unwrap();
        numbers.push(number(&reading));
        reading.reply.unwrap().send(Recorded::Durable);
    }
    numbers
}

fn number(reading: &LiveReading) -> u64 {
    let columns = vec!["n::u32".to_owned()];
    let mapping = Mapping::new(&Settings { columns, ..Settings::default() }).unwrap();
    let schema = Schema::decode(mapping.schema()).unwrap();
    let value = schema.fields().next().unwrap().read(&reading.record).unwrap();
    value.to_string().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_pauses_delays_no_other_source_and_multiplies_no_reading() {
    const COUNT: u64 = 300;
    for version in [Version::V3, Version::V5] {
        let broker = Broker::start();
        let bad = Source::start(&broker, version, "bad").await;
        let good = Source::start(&broker, version, "good").await;
        let (mut failing, mut healthy) = (bad.device(), good.device());
        broker.publish("bad", 0..COUNT);
        broker.publish("good", 0..COUNT);
        // The device records some readings, has taken others, and fails.
        let mut recorded = record(&mut failing, 5).await;
        let taken: Vec<LiveReading> =
            [failing.recv().await.unwrap(), failing.recv().await.unwrap()].into();
        drop((taken, failing));
        bad.intake.pause();
        // More messages than a broker sends before the first of them is acknowledged.
        assert_eq!(record(&mut healthy, COUNT as usize).await, Vec::from_iter(0..COUNT));
        // The device fails again as soon as it has taken a message.
        for _ in 0..3 {
            let mut failing = bad.device();
            drop((timeout(LONG, failing.recv()).await.unwrap(), failing));
            bad.intake.pause();
        }
        broker.publish("good", COUNT..COUNT + 50);
        let next = Vec::from_iter(COUNT..COUNT + 50);
        assert_eq!(record(&mut healthy, 50).await, next);
        let mut device = bad.device();
        recorded.extend(record(&mut device, COUNT as usize - recorded.len()).await);
        assert_eq!(recorded, Vec::from_iter(0..COUNT));
        // Nothing is repeated, and no connection was broken.
        sleep(Duration::from_millis(100)).await;
        for (source, device) in [(bad, &mut device), (good, &mut healthy)] {
            assert!(device.try_recv().is_err(), "a reading is repeated");
            assert!(!source.state.has_changed().unwrap(), "the connection broke");
            source.stop().await;
        }
        // All messages are acknowledged: the broker has none for the next process.
        let bad = Source::start(&broker, version, "bad").await;
        let mut device = bad.device();
        assert!(timeout(Duration::from_millis(200), device.recv()).await.is_err());
        bad.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_device_that_cannot_continue_are_acknowledged_and_counted() {
    let broker = Broker::start();
    let source = Source::start(&broker, Version::V5, "t").await;
    source.intake.pause();
    broker.publish("t", 0..40);
    source.intake.stop();
    let stopped = "moteseal_hub_refused_total{source=\"t\",reason=\"Stopped\"}";
    let count = |reason: &str| {
        let page = source.table.render();
        let line = page.lines().find(|line| line.starts_with(reason)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next().unwrap().parse::<u64>().ok()).unwrap_or(0)
    };
    timeout(LONG, async {
        while count(stopped) < 40 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    // A source that cannot keep its messages loses them while its device pauses. They are counted.
    source.intake.pause();
    let (done, outcome) = Done::new();
    source.intake.take(b"{\"n\": 1}", done).await;
    assert!(outcome.await.is_err(), "it is not recorded");
    assert_eq!(count("moteseal_hub_refused_total{source=\"t\",reason=\"Paused\"}"), 1);
    source.stop().await;
}
