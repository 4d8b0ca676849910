//! Uploads to a cloud whose store is on other machines, which do not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moteseal_api::paths;
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::Scheme::Star;
use moteseal_verify::Roster;
use tempfile::TempDir;

use crate::events::{self, event, stream};
use crate::follow_shared::{Closed, Gated};
use crate::testbed::{Mote, Running, budgeted, group, open_store, problem};

/// Starts a cloud on a store of other machines, and returns a copy of its switches.
async fn start(roster: Roster) -> (Running, Gated, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let gated = Gated::new(&store, true);
    let switches = Gated {
        store: Arc::clone(&store),
        gate: Arc::clone(&gated.gate),
        reads: Arc::clone(&gated.reads),
        is_away: Arc::clone(&gated.is_away),
        listings: Arc::clone(&gated.listings),
        is_shared: true,
    };
    let cloud = Cloud::bind(Config::new(roster), Arc::new(gated)).await.unwrap();
    (Running::of(cloud, store), switches, directory)
}

/// The test and the cloud share one thread. If an upload blocked it, nothing would answer.
#[tokio::test]
async fn uploads_that_wait_for_the_store_do_not_stop_the_cloud() {
    let (roster, mut motes) = group(&["a"]);
    let (cloud, switches, _directory) = start(roster).await;
    let cloud = Arc::new(cloud);
    let bundle = motes[0].seal(Star, 1, true, &[1]);
    assert_eq!(cloud.put(bundle).await.status(), 200);
    let closed = Closed::close(&switches.reads).await;
    let unlisted = Mote::without_prev(&motes[0].seal(Star, 2, true, &[1]));
    let event = stream(&[event(&motes[0], 0, 1)]);
    let bundle = tokio::spawn({
        let cloud = Arc::clone(&cloud);
        async move { cloud.put(unlisted).await }
    });
    let event = tokio::spawn({
        let cloud = Arc::clone(&cloud);
        async move { events::put(&cloud, event).await }
    });
    for _ in 0..20 {
        let answer = tokio::time::timeout(Duration::from_secs(20), cloud.get(paths::HEALTHZ));
        assert_eq!(answer.await.unwrap().status(), 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!bundle.is_finished() && !event.is_finished());
    closed.open();
    for upload in [bundle, event] {
        assert_eq!(upload.await.unwrap().status(), 200);
    }
    Arc::into_inner(cloud).unwrap().stop().await;
}

/// The sender must not take the outage for an error in its upload.
#[tokio::test]
async fn uploads_that_need_an_unavailable_store_are_to_be_sent_again_later() {
    let (roster, mut motes) = budgeted(&["a"], 100);
    let (cloud, switches, _directory) = start(roster).await;
    let first = motes[0].seal(Star, 1, true, &[1]);
    assert_eq!(cloud.put(first).await.status(), 200);
    let pruned = motes[0].fork_from(1, 2, true, &[7; 100]);
    let unlisted = Mote::without_prev(&motes[0].seal(Star, 2, true, &[1]));
    switches.is_away.store(true, Ordering::Relaxed);
    let event = stream(&[event(&motes[0], 0, 1)]);
    for (what, response) in [
        ("a predecessor that must be looked up", cloud.put(unlisted.clone()).await),
        ("a manifest that must be looked up", cloud.put(pruned.clone()).await),
        ("a limit that must be looked up", events::put(&cloud, event).await),
    ] {
        assert!(response.headers().contains_key("retry-after"), "{what}");
        let refused = problem(response).await;
        assert_eq!((refused.name(), refused.status), ("Unavailable", 503), "{what}");
    }
    switches.is_away.store(false, Ordering::Relaxed);
    let refused = problem(cloud.put(pruned).await).await;
    assert_eq!((refused.name(), refused.status), ("ManifestMissing", 409));
    assert_eq!(cloud.put(unlisted).await.status(), 200);
    cloud.stop().await;
}

/// Anybody may ask whether the cloud is ready. Strangers must not make it read the store without limit.
#[tokio::test]
async fn readiness_reads_the_store_once_at_a_time_also_for_clients_that_are_gone() {
    let (roster, _) = group(&["a"]);
    let (cloud, switches, _directory) = start(roster).await;
    assert_eq!(cloud.get(paths::READYZ).await.status(), 200);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let closed = Closed::close(&switches.gate).await;
    // The store is asked, and does not respond.
    let asked = cloud.http.get(cloud.at(paths::READYZ)).timeout(Duration::from_millis(300));
    assert!(asked.send().await.unwrap_err().is_timeout());
    for _ in 0..100 {
        assert_eq!(cloud.get(paths::READYZ).await.status(), 200, "the previous answer");
    }
    assert_eq!(switches.listings.load(Ordering::Relaxed), 2);
    closed.open();
    cloud.stop().await;
}
