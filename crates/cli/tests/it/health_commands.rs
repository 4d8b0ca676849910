//! Tests health with processes: a gateway with two devices, of which one is played by this test, is
//! watched by `moteseal health watch` and by Prometheus, which runs the queries of the dashboard.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use moteseal_core::DeviceId;
use moteseal_core::health::{Health, Item};
use moteseal_core::link::LinkKey;
use moteseal_net::coap::{Address, ChildOptions, CoapChild};
use moteseal_net::link::until_up;
use moteseal_net::{ChildLink as _, Down};
use moteseal_seal::wire::{HealthFrame, HealthSession, MAX_HEALTH_FRAME};
use serde_json::Value;

use crate::coap_transport::{Service, scene};
use crate::scene::{Scene, repository};

const FINDING: i32 = 5;

/// A process that is killed at the end.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a gateway that serves health, metrics and links.
fn gateway(scene: &Scene) -> Service {
    scene.write(
        "gateway.toml",
        "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
         link_secret = \"keys/link.key\"\nstate = \"gateway\"\nlisten = \"127.0.0.1:0\"\n\
         listen_coap = \"127.0.0.1:0\"\n[health]\nperiod = \"1s\"\nlisten = \"127.0.0.1:0\"\n",
    );
    Service::start(scene, &["gateway", "run", "--config", "gateway.toml"], 3)
}

