//! Summaries of a store to which other processes write.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_api::summary::Summary;
use moteseal_cloud::{Cloud, Config};
use moteseal_core::Digest;
use moteseal_core::record::Scheme::Star;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_net::replica::{DeviceWalk, Replica};
use moteseal_store::{
    Bundle, EpochStore, Equivocation, Head, ManifestKey, PutError, ReadError, RedbStore, Reply,
    StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace,
};
use tokio::sync::oneshot;

use crate::follow::client;
use crate::testbed::{Mote, Running, group, open_store};

/// A store that may state that it is on other machines, and that other processes write to it.
pub(crate) struct Gated {
    pub(crate) store: Arc<RedbStore>,
    /// While it is locked, the store neither lists devices nor acknowledges urgent events.
    pub(crate) gate: Arc<Mutex<()>>,
    /// While it is locked, the reads that uploads need wait.
    pub(crate) reads: Arc<Mutex<()>>,
    /// Whether these reads fail.
    pub(crate) is_away: Arc<AtomicBool>,
    /// How often devices were listed.
    pub(crate) listings: Arc<AtomicUsize>,
    pub(crate) is_shared: bool,
}

impl Gated {
    pub(crate) fn new(store: &Arc<RedbStore>, is_shared: bool) -> Self {
        let store = Arc::clone(store);
        let (gate, reads, is_away) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, gate, reads, is_away, listings: Arc::default(), is_shared }
    }

    /// Waits like a read of an upload, and fails if the store is away.
    fn pass(&self) -> Result<(), ReadError> {
        drop(self.reads.lock().unwrap());
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(ReadError::Unavailable { what: "it is away".to_owned() }),
            false => Ok(()),
        }
    }
}

impl EpochStore for Gated {
    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn waits(&self) -> bool {
        self.is_shared
    }

    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        self.store.submit(batch, reply)
    }

    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError> {
        self.store.submit_manifests(manifests, reply)
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        let gate = Arc::clone(&self.gate);
        let reply: Reply = Box::new(move |result| {
            drop(gate.lock().unwrap());
            reply(result);
        });
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
        self.pass()?;
        self.store.urgent_bytes(device)
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        self.pass()?;
        self.store.manifests(since, until, after, limit)
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        let _gate = self.gate.lock().unwrap();
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
        self.pass()?;
        self.store.seals_at(device, index)
    }

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
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

/// A closed gate. A thread holds it, because a task must not hold it while it waits.
pub(crate) struct Closed {
    open: mpsc::Sender<()>,
    holder: thread::JoinHandle<()>,
}

impl Closed {
    pub(crate) async fn close(gate: &Arc<Mutex<()>>) -> Self {
        let gate = Arc::clone(gate);
        let (open, opened) = mpsc::channel();
        let (closed, is_closed) = oneshot::channel();
        let holder = thread::spawn(move || {
            let _gate = gate.lock().unwrap();
            closed.send(()).unwrap();
            opened.recv().unwrap();
        });
        is_closed.await.unwrap();
        Self { open, holder }
    }

    pub(crate) fn open(self) {
        self.open.send(()).unwrap();
        self.holder.join().unwrap();
    }
}

/// Two clouds with one store, and the gate of the second.
struct Bed {
    worker: Running,
    serve: Running,
    gate: Arc<Mutex<()>>,
    mote: Mote,
    _directory: tempfile::TempDir,
}

impl Bed {
    async fn new() -> Self {
        let (roster, mut motes) = group(&["a"]);
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path());
        let shared = Gated::new(&store, true);
        let gate = Arc::clone(&shared.gate);
        let worker = Cloud::bind(Config::new(roster.clone()), Arc::clone(&store) as _).await;
        let serve = Cloud::bind(Config::new(roster), Arc::new(shared)).await.unwrap();
        Self {
            worker: Running::of(worker.unwrap(), Arc::clone(&store)),
            serve: Running::of(serve, store),
            gate,
            mote: motes.remove(0),
            _directory: directory,
        }
    }

    /// Stores a seal through the other cloud.
    async fn put(&mut self, epoch: u64) {
        let bundle = self.mote.seal(Star, epoch, true, &[1]);
        assert_eq!(self.worker.put(bundle).await.status(), 200);
    }

    /// Returns the number of seals in the summary, which must be served at once.
    async fn seals(&self, path: &str) -> u64 {
        let response = self.serve.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json::<Summary>().await.unwrap().seals.count
    }

    async fn stop(self) {
        self.worker.stop().await;
        self.serve.stop().await;
    }
}

fn fresh(token: &str) -> String {
    paths::fresh(paths::SUMMARY, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_summary_has_what_other_processes_stored() {
    let mut bed = Bed::new().await;
    bed.put(1).await;
    assert_eq!(bed.seals(paths::SUMMARY).await, 1);
    bed.put(2).await;
    assert_eq!(bed.seals(paths::SUMMARY).await, 1, "the previous fingerprints");
    assert_eq!(bed.seals(&fresh("a")).await, 2);
    bed.put(3).await;
    assert_eq!(bed.seals(&fresh("a")).await, 2, "the token was used before the seal was stored");
    // An export demands fresh summaries and pages.
    let replica = Replica::new(client(&bed.serve.url)).fresh();
    let devices = DeviceWalk::default().next(&replica).await.unwrap().unwrap();
    assert_eq!(devices.iter().map(|device| device.seals.count).sum::<u64>(), 3);
    assert_eq!(replica.summary(None).await.unwrap().seals.count, 3);
    for token in ["", "a-b", "%20", &"a".repeat(65)] {
        assert_eq!(bed.serve.get(&fresh(token)).await.status(), 400, "{token:?}");
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_token_do_not_wait_while_the_store_is_read_again() {
    let mut bed = Bed::new().await;
    bed.put(1).await;
    assert_eq!(bed.seals(paths::SUMMARY).await, 1);
    bed.put(2).await;
    let closed = Closed::close(&bed.gate).await;
    let response = bed.serve.get(&fresh("a")).await;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    // The reading is still in progress.
    let start = Instant::now();
    assert_eq!(bed.seals(paths::SUMMARY).await, 1);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    closed.open();
    assert_eq!(bed.seals(&fresh("a")).await, 2);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_more_blocks_than_the_limit_has_no_summaries_until_the_limit_is_raised() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    for (limit, status) in [(1, 500), (2, 200)] {
        let mut config = Config::new(roster.clone());
        config.limits.set(&format!("summary_blocks={limit}")).unwrap();
        let cloud = Cloud::bind(config, Arc::clone(&store) as _).await.unwrap();
        let cloud = Running::of(cloud, Arc::clone(&store));
        for mote in &mut motes {
            assert_eq!(cloud.put(mote.seal(Star, limit, true, &[1])).await.status(), 200);
        }
        for _ in 0..2 {
            let response = cloud.get(paths::SUMMARY).await;
            assert_eq!(response.status(), status);
            assert_eq!(response.text().await.unwrap().contains("summary_blocks"), status == 500);
        }
        cloud.stop().await;
    }
}
