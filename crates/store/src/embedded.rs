//! The embedded store: one redb file (a copy-on-write B-tree), a journal, two writing threads, and
//! any number of readers.
//!
//! One thread appends all waiting batches to the journal with a single sync; a batch is durable
//! from then on. The other thread applies the batches to the tables in large transactions
//! (docs/decisions/0007). A read first waits until every batch that was acknowledged before the
//! read is in the tables. Closing the store empties and removes the journal. Opening a store
//! applies the batches that a crash left in its journal.
//!
//! Heads are in one table, keyed by device, index and digest. A body of up to about 7 KiB is in the
//! same row as its head, so that a bundle of a thousand readings needs one insertion. Longer bodies
//! are split into pieces of two pages each. There is no index by epoch: epochs never decrease along
//! a device's chain, so the first seal of an epoch is found by bisection over the indices, in about
//! twenty lookups. If the epochs of a device do decrease, for example because its key was stolen,
//! the store records this and searches the seals of the device one by one.
//!
//! Every page is verified when it is read (see [`pages`](crate::pages)): the store never returns
//! wrong data, and a missing row is always an error. redb asserts properties that it has not
//! verified and may panic on a damaged page. Every call into redb is therefore inside [`guarded`],
//! which turns the panic into [`ReadError::Damaged`]. After a failed write redb accepts no further
//! operations on the open file; the store then opens the file again, so that no restart is needed
//! once a full disk has space again.

mod apply;
mod commit;
mod journal_replay;
mod open;
#[cfg(test)]
mod power;
pub(crate) mod urgent;
mod writer;

use std::fmt;
use std::fs::File;
use std::ops::{Bound, Range, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex, Sequence};
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};

pub use open::{DiscardedJournal, OpenError, Options, discard_journal, resolve};
pub(crate) use open::{frozen_journal, open_frozen};

use crate::bundle::{Bundle, SealKey};
use crate::epochs::{EpochStore, Equivocation, Head, PutError, ReadError, Reply};
use crate::journal::Journal;
use crate::manifest::{ManifestKey, StoredManifest};
use crate::stored::{self, StoredSeal};
use crate::urgent::{StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace};
use apply::Pending;
use journal_replay::Withheld;
use open::Opened;
use writer::{Job, Writer};

/// Maps a [`SealKey`] to the head, followed by the body if it is short.
pub(crate) const SEALS: TableDefinition<'_, [u8; SealKey::LENGTH], &[u8]> =
    TableDefinition::new("seals");
/// Maps a [`SealKey`] and the number of a piece (u32, big-endian) to [`PIECE`] bytes of the body.
/// The last piece is shorter.
pub(crate) const PIECES: TableDefinition<'_, [u8; PIECE_KEY], &[u8]> =
    TableDefinition::new("pieces");
/// Maps a [`ManifestKey`] to the signed object.
pub(crate) const MANIFESTS: TableDefinition<'_, [u8; ManifestKey::LENGTH], &[u8]> =
    TableDefinition::new("manifests");
/// Maps a schema's digest to its encoding.
pub(crate) const SCHEMAS: TableDefinition<'_, [u8; 32], &[u8]> = TableDefinition::new("schemas");
/// The device and index (big-endian) of every index that has more than one seal.
pub(crate) const EQUIVOCATIONS: TableDefinition<'_, [u8; 12], ()> =
    TableDefinition::new("equivocations");
/// The devices whose epochs decrease along their indices, or that have two seals under one index.
pub(crate) const UNORDERED: TableDefinition<'_, [u8; 8], ()> = TableDefinition::new("unordered");

pub(crate) const PIECE_KEY: usize = SealKey::LENGTH + 4;
/// The length of a piece: two pages minus the space that redb needs for one entry of a leaf page,
/// which is 8 bytes plus the length of the key.
pub(crate) const PIECE: usize = 2 * 4096 - 64;
/// The maximum number of bytes that are reserved before the pieces of a body are read.
const RESERVED: u64 = 1 << 20;
/// The maximum length of a row that contains both head and body: also two pages.
pub(crate) const ROW: usize = PIECE;

