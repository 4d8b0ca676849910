//! A cloud whose store is a keyspace of Cassandra.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::cassandra::{Cassandra, Shared};
use crate::scene::Scene;

static NODE: Shared = Shared::new(&[], None);

/// Returns the node of this test program, for a test that neither stops nor pauses it.
pub(crate) fn shared() -> RwLockReadGuard<'static, Cassandra> {
    NODE.shared()
}

/// Returns the node of this test program, for a test that stops or pauses it.
pub(crate) fn alone() -> RwLockWriteGuard<'static, Cassandra> {
    NODE.alone()
}

#[test]
fn a_cloud_on_cassandra_serves_what_it_acknowledged_before_it_was_killed() {
    let cassandra = shared();
    let url = cassandra.address("moteseal").to_string();
    let scene = Scene::new();
    scene.table("data.csv", 3_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();

    let early = scene.with_roster(&["cloud", "run", "--store", &url, "--listen", "127.0.0.1:0"]);
    let message = early.failed(2);
    assert!(message.contains("TableNoKeyspace") && message.contains("store init"), "{early:?}");
    let init = ["store", "init", "--replicas", "1", "--store", &url];
    assert!(scene.run(&init).done().out.contains("was created (version 1)"));
    assert!(scene.run(&init).done().out.contains("nothing was changed"));
    let file = scene.run(&["store", "init", "--store", "epochs.redb"]);
    assert!(file.failed(2).contains("is not a URL"), "{file:?}");

    let cloud = scene.cloud(&url);
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = |url: &str| {
        let get = |device| {
            let get = ["get", device, "--from", url, "--rate", "1/2", "--format", "csv"];
            scene.with_roster(&get).done().out
        };
        [get("dev1"), get("dev2")].concat()
    };
    let rows = get(&cloud.url);
    assert!(rows.lines().count() > 100, "{rows}");
    // Killed, not stopped.
    drop(cloud);
    let mut cloud = scene.cloud(&url);
    assert_eq!(get(&cloud.url), rows);
    // A second process serves the same keyspace at the same time.
    let second = scene.cloud(&url);
    assert_eq!(get(&second.url), rows);
    let check = scene.with_roster(&["store", "check", &url]).done();
    assert!(check.out.contains("whole; 100 seals, 6,000 readings"), "{check:?}");
    cloud.stop();
}
