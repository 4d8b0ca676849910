//! Clouds that follow each other: whatever one of them stores, the others fetch, verify and store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_api::summary::{Fingerprint, Summary};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::Scheme::Star;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_net::{Client, Options, Retry};
use moteseal_store::{EpochStore, Options as StoreOptions, RedbStore};
use moteseal_verify::Roster;
use tokio::sync::oneshot;

use crate::testbed::{Mote, Running, budgeted, coordinator, group, manifest, open_store, schema};

/// How often the clouds of these tests ask each other for news.
const EVERY: Duration = Duration::from_millis(100);
/// How long a test waits for clouds to become equal.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn client(url: &str) -> Client {
    let retry = Retry {
        attempts: 3,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(200),
    };
    Client::new(url, &Options { retry, idle_timeout: Duration::from_secs(2), ..Options::default() })
        .unwrap()
}

/// Starts a cloud that follows the clouds at these addresses.
pub(crate) async fn following(directory: &Path, roster: &Roster, urls: &[&str]) -> Running {
    // Work that a stopped cloud had begun on other threads ends shortly after it.
    let path = directory.join("epochs.redb");
    let start = Instant::now();
    while RedbStore::open(&path, StoreOptions::default()).is_err() {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let store = open_store(directory);
    let bound = Cloud::bind(Config::new(roster.clone()), Arc::clone(&store) as Arc<dyn EpochStore>);
    let cloud = bound.await.unwrap();
    let cloud = cloud.with_followed(urls.iter().map(|url| client(url)).collect(), EVERY);
    Running::of(cloud, store)
}

async fn summary(cloud: &Running) -> Summary {
    cloud.get(paths::SUMMARY).await.json().await.unwrap()
}

/// Waits until the clouds have the same fingerprints, and returns the summary.
pub(crate) async fn equal(clouds: &[&Running]) -> Summary {
    equal_within(clouds, PATIENCE).await
}

/// Like [`equal`], with another patience.
pub(crate) async fn equal_within(clouds: &[&Running], patience: Duration) -> Summary {
    let start = Instant::now();
    loop {
        let mut all = Vec::new();
        for cloud in clouds {
            let summary = summary(cloud).await;
            all.push((summary.seals, summary.manifests, summary.events, summary));
        }
        let is_same = |pair: &[(_, Fingerprint, Fingerprint, Summary)]| {
            (pair[0].0, pair[0].1, pair[0].2) == (pair[1].0, pair[1].1, pair[1].2)
        };
        if all.windows(2).all(is_same) {
            return all.remove(0).3;
        }
        assert!(start.elapsed() < patience, "not equal: {all:?}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Returns the value of a metric, without labels other than those in `name`.
pub(crate) async fn metric(cloud: &Running, name: &str) -> f64 {
    let text = cloud.get(paths::METRICS).await.text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().unwrap())
}

/// Returns the number of requests that a cloud has served on a route.
async fn served(cloud: &Running, route: &str) -> f64 {
    let text = cloud.get(paths::METRICS).await.text().await.unwrap();
    let label = format!("route=\"{route}\"");
    let lines = text
        .lines()
        .filter(|line| line.starts_with("moteseal_requests_total{") && line.contains(&label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn keys(cloud: &Running, mote: &Mote) -> Vec<(moteseal_store::SealKey, u8)> {
    let seals = cloud.store.seals(mote.id, SealIndex(0), 10_000).unwrap();
    seals.iter().map(|seal| (seal.key(), seal.kept_from().0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clouds_that_follow_each_other_converge_while_both_receive_uploads() {
    let (roster, mut motes) = group(&["a", "b", "c"]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(roster.clone())).await;
    for epoch in 0..4 {
        assert_eq!(first.put(motes[0].seal(Star, epoch, true, &[1, 2, 3])).await.status(), 200);
    }
    let second = following(two.path(), &roster, &[&first.url]).await;
    equal(&[&first, &second]).await;
    // The first cloud restarts at its address, and now follows the second.
    let url = first.url.clone();
    first.stop().await;
    let first = at(one.path(), &roster, &url, &[&second.url]).await;
    for epoch in 4..30 {
        assert_eq!(first.put(motes[0].seal(Star, epoch, true, &[4])).await.status(), 200);
        assert_eq!(second.put(motes[1].seal(Star, epoch, true, &[5, 6])).await.status(), 200);
        let event = motes[2].urgent((0, epoch, epoch), &[0, 0, 0, 7], None);
        let to = if epoch % 2 == 0 { &first } else { &second };
        assert_eq!(put_event(to, &event).await, 200);
    }
    let summary = equal(&[&first, &second]).await;
    assert_eq!((summary.seals.count, summary.events.count), (30 + 26, 26));
    for mote in &motes {
        assert_eq!(keys(&first, mote), keys(&second, mote));
    }
    // A bundle that was fetched is served like one that was uploaded.
    let path = paths::bundle(motes[1].id, SealIndex(7));
    let bundles = (second.get(&path).await.bytes().await, first.get(&path).await.bytes().await);
    assert_eq!(bundles.0.unwrap(), bundles.1.unwrap());
    first.stop().await;
    second.stop().await;
}

/// Starts a cloud at a given address.
async fn at(directory: &Path, roster: &Roster, url: &str, follow: &[&str]) -> Running {
    let store = open_store(directory);
    let listen = url.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
    let config = Config { listen, ..Config::new(roster.clone()) };
    let bound = Cloud::bind(config, Arc::clone(&store) as Arc<dyn EpochStore>).await.unwrap();
    let clients = follow.iter().map(|url| client(url)).collect();
    Running::of(bound.with_followed(clients, EVERY), store)
}

async fn put_event(cloud: &Running, event: &[u8]) -> u16 {
    let mut body = Vec::new();
    moteseal_verify::write::schema(&mut body, &schema());
    body.extend_from_slice(event);
    let request =
        cloud.http.put(cloud.at(paths::EVENTS)).header("content-type", moteseal_api::CBOR_SEQ);
    request.body(body).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_clouds_exchange_one_small_request_in_each_period() {
    let (roster, mut motes) = group(&["a"]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(roster.clone())).await;
    for epoch in 0..20 {
        assert_eq!(first.put(motes[0].seal(Star, epoch, true, &[1, 2, 3])).await.status(), 200);
    }
    let second = following(two.path(), &roster, &[&first.url]).await;
    equal(&[&first, &second]).await;
    tokio::time::sleep(5 * EVERY).await;
    let routes = [paths::SUMMARY_DEVICES, paths::SUMMARY_SEALS, paths::SEALS, paths::BUNDLE];
    let mut before = Vec::new();
    for route in routes {
        before.push(served(&first, route).await);
    }
    assert_eq!(before[3], 20.0, "each bundle was fetched once");
    let periods = served(&first, paths::SUMMARY).await;
    tokio::time::sleep(10 * EVERY).await;
    let periods = served(&first, paths::SUMMARY).await - periods;
    assert!((4.0..=16.0).contains(&periods), "{periods} periods");
    for (route, before) in routes.into_iter().zip(before) {
        assert_eq!(served(&first, route).await, before, "{route}");
    }
    let length = first.get(paths::SUMMARY).await.bytes().await.unwrap().len();
    assert!(length < 800, "{length} bytes");
    // One new seal costs one request for its bundle.
    assert_eq!(first.put(motes[0].seal(Star, 20, true, &[9])).await.status(), 200);
    equal(&[&first, &second]).await;
    assert_eq!(served(&first, paths::BUNDLE).await, 21.0);
    assert_eq!(served(&first, paths::SEALS).await, 1.0, "only the first comparison listed seals");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pruned_bundles_manifests_and_equivocations_are_replicated_through_a_chain_of_clouds() {
    let (roster, mut motes) = budgeted(&["a", "b"], 50);
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let first = Running::start(dirs[0].path(), Config::new(roster.clone())).await;
    let second = following(dirs[1].path(), &roster, &[&first.url]).await;
    let third = following(dirs[2].path(), &roster, &[&second.url]).await;
    let events: Vec<u32> = (0..200).collect();
    let before = motes[0].clone();
    let (bundle, digest) = motes[0].seal_from(2, 3, true, &events);
    let signed = manifest(&roster, &coordinator(), 3, 2, &[(before.id, vec![digest])]);
    assert_eq!(first.put_manifest(signed).await.status(), 200);
    assert_eq!(first.put(bundle).await.status(), 200);
    // A late seal: a manifest that lists it, and whose round it does not reach, comes later.
    let late = motes[1].clone();
    let (bundle, digest) = motes[1].seal_from(4, 5, true, &events);
    let request = first.http.put(first.at(paths::LATE_BUNDLES)).body(bundle);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let signed = manifest(&roster, &coordinator(), 5, 1, &[(late.id, vec![digest])]);
    assert_eq!(first.put_manifest(signed).await.status(), 200);
    // Two seals under one index, and two manifests of one epoch.
    let twin = motes[0].fork(Star, 6, true, &[1]);
    assert_eq!(first.put(motes[0].seal(Star, 6, true, &[2])).await.status(), 200);
    assert_eq!(first.put(twin).await.status(), 200);
    let signed = manifest(&roster, &coordinator(), 5, 2, &[]);
    assert_eq!(first.put_manifest(signed).await.status(), 200);
    let summary = equal(&[&first, &second, &third]).await;
    assert_eq!((summary.seals.count, summary.manifests.count), (4, 3));
    // Further levels of a stored seal are fetched, too.
    assert_eq!(first.put(before.fork_from(1, 3, true, &events)).await.status(), 200);
    assert_eq!(first.put(late.fork_from(0, 5, true, &events)).await.status(), 200);
    equal(&[&first, &second, &third]).await;
    assert_eq!(keys(&third, &motes[1])[0].1, 0);
    assert_eq!(third.store.equivocations(None, 9).unwrap().len(), 1);
    assert_eq!(third.store.manifests(EpochNumber(0), None, None, 9).unwrap().len(), 3);
    for cloud in [first, second, third] {
        cloud.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_older_store_catches_up_and_following_oneself_is_harmless() {
    let (roster, mut motes) = group(&["a"]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(roster.clone())).await;
    for epoch in 0..3 {
        assert_eq!(first.put(motes[0].seal(Star, epoch, true, &[1])).await.status(), 200);
    }
    let second = following(two.path(), &roster, &[&first.url]).await;
    equal(&[&first, &second]).await;
    second.stop().await;
    let old = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(two.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), old.path().join(entry.file_name())).unwrap();
    }
    for epoch in 3..6 {
        assert_eq!(first.put(motes[0].seal(Star, epoch, true, &[1])).await.status(), 200);
        let event = motes[0].urgent((9, epoch, epoch), &[0, 0, 0, 7], None);
        assert_eq!(put_event(&first, &event).await, 200);
    }
    let second = following(two.path(), &roster, &[&first.url]).await;
    equal(&[&first, &second]).await;
    second.stop().await;
    // The store is replaced by the older copy, and the cloud continues.
    let second = following(old.path(), &roster, &[&first.url]).await;
    let summary = equal(&[&first, &second]).await;
    assert_eq!((summary.seals.count, summary.events.count), (6, 3));
    second.stop().await;

    let url = first.url.clone();
    first.stop().await;
    let own = at(one.path(), &roster, &url, &[&url]).await;
    tokio::time::sleep(5 * EVERY).await;
    assert_eq!(served(&own, paths::BUNDLE).await, 0.0);
    assert_eq!(metric(&own, "moteseal_follow_failures_total").await, 0.0);
    assert!(metric(&own, "moteseal_follow_success_seconds").await > 1e9);
    own.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_the_own_roster_does_not_have_is_skipped() {
    let (theirs, mut motes) = group(&["a", "b"]);
    let (own, _) = group(&["a"]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(theirs)).await;
    assert_eq!(first.put(motes[1].seal(Star, 1, true, &[1])).await.status(), 200);
    let second = following(two.path(), &own, &[&first.url]).await;
    tokio::time::sleep(8 * EVERY).await;
    assert_eq!(served(&first, paths::BUNDLE).await, 0.0);
    assert_eq!(served(&first, paths::SUMMARY_DEVICES).await, 1.0, "compared once");
    // The first device names another roster, so its seal is refused: once, and then remembered.
    assert_eq!(first.put(motes[0].seal(Star, 1, true, &[1])).await.status(), 200);
    tokio::time::sleep(8 * EVERY).await;
    assert_eq!(served(&first, paths::BUNDLE).await, 1.0);
    assert_eq!(metric(&second, "moteseal_follow_fetched_total").await, 0.0);
    let text = second.get(paths::METRICS).await.text().await.unwrap();
    let refused = text.lines().filter(|line| line.starts_with("moteseal_follow_refused_total{"));
    let refused: Vec<&str> = refused.filter(|line| line.ends_with(" 1")).collect();
    assert_eq!(refused.len(), 1, "{text}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_stops_at_once() {
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    // A listener that accepts connections and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel::<()>();
    let hanging = tokio::spawn(async move {
        let mut open = Vec::new();
        tokio::select! {
            () = async { loop { open.push(listener.accept().await.unwrap()); } } => {}
            _ = ended => {}
        }
    });
    let cloud = following(directory.path(), &roster, &[&url]).await;
    tokio::time::sleep(3 * EVERY).await;
    assert_eq!(cloud.get(paths::READYZ).await.status(), 200, "the own service continues");
    let start = Instant::now();
    cloud.stop().await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    drop(end);
    hanging.await.unwrap();
}
