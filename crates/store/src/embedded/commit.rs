//! The writer: one thread that drains the whole queue into each commit and answers when the disk has it.
//!
//! While one commit waits for the disk, callers queue up; the next commit takes them all. So the store is as fast as the disk
//! allows with any number of callers, and one caller waits for one sync. A commit is one sync: redb's commit in one phase
//! writes data and header together and lets checksums decide after a crash whether it took place.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table};

use super::{EQUIVOCATIONS, PIECE, PIECES, ROW, SCHEMAS, SEALS, Shared, UNORDERED, guarded, index_key, keys, open, piece_key};
use crate::bundle::{Bundle, SealKey};
use crate::epochs::{PutError, Receipt, Reply};
use crate::journal::is_full;
use crate::stored;

/// The handle of the writer's thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

struct Queue {
    limit: usize,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Bytes of the jobs that are queued or being written.
    bytes: usize,
    closing: bool,
}

pub(super) struct Job {
    pub(super) batch: Vec<Bundle>,
    pub(super) bytes: usize,
    pub(super) reply: Reply,
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let queue = Arc::new(Queue { limit: shared.options.queue_bytes, state: Mutex::default(), filled: Condvar::new() });
        let thread = {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name("epoch-store".to_owned()).spawn(move || run(&shared, &queue))?
        };
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(super) fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        let bytes = batch.iter().map(Bundle::stored_bytes).sum();
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closing {
            return Err(PutError::Closed);
        }
        if state.bytes > 0 && state.bytes.saturating_add(bytes) > self.queue.limit {
            return Err(PutError::Busy);
        }
        state.bytes += bytes;
        state.jobs.push_back(Job { batch, bytes, reply });
        self.queue.filled.notify_one();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.state.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.queue.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, queue: &Queue) {
    let mut known = Known::default();
    loop {
        let jobs = {
            let mut state = queue.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.jobs.is_empty() {
                if state.closing {
                    return;
                }
                state = queue.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            Vec::from(mem::take(&mut state.jobs))
        };
        let bytes = jobs.iter().map(|job| job.bytes).sum::<usize>();
        let results = write(shared, &mut known, &jobs);
        queue.state.lock().unwrap_or_else(PoisonError::into_inner).bytes -= bytes;
        jobs.into_iter().zip(results).for_each(|(job, result)| (job.reply)(result));
    }
}

/// Writes all jobs in one commit. Where that meets a damaged page, each gets a commit of its own, so that only those fail
/// that need the page.
fn write(shared: &Shared, known: &mut Known, jobs: &[Job]) -> Vec<Result<Receipt, PutError>> {
    let written = if can_be_placed(shared, known, jobs) { try_write(shared, known, jobs) } else { Err(Failure::Damaged) };
    match written {
        Ok(receipts) => receipts.into_iter().map(Ok).collect(),
        Err(failure) => {
            *known = Known::default();
            match failure {
                Failure::Damaged if jobs.len() > 1 => {
                    jobs.iter().flat_map(|job| write(shared, known, std::slice::from_ref(job))).collect()
                }
                Failure::Damaged => {
                    let what = "a page of the file is damaged; stop the service and run `moteseal store check`".to_owned();
                    jobs.iter().map(|_| Err(PutError::Failed { store: shared.name.clone(), what: what.clone() })).collect()
                }
                Failure::Unwritable(error) => {
                    reopen(shared);
                    jobs.iter().map(|_| Err(error.clone())).collect()
                }
            }
        }
    }
}

/// Reads the rows between which the first bundles of devices will stand.
///
/// A commit would meet a damaged page as well, but as a panic within redb's own writing, after which it closes no file cleanly.
fn can_be_placed(shared: &Shared, known: &Known, jobs: &[Job]) -> bool {
    let database = shared.database.read().unwrap_or_else(PoisonError::into_inner);
    let Some(database) = database.as_ref() else { return true };
    let mut first =
        jobs.iter().flat_map(|job| &job.batch).filter(|bundle| !known.heads.contains_key(&bundle.key.device)).peekable();
    if first.peek().is_none() {
        return true;
    }
    guarded(|| {
        let seals = database.begin_read()?.open_table(SEALS)?;
        for bundle in first {
            let key = bundle.key.to_bytes();
            seals.range(..key)?.next_back().transpose()?;
            seals.range(key..)?.next().transpose()?;
        }
        Ok(())
    })
    .is_ok()
}

/// Why a commit did not take place.
enum Failure {
    /// A page that it needed is damaged; others may not need it.
    Damaged,
    /// The file could not be written, and redb writes it no more.
    Unwritable(PutError),
}

fn try_write(shared: &Shared, known: &mut Known, jobs: &[Job]) -> Result<Vec<Receipt>, Failure> {
    if shared.database.read().unwrap_or_else(PoisonError::into_inner).is_none() {
        reopen(shared);
    }
    let failed = |what: &str| Failure::Unwritable(PutError::Failed { store: shared.name.clone(), what: what.to_owned() });
    let database = shared.database.read().unwrap_or_else(PoisonError::into_inner);
    let database = database.as_ref().ok_or_else(|| failed("it could not be opened again"))?;
    match catch_unwind(AssertUnwindSafe(|| commit(database, shared.options.sync, known, jobs))) {
        Ok(Ok(receipts)) => Ok(receipts),
        Ok(Err(redb::Error::Io(error))) if is_full(error.kind()) => {
            Err(Failure::Unwritable(PutError::DiskFull { store: shared.name.clone() }))
        }
        Ok(Err(redb::Error::Corrupted(_))) | Err(_) => Err(Failure::Damaged),
        Ok(Err(other)) => Err(failed(&other.to_string())),
    }
}

/// Opens the file again: redb does nothing more with a file that it could not write.
fn reopen(shared: &Shared) {
    let mut database = shared.database.write().unwrap_or_else(PoisonError::into_inner);
    // It must be closed first: the file is locked.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database.take())));
    *database = open::open(&shared.path, &open::Options { create: false, ..shared.options.clone() }).ok();
}

/// What the writer remembers of the store, so that it need not look it up for each bundle.
#[derive(Default)]
pub(super) struct Known {
    schemas: HashSet<Digest>,
    /// The newest seal of a device; `None` if it has none.
    heads: HashMap<DeviceId, Option<(SealIndex, EpochNumber)>>,
}

type Seals<'t> = Table<'t, [u8; SealKey::LENGTH], &'static [u8]>;

/// One transaction for all jobs.
pub(super) fn commit(database: &Database, sync: bool, known: &mut Known, jobs: &[Job]) -> Result<Vec<Receipt>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(if sync { Durability::Immediate } else { Durability::None })?;
    let mut receipts = Vec::with_capacity(jobs.len());
    {
        let mut seals = transaction.open_table(SEALS)?;
        // Opening a table costs; most commits need no other.
        let mut pieces = None;
        let mut row = Vec::new();
        for job in jobs {
            let mut receipt = Receipt::default();
            for bundle in &job.batch {
                let key = bundle.key.to_bytes();
                let place = Place::of(&seals, known, bundle)?;
                if place == Place::Known {
                    receipt.known += 1;
                    continue;
                }
                if known.schemas.insert(bundle.schema.digest) {
                    let mut schemas = transaction.open_table(SCHEMAS)?;
                    if schemas.get(bundle.schema.digest.0)?.is_none() {
                        schemas.insert(bundle.schema.digest.0, &bundle.schema.bytes[..])?;
                    }
                }
                if bundle.stored_bytes() <= ROW {
                    row.clear();
                    row.extend_from_slice(&bundle.head);
                    row.extend_from_slice(&bundle.body);
                    seals.insert(key, &row[..])?;
                } else {
                    seals.insert(key, &bundle.head[..])?;
                    let pieces = match &mut pieces {
                        Some(pieces) => pieces,
                        none => none.insert(transaction.open_table(PIECES)?),
                    };
                    for (number, piece) in (0..).zip(bundle.body.chunks(PIECE)) {
                        pieces.insert(piece_key(&bundle.key, number), piece)?;
                    }
                }
                receipt.stored += 1;
                let (device, index) = (bundle.key.device, bundle.key.index);
                if let Place::Between { equivocates, ordered } = place {
                    if equivocates {
                        transaction.open_table(EQUIVOCATIONS)?.insert(index_key(device, index), ())?;
                        receipt.equivocations.push((device, index));
                    }
                    if !ordered {
                        transaction.open_table(UNORDERED)?.insert(device.0, ())?;
                    }
                }
            }
            receipts.push(receipt);
        }
    }
    // A commit in one phase: a single sync.
    transaction.set_two_phase_commit(false);
    transaction.commit()?;
    Ok(receipts)
}

