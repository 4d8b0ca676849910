//! The writer: the thread that encodes all queued batches as records of the journal, syncs the
//! journal once, and sends replies.
//!
//! While one sync waits for the disk, callers queue more batches, and the next sync writes them
//! all. With enough callers the store is therefore as fast as appending to the disk, and each
//! caller waits for about one sync. A caller that has received its reply often submits another
//! batch at once. The writer therefore waits for such callers before it starts the next sync, but
//! at most for twice the duration of the last sync. The same number of batches then needs half as
//! many syncs. Journaled batches are passed to the thread that applies them to the tables (see
//! [`apply`](super::apply)).
//!
//! A batch is new if each of its bundles follows all stored seals of its device. The reply to a new
//! batch needs no lookup in the tables and is sent after the sync. Any other batch is answered
//! after it was applied, with the receipt of its transaction. In two more cases the reply is sent
//! after the batch was applied:
//!
//! - For the first batch of each device and of each schema since the store was opened, because only
//!   the transaction of such a batch shows that the pages that it needs are undamaged.
//! - For every batch while the batches that are in the journal but not yet in the tables fill more
//!   than half of the queue's limit. This slows callers down before batches are rejected.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use redb::ReadableDatabase;

use super::{ROW, ReadError, SEALS, Shared, State, apply, damaged, epoch_of, guarded, keys};
use crate::batch::Batch;
use crate::bundle::{Bundle, SealKey};
use crate::epochs::{PutError, Receipt, Reply};
use crate::journal::{Journal, JournalError};
use crate::pages;

/// The minimum time between two attempts to write a store after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The maximum time for which a sync waits for callers, however long the last sync took.
const PATIENCE: Duration = Duration::from_millis(1);

/// The handle of the store's two threads.
pub(super) struct Writer {
    shared: Arc<Shared>,
    journaling: Option<JoinHandle<()>>,
    applying: Option<JoinHandle<()>>,
}

