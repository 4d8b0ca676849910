//! Records and seals live readings. A reading counts as recorded when it is durable. Its seal
//! becomes durable when the seal's epoch has ended.
//!
//! A journal contains the readings of the open seal. The [`Outbox`] contains the signed bundles and
//! the state of the chain. After a crash, [`Recorder::open`] recovers the readings from the
//! journal. Their seal was opened but never signed, so they are sealed under the next index, with
//! the statement that the device restarted. If the crash happened after the bundle was written to
//! the outbox and before the journal was emptied, the journal and the bundle both contain the
//! readings. The journal stores the index of the seal before its readings, so the recorder
//! recognises that they are already sealed.
//!
//! A recorder refuses schemas with encrypted columns, because its journal has the readings in plaintext.
//!
//! The journal has two kinds of records: `0, device (8), index (4), schema digest (32)` when a seal
//! is opened, and `1, epoch (8), record` for each of the seal's readings. Numbers are big-endian;
//! lengths in bytes are in parentheses.

use std::path::{Path, PathBuf};
use std::slice;

use moteseal_api::ErrorKind;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;

use crate::outbox::{Outbox, OutboxError};
use crate::seal::{Bundle, Profile, SealRefused, Sealer};

/// Why a reading was not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The chain does not accept the reading.
    #[error(transparent)]
    Refused(#[from] SealRefused),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The outbox failed.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The file is the journal of another device, or not the journal of a recorder.
    #[error("{} is not a journal of this device; give another file with --journal", .0.display())]
    NotThisDevice(PathBuf),
    /// The journal contains readings with another schema that are not sealed yet.
    #[error(
        "{} holds readings with other columns that are not sealed yet; run once more with \
         those columns, or move the file away to discard the readings",
        .0.display()
    )]
    OtherSchema(PathBuf),
    /// The schema has encrypted columns, which the journal of a recorder cannot hold.
    #[error(
        "a replay cannot keep readings with encrypted columns in its journal; seal the table with \
         `moteseal seal`"
    )]
    ReplayEncrypted,
}

impl RecordError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused(error) => error.name(),
            Self::Journal(error) => error.name(),
            Self::Outbox(error) => error.name(),
            Self::NotThisDevice(_) => "OtherDevice",
            Self::OtherSchema(_) => "OtherSchema",
            Self::ReplayEncrypted => "ReplayEncrypted",
        }
    }

    /// Returns [`Internal`](ErrorKind::Internal) if the journal or the outbox could not be read or
    /// written, and [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(_) | Self::Outbox(OutboxError::Io { .. }) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(RecordError);

/// What [`Recorder::open`] found in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of recovered readings. Their seal was never signed; they are sealed under the
    /// next index.
    pub readings: u64,
    /// Whether there was an unsigned seal. In that case the next seal states that the device
    /// restarted.
    pub restarted: bool,
}

/// Returns the number of readings in a journal that an earlier recorder did not seal; 0 if there is
/// no journal. Seal these readings first: a seal that is made without the journal would skip them.
///
/// # Errors
/// [`RecordError`].
pub fn unsealed_readings<K: Signer>(
    journal: &Path,
    sealer: &Sealer<K>,
) -> Result<u64, RecordError> {
    if !journal.exists() {
        return Ok(0);
    }
    Ok(unsealed(&Journal::open(journal)?, journal, sealer)?.len() as u64)
}

/// Records readings one by one.
#[derive(Debug)]
pub struct Recorder<K> {
    sealer: Sealer<K>,
    outbox: Outbox,
    journal: Journal,
    /// A bundle that is signed but not stored. No other seal may be signed under its index, so this
    /// bundle must be stored before anything else.
    unstored: Option<Bundle>,
    /// The file of a bundle that a failed call has stored but could not return.
    unreported: Option<PathBuf>,
    /// Whether all readings in the journal are sealed and stored.
    stale: bool,
}

