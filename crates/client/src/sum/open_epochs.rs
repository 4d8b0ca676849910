//! Manages the epochs of a running query: collects the shares of the querier's children, decides
//! when to stop waiting for them, and produces the results. This module does no I/O and reads no
//! clock.
//!
//! Epochs are closed in order. An epoch is due when all children of the querier have sent a share,
//! or at its deadline. The deadline is the end of the epoch plus one grace period for each edge of
//! the longest path from a source to the querier. The number of children and the number of epochs
//! that can be open at a time bound the memory.

use std::collections::BTreeMap;

use moteseal_core::record::DeviceId;
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::query::QueryId;
use moteseal_sum::wire::Share;
use moteseal_verify::aggregation::{AggregationTree, Aggregator};

use super::localise::{Finding, Localisation, read_child};
use super::participants::Participants;
use super::querier::{Accepted, Querier, Rejection};
use super::share::Sum;

/// The maximum time between the end of an epoch and its deadline, in epochs (`spec/sums.md`,
/// section 6).
const OPEN_EPOCHS: u64 = 6;
/// The time for the fault localisation of an epoch after the epoch's deadline, in epochs.
const LOCALISATION_EPOCHS: u64 = 2;
/// The number of epochs that can be open at a time. Shares of later epochs are ignored.
pub const MAX_OPEN: u64 = 16;

/// The maximum number of elapsed epochs that a late querier still closes. Together with the epochs
/// that have not ended, they are fewer than [`MAX_OPEN`].
const MAX_LATE: u64 = 8;
/// If the next epoch is more than this many epochs after the current time, the clock was set back.
const AHEAD_EPOCHS: u64 = 2;

/// The outcome of an epoch.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The sums are proven to be exact.
    Accepted(Accepted),
    /// Too few sources took part in time. The error is `BelowFloor`.
    Missing(Rejection),
    /// A share that was received is wrong.
    Rejected {
        /// The error.
        refusal: Rejection,
        /// The findings of the fault localisation.
        findings: Vec<Finding>,
    },
}

/// The result of a closed epoch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The query.
    pub query: QueryId,
    /// The epoch.
    pub epoch: u64,
    /// The start of the epoch, in Unix milliseconds.
    pub start_ms: u64,
    /// The duration of the epoch, in milliseconds.
    pub duration_ms: u32,
    /// The reported participants. They are verified only if the outcome is `Accepted`.
    pub participants: Participants,
    /// The sources that a child of the querier reported as silent. Empty if the outcome is
    /// `Rejected`. Sources below a child that sent no share are not included.
    pub claimed_silent: Participants,
    /// The number of sources in the roster.
    pub sources: u32,
    /// The outcome.
    pub outcome: Outcome,
}

/// How a received share was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The share counts as the child's share of the epoch.
    Kept,
    /// The share is ignored, because the child has already sent a share of this epoch or the epoch
    /// is not open.
    Untimely,
    /// The share cannot be read. It counts as a wrong share of the child.
    Wrong(Rejection),
    /// The share is ignored, because it belongs to another query or its sender is not a child of
    /// the querier.
    NotOurs,
}

/// The children's shares of an epoch, by the children's places in the aggregator.
type Shares = BTreeMap<usize, Result<Sum, Rejection>>;

/// The epochs of a query, with the shares of the open epochs.
#[derive(Debug)]
pub struct Epochs<'t, E> {
    tree: &'t AggregationTree,
    aggregator: Aggregator,
    querier: Querier<E>,
    /// The maximum time that each edge may need, in milliseconds.
    grace_ms: u64,
    next: u64,
    /// The epoch that follows the newest closed epoch with at least one share.
    received_until: u64,
    open: BTreeMap<u64, Shares>,
}

/// The shares of an epoch whose result was rejected, for the fault localisation.
#[derive(Debug)]
pub struct Failed {
    epoch: u64,
    shares: Shares,
}

