//! The epochs of a running query: which children have sent a share of which epoch, when to stop
//! waiting, and the results. No I/O, no clock.
//!
//! Epochs are closed in order. An epoch is due when all children of the querier have sent a share,
//! or at its deadline: its end plus a grace for every edge of the tree. Memory is bounded by the
//! number of children and the number of epochs that can be open at a time.

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

/// All graces together last at most this many epochs (`spec/sums.md`, section 6).
const OPEN_EPOCHS: u64 = 6;
/// Time for the fault localisation after the deadline of its epoch, in epochs.
const LOCALISATION_EPOCHS: u64 = 2;
/// Number of epochs that can be open at a time; shares of later ones are ignored.
pub const MAX_OPEN: u64 = 16;

/// Number of elapsed epochs that a late querier still closes. Together with the epochs that are not
/// over yet, they are fewer than [`MAX_OPEN`].
const MAX_LATE: u64 = 8;
/// An epoch that would close more than this many epochs early shows that the clock was set back.
const AHEAD_EPOCHS: u64 = 2;

/// The result of an epoch.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The exact answer.
    Accepted(Accepted),
    /// Too few sources took part in time: `BelowFloor`.
    Missing(Rejection),
    /// A reported share is wrong.
    Rejected {
        /// What is wrong with it.
        refusal: Rejection,
        /// The located faults.
        findings: Vec<Finding>,
    },
}

/// A closed epoch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The query.
    pub query: QueryId,
    /// The epoch.
    pub epoch: u64,
    /// Its start, in Unix milliseconds.
    pub start_ms: u64,
    /// Its duration, in milliseconds.
    pub duration_ms: u32,
    /// The reported participants; verified only for an accepted result.
    pub participants: Participants,
    /// Sources that a child of the querier reported as silent. Empty if the result was rejected;
    /// excludes sources below children that sent nothing.
    pub claimed_silent: Participants,
    /// Number of sources of the roster.
    pub sources: u32,
    /// The result.
    pub outcome: Outcome,
}

/// How a share was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It counts as the child's share of the epoch.
    Kept,
    /// The child has already sent a share of this epoch, or the epoch is not open.
    Untimely,
    /// It cannot be read, and counts as the child's wrong share.
    Wrong(Rejection),
    /// It is of another query, or not from a child.
    NotOurs,
}

/// The children's shares of an epoch, by their places in the aggregator.
type Shares = BTreeMap<usize, Result<Sum, Rejection>>;

/// The epochs of a query.
#[derive(Debug)]
pub struct Epochs<'t, E> {
    tree: &'t AggregationTree,
    aggregator: Aggregator,
    querier: Querier<E>,
    /// Time that an edge may take, in milliseconds.
    grace_ms: u64,
    next: u64,
    /// The epoch after the last closed one for which any share arrived.
    received_until: u64,
    open: BTreeMap<u64, Shares>,
}

/// An epoch with a rejected result, whose fault is to be located.
#[derive(Debug)]
pub struct Failed {
    epoch: u64,
    shares: Shares,
}

impl<'t, E: KeyEngine + Sync> Epochs<'t, E> {
    /// The epochs from `first` on. A child may take `grace_ms` milliseconds for every edge below
    /// it.
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

    /// The querier.
    #[must_use]
    pub const fn querier(&self) -> &Querier<E> {
        &self.querier
    }

    /// The querier's place in the tree.
    #[must_use]
    pub const fn aggregator(&self) -> &Aggregator {
        &self.aggregator
    }

    /// The epoch that is closed next.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The deadline of the next epoch in Unix milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_of(self.next)
    }

    fn deadline_of(&self, epoch: u64) -> u64 {
        let end = epoch.saturating_add(1).saturating_mul(self.querier.epoch_ms().into());
        end.saturating_add(self.grace_ms().saturating_mul(self.aggregator.height().into()))
    }

    /// Time that an edge may take, in milliseconds. It is limited as on gateways, which keep few
    /// epochs open (spec/sums.md, section 6).
    pub(super) fn grace_ms(&self) -> u64 {
        let (epoch_ms, height) =
            (u64::from(self.querier.epoch_ms()), u64::from(self.aggregator.height()));
        self.grace_ms.min(OPEN_EPOCHS * epoch_ms / height.max(1))
    }

    /// Time for the fault localisation of an epoch, in milliseconds: two epochs, or less if the
    /// querier is late. A querier that localises a fault in every epoch therefore does not fall
    /// further behind, and gateways still have the epochs that it asks about.
    pub(super) fn localisation_ms(&self, epoch: u64, now_ms: u64) -> u64 {
        let most = LOCALISATION_EPOCHS * u64::from(self.querier.epoch_ms());
        self.deadline_of(epoch).saturating_add(most).saturating_sub(now_ms).min(most)
    }

    /// Receives a child's share. Only its first share of an epoch counts.
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
    /// the oldest ones. If the clock was ahead and has been set back, it returns to epochs that
    /// were closed too early, but not to those for which a share had arrived.
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

    /// Whether all children have sent a share of the next epoch.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open.get(&self.next).map_or(0, BTreeMap::len) == self.aggregator.children().len()
    }

    /// Whether the next epoch can be closed at this time, in Unix milliseconds.
    #[must_use]
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.is_complete() || now_ms >= self.deadline_ms()
    }

    /// Closes the next epoch with the shares that have arrived. For a rejected result it also
    /// returns what a localisation needs; the row's findings are empty until [`with_findings`](Row::with_findings)
    /// sets them.
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
                // Children of an aggregator have no sources in common, so shares that could be read
                // do not overlap.
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

    /// The fault localisation for an epoch with a rejected result.
    #[must_use]
    pub fn localise(&self, failed: Failed) -> Localisation<'t> {
        let shares = failed.shares.into_iter().map(|(place, share)| (place, share.ok()));
        Localisation::new(self.tree, &self.querier, failed.epoch, shares)
    }
}

impl Row {
    /// Sets the findings of the localisation.
    #[must_use]
    pub fn with_findings(mut self, found: Vec<Finding>) -> Self {
        if let Outcome::Rejected { findings, .. } = &mut self.outcome {
            *findings = found;
        }
        self
    }

    /// The positions of the sources that were reported as silent.
    pub fn silent(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.claimed_silent.iter()
    }

    /// Number of sources that were reported neither as participants nor as silent.
    #[must_use]
    pub const fn unheard(&self) -> u32 {
        self.sources
            .saturating_sub(self.participants.count())
            .saturating_sub(self.claimed_silent.count())
    }

    /// The positions of these sources. A source that is neither among them nor silent is a
    /// participant.
    pub fn unheard_positions(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..self.sources)
            .filter(|at| !self.participants.contains(*at) && !self.claimed_silent.contains(*at))
    }
}
