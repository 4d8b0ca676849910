//! Compares the embedded store with a map in memory: both pass the suite and return the same
//! results for any sequence of operations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_seal::tree;
use moteseal_store::conformance::{self, Made, Mote, assert_reads_back};
use moteseal_store::{
    Bundle, EpochStore, Equivocation, Head, ManifestKey, Options, PutError, ReadError, Receipt,
    RedbStore, Reply, SealKey, StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits,
    UrgentPage, UrgentPlace,
};
use proptest::prelude::*;

/// The model of a store: a map that only grows.
#[derive(Default)]
struct Model {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seals: BTreeMap<SealKey, (Vec<u8>, Vec<u8>)>,
    schemas: BTreeMap<Digest, Vec<u8>>,
    manifests: BTreeMap<ManifestKey, StoredManifest>,
    urgent: Vec<StoredUrgent>,
}

impl State {
    fn all(&self) -> impl Iterator<Item = StoredSeal> + '_ {
        self.seals.iter().map(|(key, (head, body))| {
            StoredSeal::decode(key, &[&head[..], body].concat()).unwrap()
        })
    }
}

impl EpochStore for Model {
    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        let mut receipt = Receipt::default();
        let mut state = self.state.lock().unwrap();
        for bundle in batch {
            let key = bundle.key();
            let stored = state.all().find(|seal| seal.key() == key);
            let is_twin = |other: &&SealKey| {
                (other.device, other.index) == (key.device, key.index) && **other != key
            };
            if state.seals.keys().any(|other| is_twin(&other)) {
                receipt.add_equivocation(key.device, key.index);
            }
            if stored.as_ref().is_some_and(|stored| bundle.kept() & !stored.kept() == 0) {
                receipt.known += 1;
                continue;
            }
            let (head, body) = bundle.rows();
            state.seals.insert(key, (head.to_vec(), body.to_vec()));
            state.schemas.insert(bundle.schema().digest, bundle.schema().bytes.clone());
            receipt.stored += 1;
        }
        drop(state);
        reply(Ok(receipt));
        Ok(())
    }

    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError> {
        let mut receipt = Receipt::default();
        let mut state = self.state.lock().unwrap();
        for manifest in manifests {
            let key = manifest.key();
            if state.manifests.keys().any(|other| other.epoch == key.epoch && *other != key) {
                receipt.add_doubled(key.epoch);
            }
            if state.manifests.contains_key(&key) {
                receipt.known += 1;
                continue;
            }
            state.manifests.insert(key, manifest);
            receipt.stored += 1;
        }
        drop(state);
        reply(Ok(receipt));
        Ok(())
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        let mut receipt = Receipt::default();
        let mut state = self.state.lock().unwrap();
        for event in events {
            let key = event.key();
            let is_twin = |other: &StoredUrgent| {
                let other = other.key();
                (other.device, other.index, other.seq) == (key.device, key.index, key.seq)
                    && other != key
            };
            if state.urgent.iter().any(is_twin) {
                receipt.add_doubled_event(key.device, key.index, key.seq);
            }
            if state.urgent.iter().any(|other| other.key() == key) {
                receipt.known += 1;
                continue;
            }
            state.schemas.insert(event.schema().digest, event.schema().bytes.clone());
            state.urgent.push(event);
            receipt.stored += 1;
        }
        drop(state);
        reply(Ok(receipt));
        Ok(())
    }

    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        let state = self.state.lock().unwrap();
        let known = after.filter(|after| {
            let at = usize::try_from(after.number).unwrap().checked_sub(1);
            let event = at.and_then(|at| state.urgent.get(at));
            event.is_some_and(|event| event.key().digest == after.digest)
        });
        let from = known.map_or(0, |known| usize::try_from(known.number).unwrap());
        let mut page = UrgentPage::default();
        for (at, event) in state.urgent.iter().enumerate().skip(from) {
            let bytes: usize = page.events.iter().map(|(_, bytes)| bytes.len()).sum();
            let is_full = page.events.len() == limits.events || bytes >= limits.bytes;
            if at - from == limits.read || is_full {
                page.has_more = true;
                break;
            }
            let key = event.key();
            if select(key.device, event.epoch()) {
                page.events.push((key, event.bytes().to_vec()));
            }
            page.last = Some(UrgentPlace { number: at as u64 + 1, digest: key.digest });
        }
        Ok(page)
    }

    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        let state = self.state.lock().unwrap();
        let all = state.urgent.iter().map(|event| (event.key(), event.bytes().to_vec()));
        let mut events: Vec<_> =
            all.filter(|(key, _)| (key.device, key.index, key.seq) == place).collect();
        events.sort();
        events.truncate(limit);
        Ok(events)
    }

    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError> {
        let state = self.state.lock().unwrap();
        let of = state.urgent.iter().filter(|event| event.key().device == device);
        Ok(of.map(|event| event.bytes().len() as u64).sum())
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        let state = self.state.lock().unwrap();
        let wanted = |key: &ManifestKey| {
            key.epoch >= since
                && until.is_none_or(|until| key.epoch < until)
                && after.is_none_or(|after| *key > after)
        };
        let found = state.manifests.iter().filter(|(key, _)| wanted(key));
        Ok(found.map(|(_, manifest)| manifest.clone()).take(limit).collect())
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        let state = self.state.lock().unwrap();
        let newest: BTreeMap<DeviceId, Head> = state
            .all()
            .map(|seal| {
                (seal.key().device, Head { key: seal.key(), epoch: seal.seal().statement().epoch })
            })
            .collect();
        Ok(newest.into_values().filter(|head| Some(head.key.device) > after).take(limit).collect())
    }

    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        let state = self.state.lock().unwrap();
        let wanted = |seal: &StoredSeal| seal.key().device == device && seal.key().index >= from;
        Ok(state.all().filter(wanted).take(limit).collect())
    }

    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        let state = self.state.lock().unwrap();
        Ok(state
            .all()
            .filter(|seal| (seal.key().device, seal.key().index) == (device, index))
            .collect())
    }

    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        let all = self.seals(device, SealIndex(0), usize::MAX)?;
        let first = all
            .iter()
            .find(|seal| seal.seal().statement().epoch >= since)
            .map(|seal| seal.key().index);
        first.map_or(Ok(Vec::new()), |first| self.seals(device, first, limit))
    }

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        let state = self.state.lock().unwrap();
        Ok(state.seals[&seal.key()].1[range.start as usize..range.end as usize].to_vec())
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.state.lock().unwrap().schemas.get(digest).cloned())
    }

    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        let mut by_index: BTreeMap<(DeviceId, SealIndex), Vec<Digest>> = BTreeMap::new();
        for key in self.state.lock().unwrap().seals.keys() {
            by_index.entry((key.device, key.index)).or_default().push(key.digest);
        }
        let twice = by_index
            .into_iter()
            .filter(|(place, digests)| digests.len() > 1 && Some(*place) > after);
        Ok(twice
            .take(limit)
            .map(|((device, index), digests)| Equivocation { device, index, digests })
            .collect())
    }
}

