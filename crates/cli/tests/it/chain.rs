//! A device's chain begins once. A copy or another name of the key, a new directory or a lost state
//! does not begin a second chain, and a lost state is rebuilt from the cloud.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::scene::{COLUMNS, Cloud, Run, Scene};

const USAGE: i32 = 2;
/// The indices that a recovered chain leaves out, at least and at most.
const GAP: std::ops::Range<u64> = (1 << 16)..(1 << 16) + (1 << 20);

/// Seals hours of a table of one device, `more` after the other arguments.
fn seal(scene: &Scene, table: &str, key: &str, out: &str, more: &[&str]) -> Run {
    let arguments = ["seal", table, "--device", "dev1", "--key", key, "--out", out, "--json"];
    scene.with_roster(&[&arguments[..], &COLUMNS, more].concat())
}

/// Writes tables of one hour each: `0.csv`, `1.csv` and so on.
fn hours(scene: &Scene, count: usize) {
    scene.table("all.csv", 60 * u32::try_from(count).unwrap());
    let text = fs::read_to_string(scene.path("all.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (hour, rows) in lines[1..].chunks(60).enumerate() {
        scene.write(&format!("{hour}.csv"), &[&lines[..1], rows].concat().join("\n"));
    }
}

fn chain(scene: &Scene, command: &[&str]) -> Run {
    scene.with_roster(&[&["chain"], command, &["--json"]].concat())
}

fn recover(scene: &Scene, cloud: &Cloud, key: &str) -> Run {
    chain(scene, &["recover", "--from", &cloud.url, "--key", key])
}

/// Removes the state of the chain, and the file of its lock.
fn lose_state(scene: &Scene) {
    for name in scene.names("keys").iter().filter(|name| name.contains(".chain")) {
        if name.starts_with("dev1.") {
            fs::remove_file(scene.path("keys").join(name)).unwrap();
        }
    }
}

/// Finding A2 of the review.
#[test]
fn a_copied_or_renamed_key_does_not_begin_a_second_chain() {
    let scene = Scene::new();
    hours(&scene, 2);
    let key = "keys/dev1.key.pem";
    seal(&scene, "0.csv", key, "bundles", &[]).done();
    fs::create_dir(scene.path("copy")).unwrap();
    fs::copy(scene.path(key), scene.path("copy/dev1.key.pem")).unwrap();
    fs::copy(scene.path(key), scene.path("keys/other.key.pem")).unwrap();
    let salt = ["--salt-key", "keys/dev1.salt.key"];
    for copy in ["copy/dev1.key.pem", "keys/other.key.pem"] {
        let run = seal(&scene, "1.csv", copy, "elsewhere", &salt);
        assert_eq!(run.code, USAGE, "{run:?}");
        for part in ["ChainUnknown: ", "moteseal chain new", "moteseal chain recover --from CLOUD"]
        {
            assert!(run.stderr.contains(part), "{part}: {run:?}");
        }
        assert!(scene.names("elsewhere").is_empty());
    }
    // A symbolic link is another name of the same file, so the chain continues.
    symlink(scene.path(key), scene.path("copy/link.key.pem")).unwrap();
    let run = seal(&scene, "1.csv", "copy/link.key.pem", "elsewhere", &salt).done();
    assert_eq!(run.json()["bundles"][0]["index"], 1);
}

/// Finding A2 of the review.
#[test]
fn a_lost_state_does_not_begin_the_chain_again() {
    let scene = Scene::new();
    hours(&scene, 2);
    let key = "keys/dev1.key.pem";
    seal(&scene, "0.csv", key, "bundles", &[]).done();
    lose_state(&scene);
    for more in [&[][..], &["--state", "new.chain"]] {
        let run = seal(&scene, "1.csv", key, "elsewhere", more);
        assert!(run.code == USAGE && run.stderr.contains("ChainUnknown: "), "{run:?}");
    }
    // The device has sealed before, so its chain cannot be new.
    let run = chain(&scene, &["new", "--key", key]);
    assert!(run.failed(USAGE).contains("ChainExists: dev1 has sealed before"), "{run:?}");
}

/// Finding A2 of the review.
#[test]
fn a_lost_state_is_rebuilt_from_the_cloud_and_the_chain_stays_whole() {
    let scene = Scene::new();
    hours(&scene, 4);
    let (key, cloud) = ("keys/dev1.key.pem", scene.cloud("epochs.redb"));
    for hour in ["0.csv", "1.csv"] {
        seal(&scene, hour, key, "bundles", &[]).done();
    }
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    // The cloud never gets the third seal.
    let lost = seal(&scene, "2.csv", key, "lost", &[]).done().json();
    let run = recover(&scene, &cloud, key);
    assert!(run.failed(USAGE).contains("ChainExists: "), "{run:?}");
    lose_state(&scene);

    let recovered = recover(&scene, &cloud, key).done().json();
    assert_eq!(recovered["newest"]["index"], 1, "{recovered}");
    assert_eq!(recovered["newest"]["last_in_epoch"], true, "{recovered}");
    assert_eq!(recovered["newest"]["start"], "2026-01-01T01:00:00Z", "{recovered}");
    let next = recovered["next_index"].as_u64().unwrap();
    assert!(GAP.contains(&(next - 1)), "{next}");
    assert_eq!(chain(&scene, &["show", "--key", key]).done().json(), recovered);

    let sealed = seal(&scene, "3.csv", key, "bundles", &[]).done().json();
    assert_eq!(sealed["bundles"][0]["index"].as_u64(), Some(next));
    assert_ne!(sealed["bundles"][0]["index"], lost["bundles"][0]["index"]);
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", "rows.csv", "--json"];
    let report = scene.with_roster(&get).done().json();
    let device = &report["devices"][0];
    assert_eq!((&device["rows"], &device["seals"]), (&180.into(), &3.into()), "{device}");
    assert_eq!(device["outages"][0]["index"].as_u64(), Some(next), "{device}");
}

#[test]
fn a_chain_is_recovered_from_a_cloud_without_seals_after_a_gap() {
    let scene = Scene::new();
    hours(&scene, 2);
    let (key, cloud) = ("keys/dev1.key.pem", scene.cloud("epochs.redb"));
    seal(&scene, "0.csv", key, "lost", &[]).done();
    lose_state(&scene);
    let run = recover(&scene, &cloud, key).done();
    assert!(run.stderr.contains("has no seal of dev1"), "{run:?}");
    assert!(run.json()["newest"].is_null());
    seal(&scene, "1.csv", key, "bundles", &[]).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", "rows.csv"];
    scene.with_roster(&get).done();
}

#[test]
fn a_cloud_that_withholds_a_pinned_seal_does_not_recover_a_chain() {
    let scene = Scene::new();
    hours(&scene, 2);
    let (key, cloud) = ("keys/dev1.key.pem", scene.cloud("epochs.redb"));
    seal(&scene, "0.csv", key, "bundles", &[]).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", "rows.csv"];
    scene.with_roster(&get).done();
    lose_state(&scene);
    let other = scene.cloud("empty.redb");
    let run = recover(&scene, &other, key);
    assert!(run.failed(4).contains("Missing: "), "{run:?}");
    // A cloud of another group has no answer that verifies.
    let run = chain(&scene, &["recover", "--from", &cloud.url, "--key", "keys/op.key.pem"]);
    assert!(run.failed(USAGE).contains("is not the key that"), "{run:?}");
}

#[test]
fn a_key_made_by_another_program_begins_its_chain_on_request() {
    let scene = Scene::new();
    hours(&scene, 1);
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(scene.path("keys/own.key.pem"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let public = Command::new("openssl")
        .args(["pkey", "-pubout", "-in"])
        .arg(scene.path("keys/own.key.pem"))
        .output()
        .unwrap();
    fs::write(scene.path("keys/own.pub.pem"), public.stdout).unwrap();
    let roster = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "own"];
    let device = ["--device", "own=keys/own.pub.pem", "--out", "own.cbor"];
    scene.run(&[&roster[..], &["--epoch", "1h", "--levels", "8"], &device].concat()).done();
    let group = ["--roster", "own.cbor", "--operator", "keys/op.pub.pem"];
    let key = ["--key", "keys/own.key.pem", "--salt-key", "keys/dev1.salt.key"];
    let seal = ["seal", "0.csv", "--device", "own", "--out", "bundles"];
    let seal = [&seal[..], &key, &group, &COLUMNS].concat();
    let run = scene.run(&seal);
    assert!(run.code == USAGE && run.stderr.contains("ChainUnknown: "), "{run:?}");
    let new = [&["chain", "new"][..], &key[..2], &group].concat();
    scene.run(&new).done();
    scene.run(&seal).done();
    let run = scene.run(&new);
    assert!(run.failed(USAGE).contains("ChainExists: "), "{run:?}");
}

/// Finding A3 of the review.
#[test]
fn a_table_that_grows_is_sealed_once_reading_by_reading() {
    let scene = Scene::new();
    let key = "keys/dev1.key.pem";
    scene.table("all.csv", 9);
    let text = fs::read_to_string(scene.path("all.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let grow = |rows: std::ops::Range<usize>| {
        let table = [&lines[..1], &lines[rows.start + 1..=rows.end]].concat();
        scene.write("growing.csv", &table.join("\n"));
        seal(&scene, "growing.csv", key, "bundles", &["--keep-open", "--new-only"])
    };
    let mut events = 0;
    for (rows, new) in [(3, 3), (5, 2), (5, 0)] {
        let sealed = grow(0..rows).done().json();
        assert_eq!(sealed["events"].as_u64(), Some(new), "{rows}: {sealed}");
        events += new;
    }
    assert_eq!(events, 5);
    // A table that was truncated, or that was rotated so that it begins later, would lose readings.
    for rows in [0..4, 3..9, 5..7] {
        let run = grow(rows.clone());
        assert!(run.failed(USAGE).contains("OtherReadings: "), "{rows:?}: {run:?}");
    }
    // The whole table, or a table of only new readings without the option, continues.
    assert_eq!(grow(0..6).done().json()["events"], 1);
    let table = [&lines[..1], &lines[7..=8]].concat();
    scene.write("rest.csv", &table.join("\n"));
    let sealed = seal(&scene, "rest.csv", key, "bundles", &["--keep-open"]).done().json();
    assert_eq!(sealed["events"], 2);
    assert_eq!(grow(0..9).done().json()["events"], 1);
    let files: Vec<String> = scene.names("bundles");
    let files: Vec<String> = files.iter().map(|name| format!("bundles/{name}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let verified = scene.with_roster(&[&["verify", "--json"][..], &files].concat()).done().json();
    assert_eq!(verified["devices"][0]["events"], 9, "{verified}");
}

/// Finding A2 of the review.
#[test]
fn ranges_with_only_one_of_two_histories_are_readable() {
    let scene = Scene::new();
    hours(&scene, 6);
    let cloud = scene.cloud("epochs.redb");
    // The folder of a new key is copied. One copy seals hours 0 to 2, and the other one 2 to 4.
    fs::create_dir(scene.path("copy")).unwrap();
    for name in ["dev1.key.pem", "dev1.salt.key", "dev1.begun"] {
        fs::copy(scene.path("keys").join(name), scene.path("copy").join(name)).unwrap();
    }
    for hour in 0..3 {
        let table = format!("{hour}.csv");
        seal(&scene, &table, "keys/dev1.key.pem", "one", &[]).done();
        let table = format!("{}.csv", hour + 2);
        seal(&scene, &table, "copy/dev1.key.pem", "two", &[]).done();
    }
    scene.run(&["push", "one", "--to", &cloud.url]).done();
    assert_eq!(scene.run(&["push", "two", "--to", &cloud.url]).code, 5);
    let get = |since: u32, until: u32| {
        let times = [since, until].map(|hour| format!("2026-01-01T{hour:02}:00:00Z"));
        let range = ["--since", &times[0], "--until", &times[1], "--no-pinned-seals"];
        let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", "rows.csv", "--json"];
        let _ = fs::remove_file(scene.path("rows.csv"));
        scene.with_roster(&[&get[..], &range].concat())
    };
    for (since, until, rows) in [(0, 2, 120), (1, 2, 60), (3, 5, 120), (4, 5, 60)] {
        let report = get(since, until).done().json();
        assert_eq!(report["rows"].as_u64(), Some(rows), "{since} to {until}: {report}");
    }
    for (since, until) in [(2, 3), (0, 3), (0, 5)] {
        let run = get(since, until);
        assert_ne!(run.code, 0);
        for part in ["Equivocation", "dev1 signed two histories", "2026-01-01T02:00:00Z"] {
            assert!(run.stderr.contains(part), "{since} to {until}: {part}: {run:?}");
        }
    }
    let run = get(0, 5);
    let part =
        "the readings until 2026-01-01T02:00:00Z and from 2026-01-01T03:00:00Z are available";
    assert!(run.stderr.contains(part), "{run:?}");
}
