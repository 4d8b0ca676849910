//! Backups of a running cloud: `moteseal store export` and `moteseal store import`.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::scene::Scene;

/// A running cloud with 200 seals of dev1 and as many of dev2.
fn filled() -> (Scene, crate::scene::Cloud) {
    let scene = Scene::new();
    scene.table("data.csv", 12_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    (scene, cloud)
}

fn export(scene: &Scene, url: &str) -> serde_json::Value {
    let arguments = ["store", "export", "backup", "--from", url, "--json"];
    scene.with_roster(&arguments).done().json()
}

fn rows(scene: &Scene, url: &str, out: &str) -> String {
    let get = ["get", "dev1", "--from", url, "--rate", "1", "--format", "csv", "--out", out];
    scene.with_roster(&get).done();
    fs::read_to_string(scene.path(out)).unwrap()
}

#[test]
fn a_backup_restores_an_empty_cloud_and_a_second_export_writes_only_what_changed() {
    let scene = Scene::new();
    scene.table("data.csv", 12_000);
    scene.seal("data.csv", "dev1", &[]).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let first = export(&scene, &cloud.url);
    assert_eq!((&first["seals"], &first["written"]), (&200.into(), &1.into()));
    let again = export(&scene, &cloud.url);
    assert_eq!((&again["written"], &again["reused"]), (&0.into(), &1.into()));
    let check = ["store", "export", "backup", "--check"];
    let run = scene.with_roster(&check).done();
    assert!(run.out.contains("backup: whole; 200 seals"), "{run:?}");

    let mut empty = scene.cloud("new.redb");
    let import = ["store", "import", "backup", "--to", &empty.url, "--json"];
    let imported = scene.run(&import).done().json();
    assert_eq!((&imported["seals"], &imported["skipped"]), (&200.into(), &0.into()));
    let imported = scene.run(&import).done().json();
    assert_eq!((&imported["seals"], &imported["skipped"]), (&0.into(), &200.into()));
    assert_eq!(rows(&scene, &cloud.url, "old.csv"), rows(&scene, &empty.url, "new.csv"));

    // A restored old backup and a push of newer data converge. A file that no index names is removed.
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    scene.write("backup/objects/stray", "");
    let grown = export(&scene, &cloud.url);
    assert_eq!((&grown["seals"], &grown["written"]), (&400.into(), &1.into()), "{grown}");
    assert_eq!((&grown["reused"], &grown["removed"]), (&1.into(), &1.into()), "{grown}");
    assert_eq!(scene.names("backup/objects").len(), 2);
    scene.run(&["push", "bundles", "--to", &empty.url]).done();
    let imported = scene.run(&import).done().json();
    assert_eq!((&imported["seals"], &imported["skipped"]), (&0.into(), &400.into()), "equal");
    empty.stop();
}

#[test]
fn a_killed_export_leaves_the_old_backup_and_continues() {
    let (scene, cloud) = filled();
    let url = cloud.url.clone();
    let arguments = [
        "store",
        "export",
        "backup",
        "--from",
        &url,
        "--roster",
        "roster.cbor",
        "--operator",
        "keys/op.pub.pem",
    ];
    for wait in [0, 30, 60, 100, 150, 250] {
        let mut process =
            scene.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let _ = process.kill();
        let _ = process.wait();
        // Whatever was written before, there is no backup or a whole one.
        let check = scene.with_roster(&["store", "export", "backup", "--check"]);
        if check.code != 0 {
            assert!(check.failed(2).contains("NoIndex"), "{check:?}");
        }
    }
    let last = export(&scene, &url);
    assert_eq!(last["seals"], 400);
    // The objects of a finished part are used again, even if there is no index.
    fs::remove_file(scene.path("backup/index.json")).unwrap();
    let resumed = export(&scene, &url);
    assert_eq!((&resumed["written"], &resumed["reused"]), (&0.into(), &2.into()));
    scene.with_roster(&["store", "export", "backup", "--check"]).done();
}

#[test]
fn a_killed_import_is_continued_by_another_one() {
    let (scene, cloud) = filled();
    export(&scene, &cloud.url);
    let empty = scene.cloud("new.redb");
    let import = ["store", "import", "backup", "--to", &empty.url, "--json"];
    for wait in [0, 20, 40, 60, 80] {
        let mut process =
            scene.command(&import).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let _ = process.kill();
        let _ = process.wait();
    }
    scene.run(&import).done();
    assert_eq!(rows(&scene, &cloud.url, "old.csv"), rows(&scene, &empty.url, "new.csv"));
    // Everything is there, so nothing is sent again.
    let again = scene.run(&import).done().json();
    assert_eq!((&again["seals"], &again["skipped"]), (&0.into(), &400.into()));
}

#[test]
fn an_altered_missing_or_swapped_object_is_found_and_not_imported() {
    let (scene, cloud) = filled();
    export(&scene, &cloud.url);
    let names = scene.names("backup/objects");
    let path = |at: usize| scene.path("backup/objects").join(&names[at]);
    let whole: Vec<Vec<u8>> = (0..2).map(|at| fs::read(path(at)).unwrap()).collect();
    let check = ["store", "export", "backup", "--check"];
    let empty = scene.cloud("new.redb");
    let import = ["store", "import", "backup", "--to", &empty.url];

    let mut altered = whole[0].clone();
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    fs::write(path(0), &altered).unwrap();
    let run = scene.with_roster(&check);
    assert!(run.failed(5).contains("BackupDamaged"), "{run:?}");
    assert!(run.out.contains("DAMAGED") && run.out.contains("its content was altered"), "{run:?}");
    let run = scene.run(&import);
    assert!(run.failed(5).contains("BackupDamaged"), "{run:?}");

    fs::write(path(0), &whole[1]).unwrap();
    fs::write(path(1), &whole[0]).unwrap();
    assert!(scene.with_roster(&check).failed(5).contains("BackupDamaged"));

    fs::write(path(1), &whole[1]).unwrap();
    fs::remove_file(path(0)).unwrap();
    let run = scene.with_roster(&check);
    assert!(run.failed(5).contains("BackupDamaged") && run.out.contains("missing"), "{run:?}");
    // Another export restores it.
    let restored = export(&scene, &cloud.url);
    assert_eq!((&restored["written"], &restored["reused"]), (&1.into(), &1.into()));
    scene.with_roster(&check).done();

    // An index whose digests were recomputed does not make an altered object authentic.
    fs::write(path(0), &altered).unwrap();
    let index = fs::read_to_string(scene.path("backup/index.json")).unwrap();
    let digest = |bytes: &[u8]| moteseal_core::Digest::of(&[bytes]).to_string();
    assert!(index.contains(&digest(&whole[0])), "the index has the digest of the object");
    scene.write("backup/index.json", &index.replace(&digest(&whole[0]), &digest(&altered)));
    let run = scene.with_roster(&check);
    assert!(!run.failed(5).contains("its content was altered"), "{run:?}");
    let run = scene.run(&import);
    assert!(run.code == 3, "{run:?}");
}

#[test]
fn wrong_turns_are_explained() {
    let (scene, cloud) = filled();
    let run = scene.with_roster(&["store", "export", "nothing", "--check"]);
    assert!(run.failed(2).contains("nothing has no index.json"), "{run:?}");
    let run = scene.run(&["store", "import", "nothing", "--to", &cloud.url]);
    assert!(run.failed(2).contains("NoIndex"), "{run:?}");
    let run = scene.with_roster(&["store", "export", "backup", "--from", "http://127.0.0.1:1"]);
    assert!(run.failed(6).contains("Unreachable"), "{run:?}");
    assert!(scene.names("backup").is_empty());
    scene.roster("other", "keys/op.key.pem", "other.cbor");
    let arguments = [
        "store",
        "export",
        "backup",
        "--from",
        &cloud.url,
        "--roster",
        "other.cbor",
        "--operator",
        "keys/op.pub.pem",
    ];
    assert!(scene.run(&arguments).failed(2).contains("OtherGroup"));
}

#[test]
fn a_cloud_follows_another_one() {
    let scene = Scene::new();
    scene.table("data.csv", 600);
    scene.seal("data.csv", "dev1", &[]).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let follow = ["--follow", &cloud.url, "--follow-every", "1"];
    let replica = scene.cloud_with("replica.redb", &follow);
    let start = std::time::Instant::now();
    loop {
        let get = ["get", "dev1", "--from", &replica.url, "--rate", "1", "--format", "csv"];
        let run = scene.with_roster(&[&get[..], &["--out", "replica.csv"]].concat());
        if run.code == 0
            && fs::read_to_string(scene.path("replica.csv")).unwrap().lines().count() > 600
        {
            break;
        }
        let _ = fs::remove_file(scene.path("replica.csv"));
        assert!(start.elapsed() < Duration::from_secs(30), "{run:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(
        rows(&scene, &cloud.url, "old.csv"),
        fs::read_to_string(scene.path("replica.csv")).unwrap()
    );
    let run = scene.with_roster(&[
        "cloud",
        "run",
        "--store",
        "x.redb",
        "--listen",
        "127.0.0.1:0",
        "--follow",
        "nonsense",
    ]);
    assert!(run.failed(2).contains("BadAddress"), "{run:?}");
    assert!(scene.names(".").iter().all(|name| !name.starts_with("x.redb")));
}
