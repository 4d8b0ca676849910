//! Fingerprints of what the store has (`spec/summaries.md`), kept in memory.
//!
//! The first request for a summary reads the keys of the whole store once. From then on, an upload
//! marks the blocks that it touches, and the next request reads only what was added to them. A block
//! is marked after the store has replied, whatever the reply is, and even if the client of the upload
//! has gone. If other processes write to the store, all of it is read again from time to time, and if
//! a request demands it. Meanwhile other requests are served from the previous fingerprints.
//!
//! The memory is bounded: 48 bytes for each block of up to 1,024 seals, twice that while the store is
//! read again, and a maximum number of blocks. The changes that are kept for followers are bounded, too.

mod blocks;
mod changes;
mod demands;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moteseal_api::summary::{
    BLOCK, BlockPage, BlockSummary, Change, DevicePage, DeviceSummary, Fingerprint, PAGE,
    SealsSummary, block_of, digest_of_devices,
};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_store::{
    Bundle, EpochStore, PutError, ReadError, Receipt, StoredManifest, UrgentLimits, UrgentPlace,
};
use tokio::sync::watch;

use blocks::Blocks;
pub(crate) use changes::Changes;
use demands::Demands;

/// The number of seals that are read at a time.
const READ: usize = 1024;
/// The number of manifests that are read at a time. A manifest lists every seal of its epoch.
const READ_MANIFESTS: usize = 16;
/// What is read of the urgent events at a time.
const READ_EVENTS: UrgentLimits = UrgentLimits { read: 4096, events: 4096, bytes: 4 << 20 };
/// The shortest pause between two readings of a whole store to which other processes write.
const PAUSE: Duration = Duration::from_secs(300);
/// The pause is at least this many times as long as the last reading took.
const PAUSE_FACTOR: u32 = 10;

/// The fingerprints of a store.
#[derive(Debug)]
pub(crate) struct Summaries {
    /// The maximum number of blocks that are kept. A store with more serves no summaries.
    most_blocks: usize,
    state: Mutex<State>,
    /// Held while the fingerprints are brought up to date or replaced.
    updating: Mutex<()>,
    /// How the last reading of the whole store ended.
    ended: watch::Sender<Option<Ended>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a summary was ever requested. Before that, nothing is recorded.
    is_used: bool,
    /// The last complete reading of the whole store.
    whole: Option<Whole>,
    /// What was marked since the reading that is in progress began.
    during: Option<Stale>,
    /// Whether `kept` was taken out in order to update it.
    is_taken: bool,
    /// Whether the store has more blocks than are kept. It is not read again.
    is_too_large: bool,
    kept: Kept,
    stale: Stale,
    changes: Changes,
    demands: Demands,
}

impl State {
    fn mark(&mut self, mark: impl Fn(&mut Stale)) {
        mark(&mut self.stale);
        self.during.iter_mut().for_each(mark);
    }
}

/// A complete reading of the whole store.
#[derive(Clone, Copy, Debug)]
struct Whole {
    began: Instant,
    /// When the next one begins, if other processes write to the store.
    due: Instant,
}

/// The end of a reading of the whole store.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) began: Instant,
    pub(crate) result: Result<(), NoSummary>,
}

/// What a request for fingerprints has to do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Whether the fingerprints can be used. If not, the request waits for the end of a reading.
    pub(crate) is_ready: bool,
    /// A reading of the whole store that the caller must run.
    pub(crate) reading: Option<Reading>,
    /// The reading for which the request waits begins at this time or later.
    pub(crate) since: Option<Instant>,
}

/// What was added, or may have been added, since the fingerprints were read.
#[derive(Debug, Default)]
struct Stale {
    /// The lowest index that was added to a block of a device.
    seals: BTreeMap<(DeviceId, u64), u64>,
    /// The lowest epoch that was added to a block of manifests.
    manifests: BTreeMap<u64, u64>,
    events: bool,
}

impl Stale {
    fn add_seal(&mut self, device: DeviceId, index: u64) {
        let first = self.seals.entry((device, block_of(index))).or_insert(index);
        *first = index.min(*first);
    }

