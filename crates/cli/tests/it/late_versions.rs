//! A party uses a version of the roster after a later one took effect: a client refuses a version
//! that is earlier than one that it has used, and seals of a device that loaded a version late
//! neither hide later seals nor let an honest cloud seem to withhold them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scene::{COLUMNS, Cloud, Run, Scene};

/// Issues the version after `before.cbor` with `moteseal roster set`.
fn next(scene: &Scene, before: &str, out: &str, change: &[&str]) {
    let (before, out) = (format!("{before}.cbor"), format!("{out}.cbor"));
    let roster = ["roster", "set", "--roster", &before, "--operator", "keys/op.key.pem"];
    scene.run(&[&roster[..], &["--out", &out], change].concat()).done();
}

/// Writes a table with a reading every five minutes, between two hours of 2026-01-01.
fn table(scene: &Scene, name: &str, hours: std::ops::Range<u64>) {
    let mut text = String::from("ts,humidity,temperature\n");
    for at in 12 * hours.start..12 * hours.end {
        text += &format!("{},40.5,20.{:02}\n", 1_767_225_600 + 300 * at, at % 100);
    }
    scene.write(name, &text);
}

/// Runs a command with the operator's key and this version of the roster.
fn with(scene: &Scene, version: &str, arguments: &[&str]) -> Run {
    let roster = format!("{version}.cbor");
    scene.run(&[arguments, &["--roster", &roster, "--operator", "keys/op.pub.pem"]].concat())
}

fn seal(scene: &Scene, version: &str, table: &str, device: &str) -> Run {
    let key = format!("keys/{device}.key.pem");
    let arguments = ["seal", table, "--device", device, "--key", &key, "--out", device];
    with(scene, version, &[&arguments[..], &COLUMNS[..]].concat())
}

/// Gets all readings of a device between two hours.
fn get(scene: &Scene, version: &str, cloud: &Cloud, device: &str, hours: (u64, u64)) -> Run {
    let time = |hour: u64| format!("2026-01-01T{hour:02}:00:00Z");
    let (since, until) = (time(hours.0), time(hours.1));
    let range = [
        "--from", &cloud.url, "--since", &since, "--until", &until, "--format", "csv", "--rate",
        "1",
    ];
    with(scene, version, &[&["get", device][..], &range].concat())
}