impl<K: Signer> Recorder<K> {
    /// Continues where the device stopped. `sealer` must be at the position that `outbox` returned
    /// when it was opened. Creates the journal if it is missing. Readings stay in the journal until
    /// they are in a stored bundle.
    ///
    /// # Errors
    /// [`RecordError`]. The readings are still in the journal.
    pub fn open(
        sealer: Sealer<K>,
        outbox: Outbox,
        journal: &Path,
    ) -> Result<(Self, Recovered), RecordError> {
        if sealer.profile().columns.is_some() {
            return Err(RecordError::ReplayEncrypted);
        }
        let path = journal;
        let journal = Journal::open(path)?;
        let left = unsealed(&journal, path, &sealer)?;
        let recovered =
            Recovered { readings: left.len() as u64, restarted: sealer.chain().restarted() };
        let stale = left.is_empty();
        let mut recorder =
            Self { sealer, outbox, journal, unstored: None, unreported: None, stale };
        recorder.take_again(&left)?;
        recorder.settle()?;
        Ok((recorder, recovered))
    }

    /// Records the readings of an earlier process again. Atomically replaces the journal with one
    /// that contains the readings under new indices.
    fn take_again(&mut self, left: &[Reading]) -> Result<(), RecordError> {
        let Some(first) = left.first() else { return Ok(()) };
        for reading in left {
            self.sealer.check_record(&reading.record)?;
            self.sealer.check(reading.epoch)?;
        }
        if let Some(opened) = self.sealer.would_open(first.epoch, first.record.len()) {
            self.outbox.persist(&opened)?;
        }
        // The readings may need more than one seal, because the limits may be lower than before.
        let profile = self.sealer.profile();
        let mut entries: Vec<Vec<u8>> = Vec::with_capacity(left.len() + 1);
        let (mut index, mut open) = (self.sealer.chain().next_index, None);
        for Reading { epoch, record } in left {
            let (count, bytes) = match open {
                Some((of, count, bytes))
                    if of == *epoch && !profile.is_full(count, bytes, record.len()) =>
                {
                    (count, bytes)
                }
                _ => {
                    index = SealIndex(index.0.saturating_add(u32::from(open.is_some())));
                    entries.push(opening(profile, index));
                    (0, 0)
                }
            };
            open = Some((*epoch, count + 1, bytes + profile.framed(record.len())));
            entries.push(taking(*epoch, record));
        }
        self.journal.compact(entries.iter().map(Vec::as_slice))?;
        for Reading { epoch, record } in left {
            if let Some(open) = self.sealer.epoch()
                && self.sealer.would_open(*epoch, record.len()).is_some()
            {
                // Keep the sealed readings in the journal, because the readings of the next seal
                // follow them.
                if let Some(bundle) = self.sealer.close(open < *epoch)? {
                    self.outbox.store(slice::from_ref(&bundle), &mut |_| {})?;
                }
                if let Some(opened) = self.sealer.would_open(*epoch, record.len()) {
                    self.outbox.persist(&opened)?;
                }
            }
            self.sealer.push(*epoch, record)?;
        }
        Ok(())
    }

