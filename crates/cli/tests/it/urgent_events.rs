//! Urgent events from the device to a waiting client, with real processes: `moteseal device event`,
//! `device run`, `gateway run`, `cloud run`, `get --events urgent --follow`, and a broker.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use moteseal_core::cbor::Writer;
use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{SecretKey, Signer as _};
use moteseal_seal::UrgentEvent;
use moteseal_verify::{Roster, write};
use serde_json::Value;

use crate::broker::Broker;
use crate::gateway_commands::Running;
use crate::scene::{Cloud, Run, Scene};

const UNREACHABLE: i32 = 6;
const USAGE: i32 = 2;
const FINDING: i32 = 5;
const LONG: Duration = Duration::from_secs(60);
/// The number of alarms whose latency is measured. A device may send this many at once.
const ALARMS: usize = 40;

/// A group with a budget and two devices, `dev1` and `dev2`, whose readings come from stdin.
struct Site {
    scene: Scene,
    port: u16,
    _broker: Broker,
}

impl Site {
    fn new() -> Self {
        let scene = Scene::new();
        scene.run(&["key", "new", "--out", "keys/gateway"]).done();
        std::fs::remove_file(scene.path("roster.cbor")).unwrap();
        let new = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "home"];
        let budget =
            ["--epoch", "24h", "--budget", "1000", "--coordinator", "keys/gateway.pub.pem"];
        let devices = ["--device", "dev1=keys/dev1.pub.pem", "--device", "dev2=keys/dev2.pub.pem"];
        scene.run(&[&new[..], &budget, &devices, &["--out", "roster.cbor"]].concat()).done();
        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let broker = Broker::open(&scene.path(""));
        let link = format!("[link]\nurl = \"{}\"\n", broker.url());
        let gateway = format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
             link_secret = \"keys/link.key\"\nstate = \"gateway\"\n{link}[cloud]\nurl = \"http://127.0.0.1:{port}\"\n"
        );
        scene.write("gateway.toml", &gateway);
        for device in ["dev1", "dev2"] {
            let out = format!("keys/{device}.link.key");
            let link_key = ["key", "link", "--group-secret", "keys/link.key", "--device", device];
            scene.with_roster(&[&link_key[..], &["--out", &out]].concat()).done();
            let config = format!(
                "device = \"{device}\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n\
                 key = \"keys/{device}.key.pem\"\nlink_secret = \"{out}\"\nstate = \"{device}\"\n{link}\
                 [source]\ncolumns = [\"temperature:Cel:i16/100\", \"smoke::u8\"]\nurgent = \"!\"\n"
            );
            scene.write(&format!("{device}.toml"), &config);
        }
        Self { scene, port, _broker: broker }
    }

    fn cloud(&self) -> Cloud {
        self.scene.cloud_at("epochs.redb", &format!("127.0.0.1:{}", self.port))
    }

    fn gateway(&self) -> Running {
        Running::start(self.scene.command(&["gateway", "run", "--config", "gateway.toml"]))
    }

    fn event(&self, device: &str, values: &str, more: &[&str]) -> Run {
        let config = format!("{device}.toml");
        self.scene.run(&[&["device", "event", values, "--config", &config][..], more].concat())
    }

    /// Starts `device run`. Its stdin is open.
    fn device(&self, device: &str) -> Child {
        let config = format!("{device}.toml");
        let mut command = self.scene.command(&["device", "run", "--config", &config]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let socket = self.scene.path(device).join("event.sock");
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < LONG, "the device does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    fn get(&self, more: &[&str]) -> Run {
        let url = format!("http://127.0.0.1:{}", self.port);
        let get = ["get", "--events", "urgent", "--from", &url];
        self.scene.with_roster(&[&get[..], more].concat())
    }

    /// Returns a stream with an event for another place of the seal of `event`.
    fn forged(&self, key: &SecretKey, event: &Value, seq: u64) -> Vec<u8> {
        let operator = std::fs::read(self.scene.path("keys/op.pub.pem")).unwrap();
        let operator = decode_public_pem(&operator).unwrap();
        let bytes = std::fs::read(self.scene.path("roster.cbor")).unwrap();
        let roster = Roster::open(&bytes, &operator).unwrap();
        let fields =
            ["temperature:Cel:i16/100", "smoke::u8"].map(|field| Field::parse(field).unwrap());
        let mut buffer = [0; 256];
        let schema = Schema::encode(&fields, &mut buffer).unwrap();
        let event = UrgentEvent {
            group: roster.group(),
            roster: roster.digest(),
            device: roster.id("dev1").unwrap(),
            index: SealIndex(u32::try_from(event["index"].as_u64().unwrap()).unwrap()),
            epoch: EpochNumber(event["epoch"].as_u64().unwrap()),
            seq: Sequence(seq),
            schema: schema.digest(),
            keys: None,
            record: &[1, 2, 3],
        };
        let mut message = [0; 512];
        let message = event.message(key.algorithm(), &mut message).unwrap();
        let signature = key.signature(message).unwrap();
        let mut bytes = [0; 512];
        let mut out = Writer::new(&mut bytes);
        event.encode(&mut out, key.algorithm(), &signature).unwrap();
        let mut stream = Vec::new();
        write::schema(&mut stream, schema.as_bytes());
        stream.extend_from_slice(out.written());
        stream
    }

    /// Uploads a stream of urgent events.
    fn put(&self, body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "PUT /v1/events HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\n\
             Content-Type: application/cbor-seq\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }

    /// Returns the stored events as JSON objects. Waits until there are `count`.
    fn events(&self, count: usize) -> Vec<Value> {
        let start = Instant::now();
        loop {
            let run = self.get(&["--format", "jsonl"]).done();
            let events: Vec<Value> =
                run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            if events.len() >= count {
                return events;
            }
            assert!(start.elapsed() < LONG, "{run:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A client that waits for urgent events.
struct Follower {
    process: Child,
    lines: Receiver<(Instant, Value)>,
}

impl Follower {
    fn start(site: &Site, more: &[&str]) -> Self {
        let url = format!("http://127.0.0.1:{}", site.port);
        let get = ["get", "--events", "urgent", "--follow", "--format", "jsonl", "--from", &url];
        let roster = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
        let mut command = site.scene.command(&[&get[..], &roster, more].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = send.send((Instant::now(), serde_json::from_str(&line).unwrap()));
            }
        });
        Self { process, lines }
    }

    fn next(&self) -> (Instant, Value) {
        self.lines.recv_timeout(LONG).expect("an event arrives")
    }

    fn is_silent(&self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(300)).is_err()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn values(event: &Value) -> (String, f64, u64) {
    let number = |name: &str| event[name].as_f64().unwrap();
    let device = event["device"].as_str().unwrap().to_owned();
    (device, number("temperature"), event["smoke"].as_u64().unwrap())
}

/// The command opens the state itself, or passes the reading to the running device. Lines of stdin
/// with the prefix are urgent, too. Each event arrives once, while the epoch is still open. Prints
/// the latency of alarms.
#[test]
fn an_urgent_event_reaches_a_waiting_client_at_once() {
    let site = Site::new();
    let (cloud, gateway) = (site.cloud(), site.gateway());
    let follower = Follower::start(&site, &[]);

    let alone = site.event("dev1", "71.5,1", &["--json"]).done().json();
    assert_eq!((&alone["stored"], &alone["seq"]), (&true.into(), &0.into()));
    assert_eq!(values(&follower.next().1), ("dev1".to_owned(), 71.5, 1), "{}", gateway.log());

    // A negative number is a value, not an option.
    let mut device = site.device("dev1");
    let passed = site.event("dev1", "-3.25,0", &["--json"]).done().json();
    assert_eq!((&passed["index"], &passed["seq"]), (&alone["index"], &1.into()), "the same seal");
    let (_, event) = follower.next();
    assert_eq!(values(&event), ("dev1".to_owned(), -3.25, 0));
    assert_eq!((&event["index"], &event["seq"]), (&passed["index"], &passed["seq"]));
    let bad = site.event("dev1", "warm,0", &[]);
    assert!(bad.failed(USAGE).contains("BadReading"), "{bad:?}");

    let stdin = device.stdin.as_mut().unwrap();
    stdin.write_all(b"20.25,0\n!80.75,2\n20.5,0\n").unwrap();
    assert_eq!(values(&follower.next().1), ("dev1".to_owned(), 80.75, 2));

    let mut latencies = Vec::new();
    for alarm in 0..ALARMS {
        let start = Instant::now();
        writeln!(device.stdin.as_mut().unwrap(), "!{alarm}.5,3").unwrap();
        let (arrived, event) = follower.next();
        assert_eq!(values(&event).2, 3);
        latencies.push(arrived - start);
    }
    latencies.sort_unstable();
    let percentile =
        |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64();
    println!(
        "an alarm, from stdin of the device to stdout of the client: p50 {:.1} ms, p95 {:.1} ms, {ALARMS} alarms",
        percentile(50) * 1000.0,
        percentile(95) * 1000.0
    );
    assert!(follower.is_silent(), "each event arrives once");

    // A device that ends has delivered its urgent events. The readings are also sealed.
    drop(device.stdin.take());
    assert!(device.wait().unwrap().success());
    assert_eq!(site.events(3 + ALARMS).len(), 3 + ALARMS);
    assert_eq!(site.get(&["dev2", "--format", "csv"]).done().out, "");
    let csv = site.get(&["dev1", "--format", "csv"]).done().out;
    assert!(csv.starts_with("epoch,epoch_start,device,index,seq,temperature,smoke\n"), "{csv}");
    let check = site.get(&["--check", "--json", "--out", "checked.csv"]).done().json();
    assert_eq!(check["check"]["not_compared"], 3 + ALARMS, "the epoch has not ended: {check}");

    // When all devices have closed the epoch, its seals are at the cloud. They confirm the events.
    let mut other = site.device("dev2");
    other.stdin.take().unwrap().write_all(b"20.75,0\n").unwrap();
    assert!(other.wait().unwrap().success());
    let start = Instant::now();
    let checked = || site.get(&["--check", "--json", "--out", "checked.csv"]).done().json();
    while checked()["check"]["agree"] != 3 + ALARMS {
        assert!(start.elapsed() < LONG, "{}\n{}", checked(), gateway.log());
        std::thread::sleep(Duration::from_millis(100));
    }

    // Somebody who has the device's key signs other readings for places that were used: the sealed
    // reading 2, and the urgent reading 0.
    let key = std::fs::read(site.scene.path("keys/dev1.key.pem")).unwrap();
    let key = decode_secret_pem(&key).unwrap();
    for (seq, found) in
        [(2, "the urgent event and the seal differ"), (0, "two urgent events for one place")]
    {
        site.put(&site.forged(&key, &event, seq));
        let run = site.get(&["--check", "--format", "csv"]);
        assert!(run.stderr.contains(found), "{run:?}");
        assert!(run.failed(FINDING).contains("Equivocation"), "{run:?}");
    }

    let check = ["store", "check", "epochs.redb"];
    drop(cloud);
    let check = site.scene.with_roster(&check).done();
    assert!(check.out.contains("45 urgent events checked"), "{check:?}");
}

/// The gateway acknowledges an event before it is uploaded, and has it after a kill. A client
/// continues after an interruption without loss or repetition.
#[test]
fn an_event_survives_a_kill_of_the_gateway_while_the_cloud_is_down() {
    let site = Site::new();
    let cloud = site.cloud();
    let follower = Follower::start(&site, &[]);
    let gateway = site.gateway();
    site.event("dev1", "1,0", &[]).done();
    assert_eq!(values(&follower.next().1).1, 1.0);
    drop(cloud);

    site.event("dev1", "2,0", &[]).done();
    site.event("dev2", "3,0", &[]).done();
    drop(gateway);
    let gateway = site.gateway();
    let _cloud = site.cloud();
    let mut found = [follower.next().1, follower.next().1].map(|event| values(&event).1);
    found.sort_unstable_by(f64::total_cmp);
    assert_eq!(found, [2.0, 3.0], "{}", gateway.log());
    assert!(follower.is_silent());
    // A client continues where another one ended.
    let cursor = site.get(&["--out", "events.csv", "--json"]).done().json();
    assert_eq!(cursor["events"], 3);
    let after = ["--after", cursor["cursor"].as_str().unwrap(), "--format", "jsonl"];
    assert_eq!(site.get(&after).done().out, "");
}

/// Without a gateway, the reading is recorded. The next process of the device sends the event, also
/// if the one before was killed.
#[test]
fn a_device_keeps_an_event_until_the_gateway_has_it() {
    let site = Site::new();
    let _cloud = site.cloud();
    let waiting = site.event("dev1", "5,0", &["--wait", "1s"]);
    let why = waiting.failed(UNREACHABLE);
    assert!(why.contains("NotAcknowledged") && why.contains("is recorded"), "{why}");

    let mut device = site.device("dev1");
    let journal = site.scene.path("dev1").join("journal");
    let (start, before) = (Instant::now(), std::fs::metadata(&journal).unwrap().len());
    writeln!(device.stdin.as_mut().unwrap(), "!6,0").unwrap();
    while std::fs::metadata(&journal).unwrap().len() <= before + 100 {
        assert!(start.elapsed() < LONG, "the device does not record the reading");
        std::thread::sleep(Duration::from_millis(10));
    }
    device.kill().unwrap();
    device.wait().unwrap();

    let _gateway = site.gateway();
    site.event("dev1", "7,0", &[]).done();
    let mut found: Vec<_> = site.events(3).iter().map(|event| values(event).1).collect();
    found.sort_unstable_by(f64::total_cmp);
    assert_eq!(found, [5.0, 6.0, 7.0]);
}
