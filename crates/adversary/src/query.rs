//! The query for which a cloud returns an answer.

use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Choice;

/// A query: a range of epochs, and the selection of events in each epoch.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The first epoch.
    pub since: EpochNumber,
    /// The epoch after the last one of the range; `None` for all epochs up to now.
    pub until: Option<EpochNumber>,
    /// The selection of events in each epoch.
    pub choice: Choice,
}

impl Question {
    /// Returns whether the range includes an epoch.
    #[must_use]
    pub fn covers(&self, epoch: EpochNumber) -> bool {
        epoch >= self.since && self.until.is_none_or(|until| epoch < until)
    }
}
