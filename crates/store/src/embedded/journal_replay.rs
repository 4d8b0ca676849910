//! Applies the records of a journal to the tables when a store is opened, or opened again after a
//! failed write.

use std::collections::HashSet;

use moteseal_core::record::DeviceId;
use redb::Database;

use super::commit::{Known, write};
use crate::batch::Batch;
use crate::epochs::PutError;
use crate::journal::{Journal, JournalError};

/// The number of pending bytes that triggers a transaction.
pub(super) const BYTES: usize = 4 << 20;

/// Acknowledged batches that cannot be applied to the tables because of a damaged page.
#[derive(Default)]
pub(super) struct Withheld {
    pub(super) devices: HashSet<DeviceId>,
    /// Whether these batches contain manifests.
    pub(super) manifests: bool,
    /// The batches, encoded as in the journal.
    pub(super) records: Vec<Vec<u8>>,
}

impl Withheld {
    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty() && !self.manifests
    }

    pub(super) fn add(&mut self, batch: &Batch) {
        self.devices.extend(batch.bundles.iter().map(|bundle| bundle.key.device));
        self.devices.extend(batch.events.iter().map(|event| event.key.device));
        self.manifests |= !batch.manifests.is_empty();
        self.records.extend(batch.encode());
    }

    /// Removes all records from the journal except these batches.
    pub(super) fn empty(&self, journal: &mut Journal) -> Result<(), JournalError> {
        if self.records.is_empty() {
            journal.reset()
        } else {
            journal.compact(self.records.iter().map(Vec::as_slice))
        }
    }
}

/// Why a journal could not be applied.
pub(super) enum Failure {
    /// The journal could not be read.
    Journal(JournalError),
    /// The record with this number (from 0) is complete but is not a batch.
    NotABatch(u64),
    /// The store's file could not be written.
    Unwritable(PutError),
}

/// Applies the first `count` records of a journal; batches that are already in the tables change
/// nothing. Returns the batches that cannot be applied because of a damaged page.
pub(super) fn replay(
    database: &Database,
    store: &str,
    known: &mut Known,
    journal: &Journal,
    count: usize,
) -> Result<Withheld, Failure> {
    let mut withheld = Withheld::default();
    let mut batches: Vec<Batch> = Vec::new();
    let mut bytes = 0;
    let mut write_all = |batches: &mut Vec<Batch>| {
        let results = write(database, store, false, known, &batches.iter().collect::<Vec<_>>());
        for (batch, result) in batches.iter().zip(results.map_err(Failure::Unwritable)?) {
            if result.is_err() {
                withheld.add(batch);
            }
        }
        batches.clear();
        Ok(())
    };
    for (number, record) in (0..).zip(journal.iter().take(count)) {
        let record = record.map_err(Failure::Journal)?;
        bytes += record.len();
        batches.push(Batch::decode(&record).ok_or(Failure::NotABatch(number))?);
        if bytes >= BYTES {
            write_all(&mut batches)?;
            bytes = 0;
        }
    }
    write_all(&mut batches)?;
    Ok(withheld)
}
