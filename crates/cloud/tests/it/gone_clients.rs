//! Clients that close the connection before their upload is acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::EpochNumber;
use moteseal_verify::urgent;

use crate::events::{self, event, listed, stream};
use crate::follow_shared::{Closed, Gated};
use crate::testbed::{Running, group, open_store};

async fn metric(cloud: &Running, name: &str) -> u64 {
    let metrics = cloud.get(paths::METRICS).await.text().await.unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().unwrap()
}

/// Waits until a metric has a value.
async fn until(cloud: &Running, name: &str, value: u64) {
    let start = Instant::now();
    loop {
        let found = metric(cloud, name).await;
        if found == value {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{name} is {found}, not {value}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The upload is counted, its conflict is reported, and the clients that wait for it receive it.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_of_a_client_that_is_gone_is_counted_and_announced() {
    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let gated = Gated::new(&store, false);
    let gate = Arc::clone(&gated.gate);
    let cloud = Cloud::bind(Config::new(roster.clone()), Arc::new(gated)).await.unwrap();
    let cloud = Running::of(cloud, store);
    assert_eq!(events::stored(&cloud, &[event(&motes[0], 0, 1)]).await.stored, 1);
    let (_, cursor) = listed(&cloud, &roster, None, None).await;
    let waits = cloud.at(&paths::events(EpochNumber(0), &[], cursor.as_deref(), Some(60)));
    let waiting = tokio::spawn(reqwest::Client::new().get(waits).send());

    // Those of the client that waits and of the client that reads the metrics.
    until(&cloud, "moteseal_connections", 2).await;

    let closed = Closed::close(&gate).await;
    let twin = stream(&[event(&motes[0], 0, 2)]);
    let upload = reqwest::Client::new().put(cloud.at(paths::EVENTS)).body(twin);
    let upload = tokio::spawn(upload.header("content-type", moteseal_api::CBOR_SEQ).send());
    until(&cloud, "moteseal_store_queue", 1).await;
    upload.abort();
    assert!(upload.await.unwrap_err().is_cancelled());
    until(&cloud, "moteseal_connections", 2).await;
    assert_eq!(metric(&cloud, "moteseal_urgent_stored_total").await, 1);
    let opened = Instant::now();
    closed.open();

    let bytes = waiting.await.unwrap().unwrap().bytes().await.unwrap();
    assert!(opened.elapsed() < Duration::from_secs(20), "{:?}", opened.elapsed());
    let read = urgent::read(&bytes, &roster, (10, true), &mut || ()).unwrap();
    assert_eq!(read.events.len(), 1);
    until(&cloud, "moteseal_equivocations_total", 1).await;
    assert_eq!(metric(&cloud, "moteseal_urgent_stored_total").await, 2);
    cloud.stop().await;
}