    fn add_manifest(&mut self, epoch: u64) {
        let first = self.manifests.entry(block_of(epoch)).or_insert(epoch);
        *first = epoch.min(*first);
    }

    fn add(&mut self, other: &Self) {
        other.seals.iter().for_each(|((device, _), index)| self.add_seal(*device, *index));
        other.manifests.values().for_each(|epoch| self.add_manifest(*epoch));
        self.events |= other.events;
    }
}

/// The fingerprints of what has been read.
#[derive(Debug, Default)]
struct Kept {
    devices: BTreeMap<DeviceId, Blocks>,
    manifests: Blocks,
    events: Fingerprint,
    last_event: Option<UrgentPlace>,
    /// The summary of all devices, until it changes.
    seals: Option<SealsSummary>,
}

impl Kept {
    fn blocks(&self) -> usize {
        self.manifests.len() + self.devices.values().map(Blocks::len).sum::<usize>()
    }
}

/// Why there is no summary.
#[derive(Clone, Debug)]
pub(crate) enum NoSummary {
    /// The store cannot be read.
    Read(ReadError),
    /// Reading the store ended unexpectedly.
    Interrupted,
    /// The store has too many blocks.
    TooManyBlocks,
}

impl From<ReadError> for NoSummary {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// The three summaries of a store at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) seals: SealsSummary,
    pub(crate) manifests: Fingerprint,
    pub(crate) events: Fingerprint,
}

