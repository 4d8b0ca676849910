//! Manages the epochs of a running query: collects the shares of the querier's children, decides
//! when to stop waiting for them, and produces the results. This module does no I/O and reads no
//! clock.
//!
//! Epochs are closed in order. An epoch is due when all children of the querier have sent a share,
//! or at its deadline. The deadline is the end of the epoch plus one grace period for each edge of
//! the longest path from a source to the querier. The number of children and the number of epochs
//! that can be open at a time bound the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::record::DeviceId;
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::Master;
use moteseal_sum::wire::{Refusal, Share};
use moteseal_verify::SumGroup;
use moteseal_verify::aggregation::Aggregator;

use super::localise::{Finding, Localisation, read_child};
use super::members::Members;
use super::participants::Participants;
use super::querier::{Accepted, PoseError, Querier, Rejection, default_floor};
use super::share::Sum;

/// The maximum time between the end of an epoch and its deadline, in epochs (`spec/sums.md`,
/// section 6).
const OPEN_EPOCHS: u64 = 6;
/// The time for the fault localisation of an epoch after the epoch's deadline, in epochs.
const LOCALISATION_EPOCHS: u64 = 2;
/// How long a refusal holds, in milliseconds: sources repeat it every 30 seconds.
const REFUSAL_MS: u64 = 60_000;
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
    /// The sums are proven to be exact, but they are over few readings. The error is
    /// `TooFewReadings`.
    Withheld(Rejection),
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
    /// The participants whose readings are in the result if the outcome is `Accepted`, and else the
    /// reported participants.
    pub participants: Participants,
    /// The reported participants that are not in the result: the devices mask their answers, and
    /// another device of the same key group has not answered.
    pub masked: Participants,
    /// The sources that a child of the querier reported as silent. Empty if the outcome is
    /// `Rejected`. Sources below a child that sent no share are not included, and neither are
    /// sources that the newest version of the roster has added, until they have participated once.
    pub claimed_silent: Participants,
    /// The sources that take part in the epoch.
    pub members: Participants,
    /// The names of the querier's children that have sent no share of the epoch, but frames that are
    /// not authentic: probably their link secret is wrong. Another party may have sent the frames.
    pub not_authentic: Vec<String>,
    /// The reasons that sources have stated in the last minute for not answering, by position: stable
    /// names of errors. Only sources that are not participants are included.
    pub reasons: BTreeMap<u32, String>,
    /// The names of all sources, by position.
    pub names: Arc<[String]>,
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

/// The children's shares of an epoch.
type Shares = BTreeMap<DeviceId, Result<Sum, Rejection>>;

/// The epochs of a query, with the shares of the open epochs.
#[derive(Debug)]
pub struct Epochs<E> {
    group: SumGroup,
    members: Members,
    aggregator: Aggregator,
    querier: Querier<E>,
    /// The maximum time that each edge may need, in milliseconds.
    grace_ms: u64,
    /// Whether the minimum number of participants is the default for the members of each epoch.
    has_default_floor: bool,
    /// The sources that are presumed to be known to the aggregators: those of earlier versions of
    /// the roster, and those that have participated in a result. Other sources are not reported as
    /// silent, because an aggregator may have an earlier version.
    known: Participants,
    next: u64,
    /// The epoch that follows the newest closed epoch with at least one share.
    received_until: u64,
    open: BTreeMap<u64, Shares>,
    /// The children in whose names frames that are not authentic have arrived since the last epoch
    /// was closed.
    not_authentic: BTreeSet<DeviceId>,
    /// The newest refusal of each source, by position: the epoch and the reason.
    refusals: BTreeMap<u32, (u64, String)>,
}

/// The shares of an epoch whose result was rejected, for the fault localisation.
#[derive(Debug)]
pub struct Failed {
    epoch: u64,
    members: Participants,
    shares: Shares,
}

