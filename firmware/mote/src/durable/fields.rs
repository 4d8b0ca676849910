//! The encoding of the fields of a journal record (spec/mote.md, section 3).

use moteseal_core::digest::Digest;
use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_seal::{Answered, Position};

use super::{MAX_UNSTATED, Runs};
use crate::journal::JournalError;

/// Reads the content of a record.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], JournalError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(JournalError::Damaged)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, JournalError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, JournalError> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, JournalError> {
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(JournalError::Damaged),
        }
    }

    pub(super) fn scheme(&mut self) -> Result<Scheme, JournalError> {
        Ok(if self.bool()? { Scheme::Tree } else { Scheme::Star })
    }

    pub(super) fn runs(&mut self) -> Result<Runs, JournalError> {
        let [count] = self.take()?;
        let mut runs = [None; MAX_UNSTATED];
        for place in runs.get_mut(..usize::from(count)).ok_or(JournalError::Damaged)? {
            *place = Some(Answered { query: self.take()?, first: self.u64()?, count: self.u32()? });
        }
        Ok(runs)
    }

    pub(super) fn position(&mut self) -> Result<Position, JournalError> {
        let prev = Digest(self.take()?);
        let (has_last, last) = (self.bool()?, (SealIndex(self.u32()?), EpochNumber(self.u64()?)));
        Ok(Position { prev, last: has_last.then_some(last), epoch_closed: self.bool()? })
    }
}

/// A buffer for the content of a record. The record of a signed seal has the longest content.
pub(super) struct Content {
    bytes: [u8; 1280],
    length: usize,
}

impl Content {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; 1280], length: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<&mut Self, JournalError> {
        let end = self.length + bytes.len();
        self.bytes.get_mut(self.length..end).ok_or(JournalError::Full)?.copy_from_slice(bytes);
        self.length = end;
        Ok(self)
    }

    pub(super) fn runs(
        &mut self,
        runs: impl Iterator<Item = Answered>,
    ) -> Result<&mut Self, JournalError> {
        let at = self.length;
        self.put(&[0])?;
        for run in runs {
            self.put(&run.query)?.put(&run.first.to_be_bytes())?.put(&run.count.to_be_bytes())?;
            // This cannot overflow: there are at most `MAX_UNSTATED` runs.
            self.bytes[at] += 1;
        }
        Ok(self)
    }

    pub(super) fn position(&mut self, position: &Position) -> Result<&mut Self, JournalError> {
        let (index, epoch) = position.last.unwrap_or((SealIndex(0), EpochNumber(0)));
        self.put(&position.prev.0)?.put(&[u8::from(position.last.is_some())])?;
        self.put(&index.0.to_be_bytes())?
            .put(&epoch.0.to_be_bytes())?
            .put(&[u8::from(position.epoch_closed)])
    }

    pub(super) fn written(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
