//! Which uploads the cloud stores and which it rejects, over real HTTP. The cloud verifies a whole
//! upload before it stores any of it, stores all of it or nothing, and ignores a repeated upload.

use crate::testbed::{Mote, Running, group, problem, query, verified};
use moteseal_api::{Receipt, SealList, paths};
use moteseal_cloud::Config;
use moteseal_core::record::Scheme::{Star, Tree};
use moteseal_core::record::SealIndex;
use moteseal_seal::sample::{Choice, Rate};

async fn stored(cloud: &Running, mote: &Mote) -> usize {
    let list: SealList =
        cloud.get(&paths::seals(mote.id, SealIndex(0), 1000)).await.json().await.unwrap();
    list.seals.len()
}

#[tokio::test]
async fn repeating_an_upload_changes_nothing() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let body =
        [motes[0].seal(Star, 1, true, &[1; 40]), motes[0].seal(Tree, 2, true, &[2; 40])].concat();
    let first: Receipt = cloud.put(body.clone()).await.json().await.unwrap();
    let second: Receipt = cloud.put(body).await.json().await.unwrap();
    assert_eq!((first.stored, first.known), (2, 0));
    assert_eq!((second.stored, second.known), (0, 2));
    assert_eq!(stored(&cloud, &motes[0]).await, 2);
    let nothing: Receipt = cloud.put(Vec::new()).await.json().await.unwrap();
    assert_eq!(nothing, Receipt::default());
    cloud.stop().await;
}

#[tokio::test]
async fn acknowledged_bundles_survive_a_restart() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    assert_eq!(cloud.put(motes[0].seal(Star, 1, true, &[1, 2, 3])).await.status(), 200);
    cloud.stop().await;
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let answer = cloud
        .ask(&query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL)))
        .await
        .bytes()
        .await
        .unwrap();
    assert_eq!(verified(&roster, &answer).unwrap().rows.len(), 3);
    cloud.stop().await;
}

#[tokio::test]
async fn an_upload_with_one_bad_bundle_stores_nothing() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let good = motes[0].seal(Star, 1, true, &[1; 40]);
    let mut bad = motes[0].seal(Star, 2, true, &[2; 40]);
    let middle = bad.len() - 80;
    bad[middle] ^= 1;
    let rejected = problem(cloud.put([good, bad].concat()).await).await;
    assert_eq!((rejected.name(), rejected.status), ("NotAuthentic", 422));
    let place = rejected.place.clone().unwrap();
    assert_eq!(
        (place.item, place.first_index, place.device),
        (Some(5), Some(1), Some(motes[0].id.to_string()))
    );
    assert_eq!(stored(&cloud, &motes[0]).await, 0);
    cloud.stop().await;
}