    /// Returns the outbox.
    #[must_use]
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Returns the epoch of the open seal, if a seal is open.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.sealer.epoch()
    }

    /// Returns the epoch of the newest seal, signed or open, and how many readings of that epoch
    /// are sealed or in the journal. Returns `None` before the first seal.
    #[must_use]
    pub fn taken(&self) -> Option<(EpochNumber, u64)> {
        self.sealer.taken()
    }

    /// Records a reading. The reading is durable after the next [`sync`](Self::sync). Returns the
    /// file of the previous seal if this reading starts a new seal.
    ///
    /// # Errors
    /// [`RecordError`]. The reading was not recorded, and the call can be repeated.
    pub fn record(
        &mut self,
        epoch: EpochNumber,
        record: &[u8],
    ) -> Result<Option<PathBuf>, RecordError> {
        self.settle()?;
        self.sealer.check_record(record)?;
        if self.sealer.would_open(epoch, record.len()).is_some() {
            self.sealer.check(epoch)?;
            self.seal(self.sealer.epoch().is_some_and(|open| open < epoch))?;
            if let Some(opened) = self.sealer.would_open(epoch, record.len()) {
                self.outbox.persist(&opened)?;
                let index = SealIndex(opened.next_index.0 - 1);
                self.journal.append(&opening(self.sealer.profile(), index))?;
            }
        }
        // The checks above ensure that the sealer accepts the reading. Only writing to the journal
        // can fail.
        self.journal.append(&taking(epoch, record))?;
        self.sealer.push(epoch, record)?;
        Ok(self.unreported.take())
    }

    /// Makes all recorded readings durable.
    ///
    /// # Errors
    /// `Journal`.
    pub fn sync(&mut self) -> Result<(), RecordError> {
        Ok(self.journal.sync()?)
    }

    /// Seals the open readings, if there are any, and returns the file of the bundle.
    /// `last_in_epoch` states that no later seal will cover the same epoch.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn close(&mut self, last_in_epoch: bool) -> Result<Option<PathBuf>, RecordError> {
        self.settle()?;
        self.seal(last_in_epoch)?;
        Ok(self.unreported.take())
    }

    fn seal(&mut self, last_in_epoch: bool) -> Result<(), RecordError> {
        // From here on, the sealer's chain includes the bundle, even if storing the bundle fails.
        self.unstored = self.sealer.close(last_in_epoch)?;
        self.settle()
    }

    /// Completes an earlier call that failed: stores the signed bundle, and removes the sealed
    /// readings from the journal.
    fn settle(&mut self) -> Result<(), RecordError> {
        if let Some(bundle) = &self.unstored {
            self.unreported = self.outbox.store(slice::from_ref(bundle), &mut |_| {})?.pop();
            self.unstored = None;
            self.stale = true;
        }
        if self.stale {
            self.journal.reset()?;
            self.stale = false;
        }
        Ok(())
    }
}

/// A durable reading that was never sealed.
struct Reading {
    epoch: EpochNumber,
    record: Vec<u8>,
}

/// Returns the readings in a journal that no signed seal covers.
fn unsealed<K: Signer>(
    journal: &Journal,
    path: &Path,
    sealer: &Sealer<K>,
) -> Result<Vec<Reading>, RecordError> {
    let foreign = || RecordError::NotThisDevice(path.to_owned());
    let profile = sealer.profile();
    let signed = sealer.chain().position.last.map(|(index, _)| index);
    let mut left = Vec::new();
    // Whether the seal of the readings that follow is signed, and the digest of its schema.
    let mut seal: Option<(bool, Vec<u8>)> = None;
    for entry in journal.iter() {
        let entry = entry?;
        if let Some((device, index, schema)) = opening_of(&entry) {
            if device != profile.device {
                return Err(foreign());
            }
            seal = Some((signed.is_some_and(|signed| index <= signed), schema.to_vec()));
        } else {
            let (epoch, record) = taking_of(&entry).ok_or_else(foreign)?;
            let (is_sealed, schema) = seal.as_ref().ok_or_else(foreign)?;
            if *is_sealed {
                continue;
            }
            if *schema != profile.schema_digest.0 {
                return Err(RecordError::OtherSchema(path.to_owned()));
            }
            left.push(Reading { epoch, record: record.to_vec() });
        }
    }
    Ok(left)
}

fn opening(profile: &Profile, index: SealIndex) -> Vec<u8> {
    [&[0][..], &profile.device.0, &index.0.to_be_bytes(), &profile.schema_digest.0].concat()
}

fn opening_of(entry: &[u8]) -> Option<(DeviceId, SealIndex, &[u8; 32])> {
    let (device, rest) = entry.strip_prefix(&[0])?.split_first_chunk()?;
    let (index, schema) = rest.split_first_chunk()?;
    Some((DeviceId(*device), SealIndex(u32::from_be_bytes(*index)), schema.try_into().ok()?))
}

fn taking(epoch: EpochNumber, record: &[u8]) -> Vec<u8> {
    [&[1][..], &epoch.0.to_be_bytes(), record].concat()
}

fn taking_of(entry: &[u8]) -> Option<(EpochNumber, &[u8])> {
    let (epoch, record) = entry.strip_prefix(&[1])?.split_first_chunk()?;
    Some((EpochNumber(u64::from_be_bytes(*epoch)), record))
}