impl Summaries {
    pub(crate) fn new(most_blocks: usize) -> Self {
        let (state, updating, ended) = Default::default();
        Self { most_blocks, state, updating, ended }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether a request can use the fingerprints, and whether the whole store is read. At most
    /// one reading is in progress. `is_shared` states whether others write to the store, too. If the
    /// request has a token `fresh`, it needs the fingerprints of a reading that began after the first
    /// request with this token.
    pub(crate) fn plan(
        self: &Arc<Self>,
        is_shared: bool,
        fresh: Option<&str>,
        now: Instant,
    ) -> Result<Plan, NoSummary> {
        let mut state = self.lock();
        if state.is_too_large {
            return Err(NoSummary::TooManyBlocks);
        }
        // From here on, uploads are recorded, so that none is missed while the store is read.
        state.is_used = true;
        let since = fresh.filter(|_| is_shared).map(|token| state.demands.time_of(token, now));
        let is_ready =
            state.whole.is_some_and(|whole| since.is_none_or(|since| whole.began >= since));
        let is_due = is_shared && state.whole.is_some_and(|whole| now >= whole.due);
        let reading = ((!is_ready || is_due) && state.during.is_none()).then(|| {
            state.during = Some(Stale::default());
            Reading { of: Arc::clone(self), began: now, is_running: true, has_ended: false }
        });
        Ok(Plan { is_ready, reading, since })
    }

    /// Returns a receiver of the ends of readings.
    pub(crate) fn ends(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.subscribe()
    }

    /// Brings the fingerprints up to date. Blocks while the store is read. The cost is that of
    /// reading what this process added since the last call.
    pub(crate) fn refresh(&self, store: &dyn EpochStore) -> Result<(), NoSummary> {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = {
            let mut state = self.lock();
            if state.is_too_large {
                return Err(NoSummary::TooManyBlocks);
            }
            if state.is_taken {
                // An update panicked, so the whole store has to be read again.
                (state.is_taken, state.whole) = (false, None);
            }
            if state.whole.is_none() {
                return Err(NoSummary::Interrupted);
            }
            std::mem::take(&mut state.stale)
        };
        self.update(store, &stale)
    }

    /// Reads what was added. The caller holds `updating`.
    fn update(&self, store: &dyn EpochStore, stale: &Stale) -> Result<(), NoSummary> {
        let result = self.read_stale(store, stale);
        if let Err(error) = &result {
            let mut state = self.lock();
            if matches!(error, NoSummary::TooManyBlocks) {
                *state = State { is_too_large: true, ..State::default() };
            } else {
                state.stale.add(stale);
            }
        }
        result
    }

    fn read_stale(&self, store: &dyn EpochStore, stale: &Stale) -> Result<(), NoSummary> {
        let Stale { seals, manifests, events } = stale;
        // The state is not locked while the store is read, because uploads are recorded in it.
        let mut kept = {
            let mut state = self.lock();
            state.is_taken = true;
            std::mem::take(&mut state.kept)
        };
        let devices: BTreeSet<DeviceId> = seals.keys().map(|(device, _)| *device).collect();
        let result = (|| {
            for device in devices {
                let of = kept.devices.entry(device).or_default();
                let added = seals.range((device, 0)..=(device, u64::MAX));
                of.update(added.map(|((_, block), first)| (*block, *first)), |from, to, add| {
                    read_seals(store, device, from, to, add)
                })?;
                if of.len() == 0 {
                    kept.devices.remove(&device);
                }
                kept.seals = None;
            }
            kept.manifests.update(
                manifests.iter().map(|(block, first)| (*block, *first)),
                |from, to, add| read_manifests(store, from, to, add),
            )?;
            if *events {
                read_events(store, &mut kept)?;
            }
            if kept.seals.is_none() && kept.blocks() > self.most_blocks {
                return Err(NoSummary::TooManyBlocks);
            }
            Ok(())
        })();
        let mut state = self.lock();
        (state.kept, state.is_taken) = (kept, false);
        result
    }

    /// Returns the totals, as of the last [`refresh`](Self::refresh).
    pub(crate) fn totals(&self) -> Totals {
        // An update takes the fingerprints out of the state while it reads.
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        let kept = &mut state.kept;
        let devices = &kept.devices;
        let seals = *kept.seals.get_or_insert_with(|| {
            digest_of_devices(devices.iter().map(|(device, of)| (*device, of.total())))
        });
        Totals { seals, manifests: *kept.manifests.total(), events: kept.events }
    }

    /// Returns the place of the last urgent event that the totals cover.
    pub(crate) fn last_event(&self) -> Option<UrgentPlace> {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().kept.last_event
    }

    /// Returns the changes after a cursor, and the next cursor.
    pub(crate) fn changes(&self, after: Option<&str>) -> (Option<Vec<Change>>, bool, String) {
        self.lock().changes.after(after)
    }

    /// Returns the fingerprints of the devices after `after`.
    pub(crate) fn devices(&self, after: Option<DeviceId>) -> DevicePage {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut rest = state.kept.devices.range((from, std::ops::Bound::Unbounded));
        let devices = rest
            .by_ref()
            .take(PAGE)
            .map(|(device, of)| DeviceSummary { device: *device, seals: *of.total() })
            .collect();
        DevicePage { devices, more: rest.next().is_some() }
    }

    /// Returns the fingerprints of blocks of a device's seals, or of the manifests, by their first
    /// numbers.
    pub(crate) fn blocks(&self, device: Option<DeviceId>, firsts: &[u64]) -> Vec<Fingerprint> {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        let of =
            device.map_or(Some(&state.kept.manifests), |device| state.kept.devices.get(&device));
        let entries = |first: &u64| of.map_or(Fingerprint::EMPTY, |of| of.at(*first));
        firsts.iter().map(entries).collect()
    }

    /// Returns the fingerprint of a device's seals.
    pub(crate) fn device(&self, device: DeviceId) -> Fingerprint {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        state.kept.devices.get(&device).map_or(Fingerprint::EMPTY, |of| *of.total())
    }

    /// Returns the fingerprints of the blocks of a device's seals.
    pub(crate) fn seals(&self, device: DeviceId, from: u64) -> BlockPage {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        state.kept.devices.get(&device).map(|of| of.page(from)).unwrap_or_default()
    }

    /// Returns the fingerprints of the blocks of manifests.
    pub(crate) fn manifests(&self, from: u64) -> BlockPage {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().kept.manifests.page(from)
    }
}

/// A reading of the whole store. If this value is dropped before the reading is complete, the reading
/// has failed.
#[derive(Debug)]
pub(crate) struct Reading {
    of: Arc<Summaries>,
    began: Instant,
    /// Whether uploads are recorded for this reading.
    is_running: bool,
    has_ended: bool,
}

impl Reading {
    /// Reads the whole store, and replaces the fingerprints. Blocks. `now` returns the time at the end.
    pub(crate) fn run(
        self,
        store: &dyn EpochStore,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), NoSummary> {
        let kept = read_all(store, self.of.most_blocks);
        self.end(store, kept, now())
    }