/// A batch that waits to be journaled.
pub(super) struct Job {
    batch: Batch,
    bytes: usize,
    reply: Reply,
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let mut writer = Self { shared: Arc::clone(&shared), journaling: None, applying: None };
        let applied = Arc::clone(&shared);
        writer.applying = Some(
            thread::Builder::new()
                .name("epoch-apply".to_owned())
                .spawn(move || apply::run(&applied))?,
        );
        writer.journaling = Some(
            thread::Builder::new().name("epoch-journal".to_owned()).spawn(move || run(&shared))?,
        );
        Ok(writer)
    }

    pub(super) fn submit(&self, batch: Batch, reply: Reply) -> Result<(), PutError> {
        let bytes = batch.stored_bytes();
        let limit = self.shared.options.queue_bytes;
        let mut state = self.shared.state();
        if state.closing {
            return Err(PutError::Closed);
        }
        let fits = state.queued_bytes == 0 || state.queued_bytes.saturating_add(bytes) <= limit;
        if !fits || state.queued_bytes.saturating_add(state.pending_bytes) > limit {
            return Err(PutError::Busy);
        }
        state.queued_bytes += bytes;
        state.queue.push(Job { batch, bytes, reply });
        // Wake the writer only once, because each wake-up costs a system call.
        if state.awaited == Some(state.queue.len()) {
            state.awaited = None;
            self.shared.queued.notify_one();
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.queued.notify_one();
        if let Some(thread) = self.journaling.take() {
            let _ = thread.join();
        }
        self.shared.state().ended = true;
        self.shared.due.notify_one();
        if let Some(thread) = self.applying.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut heads = Heads::default();
    let mut tried: Option<Instant> = None;
    let (mut answered, mut took) = (0, Duration::ZERO);
    while let Some(jobs) = shared.next_jobs(answered, (2 * took).min(PATIENCE)) {
        let start = Instant::now();
        answered = jobs.len();
        let mut held = shared.state().held.clone();
        if held.is_some() && tried.is_none_or(|tried| tried.elapsed() >= RETRY) {
            held = apply::retry(shared).err();
            tried = Some(Instant::now());
        }
        match held {
            Some(error) => {
                shared.state().queued_bytes -= jobs.iter().map(|job| job.bytes).sum::<usize>();
                jobs.into_iter().for_each(|job| (job.reply)(Err(error.clone())));
            }
            None => journal(shared, &mut heads, jobs),
        }
        took = start.elapsed();
    }
}

impl Shared {
    /// Waits for jobs and returns all that are queued, or `None` when the store closes. `answered`
    /// is the number of callers that just received a reply. They are likely to submit again, so
    /// this waits for that many more jobs, for at most `patience`.
    fn next_jobs(&self, answered: usize, patience: Duration) -> Option<Vec<Job>> {
        let mut state = self.state();
        let deadline = Instant::now() + patience;
        let enough = state.queue.len() + answered;
        while state.queue.len() < enough && !state.closing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.awaited = Some(enough);
            state = self.queued.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        while state.queue.is_empty() {
            if state.closing {
                return None;
            }
            state.awaited = Some(1);
            state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaited = None;
        Some(std::mem::take(&mut state.queue))
    }
}

/// Journals jobs, usually with one sync, and sends the replies that need no lookup.
fn journal(shared: &Shared, heads: &mut Heads, jobs: Vec<Job>) {
    let mut answers: Vec<(Reply, Result<Receipt, PutError>)> = Vec::with_capacity(jobs.len());
    let mut group = Group::default();
    heads.catch_up(shared);
    let mut journal = shared.journal();
    for job in jobs {
        let placed = match heads.place(shared, &job.batch, group.jobs.len() as u64 + 1) {
            Ok(placed) => placed,
            Err(error) => {
                shared.state().queued_bytes -= job.bytes;
                answers.push((job.reply, Err(error)));
                continue;
            }
        };
        let appended = match append(&mut journal, &job.batch) {
            Err(JournalError::TooMuch(_)) if !group.jobs.is_empty() => {
                group = flush(shared, heads, &mut journal, group, &mut answers);
                append(&mut journal, &job.batch)
            }
            appended => appended,
        };
        if let Err(error) = appended {
            heads.forget = true;
            shared.state().queued_bytes -= job.bytes;
            answers.push((job.reply, Err(shared.journal_failed(&error))));
            continue;
        }
        let far_behind = group.bytes + heads.behind > shared.options.queue_bytes / 2;
        group.bytes += job.bytes;
        group.jobs.push((job, placed == Placed::New && !far_behind));
    }
    flush(shared, heads, &mut journal, group, &mut answers);
    drop(journal);
    answers.into_iter().for_each(|(reply, result)| reply(result));
}

fn append(journal: &mut Option<Journal>, batch: &Batch) -> Result<(), JournalError> {
    let Some(journal) = journal else { return Ok(()) };
    match batch.encode() {
        Some(record) => journal.append(&record),
        None => Err(JournalError::TooMuch(journal.path().to_owned())),
    }
}

/// The jobs of one frame. The flag of a job is set if its reply can be sent after the sync.
#[derive(Default)]
struct Group {
    jobs: Vec<(Job, bool)>,
    bytes: usize,
}

/// Writes and syncs a frame, and passes its batches to the applying thread. Returns an empty group.
fn flush(
    shared: &Shared,
    heads: &mut Heads,
    journal: &mut MutexGuard<'_, Option<Journal>>,
    group: Group,
    answers: &mut Vec<(Reply, Result<Receipt, PutError>)>,
) -> Group {
    let written = journal.as_mut().map_or(Ok(()), |journal| {
        journal.write(shared.options.sync).inspect_err(|_| journal.discard())?;
        if shared.options.sync {
            // After a crash, this record distinguishes damage to acknowledged batches from an
            // interrupted write. The store keeps its promise without the record.
            let _ = pages::set_acknowledged(&shared.file, journal.length());
        }
        Ok(())
    });
    // Update the state while the journal is still locked: a thread that locks the journal must know
    // which of its records are pending.
    let mut state = shared.state();
    state.queued_bytes -= group.bytes;
    if let Err(error) = written {
        drop(state);
        heads.forget = true;
        let error = shared.journal_failed(&error);
        answers.extend(group.jobs.into_iter().map(|(job, _)| (job.reply, Err(error.clone()))));
        return Group::default();
    }
    let idle = state.pending.is_empty();
    for (job, new) in group.jobs {
        let mut reply = Some(job.reply);
        if new {
            let receipt = Receipt { stored: job.batch.bundles.len() as u64, ..Receipt::default() };
            answers.extend(reply.take().map(|reply| (reply, Ok(receipt))));
        }
        state.journaled += 1;
        if reply.is_some() {
            state.wanted = state.journaled;
        }
        state.pending_bytes += job.bytes;
        state.pending.push(apply::Pending { batch: job.batch, bytes: job.bytes, reply });
        shared.unapplied.fetch_add(1, Ordering::SeqCst);
    }
    if idle {
        state.since = Some(Instant::now());
    }
    if idle || state.is_due(shared) {
        shared.due.notify_one();
    }
    (heads.base, heads.behind) = (state.journaled, state.pending_bytes);
    Group::default()
}

impl Shared {
    fn journal_failed(&self, error: &JournalError) -> PutError {
        match error {
            JournalError::DiskFull(_) => PutError::DiskFull { store: self.name.clone() },
            other => PutError::Failed { store: self.name.clone(), what: other.to_string() },
        }
    }
}

/// Whether the reply to a batch needs a lookup in the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    /// The whole batch is new, and none of the pages that it needs is damaged.
    New,
    /// Only its transaction shows the result.
    Unknown,
}

/// The newest seal of each device, including the seals of pending batches.
#[derive(Default)]
struct Heads {
    devices: HashMap<DeviceId, Newest>,
    /// For each schema, the number of the job that first contained it.
    schemas: HashMap<Digest, u64>,
    /// Whether to read everything again, because a batch was not journaled and the cached data may
    /// be wrong.
    forget: bool,
    /// How many jobs have been journaled, and how many of them have been applied.
    base: u64,
    applied: u64,
    /// The number of bytes that wait to be applied.
    behind: usize,
}

struct Newest {
    seal: Option<(SealIndex, EpochNumber)>,
    /// The numbers of the jobs that wrote the device's first short bundle and its first long bundle
    /// (one stored in pieces).
    first: [Option<u64>; 2],
}

impl Heads {
    /// Updates the numbers of journaled and applied jobs. Drops cached data that may be wrong.
    fn catch_up(&mut self, shared: &Shared) {
        let mut state = shared.state();
        if std::mem::take(&mut state.distrusted) || self.forget {
            // The heads will be read again from the tables, so wait until all pending batches are
            // in them.
            let journaled = state.journaled;
            state = shared.wait_until(state, journaled);
            self.devices.clear();
            self.schemas.clear();
            (self.forget, state.distrusted) = (false, false);
        }
        (self.base, self.applied, self.behind) =
            (state.journaled, state.applied, state.pending_bytes);
    }

    /// Determines whether the reply to a batch needs a lookup. `ahead` is the place of the batch
    /// among the batches that are journaled next, counted from 1.
    fn place(&mut self, shared: &Shared, batch: &Batch, ahead: u64) -> Result<Placed, PutError> {
        let (number, applied) = (self.base + ahead, self.applied);
        // Do everything that can fail first: a rejected batch must leave no trace in the cache.
        if !batch.manifests.is_empty() && shared.withholds_manifests() {
            return Err(shared.page_damaged());
        }
        for bundle in &batch.bundles {
            let device = bundle.key.device;
            if shared.withholds(Some(device)) {
                return Err(shared.page_damaged());
            }
            if let Entry::Vacant(entry) = self.devices.entry(device) {
                let seal = shared.newest(bundle).map_err(|error| match error {
                    ReadError::Damaged { .. } => shared.page_damaged(),
                    other => {
                        PutError::Failed { store: shared.name.clone(), what: other.to_string() }
                    }
                })?;
                entry.insert(Newest { seal, first: [None; 2] });
            }
        }
        if batch.events.iter().any(|event| shared.withholds(Some(event.key().device))) {
            return Err(shared.page_damaged());
        }
        // Manifests and urgent events are rare, and only the tables show whether one is new.
        let is_seals_only = batch.manifests.is_empty() && batch.events.is_empty();
        let mut placed = if is_seals_only { Placed::New } else { Placed::Unknown };
        for bundle in &batch.bundles {
            let (index, epoch) = (bundle.key.index, bundle.epoch);
            let tried = |first: &mut Option<u64>| *first.get_or_insert(number) <= applied;
            let Some(device) = self.devices.get_mut(&bundle.key.device) else { continue };
            let schema = *self.schemas.entry(bundle.schema.digest).or_insert(number) <= applied;
            if !tried(&mut device.first[usize::from(bundle.stored_bytes() > ROW)]) || !schema {
                placed = Placed::Unknown;
            }
            match device.seal {
                Some((newest, last)) if newest >= index || last > epoch => {
                    placed = Placed::Unknown;
                    if newest < index {
                        device.seal = Some((index, epoch));
                    }
                }
                _ => device.seal = Some((index, epoch)),
            }
        }
        Ok(placed)
    }
}

impl Shared {
    /// Reads the newest seal of a bundle's device from the tables. Also reads the rows next to the
    /// bundle's position, to find out whether their pages are damaged.
    fn newest(&self, bundle: &Bundle) -> Result<Option<(SealIndex, EpochNumber)>, ReadError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(ReadError::Closed)?;
        guarded(|| {
            let seals = database.begin_read()?.open_table(SEALS)?;
            let key = bundle.key.to_bytes();
            seals.range(..key)?.next_back().transpose()?;
            seals.range(key..)?.next().transpose()?;
            let newest = seals
                .range(keys(bundle.key.device, SealIndex(0), SealIndex(u32::MAX)))?
                .next_back()
                .transpose()?;
            newest
                .map(|(key, row)| {
                    Ok((
                        SealKey::from_bytes(&key.value()).index,
                        epoch_of(key.value(), row.value())?,
                    ))
                })
                .transpose()
        })
    }

    pub(super) fn page_damaged(&self) -> PutError {
        let what = "a page of the file is damaged; stop the service and run `moteseal store check`"
            .to_owned();
        PutError::Failed { store: self.name.clone(), what }
    }

    /// Returns whether acknowledged bundles of a device cannot be applied because of a damaged
    /// page. If `device` is `None`, returns whether any acknowledged batch cannot be applied.
    pub(super) fn withholds(&self, device: Option<DeviceId>) -> bool {
        self.withholding.load(Ordering::SeqCst) && {
            let devices: &HashSet<DeviceId> = &self.state().withheld.devices;
            device.is_none_or(|device| devices.contains(&device))
        }
    }

    /// Returns whether acknowledged manifests cannot be applied because of a damaged page.
    fn withholds_manifests(&self) -> bool {
        self.withholding.load(Ordering::SeqCst) && self.state().withheld.manifests
    }

    /// Waits until the first `number` journaled batches are in the tables.
    pub(super) fn wait_until<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        number: u64,
    ) -> MutexGuard<'s, State> {
        if state.applied < number {
            state.wanted = state.wanted.max(number);
            self.due.notify_one();
        }
        while state.applied < number {
            state = self.applied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Waits until every batch acknowledged so far can be read. If none is pending, this takes only
    /// one atomic load.
    pub(super) fn settle(&self, device: Option<DeviceId>) -> Result<(), ReadError> {
        if self.unapplied.load(Ordering::SeqCst) > 0 {
            let state = self.state();
            let journaled = state.journaled;
            drop(self.wait_until(state, journaled));
        }
        if self.withholds(device) {
            return Err(damaged(
                "stored bundles are in the journal and cannot be applied, \
                 because a page of the file is damaged",
            ));
        }
        Ok(())
    }
}
