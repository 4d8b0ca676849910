//! A cloud and a gateway continue their state only with the roster with which it was made, or with
//! a later version of that roster.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::scene::Scene;

/// Issues the version after `before` with `moteseal roster set`.
fn next(scene: &Scene, before: &str, out: &str, change: &[&str]) {
    let (before, out) = (format!("{before}.cbor"), format!("{out}.cbor"));
    let roster = ["roster", "set", "--roster", &before, "--operator", "keys/op.key.pem"];
    scene.run(&[&roster[..], &["--out", &out], change].concat()).done();
}

struct Site(Scene);

impl Site {
    /// Writes the first version of a roster, two versions that follow each other, another second
    /// version, and the rosters of another group and of another operator's group.
    fn new() -> Self {
        let scene = Scene::new();
        scene.run(&["key", "new", "--out", "keys/gateway"]).done();
        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        for (group, out) in [("home", "first.cbor"), ("away", "other.cbor")] {
            scene
                .run(&[
                    "roster",
                    "new",
                    "--operator",
                    "keys/op.key.pem",
                    "--group",
                    group,
                    "--epoch",
                    "1h",
                    "--budget",
                    "500",
                    "--coordinator",
                    "keys/gateway.pub.pem",
                    "--device",
                    "dev1=keys/dev1.pub.pem",
                    "--out",
                    out,
                ])
                .done();
        }
        next(&scene, "first", "second", &["--budget", "600"]);
        next(
            &scene,
            "second",
            "third",
            &["--epoch", "30m", "--levels", "17", "--from", "2100-01-01"],
        );
        next(&scene, "first", "fork", &["--budget", "700"]);
        Self(scene)
    }

    /// Runs a cloud with a roster.
    ///
    /// # Errors
    /// The error that the cloud printed.
    fn cloud(&self, version: &str) -> Result<(), String> {
        let roster = format!("{version}.cbor");
        let arguments = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        self.run(
            &[&arguments[..], &["--roster", &roster, "--operator", "keys/op.pub.pem"]].concat(),
            "epochs.redb-roster",
            version,
        )
    }

    fn config(&self, version: &str) {
        let config = format!(
            "roster = \"{version}.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\nlink_secret = \"keys/link.key\"\n\
             state = \"gateway\"\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n"
        );
        self.0.write("gateway.toml", &config);
    }

    fn gateway(&self, version: &str) -> Result<(), String> {
        self.config(version);
        self.run(&["gateway", "run", "--config", "gateway.toml"], "gateway/roster", version)
    }

    /// Runs a command until it has recorded the roster or has ended.
    fn run(&self, arguments: &[&str], record: &str, version: &str) -> Result<(), String> {
        let expected = fs::read(self.0.path(&format!("{version}.cbor"))).unwrap();
        let mut process =
            self.0.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while process.try_wait().unwrap().is_none() {
            if fs::read(self.0.path(record)).is_ok_and(|found| found == expected) {
                end(process);
                return Ok(());
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "the command neither records the roster nor ends"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
        Err(stderr)
    }
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Runs with each version and with rosters that cannot follow it.
fn check_versions(site: &Site, run: fn(&Site, &str) -> Result<(), String>) {
    let refused = |version: &str, name: &str| {
        let error = run(site, version).unwrap_err();
        assert!(error.contains(name) && error.contains(&format!("{version}.cbor")), "{error}");
    };
    run(site, "first").unwrap();
    run(site, "first").unwrap();
    refused("other", "WrongGroup");
    // A refused roster changes nothing.
    run(site, "first").unwrap();
    run(site, "second").unwrap();
    // A version cannot be replayed after its successor, and a second successor is refused.
    refused("first", "NotLater");
    refused("fork", "NotLater");
    run(site, "third").unwrap();
    refused("second", "NotLater");
    run(site, "third").unwrap();
}

/// Finding G2 of the review.
#[test]
fn a_cloud_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    check_versions(&site, Site::cloud);
    // The roster of a removed store does not restrict a new store.
    ["epochs.redb", "epochs.redb-journal"]
        .iter()
        .for_each(|file| fs::remove_file(site.0.path(file)).unwrap());
    site.cloud("fork").unwrap();
}

/// Finding G2 of the review.
#[test]
fn a_gateway_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    check_versions(&site, Site::gateway);
    // With --check the result is the same, and nothing changes.
    site.config("fork");
    assert!(
        site.0
            .run(&["gateway", "run", "--config", "gateway.toml", "--check"])
            .failed(2)
            .contains("NotLater")
    );
    site.gateway("third").unwrap();
}

/// Finding G2 of the review: a gateway loads a later version while it runs, and no other roster.
#[test]
fn a_running_gateway_loads_a_later_version_and_refuses_others() {
    let site = Site::new();
    let (live, record) = (site.0.path("live.cbor"), site.0.path("gateway/roster"));
    let version = |name: &str| fs::read(site.0.path(&format!("{name}.cbor"))).unwrap();
    let place = |name: &str| {
        fs::write(site.0.path("next.cbor"), version(name)).unwrap();
        fs::rename(site.0.path("next.cbor"), &live).unwrap();
    };
    place("first");
    site.config("live");
    let log = fs::File::create(site.0.path("gateway.log")).unwrap();
    let mut process = site
        .0
        .command(&["gateway", "run", "--config", "gateway.toml"])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            let log = fs::read_to_string(site.0.path("gateway.log")).unwrap();
            assert!(start.elapsed() < Duration::from_secs(30), "{what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let records = |name: &str| fs::read(&record).is_ok_and(|found| found == version(name));
    until("the first version", &|| records("first"));
    place("second");
    until("the second version", &|| records("second"));
    // Neither another second version nor an earlier one replaces it.
    for wrong in ["fork", "first"] {
        let refusals = || {
            let log = fs::read_to_string(site.0.path("gateway.log")).unwrap();
            log.matches("NotLater").count()
        };
        let before = refusals();
        place(wrong);
        until(wrong, &|| refusals() > before);
        assert!(records("second"), "{wrong}");
    }
    place("third");
    until("the third version", &|| records("third"));
    assert!(process.try_wait().unwrap().is_none());
    end(process);
}