    fn end(
        mut self,
        store: &dyn EpochStore,
        kept: Result<Kept, NoSummary>,
        now: Instant,
    ) -> Result<(), NoSummary> {
        let of = Arc::clone(&self.of);
        let updating = of.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = kept.map(|kept| {
            let mut state = of.lock();
            // What was marked before the reading began is part of what was read.
            (state.kept, state.stale, state.is_taken) = (kept, Stale::default(), false);
            state.whole = Some(Whole { began: self.began, due: self.next(now) });
            self.is_running = false;
            state.during.take().unwrap_or_default()
        });
        // Earlier requests may have used what was added during the reading. Later ones must find it, too.
        let result = replaced.and_then(|during| of.update(store, &during));
        drop(updating);
        self.report(result.clone(), now);
        result
    }

    /// Returns when the next reading is due if this one ends now.
    fn next(&self, now: Instant) -> Instant {
        let took = now.saturating_duration_since(self.began);
        now + PAUSE.max(took.saturating_mul(PAUSE_FACTOR))
    }

    /// Reports the end of the reading. If it failed, the previous fingerprints are used until the next
    /// one.
    fn report(&mut self, result: Result<(), NoSummary>, now: Instant) {
        let mut state = self.of.lock();
        if std::mem::take(&mut self.is_running) {
            state.during = None;
            if let Some(whole) = &mut state.whole {
                whole.due = self.next(now);
            }
        }
        if matches!(result, Err(NoSummary::TooManyBlocks)) {
            *state = State { is_too_large: true, ..State::default() };
        }
        drop(state);
        self.has_ended = true;
        self.of.ended.send_replace(Some(Ended { began: self.began, result }));
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.has_ended {
            self.report(Err(NoSummary::Interrupted), Instant::now());
        }
    }
}

/// What a batch adds to the store. When this value is dropped, the blocks of the batch are marked.
/// The store's reply owns it: the store calls or drops the reply after the batch is visible, whether
/// or not the client of the upload still waits.
#[derive(Debug)]
pub(crate) struct Mark {
    of: Arc<Summaries>,
    batch: Batch,
    is_stored: bool,
}

#[derive(Debug)]
enum Batch {
    Seals(Vec<Change>),
    Manifests(Vec<EpochNumber>),
    Events,
}

impl Mark {
    fn new(of: &Arc<Summaries>, batch: Batch) -> Self {
        Self { of: Arc::clone(of), batch, is_stored: false }
    }

    pub(crate) fn of_bundles(of: &Arc<Summaries>, bundles: &[Bundle]) -> Self {
        let change = |bundle: &Bundle| Change::Seal {
            device: bundle.key().device,
            index: bundle.key().index.0,
            digest: bundle.key().digest,
            kept_from: bundle.kept_from().0,
        };
        Self::new(of, Batch::Seals(bundles.iter().map(change).collect()))
    }

    pub(crate) fn of_manifests(of: &Arc<Summaries>, manifests: &[StoredManifest]) -> Self {
        Self::new(of, Batch::Manifests(manifests.iter().map(StoredManifest::epoch).collect()))
    }

    pub(crate) fn of_events(of: &Arc<Summaries>) -> Self {
        Self::new(of, Batch::Events)
    }