#[test]
fn the_model_passes_the_suite() {
    let stores: Mutex<HashMap<String, Arc<Model>>> = Mutex::default();
    conformance::run(&|name| {
        let store: Arc<Model> =
            Arc::clone(stores.lock().unwrap().entry(name.to_owned()).or_default());
        store
    });
}

/// Makes the seals of three devices. The third device forks its chain, skips indices, and has
/// epochs that do not ascend with the indices.
fn pool() -> Vec<Made> {
    let mut made = Vec::new();
    for name in ["steady", "opaque", "forked"] {
        let mut mote = Mote::new(name, name == "opaque");
        let mut fork = mote.position;
        for i in 0..14u64 {
            let scheme = if i % 4 == 3 { Scheme::Tree } else { Scheme::Star };
            let n = if i == 6 { 3_000 } else { i as u32 * 3 };
            made.push(mote.seal_some(scheme, i / 2 * 3, n));
            if i == 6 {
                let whole = made.last().unwrap().clone();
                made.extend([2, 5].map(|round| whole.pruned(round, mote.schema())));
            }
            if i == 4 {
                fork = mote.position;
            }
        }
        if name == "forked" {
            mote.position = fork;
            mote.position.last =
                mote.position.last.map(|(index, epoch)| (SealIndex(index.0 + 2), epoch));
            // Epochs that do not ascend with the indices: 900 and 901, then the epochs of the first
            // branch again.
            made.extend([900, 901, 7, 8].map(|epoch| {
                mote.position.last =
                    mote.position.last.map(|(index, _)| (index, EpochNumber(epoch.min(7))));
                mote.seal_some(Scheme::Star, epoch, 5)
            }));
        }
    }
    made
}

fn keys(seals: &[StoredSeal]) -> Vec<SealKey> {
    seals.iter().map(StoredSeal::key).collect()
}