impl<'t, E: KeyEngine + Sync> Epochs<'t, E> {
    /// Creates the epochs of a query, from `first` on. `grace_ms` is the maximum time that each
    /// edge of the tree may need, in milliseconds.
    #[must_use]
    pub fn new(tree: &'t AggregationTree, querier: Querier<E>, grace_ms: u64, first: u64) -> Self {
        Self {
            tree,
            aggregator: tree.querier(),
            querier,
            grace_ms,
            next: first,
            received_until: first,
            open: BTreeMap::new(),
        }
    }

    /// Returns the querier.
    #[must_use]
    pub const fn querier(&self) -> &Querier<E> {
        &self.querier
    }

    /// Returns the querier's aggregator, which holds its place in the tree.
    #[must_use]
    pub const fn aggregator(&self) -> &Aggregator {
        &self.aggregator
    }

    /// Returns the epoch that will be closed next.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the deadline of the next epoch in Unix milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_of(self.next)
    }

    fn deadline_of(&self, epoch: u64) -> u64 {
        let end = epoch.saturating_add(1).saturating_mul(self.querier.epoch_ms().into());
        end.saturating_add(self.grace_ms().saturating_mul(self.aggregator.height().into()))
    }

    /// Returns the maximum time that each edge may need, in milliseconds. The limit on this time is
    /// the same as on gateways, which keep only a few epochs open (spec/sums.md, section 6).
    pub(super) fn grace_ms(&self) -> u64 {
        let (epoch_ms, height) =
            (u64::from(self.querier.epoch_ms()), u64::from(self.aggregator.height()));
        self.grace_ms.min(OPEN_EPOCHS * epoch_ms / height.max(1))
    }

    /// Returns the time for the fault localisation of an epoch, in milliseconds: two epochs, or
    /// less if the querier is late. Therefore, a querier that localises a fault in every epoch does
    /// not fall further and further behind, and gateways still have the epochs about which it asks.
    pub(super) fn localisation_ms(&self, epoch: u64, now_ms: u64) -> u64 {
        let most = LOCALISATION_EPOCHS * u64::from(self.querier.epoch_ms());
        self.deadline_of(epoch).saturating_add(most).saturating_sub(now_ms).min(most)
    }

    /// Handles a child's share. Only the child's first share of an epoch counts.
    pub fn receive(&mut self, child: DeviceId, share: &Share<'_>) -> Received {
        let Some(place) =
            self.aggregator.child(child).filter(|_| share.query == self.querier.id().reference())
        else {
            return Received::NotOurs;
        };
        if share.epoch < self.next || share.epoch - self.next >= MAX_OPEN {
            return Received::Untimely;
        }
        let shares = self.open.entry(share.epoch).or_default();
        if shares.contains_key(&place) {
            return Received::Untimely;
        }
        let read = read_child(&self.querier, &self.aggregator, place, share.epoch, share);
        let received =
            read.as_ref().err().map_or(Received::Kept, |refusal| Received::Wrong(refusal.clone()));
        shares.insert(place, read);
        received
    }

    /// Adjusts the next epoch to the clock, and returns how many epochs were skipped.
    ///
    /// If the querier is late by more than a few epochs, for example after a long pause, it skips
    /// the oldest epochs. If the clock was ahead and has been set back, the querier returns to
    /// epochs that it closed too early, except epochs for which a share had arrived.
    pub fn follow_clock(&mut self, now_ms: u64) -> u64 {
        let epoch_ms = u64::from(self.querier.epoch_ms()).max(1);
        let now = now_ms / epoch_ms;
        if self.next > now.saturating_add(AHEAD_EPOCHS) {
            self.next = self.next.min(now.max(self.received_until));
            return 0;
        }
        let late =
            (self.deadline_ms() <= now_ms).then(|| (now_ms - self.deadline_ms()) / epoch_ms + 1);
        let missed = late.unwrap_or(0).saturating_sub(MAX_LATE);
        self.next += missed;
        self.open = self.open.split_off(&self.next);
        missed
    }

    /// Returns whether all children have sent a share of the next epoch.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open.get(&self.next).map_or(0, BTreeMap::len) == self.aggregator.children().len()
    }

    /// Returns whether the next epoch can be closed at the time `now_ms`, in Unix milliseconds.
    #[must_use]
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.is_complete() || now_ms >= self.deadline_ms()
    }

    /// Closes the next epoch with the shares that have arrived. If the outcome is `Rejected`, this
    /// function also returns the shares for the fault localisation. The row has no findings until
    /// [`with_findings`](Row::with_findings) sets them.
    pub fn close(&mut self) -> (Row, Option<Failed>) {
        let epoch = self.next;
        self.next += 1;
        let shares = self.open.remove(&epoch).unwrap_or_default();
        if !shares.is_empty() {
            self.received_until = self.next;
        }
        let (mut sum, mut wrong) = (Sum::none(self.querier.shape()), None);
        for share in shares.values() {
            match share {
                // The children of an aggregator have no sources in common. Shares that could be
                // read therefore do not overlap.
                Ok(share) => wrong = wrong.or(sum.merge(share).err().map(Rejection::from)),
                Err(refusal) => wrong = wrong.or(Some(refusal.clone())),
            }
        }
        let opened = match wrong {
            Some(refusal) => Err(refusal),
            None => self.querier.open_sum(epoch, &sum),
        };
        let is_refused =
            opened.as_ref().is_err_and(|refusal| !matches!(refusal, Rejection::BelowFloor { .. }));
        let sources = self.querier.shape().sources;
        let mut claimed_silent = Participants::none(sources);
        let are_claimed = |position: &u32| {
            let has_report =
                self.aggregator.owner(*position).is_some_and(|place| shares.contains_key(&place));
            has_report && !sum.participants().contains(*position)
        };
        (0..sources)
            .filter(|_| !is_refused)
            .filter(are_claimed)
            .for_each(|position| claimed_silent.insert(position..position + 1));
        let outcome = match opened {
            Ok(accepted) => Outcome::Accepted(accepted),
            Err(refusal @ Rejection::BelowFloor { .. }) => Outcome::Missing(refusal),
            Err(refusal) => Outcome::Rejected { refusal, findings: Vec::new() },
        };
        let failed =
            matches!(outcome, Outcome::Rejected { .. }).then_some(Failed { epoch, shares });
        let duration_ms = self.querier.epoch_ms();
        let row = Row {
            query: self.querier.id(),
            epoch,
            start_ms: epoch.saturating_mul(duration_ms.into()),
            duration_ms,
            participants: sum.participants().clone(),
            claimed_silent,
            sources,
            outcome,
        };
        (row, failed)
    }

    /// Creates the fault localisation for an epoch with a rejected result.
    #[must_use]
    pub fn localise(&self, failed: Failed) -> Localisation<'t> {
        let shares = failed.shares.into_iter().map(|(place, share)| (place, share.ok()));
        Localisation::new(self.tree, &self.querier, failed.epoch, shares)
    }
}

impl Row {
    /// Sets the findings of the fault localisation.
    #[must_use]
    pub fn with_findings(mut self, found: Vec<Finding>) -> Self {
        if let Outcome::Rejected { findings, .. } = &mut self.outcome {
            *findings = found;
        }
        self
    }

    /// Returns the positions of the sources that were reported as silent.
    pub fn silent(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.claimed_silent.iter()
    }

    /// Returns the number of sources that were reported neither as participants nor as silent.
    #[must_use]
    pub const fn unheard(&self) -> u32 {
        self.sources
            .saturating_sub(self.participants.count())
            .saturating_sub(self.claimed_silent.count())
    }

    /// Returns the positions of the sources that were reported neither as participants nor as
    /// silent.
    pub fn unheard_positions(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..self.sources)
            .filter(|at| !self.participants.contains(*at) && !self.claimed_silent.contains(*at))
    }
}