impl<E: KeyEngine + Sync> Epochs<E> {
    /// Creates the epochs of a query to a group, from `first` on. `grace_ms` is the maximum time
    /// that each edge of the tree may need, in milliseconds.
    #[must_use]
    pub fn new(group: SumGroup, querier: Querier<E>, grace_ms: u64, first: u64) -> Self {
        let version = group.roster.version();
        let mut known = Participants::none(group.tree.sources());
        for (position, device) in (0..).zip(group.roster.sources()) {
            if version == 0 || device.since < version {
                known.insert(position..position + 1);
            }
        }
        Self {
            has_default_floor: false,
            known,
            members: Members::new(&group),
            aggregator: group.tree.querier(),
            group,
            querier,
            grace_ms,
            next: first,
            received_until: first,
            open: BTreeMap::new(),
            not_authentic: BTreeSet::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Uses the [default](default_floor) for the members of each epoch as the minimum number of
    /// participants, instead of the querier's.
    #[must_use]
    pub fn with_default_floor(mut self) -> Self {
        self.has_default_floor = true;
        self
    }

    /// Continues with a later version of the group. Shares that children have sent for open epochs
    /// still count.
    ///
    /// # Errors
    /// [`PoseError`], if the query cannot be asked to the larger group. Nothing has changed.
    pub fn load(&mut self, group: SumGroup, master: &Master) -> Result<(), PoseError> {
        let devices: Vec<_> = group.roster.sources().iter().map(|device| device.id).collect();
        self.querier.grow(master, &devices)?;
        let known = std::mem::replace(&mut self.known, Participants::none(group.tree.sources()));
        known.runs().for_each(|run| self.known.insert(run));
        self.members = Members::new(&group);
        self.aggregator = group.tree.querier();
        self.group = group;
        Ok(())
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
        if shares.contains_key(&child) {
            return Received::Untimely;
        }
        let read = read_child(&self.querier, &self.aggregator, place, share.epoch, share);
        let received =
            read.as_ref().err().map_or(Received::Kept, |refusal| Received::Wrong(refusal.clone()));
        shares.insert(child, read);
        received
    }

    /// Notes that a frame of a child was not authentic.
    pub fn note_not_authentic(&mut self, child: DeviceId) {
        if self.aggregator.child(child).is_some() {
            self.not_authentic.insert(child);
        }
    }

    /// Notes that a source has stated why it does not answer the query. Returns `false` if the source did
    /// not make the statement, or if it is not below the child that sent it. `master` is the secret from
    /// which the keys of the sources are derived.
    pub fn note_refusal(
        &mut self,
        child: DeviceId,
        refusal: &Refusal<'_>,
        master: &Master,
    ) -> bool {
        let Refusal { query, epoch, position, reason, tag } = *refusal;
        let (question, id) = (self.querier.question(), self.querier.id());
        let owner = self.aggregator.owner(position);
        let is_beneath = owner.is_some() && owner == self.aggregator.child(child);
        let Some(device) = self.group.roster.id(self.members.name(position)) else { return false };
        let is_near = epoch.abs_diff(self.next) <= MAX_OPEN + self.refusal_epochs();
        if query != id.reference() || !is_beneath || !is_near {
            return false;
        }
        let secret = master.source(question.group, device, position / question.key_group.max(1));
        let is_authentic = secret.has_refused(id, epoch, reason, &tag);
        if is_authentic {
            self.refusals.insert(position, (epoch, reason.to_owned()));
        }
        is_authentic
    }

    /// Returns for how many epochs a refusal holds: the source repeats it within this time.
    fn refusal_epochs(&self) -> u64 {
        REFUSAL_MS.div_ceil(self.querier.epoch_ms().max(1).into()) + 1
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
        let shares = self.open.get(&self.next);
        let has_share = |child: DeviceId| shares.is_some_and(|shares| shares.contains_key(&child));
        self.aggregator.children().iter().all(|child| has_share(child.id))
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
        let duration_ms = self.querier.epoch_ms();
        let start_ms = epoch.saturating_mul(duration_ms.into());
        let members = self.members.at(&self.group.roster, start_ms);
        let stranger = sum.participants().first_outside(&members);
        if self.has_default_floor {
            self.querier.set_floor(default_floor(members.count()));
        }
        let opened = match (wrong, stranger) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(stranger)) => {
                Err(Rejection::NotMember(self.members.name(stranger).to_owned()))
            }
            (None, None) => self.querier.open_sum(epoch, &sum),
        };
        let mut masked = Participants::none(self.querier.shape().sources);
        let mut participants = sum.participants().clone();
        let is_open = matches!(opened, Ok(_) | Err(Rejection::BelowFloor { .. }));
        if let Some(openable) = self.querier.openable(&sum).filter(|_| is_open) {
            participants = openable.participants().clone();
            sum.participants()
                .iter()
                .filter(|position| !participants.contains(*position))
                .for_each(|position| masked.insert(position..position + 1));
        }
        let is_refused = opened.as_ref().is_err_and(|refusal| refusal.kind() == ErrorKind::Refused);
        let mut claimed_silent = Participants::none(self.querier.shape().sources);
        let are_claimed = |position: &u32| {
            let owner = self.aggregator.owner(*position);
            let child = owner.and_then(|place| self.aggregator.children().get(place));
            let has_report = child.is_some_and(|child| shares.contains_key(&child.id));
            let is_known = self.known.contains(*position);
            has_report && is_known && !sum.participants().contains(*position)
        };
        members
            .iter()
            .filter(|_| !is_refused)
            .filter(are_claimed)
            .for_each(|position| claimed_silent.insert(position..position + 1));
        let outcome = match opened {
            Ok(accepted) => {
                accepted.participants().runs().for_each(|run| self.known.insert(run));
                Outcome::Accepted(accepted)
            }
            Err(refusal @ Rejection::BelowFloor { .. }) => Outcome::Missing(refusal),
            Err(refusal @ Rejection::TooFewReadings { .. }) => {
                sum.participants().runs().for_each(|run| self.known.insert(run));
                Outcome::Withheld(refusal)
            }
            Err(refusal) => Outcome::Rejected { refusal, findings: Vec::new() },
        };
        let not_authentic = std::mem::take(&mut self.not_authentic);
        let not_authentic = self
            .aggregator
            .children()
            .iter()
            .filter(|child| not_authentic.contains(&child.id) && !shares.contains_key(&child.id))
            .map(|child| child.name.clone())
            .collect();
        let holds = self.refusal_epochs();
        self.refusals.retain(|_, (of, _)| of.saturating_add(holds) >= epoch);
        let reasons = self.refusals.iter().filter(|(position, (of, _))| {
            *of <= epoch && members.contains(**position) && !sum.participants().contains(**position)
        });
        let reasons = reasons.map(|(position, (_, reason))| (*position, reason.clone())).collect();
        // A mask hides whether the value of a single child is right.
        let is_localised = is_refused && self.querier.question().masked.is_none();
        let failed = is_localised.then(|| Failed { epoch, shares, members: members.clone() });
        let row = Row {
            query: self.querier.id(),
            epoch,
            start_ms,
            duration_ms,
            participants,
            masked,
            claimed_silent,
            members,
            not_authentic,
            reasons,
            names: self.members.names(),
            outcome,
        };
        (row, failed)
    }

    /// Creates the fault localisation for an epoch with a rejected result.
    #[must_use]
    pub fn localise(&self, failed: Failed) -> Localisation {
        let place = |(child, share): (DeviceId, Result<Sum, Rejection>)| {
            Some((self.aggregator.child(child)?, share.ok()))
        };
        let shares = failed.shares.into_iter().filter_map(place);
        let (tree, epoch) = (Arc::clone(&self.group.tree), failed.epoch);
        Localisation::new(tree, &self.querier, epoch, failed.members, shares)
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

    /// Returns the name of the source at a position.
    #[must_use]
    pub fn name(&self, position: u32) -> &str {
        self.names.get(position as usize).map_or("", String::as_str)
    }

    /// Returns the number of sources that were reported neither as participants nor as silent.
    #[must_use]
    pub fn unheard(&self) -> u32 {
        u32::try_from(self.unheard_positions().count()).unwrap_or(u32::MAX)
    }

    /// Returns the positions of the sources that were reported neither as participants nor as
    /// silent.
    pub fn unheard_positions(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.members.iter().filter(|at| {
            [&self.participants, &self.masked, &self.claimed_silent]
                .iter()
                .all(|answered| !answered.contains(*at))
        })
    }
}
