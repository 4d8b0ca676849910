//! Runs `moteseal device run` as a process, with a gateway, a broker and a cloud. While the device
//! runs, the group's roster changes. When its state is lost, its chain is recovered with the
//! gateway's help.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broker::Broker;
use crate::gateway_commands::Running;
use crate::scene::{Cloud, Run, Scene};

const USAGE: i32 = 2;
const LONG: Duration = Duration::from_secs(60);
/// The hour, of six, from which the second version of the roster certifies another key.
const ROTATED: &str = "2026-01-01T05:00:00Z";
/// The minimum number of indices that a recovered chain leaves out.
const GAP: u64 = 1 << 16;

/// A group with one device, `dev1`. It replays `readings.csv`.
struct Site {
    scene: Scene,
    cloud: Cloud,
    _broker: Broker,
}

impl Site {
    /// Makes the keys, three versions of the roster (`first.cbor`, `second.cbor`, `roster.cbor`) and
    /// the configurations, and starts a broker and a cloud. The device reads the roster
    /// `live.cbor`; the gateway and the cloud have the last version.
    fn new() -> Self {
        let scene = Scene::new();
        for key in ["gateway", "dev1b"] {
            scene.run(&["key", "new", "--out", &format!("keys/{key}")]).done();
        }
        let new = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "home"];
        let budget = ["--epoch", "1h", "--budget", "1000", "--coordinator", "keys/gateway.pub.pem"];
        let device = ["--device", "dev1=keys/dev1.pub.pem", "--out", "first.cbor"];
        scene.run(&[&new[..], &budget, &device].concat()).done();
        let change = |command: &str, before: &str, out: &str, change: &[&str]| {
            let roster = ["roster", command, "--roster", before, "--operator", "keys/op.key.pem"];
            scene.run(&[&roster[..], &["--out", out], change].concat()).done();
        };
        let rotated = ["--device", "dev1=keys/dev1b.pub.pem", "--from", ROTATED];
        change("rotate", "first.cbor", "second.cbor", &rotated);
        fs::remove_file(scene.path("roster.cbor")).unwrap();
        change("set", "second.cbor", "roster.cbor", &["--budget", "900"]);

        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        let link = ["key", "link", "--group-secret", "keys/link.key", "--device", "dev1"];
        scene.with_roster(&[&link[..], &["--out", "keys/dev1.link.key"]].concat()).done();
        let (cloud, broker) = (scene.cloud("epochs.redb"), Broker::open(&scene.path("")));
        let link = format!("[link]\nurl = \"{}\"\n", broker.url());
        let gateway = format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
             link_secret = \"keys/link.key\"\nstate = \"gateway\"\ngrace = \"60s\"\ntime = \"recorded\"\n\
             {link}[cloud]\nurl = \"{}\"\n",
            cloud.url
        );
        scene.write("gateway.toml", &gateway);
        let device = format!(
            "device = \"dev1\"\nroster = \"live.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/dev1.key.pem\"\n\
             next_key = \"keys/dev1b.key.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
             {link}[source]\ntable = \"readings.csv\"\ntime = \"ts\"\n\
             columns = [\"temperature:Cel:i16/100\", \"humidity:%RH:u16/100\"]\n"
        );
        scene.write("device.toml", &device);
        Self { scene, cloud, _broker: broker }
    }

    fn gateway(&self) -> Running {
        Running::start(self.scene.command(&["gateway", "run", "--config", "gateway.toml"]))
    }

    fn device(&self, speed: &str) -> Running {
        let run = ["device", "run", "--config", "device.toml", "--speed", speed];
        Running::start(self.scene.command(&run))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.scene.path(name)).unwrap()
    }

    /// Replaces the device's roster.
    fn place(&self, roster: &[u8]) {
        fs::write(self.scene.path("next.cbor"), roster).unwrap();
        fs::rename(self.scene.path("next.cbor"), self.scene.path("live.cbor")).unwrap();
    }

    /// Waits until the cloud has this number of epochs. Asserts that all of them are justified.
    fn audited(&self, epochs: usize, gateway: &Running) {
        let start = Instant::now();
        let audit = loop {
            let run = self.scene.with_roster(&["audit", "--from", &self.cloud.url, "--json"]);
            if run.code == 0 && run.json()["epochs"].as_array().map(Vec::len) == Some(epochs) {
                break run.json();
            }
            assert!(start.elapsed() < LONG, "{run:?}\n{}", gateway.log());
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(audit["justified"], epochs, "{audit}");
    }

    /// Returns the report on all rows of the device.
    fn get(&self) -> Value {
        let from = ["--from", &self.cloud.url, "--rate", "1", "-o", "rows.csv", "--json"];
        let report = self.scene.with_roster(&[&["get", "dev1"][..], &from].concat());
        report.done().json()["devices"][0].clone()
    }
}

