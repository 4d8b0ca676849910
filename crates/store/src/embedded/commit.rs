//! Writes batches to the tables in one transaction, and handles its failure.
//!
//! All pending batches share one transaction. If it encounters a damaged page, each batch gets its
//! own transaction, so that only the batches that need the page fail. The effect of a transaction
//! without a sync is visible at once, but a crash may undo it. The batches are then still in the
//! journal.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table};

use super::{
    EQUIVOCATIONS, MANIFESTS, PIECE, PIECES, ROW, SCHEMAS, SEALS, UNORDERED, first_piece, guarded,
    index_key, keys, piece_key, urgent,
};
use crate::batch::Batch;
use crate::bundle::{Bundle, SealKey};
use crate::epochs::{PutError, Receipt};
use crate::journal::is_full;
use crate::manifest::{ManifestKey, StoredManifest};
use crate::stored;

/// A batch could not be written because of a damaged page that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// Writes batches in their order, and returns a result for each. An error means that the file could
/// not be written and that redb accepts no further writes. Data that was not synced is then missing
/// from the file.
pub(super) fn write(
    database: &Database,
    store: &str,
    sync: bool,
    known: &mut Known,
    batches: &[&Batch],
) -> Result<Vec<Result<Receipt, Damaged>>, PutError> {
    let written = if can_be_placed(database, known, batches) {
        attempt(database, store, sync, known, batches)
    } else {
        Ok(None)
    };
    if let Ok(Some(receipts)) = written {
        return Ok(receipts.into_iter().map(Ok).collect());
    }
    *known = Known::default();
    written?;
    if batches.len() <= 1 {
        return Ok(batches.iter().map(|_| Err(Damaged)).collect());
    }
    let mut results = Vec::with_capacity(batches.len());
    for batch in batches {
        results.append(&mut write(database, store, sync, known, std::slice::from_ref(batch))?);
    }
    Ok(results)
}

/// Makes everything written so far durable. Returns `false` if a damaged page prevents it.
pub(super) fn sync(database: &Database, store: &str) -> Result<bool, PutError> {
    Ok(attempt(database, store, true, &mut Known::default(), &[])?.is_some())
}

/// Returns whether the pages that the batches need can be read. Reads the rows next to the
/// positions where the first bundles of devices will be inserted, and likewise for schemas, long
/// bodies, manifests and urgent events.
///
/// A commit would also encounter a damaged page, but redb would then panic in the middle of its own
/// write and could not close the file cleanly.
fn can_be_placed(database: &Database, known: &Known, batches: &[&Batch]) -> bool {
    let manifests = || batches.iter().flat_map(|batch| &batch.manifests);
    let events = || batches.iter().flat_map(|batch| &batch.events);
    let needed = |bundle: &&Bundle| {
        !known.heads.contains_key(&bundle.key.device)
            || !known.schemas.contains(&bundle.schema.digest)
            || bundle.stored_bytes() > ROW
    };
    let mut first = batches.iter().flat_map(|batch| &batch.bundles).filter(needed).peekable();
    if first.peek().is_none() && manifests().next().is_none() && events().next().is_none() {
        return true;
    }
    guarded(|| {
        let transaction = database.begin_read()?;
        let (seals, schemas) = (transaction.open_table(SEALS)?, transaction.open_table(SCHEMAS)?);
        let pieces = transaction.open_table(PIECES)?;
        for bundle in first {
            let key = bundle.key.to_bytes();
            seals.range(..key)?.next_back().transpose()?;
            seals.range(key..)?.next().transpose()?;
            schemas.get(bundle.schema.digest.0)?;
            if bundle.stored_bytes() > ROW {
                let key = piece_key(&bundle.key, first_piece(bundle.tree_from));
                pieces.range(..key)?.next_back().transpose()?;
                pieces.range(key..)?.next().transpose()?;
            }
        }
        urgent::probe(&transaction, events())?;
        if manifests().next().is_some() {
            let table = transaction.open_table(MANIFESTS)?;
            for manifest in manifests() {
                let key = manifest.key.to_bytes();
                table.range(..key)?.next_back().transpose()?;
                table.range(key..)?.next().transpose()?;
            }
        }
        Ok(())
    })
    .is_ok()
}

