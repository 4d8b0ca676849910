//! Batches that are longer than a message.

use std::sync::Arc;
use std::time::Duration;

use moteseal_stream::WorkerLimits;

use crate::testbed::*;

/// Returns the number of pieces in the stream.
async fn pieces(server: &Server, name: &str) -> u64 {
    let client = async_nats::connect(&server.url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream(format!("{name}_pieces")).await.unwrap();
    stream.get_info().await.unwrap().state.messages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_in_pieces_arrives_and_its_pieces_are_removed() {
    let server = Server::with_short_messages();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(&server, &name, &store).await;
    let batch = bundles("big", 3, 20_000);
    direct.store.put(batch.clone()).unwrap();
    put(&intake, batch.clone()).await.unwrap();
    // A repetition has pieces of its own. It must not depend on those of the first.
    put(&intake, batch).await.unwrap();
    assert!(pieces(&server, &name).await >= 6);
    let worker = Running::start(&server, &name, &store).await;
    same(&store, &direct).await;
    until("both messages", || worker.counts.messages() == 2).await;
    let counts = worker.stop().await;
    assert_eq!((counts.dead(), counts.stored(), counts.known()), (0, 3, 3));
    assert_eq!(pieces(&server, &name).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_without_a_batch_are_removed_and_others_are_kept() {
    let server = Server::with_short_messages();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(&server, &name, &store).await;
    let client = async_nats::connect(&server.url).await.unwrap();
    for number in 0..4 {
        // An intake died after these.
        let subject = format!("{name}.pieces.{:032x}.{number}", 7);
        client.publish(subject, vec![0; 1000].into()).await.unwrap();
    }
    client.flush().await.unwrap();
    let batch = bundles("kept", 1, 20_000);
    direct.store.put(batch.clone()).unwrap();
    put(&intake, batch).await.unwrap();
    assert!(pieces(&server, &name).await > 4);
    let limits = WorkerLimits { orphan_age: Duration::from_millis(400), ..worker_limits() };
    let worker = Running::with(&server, &name, Arc::clone(&store.store), limits).await;
    same(&store, &direct).await;
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while pieces(&server, &name).await > 0 {
        assert!(std::time::Instant::now() < end, "the pieces are not removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(worker.stop().await.dead(), 0);
}