/// Starts `dev1`, which reports every second.
fn device(scene: &Scene, gateway: &str) -> Running {
    scene.write(
        "device.toml",
        "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
         operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
         [link]\nurl = \"mqtt://broker.example\"\n[health]\nperiod = \"1s\"\nthreshold = 0\n\
         [source]\ncolumns = [\"temperature:Cel:i16/100\"]\n",
    );
    let run = ["device", "run", "--config", "device.toml", "--to", gateway];
    let mut command = scene.command(&run);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// The device `dev2`, played by this test: a mote with a battery on a jammed channel.
pub(crate) struct Mote {
    runtime: tokio::runtime::Runtime,
    link: CoapChild,
    key: LinkKey,
    device: DeviceId,
    pub(crate) health: Health,
    /// The session that the gateway has begun; 0 before.
    session: u64,
}

impl Mote {
    pub(crate) fn new(scene: &Scene, gateway: &str) -> Self {
        let text = std::fs::read_to_string(scene.path("keys/dev2.link.key")).unwrap();
        let digits = hex::decode(text.lines().next().unwrap()).unwrap();
        let secret: [u8; 32] = digits.try_into().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let device = DeviceId::of("home", "dev2");
        let group = hex::encode(moteseal_core::GroupId::of("home").0);
        let link = runtime.block_on(async {
            let options = ChildOptions::new(Address::parse(gateway).unwrap(), group);
            let link = CoapChild::new(options, device.0).unwrap();
            until_up(link.state()).await.unwrap();
            link
        });
        let mut health = Health::new(4, 90_000);
        health.set(Item::Temperature, 235).set(Item::Battery, 57).set(Item::BatteryMv, 2950);
        health.set(Item::Rssi, -87).set(Item::LinkSent, 4000).set(Item::LinkReceived, 3900);
        Self { runtime, link, key: LinkKey::new(&secret), device, health, session: 0 }
    }

    pub(crate) fn report(&mut self) {
        self.health.uptime_s += 30;
        self.health.add(Item::LinkBadCrc, 45).add(Item::LinkCollisions, 20);
        self.health.add(Item::LinkSent, 30).add(Item::LinkReceived, 25).add(Item::GivenUp, 0);
        self.send();
        if self.session != 0 {
            return;
        }
        // The gateway begins a session; the mote reports again in it.
        let device = self.device;
        let offered = self.runtime.block_on(async {
            loop {
                let Down::Frame(frame) = self.link.receive().await.unwrap() else { continue };
                if let Ok(session) = HealthSession::open(&frame, device, &self.key) {
                    break session;
                }
            }
        });
        self.session = offered.session;
        self.send();
    }

    fn send(&self) {
        let frame = HealthFrame { session: self.session, interval_s: 30, health: self.health };
        let mut out = [0; MAX_HEALTH_FRAME];
        let frame = frame.close(self.device, &self.key, &mut out).unwrap().to_vec();
        self.runtime.block_on(self.link.send(frame.into())).unwrap();
    }
}

/// Returns the nodes of a table that is printed once, by name, until all of `names` have reported.
fn table(scene: &Scene, url: &str, names: &[&str]) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let run = scene.run(&["--json", "health", "watch", url, "--once"]).done();
        let rows: Vec<Value> =
            run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let has = |name: &&str| {
            rows.iter().any(|row| row["node"] == **name && row.get("health").is_some())
        };
        if names.iter().all(has) {
            return rows;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{run:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn row<'v>(rows: &'v [Value], name: &str) -> &'v Value {
    rows.iter().find(|row| row["node"] == name).unwrap()
}

#[test]
fn a_gateway_shows_its_nodes_and_those_that_never_reported() {
    let scene = scene(&["dev1", "dev2"]);
    let gateway = gateway(&scene);
    let url = gateway.url("coap").to_owned();
    let device = device(&scene, &url);
    let rows = table(&scene, &url, &["dev1"]);
    assert_eq!(row(&rows, "dev1")["health"]["boot"], 1);
    assert!(row(&rows, "dev1")["health"]["ip"]["received"].is_number(), "{rows:?}");
    assert_eq!(row(&rows, "dev2")["reasons"], "never heard");
    let text = scene.run(&["health", "watch", &url, "--once"]).done();
    assert!(text.out.starts_with("NODE ") && text.out.contains("never heard"), "{text:?}");
    // The gateway's own health, and a rule that it breaks.
    let own = format!("{url}/h");
    let rule = ["--once", "--alert", "ip.received >= 0"];
    let run = scene.run(&[&["health", "watch", &own][..], &rule].concat());
    assert!(run.failed(FINDING).contains("Alert"), "{run:?}");
    assert!(run.out.contains("ALERT"), "{run:?}");
    let page = http(gateway.url("http").trim_start_matches("http://"), "/metrics");
    assert!(
        page.contains("moteseal_health_queue_waiting{node=\"dev1\",role=\"device\"} 0"),
        "{page}"
    );
    // Killed and started again.
    drop(device);
    let _device = self::device(&scene, &url);
    let start = Instant::now();
    while row(&table(&scene, &url, &["dev1"]), "dev1")["health"]["boot"] != 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_report_is_in_the_output_of_watch_within_100_milliseconds() {
    let scene = scene(&["dev1", "dev2"]);
    let gateway = gateway(&scene);
    let url = gateway.url("coap").to_owned();
    let mut mote = Mote::new(&scene, &url);
    mote.report();
    let mut command =
        scene.command(&["--json", "health", "watch", &url, "--alert", "bad_crc/s > 5"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _watch = Running(watch);
    let mut next = |key: &str| loop {
        let value: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        if value.get(key).is_some() && value["node"] == "dev2" {
            return value;
        }
    };
    next("health");
    let mut delays: Vec<Duration> = (0..10)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(60));
            let start = Instant::now();
            mote.report();
            let uptime = mote.health.uptime_s;
            while next("health")["health"]["uptime_s"] != uptime {}
            start.elapsed()
        })
        .collect();
    delays.sort_unstable();
    println!("from the report to the output: {delays:?}");
    assert!(delays[5] < Duration::from_millis(100), "{delays:?}");
    mote.health.add(Item::LinkBadCrc, 1000);
    mote.report();
    assert_eq!(next("alert")["state"], "on");
}

/// Gets a page over HTTP.
pub(crate) fn http(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// Returns the queries of the dashboard, by the titles of their panels.
fn queries() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository("docs/grafana/moteseal.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$node", ".*").replace("$__rate_interval", "10s");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    queries
}

/// Returns the number of series of a query's result.
fn series(prometheus: &str, query: &str) -> usize {
    let digits = query.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
    let page = http(prometheus, &format!("/api/v1/query?query={digits}"));
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let json = &body[body.find('{').unwrap_or(0)..=body.rfind('}').unwrap_or(0)];
    let answer: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("{page}"));
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    answer["data"]["result"].as_array().unwrap().len()
}

#[test]
fn every_query_of_the_dashboard_returns_data_of_real_processes() {
    let scene = scene(&["dev1", "dev2"]);
    let gateway = gateway(&scene);
    let url = gateway.url("coap").to_owned();
    let _device = device(&scene, &url);
    let mut mote = Mote::new(&scene, &url);
    mote.report();
    let metrics = gateway.url("http").trim_start_matches("http://").to_owned();
    scene.write(
        "prometheus.yml",
        &format!(
            "global:\n  scrape_interval: 500ms\nscrape_configs:\n- job_name: moteseal\n  \
             static_configs:\n  - targets: [\"{metrics}\"]\n"
        ),
    );
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(scene.path("prometheus.yml"));
    command.arg("--storage.tsdb.path").arg(scene.path("prometheus"));
    command.args(["--web.listen-address", &address]).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().expect("prometheus is missing: run tools/setup.sh test");
    let _prometheus = Running(process);
    let start = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "Prometheus does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut missing = queries();
    assert!(missing.len() >= 8, "{missing:?}");
    while !missing.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(30), "no data: {missing:#?}");
        std::thread::sleep(Duration::from_millis(300));
        mote.report();
        missing.retain(|(_, query)| series(&address, query) == 0);
    }
}
