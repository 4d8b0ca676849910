//! An intake rejects what it cannot publish, and keeps a bounded amount in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_store::{Batch, EpochStore as _, PutError};
use moteseal_stream::{IntakeLimits, Layout, Role, StreamStore};
use rustix::process::Signal;

use crate::testbed::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_rejects_and_takes_again_after_the_workers_have_stored() {
    let name = created(shared(), &Layout { max_bytes: 64 << 10, ..layout() }).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let (mut accepted, mut error) = (0, None);
    let batch = bundles("full", 200, 300);
    for bundle in &batch {
        match put(&intake, vec![bundle.clone()]).await {
            Ok(_) => accepted += 1,
            Err(rejected) => {
                error = Some(rejected);
                break;
            }
        }
        direct.store.put(vec![bundle.clone()]).unwrap();
    }
    let error = error.expect("the stream is full");
    assert!(accepted > 5, "{accepted}");
    assert!(
        matches!(&error, PutError::Unavailable { what, .. } if what.contains("full")),
        "{error}"
    );
    let worker = Running::start(shared(), &name, &store).await;
    same(&store, &direct).await;
    until("acknowledging", || worker.counts.messages() == accepted).await;
    put(&intake, vec![batch[accepted as usize].clone()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_its_limits_an_intake_is_busy() {
    let server = Server::start();
    let name = created(&server, &layout()).await;
    let store = Store::new();
    let stream = connect(&server, &name, Role::Intake).await;
    let limits = [
        IntakeLimits { batches: 3, ..IntakeLimits::default() },
        IntakeLimits { bytes: 8 << 10, ..IntakeLimits::default() },
    ];
    for limits in limits {
        let limits = IntakeLimits { publish_time: Duration::from_secs(1), ..limits };
        let reads = Arc::clone(&store.store);
        let intake = StreamStore::new(stream.clone(), reads, limits);
        server.signal(Signal::STOP);
        let (send, replies) = std::sync::mpsc::channel();
        let mut accepted = 0;
        for bundle in bundles("busy", 20, 600) {
            let send = send.clone();
            let reply = Box::new(move |result| drop(send.send(result)));
            match intake.submit(vec![bundle], reply) {
                Ok(()) => accepted += 1,
                Err(error) => assert_eq!(error, PutError::Busy),
            }
        }
        assert!((1..=3).contains(&accepted), "{accepted}");
        // No acknowledgement arrives, so each of them is rejected in time.
        for _ in 0..accepted {
            let reply =
                tokio::task::block_in_place(|| replies.recv_timeout(Duration::from_secs(5)));
            let error = reply.unwrap().unwrap_err();
            assert!(matches!(error, PutError::Unavailable { .. }), "{error}");
        }
        server.signal(Signal::CONT);
        assert!(put(&intake, bundles("busy", 1, 10)).await.is_ok(), "there is room again");
    }
}

/// The client of NATS queues messages that the server does not read. Their batches are rejected when no acknowledgement
/// arrives in time, but they are still in memory, so they still count. The second server gets them in pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_the_queue_of_the_connection_count_after_they_were_rejected() {
    const LIMIT: usize = 4 << 20;
    /// The limit, and more than the buffers of both sockets have room for.
    const MOST: usize = LIMIT + (60 << 20);
    let batch = bundles("unread", 1, 60_000);
    let length = Batch::from(batch.clone()).encode().unwrap().len();
    assert!(length > 64 << 10 && length < LIMIT / 4, "{length} bytes");
    for server in [Server::start(), Server::with_short_messages()] {
        let name = created(&server, &layout()).await;
        let stream = connect(&server, &name, Role::Intake).await;
        let limits = IntakeLimits {
            bytes: LIMIT,
            publish_time: Duration::from_millis(200),
            ..IntakeLimits::default()
        };
        let store = Store::new();
        let intake = StreamStore::new(stream, Arc::clone(&store.store), limits);
        server.signal(Signal::STOP);
        let mut accepted = 0;
        loop {
            let (send, replies) = std::sync::mpsc::channel();
            let mut round = 0;
            let refused = loop {
                let send = send.clone();
                let reply = Box::new(move |result| drop(send.send(result)));
                match intake.submit(batch.clone(), reply) {
                    Ok(()) => round += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, PutError::Busy);
            if round == 0 {
                break;
            }
            accepted += round;
            assert!(accepted * length < MOST, "{accepted} batches are in memory");
            for _ in 0..round {
                let reply =
                    tokio::task::block_in_place(|| replies.recv_timeout(Duration::from_secs(20)));
                let error = reply.unwrap().unwrap_err();
                assert!(matches!(error, PutError::Unavailable { .. }), "{error}");
            }
        }
        server.signal(Signal::CONT);
        let end = Instant::now() + Duration::from_secs(30);
        while let Err(error) = put(&intake, bundles("read", 1, 10)).await {
            assert!(Instant::now() < end, "there is no room again: {error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
