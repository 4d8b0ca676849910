//! Tests `moteseal device run --listen-coap` and `moteseal reading`: a device serves its readings
//! while its gateway cannot be reached, and a client verifies, saves and observes them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

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
    let device = ["--device", "dev1=keys/dev1.pub.pem", "--out", "budget.cbor"];
    scene.run(&[&new[..], &budget, &device].concat()).done();
    fs::rename(scene.path("budget.cbor"), scene.path("roster.cbor")).unwrap();
    scene.run(&["key", "link", "--out", "keys/link.key"]).done();
    let link = ["key", "link", "--group-secret", "keys/link.key", "--device", "dev1"];
    scene.with_roster(&[&link[..], &["--out", "keys/dev1.link.key"]].concat()).done();
    scene.write(
        "device.toml",
        "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
         operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
         [link]\nurl = \"mqtt://127.0.0.1:9\"\n[coap]\nlisten = [\"127.0.0.1:0\"]\n\
         [source]\ncolumns = [\"temperature:Cel:i16/100\", \"humidity:%RH:u16/100\"]\n",
    );
    scene
}

impl Device {
    fn start(scene: &Scene) -> Self {
        let mut command = scene.command(&["device", "run", "--config", "device.toml"]);
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
