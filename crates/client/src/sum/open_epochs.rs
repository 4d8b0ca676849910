//! The epochs of a query that runs: who has spoken of which, when to wait no longer, and what came
//! of it. No I/O, no clock.
//!
//! Epochs are closed in order. One is due when all children of the querier have spoken, or at its
//! deadline: its end and a grace for every edge of the tree. PinnedSeals is bounded by the children
//! and the few epochs that can be open at a time.

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
const WALK_EPOCHS: u64 = 2;
/// Epochs that can be open at a time; shares of later ones are ignored.
pub const MAX_OPEN: u64 = 16;

/// Epochs that are closed at once if the querier is late; together with those that are not over
/// yet, fewer than can be open.
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
    /// Its result.
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

/// What each child has said of an epoch, by its place in the aggregator.
type Said = BTreeMap<usize, Result<Sum, Rejection>>;

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
    spoken_until: u64,
    open: BTreeMap<u64, Said>,
}

/// An epoch with a rejected result, whose fault is to be located.
#[derive(Debug)]
pub struct Failed {
    epoch: u64,
    said: Said,
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
            spoken_until: first,
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

    /// When the next epoch is waited for no longer, in Unix milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_of(self.next)
    }

    fn deadline_of(&self, epoch: u64) -> u64 {
        let end = epoch.saturating_add(1).saturating_mul(self.querier.epoch_ms().into());
        end.saturating_add(self.grace_ms().saturating_mul(self.aggregator.height().into()))
    }

    /// Time that an edge may take, in milliseconds. Gateways wait no longer either: they keep few
    /// epochs open (spec/sums.md, section 6).
    pub(super) fn grace_ms(&self) -> u64 {
        let (epoch_ms, height) =
            (u64::from(self.querier.epoch_ms()), u64::from(self.aggregator.height()));
        self.grace_ms.min(OPEN_EPOCHS * epoch_ms / height.max(1))
    }

    /// How long the walk down for an epoch may take, in milliseconds: two epochs, and less where
    /// the querier is late, so that it does not get later if it walks in every epoch, and gateways
    /// have not forgotten what it asks for.
    pub(super) fn walk_ms(&self, epoch: u64, now_ms: u64) -> u64 {
        let most = WALK_EPOCHS * u64::from(self.querier.epoch_ms());
        self.deadline_of(epoch).saturating_add(most).saturating_sub(now_ms).min(most)
    }

    /// Receives a child's share. Its first share of an epoch counts.
    pub fn hear(&mut self, child: DeviceId, share: &Share<'_>) -> Received {
        let Some(place) =
            self.aggregator.child(child).filter(|_| share.query == self.querier.id().reference())
        else {
            return Received::NotOurs;
        };
        if share.epoch < self.next || share.epoch - self.next >= MAX_OPEN {
            return Received::Untimely;
        }
        let said = self.open.entry(share.epoch).or_default();
        if said.contains_key(&place) {
            return Received::Untimely;
        }
        let read = read_child(&self.querier, &self.aggregator, place, share.epoch, share);
        let heard =
            read.as_ref().err().map_or(Received::Kept, |refusal| Received::Wrong(refusal.clone()));
        said.insert(place, read);
        heard
    }

    /// Goes by the clock where that leads away from the next epoch: passes over what is late by
    /// more than a few epochs, as after a long pause, and goes back where epochs were closed that
    /// have not come yet, because the clock was ahead; then not to those of which anybody had
    /// spoken. Says how many epochs were passed over.
    pub fn follow_clock(&mut self, now_ms: u64) -> u64 {
        let epoch_ms = u64::from(self.querier.epoch_ms()).max(1);
        let now = now_ms / epoch_ms;
        if self.next > now.saturating_add(AHEAD_EPOCHS) {
            self.next = self.next.min(now.max(self.spoken_until));
            return 0;
        }
        let late =
            (self.deadline_ms() <= now_ms).then(|| (now_ms - self.deadline_ms()) / epoch_ms + 1);
        let missed = late.unwrap_or(0).saturating_sub(MAX_LATE);
        self.next += missed;
        self.open = self.open.split_off(&self.next);
        missed
    }

    /// Whether all children have spoken of the next epoch.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open.get(&self.next).map_or(0, BTreeMap::len) == self.aggregator.children().len()
    }

    /// Whether the next epoch can be closed at this time, in Unix milliseconds.
    #[must_use]
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.is_complete() || now_ms >= self.deadline_ms()
    }

    /// Closes the next epoch with what has been said. Of a refused one, what it takes to walk down
    /// comes along; the row's findings are empty until [`blame`](Row::blame) fills them.
    pub fn close(&mut self) -> (Row, Option<Failed>) {
        let epoch = self.next;
        self.next += 1;
        let said = self.open.remove(&epoch).unwrap_or_default();
        if !said.is_empty() {
            self.spoken_until = self.next;
        }
        let (mut sum, mut wrong) = (Sum::none(self.querier.shape()), None);
        for share in said.values() {
            match share {
                // Children of an aggregator have no sources in common, so nothing that was read
                // overlaps.
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
            let is_heard =
                self.aggregator.owner(*position).is_some_and(|place| said.contains_key(&place));
            is_heard && !sum.participants().contains(*position)
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
        let failed = matches!(outcome, Outcome::Rejected { .. }).then_some(Failed { epoch, said });
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

    /// The walk down for an epoch that was refused.
    #[must_use]
    pub fn walk(&self, failed: Failed) -> Localisation<'t> {
        let said = failed.said.into_iter().map(|(place, said)| (place, said.ok()));
        Localisation::new(self.tree, &self.querier, failed.epoch, said)
    }
}

impl Row {
    /// Puts in what a walk has found.
    #[must_use]
    pub fn blame(mut self, found: Vec<Finding>) -> Self {
        if let Outcome::Rejected { findings, .. } = &mut self.outcome {
            *findings = found;
        }
        self
    }

    /// The positions of the sources that were said to be silent.
    pub fn silent(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.claimed_silent.iter()
    }

    /// How many sources nothing was heard of: neither they nor a word on their silence.
    #[must_use]
    pub const fn unheard(&self) -> u32 {
        self.sources
            .saturating_sub(self.participants.count())
            .saturating_sub(self.claimed_silent.count())
    }

    /// Their positions. Who is neither among them nor silent takes part.
    pub fn unheard_positions(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..self.sources)
            .filter(|at| !self.participants.contains(*at) && !self.claimed_silent.contains(*at))
    }
}
