//! Concurrency: uploads of the same bundles by several senders, and queries during uploads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::testbed::{Running, group, query, verified};
use moteseal_api::{Receipt, paths};
use moteseal_cloud::Config;
use moteseal_core::record::Scheme::{Star, Tree};
use moteseal_seal::sample::{Choice, Rate};
use tokio::task::JoinSet;

/// Each device uploads its bundles in order. Every answer must therefore be an unbroken chain from
/// the first seal on, and must contain at least the seals that were acknowledged before the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_are_complete_during_uploads() {
    const BUNDLES: u32 = 150;
    let (roster, motes) = group(&["a", "b", "c"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let acknowledged: Vec<Arc<AtomicUsize>> = motes.iter().map(|_| Arc::default()).collect();
    let mut uploads = JoinSet::new();
    for (mote, count) in motes.iter().zip(&acknowledged) {
        let (mut mote, count) = (mote.clone(), Arc::clone(count));
        let (http, url) = (cloud.http.clone(), cloud.at(paths::BUNDLES));
        uploads.spawn(async move {
            for epoch in 0..BUNDLES {
                let scheme = if epoch % 2 == 0 { Star } else { Tree };
                let bundle = mote.seal(scheme, u64::from(epoch), true, &[epoch; 30]);
                let response = http.put(&url).body(bundle).send().await.unwrap();
                assert_eq!(response.json::<Receipt>().await.unwrap().stored, 1);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let mut queries = 0;
    loop {
        let before: Vec<usize> =
            acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        for (mote, at_least) in motes.iter().zip(&before) {
            let response = cloud.ask(&query(&[mote.id], 0, None, Choice::Rate(Rate::ALL))).await;
            let read = verified(&roster, &response.bytes().await.unwrap()).unwrap();
            let indices: Vec<u32> = read.parts.iter().map(|(_, index, ..)| *index).collect();
            assert!(read.ended && indices.len() >= *at_least, "{} of {at_least}", indices.len());
            assert!(indices.iter().copied().eq(0..indices.len() as u32), "{indices:?}");
            assert_eq!(read.rows.len(), 30 * indices.len());
            queries += 1;
        }
        if before.iter().all(|&count| count == BUNDLES as usize) {
            break;
        }
    }
    uploads.join_all().await;
    assert!(queries > 3);
    cloud.stop().await;
}

/// If a gateway retries an upload while its first attempt is still in progress, every bundle is
/// stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_bundles_from_several_senders_are_stored_once() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let bundles: Vec<Vec<u8>> =
        (0..40).map(|epoch| motes[0].seal(Star, epoch, true, &[7; 50])).collect();
    let mut senders = JoinSet::new();
    for sender in 0..4 {
        let mut bundles = bundles.clone();
        bundles.rotate_left(sender * 10);
        let (http, url) = (cloud.http.clone(), cloud.at(paths::BUNDLES));
        senders.spawn(async move {
            let mut sum = Receipt::default();
            // Upload the bundles in pairs, so that the batches of different senders overlap in
            // every way.
            for pair in bundles.chunks(2) {
                let response = http.put(&url).body(pair.concat()).send().await.unwrap();
                let receipt: Receipt = response.json().await.unwrap();
                assert!(receipt.conflicts.is_empty());
                (sum.stored, sum.known) = (sum.stored + receipt.stored, sum.known + receipt.known);
            }
            sum
        });
    }
    let receipts = senders.join_all().await;
    assert_eq!(receipts.iter().map(|receipt| receipt.stored).sum::<u64>(), 40);
    assert_eq!(receipts.iter().map(|receipt| receipt.known).sum::<u64>(), 120);
    let response = cloud.ask(&query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL))).await;
    assert_eq!(verified(&roster, &response.bytes().await.unwrap()).unwrap().parts.len(), 40);
    cloud.stop().await;
}
