//! The commands of a group with a budget, as an operator types them. They make keys and a roster,
//! and run a cloud, a gateway and two devices. The devices replay recorded readings over a real
//! broker (Debian's Mosquitto). Then `get`, `audit` and `estimate` query the cloud. The tests use
//! MQTT 5, TLS with a password, MQTT 3.1.1 with a cloud that is unreachable for a while, and a
//! gateway whose disk is full.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::scene::{Cloud, Run, Scene, repository};
use serde_json::Value;

const STAR: &str = "dev1";
const TREE: &str = "dev2";
/// The devices: one seals stars and one seals trees.
const DEVICES: [&str; 2] = [STAR, TREE];
const BUDGET: u64 = 150;
/// The epochs of the readings. Each is an hour long.
const FIRST: u64 = 353_721;
const EPOCHS: u64 = 7;
const UNTIL: [&str; 2] = ["--until", "2010-05-09T16:00:00Z"];
/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(60);

/// Returns the temperatures of a device's table as text, in order: 720 per hour from the start of
/// the first epoch on.
fn temperatures(device: &str) -> Vec<String> {
    let table = fs::read_to_string(repository(&format!("data/examples/{device}.csv"))).unwrap();
    table.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().to_owned()).collect()
}

/// Returns the number of readings that a device reports as taken, in this run or an earlier one.
fn taken(log: &str, name: &str) -> u64 {
    let line = log.lines().find(|line| line.contains(" readings taken, ")).unwrap();
    let numbers =
        line.strip_prefix(&format!("{name}: ")).unwrap().split_once(" readings taken, ").unwrap();
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    number(numbers.0) + number(numbers.1.split_once(" already taken before").unwrap().0)
}

