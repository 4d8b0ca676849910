//! Tests `moteseal device run --listen-coap` and `moteseal reading`: a device serves its readings, its
//! urgent events and its seals while its gateway cannot be reached, and clients verify, save and
//! observe them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use moteseal_client::reading::{Expected, Unverified, check};

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const UNREACHABLE: i32 = 6;

/// A device that reads lines from stdin.
struct Device {
    process: Child,
    url: String,
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes a group with a budget and the configuration of its device, whose gateway does not exist.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.run(&["key", "new", "--out", "keys/gateway"]).done();
    let new = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "home"];
    let budget = ["--epoch", "1h", "--budget", "1000", "--coordinator", "keys/gateway.pub.pem"];
    let devices = ["--device", "dev1=keys/dev1.pub.pem", "--device", "dev2=keys/dev2.pub.pem"];
    scene.run(&[&new[..], &budget, &devices, &["--out", "budget.cbor"]].concat()).done();
    fs::rename(scene.path("budget.cbor"), scene.path("roster.cbor")).unwrap();
    scene.run(&["key", "link", "--out", "keys/link.key"]).done();
    let link = ["key", "link", "--group-secret", "keys/link.key", "--device", "dev1"];
    scene.with_roster(&[&link[..], &["--out", "keys/dev1.link.key"]].concat()).done();
    scene.write(
        "device.toml",
        "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
         operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
         [link]\nurl = \"mqtt://127.0.0.1:9\"\n[coap]\nlisten = [\"127.0.0.1:0\"]\n\
         [source]\ncolumns = [\"temperature:Cel:i16/100\", \"humidity:%RH:u16/100\"]\nurgent = \"!\"\n",
    );
    scene
}

/// Gets a resource with libcoap's client, in blocks of this size, into a file. Returns its bytes, which
/// are empty if the device responds with an error.
fn fetch(scene: &Scene, url: &str, block: &str, file: &str) -> Vec<u8> {
    let path = scene.path(file);
    let _ = fs::remove_file(&path);
    let mut command = Command::new("coap-client-notls");
    command.args(["-v", "3", "-B", "5", "-b", block, "-o"]).arg(&path).arg(url);
    let output = command.output().expect("coap-client-notls is missing: run tools/setup.sh test");
    assert!(output.status.success(), "{output:?}");
    fs::read(&path).unwrap_or_default()
}

impl Device {
    fn start(scene: &Scene) -> Self {
        Self::start_with(scene, &[])
    }

