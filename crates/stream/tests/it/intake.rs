//! What is put through an intake arrives in the store of the workers, and nothing else does.

use std::time::Duration;

use moteseal_core::record::{EpochNumber, Scheme};
use moteseal_store::Receipt;
use moteseal_store::conformance::{Mote, manifest};
use moteseal_stream::{Reached, Role, Stream};

use crate::testbed::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_intake_acknowledges_arrives_in_the_store_of_one_worker() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let worker = Running::start(shared(), &name, &store).await;
    for bundle in bundles("one", 50, 20) {
        direct.store.put(vec![bundle.clone()]).unwrap();
        let receipt = put(&intake, vec![bundle]).await.unwrap();
        assert_eq!((receipt.queued, receipt.stored, receipt.known), (1, 0, 0));
        assert!(receipt.position.is_some());
    }
    same(&store, &direct).await;
    until("acknowledging", || worker.counts.messages() == 50).await;
    let counts = worker.stop().await;
    assert_eq!((counts.stored(), counts.known(), counts.dead()), (50, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_the_messages_of_two_intakes() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intakes = [intake(shared(), &name, &store).await, intake(shared(), &name, &store).await];
    let workers = [
        Running::start(shared(), &name, &store).await,
        Running::start(shared(), &name, &store).await,
    ];
    let batches: Vec<_> = (0..10).map(|i| bundles(&format!("device {i}"), 20, 5)).collect();
    let mut puts = Vec::new();
    for batch in batches.iter().flatten() {
        direct.store.put(vec![batch.clone()]).unwrap();
    }
    for (number, batch) in batches.iter().enumerate() {
        for bundle in batch {
            puts.push(put(&intakes[number % 2], vec![bundle.clone()]));
        }
    }
    for receipt in futures_util::future::join_all(puts).await {
        assert_eq!(receipt.unwrap().queued, 1);
    }
    same(&store, &direct).await;
    until("acknowledging", || workers.iter().map(|w| w.counts.messages()).sum::<u64>() == 200)
        .await;
    let mut stored = 0;
    for worker in workers {
        stored += worker.stop().await.stored();
    }
    assert_eq!(stored, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_urgent_events_and_equivocations_arrive() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let _worker = Running::start(shared(), &name, &store).await;
    let mut mote = Mote::new("all kinds", false);
    let start = mote.position;
    let first = mote.seal_some(Scheme::Star, 1, 3);
    mote.position = start;
    let second = mote.seal_some(Scheme::Tree, 2, 4);
    let manifests = vec![manifest(1, 0, &[&first])];
    let events = vec![mote.urgent(1, 3, 0, 7), mote.urgent(1, 3, 0, 8)];
    for to in [&*direct.store, &intake as &dyn moteseal_store::EpochStore] {
        let (first, second) = (first.bundle.clone(), second.bundle.clone());
        let (manifests, events) = (manifests.clone(), events.clone());
        // The functions that wait block their thread, so the runtime must have another one.
        tokio::task::block_in_place(|| {
            to.put(vec![first, second]).unwrap();
            to.put_manifests(manifests).unwrap();
            to.put_urgent(events).unwrap();
        });
    }
    same(&store, &direct).await;
}

/// The cloud compares these bytes with the limit of a device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intake_counts_the_urgent_events_that_it_published_until_a_worker_has_stored_some() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let intake = intake(shared(), &name, &store).await;
    let (mote, other) = (Mote::new("counted", false), Mote::new("not counted", false));
    let intake: &dyn moteseal_store::EpochStore = &intake;
    let used = |of: &Mote| intake.urgent_bytes(of.device()).unwrap();
    assert_eq!(used(&mote), 0);
    let events = [mote.urgent(1, 3, 0, 7), mote.urgent(2, 3, 0, 8)];
    let bytes: u64 = events.iter().map(moteseal_store::StoredUrgent::counted_bytes).sum();
    for event in &events {
        tokio::task::block_in_place(|| intake.put_urgent(vec![event.clone()])).unwrap();
    }
    assert_eq!((used(&mote), used(&other)), (bytes, 0));
    // An event that is published again counts once.
    let again = tokio::task::block_in_place(|| intake.put_urgent(events.to_vec())).unwrap();
    assert_eq!((again.queued, used(&mote)), (2, bytes));
    let worker = Running::start(shared(), &name, &store).await;
    until("storing", || worker.counts.messages() == 3).await;
    assert_eq!((used(&mote), used(&other)), (bytes, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intake_knows_the_manifests_that_it_published_before_a_worker_stores_them() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let made = Mote::new("manifests", false).seal_some(Scheme::Star, 5, 3);
    let manifests: Vec<_> = (1..=9).map(|epoch| manifest(epoch, 0, &[&made])).collect();
    direct.store.put_manifests(manifests.clone()).unwrap();
    store.store.put_manifests(manifests[..2].to_vec()).unwrap();
    let to: &dyn moteseal_store::EpochStore = &intake;
    tokio::task::block_in_place(|| to.put_manifests(manifests[1..].to_vec())).unwrap();
    let (since, until) = (EpochNumber(2), Some(EpochNumber(9)));
    for limit in [1, 3, 100] {
        for after in [None, Some(manifests[3].key())] {
            let [found, expected] = [to, &*direct.store]
                .map(|store| store.manifests(since, until, after, limit).unwrap());
            assert_eq!(found, expected, "at most {limit} after {after:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_publication_is_one_message() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let intakes = [intake(shared(), &name, &store).await, intake(shared(), &name, &store).await];
    let bundle = bundles("twice", 1, 5);
    let first = put(&intakes[0], bundle.clone()).await.unwrap();
    let second = put(&intakes[1], bundle.clone()).await.unwrap();
    assert_eq!(first.position, second.position);
    let worker = Running::start(shared(), &name, &store).await;
    until("storing", || worker.counts.messages() == 1).await;
    assert_eq!(content(&*store.store).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waits_until_a_position_is_stored_or_a_bound_passes() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let intake = intake(shared(), &name, &store).await;
    let reached = Reached::new(connect(shared(), &name, Role::Serve).await);
    let Receipt { position, .. } = put(&intake, bundles("waits", 1, 5)).await.unwrap();
    let position = position.unwrap();
    assert!(!reached.wait(position, Duration::from_millis(200)).await.unwrap());
    let _worker = Running::start(shared(), &name, &store).await;
    assert!(reached.wait(position, Duration::from_secs(20)).await.unwrap());
    assert_eq!(content(&*store.store).len(), 1);
}

/// Positions start at 1 again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waits_for_the_positions_of_a_stream_that_was_created_again() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let intake = intake(shared(), &name, &store).await;
    let reached = Reached::new(connect(shared(), &name, Role::Serve).await);
    let worker = Running::start(shared(), &name, &store).await;
    let mut last = 0;
    for bundle in bundles("first stream", 5, 5) {
        last = put(&intake, vec![bundle]).await.unwrap().position.unwrap();
    }
    assert_eq!(last, 5);
    assert!(reached.wait(last, Duration::from_secs(20)).await.unwrap());
    worker.stop().await;

    let client = async_nats::connect(&shared().url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    for stream in [name.clone(), format!("{name}_pieces"), format!("{name}_dead")] {
        context.delete_stream(stream).await.unwrap();
    }
    let stream = Stream::connect(settings(shared(), &name, Role::Intake)).await.unwrap();
    stream.init(&layout()).await.unwrap();
    let batch = bundles("second stream", 1, 5);
    let position = put(&intake, batch).await.unwrap().position.unwrap();
    assert_eq!(position, 1);
    assert!(!reached.wait(position, Duration::from_millis(300)).await.unwrap());
    let _worker = Running::start(shared(), &name, &store).await;
    assert!(reached.wait(position, Duration::from_secs(20)).await.unwrap());
    assert_eq!(content(&*store.store).len(), 6);
}