/// Where a bundle comes to stand among those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is there already.
    Known,
    /// Behind all others of its device.
    Last,
    /// Elsewhere: whether its index is taken, and whether the epochs still ascend.
    Between { equivocates: bool, ordered: bool },
}

impl Place {
    fn of(seals: &Seals<'_>, known: &mut Known, bundle: &Bundle) -> Result<Self, redb::Error> {
        let (device, index, epoch) = (bundle.key.device, bundle.key.index, bundle.epoch);
        let head = match known.heads.entry(device) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(neighbour(seals, keys(device, SealIndex(0), SealIndex(u32::MAX)), true)?),
        };
        match head {
            Some((newest, last)) if *newest >= index || *last > epoch => {}
            head => {
                *head = Some((index, epoch));
                return Ok(Self::Last);
            }
        }
        let mut equivocates = false;
        for entry in seals.range(keys(device, index, index))? {
            if entry?.0.value() == bundle.key.to_bytes() {
                return Ok(Self::Known);
            }
            equivocates = true;
        }
        let before = match index.0.checked_sub(1) {
            Some(before) => neighbour(seals, keys(device, SealIndex(0), SealIndex(before)), true)?,
            None => None,
        };
        let behind = match index.0.checked_add(1) {
            Some(behind) => neighbour(seals, keys(device, SealIndex(behind), SealIndex(u32::MAX)), false)?,
            None => None,
        };
        // Of seals under one index no order is known: the device is searched one seal after the other from then on.
        let ordered =
            !equivocates && before.is_none_or(|(_, before)| before <= epoch) && behind.is_none_or(|(_, behind)| epoch <= behind);
        if head.is_none_or(|(newest, _)| newest < index) {
            *head = Some((index, epoch));
        }
        Ok(Self::Between { equivocates, ordered })
    }
}

/// The first or last seal of a range of keys.
fn neighbour(
    seals: &Seals<'_>,
    range: std::ops::RangeInclusive<[u8; SealKey::LENGTH]>,
    last: bool,
) -> Result<Option<(SealIndex, EpochNumber)>, redb::Error> {
    let mut range = seals.range(range)?;
    let entry = if last { range.next_back() } else { range.next() };
    let Some(entry) = entry else { return Ok(None) };
    let (key, row) = entry?;
    let epoch = stored::epoch(row.value()).ok_or_else(|| redb::Error::Corrupted("a head is cut short".to_owned()))?;
    Ok(Some((SealKey::from_bytes(&key.value()).index, epoch)))
}
