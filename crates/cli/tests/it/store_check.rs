//! `moteseal store check` accepts an undamaged store, and names the damage after bits of its file
//! were flipped.

use std::fs;

use crate::scene::Scene;

fn filled() -> Scene {
    let scene = Scene::new();
    scene.table("data.csv", 12_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    let mut cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    cloud.stop();
    scene
}

#[test]
fn an_undamaged_store_has_no_findings() {
    let scene = filled();
    let run = scene.with_roster(&["store", "check", "epochs.redb"]).done();
    assert!(run.out.contains("epochs.redb: whole; 400 seals, 24,000 readings"), "{run:?}");
    let json = scene.with_roster(&["store", "check", "epochs.redb", "--json"]).done().json();
    assert_eq!(
        (json["clean"].as_bool(), json["damage"].as_array().map(Vec::len)),
        (Some(true), Some(0))
    );
}

#[test]
fn flipped_bits_are_found_and_the_device_is_named() {
    let scene = filled();
    let whole = fs::read(scene.path("epochs.redb")).unwrap();
    // The store's file contains the events of a bundle unchanged. Search it for bytes of dev1's
    // readings.
    let bundle = fs::read(scene.path("bundles/dev1-0000000100.mseal")).unwrap();
    let needle = &bundle[bundle.len() - 200..bundle.len() - 170];
    let at = whole.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut altered = whole;
    altered[at] ^= 0x10;
    fs::write(scene.path("epochs.redb"), &altered).unwrap();
    let run = scene.with_roster(&["store", "check", "epochs.redb"]);
    assert!(run.failed(5).contains("epochs.redb: "), "{run:?}");
    let json = scene.with_roster(&["store", "check", "epochs.redb", "--json"]).json();
    let damage = json["damage"].as_array().unwrap();
    assert!(damage.iter().any(|finding| finding["device_name"] == "dev1"), "{json}");
    assert_eq!(fs::read(scene.path("epochs.redb")).unwrap(), altered, "the file was modified");
}

#[test]
fn reports_a_file_that_is_not_a_store() {
    let scene = Scene::new();
    scene.write("text", &"not a store\n".repeat(1000));
    assert!(
        scene
            .with_roster(&["store", "check", "text"])
            .failed(2)
            .contains("text is not an epoch store")
    );
    assert!(
        scene
            .with_roster(&["store", "check", "nowhere.redb"])
            .failed(2)
            .contains("nowhere.redb does not exist")
    );
    assert!(!scene.path("nowhere.redb").exists());
}