pub(crate) fn piece_key(key: &SealKey, number: u32) -> [u8; PIECE_KEY] {
    let mut bytes = [0; PIECE_KEY];
    bytes[..SealKey::LENGTH].copy_from_slice(&key.to_bytes());
    bytes[SealKey::LENGTH..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The maximum number of pieces of one body, which allows bodies of 512 GiB.
pub(crate) const PIECES_OF_A_BODY: u32 = 1 << 26;

/// Returns the number of the first piece of a body. If a pruned tree receives more levels, its body
/// changes, but a reader may still be reading the old one. The piece numbers of a body therefore
/// depend on the lowest round that the tree keeps. There are 33 possible rounds.
pub(crate) fn first_piece(tree_from: Option<Round>) -> u32 {
    tree_from.map_or(0, |from| u32::from(from.0) * PIECES_OF_A_BODY)
}

/// Returns the range of all keys of a device between two indices, inclusive.
pub(crate) fn keys(
    device: DeviceId,
    from: SealIndex,
    to: SealIndex,
) -> RangeInclusive<[u8; SealKey::LENGTH]> {
    let key = |index, digest| SealKey { device, index, digest }.to_bytes();
    key(from, Digest([0; 32]))..=key(to, Digest([0xff; 32]))
}

/// An embedded store: one file, and its journal while it is open.
///
/// Dropping it stores the queued batches, removes the journal and closes the file.
pub struct RedbStore {
    shared: Arc<Shared>,
    // Dropping the writer ends its threads, so it must be dropped before `shared`.
    writer: Writer,
    torn_bytes: u64,
}

/// The state that readers and the two writing threads share. Locks are acquired in the order
/// journal, database, state.
struct Shared {
    /// The path of the store, for messages.
    name: String,
    options: Options,
    path: std::path::PathBuf,
    /// The store's file, for the records in its first page.
    file: File,
    /// `None` only if the file could not be opened again after a failed write.
    database: RwLock<Option<Database>>,
    /// `None` once the store is closed.
    journal: Mutex<Option<Journal>>,
    state: Mutex<State>,
    /// Notified when a batch is queued or the store closes.
    queued: Condvar,
    /// Notified when batches should be applied or the store closes.
    due: Condvar,
    /// Notified when batches were applied.
    applied: Condvar,
    /// The number of batches that are in the journal but not yet applied.
    unapplied: AtomicU64,
    /// Whether any batch is [`Withheld`].
    withholding: AtomicBool,
}

/// The batches that were accepted but are not yet in the tables.
#[derive(Default)]
struct State {
    queue: Vec<Job>,
    /// The number of queued jobs at which to wake the writer, if it sleeps and has not been woken
    /// yet.
    awaited: Option<usize>,
    /// The bytes of the jobs that are queued or being journaled.
    queued_bytes: usize,
    pending: Vec<Pending>,
    /// The bytes of the batches that are pending or being applied.
    pending_bytes: usize,
    /// When the oldest pending batch was journaled.
    since: Option<Instant>,
    /// Three numbers of batches since the store was opened: how many have been journaled, how many
    /// of these have been applied, and how many must be applied for the callers that wait.
    journaled: u64,
    applied: u64,
    wanted: u64,
    withheld: Withheld,
    /// Whether a batch was rejected after it was journaled, because it could not be applied. The
    /// writer's cached data may then be wrong.
    distrusted: bool,
    /// Why the file cannot be written, or `None` if it can.
    held: Option<PutError>,
    /// Whether the store rejects new batches because it is closing.
    closing: bool,
    /// Whether the journaling thread has ended.
    ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedbStore {
    /// Opens a store, or creates one if the file does not exist and the options allow it. Applies
    /// the batches that a crash left in the journal. If the disk has no space for them, applies them
    /// in memory: they can be read, and the store accepts no new batches until the disk has space
    /// ([`is_full`](Self::is_full)).
    ///
    /// If the store was not closed, because the process or the machine died, this reads the whole
    /// file once. [`Options::on_recovery`] receives the progress.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let path = &resolve(path)?;
        let opened =
            open::open(path, &options).and_then(|database| open::journal(path, database, &options));
        let Opened { database, journal, withheld, held } = match opened {
            Err(OpenError::DiskFull(full)) => {
                open::on_full_disk(path, &options).map_err(|_| OpenError::DiskFull(full))?
            }
            opened => opened?,
        };
        let torn_bytes = journal.torn_bytes();
        let file = open::writable(path).map_err(|error| OpenError::io(path, &error))?;
        let shared = Arc::new(Shared {
            file,
            name: path.display().to_string(),
            options,
            path: path.to_owned(),
            database: RwLock::new(Some(database)),
            journal: Mutex::new(Some(journal)),
            withholding: AtomicBool::new(!withheld.is_empty()),
            state: Mutex::new(State { withheld, held, ..State::default() }),
            queued: Condvar::new(),
            due: Condvar::new(),
            applied: Condvar::new(),
            unapplied: AtomicU64::new(0),
        });
        let writer =
            Writer::start(Arc::clone(&shared)).map_err(|error| OpenError::io(path, &error))?;
        Ok(Self { shared, writer, torn_bytes })
    }

    /// Returns whether the store currently accepts no batches because the disk has no space for
    /// those that it has acknowledged.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.shared.state().held, Some(PutError::DiskFull { .. }))
    }

    /// Returns the length of the incomplete write at the end of the journal that was dropped when
    /// the store was opened, in bytes. Usually a crash interrupted the write, and nothing of it was
    /// acknowledged. After a power loss, damage to the last acknowledged batches can look the same.
    #[must_use]
    pub const fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Waits until everything acknowledged so far is in the tables, for one device or for all
    /// devices (`None`), then reads them.
    fn read<T>(
        &self,
        device: Option<DeviceId>,
        read: impl FnOnce(&ReadTransaction) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.shared.settle(device)?;
        let database = self.shared.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(ReadError::Closed)?;
        guarded(|| read(&database.begin_read()?))
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

/// Runs a read and turns a panic of redb into an error. Only a damaged file makes redb panic.
///
/// The interrupted transaction is dropped; redb keeps no other state of a reader.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(damaged("a page of the file is damaged")))
}

pub(crate) fn damaged(what: &str) -> ReadError {
    ReadError::Damaged { key: None, what: what.to_owned() }
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Corrupted(what) => damaged(&what),
            StorageError::DatabaseClosed => Self::Closed,
            other => Self::Failed { what: other.to_string() },
        }
    }
}