fn agree(store: &dyn EpochStore, model: &dyn EpochStore, devices: &BTreeSet<DeviceId>) {
    assert_eq!(store.devices(None, 100).unwrap(), model.devices(None, 100).unwrap());
    assert_eq!(store.equivocations(None, 100).unwrap(), model.equivocations(None, 100).unwrap());
    for &device in devices {
        for index in (0..22).step_by(3).map(SealIndex) {
            assert_eq!(
                keys(&store.seals(device, index, 4).unwrap()),
                keys(&model.seals(device, index, 4).unwrap())
            );
            assert_eq!(
                keys(&store.seals_at(device, index).unwrap()),
                keys(&model.seals_at(device, index).unwrap())
            );
        }
        for epoch in [0, 1, 3, 7, 8, 9, 12, 18, 21, 900, 901, 902].map(EpochNumber) {
            let (found, expected) = (
                store.seals_since(device, epoch, 3).unwrap(),
                model.seals_since(device, epoch, 3).unwrap(),
            );
            assert_eq!(keys(&found), keys(&expected), "epoch {epoch}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_order_of_batches_agrees_with_the_model(
        batches in prop::collection::vec(
            prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            1..16,
        ),
        reopen: u16,
    ) {
        thread_local!(static POOL: Vec<Made> = pool());
        POOL.with(|pool| {
            let directory = tempfile::tempdir().unwrap();
            // No syncs: this test covers the logic, and other tests cover crashes.
            let open = || {
                let options = Options { sync: false, ..Options::default() };
                RedbStore::open(&directory.path().join("epochs"), options).unwrap()
            };
            let (mut store, model) = (open(), Model::default());
            let devices = pool.iter().map(|made| made.statement.device).collect();
            let mut put = BTreeSet::new();
            for (number, batch) in batches.iter().enumerate() {
                let batch: Vec<usize> = batch.iter().map(|index| index.index(pool.len())).collect();
                let bundles = || {
                    batch.iter().map(|&index| pool[index].bundle.clone()).collect::<Vec<_>>()
                };
                assert_eq!(store.put(bundles()).unwrap(), model.put(bundles()).unwrap());
                put.extend(batch);
                if reopen >> number & 1 == 1 {
                    drop(store);
                    store = open();
                }
                agree(&store, &model, &devices);
            }
            for &index in &put {
                // If several bundles of one seal were put, the one with the most levels is stored.
                let same = put
                    .iter()
                    .map(|&other| &pool[other])
                    .filter(|other| other.bundle.key() == pool[index].bundle.key());
                let fullest = same.max_by_key(|made| made.bundle.kept().count_ones()).unwrap();
                assert_reads_back(&store, fullest);
            }
        });
    }
}

/// Counts the reads of bodies.
struct Counting<S> {
    store: S,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl<S: EpochStore> EpochStore for Counting<S> {
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

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
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

#[test]
fn a_sample_reads_only_the_ranges_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(&directory.path().join("epochs"), Options::default()).unwrap();
    let store = Counting { store, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) };
    let counted =
        || (store.reads.swap(0, Ordering::Relaxed), store.bytes.swap(0, Ordering::Relaxed));
    let mut mote = Mote::new("big", false);
    let (n, m) = (1_000_000, 100);
    let star = mote.seal_some(Scheme::Star, 1, n);
    let tree_seal = mote.seal_some(Scheme::Tree, 2, n);
    store.put(vec![star.bundle.clone(), tree_seal.bundle.clone()]).unwrap();
    let seals = store.seals(mote.device(), SealIndex(0), 10).unwrap();
    counted();

    // Reading an eighth of a star's events reads one range with an eighth of the bytes.
    let eighth = store.star_blocks(&seals[0], !0b111).unwrap();
    assert_eq!(counted(), (1, eighth.len() as u64));
    assert!(eighth == star.blocks(!0b111) && eighth.len() < 4 * n as usize / 7);

    // Reading a hundred events of a tree reads one chunk for each event, at most 16 tiles of the
    // first level of hashes, and one tile of the second.
    let selected: Vec<Sequence> = (0..m)
        .map(|i| Sequence((i * 7_919_317) % u64::from(n)))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let part = store.tree_part(&seals[1], &selected).unwrap();
    let (reads, bytes) = counted();
    assert!(reads <= m + 16 + 1 + 1, "{reads} reads for {m} records");
    assert!(bytes <= m * 256 * 4 + 17 * 256 * 32 + 1024, "{bytes} bytes for {m} records");
    let leaves = selected.iter().map(|&seq| (seq, tree::leaf(&tree_seal.records[seq.0 as usize])));
    assert_eq!(
        tree::multiproof_root(u64::from(n), leaves, &part.siblings).unwrap(),
        *seals[1].seal().root()
    );
}
