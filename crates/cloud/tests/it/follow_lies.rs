//! A cloud that lies to its followers can withhold data and cause bounded work, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use moteseal_api::paths;
use moteseal_api::summary::{Change, DevicePage, Summary};
use moteseal_cloud::Config;
use moteseal_core::Digest;
use moteseal_core::record::Scheme::Star;
use moteseal_core::record::SealIndex;
use moteseal_store::EpochStore;
use tokio::task::JoinHandle;

use crate::follow::{equal, following, metric};
use crate::testbed::{Mote, Running, group};

const PERIODS: Duration = Duration::from_millis(1000);

/// What a liar makes of a path and the honest response.
type Lie = dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync;

/// A server that passes requests to an honest cloud, and lies in its responses.
struct Liar {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Liar {
    async fn start(
        honest: &Running,
        lie: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, to, http) = (Arc::clone(&asked), honest.url.clone(), honest.http.clone());
        let lie: Arc<Lie> = Arc::new(lie);
        let answer = move |request: Request| {
            let (seen, to, http, lie) =
                (Arc::clone(&seen), to.clone(), http.clone(), Arc::clone(&lie));
            async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                seen.lock().unwrap().push(path.clone());
                let honest = http.get(format!("{to}{path}")).send().await.unwrap();
                let mut response = Response::builder().status(honest.status().as_u16());
                if let Some(of) = honest.headers().get(CONTENT_TYPE) {
                    response = response.header(CONTENT_TYPE, of.clone());
                }
                let body = lie(&path, honest.bytes().await.unwrap().to_vec());
                response.body(Body::from(Bytes::from(body))).unwrap()
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, asked, task }
    }

    fn asked(&self, part: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.contains(part)).count()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a follower of a liar for some periods, calls `check`, and then lets an honest cloud be followed.
/// The honest cloud has six seals of one mote.
async fn followed(
    lie: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    check: impl AsyncFnOnce(&Liar, &Running, &Mote),
) {
    let (roster, mut motes) = group(&["a"]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let honest = Running::start(one.path(), Config::new(roster.clone())).await;
    for epoch in 0..6 {
        assert_eq!(honest.put(motes[0].seal(Star, epoch, true, &[1, 2, 3])).await.status(), 200);
    }
    let liar = Liar::start(&honest, lie).await;
    let follower = following(two.path(), &roster, &[&liar.url]).await;
    tokio::time::sleep(PERIODS).await;
    assert_eq!(follower.get(paths::READYZ).await.status(), 200);
    check(&liar, &follower, &motes[0]).await;
    follower.stop().await;
    // What the liar refused to give comes from an honest cloud.
    let follower = following(two.path(), &roster, &[&honest.url]).await;
    equal(&[&honest, &follower]).await;
    follower.stop().await;
    honest.stop().await;
}

fn stored(cloud: &Running, mote: &Mote) -> usize {
    cloud.store.seals(mote.id, SealIndex(0), 99).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_bundle_is_refused_and_fetched_once() {
    let forge = |path: &str, mut body: Vec<u8>| {
        if path.contains("/bundles/") && !path.contains("/bundles/2") {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        body
    };
    followed(forge, async |liar, follower, mote| {
        assert_eq!((stored(follower, mote), liar.asked("/bundles/")), (1, 6));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_bundle_than_the_requested_one_is_refused() {
    let first: Mutex<Option<Vec<u8>>> = Mutex::default();
    let swap = move |path: &str, body: Vec<u8>| {
        if !path.contains("/bundles/") {
            return body;
        }
        first.lock().unwrap().get_or_insert(body).clone()
    };
    followed(swap, async |liar, follower, mote| {
        assert_eq!((stored(follower, mote), liar.asked("/bundles/")), (1, 6));
        let name = "moteseal_follow_refused_total{cloud=";
        let text = follower.get(paths::METRICS).await.text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name) && line.contains("NotAsAsked"));
        assert!(line.unwrap().ends_with(" 5"), "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_that_do_not_exist_are_asked_for_once() {
    let invent = |path: &str, body: Vec<u8>| {
        if !path.contains("/seals?") {
            return body;
        }
        let mut list: moteseal_api::SealList = serde_json::from_slice(&body).unwrap();
        let mut invented = list.seals[5].clone();
        invented.digest = "ab".repeat(32);
        invented.conflict = true;
        list.seals.push(invented);
        serde_json::to_vec(&list).unwrap()
    };
    followed(invent, async |liar, follower, mote| {
        assert_eq!((stored(follower, mote), liar.asked("/bundles/5")), (6, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_that_is_never_the_same_causes_one_comparison() {
    let count = AtomicU64::new(0);
    let wrong = move |path: &str, body: Vec<u8>| {
        if !path.starts_with("/v1/summary?") && path != paths::SUMMARY {
            return body;
        }
        let mut summary: Summary = serde_json::from_slice(&body).unwrap();
        let at = count.fetch_add(1, Ordering::Relaxed);
        summary.seals.digest = Digest::of(&[&at.to_be_bytes()]).0;
        serde_json::to_vec(&summary).unwrap()
    };
    followed(wrong, async |liar, follower, mote| {
        assert_eq!((stored(follower, mote), liar.asked("/summary/devices?")), (6, 0));
        assert_eq!(liar.asked(paths::SUMMARY_DEVICES), 2, "the devices, and the blocks of one");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_invented_changes_make_the_follower_wait() {
    let count = AtomicU64::new(0);
    let invent = move |path: &str, body: Vec<u8>| {
        if !path.starts_with(paths::SUMMARY) || path.starts_with(paths::SUMMARY_DEVICES) {
            return body;
        }
        let mut summary: Summary = serde_json::from_slice(&body).unwrap();
        let device = moteseal_core::record::DeviceId::of("home", "a");
        let change = |_| Change::Seal {
            device,
            index: 3,
            digest: Digest::of(&[&count.fetch_add(1, Ordering::Relaxed).to_be_bytes()]),
            kept_from: 0,
        };
        summary.changes = Some((0..1024).map(change).collect());
        summary.more = true;
        serde_json::to_vec(&summary).unwrap()
    };
    followed(invent, async |_, follower, _| {
        // The honest cloud, to which the false one forwards, refused each of the requests.
        let start = std::time::Instant::now();
        while metric(follower, "moteseal_follow_failures_total").await < 1.0 {
            assert!(start.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_that_do_not_end_and_long_responses_are_failures() {
    let endless = |path: &str, body: Vec<u8>| {
        if path.starts_with("/v1/summary/devices/") || !path.starts_with(paths::SUMMARY_DEVICES) {
            return body;
        }
        let mut page: DevicePage = serde_json::from_slice(&body).unwrap();
        page.more = true;
        serde_json::to_vec(&page).unwrap()
    };
    followed(endless, async |liar, follower, _| {
        assert!(metric(follower, "moteseal_follow_failures_total").await >= 1.0);
        let asked = liar.asked(paths::SUMMARY_DEVICES);
        assert!(asked < 30, "{asked} requests");
    })
    .await;
    let long = |path: &str, mut body: Vec<u8>| {
        if path.starts_with(paths::SUMMARY) {
            body.resize(3 << 20, b' ');
        }
        body
    };
    followed(long, async |liar, follower, mote| {
        assert!(metric(follower, "moteseal_follow_failures_total").await >= 1.0);
        assert_eq!((stored(follower, mote), liar.asked("/bundles/")), (0, 0));
    })
    .await;
}