impl From<redb::TransactionError> for ReadError {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Failed { what: other.to_string() },
        }
    }
}

impl From<redb::TableError> for ReadError {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => error.into(),
            other => damaged(&other.to_string()),
        }
    }
}

/// Decodes a row of the table of seals.
pub(crate) fn decode(key: [u8; SealKey::LENGTH], row: &[u8]) -> Result<StoredSeal, ReadError> {
    let key = SealKey::from_bytes(&key);
    StoredSeal::decode(&key, row)
        .ok_or_else(|| ReadError::damaged(key, "its head is not the one that was stored"))
}

fn epoch_of(key: [u8; SealKey::LENGTH], row: &[u8]) -> Result<EpochNumber, ReadError> {
    stored::epoch(row)
        .ok_or_else(|| ReadError::damaged(SealKey::from_bytes(&key), "its head is truncated"))
}

/// Reads a range of a body.
///
/// The seal may have received more levels since its head was read. If it is a star, its stored body
/// then continues after the range that this head describes. If it is a tree, the pieces of the old
/// body are still stored, because the new body has other piece numbers.
pub(crate) fn read_body(
    pieces: &impl ReadableTable<[u8; PIECE_KEY], &'static [u8]>,
    seal: &StoredSeal,
    range: Range<u64>,
) -> Result<Vec<u8>, ReadError> {
    let key = seal.key();
    let missing = || ReadError::damaged(key, "a piece of its events is missing");
    if range.start > range.end || range.end > seal.body_length() {
        return Err(ReadError::damaged(key, "its events are truncated"));
    }
    if range.is_empty() {
        return Ok(Vec::new());
    }
    #[allow(clippy::cast_possible_truncation)]
    if let Some(body) = seal.inline_body() {
        return Ok(body[range.start as usize..range.end as usize].to_vec());
    }
    let piece = PIECE as u64;
    let number = |at: u64| {
        u32::try_from(at / piece)
            .ok()
            .filter(|number| *number < PIECES_OF_A_BODY)
            .ok_or_else(missing)
    };
    let (first, last) = (number(range.start)?, number(range.end - 1)?);
    let base = first_piece(seal.tree_from());
    // A row only claims the length, so it must not determine how much memory is reserved.
    let reserved = (range.end - range.start).min(RESERVED);
    let mut body = Vec::with_capacity(usize::try_from(reserved).unwrap_or(0));
    for (expected, entry) in
        (first..).zip(pieces.range(piece_key(&key, base + first)..=piece_key(&key, base + last))?)
    {
        let (found, value) = entry?;
        let (start, end) = (
            u64::from(expected) * piece,
            ((u64::from(expected) + 1) * piece).min(seal.body_length()),
        );
        let length = value.value().len() as u64;
        let may_go_on = seal.kept_from().0 > 0 && seal.tree_from().is_none();
        let fits = length == end - start || (length > end - start && may_go_on);
        if found.value() != piece_key(&key, base + expected) || !fits {
            return Err(missing());
        }
        #[allow(clippy::cast_possible_truncation)]
        let part = (range.start.max(start) - start) as usize..(range.end.min(end) - start) as usize;
        body.extend_from_slice(&value.value()[part]);
    }
    if body.len() as u64 == range.end - range.start { Ok(body) } else { Err(missing()) }
}

