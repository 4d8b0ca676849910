//! The health of a device, a gateway and its nodes as sealed streams: real processes, whose rows are
//! fetched and verified, and compared with what a client of the gateway saw at the same time.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use moteseal_core::health::Item;
use serde_json::Value;

use crate::coap_transport::{Service, cloud, scene_with_epochs};
use crate::health_commands::{Mote, Running};
use crate::scene::Scene;

/// The rows of a stream, by the names of their columns.
type Rows = Vec<BTreeMap<String, String>>;

/// Starts a gateway that seals its own health and that of its nodes.
fn gateway(scene: &Scene, cloud: &Service) -> Service {
    scene.write(
        "gateway.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
             link_secret = \"keys/link.key\"\nstate = \"gateway\"\nlisten_coap = \"127.0.0.1:0\"\n\
             grace = \"1s\"\n[health]\nperiod = \"1s\"\nthreshold = 0\ndevice = \"gw-health\"\n\
             nodes = \"gw-nodes\"\n[cloud]\nurl = \"{}\"\n",
            cloud.url("coap")
        ),
    );
    Service::start(scene, &["gateway", "run", "--config", "gateway.toml"], 1)
}

/// Starts `dev1`, which reports every second and seals its reports.
fn device(scene: &Scene, gateway: &str) -> Child {
    let run = ["device", "run", "--config", "device.toml", "--to", gateway];
    let mut command = scene.command(&run);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Ends the readings of a device, and waits until the gateway has everything.
fn end(mut device: Child) {
    drop(device.stdin.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = device.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the gateway does not have everything");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}");
}

/// Gets the rows of a stream, which are verified, until `is_complete` accepts them.
fn rows(scene: &Scene, cloud: &Service, device: &str, is_complete: impl Fn(&Rows) -> bool) -> Rows {
    let start = Instant::now();
    loop {
        let get = ["get", device, "--from", cloud.url("http"), "--rate", "1", "--format", "csv"];
        let run = scene.with_roster(&[&get[..], &["--since", "1970-01-01"]].concat());
        let mut lines = run.out.lines().map(|line| line.split(',').map(str::to_owned));
        let header: Vec<String> = lines.next().map(Iterator::collect).unwrap_or_default();
        let rows: Rows = lines.map(|cells| header.iter().cloned().zip(cells).collect()).collect();
        if is_complete(&rows) {
            return rows;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{device}: {run:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Returns the start that a row belongs to, and the time since then.
fn place(row: &BTreeMap<String, String>) -> (u32, u32) {
    (row["boot"].parse().unwrap(), row["uptime_s"].parse().unwrap())
}

/// Asserts that the row of a report has the values of a report that a client saw.
#[track_caller]
fn assert_same(row: &BTreeMap<String, String>, health: &Value) {
    for item in Item::all() {
        let seen = &health[item.group().name()][item.name()];
        let cell = &row[item.full_name()];
        match seen.as_f64() {
            None => assert_eq!(cell, "", "{}: {row:?}", item.full_name()),
            Some(seen) => {
                let value: f64 = cell.parse().unwrap_or_else(|_| panic!("{cell:?}: {row:?}"));
                assert!((value - seen).abs() < 1e-9, "{}: {value} {seen}", item.full_name());
            }
        }
    }
}

#[test]
fn the_history_of_a_device_and_of_a_gateway_is_sealed_over_restarts_and_epochs() {
    let names = ["dev1", "dev2", "dev1-health", "gw-health", "gw-nodes"];
    let scene = scene_with_epochs(&names, "2s");
    let cloud = cloud(&scene, &[]);
    let gateway = gateway(&scene, &cloud);
    let url = gateway.url("coap").to_owned();
    scene.write(
        "device.toml",
        "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
         operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
         [link]\nurl = \"mqtt://broker.example\"\n\
         [health]\nperiod = \"1s\"\nthreshold = 0\ndevice = \"dev1-health\"\n\
         [source]\ncolumns = [\"temperature:Cel:i16/100\"]\n",
    );
    let check = scene.run(&["device", "run", "--config", "device.toml", "--check"]).done();
    assert!(check.stderr.contains("health is sealed by dev1-health"), "{check:?}");
    let mut command = scene.command(&["--json", "health", "watch", &url]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _watch = Running(watch);
    // Reports of two starts, of which the first one is killed, and of several epochs.
    let mut seen = BTreeMap::new();
    // Watches a start until some of its reports were seen, and returns the place of the last one.
    let mut until = |boot: u32, reports: usize| loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        let health = &line["health"];
        if line["node"] != "dev1" || health.is_null() {
            continue;
        }
        let number = |name: &str| u32::try_from(health[name].as_u64().unwrap()).unwrap();
        let place = (number("boot"), number("uptime_s"));
        seen.insert(place, health.clone());
        if seen.range((boot, 0)..).count() >= reports {
            break place;
        }
    };
    let first = Running(device(&scene, &url));
    until(1, 5);
    drop(first);
    let mut mote = Mote::new(&scene, &url);
    mote.report();
    let second = device(&scene, &url);
    let newest = until(2, 3);
    end(second);
    let rows_of =
        |name: &str, is_complete: &dyn Fn(&Rows) -> bool| rows(&scene, &cloud, name, is_complete);
    let history = rows_of("dev1-health", &|rows| rows.iter().any(|row| place(row) == newest));
    let mut epochs: Vec<&str> = history.iter().map(|row| &*row["epoch"]).collect();
    epochs.dedup();
    assert!(epochs.len() >= 2, "{epochs:?}");
    let places: Vec<_> = history.iter().map(place).collect();
    assert!(places.is_sorted() && places.first() == Some(&(1, 0)), "{places:?}");
    let mut compared = 0;
    for row in &history {
        let Some(health) = seen.get(&place(row)) else { continue };
        // The gateway shows the first report of a session also with the offset of the clock, which was
        // known only after it was sealed.
        let is_first = row["dev.clock_offset"].is_empty();
        if !is_first || health["dev"]["clock_offset"].is_null() {
            assert_same(row, health);
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared} of {places:?}, {:?}", seen.keys());
    // Both processes have the same clock.
    let offsets = history.iter().filter_map(|row| row["dev.clock_offset"].parse::<i64>().ok());
    let offsets: Vec<i64> = offsets.collect();
    assert!(!offsets.is_empty() && offsets.iter().all(|ms| ms.abs() < 1000), "{offsets:?}");
    // The gateway states what the mote reported, and its own health.
    let of_mote = |rows: &Rows| rows.iter().any(|row| row["node"] == "dev2");
    let nodes = rows_of("gw-nodes", &of_mote);
    let row = nodes.iter().find(|row| row["node"] == "dev2").unwrap();
    assert_same(row, &moteseal_net::health::json(&mote.health));
    assert!(nodes.iter().any(|row| row["node"] == "dev1" && place(row).0 == 1), "{nodes:?}");
    assert!(nodes.iter().all(|row| row["node"] != "gw-nodes"));
    let own = rows_of("gw-health", &|rows| rows.len() >= 2);
    assert!(own.iter().all(|row| row["boot"] == "1" && !row["ip.received"].is_empty()), "{own:?}");
}

#[test]
fn a_configuration_that_cannot_seal_health_is_refused() {
    let scene = scene_with_epochs(&["dev1", "dev2", "dev1-health"], "1h");
    let check = |health: &str, source: &str| {
        scene.write(
            "device.toml",
            &format!(
                "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
                 operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
                 [link]\nurl = \"mqtt://broker.example\"\n[health]\n{health}\n[source]\n{source}\n"
            ),
        );
        scene.run(&["device", "run", "--config", "device.toml", "--check"])
    };
    let lines = "columns = [\"temperature:Cel:i16/100\"]";
    check("device = \"dev1-health\"", lines).done();
    scene.table("data.csv", 4);
    let table = format!("table = \"data.csv\"\ntime = \"ts\"\n{lines}");
    for (health, source, why) in [
        ("device = \"dev1\"", lines, "health.device"),
        ("device = \"dev3\"", lines, "health.device"),
        ("device = \"dev1-health\"\nkey = \"keys/dev2.key.pem\"", lines, "health.key"),
        (
            "device = \"dev1-health\"\nlink_secret = \"keys/dev2.link.key\"",
            lines,
            "health.link_secret",
        ),
        ("nodes = \"dev1-health\"", lines, "health.nodes"),
        ("listen = \"127.0.0.1:0\"", lines, "[coap]"),
        ("device = \"dev1-health\"", &*table, "the times of the clock"),
    ] {
        let run = check(health, source);
        assert!(run.failed(2).contains(why), "{health}: {run:?}");
    }
}