/// Runs one transaction. Returns `None` if a damaged page stopped it.
fn attempt(
    database: &Database,
    store: &str,
    sync: bool,
    known: &mut Known,
    batches: &[&Batch],
) -> Result<Option<Vec<Receipt>>, PutError> {
    match catch_unwind(AssertUnwindSafe(|| commit(database, sync, known, batches))) {
        Ok(Ok(receipts)) => Ok(Some(receipts)),
        Ok(Err(redb::Error::Io(error))) if is_full(error.kind()) => {
            Err(PutError::DiskFull { store: store.to_owned() })
        }
        Ok(Err(redb::Error::Corrupted(_))) | Err(_) => Ok(None),
        Ok(Err(other)) => {
            Err(PutError::Failed { store: store.to_owned(), what: other.to_string() })
        }
    }
}

/// A cache of the store's schemas and newest seals, which avoids lookups for each bundle.
#[derive(Default)]
pub(super) struct Known {
    schemas: HashSet<Digest>,
    /// The newest seal of each device; `None` if the device has no seal.
    heads: HashMap<DeviceId, Option<(SealIndex, EpochNumber)>>,
}

type Seals<'t> = Table<'t, [u8; SealKey::LENGTH], &'static [u8]>;

/// Writes all batches in one transaction.
pub(super) fn commit(
    database: &Database,
    sync: bool,
    known: &mut Known,
    batches: &[&Batch],
) -> Result<Vec<Receipt>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(if sync { Durability::Immediate } else { Durability::None })?;
    let mut receipts = Vec::with_capacity(batches.len());
    {
        let mut seals = transaction.open_table(SEALS)?;
        // Opening a table is expensive, and most commits need only the table of seals.
        let mut pieces = None;
        let mut row = Vec::new();
        for batch in batches {
            let mut receipt = Receipt::default();
            for bundle in &batch.bundles {
                let key = bundle.key.to_bytes();
                let place = Place::of(&seals, known, bundle)?;
                // A body that is stored in pieces must stay in pieces, because readers may be
                // reading it.
                let mut in_pieces = bundle.stored_bytes() > ROW;
                let (device, index) = (bundle.key.device, bundle.key.index);
                if let Place::Known { equivocates: true }
                | Place::Between { equivocates: true, .. } = place
                {
                    receipt.add_equivocation(device, index);
                }
                if let Place::Known { .. } = place {
                    let row = seals.get(key)?;
                    let fewer = row
                        .as_ref()
                        .and_then(|row| stored::kept(row.value()))
                        .filter(|kept| bundle.adds_to(*kept));
                    let stored = row
                        .as_ref()
                        .filter(|_| fewer.is_some())
                        .map(|row| super::decode(key, row.value()));
                    let Some(stored) = stored else {
                        receipt.known += 1;
                        continue;
                    };
                    let stored =
                        stored.map_err(|error| redb::Error::Corrupted(error.to_string()))?;
                    in_pieces |= stored.body_length() > 0 && stored.inline_body().is_none();
                }
                if known.schemas.insert(bundle.schema.digest) {
                    let mut schemas = transaction.open_table(SCHEMAS)?;
                    if schemas.get(bundle.schema.digest.0)?.is_none() {
                        schemas.insert(bundle.schema.digest.0, &bundle.schema.bytes[..])?;
                    }
                }
                if !in_pieces {
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
                    for (number, piece) in
                        (first_piece(bundle.tree_from)..).zip(bundle.body.chunks(PIECE))
                    {
                        pieces.insert(piece_key(&bundle.key, number), piece)?;
                    }
                }
                receipt.stored += 1;
                if let Place::Between { equivocates, ordered } = place {
                    if equivocates {
                        transaction
                            .open_table(EQUIVOCATIONS)?
                            .insert(index_key(device, index), ())?;
                    }
                    if !ordered {
                        transaction.open_table(UNORDERED)?.insert(device.0, ())?;
                    }
                }
            }
            if !batch.manifests.is_empty() {
                put_manifests(
                    &mut transaction.open_table(MANIFESTS)?,
                    &batch.manifests,
                    &mut receipt,
                )?;
            }
            if !batch.events.is_empty() {
                // The table of schemas can be open only once.
                urgent::put(&transaction, &batch.events, &mut receipt)?;
            }
            receipts.push(receipt);
        }
    }
    // A one-phase commit needs only a single sync.
    transaction.set_two_phase_commit(false);
    transaction.commit()?;
    Ok(receipts)
}

