//! A device that senses now: every reading is durable before it counts as taken, and a seal when its epoch has passed.
//!
//! The readings of the open seal rest in a journal, signed bundles and the chain's state in the [`Outbox`]. After a crash
//! [`Recorder::open`] finds the readings again: their seal was opened and never signed, so they go under the next index, which
//! says that the device restarted (DESIGN section 5). A crash between the outbox and the journal leaves readings in both; the index at
//! the journal's start shows that they are sealed.

use std::fmt;
use std::path::{Path, PathBuf};

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;

use crate::outbox::{Outbox, OutboxError};
use crate::seal::{Bundle, SealRefused, Sealer};

/// Why a reading is not recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The reading does not fit the chain.
    Refused(SealRefused),
    /// The journal failed.
    Journal(JournalError),
    /// The outbox failed.
    Outbox(OutboxError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Outbox(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<SealRefused> for RecordError {
    fn from(error: SealRefused) -> Self {
        Self::Refused(error)
    }
}

impl From<JournalError> for RecordError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<OutboxError> for RecordError {
    fn from(error: OutboxError) -> Self {
        Self::Outbox(error)
    }
}

/// What a recorder found when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Readings of a seal that was never signed; they go under the next index.
    pub readings: u64,
    /// Whether that is so: the chain will say that the device restarted.
    pub restarted: bool,
}

/// Records readings one by one.
#[derive(Debug)]
pub struct Recorder<K> {
    sealer: Sealer<K>,
    outbox: Outbox,
    journal: Journal,
}

impl<K: Signer> Recorder<K> {
    /// Goes on where the device stopped. `sealer` stands where `outbox` says; the journal is made if there is none.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn open(sealer: Sealer<K>, outbox: Outbox, journal: &Path) -> Result<(Self, Recovered), RecordError> {
        let mut journal = Journal::open(journal)?;
        let entries: Vec<Vec<u8>> = journal.iter().collect::<Result<_, _>>()?;
        let signed = sealer.chain().position.last.map(|(index, _)| index);
        let left = match entries.split_first() {
            Some((head, readings)) if index_of(head).is_some_and(|index| signed.is_none_or(|signed| index > signed)) => readings,
            _ => &[],
        };
        let readings: Vec<(EpochNumber, &[u8])> = left.iter().filter_map(|entry| reading_of(entry)).collect();
        journal.reset()?;
        let restarted = sealer.chain().restarted();
        let mut recorder = Self { sealer, outbox, journal };
        let mut recovered = Recovered { readings: 0, restarted };
        for (epoch, record) in readings {
            recorder.record(epoch, record)?;
            recovered.readings += 1;
        }
        recorder.sync()?;
        Ok((recorder, recovered))
    }

    /// The outbox.
    #[must_use]
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The epoch of the seal that is open, if one is.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.sealer.epoch()
    }

    /// Takes a reading; it is durable after the next [`sync`](Self::sync). Hands out the file of the seal before, if this reading
    /// opened another one.
    ///
    /// # Errors
    /// [`RecordError`]; the reading was not taken.
    pub fn record(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<Option<PathBuf>, RecordError> {
        self.sealer.check_length(record.len())?;
        let mut stored = None;
        if self.sealer.would_open(epoch, record.len()).is_some() {
            self.sealer.check(epoch)?;
            stored = self.close(self.sealer.epoch().is_some_and(|open| open < epoch))?;
            if let Some(opened) = self.sealer.would_open(epoch, record.len()) {
                self.outbox.persist(&opened)?;
                let index = SealIndex(opened.next_index.0 - 1);
                self.journal.append(&index.0.to_be_bytes())?;
            }
        }
        self.sealer.push(epoch, record)?;
        self.journal.append(&[&epoch.0.to_be_bytes(), record].concat())?;
        Ok(stored)
    }

    /// Makes every reading taken so far durable.
    ///
    /// # Errors
    /// `Journal`.
    pub fn sync(&mut self) -> Result<(), RecordError> {
        Ok(self.journal.sync()?)
    }

    /// Seals what is open, if anything is, and hands out the bundle's file. `last_in_epoch` promises that no further seal will
    /// cover its epoch.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn close(&mut self, last_in_epoch: bool) -> Result<Option<PathBuf>, RecordError> {
        let Some(bundle): Option<Bundle> = self.sealer.close(last_in_epoch)? else { return Ok(None) };
        let mut paths = self.outbox.store(&[bundle], &mut |_| {})?;
        self.journal.reset()?;
        Ok(paths.pop())
    }
}

fn index_of(entry: &[u8]) -> Option<SealIndex> {
    entry.try_into().ok().map(|bytes| SealIndex(u32::from_be_bytes(bytes)))
}

fn reading_of(entry: &[u8]) -> Option<(EpochNumber, &[u8])> {
    let (epoch, record) = entry.split_first_chunk()?;
    Some((EpochNumber(u64::from_be_bytes(*epoch)), record))
}