impl EpochStore for RedbStore {
    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        self.writer.submit(batch.into(), reply)
    }

    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError> {
        self.writer.submit(manifests.into(), reply)
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        self.writer.submit(events.into(), reply)
    }

    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        self.read(None, |transaction| urgent::page(transaction, after, limits, select))
    }

    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        self.read(None, |transaction| urgent::at(transaction, place, limit))
    }

    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError> {
        self.read(None, |transaction| urgent::bytes_of(transaction, device))
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        let lowest =
            |epoch| Bound::Included(ManifestKey { epoch, digest: Digest([0; 32]) }.to_bytes());
        let from = match after {
            Some(after) if after.epoch >= since => Bound::Excluded(after.to_bytes()),
            _ => lowest(since),
        };
        self.read(None, |transaction| {
            let mut found = Vec::new();
            for entry in transaction
                .open_table(MANIFESTS)?
                .range::<[u8; ManifestKey::LENGTH]>((from, Bound::Unbounded))?
            {
                let (key, value) = entry?;
                let key = ManifestKey::from_bytes(&key.value());
                if found.len() == limit || until.is_some_and(|until| key.epoch >= until) {
                    break;
                }
                found.push(StoredManifest { key, bytes: value.value().to_vec() });
            }
            Ok(found)
        })
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        self.read(None, |transaction| {
            let seals = transaction.open_table(SEALS)?;
            let mut heads = Vec::new();
            let mut from = match after {
                Some(after) => next_device(after),
                None => Some(DeviceId([0; 8])),
            };
            while let Some(at) = from.filter(|_| heads.len() < limit) {
                let Some(first) =
                    seals.range(*keys(at, SealIndex(0), SealIndex(0)).start()..)?.next()
                else {
                    break;
                };
                let device = SealKey::from_bytes(&first?.0.value()).device;
                let newest =
                    seals.range(keys(device, SealIndex(0), SealIndex(u32::MAX)))?.next_back();
                let (key, row) =
                    newest.ok_or_else(|| damaged("the seals of a device are missing"))??;
                let epoch = epoch_of(key.value(), row.value())?;
                heads.push(Head { key: SealKey::from_bytes(&key.value()), epoch });
                from = next_device(device);
            }
            Ok(heads)
        })
    }

    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(Some(device), |transaction| {
            let seals = transaction.open_table(SEALS)?;
            collect(&seals, keys(device, from, SealIndex(u32::MAX)), limit)
        })
    }

    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(Some(device), |transaction| {
            let seals = transaction.open_table(SEALS)?;
            let ordered = transaction.open_table(UNORDERED)?.get(device.0)?.is_none();
            let from =
                if ordered { bisect(&seals, device, since)? } else { scan(&seals, device, since)? };
            from.map_or(Ok(Vec::new()), |from| {
                collect(&seals, keys(device, from, SealIndex(u32::MAX)), limit)
            })
        })
    }

    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(Some(device), |transaction| {
            collect(&transaction.open_table(SEALS)?, keys(device, index, index), usize::MAX)
        })
    }

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        if seal.inline_body().is_some() {
            // The body was read together with the head.
            let start = usize::try_from(range.start).unwrap_or(usize::MAX);
            let end = usize::try_from(range.end).unwrap_or(usize::MAX);
            let part = seal.inline_body().and_then(|body| body.get(start..end));
            return part
                .map(<[u8]>::to_vec)
                .ok_or_else(|| ReadError::damaged(seal.key(), "its events are truncated"));
        }
        self.read(Some(seal.key().device), |transaction| {
            read_body(&transaction.open_table(PIECES)?, seal, range)
        })
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.read(None, |transaction| {
            Ok(transaction.open_table(SCHEMAS)?.get(digest.0)?.map(|value| value.value().to_vec()))
        })
    }

    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        self.read(None, |transaction| {
            let table = transaction.open_table(EQUIVOCATIONS)?;
            let seals = transaction.open_table(SEALS)?;
            let after = after.map(|(device, index)| index_key(device, index));
            let mut found = Vec::new();
            for entry in table.range(after.unwrap_or([0; 12])..)? {
                let key = entry?.0.value();
                if Some(key) == after {
                    continue;
                }
                if found.len() == limit {
                    break;
                }
                let (device, index) = index_of(&key);
                let digests = seals
                    .range(keys(device, index, index))?
                    .map(|entry| Ok(SealKey::from_bytes(&entry?.0.value()).digest));
                found.push(Equivocation {
                    device,
                    index,
                    digests: digests.collect::<Result<_, ReadError>>()?,
                });
            }
            Ok(found)
        })
    }
}

