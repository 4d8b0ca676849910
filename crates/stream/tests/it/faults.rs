//! Whatever ends or stops in the middle: what was acknowledged is stored, once and unaltered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_store::{
    Bundle, EpochStore, Equivocation, Head, ManifestKey, PutError, ReadError, Reply,
    StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace,
};
use moteseal_stream::{DeadLetters, Layout, Reached, Role, WorkerLimits};
use rustix::process::Signal;

use crate::testbed::*;

/// Puts bundles until each is acknowledged, as a sender does.
async fn deliver(intake: &moteseal_stream::StreamStore, bundles: &[Bundle]) -> u64 {
    let mut rejected = 0;
    for bundle in bundles {
        while let Err(error) = put(intake, vec![bundle.clone()]).await {
            assert!(matches!(error, PutError::Busy | PutError::Unavailable { .. }), "{error}");
            rejected += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    rejected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_loses_nothing() {
    let mut server = Server::start();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = Arc::new(intake(&server, &name, &store).await);
    let worker = Running::start(&server, &name, &store).await;
    let batch = bundles("killed server", 120, 10);
    direct.store.put(batch.clone()).unwrap();
    let task = tokio::spawn({
        let intake = Arc::clone(&intake);
        async move { deliver(&intake, &batch).await }
    });
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.kill();
        server.restart();
    }
    task.await.unwrap();
    same(&store, &direct).await;
    // The worker is connected to the last server and goes on.
    let more = bundles("after the kill", 3, 10);
    direct.store.put(more.clone()).unwrap();
    deliver(&intake, &more).await;
    same(&store, &direct).await;
    let counts = worker.stop().await;
    assert_eq!((counts.stored(), counts.dead()), (123, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_paused_loses_nothing() {
    let server = Server::start();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = Arc::new(intake(&server, &name, &store).await);
    let worker = Running::start(&server, &name, &store).await;
    let batch = bundles("paused server", 60, 10);
    direct.store.put(batch.clone()).unwrap();
    let task = tokio::spawn(async move { deliver(&intake, &batch).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.signal(Signal::STOP);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    server.signal(Signal::CONT);
    task.await.unwrap();
    same(&store, &direct).await;
    assert_eq!(worker.stop().await.dead(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_between_the_write_and_its_acknowledgement_loses_and_doubles_nothing() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let silent = Arc::new(Altered::new(&store, Fault::NeverReplies));
    let first = Running::with(shared(), &name, Arc::clone(&silent) as _, worker_limits()).await;
    let batch = bundles("dying worker", 20, 10);
    direct.store.put(batch.clone()).unwrap();
    deliver(&intake, &batch).await;
    until("the first write", || silent.writes.load(Ordering::Relaxed) > 0).await;
    until("its commit", || !content(&*store.store).is_empty()).await;
    first.kill();
    let second = Running::start(shared(), &name, &store).await;
    same(&store, &direct).await;
    until("acknowledging", || second.counts.messages() == 20).await;
    let counts = second.stop().await;
    assert!(counts.known() > 0, "messages of the first worker are delivered again");
    assert_eq!(content(&*store.store).len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_busy_or_fails_for_a_while_gets_everything_later() {
    for fault in [Fault::Busy, Fault::Fails] {
        let name = created(shared(), &layout()).await;
        let (store, direct) = (Store::new(), Store::new());
        let intake = intake(shared(), &name, &store).await;
        let altered = Arc::new(Altered::new(&store, fault));
        let worker =
            Running::with(shared(), &name, Arc::clone(&altered) as _, worker_limits()).await;
        let batch = bundles("busy store", 5, 10);
        direct.store.put(batch.clone()).unwrap();
        deliver(&intake, &batch).await;
        until("returning the messages", || worker.counts.returned() >= 5).await;
        assert!(worker.counts.is_stuck());
        let tried = altered.writes.load(Ordering::Relaxed);
        assert!(tried < 100, "{tried} writes in a second or two");
        altered.heal();
        same(&store, &direct).await;
        until("acknowledging", || worker.counts.messages() == 5).await;
        let counts = worker.stop().await;
        assert!(!counts.is_stuck() && counts.dead() == 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_states_what_waits_in_the_stream_and_the_dead_letters_while_the_servers_answer() {
    let mut server = Server::start();
    let name = created(&server, &layout()).await;
    let store = Store::new();
    let intake = intake(&server, &name, &store).await;
    deliver(&intake, &bundles("waiting", 3, 10)).await;
    let client = async_nats::connect(&server.url).await.unwrap();
    client.publish(format!("{name}.batches"), "garbage".into()).await.unwrap();
    client.flush().await.unwrap();
    let busy = Arc::new(Altered::new(&store, Fault::Busy));
    let worker = Running::with(&server, &name, Arc::clone(&busy) as _, worker_limits()).await;
    let states = || (worker.counts.waiting(), worker.counts.dead_letters());
    until("the state of the stream", || states() == (Some(3), Some(1))).await;
    busy.heal();
    until("storing", || states() == (Some(0), Some(1))).await;
    server.kill();
    until("noticing that the server is gone", || states() == (None, None)).await;
    server.restart();
    until("the state after the restart", || states() == (Some(0), Some(1))).await;
}

/// A replay publishes a dead letter after the messages that must be stored before pieces are removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pieces_of_a_replayed_letter_are_kept_until_it_is_stored() {
    let server = Server::with_short_messages();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(&server, &name, &store).await;
    let batch = bundles("replayed late", 2, 20_000);
    direct.store.put(batch.clone()).unwrap();
    put(&intake, batch).await.unwrap();
    let low = WorkerLimits { batch_bytes: 100 << 10, ..worker_limits() };
    let old = Running::with(&server, &name, Arc::clone(&store.store), low).await;
    until("burying", || old.counts.dead() == 1).await;
    old.stop().await;

    let busy = Arc::new(Altered::new(&store, Fault::Busy));
    let age = Duration::from_millis(200);
    let limits = WorkerLimits { orphan_age: age, ..worker_limits() };
    let worker = Running::with(&server, &name, Arc::clone(&busy) as _, limits).await;
    tokio::time::sleep(age * 5).await;
    let dead = DeadLetters::open(connect(&server, &name, Role::Worker).await).await.unwrap();
    assert_eq!(dead.replay(None).await.unwrap(), 1);
    until("returning the letter", || worker.counts.returned() > 0).await;
    tokio::time::sleep(age * 5).await;
    busy.heal();
    same(&store, &direct).await;
    assert_eq!(worker.stop().await.dead(), 0);
}

/// While a write takes long, the stream delivers the messages again that wait for it to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_pieces_that_is_delivered_twice_is_no_dead_letter() {
    let server = Server::with_short_messages();
    let name = created(&server, &Layout { ack_wait: Duration::from_millis(500), ..layout() }).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(&server, &name, &store).await;
    let busy = Arc::new(Altered::new(&store, Fault::Busy));
    let patience = Duration::from_secs(20);
    let limits = WorkerLimits { messages: 8, writes: 1, patience, ..worker_limits() };
    let worker = Running::with(&server, &name, Arc::clone(&busy) as _, limits).await;
    let [first, second] = [bundles("first", 1, 5), bundles("second", 1, 20_000)];
    direct.store.put([&first[..], &second].concat()).unwrap();
    put(&intake, first).await.unwrap();
    until("the first write", || busy.writes.load(Ordering::Relaxed) > 0).await;
    put(&intake, second).await.unwrap();
    let client = async_nats::connect(&server.url).await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream(&name).await.unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while stream.consumer_info("workers").await.unwrap().num_redelivered == 0 {
        assert!(std::time::Instant::now() < end, "there is no second delivery");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    busy.heal();
    same(&store, &direct).await;
    until("acknowledging", || worker.counts.messages() >= 2).await;
    // The further deliveries have no pieces any more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(worker.stop().await.dead(), 0);
}

/// Each reader waits for its own time, and not for the requests of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_silent_server_wait_no_longer_than_they_ask() {
    let server = Server::start();
    let name = created(&server, &layout()).await;
    let reached = Reached::new(connect(&server, &name, Role::Serve).await);
    server.signal(Signal::STOP);
    let start = std::time::Instant::now();
    let waits = (0..10).map(|_| reached.wait(1, Duration::from_secs(1)));
    let results = futures_util::future::join_all(waits).await;
    let took = start.elapsed();
    server.signal(Signal::CONT);
    assert!(results.iter().all(|result| !matches!(result, Ok(true))), "{results:?}");
    // One after the other, each would wait for a request of 2 s.
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A message that the store rejects must not hold up the readers of later ones, nor lose its pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_the_store_rejects_while_it_stores_others_becomes_a_dead_letter() {
    let server = Server::with_short_messages();
    let name = created(&server, &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(&server, &name, &store).await;
    let (rejected, others) = (bundles("rejected", 1, 20_000), bundles("others", 100, 5));
    let altered = Arc::new(Altered::new(&store, Fault::FailsOf(rejected[0].key().device)));
    let age = Duration::from_millis(200);
    let rejection_time = Duration::from_secs(3);
    let limits = WorkerLimits { orphan_age: age, rejection_time, ..worker_limits() };
    let worker = Running::with(&server, &name, Arc::clone(&altered) as _, limits).await;
    direct.store.put(rejected.clone()).unwrap();
    put(&intake, rejected).await.unwrap();
    let (mut later, mut next) = (0, others.into_iter());
    while worker.counts.dead() == 0 {
        let other = next.next().expect("the message is not given up");
        direct.store.put(vec![other.clone()]).unwrap();
        later = put(&intake, vec![other]).await.unwrap().position.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(worker.counts.returned() >= 2, "it is given up too soon");
    let reached = Reached::new(connect(&server, &name, Role::Serve).await);
    assert!(reached.wait(later, Duration::from_secs(10)).await.unwrap());
    let dead = DeadLetters::open(connect(&server, &name, Role::Worker).await).await.unwrap();
    let letters = dead.list(0, 9).await.unwrap();
    let found: Vec<_> = letters.iter().map(|one| (one.error.as_str(), one.position)).collect();
    assert_eq!(found, [("StoreFailed", 1)]);
    tokio::time::sleep(age * 5).await;
    // Nothing of it is lost.
    altered.heal();
    assert_eq!(dead.replay(None).await.unwrap(), 1);
    same(&store, &direct).await;
    assert_eq!(worker.stop().await.dead(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_rejects_everything_makes_no_dead_letter() {
    let name = created(shared(), &layout()).await;
    let (store, direct) = (Store::new(), Store::new());
    let intake = intake(shared(), &name, &store).await;
    let altered = Arc::new(Altered::new(&store, Fault::Fails));
    let limits = WorkerLimits { rejection_time: Duration::ZERO, ..worker_limits() };
    let worker = Running::with(shared(), &name, altered, limits).await;
    let batch = bundles("all rejected", 4, 10);
    direct.store.put(batch.clone()).unwrap();
    deliver(&intake, &batch).await;
    until("returning the messages", || worker.counts.returned() >= 12).await;
    assert_eq!(worker.stop().await.dead(), 0);
    let _healthy = Running::start(shared(), &name, &store).await;
    same(&store, &direct).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    NeverReplies,
    Busy,
    Fails,
    /// Rejects writes with bundles of this device.
    FailsOf(DeviceId),
}

/// A store with a fault in its writes.
struct Altered {
    store: Arc<dyn EpochStore>,
    fault: std::sync::Mutex<Option<Fault>>,
    writes: AtomicU64,
}

impl Altered {
    fn new(store: &Store, fault: Fault) -> Self {
        let fault = std::sync::Mutex::new(Some(fault));
        Self { store: Arc::clone(&store.store), fault, writes: AtomicU64::new(0) }
    }

    fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }
}

impl EpochStore for Altered {
    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let fault = *self.fault.lock().unwrap();
        let is_rejected = |device| batch.iter().any(|bundle| bundle.key().device == device);
        match fault {
            Some(Fault::FailsOf(device)) if !is_rejected(device) => self.store.submit(batch, reply),
            None => self.store.submit(batch, reply),
            Some(Fault::Busy) => Err(PutError::Busy),
            Some(Fault::Fails | Fault::FailsOf(_)) => {
                Err(PutError::Failed { store: "epochs".to_owned(), what: "a test".to_owned() })
            }
            Some(Fault::NeverReplies) => {
                self.store.submit(batch, Box::new(move |_| std::mem::forget(reply)))
            }
        }
    }

    fn submit_manifests(&self, batch: Vec<StoredManifest>, reply: Reply) -> Result<(), PutError> {
        self.store.submit_manifests(batch, reply)
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        self.store.submit_urgent(events, reply)
    }

    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        self.store.urgent(after, limits, select)
    }

    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        self.store.urgent_at(place, limit)
    }

    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError> {
        self.store.urgent_bytes(device)
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        self.store.manifests(since, until, after, limit)
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        self.store.devices(after, limit)
    }

    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.store.seals(device, from, limit)
    }

    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.store.seals_since(device, since, limit)
    }

    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        self.store.seals_at(device, index)
    }

    fn body(&self, seal: &StoredSeal, range: std::ops::Range<u64>) -> Result<Vec<u8>, ReadError> {
        self.store.body(seal, range)
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.store.schema(digest)
    }

    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        self.store.equivocations(after, limit)
    }
}
