//! Converts between times and epochs. The length of an epoch can change from one period of a group
//! to the next (spec/objects.md, section 4).

use std::sync::Arc;

use moteseal_core::record::EpochNumber;
use moteseal_core::roster::Period;

/// The lengths of a group's epochs. A clone shares the data of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar(Arc<[Span]>);

/// The epochs of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first_epoch: EpochNumber,
    /// The start of the first epoch; `None` if it is 2^64 or later.
    start_ms: Option<u64>,
    epoch_ms: u64,
}

impl Calendar {
    /// Returns the calendar of a group with these periods, in ascending order. There must be at
    /// least one.
    pub(crate) fn new<'a>(periods: impl Iterator<Item = Period<'a>>) -> Self {
        let span = |Period { first_epoch, start_ms, epoch_ms, .. }| Span {
            first_epoch,
            start_ms,
            epoch_ms,
        };
        Self(periods.map(span).collect())
    }

    /// Returns a calendar in which all epochs have the same length, in milliseconds, at least 1.
    /// Epoch 0 starts at the Unix epoch.
    #[must_use]
    pub fn constant(epoch_ms: u64) -> Self {
        let epoch_ms = epoch_ms.max(1);
        Self([Span { first_epoch: EpochNumber(0), start_ms: Some(0), epoch_ms }].into())
    }

    /// Returns the epoch that contains an instant, in Unix milliseconds. Before the first period,
    /// epochs have the length of the first period.
    #[must_use]
    pub fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        let is_in = |span: &&Span| span.start_ms.is_some_and(|start| start <= unix_ms);
        match self.0.iter().rev().find(is_in) {
            Some(span) => {
                let elapsed = unix_ms - span.start_ms.unwrap_or(unix_ms);
                EpochNumber(span.first_epoch.0.saturating_add(elapsed / span.epoch_ms))
            }
            None => EpochNumber(unix_ms / self.0[0].epoch_ms),
        }
    }

    /// Returns the start of an epoch, in Unix milliseconds; `None` if that is 2^64 or more.
    #[must_use]
    pub fn start_ms(&self, epoch: EpochNumber) -> Option<u64> {
        let span = self.span(epoch);
        match epoch.0.checked_sub(span.first_epoch.0) {
            Some(epochs) => span.start_ms?.checked_add(epochs.checked_mul(span.epoch_ms)?),
            None => epoch.0.checked_mul(span.epoch_ms),
        }
    }

    /// Returns the length of an epoch, in milliseconds.
    #[must_use]
    pub fn epoch_ms(&self, epoch: EpochNumber) -> u64 {
        self.span(epoch).epoch_ms
    }

    /// Returns the longest length of an epoch in any period, in milliseconds.
    #[must_use]
    pub fn longest_ms(&self) -> u64 {
        self.0.iter().map(|span| span.epoch_ms).max().unwrap_or(1)
    }

    /// Returns the first epoch that starts at an instant or later, in Unix milliseconds.
    #[must_use]
    pub fn epoch_from(&self, unix_ms: u64) -> EpochNumber {
        let epoch = self.epoch_of(unix_ms);
        if self.start_ms(epoch) == Some(unix_ms) {
            epoch
        } else {
            EpochNumber(epoch.0.saturating_add(1))
        }
    }

    /// Returns the period of an epoch; the first period for an epoch before it.
    fn span(&self, epoch: EpochNumber) -> &Span {
        self.0.iter().rev().find(|span| span.first_epoch <= epoch).unwrap_or(&self.0[0])
    }
}