pub(crate) fn index_key(device: DeviceId, index: SealIndex) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&device.0);
    key[8..].copy_from_slice(&index.0.to_be_bytes());
    key
}

pub(crate) fn index_of(key: &[u8; 12]) -> (DeviceId, SealIndex) {
    let mut device = DeviceId([0; 8]);
    device.0.copy_from_slice(&key[..8]);
    (device, SealIndex(u32::from_be_bytes([key[8], key[9], key[10], key[11]])))
}

fn next_device(device: DeviceId) -> Option<DeviceId> {
    u64::from_be_bytes(device.0).checked_add(1).map(|next| DeviceId(next.to_be_bytes()))
}

fn collect(
    seals: &impl ReadableTable<[u8; SealKey::LENGTH], &'static [u8]>,
    range: RangeInclusive<[u8; SealKey::LENGTH]>,
    limit: usize,
) -> Result<Vec<StoredSeal>, ReadError> {
    let mut found = Vec::new();
    for entry in seals.range(range)?.take(limit) {
        let (key, row) = entry?;
        found.push(decode(key.value(), row.value())?);
    }
    Ok(found)
}

/// Returns the lowest index of a device whose epoch is at least `since`, if the device's epochs
/// never decrease with its indices.
fn bisect(
    seals: &impl ReadableTable<[u8; SealKey::LENGTH], &'static [u8]>,
    device: DeviceId,
    since: EpochNumber,
) -> Result<Option<SealIndex>, ReadError> {
    // All seals with an index below `low` have an epoch before `since`. No seal with an index of at
    // least `high` has an epoch before `since`.
    let (mut low, mut high, mut found) = (0u64, 1u64 << 32, None);
    while low < high {
        let middle = low + (high - low) / 2;
        #[allow(clippy::cast_possible_truncation)]
        let next = seals.range(keys(device, SealIndex(middle as u32), SealIndex(u32::MAX)))?.next();
        let Some(entry) = next else {
            high = middle;
            continue;
        };
        let (key, row) = entry?;
        let index = SealKey::from_bytes(&key.value()).index;
        if epoch_of(key.value(), row.value())? < since {
            low = u64::from(index.0) + 1;
        } else {
            found = Some(index);
            high = middle;
        }
    }
    Ok(found)
}

fn scan(
    seals: &impl ReadableTable<[u8; SealKey::LENGTH], &'static [u8]>,
    device: DeviceId,
    since: EpochNumber,
) -> Result<Option<SealIndex>, ReadError> {
    for entry in seals.range(keys(device, SealIndex(0), SealIndex(u32::MAX)))? {
        let (key, row) = entry?;
        if epoch_of(key.value(), row.value())? >= since {
            return Ok(Some(SealKey::from_bytes(&key.value()).index));
        }
    }
    Ok(None)
}
