//! Messages that can never be stored: they are kept with the reason, listed and replayed.

use std::time::Duration;

use moteseal_core::digest::Digest;
use moteseal_store::Batch;
use moteseal_stream::{DeadLetters, Role, Settings, Stream};
use rustix::process::Signal;

use crate::testbed::*;

/// A payload, its headers, and the error that it causes.
type Case<'c> = (&'c [u8], Vec<(&'c str, String)>, &'c str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_becomes_a_dead_letter_and_does_not_hold_up_other_messages() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let client = async_nats::connect(&shared().url).await.unwrap();
    let good = Batch::from(bundles("garbage", 1, 5)).encode().unwrap();
    let digest = |bytes: &[u8]| Digest::of(&[bytes]).to_string();
    let id = "0123456789abcdef0123456789abcdef";
    let cases: [Case<'_>; 5] = [
        (b"garbage", vec![], "NotAMessage"),
        (&good, vec![("Moteseal-Digest", digest(b"another"))], "Altered"),
        (b"\x01garbage", vec![("Moteseal-Digest", digest(b"\x01garbage"))], "NotABatch"),
        (
            b"",
            vec![
                ("Moteseal-Digest", digest(&good)),
                ("Moteseal-Pieces", format!("{id} 2")),
                ("Moteseal-Length", good.len().to_string()),
            ],
            "PieceMissing",
        ),
        (
            b"",
            vec![
                ("Moteseal-Digest", digest(&good)),
                ("Moteseal-Pieces", format!("{id} 2")),
                ("Moteseal-Length", (2u64 << 30).to_string()),
            ],
            "TooLong",
        ),
    ];
    for (payload, headers, _) in &cases {
        let mut map = async_nats::HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.as_str());
        }
        let subject = format!("{name}.batches");
        client.publish_with_headers(subject, map, payload.to_vec().into()).await.unwrap();
    }
    client.flush().await.unwrap();
    let batch = bundles("after garbage", 3, 5);
    direct.store.put(batch.clone()).unwrap();
    put(&intake, batch).await.unwrap();

    let worker = Running::start(shared(), &name, &store).await;
    same(&store, &direct).await;
    until("burying", || worker.counts.dead() == 5).await;
    let dead = DeadLetters::open(connect(shared(), &name, Role::Worker).await).await.unwrap();
    assert_eq!(dead.count().await.unwrap(), 5);
    let letters = dead.list(0, 100).await.unwrap();
    let mut found: Vec<&str> = letters.iter().map(|letter| letter.error.as_str()).collect();
    let mut expected = cases.each_ref().map(|(.., error)| *error);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    // The batch of the other connection may have any place among them.
    assert!(letters.iter().all(|letter| (1..=6).contains(&letter.position)));
    assert_eq!(dead.list(letters[1].number, 2).await.unwrap(), letters[2..4]);

    // They still cannot be stored, so each becomes a new dead letter.
    assert_eq!(dead.replay(Some(&[letters[0].number])).await.unwrap(), 1);
    until("burying it again", || worker.counts.dead() == 6).await;
    assert_eq!(dead.count().await.unwrap(), 5);
    // Numbers that are not there, or not any more, are passed over.
    let numbers = [0, letters[0].number, letters[1].number, letters[1].number, u64::MAX];
    let missing = [0, letters[0].number, u64::MAX];
    assert_eq!(dead.missing(&numbers).await.unwrap(), missing);
    assert_eq!(dead.discard(&numbers).await.unwrap(), 1);
    assert!(
        dead.list(0, 100).await.unwrap().iter().all(|letter| letter.number > letters[1].number)
    );
    assert_eq!(dead.count().await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_keeps_headers_that_only_later_versions_know() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let client = async_nats::connect(&shared().url).await.unwrap();
    let mut headers = async_nats::HeaderMap::new();
    for (header, value) in [("Moteseal-Later", "2"), ("Moteseal-Error", "none"), ("Other", "1")] {
        headers.insert(header, value);
    }
    let subject = format!("{name}.batches");
    client.publish_with_headers(subject, headers, "later".into()).await.unwrap();
    client.flush().await.unwrap();
    let worker = Running::start(shared(), &name, &store).await;
    until("burying", || worker.counts.dead() == 1).await;
    worker.stop().await;
    let dead = DeadLetters::open(connect(shared(), &name, Role::Worker).await).await.unwrap();
    assert_eq!(dead.list(0, 9).await.unwrap()[0].error, "NotAMessage");
    // What the next worker gets.
    assert_eq!(dead.replay(None).await.unwrap(), 1);
    let stream = async_nats::jetstream::new(client).get_stream(&name).await.unwrap();
    let again = stream.get_last_raw_message_by_subject(&format!("{name}.batches")).await.unwrap();
    let header = |name: &str| again.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(header("Moteseal-Later").as_deref(), Some("2"));
    assert_eq!((header("Moteseal-Error"), header("Other")), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_can_be_stored_now_is_stored_by_a_replay() {
    let server = Server::with_short_messages();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    // A worker with a low limit rejects the batch for good; one with a higher limit stores it.
    let low = moteseal_stream::WorkerLimits { batch_bytes: 100 << 10, ..worker_limits() };
    let intake = intake(&server, &name, &store).await;
    let worker = Running::with(&server, &name, std::sync::Arc::clone(&store.store), low).await;
    let batch = bundles("replayed", 2, 20_000);
    direct.store.put(batch.clone()).unwrap();
    put(&intake, batch).await.unwrap();
    until("burying", || worker.counts.dead() == 1).await;
    worker.stop().await;
    let dead = DeadLetters::open(connect(&server, &name, Role::Worker).await).await.unwrap();
    assert_eq!(dead.list(0, 9).await.unwrap()[0].error, "TooLong");
    let worker = Running::start(&server, &name, &store).await;
    assert_eq!(dead.replay(None).await.unwrap(), 1);
    same(&store, &direct).await;
    assert_eq!(dead.count().await.unwrap(), 0);
    assert_eq!(worker.stop().await.dead(), 0);
}

/// While servers choose a leader, they do not answer for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_opened_when_the_servers_answer_again() {
    let server = Server::start();
    let name = created(&server, &layout()).await;
    let request_time = Duration::from_millis(200);
    let short = Settings { request_time, ..settings(&server, &name, Role::Worker) };
    let stream = Stream::connect(short).await.unwrap();
    server.signal(Signal::STOP);
    let opening = tokio::spawn(DeadLetters::open(stream));
    // Longer than a request may take.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!opening.is_finished(), "it waits for the server");
    server.signal(Signal::CONT);
    assert_eq!(opening.await.unwrap().unwrap().count().await.unwrap(), 0);
}