    fn start_with(scene: &Scene, more: &[&str]) -> Self {
        let run = ["device", "run", "--config", "device.toml"];
        let mut command = scene.command(&[&run[..], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .find_map(|line| line.unwrap().strip_prefix("readings at ").map(str::to_owned));
        // Nobody else reads the log, so that its pipe must be emptied.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url: url.unwrap() }
    }

    fn sense(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }
}

fn reading(scene: &Scene, arguments: &[&str]) -> Run {
    scene.with_roster(&[&["--json", "reading"], arguments].concat())
}

/// Gets readings until one has this temperature.
fn until(scene: &Scene, url: &str, temperature: &str, more: &[&str]) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let run = reading(scene, &[&[url], more].concat());
        if run.code == 0 && run.json()["values"][0]["value"] == temperature {
            return run.json();
        }
        assert!(run.code == 0 || run.out.contains("no reading yet"), "{run:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{run:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_client_reads_a_running_device_and_refuses_what_it_must() {
    let scene = scene();
    let mut device = Device::start(&scene);
    let url = device.url.clone();
    device.sense("27.97,41.5");
    let first = until(&scene, &url, "27.97", &["--save", "first"]);
    assert_eq!(first["name"], "dev1");
    assert_eq!((&first["seq"], &first["index"]), (&0.into(), &0.into()));
    assert_eq!(first["values"][1]["unit"], "%RH");
    device.sense("-3,40");
    let json = format!("{url}?sig=json");
    let second = until(&scene, &json, "-3.00", &["--save", "second"]);
    assert_eq!(second["seq"], 1);

    // What was saved verifies without the device, and the earlier reading is not the newest.
    assert_eq!(reading(&scene, &["--file", "second"]).done().json()["seq"], 1);
    let again = ["--file", "first", "--no-pinned-seals"];
    assert_eq!(reading(&scene, &again).done().json()["seq"], 0);
    let old = scene.with_roster(&["reading", "--file", "first"]);
    assert!(old.failed(REFUSED).contains("OlderReading: dev1 signed reading 0 of seal 0"));
    for (file, flip) in [("first", 1), ("second", 0x20)] {
        let mut bytes = fs::read(scene.path(file)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= flip;
        fs::write(scene.path("changed"), &bytes).unwrap();
        let run = scene.with_roster(&["reading", "--file", "changed"]);
        let line = run.failed(REFUSED);
        assert!(line.contains("changed"), "{line}");
    }

    // A reading of another device, and another value than the one that was asked for.
    until(&scene, &url, "-3.00", &["--device", "dev1"]);
    until(&scene, &format!("{url}/temperature"), "-3.00", &["--device", "dev1", "--save", "one"]);
    for other in [[&url[..], "--device", "dev2"], ["--file=second", "--device", "dev2"]] {
        let line = scene.with_roster(&[&["reading"], &other[..]].concat());
        let line = line.failed(REFUSED);
        assert!(line.contains("OtherReading") && line.contains("of dev1, not of dev2"), "{line}");
    }
    let operator = fs::read(scene.path("keys/op.pub.pem")).unwrap();
    let operator = moteseal_core::identity::decode_public_pem(&operator).unwrap();
    let roster = fs::read(scene.path("roster.cbor")).unwrap();
    let roster = moteseal_verify::Roster::open(&roster, &operator).unwrap();
    for (file, value, is_expected) in
        [("one", "temperature", true), ("one", "humidity", false), ("second", "temperature", false)]
    {
        let response = Unverified::of_file(fs::read(scene.path(file)).unwrap());
        let found = check(&response, &roster, None).unwrap();
        let expected = Expected { device: None, value: Some(value.to_owned()) };
        assert_eq!(expected.check(&found, &roster).is_ok(), is_expected, "{file} {value}");
    }

    let unsigned = scene.with_roster(&["reading", &format!("{url}?sig=none")]);
    assert!(unsigned.failed(REFUSED).contains("NoSignature"));
    let missing = scene.with_roster(&["reading", &format!("{url}/pressure")]);
    assert!(missing.failed(USAGE).contains("4.04"), "{missing:?}");
    let secure = scene.with_roster(&["reading", &url.replace("coap:", "coaps:")]);
    secure.failed(USAGE);
    scene.with_roster(&["reading", "http://127.0.0.1/sensors"]).failed(USAGE);
}

#[test]
fn a_restarted_device_continues_after_its_last_reading() {
    let scene = scene();
    let mut device = Device::start(&scene);
    device.sense("20,41.5");
    let first = until(&scene, &device.url, "20.00", &[]);
    drop(device);
    let mut device = Device::start(&scene);
    let url = device.url.clone();
    let none = scene.with_roster(&["reading", &url]);
    assert!(none.failed(UNREACHABLE).contains("NoReading"), "{none:?}");
    device.sense("21,41.5");
    // The pinned reading shows that the place of the first one is not used again.
    let second = until(&scene, &url, "21.00", &[]);
    let place = |reading: &serde_json::Value| {
        (reading["index"].as_u64().unwrap(), reading["seq"].as_u64().unwrap())
    };
    assert!(place(&second) > place(&first), "{first} {second}");
}

#[test]
fn an_observer_prints_each_new_reading() {
    let scene = scene();
    let mut device = Device::start(&scene);
    device.sense("20,41.5");
    until(&scene, &device.url, "20.00", &[]);
    let arguments = ["reading", &device.url, "--observe", "--roster", "roster.cbor"];
    let mut command = scene.command(&[&arguments[..], &["--operator", "keys/op.pub.pem"]].concat());
    let mut observer = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(observer.stdout.take().unwrap()).lines();
    for temperature in ["20.00", "21.00", "22.00"] {
        if temperature != "20.00" {
            device.sense(&format!("{temperature},41.5"));
        }
        let line = lines.next().unwrap().unwrap();
        let expected = format!("temperature {temperature} Cel, humidity 41.50 %RH");
        assert!(line.starts_with("dev1 ") && line.contains(&expected), "{line}");
    }
    observer.kill().unwrap();
    observer.wait().unwrap();
}

#[test]
fn a_client_observes_urgent_events_before_a_gateway_has_them() {
    let scene = scene();
    let mut device = Device::start(&scene);
    let url = device.url.replace("/sensors", "/event");
    let none = scene.with_roster(&["reading", &url]).done();
    assert!(none.stderr.contains("0 urgent events verified"), "{none:?}");

    let arguments = ["reading", &url, "--observe", "--json", "--roster", "roster.cbor"];
    let mut command = scene.command(&[&arguments[..], &["--operator", "keys/op.pub.pem"]].concat());
    let mut observer = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(observer.stdout.take().unwrap()).lines();
    for (line, temperature) in [("!93.5,12", 93.5), ("!94,11", 94.0)] {
        device.sense("20,41.5");
        device.sense(line);
        let row = lines.next().unwrap().unwrap();
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        assert_eq!((&row["device"], &row["index"]), (&"dev1".into(), &0.into()), "{row}");
        assert_eq!(row["temperature"], temperature, "{row}");
    }
    observer.kill().unwrap();
    observer.wait().unwrap();

    // Another client stores the stream, which verifies without the device. Nothing else does.
    let stream = fetch(&scene, &url, "64", "events");
    let table = scene.with_roster(&["reading", "--file", "events"]).done();
    assert!(table.stderr.contains("2 urgent events verified"), "{table:?}");
    assert!(table.out.contains("94.00") && table.out.contains("93.50"), "{table:?}");
    for (at, name) in [(stream.len() - 3, "NotAuthentic"), (stream.len() - 2, "UnexpectedType")] {
        let mut forged = stream.clone();
        forged[at] ^= 1;
        fs::write(scene.path("forged"), forged).unwrap();
        let run = scene.with_roster(&["reading", "--file", "forged"]);
        let line = run.failed(REFUSED);
        assert!(line.contains(name) && line.contains("forged"), "{line}");
    }

    // No gateway has the events, so that the device serves them again after a restart.
    drop(device);
    let device = Device::start(&scene);
    let url = device.url.replace("/sensors", "/event");
    let start = Instant::now();
    while fetch(&scene, &url, "1024", "events") != stream {
        assert!(start.elapsed() < Duration::from_secs(30), "the events are served again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn any_client_stores_the_seals_of_an_epoch_and_verify_accepts_them() {
    let scene = scene();
    // The second epoch has 40 readings.
    scene.table("data.csv", 100);
    let config = fs::read_to_string(scene.path("device.toml")).unwrap();
    let config = config.replace("urgent = \"!\"", "table = \"data.csv\"\ntime = \"ts\"");
    scene.write("device.toml", &config);
    let mut kept = Vec::new();
    for block in ["64", "1024"] {
        let device = Device::start_with(&scene, &["--speed", "1000000"]);
        let url = device.url.replace("/sensors", "/seal");
        let run = scene.with_roster(&["reading", &url]);
        assert!(run.failed(USAGE).contains("moteseal verify"));
        let start = Instant::now();
        let verified = loop {
            let stream = fetch(&scene, &url, block, "seals.mseal");
            if !stream.is_empty() {
                let run = scene.with_roster(&["verify", "--json", "seals.mseal"]).done();
                if run.json()["devices"][0]["events"] == 40 {
                    kept.push(stream);
                    break run.json();
                }
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the epoch ends");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(verified["devices"][0]["name"], "dev1", "{verified}");
    }
    assert_eq!(kept[0], kept[1], "a restarted device serves the same seals again");
    let mut forged = kept.remove(0);
    // The signature of 64 bytes follows the readings.
    let reading = forged.len() - 80;
    forged[reading] ^= 1;
    fs::write(scene.path("forged.mseal"), forged).unwrap();
    let run = scene.with_roster(&["verify", "forged.mseal"]);
    assert!(run.failed(REFUSED).contains("NotAuthentic"), "{run:?}");
}
