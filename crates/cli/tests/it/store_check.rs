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

/// Finding A6 of the review.
#[test]
fn a_store_without_its_journal_is_reported_and_opens_after_the_journal_is_discarded() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    let discard = ["store", "discard-journal", "epochs.redb"];
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    // The cloud is killed, and the journal is lost.
    drop(cloud);
    fs::remove_file(scene.path("epochs.redb-journal")).unwrap();
    let check = ["store", "check", "epochs.redb"];
    let run = scene.with_roster(&check);
    assert!(run.failed(5).contains("JournalMissing"), "{run:?}");
    assert!(run.stderr.trim_end().ends_with("push the devices' data again"), "{run:?}");
    let run =
        scene.with_roster(&["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"]);
    assert!(run.failed(5).contains("moteseal store discard-journal STORE"), "{run:?}");

    let run = scene.run(&discard).done();
    assert!(run.out.contains("epochs.redb will open without its journal"), "{run:?}");
    scene.with_roster(&check).done();
    let run = scene.run(&discard).done();
    assert!(run.out.contains("epochs.redb needs no journal; nothing was changed"), "{run:?}");
    let cloud = scene.cloud("epochs.redb");
    let run = scene.run(&discard);
    assert!(run.failed(2).contains("StoreLocked"), "{run:?}");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    drop(cloud);
    let json = scene.run(&[&discard[..], &["--json"]].concat()).done().json();
    assert_eq!(
        (&json["store"], &json["needed"], &json["kept"]),
        (&"epochs.redb".into(), &true.into(), &"epochs.redb-journal.discarded-1".into())
    );
    assert!(scene.path("epochs.redb-journal.discarded-1").exists());
}

/// Finding A7 of the review.
#[test]
fn damage_after_a_kill_is_a_finding_in_the_journal_and_in_the_store() {
    let scene = Scene::new();
    scene.table("data.csv", 2000);
    scene.seal("data.csv", "dev1", &[]).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    drop(cloud);
    let check = ["store", "check", "epochs.redb"];
    scene.with_roster(&check).done();

    let path = scene.path("epochs.redb-journal");
    let journal = fs::read(&path).unwrap();
    let last = journal.iter().rposition(|&byte| byte != 0).unwrap();
    let mut zeroed = journal.clone();
    zeroed[last / 512 * 512..=last].fill(0);
    fs::write(&path, &zeroed).unwrap();
    let run = scene.with_roster(&check);
    assert!(run.failed(5).contains("JournalDamaged"), "{run:?}");
    let start = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
    let run = scene.with_roster(&start);
    assert!(run.failed(5).contains("the last acknowledged uploads are lost"), "{run:?}");

    fs::write(&path, &journal).unwrap();
    let store = fs::read(scene.path("epochs.redb")).unwrap();
    fs::write(scene.path("epochs.redb"), &store[..store.len() / 2]).unwrap();
    let run = scene.with_roster(&check);
    assert!(run.failed(5).contains("StoreDamaged"), "{run:?}");
    let run = scene.with_roster(&start);
    assert!(run.failed(5).contains("StoreDamaged: epochs.redb is damaged"), "{run:?}");
    assert!(!run.stderr.contains("panicked"), "{run:?}");
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