#[tokio::test]
async fn each_bad_upload_is_rejected_with_its_error_name() {
    let (roster, motes) = group(&["a", "b"]);
    let (_, mut strangers) = group(&["a", "b", "c"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let good = motes[0].clone().seal(Star, 1, true, &[1; 40]);
    let [schema, open] = [good[..].len(), 0].map(|_| &good[..]);
    let lengths = {
        let (_, first) = moteseal_seal::stream::Item::decode(schema).unwrap();
        let (_, second) = moteseal_seal::stream::Item::decode(&open[first..]).unwrap();
        (first, first + second)
    };
    let cases: Vec<(&str, u16, Vec<u8>)> = vec![
        ("Truncated", 422, good[..good.len() - 1].to_vec()),
        ("UnknownItem", 422, vec![0x81, 0x0a]),
        ("NoOpen", 422, [&good[..lengths.0], &good[lengths.1..]].concat()),
        ("SchemaUnknown", 422, good[lengths.0..].to_vec()),
        // The roster of the strangers has a third device, which the cloud's roster does not have.
        ("UnknownDevice", 422, strangers[2].seal(Star, 1, true, &[1])),
        ("PrevMismatch", 422, {
            let mut altered = good.clone();
            let prev =
                altered.windows(32).position(|bytes| bytes == motes[0].position.prev.0).unwrap();
            altered[prev] ^= 1;
            altered
        }),
        ("NotWhole", 422, motes[0].partial(1, &[1; 40])),
        ("BadBody", 400, [&good[..], &[0x83, 0x04, 0x61, b'x', 0x61, b'y']].concat()),
        ("PrevUnknown", 409, {
            let mut later = motes[1].clone();
            later.seal(Star, 1, true, &[1]);
            Mote::without_prev(&later.seal(Star, 2, true, &[1]))
        }),
    ];
    for (name, status, body) in cases {
        let rejected = problem(cloud.put(body).await).await;
        assert_eq!((rejected.name(), rejected.status), (name, status), "{}", rejected.detail);
    }
    // The cloud still accepts valid uploads.
    let receipt: Receipt = cloud.put(good).await.json().await.unwrap();
    assert_eq!(receipt.stored, 1);
    let metrics = cloud.get(paths::METRICS).await.text().await.unwrap();
    assert!(metrics.contains("moteseal_uploads_refused_total{name=\"NotWhole\"} 1"), "{metrics}");
    assert!(metrics.contains("moteseal_bundles_stored_total 1"), "{metrics}");
    assert!(
        metrics.contains("moteseal_requests_total{route=\"/v1/bundles\",status=\"2xx\"} 1"),
        "{metrics}"
    );
    cloud.stop().await;
}

#[tokio::test]
async fn a_seal_whose_predecessor_is_stored_or_in_the_same_upload_needs_no_prev() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let bundles: Vec<Vec<u8>> = (0..4)
        .map(|epoch| Mote::without_prev(&motes[0].seal(Star, epoch, true, &[5; 9])))
        .collect();
    assert_eq!(cloud.put(bundles[..1].concat()).await.status(), 200);
    assert_eq!(cloud.put(bundles[1..].concat()).await.status(), 200);
    assert_eq!(stored(&cloud, &motes[0]).await, 4);
    cloud.stop().await;
}

#[tokio::test]
async fn two_seals_of_one_index_are_kept_and_reported_everywhere() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let mote = &mut motes[0];
    assert_eq!(cloud.put(mote.seal(Star, 1, true, &[1; 9])).await.status(), 200);
    let fork = mote.fork(Star, 2, true, &[8; 9]);
    assert_eq!(cloud.put(mote.seal(Star, 2, true, &[2; 9])).await.status(), 200);
    assert_eq!(cloud.put(mote.seal(Star, 3, true, &[3; 9])).await.status(), 200);
    let receipt: Receipt = cloud.put(fork.clone()).await.json().await.unwrap();
    assert_eq!(receipt.stored, 1);
    assert_eq!(receipt.conflicts.len(), 1);
    assert_eq!(
        (receipt.conflicts[0].index, receipt.conflicts[0].device.clone()),
        (1, mote.id.to_string())
    );

    let list: SealList =
        cloud.get(&paths::seals(mote.id, SealIndex(0), 2)).await.json().await.unwrap();
    assert_eq!((list.seals.len(), list.next), (1, Some(1)));
    let list: SealList =
        cloud.get(&paths::seals(mote.id, SealIndex(1), 1)).await.json().await.unwrap();
    assert_eq!(
        list.seals.iter().map(|seal| (seal.index, seal.conflict)).collect::<Vec<_>>(),
        [(1, true), (1, true)]
    );
    assert_eq!(list.next, Some(2));

    // An answer that reaches the equivocation ends there. Answers for the ranges before and after
    // it are complete.
    let ask = |since, until| query(&[mote.id], since, until, Choice::Rate(Rate::ALL));
    let answer = cloud.ask(&ask(0, None)).await.bytes().await.unwrap();
    let read = verified(&roster, &answer).unwrap();
    assert_eq!((read.rows.len(), read.ended), (9, false));
    let (name, detail) = read.problem.unwrap();
    assert!(
        name == "Equivocation" && detail.contains("a signed two histories: seals 1 of "),
        "{name} {detail}"
    );
    let rejected = problem(cloud.ask(&ask(2, Some(3))).await).await;
    assert_eq!((rejected.name(), rejected.status), ("Equivocation", 409));
    for (since, until) in [(0, Some(2)), (3, Some(4))] {
        let answer = cloud.ask(&ask(since, until)).await.bytes().await.unwrap();
        let read = verified(&roster, &answer).unwrap();
        assert_eq!((read.rows.len(), read.ended), (9, true), "{since}");
    }

    let rejected = problem(cloud.get(&paths::bundle(mote.id, SealIndex(1))).await).await;
    assert_eq!((rejected.name(), rejected.status), ("Equivocation", 409));
    for seal in &list.seals {
        let path = format!("{}?digest={}", paths::bundle(mote.id, SealIndex(1)), seal.digest);
        let read = verified(&roster, &cloud.get(&path).await.bytes().await.unwrap()).unwrap();
        assert_eq!((read.rows.len(), read.ended), (9, true));
    }
    let other = format!("{}?digest={}", paths::bundle(mote.id, SealIndex(1)), "0".repeat(64));
    let missing = problem(cloud.get(&other).await).await;
    assert_eq!((missing.name(), missing.status), ("NotFound", 404));
    assert!(missing.detail.contains("no seal 1 with that digest"), "{missing:?}");
    let explained = cloud.get(&paths::explain(mote.id, SealIndex(1))).await.bytes().await.unwrap();
    let (_, first) = moteseal_seal::stream::Item::decode(&explained).unwrap();
    assert!(matches!(
        moteseal_seal::stream::Item::decode(&explained[first..]).unwrap().0,
        moteseal_seal::stream::Item::Explain { .. }
    ));

    // Index 2 has only one seal, so the upload of the next seal does not have to state its
    // predecessor.
    let next = Mote::without_prev(&mote.clone().seal(Star, 4, true, &[4]));
    assert_eq!(cloud.put(next).await.status(), 200, "only one seal has index 2");
    cloud.stop().await;
}

