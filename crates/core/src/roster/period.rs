//! The periods of a group: intervals of epochs that share a length, a number of levels, a budget
//! and a coordinator (spec/objects.md, section 4).
//!
//! A later version of a roster may begin a new period. It starts where an epoch of the period
//! before it ends, so epoch numbers increase with time whatever the lengths of the epochs are.

use super::{MAX_EPOCH_MS, RosterError};
use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::identity::Certificate;
use crate::record::{EpochNumber, GroupId, MAX_LEVELS};

/// A period of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period<'a> {
    /// The version of the roster that introduced the period. Seals of its epochs must name this
    /// version or a later one.
    pub version: u32,
    /// The first epoch of the period. The period ends before the first epoch of the next period.
    pub first_epoch: EpochNumber,
    /// The start of the first epoch, in Unix milliseconds. `None` only in the first version of a
    /// roster, if the start is 2^64 or later.
    pub start_ms: Option<u64>,
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The number of levels.
    pub levels: u8,
    /// The largest number of events that the coordinator may keep per epoch; `None` means no limit.
    pub budget: Option<u64>,
    /// The coordinator's certificate, encoded.
    pub coordinator: Option<&'a [u8]>,
}

impl<'a> Period<'a> {
    /// Returns the first period of a group.
    #[must_use]
    pub const fn first(
        epoch_ms: u64,
        levels: u8,
        budget: Option<u64>,
        first_epoch: EpochNumber,
        coordinator: Option<&'a [u8]>,
    ) -> Self {
        let start_ms = first_epoch.0.checked_mul(epoch_ms);
        Self { version: 0, first_epoch, start_ms, epoch_ms, levels, budget, coordinator }
    }

    /// Reads a period as the later versions of a roster list it.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(7)?;
        Ok(Self {
            version: reader.uint()?,
            first_epoch: EpochNumber(reader.u64()?),
            start_ms: Some(reader.u64()?),
            epoch_ms: reader.u64()?,
            levels: saturated(reader.u64()?),
            budget: reader.optional(Reader::u64)?,
            coordinator: reader.optional(Reader::bytes)?,
        })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(7)?.uint(self.version)?.uint(self.first_epoch.0)?;
        out.uint(self.start_ms.unwrap_or(u64::MAX))?.uint(self.epoch_ms)?.uint(self.levels)?;
        out.optional(self.budget, Writer::uint)?.optional(self.coordinator, Writer::bytes)?;
        Ok(())
    }

    /// Checks the period's values, and that it can follow `before`, or can be the first period if
    /// `before` is `None`.
    pub(super) fn check(
        &self,
        before: Option<&Period<'_>>,
        group: GroupId,
    ) -> Result<(), RosterError> {
        if self.epoch_ms == 0 || self.epoch_ms > MAX_EPOCH_MS {
            return Err(RosterError::EpochLengthOutOfRange);
        }
        if self.levels == 0 || usize::from(self.levels) > MAX_LEVELS {
            return Err(RosterError::LevelsOutOfRange);
        }
        if self.budget == Some(0) {
            return Err(RosterError::BudgetOutOfRange);
        }
        let (ascends, start_ms) = match before {
            None => (self.version == 0, self.first_epoch.0.checked_mul(self.epoch_ms)),
            Some(before) => (
                self.version > before.version && self.first_epoch > before.first_epoch,
                before.epoch_start_ms(self.first_epoch),
            ),
        };
        if !ascends {
            return Err(RosterError::UnsortedPeriods);
        }
        if self.start_ms != start_ms {
            return Err(RosterError::EpochStartMismatch);
        }
        let coordinator = self.coordinator.map(Certificate::decode).transpose()?;
        if coordinator.is_some_and(|certificate| certificate.group != group) {
            return Err(RosterError::CertificateMismatch);
        }
        Ok(())
    }

    /// Returns the start of an epoch of this period, in Unix milliseconds; `None` if the epoch is
    /// before the period, or if the start is 2^64 or later.
    #[must_use]
    pub fn epoch_start_ms(&self, epoch: EpochNumber) -> Option<u64> {
        let epochs = epoch.0.checked_sub(self.first_epoch.0)?;
        self.start_ms?.checked_add(epochs.checked_mul(self.epoch_ms)?)
    }

    /// Returns the epoch that contains a Unix time in milliseconds; `None` if the time is before
    /// the period.
    #[must_use]
    pub fn epoch_of(&self, unix_ms: u64) -> Option<EpochNumber> {
        let elapsed = unix_ms.checked_sub(self.start_ms?)?;
        Some(EpochNumber(self.first_epoch.0.saturating_add(elapsed / self.epoch_ms)))
    }

    /// Returns the coordinator's certificate.
    #[must_use]
    pub fn coordinator(&self) -> Option<Certificate<'a>> {
        Certificate::decode(self.coordinator?).ok()
    }
}

/// Returns a number of levels. Any number above 255 is out of range like 255.
pub(super) fn saturated(levels: u64) -> u8 {
    u8::try_from(levels).unwrap_or(u8::MAX)
}

/// The periods of a roster.
#[derive(Clone, Copy)]
pub(super) enum Periods<'a> {
    /// The only period of the first version.
    First(Period<'a>),
    /// The encoded periods of a later version.
    Listed(&'a [u8]),
}

impl<'a> Periods<'a> {
    /// Returns the periods in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = Period<'a>> + use<'a> {
        let (first, listed) = match self {
            Self::First(period) => (Some(period), None),
            Self::Listed(bytes) => (None, Some(bytes)),
        };
        let mut reader = Reader::resume(listed.unwrap_or(&[]));
        let count = listed.map_or(0, |_| reader.array_any().unwrap_or(0));
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        let listed = (0..count).map_while(move |_| Period::read(&mut reader).ok());
        first.into_iter().chain(listed)
    }
}