    /// Records the reply of the store. A batch without new data is not a change.
    pub(crate) fn replied(&mut self, reply: &Result<Receipt, PutError>) {
        self.is_stored = reply.as_ref().is_ok_and(|receipt| receipt.stored > 0);
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        if !state.is_used {
            return;
        }
        match &self.batch {
            Batch::Seals(changes) => {
                for change in changes {
                    if let Change::Seal { device, index, .. } = change {
                        state.mark(|stale| stale.add_seal(*device, u64::from(*index)));
                    }
                }
                if self.is_stored {
                    changes.iter().for_each(|change| state.changes.push(*change));
                }
            }
            Batch::Manifests(epochs) => {
                for epoch in epochs {
                    state.mark(|stale| stale.add_manifest(epoch.0));
                    if self.is_stored {
                        state.changes.push(Change::Manifest { epoch: epoch.0 });
                    }
                }
            }
            Batch::Events => state.mark(|stale| stale.events = true),
        }
    }
}

/// Reads the fingerprints of the whole store.
fn read_all(store: &dyn EpochStore, most_blocks: usize) -> Result<Kept, NoSummary> {
    let mut kept = Kept::default();
    let mut after = None;
    let mut blocks = 0;
    loop {
        let page = store.devices(after, READ)?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.device);
        for head in page {
            let mut of = Blocks::default();
            of.extend(|from, to, add| read_seals(store, head.key.device, from, to, add))?;
            blocks += of.len();
            if blocks > most_blocks {
                return Err(NoSummary::TooManyBlocks);
            }
            kept.devices.insert(head.key.device, of);
        }
    }
    kept.manifests.extend(|from, to, add| read_manifests(store, from, to, add))?;
    read_events(store, &mut kept)?;
    Ok(kept)
}

/// Calls `add` for each seal of a device with an index from `from` up to, but not including, `to`.
fn read_seals(
    store: &dyn EpochStore,
    device: DeviceId,
    from: u64,
    to: Option<u64>,
    add: &mut dyn FnMut(u64, Fingerprint),
) -> Result<(), ReadError> {
    let mut from = u32::try_from(from).ok();
    while let Some(start) = from {
        let mut page = store.seals(device, SealIndex(start), READ)?;
        from = None;
        if page.len() == READ
            && let Some(last) = page.last().map(|seal| seal.seal().statement().index)
        {
            // The page may end between two seals of one index, so the last index is read again.
            if last.0 > start {
                page.retain(|seal| seal.seal().statement().index < last);
                from = Some(last.0);
            } else {
                page = store.seals_at(device, last)?;
                from = last.0.checked_add(1);
            }
        }
        for seal in page {
            let key = seal.key();
            let index = u64::from(key.index.0);
            if to.is_some_and(|to| index >= to) {
                return Ok(());
            }
            let entry = Fingerprint::of_seal(device, key.index, &key.digest, seal.kept_from());
            add(index, entry);
        }
    }
    Ok(())
}

/// Calls `add` for each manifest of an epoch from `from` up to, but not including, `to`.
fn read_manifests(
    store: &dyn EpochStore,
    from: u64,
    to: Option<u64>,
    add: &mut dyn FnMut(u64, Fingerprint),
) -> Result<(), ReadError> {
    let mut after = None;
    loop {
        let page =
            store.manifests(EpochNumber(from), to.map(EpochNumber), after, READ_MANIFESTS)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.key());
        for manifest in page {
            add(manifest.epoch().0, Fingerprint::of_entry(&[&manifest.key().to_bytes()]));
        }
    }
}

/// Adds the urgent events after the last one that was read.
fn read_events(store: &dyn EpochStore, kept: &mut Kept) -> Result<(), ReadError> {
    loop {
        let page = store.urgent(kept.last_event, READ_EVENTS, &|_, _| true)?;
        for (key, _) in &page.events {
            kept.events.add(&Fingerprint::of_entry(&[&key.to_bytes()]));
        }
        kept.last_event = page.last.or(kept.last_event);
        if !page.has_more {
            return Ok(());
        }
    }
}

impl Blocks {
    fn page(&self, from: u64) -> BlockPage {
        let mut rest = self.from(from);
        let blocks = rest
            .by_ref()
            .take(PAGE)
            .map(|(first, entries)| BlockSummary { first, entries })
            .collect();
        BlockPage { blocks, more: rest.next().is_some() }
    }
}

const _: () = assert!(READ as u64 >= BLOCK, "a block is read at once");