/// Stores manifests, including several of one epoch.
fn put_manifests(
    table: &mut Table<'_, [u8; ManifestKey::LENGTH], &'static [u8]>,
    manifests: &[StoredManifest],
    receipt: &mut Receipt,
) -> Result<(), redb::Error> {
    for manifest in manifests {
        let key = manifest.key.to_bytes();
        let is_known = table.get(key)?.is_some();
        let of_epoch = |digest| ManifestKey { epoch: manifest.key.epoch, digest }.to_bytes();
        let of_epoch = table.range(of_epoch(Digest([0; 32]))..=of_epoch(Digest([0xff; 32])))?;
        for other in of_epoch.take(2) {
            if other?.0.value() != key {
                receipt.add_doubled(manifest.key.epoch);
            }
        }
        if is_known {
            receipt.known += 1;
            continue;
        }
        table.insert(key, &manifest.bytes[..])?;
        receipt.stored += 1;
    }
    Ok(())
}

/// The position of a bundle among the stored bundles of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The bundle's seal is already stored. `equivocates`: another seal has the same index.
    Known { equivocates: bool },
    /// After all other bundles of its device.
    Last,
    /// Anywhere else. `ordered`: the epochs still ascend with the indices.
    Between { equivocates: bool, ordered: bool },
}

impl Place {
    fn of(seals: &Seals<'_>, known: &mut Known, bundle: &Bundle) -> Result<Self, redb::Error> {
        let (device, index, epoch) = (bundle.key.device, bundle.key.index, bundle.epoch);
        let head = match known.heads.entry(device) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(neighbour(
                seals,
                keys(device, SealIndex(0), SealIndex(u32::MAX)),
                true,
            )?),
        };
        match head {
            Some((newest, last)) if *newest >= index || *last > epoch => {}
            head => {
                *head = Some((index, epoch));
                return Ok(Self::Last);
            }
        }
        let key = bundle.key.to_bytes();
        let mut equivocates = false;
        for entry in seals.range(keys(device, index, index))?.take(2) {
            equivocates |= entry?.0.value() != key;
        }
        if seals.get(key)?.is_some() {
            return Ok(Self::Known { equivocates });
        }
        let previous = match index.0.checked_sub(1) {
            Some(index) => neighbour(seals, keys(device, SealIndex(0), SealIndex(index)), true)?,
            None => None,
        };
        let next = match index.0.checked_add(1) {
            Some(next) => {
                neighbour(seals, keys(device, SealIndex(next), SealIndex(u32::MAX)), false)?
            }
            None => None,
        };
        // Seals with the same index have no defined order, so from now on the store searches this
        // device's seals one by one.
        let ordered = !equivocates
            && previous.is_none_or(|(_, previous)| previous <= epoch)
            && next.is_none_or(|(_, next)| epoch <= next);
        if head.is_none_or(|(newest, _)| newest < index) {
            *head = Some((index, epoch));
        }
        Ok(Self::Between { equivocates, ordered })
    }
}

/// Returns the first or the last seal of a range of keys.
fn neighbour(
    seals: &Seals<'_>,
    range: std::ops::RangeInclusive<[u8; SealKey::LENGTH]>,
    last: bool,
) -> Result<Option<(SealIndex, EpochNumber)>, redb::Error> {
    let mut range = seals.range(range)?;
    let entry = if last { range.next_back() } else { range.next() };
    let Some(entry) = entry else { return Ok(None) };
    let (key, row) = entry?;
    let epoch = stored::epoch(row.value())
        .ok_or_else(|| redb::Error::Corrupted("a head is truncated".to_owned()))?;
    Ok(Some((SealKey::from_bytes(&key.value()).index, epoch)))
}
