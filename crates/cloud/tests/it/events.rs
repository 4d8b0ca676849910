//! Urgent events: the cloud verifies them before it stores them, keeps all of them, and returns them
//! in the order in which they came, also to clients that wait.

use std::time::{Duration, Instant};

use crate::testbed::{Mote, Running, group, problem, schema};
use moteseal_api::{CBOR_SEQ, CURSOR, EventConflict, EventReceipt, paths};
use moteseal_cloud::{Config, Limits};
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_verify::{Roster, urgent, write};

/// Returns a stream with the schema and these events.
pub(crate) fn stream(events: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    write::schema(&mut stream, &schema());
    stream.extend(events.concat());
    stream
}

pub(crate) fn event(mote: &Mote, seq: u64, value: u32) -> Vec<u8> {
    mote.urgent((0, 3, seq), &value.to_be_bytes(), None)
}

pub(crate) async fn put(cloud: &Running, body: Vec<u8>) -> reqwest::Response {
    let request = cloud.http.put(cloud.at(paths::EVENTS)).header("content-type", CBOR_SEQ);
    request.body(body).send().await.unwrap()
}

pub(crate) async fn stored(cloud: &Running, events: &[Vec<u8>]) -> EventReceipt {
    let response = put(cloud, stream(events)).await;
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// Returns the values of the events after a cursor, and the cursor after them.
pub(crate) async fn listed(
    cloud: &Running,
    roster: &Roster,
    after: Option<&str>,
    wait: Option<u64>,
) -> (Vec<u32>, Option<String>) {
    let response = cloud.get(&paths::events(EpochNumber(0), &[], after, wait)).await;
    assert_eq!(response.status(), 200);
    let cursor = response.headers().get(CURSOR).map(|text| text.to_str().unwrap().to_owned());
    let bytes = response.bytes().await.unwrap();
    let read = urgent::read(&bytes, roster, (1000, true), &mut || ()).unwrap();
    let value = |record: &[u8]| u32::from_be_bytes(record.try_into().unwrap());
    (read.events.iter().map(|event| value(event.record())).collect(), cursor)
}

#[tokio::test]
async fn an_event_is_stored_once_and_listed_in_the_order_of_arrival() {
    let (roster, motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    assert_eq!(listed(&cloud, &roster, None, None).await, (vec![], None));
    let [first, second, third] =
        [event(&motes[1], 5, 10), event(&motes[0], 2, 20), event(&motes[1], 1, 30)];
    let both = [first.clone(), second.clone()];
    assert_eq!(stored(&cloud, &both).await, EventReceipt { stored: 2, ..Default::default() });
    assert_eq!(stored(&cloud, &both).await, EventReceipt { known: 2, ..Default::default() });
    let (values, cursor) = listed(&cloud, &roster, None, None).await;
    assert_eq!(values, [10, 20]);
    stored(&cloud, &[third]).await;
    cloud.stop().await;

    // A restart keeps the order and the cursor.
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let (values, next) = listed(&cloud, &roster, cursor.as_deref(), None).await;
    assert_eq!(values, [30]);
    assert_eq!(listed(&cloud, &roster, next.as_deref(), None).await, (vec![], next.clone()));
    // A store that was restored from an old copy does not have the place of a cursor.
    let other = next.unwrap().replacen('3', "2", 1);
    assert_eq!(listed(&cloud, &roster, Some(&other), None).await.0, [10, 20, 30]);
    let one = cloud.get(&paths::events(EpochNumber(3), &[motes[0].id], None, None)).await;
    let bytes = one.bytes().await.unwrap();
    let read = urgent::read(&bytes, &roster, (10, true), &mut || ()).unwrap();
    assert_eq!(read.events.len(), 1);
    let none = cloud.get(&paths::events(EpochNumber(4), &[], None, None)).await;
    let bytes = none.bytes().await.unwrap();
    assert!(urgent::read(&bytes, &roster, (10, true), &mut || ()).unwrap().events.is_empty());
    cloud.stop().await;
}

#[tokio::test]
async fn two_events_for_one_place_are_both_kept_and_reported() {
    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    stored(&cloud, &[event(&motes[0], 4, 1)]).await;
    let receipt = stored(&cloud, &[event(&motes[0], 4, 2), event(&motes[0], 5, 2)]).await;
    let conflict = EventConflict { device: motes[0].id.to_string(), index: 0, seq: 4 };
    assert_eq!(receipt, EventReceipt { stored: 2, known: 0, queued: 0, conflicts: vec![conflict] });
    assert_eq!(listed(&cloud, &roster, None, None).await.0, [1, 2, 2]);
    let metrics = cloud.get(paths::METRICS).await.text().await.unwrap();
    for line in ["moteseal_urgent_stored_total 3", "moteseal_equivocations_total 1"] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn rejects_events_that_their_device_did_not_sign() {
    let (roster, motes) = group(&["a", "b"]);
    let (_, strangers) = group(&["c"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let good = event(&motes[0], 0, 1);
    let other_key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let mut altered = good.clone();
    let last = altered.len() - 1;
    altered[last] ^= 1;
    let mut record = good.clone();
    let at = record.windows(4).position(|bytes| bytes == 1_u32.to_be_bytes()).unwrap();
    record[at] ^= 1;
    let mut ended = stream(std::slice::from_ref(&good));
    write::end(&mut ended);
    ended.extend(event(&motes[0], 1, 1));
    for (body, name, status) in [
        (stream(&[altered]), "NotAuthentic", 422),
        (stream(&[record]), "NotAuthentic", 422),
        (stream(&[motes[0].urgent((0, 3, 0), &[0; 4], Some(&other_key))]), "NotAuthentic", 422),
        (stream(&[event(&strangers[0], 0, 1)]), "UnknownDevice", 422),
        (stream(&[motes[0].urgent((0, 3, 0), &[0; 5], None)]), "RecordLength", 422),
        (good.clone(), "SchemaUnknown", 422),
        (stream(&[good[..last].to_vec()]), "Truncated", 422),
        (ended, "UnknownItem", 422),
        (vec![0x82, 0x07, 0x41, 0x00], "UnknownItem", 422),
        // One invalid event: none is stored.
        (stream(&[good.clone(), b"\xd2\x80".to_vec()]), "UnexpectedType", 422),
        (vec![0xff], "NonCanonical", 422),
    ] {
        let rejected = problem(put(&cloud, body).await).await;
        assert_eq!((rejected.name(), rejected.status), (name, status), "{rejected}");
    }
    assert_eq!(listed(&cloud, &roster, None, None).await.0, Vec::<u32>::new());
    assert_eq!(stored(&cloud, &[good]).await.stored, 1);
    cloud.stop().await;
}

#[tokio::test]
async fn one_device_cannot_fill_the_store() {
    let (roster, motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { event_bytes: 600, ..Limits::default() };
    let config = Config { limits, ..Config::new(roster.clone()) };
    let cloud = Running::start(directory.path(), config).await;
    let mut count = 0;
    let rejected = loop {
        let response = put(&cloud, stream(&[event(&motes[0], count, 1)])).await;
        if response.status() != 200 {
            break problem(response).await;
        }
        count += 1;
        assert!(count < 10);
    };
    assert_eq!((rejected.name(), rejected.status), ("EventQuota", 422));
    assert_eq!(rejected.place.unwrap().device, Some(motes[0].id.to_string()));
    assert_eq!(stored(&cloud, &[event(&motes[1], 0, 1)]).await.stored, 1, "another device");
    cloud.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_receives_an_event_when_it_is_stored() {
    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { event_waiters: 4, requests: 8, ..Limits::default() };
    let config = Config { limits, ..Config::new(roster.clone()) };
    let mut cloud = Running::start(directory.path(), config).await;
    // Clients that wait do not count as requests in progress.
    let path = paths::events(EpochNumber(0), &[], None, Some(30));
    let waiting: Vec<_> =
        (0..2).map(|_| tokio::spawn(cloud.http.get(cloud.at(&path)).send())).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    stored(&cloud, &[event(&motes[0], 0, 7)]).await;
    for response in waiting {
        let bytes = response.await.unwrap().unwrap().bytes().await.unwrap();
        let read = urgent::read(&bytes, &roster, (10, true), &mut || ()).unwrap();
        assert_eq!(read.events.len(), 1);
    }
    assert!(start.elapsed() < Duration::from_secs(10));

    let (_, cursor) = listed(&cloud, &roster, None, None).await;
    let start = Instant::now();
    assert!(listed(&cloud, &roster, cursor.as_deref(), Some(1)).await.0.is_empty());
    assert!(start.elapsed() >= Duration::from_millis(900), "the time is over");

    // The number of clients that wait is limited.
    let path = paths::events(EpochNumber(0), &[], cursor.as_deref(), Some(30));
    let waiting: Vec<_> =
        (0..4).map(|_| tokio::spawn(cloud.http.get(cloud.at(&path)).send())).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rejected = problem(cloud.get(&path).await).await;
    assert_eq!((rejected.name(), rejected.status), ("TooManyRequests", 429));
    // A service that stops answers them at once.
    let start = Instant::now();
    cloud.begin_stop();
    for response in waiting {
        // All clients of one address cannot have all places.
        let status = response.await.unwrap().unwrap().status();
        assert!(matches!(status.as_u16(), 200 | 429), "{status}");
    }
    assert!(start.elapsed() < Duration::from_secs(8));
}
