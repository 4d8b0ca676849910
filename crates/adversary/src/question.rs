//! A query for an answer: which epochs, and which events of each.

use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Choice;

/// A query for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The first epoch.
    pub since: EpochNumber,
    /// The epoch after the last; `None` for everything so far.
    pub until: Option<EpochNumber>,
    /// Which events of each epoch.
    pub choice: Choice,
}

impl Question {
    /// Returns whether the range includes an epoch.
    #[must_use]
    pub fn covers(&self, epoch: EpochNumber) -> bool {
        epoch >= self.since && self.until.is_none_or(|until| epoch < until)
    }
}