/// Returns the path of the group's pinned seals.
fn pin_file(scene: &Scene) -> PathBuf {
    let names = scene.names("state/moteseal");
    let name = names.iter().find(|name| name.ends_with(".json")).unwrap();
    scene.path("state/moteseal").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the indices of the pinned seals in ascending order.
fn pinned_indices(scene: &Scene) -> Vec<u64> {
    let pinned = json(&pin_file(scene));
    let devices = pinned["devices"].as_object().unwrap().values();
    let mut indices: Vec<u64> = devices.map(|seal| seal["index"].as_u64().unwrap()).collect();
    indices.sort_unstable();
    indices
}

fn rows(run: &Run) -> usize {
    assert_eq!(run.code, 0, "{run:?}");
    run.out.lines().count() - 1
}

/// Makes the versions 0 (`roster.cbor`), 1 (`second.cbor`) with half-hour epochs from 03:00 on, and
/// another version 1 (`fork.cbor`).
fn versions() -> Scene {
    let scene = Scene::new();
    let change = ["--epoch", "30m", "--levels", "12", "--from", "2026-01-01T03:00:00Z"];
    next(&scene, "roster", "second", &change);
    next(&scene, "roster", "fork", &["--epoch", "15m", "--from", "2026-01-01T03:00:00Z"]);
    scene
}

/// Lets a running cloud load a version.
fn load(scene: &Scene, cloud: &Cloud, version: &str) {
    fs::copy(scene.path("roster.cbor"), scene.path("first.cbor")).unwrap();
    fs::copy(scene.path(&format!("{version}.cbor")), scene.path("next.cbor")).unwrap();
    fs::rename(scene.path("next.cbor"), scene.path("roster.cbor")).unwrap();
    let start = Instant::now();
    // The header states the version that the cloud uses.
    while !get(scene, "first", cloud, "dev1", (0, 1)).stderr.contains("the cloud uses version 1") {
        assert!(start.elapsed() < Duration::from_secs(30), "the roster is not loaded");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_client_refuses_an_earlier_or_another_version_than_it_has_used() {
    let scene = versions();
    let cloud = scene.cloud("epochs.redb");
    table(&scene, "morning.csv", 0..3);
    seal(&scene, "roster", "morning.csv", "dev1").done();
    scene.run(&["push", "dev1", "--to", &cloud.url]).done();
    let all = ["get", "dev1", "--from", &cloud.url, "--until", "2026-01-01T03:00:00Z"];
    let kept = ["--rate", "1", "-o", "rows.csv", "--proof", "early.mproof"];
    with(&scene, "roster", &[&all[..], &kept].concat()).done();

    // A file of pinned seals that does not state a version is of an earlier version of moteseal.
    let path = pin_file(&scene);
    let mut old = json(&path);
    assert_eq!(old["rosters"][0]["version"], 0, "{old}");
    old.as_object_mut().unwrap().remove("rosters");
    for seal in old["devices"].as_object_mut().unwrap().values_mut() {
        assert_eq!(seal.as_object_mut().unwrap().remove("roster").unwrap(), 0);
    }
    fs::write(&path, old.to_string()).unwrap();

    load(&scene, &cloud, "second");
    assert_eq!(rows(&get(&scene, "second", &cloud, "dev1", (0, 3))), 36);
    let pinned = json(&path);
    assert_eq!(pinned["rosters"][0]["version"], 1, "{pinned}");
    assert_eq!(pinned["devices"].as_object().unwrap().len(), 1, "{pinned}");

    // Every command that takes a roster refuses the earlier version and the other second version,
    // names the file, the versions and the date of the first use, and says what to do.
    let range = ["--from", &cloud.url, "--until", "2026-01-01T03:00:00Z"];
    let recover = ["chain", "recover", "--from", &cloud.url, "--key", "keys/dev2.key.pem"];
    let commands: [Vec<&str>; 6] = [
        [&["get", "dev1", "--rate", "1"][..], &range].concat(),
        [&["estimate", "mean", "temperature", "dev1"][..], &range].concat(),
        [&["audit"][..], &range].concat(),
        vec!["verify", "early.mproof"],
        vec!["verify", "dev1"],
        recover.to_vec(),
    ];
    for command in &commands {
        for (version, reason) in [
            (
                "first",
                "version 0 of the roster of home is older than version 1, which this client has used since 20",
            ),
            ("fork", "this client has used another version 1 of the roster of home since 20"),
        ] {
            let run = with(&scene, version, command);
            let line = run.failed(2);
            assert!(line.contains("NotLater") && line.contains(reason), "{command:?}: {line}");
            assert!(line.contains(&format!("{version}.cbor")), "{command:?}: {line}");
            assert!(line.contains(path.to_str().unwrap()), "{command:?}: {line}");
        }
    }
    assert_eq!(json(&path), pinned, "a refused version changes nothing");

    // A proof that was made under the earlier version verifies with the newest one.
    with(&scene, "second", &["verify", "early.mproof"]).done();
    with(&scene, "second", &["verify", "dev1"]).done();
    // Without pinned seals, an earlier version is accepted. If the answer verifies, the client
    // reports that the cloud uses a later version.
    let forced = with(&scene, "first", &[&commands[0][..], &["--no-pinned-seals"]].concat()).done();
    assert!(
        forced.stderr.contains(
            "first.cbor: the cloud uses version 1 of the roster, and this client version 0"
        ),
        "{forced:?}"
    );
    // The group of another operator with the same name is another group.
    scene.run(&["key", "new", "--out", "keys/op2"]).done();
    scene.roster("home", "keys/op2.key.pem", "other.cbor");
    let other = ["verify", "dev1", "--roster", "other.cbor", "--operator", "keys/op2.pub.pem"];
    let pinned = ["--pinned-seals", path.to_str().unwrap()];
    let run = scene.run(&[&other[..], &pinned].concat());
    assert!(!run.stderr.contains("NotLater"), "{run:?}");
    with(&scene, "second", &["verify", "dev1"]).done();
}

#[test]
fn outdated_seals_are_left_out_and_their_readings_sealed_again() {
    let scene = versions();
    let mut cloud = scene.cloud("epochs.redb");
    table(&scene, "day.csv", 0..5);
    for device in ["dev1", "dev2"] {
        seal(&scene, "roster", "day.csv", device).done();
        scene.run(&["push", device, "--to", &cloud.url]).done();
        assert_eq!(rows(&get(&scene, "roster", &cloud, device, (0, 5))), 60);
    }
    table(&scene, "more.csv", 5..6);
    seal(&scene, "roster", "more.csv", "dev1").done();
    load(&scene, &cloud, "second");

    // The cloud has the seals of 03:00 and 04:00, which name version 0, and so has the file of
    // pinned seals. They neither hide the others nor are they missing.
    assert_eq!(rows(&get(&scene, "second", &cloud, "dev1", (0, 3))), 36);
    assert_eq!(pinned_indices(&scene), [2, 4], "the outdated seal of dev1 is no longer pinned");
    let whole = get(&scene, "second", &cloud, "dev1", (0, 6));
    assert!(whole.failed(4).contains("TailUnknown"), "{whole:?}");
    // The sender of another one is told.
    let late = scene.run(&["push", "dev1", "--to", &cloud.url]);
    assert!(late.failed(3).contains("RosterOutdated"), "{late:?}");

    // The device loads the version and seals these readings again.
    table(&scene, "late.csv", 3..6);
    let again = seal(&scene, "second", "late.csv", "dev1").done();
    assert!(
        again.stderr.contains("RosterOutdated") && again.stderr.contains("3 bundles"),
        "{again:?}"
    );
    let left = |names: &[String]| names.iter().filter(|name| name.ends_with(".outdated")).count();
    assert_eq!(left(&scene.names("dev1")), 3);
    scene.run(&["push", "dev1", "--to", &cloud.url]).done();
    assert_eq!(rows(&get(&scene, "second", &cloud, "dev1", (0, 6))), 72);

    // A device whose state is lost continues after the newest seal that is not outdated.
    for name in scene
        .names("keys")
        .iter()
        .filter(|name| name.starts_with("dev2.") && name.contains(".chain"))
    {
        fs::remove_file(scene.path("keys").join(name)).unwrap();
    }
    fs::rename(scene.path("dev2"), scene.path("old")).unwrap();
    let recover = ["chain", "recover", "--from", &cloud.url, "--key", "keys/dev2.key.pem"];
    let recovered = with(&scene, "second", &recover).done();
    assert!(recovered.stderr.contains("newest seal 2 of 2026-01-01T02:00:00Z"), "{recovered:?}");
    seal(&scene, "second", "late.csv", "dev2").done();
    scene.run(&["push", "dev2", "--to", &cloud.url]).done();
    assert_eq!(rows(&get(&scene, "second", &cloud, "dev2", (0, 6))), 72);

    cloud.stop();
    let check = with(&scene, "second", &["store", "check", "epochs.redb"]).done();
    assert!(check.out.contains("4 outdated (seals or manifests)"), "{check:?}");
}