/// Changes every byte of a bundle in three ways, and truncates the bundle at every length. The
/// cloud must store nothing from these uploads, and must respond to each of them without failing.
#[tokio::test]
async fn rejects_every_altered_bundle() {
    for scheme in [Star, Tree] {
        let (roster, mut motes) = group(&["a"]);
        let directory = tempfile::tempdir().unwrap();
        let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
        let bundle = motes[0].seal(scheme, 7, true, &[1, 2, 3, 4, 5, 6]);
        let altered = (0..bundle.len()).flat_map(|at| {
            let flip = |flip: u8| {
                let mut altered = bundle.clone();
                altered[at] ^= flip;
                altered
            };
            [flip(1), flip(0x80), flip(0xff), bundle[..at].to_vec()]
        });
        let whole = [bundle.len(), 0];
        for altered in altered {
            let cut = altered.len();
            let response = cloud.put(altered).await;
            let status = response.status().as_u16();
            // A bundle that is cut between two items is a shorter valid stream. The cloud accepts
            // it, but stores nothing from it.
            let harmless = status == 200
                && cut < whole[0]
                && response.json::<Receipt>().await.unwrap().stored == 0;
            assert!(harmless || [400, 409, 413, 422].contains(&status), "{status}");
        }
        assert_eq!(stored(&cloud, &motes[0]).await, 0);
        let receipt: Receipt = cloud.put(bundle).await.json().await.unwrap();
        assert_eq!(receipt.stored, 1);
        cloud.stop().await;
    }
}

/// A forged upload of a few hundred bytes claims sixteen million events, most of them not kept. The
/// cloud must compute their levels to detect the forgery. Short uploads from other senders must not
/// wait for it.
#[tokio::test]
async fn an_expensive_forgery_does_not_delay_others() {
    use std::time::{Duration, Instant};
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let forged = motes[0].claiming(5, (1 << 24) - 1);
    assert!(forged.len() < 1000);
    let mut forgeries = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let request = cloud.http.put(cloud.at(paths::BUNDLES)).body(forged.clone());
        forgeries.spawn(async move { request.send().await.unwrap() });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let start = Instant::now();
    assert_eq!(cloud.put(motes[1].seal(Star, 1, true, &[1; 10])).await.status(), 200);
    let others = start.elapsed();
    while let Some(rejected) = forgeries.join_next().await {
        assert_eq!(problem(rejected.unwrap()).await.name(), "DigestCount");
    }
    let all = start.elapsed();
    assert!(others < all * 3 / 4 || all < Duration::from_millis(200), "{others:?} of {all:?}");
    cloud.stop().await;
}