fn signal(process: &Running, name: &str) {
    let kill = Command::new("kill").args([name, &process.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

/// The device loads a later version when its file changes, and on SIGHUP even if nothing but the
/// content of the file differs. It refuses an earlier version and a damaged one. The second version
/// certifies another key from the sixth hour on, so that the gateway accepts this hour only from a
/// device that has loaded the version.
#[test]
fn a_running_device_loads_a_later_version_and_refuses_others() {
    let site = Site::new();
    // 1,200 times as fast as recorded, an hour takes 3 seconds.
    site.scene.table("readings.csv", 6 * 60);
    site.place(&site.bytes("first.cbor"));
    let mut gateway = site.gateway();
    let mut device = site.device("1200");
    let until = |what: &str, is_so: &dyn Fn(&str) -> bool| {
        let start = Instant::now();
        while !is_so(&device.log()) {
            assert!(start.elapsed() < LONG, "never {what}: {}\n{}", device.log(), gateway.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let has_loaded = |log: &str, version: u32| {
        let loaded = "loaded a later version of the roster";
        let version = format!("version={version}");
        log.lines().any(|line| line.contains(loaded) && line.ends_with(&version))
    };
    until("running", &|_| fs::metadata(site.scene.path("dev1/journal")).is_ok());
    site.place(&site.bytes("second.cbor"));
    until("the second version", &|log| has_loaded(log, 1));
    site.place(&site.bytes("first.cbor"));
    until("an earlier version", &|log| log.contains("NotLater"));

    let third = site.bytes("roster.cbor");
    let mut damaged = third.clone();
    *damaged.last_mut().unwrap() ^= 1;
    site.place(&damaged);
    let refusals = |log: &str| log.matches("the service continues with the version in use").count();
    until("a damaged version", &|log| refusals(log) == 2);
    // A signal makes the device read the file again, although it is the same.
    signal(&device, "-HUP");
    until("the damaged version again", &|log| refusals(log) == 3);
    // Write the third version to the same file with the same length and time of modification. The
    // time of the change, which no program can set, shows it.
    let live = site.scene.path("live.cbor");
    let modified = fs::metadata(&live).unwrap().modified().unwrap();
    signal(&device, "-STOP");
    fs::write(&live, third).unwrap();
    File::options().write(true).open(&live).unwrap().set_modified(modified).unwrap();
    signal(&device, "-CONT");
    until("the third version", &|log| has_loaded(log, 2));

    let log = device.wait(&mut [&mut gateway]);
    assert!(
        log.contains("360 readings taken, 0 already taken before; the gateway has everything"),
        "{log}\n{}",
        gateway.log()
    );
    site.audited(6, &gateway);
    let rows = site.get();
    assert_eq!((&rows["rows"], &rows["seals"]), (&360.into(), &6.into()), "{rows}");
}

/// Removes the device's state folder, and the state of its chain with the file of its lock.
fn lose_state(scene: &Scene) {
    fs::remove_dir_all(scene.path("dev1")).unwrap();
    for name in scene.names("keys") {
        if name.starts_with("dev1.") && name.contains(".chain") {
            fs::remove_file(scene.path("keys").join(name)).unwrap();
        }
    }
}

fn recover(scene: &Scene, more: &[&str]) -> Run {
    let recover = ["chain", "recover", "--by-gateway", "--key", "keys/dev1.key.pem", "--json"];
    scene.run(&[&recover[..], &["--operator", "keys/op.pub.pem"], more].concat())
}

#[test]
fn a_chain_that_is_recovered_by_the_gateway_continues_after_the_stored_seals() {
    let site = Site::new();
    site.place(&site.bytes("roster.cbor"));
    let mut gateway = site.gateway();
    site.scene.table("readings.csv", 3 * 60);
    let log = site.device("max").wait(&mut [&mut gateway]);
    assert!(log.contains("180 readings taken, 0 already taken before"), "{log}");
    site.audited(3, &gateway);

    lose_state(&site.scene);
    site.scene.table("readings.csv", 5 * 60);
    let run = site.scene.run(&["device", "run", "--config", "device.toml"]);
    let refused = run.failed(USAGE);
    assert!(
        refused.contains("ChainUnknown") && refused.contains("moteseal chain recover"),
        "{run:?}"
    );
    // A group without a budget has no gateway, and one source is enough.
    site.scene.roster("home", "keys/op.key.pem", "none.cbor");
    let run = recover(&site.scene, &["--roster", "none.cbor"]);
    assert!(run.failed(USAGE).contains("no gateway that knows the chain"), "{run:?}");
    let live = ["--roster", "live.cbor"];
    let both = recover(&site.scene, &[&live[..], &["--from", &site.cloud.url]].concat());
    assert_eq!(both.code, USAGE, "{both:?}");
    let recovered = recover(&site.scene, &live).done().json();
    assert!(recovered["newest"].is_null() && recovered["restart"] == true, "{recovered}");
    assert!(recovered["next_index"].as_u64().unwrap() >= GAP, "{recovered}");
    let again = recover(&site.scene, &live);
    assert!(again.failed(USAGE).contains("ChainExists"), "{again:?}");

    let log = site.device("max").wait(&mut [&mut gateway]);
    assert!(
        log.contains("120 readings taken, 180 already taken before; the gateway has everything"),
        "{log}\n{}",
        gateway.log()
    );
    site.audited(5, &gateway);
    let rows = site.get();
    assert_eq!((&rows["rows"], &rows["seals"]), (&300.into(), &5.into()), "{rows}");
    // The chain has one gap, which the fourth seal states.
    let outages = rows["outages"].as_array().unwrap();
    assert!(outages.len() == 1 && outages[0]["index"].as_u64().unwrap() > GAP, "{rows}");
    let shown = ["chain", "show", "--key", "keys/dev1.key.pem", "--json"];
    let shown = site.scene.with_roster(&shown).done().json();
    assert_eq!(shown["newest"]["index"].as_u64(), outages[0]["index"].as_u64().map(|at| at + 1));
}