/// A process that is killed when this is dropped. A thread collects its stderr.
pub(crate) struct Running {
    process: Child,
    log: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        // Use a pipe, because a limit on file sizes does not apply to it.
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (copy, stderr) = (Arc::clone(&log), process.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = copy.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { process, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the first line of stdout.
    fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until the process ends successfully. Returns its log.
    pub(crate) fn wait(&mut self, others: &mut [&mut Self]) -> String {
        let start = Instant::now();
        while self.is_running() {
            let other_logs = || others.iter().map(|other| other.log()).collect::<String>();
            assert!(
                start.elapsed() < LONG,
                "the process does not end: {}\n{}",
                self.log(),
                other_logs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.process.wait().unwrap();
        // The last lines may still be in the pipe.
        std::thread::sleep(Duration::from_millis(50));
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }

    /// Stops the process with SIGTERM.
    fn stop(&self) {
        assert!(
            Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL: the process cannot clean up.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A group with a budget: its keys, cloud and configurations, made in a folder with the commands of
/// docs/gateway.md.
struct Site {
    scene: Scene,
    cloud: Cloud,
}

impl Site {
    /// Makes the files of the group. `url` is the broker's address. `link` contains the other lines
    /// of the table `[link]` of every configuration.
    fn new(url: &str, link: &str) -> Self {
        let scene = Scene::new();
        scene.run(&["key", "new", "--out", "keys/gateway"]).done();
        fs::remove_file(scene.path("roster.cbor")).unwrap();
        let budget = BUDGET.to_string();
        let roster = [
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "home",
            "--epoch",
            "1h",
            "--levels",
            "16",
        ];
        let sampled =
            ["--budget", &budget, "--coordinator", "keys/gateway.pub.pem", "--out", "roster.cbor"];
        let devices = ["--device", "dev1=keys/dev1.pub.pem", "--device", "dev2=keys/dev2.pub.pem"];
        scene.run(&[&roster[..], &devices, &sampled].concat()).done();
        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        scene.write("tokens", "read   reading-reading-1\nwrite  writing-writing-1\n");
        scene.write("read.token", "reading-reading-1\n");
        scene.write("write.token", "writing-writing-1\n");
        let cloud = scene.cloud_with("epochs.redb", &["--tokens", "tokens"]);
        let common = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n";
        let link = format!("[link]\nurl = \"{url}\"\n{link}");
        let gateway = format!(
            "{common}key = \"keys/gateway.key.pem\"\nlink_secret = \"keys/link.key\"\nstate = \"gateway\"\ngrace = \"60s\"\n\
             time = \"recorded\"\nlisten = \"127.0.0.1:0\"\n{link}\
             [cloud]\nurl = \"{}\"\ntoken_file = \"write.token\"\n",
            cloud.url
        );
        scene.write("gateway.toml", &gateway);
        for device in DEVICES {
            let secret = format!("keys/{device}.link.key");
            let linked = [
                "key",
                "link",
                "--group-secret",
                "keys/link.key",
                "--device",
                device,
                "--out",
                &secret,
            ];
            scene.with_roster(&linked).done();
            let table = repository(&format!("data/examples/{device}.csv"));
            let scheme = if device == TREE { "tree" } else { "star" };
            let config = format!(
                "device = \"{device}\"\nscheme = \"{scheme}\"\nkey = \"keys/{device}.key.pem\"\n{common}link_secret = \"{secret}\"\nstate = \"{device}\"\n\
                 {link}[source]\ntable = \"{}\"\ntime = \"ts\"\n\
                 columns = [\"temperature:Cel:i16/100\", \"humidity:%RH:u16/100\"]\n",
                table.display()
            );
            scene.write(&format!("{device}.toml"), &config);
        }
        Self { scene, cloud }
    }

    fn gateway(&self) -> Running {
        Running::start(self.scene.command(&["gateway", "run", "--config", "gateway.toml"]))
    }

    /// Starts a gateway whose files cannot grow beyond `bytes` until `prlimit` raises the limit.
    fn gateway_within(&self, bytes: u64) -> Running {
        let whole = self.scene.command(&["gateway", "run", "--config", "gateway.toml"]);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--fsize={bytes}:")).arg(whole.get_program()).args(whole.get_args());
        limited
            .current_dir(whole.get_current_dir().unwrap())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        Running::start(limited)
    }

    fn device(&self, device: &str, speed: &str) -> Running {
        let config = format!("{device}.toml");
        Running::start(
            self.scene.command(&["device", "run", "--config", &config, "--speed", speed]),
        )
    }

    /// Runs a command that queries the cloud.
    fn ask(&self, arguments: &[&str]) -> Run {
        let from = ["--from", &self.cloud.url, "--token", "read.token"];
        self.scene.with_roster(&[arguments, &from[..]].concat())
    }

    /// Returns the audit as JSON. Waits until it covers every epoch, because the last epochs may
    /// still be in transit.
    fn audited(&self, gateway: &Running) -> Value {
        let start = Instant::now();
        loop {
            let audit = self.ask(&["audit", "--json"]);
            let is_whole = [0, 5].contains(&audit.code)
                && audit.json()["epochs"].as_array().unwrap().len() as u64 == EPOCHS;
            if is_whole {
                return audit.json();
            }
            assert!(start.elapsed() < LONG, "epochs are missing: {audit:?}\n{}", gateway.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Lets both devices replay all their readings, and waits until the gateway has them.
    fn replay(&self, gateway: &mut Running) {
        let mut devices = DEVICES.map(|device| self.device(device, "max"));
        for (device, name) in devices.iter_mut().zip(DEVICES) {
            let log = device.wait(&mut [gateway]);
            assert_eq!(taken(&log, name), 4417, "{log}");
            assert!(log.contains("the gateway has everything"), "{log}");
        }
    }

    /// Asserts that every epoch is justified and within the budget, and that all readings are
    /// counted.
    fn assert_justified(&self, audit: &Value) {
        assert_eq!(
            (&audit["justified"], &audit["undetermined"], &audit["unjustified"]),
            (&EPOCHS.into(), &0.into(), &0.into())
        );
        let epochs = audit["epochs"].as_array().unwrap();
        for (epoch, number) in epochs.iter().zip(FIRST..) {
            let readings = if number == FIRST + EPOCHS - 1 { 2 * 97 } else { 2 * 720 };
            assert_eq!(
                (&epoch["epoch"], &epoch["events"], &epoch["listed"]),
                (&number.into(), &readings.into(), &2.into())
            );
            assert_eq!(
                (&epoch["round"], &epoch["doubts"]),
                (&epoch["due"], &Value::Array(Vec::new())),
                "{epoch}"
            );
            assert!(epoch["kept"].as_u64().unwrap() <= BUDGET, "{epoch}");
        }
    }

    /// Asserts the output of `audit`, `get` and `estimate`. `json` is the audit as JSON.
    fn assert_answers(&self, json: &Value) {
        // The text has one line per epoch, with the numbers on which its verdict is based.
        let audit = self.ask(&["audit"]).done();
        let epochs = json["epochs"].as_array().unwrap();
        assert_eq!(audit.out.lines().count() as u64, EPOCHS, "{}", audit.out);
        for (line, epoch) in audit.out.lines().zip(epochs) {
            let readings = if epoch["epoch"] == FIRST + EPOCHS - 1 { "194" } else { "1,440" };
            let (number, round, kept) = (&epoch["epoch"], &epoch["round"], &epoch["kept"]);
            assert!(line.starts_with(&format!("epoch {number} (2010-05-09T")), "{line}");
            let numbers = format!(
                "round {round}, due {round}: {kept} of {readings} readings kept, budget 150; 2 seals of 2 devices;"
            );
            assert!(line.contains("  Justified  ") && line.contains(&numbers), "{line}");
        }
        assert!(
            audit.stderr.starts_with("7 epochs justified, 0 not, 0 undetermined; "),
            "{}",
            audit.stderr
        );

        // `get`, at the highest rate that all epochs have, returns each row as recorded.
        let round = epochs.iter().map(|epoch| epoch["round"].as_u64().unwrap()).max().unwrap();
        assert!((3..=5).contains(&round), "a tenth of 1,440 readings is kept: round {round}");
        let rate = format!("1/{}", 1 << round);
        let get = [
            &["get", "--all", "--rate", &rate, "--format", "csv", "--no-pinned-seals"][..],
            &UNTIL,
        ]
        .concat();
        let rows = self.ask(&get).done().out;
        assert!(
            rows.starts_with("epoch,epoch_start,device,index,seq,temperature,humidity\n"),
            "{rows}"
        );
        let truth = DEVICES.map(temperatures);
        let assert_row = |row: &str| {
            let cells: Vec<&str> = row.split(',').collect();
            let device = DEVICES.iter().position(|device| *device == cells[2]).unwrap();
            let place =
                (cells[0].parse::<u64>().unwrap() - FIRST) * 720 + cells[4].parse::<u64>().unwrap();
            assert_eq!(
                cells[5].parse::<f64>(),
                truth[device][usize::try_from(place).unwrap()].parse(),
                "{row}"
            );
        };
        rows.lines().skip(1).for_each(assert_row);
        let expected: u64 = epochs.iter().map(|epoch| from_level(epoch, round)).sum();
        assert_eq!(rows.lines().count() as u64 - 1, expected);
        // The device that seals trees also supports a number of readings drawn by the client's
        // seed.
        let sample = [
            "get",
            TREE,
            "--sample",
            "20",
            "--seed",
            &"5e".repeat(32),
            "--format",
            "csv",
            "--no-pinned-seals",
        ];
        let drawn = self.ask(&[&sample[..], &UNTIL].concat()).done().out;
        drawn.lines().skip(1).for_each(assert_row);
        let of = |rows: &str, epoch: u64| {
            let row = format!("{epoch},");
            rows.lines()
                .filter(|line| line.starts_with(&row) && line.contains(&format!(",{TREE},")))
                .count()
        };
        for epoch in FIRST..FIRST + EPOCHS {
            let least = of(&rows, epoch).min(20);
            assert!((least..=20).contains(&of(&drawn, epoch)) && least > 0, "{drawn}");
        }
        assert!(
            self.ask(&[&["get", STAR, "--sample", "20", "--no-pinned-seals"][..], &UNTIL].concat())
                .stderr
                .contains("SchemeMismatch")
        );
        // A rate above the rate of the final rounds is refused, and the error states the highest
        // available rate.
        let refused =
            self.ask(&[&["get", "--all", "--rate", "1", "--no-pinned-seals"][..], &UNTIL].concat());
        assert!(
            refused.failed(2).contains("RateUnavailable")
                && refused.stderr.contains("the highest available rate"),
            "{refused:?}"
        );

        // The number of readings is exact. The estimated mean is close to the true mean for any
        // salts.
        let count = self
            .ask(&[&["estimate", "count", "temperature", "--no-pinned-seals"][..], &UNTIL].concat())
            .done();
        let expected_line = format!(
            "count 8834.0000  (95 %: 8834.0000 to 8834.0000), from {expected} of 8,834 readings"
        );
        assert!(count.out.starts_with("group ") && count.out.contains(&expected_line), "{count:?}");
        assert!(count.stderr.starts_with(&format!("--rate {rate}\n")), "{}", count.stderr);
        assert!(
            DEVICES
                .iter()
                .all(|device| count.stderr.contains(&format!("{device}         verified"))),
            "{}",
            count.stderr
        );
        let mean = self
            .ask(
                &[&["estimate", "mean", "temperature", "--no-pinned-seals", "--json"][..], &UNTIL]
                    .concat(),
            )
            .done()
            .json();
        let all: Vec<f64> = truth.iter().flatten().map(|value| value.parse().unwrap()).collect();
        let true_mean = all.iter().sum::<f64>() / all.len() as f64;
        let estimate = &mean["group"]["estimates"][0];
        let [value, low, high] =
            ["value", "low_95", "high_95"].map(|name| estimate[name].as_f64().unwrap());
        assert!(
            (value - true_mean).abs() < 2.5 * (high - low) && low < value && value < high,
            "{mean}, truth {true_mean}"
        );
    }
}

/// Returns the number of an epoch's readings at or above a level.
fn from_level(epoch: &Value, level: u64) -> u64 {
    let levels = epoch["levels"].as_array().unwrap();
    levels[usize::try_from(level).unwrap()..].iter().map(|count| count.as_u64().unwrap()).sum()
}

/// Returns the response of a gateway's HTTP listener.
fn http(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn from_keys_to_an_estimate_over_mqtt_5() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path());
    let site = Site::new(&broker.url(), "");
    let checked = site.scene.run(&["gateway", "run", "--config", "gateway.toml", "--check"]).done();
    for line in [
        "group    home, 2 devices",
        "budget   150 events per epoch of 3600000 ms",
        &format!("link     {}", broker.url()),
        "state    ./gateway, at most 1.1 GB",
        &format!("cloud    {}/", site.cloud.url),
        "epochs   close 60000 ms after a later one begins, in the time of replayed readings",
        "listen   127.0.0.1:0",
        "the configuration is valid; without --check the gateway would run now",
    ] {
        assert!(
            checked.out.lines().any(|printed| printed == line),
            "{line:?} is not in {}",
            checked.out
        );
    }
    assert!(!site.scene.path("gateway").exists(), "--check created the state folder");
    let checked = site.scene.run(&["device", "run", "--config", "dev1.toml", "--check"]).done();
    assert!(
        checked.stderr.contains("device dev1 of group home")
            && checked.stderr.contains("replays 4,417 readings"),
        "{checked:?}"
    );

    let mut gateway = site.gateway();
    let watch = gateway.first_line();
    site.replay(&mut gateway);
    let json = site.audited(&gateway);
    site.assert_justified(&json);
    let ready = http(&watch, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("ready\n"), "{ready}");
    // The cloud has the last epoch before the gateway has its reply.
    let until = Instant::now() + LONG;
    loop {
        let metrics = http(&watch, "/metrics");
        let missing = [
            "moteseal_gateway_epochs_ended_total 7",
            "moteseal_gateway_outbox_items 0",
            "moteseal_gateway_uploads_total 7",
        ]
        .into_iter()
        .find(|metric| !metrics.lines().any(|line| line == *metric));
        let Some(metric) = missing else { break };
        assert!(Instant::now() < until, "{metric}: {metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
    gateway.stop();
    let log = gateway.wait(&mut []);
    assert!(
        log.contains("an epoch has ended") && log.contains("stopped") && !log.contains("ERROR"),
        "{log}"
    );

    site.assert_answers(&json);
}

#[test]
fn over_tls_with_a_password_and_a_wrong_password_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("broker.pem"), made.cert.pem()).unwrap();
    fs::write(path("broker.key"), made.signing_key.serialize_pem()).unwrap();
    let passwords = Command::new("mosquitto_passwd")
        .args(["-c", "-b", &path("passwords"), "field", "open sesame"])
        .status();
    assert!(passwords.unwrap().success());
    let (chain, key, passwords) = (path("broker.pem"), path("broker.key"), path("passwords"));
    let more = format!(
        "certfile {chain}\nkeyfile {key}\nallow_anonymous false\npassword_file {passwords}\n"
    );
    let broker = Broker::start(folder.path(), &more);
    let url = format!("mqtts://localhost:{}", broker.port);
    let link = format!("ca = \"{chain}\"\nuser = \"field\"\npassword_file = \"password\"\n");
    let site = Site::new(&url, &link);
    for command in ["gateway", "device"] {
        let config = if command == "gateway" { "gateway.toml" } else { "dev1.toml" };
        site.scene.write("password", "open barley\n");
        let refused = site.scene.run(&[command, "run", "--config", config]);
        let log = refused.failed(6);
        assert!(log.contains("Refused") && log.contains("check the user, the password"), "{log}");
        // If the broker's certificate authority is not configured, the broker's certificate is not
        // trusted.
        let text = fs::read_to_string(site.scene.path(config)).unwrap();
        site.scene.write("strange.toml", &text.replace("ca = ", "# ca = "));
        let refused = site.scene.run(&[command, "run", "--config", "strange.toml"]);
        assert!(refused.failed(6).contains("NotTrusted"), "{refused:?}");
    }
    site.scene.write("password", "open sesame\n");
    let mut gateway = site.gateway();
    site.replay(&mut gateway);
    let audit = site.audited(&gateway);
    site.assert_justified(&audit);
    site.assert_answers(&audit);
}

#[test]
fn over_mqtt_3_1_1_to_a_cloud_that_is_unreachable_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path());
    let mut site = Site::new(&broker.url(), "version = \"3.1.1\"\n");
    site.cloud.stop();
    let mut gateway = site.gateway();
    site.replay(&mut gateway);
    // All epochs wait in the outbox, in order.
    let expected: Vec<String> =
        (FIRST..FIRST + EPOCHS).map(|epoch| format!("{epoch:020}.epoch")).collect();
    let start = Instant::now();
    while site.scene.names("gateway/outbox") != expected {
        assert!(
            start.elapsed() < LONG,
            "{:?} wait: {}",
            site.scene.names("gateway/outbox"),
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        gateway.log().contains("epochs wait in the outbox until the cloud accepts them"),
        "{}",
        gateway.log()
    );
    let address = format!("127.0.0.1:{}", site.cloud.port());
    site.cloud = site.scene.cloud_at("epochs.redb", &address);
    let audit = site.audited(&gateway);
    site.assert_justified(&audit);
    site.assert_answers(&audit);
    assert!(gateway.log().contains("the cloud accepts epochs again"), "{}", gateway.log());
}

/// A limit on file sizes has the same effect as a full disk, and the test can lift it while the
/// gateway runs.
#[test]
fn a_full_disk_is_reported_and_no_acknowledged_reading_is_lost() {
    // Fewer bytes than the devices forward per epoch, with any salts.
    const ROOM: u64 = 1500;
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path());
    let site = Site::new(&broker.url(), "");
    let until = |gateway: &Running, what: &str| {
        let start = Instant::now();
        while !gateway.log().contains(what) {
            assert!(start.elapsed() < LONG, "the log does not contain {what:?}: {}", gateway.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut gateway = site.gateway_within(ROOM);
    let mut watch = gateway.first_line();
    let mut devices = DEVICES.map(|device| site.device(device, "5000x"));
    for kill in [true, false] {
        until(&gateway, "name=\"DiskFull\"");
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains("DiskFull")).unwrap();
        assert!(
            line.contains("ERROR")
                && line.contains("no space left")
                && line.contains("devices keep them"),
            "{line}"
        );
        let ready = http(&watch, "/readyz");
        assert!(
            ready.starts_with("HTTP/1.1 503") && ready.contains("no room: frames are not accepted"),
            "{ready}"
        );
        assert!(http(&watch, "/healthz").starts_with("HTTP/1.1 200"), "the gateway is not healthy");
        let journal = fs::metadata(site.scene.path("gateway/journal")).unwrap().len();
        assert!(
            (100..=ROOM).contains(&journal),
            "frames must have been acknowledged before: {journal} bytes"
        );
        assert!(devices.iter_mut().all(Running::is_running), "a device ended instead of waiting");
        if kill {
            // Even after a kill, the journal contains everything that was acknowledged before the
            // disk was full.
            drop(gateway);
            gateway = site.gateway_within(ROOM);
            watch = gateway.first_line();
            until(&gateway, "the journal was read");
            let log = gateway.log();
            assert!(!log.contains("frames=0 ") && log.contains(" refused=0 "), "{log}");
        }
    }
    // Once there is free space again, the gateway continues without a restart.
    let pid = gateway.process.id().to_string();
    assert!(
        Command::new("prlimit")
            .args(["--pid", &pid, "--fsize=unlimited:"])
            .status()
            .unwrap()
            .success()
    );
    until(&gateway, "frames are accepted again");
    for (device, name) in devices.iter_mut().zip(DEVICES) {
        let log = device.wait(&mut [&mut gateway]);
        assert_eq!(taken(&log, name), 4417, "{log}");
        assert!(log.contains("the gateway has everything"), "{log}");
    }
    site.assert_justified(&site.audited(&gateway));
    assert_eq!(gateway.log().matches("ERROR").count(), 1, "{}", gateway.log());
}
