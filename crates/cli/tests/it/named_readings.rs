//! Single readings that a query names by their seal and their place in it: finding G1 of the
//! review.

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;

/// Seals two hours of readings as trees and two as stars, and pushes them to a cloud.
fn scene() -> (Scene, crate::scene::Cloud) {
    let scene = Scene::new();
    let cloud = scene.cloud("epochs.redb");
    scene.table("data.csv", 120);
    scene.seal("data.csv", "dev1", &["--scheme", "tree"]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "star"]).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    (scene, cloud)
}

fn get(scene: &Scene, url: &str, device: &str, readings: &[&str], more: &[&str]) -> Run {
    let mut arguments = vec!["get", device, "--from", url, "--no-pinned-seals"];
    readings.iter().for_each(|reading| arguments.extend(["--reading", reading]));
    arguments.extend(more);
    scene.with_roster(&arguments)
}

#[test]
fn single_readings_are_verified_rows() {
    let (scene, cloud) = scene();
    let csv = ["--format", "csv"];
    let all =
        scene.with_roster(&["get", "dev1", "--from", &cloud.url, "--rate", "1", "--format", "csv"]);
    let all: Vec<String> = all.done().out.lines().skip(1).map(str::to_owned).collect();
    assert_eq!(all.len(), 120);
    let rows = get(&scene, &cloud.url, "dev1", &["1/59", "0/7", "1/3-5"], &csv).done().out;
    let rows: Vec<&str> = rows.lines().skip(1).collect();
    assert_eq!(rows, [&all[7], &all[63], &all[64], &all[65], &all[119]]);

    // Other readings of the range, and other seals, are not in the answer.
    let file = ["--proof", "one.mproof", "-o", "one.csv"];
    get(&scene, &cloud.url, "dev1", &["1/59"], &file).done();
    let items = scene.run(&["inspect", "one.mproof", "--json"]).done().out;
    let parts = items.lines().filter(|line| line.contains("\"item\":\"part\"")).count();
    assert_eq!(parts, 2, "{items}");

    // The proof verifies offline, and says what was named.
    let allowed = ["verify", "one.mproof", "--allow-redacted"];
    let proof = scene.with_roster(&[&allowed[..], &["--json"]].concat()).done().json();
    assert_eq!(proof["query"]["readings"], serde_json::json!([[1, 59, 1]]), "{proof}");
    let text = scene.with_roster(&allowed).done();
    assert!((text.out + &text.stderr).contains("1 named reading"));
    // The maker of the proof named the reading, so the proof is not complete.
    let run = scene.with_roster(&["verify", "one.mproof"]);
    assert!(run.failed(4).contains("ReadingsNamed"), "{run:?}");

    // A range without the other seal suffices.
    let narrow = ["--since", "2026-01-01T01:00:00Z", "--format", "csv"];
    let rows = get(&scene, &cloud.url, "dev1", &["1/59"], &narrow).done().out;
    assert_eq!(rows.lines().skip(1).collect::<Vec<_>>(), [&all[119]]);
}

#[test]
fn a_reading_that_cannot_be_shown_is_an_error_that_states_why() {
    let (scene, cloud) = scene();
    for (device, readings, why) in [
        ("dev1", &["1/60"][..], "ReadingUnavailable"),
        ("dev1", &["2/0"], "ReadingUnavailable"),
        ("dev2", &["0/0"], "SchemeMismatch"),
        ("dev1", &["0/1-3", "0/3"], "name every reading once"),
        ("dev1", &["7"], "12/7 is reading 7 of seal 12"),
        ("dev1", &["0/9-8"], "12/7 is reading 7 of seal 12"),
    ] {
        let run = get(&scene, &cloud.url, device, readings, &[]);
        assert_eq!(run.code, USAGE, "{run:?}");
        assert!(run.stderr.contains(why) && run.out.is_empty(), "{why}: {run:?}");
    }
    let two =
        ["get", "dev1", "dev2", "--from", &cloud.url, "--reading", "0/0", "--no-pinned-seals"];
    let run = scene.with_roster(&two);
    assert!(run.failed(USAGE).contains("name only one"), "{run:?}");
}

#[test]
fn another_reading_than_the_named_one_is_rejected() {
    let (scene, cloud) = scene();
    let file = ["--proof", "one.mproof", "-o", "one.csv"];
    get(&scene, &cloud.url, "dev1", &["1/59"], &file).done();
    let proof = std::fs::read(scene.path("one.mproof")).unwrap();
    let text = b"\"readings\":[[1,59,1]]";
    let at = proof.windows(text.len()).position(|bytes| bytes == text).unwrap();
    // The proof of one reading does not answer a query for its neighbour, or for another seal.
    for other in [&b"\"readings\":[[1,58,1]]"[..], b"\"readings\":[[0,59,1]]"] {
        let mut changed = proof.clone();
        changed[at..at + text.len()].copy_from_slice(other);
        std::fs::write(scene.path("other.mproof"), changed).unwrap();
        let run = scene.with_roster(&["verify", "other.mproof"]);
        assert!(run.failed(3).contains("NotAsAsked"), "{run:?}");
    }
}
