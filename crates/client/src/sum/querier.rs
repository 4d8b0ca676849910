//! Opens and checks the answer to a query for one epoch, and returns only checked values
//! (`docs/design.md`, *Sums*).
//!
//! An answer is either exact over the participants that it names, or it is rejected with an error.
//! At most one answer for each epoch is accepted. The difference of two answers would reveal the
//! readings of the sources that take part in only one of them.

use moteseal_api::ErrorKind;
use moteseal_core::cbor::DecodeError;
use moteseal_core::digest::Digest;
use moteseal_core::participation::{Participation, ParticipationError};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::query::{AnswerError, Plan, QueryId};
use moteseal_sum::sies::{Master, OpenError, PsrError};
use moteseal_sum::wire::Share;

use super::group_result::{GroupResult, ResultValue, Results};
use super::key_table::{KeyTable, NotOpened};
use super::participants::Participants;
use super::share::{Shape, ShareError, Sum};

/// The smallest permitted floor. A sum over one source would reveal that source's reading.
pub const LEAST_FLOOR: u32 = 2;
/// The number of tracked epochs: the newest accepted epoch and the epochs directly before it. An
/// answer for an older epoch is rejected.
pub const EPOCHS_AFTER: u64 = 64;

/// The default minimum number of readings of a result.
pub const MIN_COUNT: u32 = 5;
/// The default minimum number of readings of a result with a variance or a standard deviation.
pub(super) const MIN_COUNT_SQUARES: u32 = 8;

/// Returns the default minimum number of readings of a query's results: 5, or 8 if the query needs
/// sums of squares, which show more about each reading.
#[must_use]
pub fn default_min_count(plan: &Plan<'_>) -> u32 {
    if plan.has_squares() { MIN_COUNT_SQUARES } else { MIN_COUNT }
}

/// Returns the default floor: more than half of the sources, and at least two.
#[must_use]
pub fn default_floor(sources: u32) -> u32 {
    (sources / 2 + 1).max(LEAST_FLOOR)
}

/// Why a query cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoseError {
    /// The floor is less than two or greater than the number of sources.
    #[error("{}", floor_out_of_range(*floor, *sources))]
    FloorOutOfRange {
        /// The floor.
        floor: u32,
        /// The number of sources in the roster.
        sources: u32,
    },
    /// A sum could overflow. The text names the sum and states what to do.
    #[error("{0}")]
    Overflow(String),
    /// The encoded plan is invalid.
    #[error(transparent)]
    Plan(DecodeError),
}

impl PoseError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FloorOutOfRange { .. } => "FloorOutOfRange",
            Self::Overflow(_) => "Overflow",
            Self::Plan(error) => error.name(),
        }
    }

    /// Returns [`Internal`](ErrorKind::Internal) if the plan is invalid, because this crate encodes
    /// it, and [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::FloorOutOfRange { .. } | Self::Overflow(_) => ErrorKind::Usage,
            Self::Plan(_) => ErrorKind::Internal,
        }
    }
}

fn floor_out_of_range(floor: u32, sources: u32) -> String {
    if sources < LEAST_FLOOR {
        format!(
            "the roster has {sources} sources, but a sum needs at least {LEAST_FLOOR}: a sum over \
             one source would show its reading"
        )
    } else {
        format!(
            "the floor is {floor}; it must be from {LEAST_FLOOR} to the number of sources in the \
             roster, {sources}"
        )
    }
}

/// Why an answer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The answer is to a different query.
    #[error("the answer is to a different query")]
    WrongQuery,
    /// The answer is for a different epoch, or for an epoch that is at least [`EPOCHS_AFTER`]
    /// epochs before the newest accepted epoch.
    #[error("the answer is for a different epoch than the epoch that is being opened")]
    WrongEpoch,
    /// The set of participants or a record is invalid.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// There are fewer participants than the floor.
    #[error("{participants} took part, but sums of fewer than {floor} participants are not shown")]
    BelowFloor {
        /// The number of participants.
        participants: u32,
        /// The floor.
        floor: u32,
    },
    /// The results are withheld, because they are over few readings. Their number is not shown
    /// either, because it is a result, too.
    #[error("the results of fewer than {minimum} readings are withheld")]
    TooFewReadings {
        /// The minimum number of readings.
        minimum: u32,
    },
    /// A participant does not take part in the epoch.
    #[error(
        "{0} does not take part in this epoch, but an aggregator has added its value; give the \
         aggregators at the named edge the newest version of the roster"
    )]
    NotMember(String),
    /// A sum could not be opened, because it is not correct.
    #[error("{error} ({slot}, key group {key_group})")]
    Sum {
        /// The error of opening the sum.
        error: OpenError,
        /// The sum, such as `the count` or `the sum of temperature`.
        slot: String,
        /// The key group.
        key_group: u32,
    },
    /// Each sum is possible by itself, but no set of readings has all these sums.
    #[error(transparent)]
    Answer(AnswerError),
    /// The epoch already has an accepted answer.
    #[error(
        "this epoch already has a result, and the difference of two results could show single \
         readings"
    )]
    AlreadyAccepted,
}

impl Rejection {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WrongQuery => "WrongQuery",
            Self::WrongEpoch => "WrongEpoch",
            Self::Share(error) => error.name(),
            Self::BelowFloor { .. } => "BelowFloor",
            Self::TooFewReadings { .. } => "TooFewReadings",
            Self::NotMember(_) => "NotMember",
            Self::Sum { error, .. } => error.name(),
            Self::Answer(error) => error.name(),
            Self::AlreadyAccepted => "AlreadyAccepted",
        }
    }

    /// Returns [`Incomplete`](ErrorKind::Incomplete) if too few sources took part or the results are
    /// withheld, and [`Refused`](ErrorKind::Refused) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BelowFloor { .. } | Self::TooFewReadings { .. } => ErrorKind::Incomplete,
            _ => ErrorKind::Refused,
        }
    }
}

moteseal_api::named_error!(PoseError, Rejection);

impl From<ParticipationError> for Rejection {
    fn from(error: ParticipationError) -> Self {
        Self::Share(error.into())
    }
}

impl From<PsrError> for Rejection {
    fn from(error: PsrError) -> Self {
        Self::Share(ShareError::Psr(error))
    }
}

/// A query to the devices of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The group.
    pub group: GroupId,
    /// The digest of the querier's set-up ([`QuerierName::set_up_digest`]); that of version 0 of the
    /// group's roster for a querier with the default name.
    ///
    /// [`QuerierName::set_up_digest`]: moteseal_sum::QuerierName::set_up_digest
    pub roster: Digest,
    /// A random number, which gives each query different keys.
    pub nonce: [u8; 16],
    /// The encoded plan.
    pub plan: Vec<u8>,
    /// The number of sources in a key group.
    pub key_group: u32,
    /// The minimum number of participants. Sums of fewer sources are not opened.
    pub floor: u32,
    /// The minimum number of readings. Results of fewer readings are withheld, except results of no
    /// reading. [`default_min_count`] is the default.
    pub min_count: u32,
    /// If the devices mask their answers, because the querier is not trusted with the readings: the
    /// devices that have masks.
    pub masked: Option<Participants>,
}

impl Question {
    /// Returns the query's id.
    #[must_use]
    pub fn id(&self) -> QueryId {
        QueryId::of(&self.roster, &self.nonce, &self.plan)
    }
}

/// The querier of one query: its keys, and the epochs that it has accepted.
#[derive(Debug)]
pub struct Querier<E> {
    question: Question,
    id: QueryId,
    /// The largest value that one source can have, for each slot.
    most: Vec<u128>,
    epoch_ms: u32,
    keys: KeyTable,
    accepted: AcceptedEpochs,
    engine: E,
}

/// The exact, checked answer to a query for one epoch, over the participants that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    query: QueryId,
    epoch: u64,
    participants: Participants,
    groups: Vec<GroupResult>,
}

impl Accepted {
    /// Returns the id of the query.
    #[must_use]
    pub const fn query(&self) -> QueryId {
        self.query
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the sources whose readings the answer contains.
    #[must_use]
    pub const fn participants(&self) -> &Participants {
        &self.participants
    }

    /// Returns the results for each group, in the order of the query.
    #[must_use]
    pub fn groups(&self) -> &[GroupResult] {
        &self.groups
    }

    fn results(&self) -> impl Iterator<Item = &Results> {
        self.groups.iter().filter_map(|group| group.results.as_ref())
    }

    /// Returns the number of readings in the results that are not withheld. With noise, it is not
    /// exact.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.results().fold(0, |total, results| total.saturating_add(results.count))
    }

    /// Returns the number of readings that the query selects, but that are not in the results because
    /// a value is outside the range that the query declares for a summed column.
    #[must_use]
    pub fn outside(&self) -> u32 {
        self.results().fold(0, |total, results| total.saturating_add(results.outside))
    }

    /// Returns the value of each selected item, in order, for each group whose results are not
    /// withheld. If there are no readings, the items that are then undefined, such as a mean, are
    /// `None`.
    #[must_use]
    pub fn values(&self) -> Vec<Option<&ResultValue>> {
        self.results().flat_map(|results| results.values.iter().map(Option::as_ref)).collect()
    }
}

impl<E: KeyEngine + Sync> Querier<E> {
    /// Derives the keys for a question to the devices at the positions `0, 1, ...` of its roster.
    /// Several threads may derive keys. Each of them calls `progress` after every few thousand
    /// sources, with the number of sources since its previous call.
    ///
    /// # Errors
    /// [`PoseError`] if the question is invalid. In this case no key is derived.
    pub fn new(
        question: Question,
        master: &Master,
        devices: &[DeviceId],
        engine: E,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Self, PoseError> {
        let plan = Plan::decode(&question.plan).map_err(PoseError::Plan)?;
        let sources = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        check(&plan, question.floor, sources)?;
        let most: Vec<u128> = plan.slots().map(|slot| slot.most()).collect();
        let slots =
            u8::try_from(most.len()).map_err(|_| PoseError::Plan(DecodeError::FieldOutOfRange))?;
        let shape = Shape { sources, key_group: question.key_group.max(1), slots };
        let (id, epoch_ms) = (question.id(), plan.epoch_ms());
        let keys = KeyTable::build(master, question.group, id, devices, shape, progress);
        Ok(Self { question, id, most, epoch_ms, keys, accepted: AcceptedEpochs::default(), engine })
    }

    /// Continues with the devices of a later version of the roster: those of the querier, and
    /// further ones at the next positions.
    ///
    /// # Errors
    /// [`PoseError`]. Nothing has changed.
    pub fn grow(&mut self, master: &Master, devices: &[DeviceId]) -> Result<(), PoseError> {
        let plan = Plan::decode(&self.question.plan).map_err(PoseError::Plan)?;
        let sources = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        check(&plan, self.question.floor, sources)?;
        self.keys.grow(master, self.question.group, self.id, devices);
        Ok(())
    }

    /// Sets the minimum number of participants for the epochs that are opened from now on.
    pub(super) const fn set_floor(&mut self, floor: u32) {
        self.question.floor = floor;
    }

    /// Returns the query's id.
    #[must_use]
    pub const fn id(&self) -> QueryId {
        self.id
    }

    /// Returns the question.
    #[must_use]
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// Returns the duration of the query's epochs in milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u32 {
        self.epoch_ms
    }

    /// Returns how the sources of the query are arranged.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.keys.shape()
    }

    /// Parses a child's share of an epoch of this query.
    ///
    /// # Errors
    /// `WrongQuery`, `WrongEpoch` or [`ShareError`], checked in this order.
    pub fn read(&self, epoch: u64, share: &Share<'_>) -> Result<Sum, Rejection> {
        self.check_names(epoch, share)?;
        Ok(Sum::read(self.shape(), share.participation, &share.psrs)?)
    }

    /// Opens an answer for an epoch that consists of a single share.
    ///
    /// # Errors
    /// [`Rejection`], with the first of these errors that applies: `WrongQuery`, `WrongEpoch`,
    /// `MalformedParticipation`, `UnknownPosition`, `BelowFloor`, `WrongPsrCount`, `TruncatedPsr`,
    /// `NotCanonical`, `SharesMismatch`, `SumOutOfRange`, the errors of [`AnswerError`],
    /// `AlreadyAccepted`, `TooFewReadings`.
    pub fn open(&mut self, epoch: u64, share: &Share<'_>) -> Result<Accepted, Rejection> {
        self.check_names(epoch, share)?;
        let shape = self.shape();
        let participants = Participants::of(
            &Participation::decode(share.participation, shape.sources)?,
            shape.sources,
        );
        if self.question.masked.is_none() {
            self.check_floor(&participants)?;
        }
        self.open_sum(epoch, &Sum::read_psrs(shape, participants, &share.psrs)?)
    }

    /// Returns the part of a sum that can be opened. If the devices mask their answers, this is the
    /// part of the key groups of which all devices have answered.
    pub(super) fn openable(&self, sum: &Sum) -> Option<Sum> {
        let masked = self.question.masked.as_ref()?;
        let has_answered =
            |position| !masked.contains(position) || sum.participants().contains(position);
        let is_whole = |key_group: u32| self.shape().positions(key_group).all(has_answered);
        Some(sum.only(is_whole))
    }

    /// Opens the sum of all children's shares of an epoch. If the devices mask their answers, opens
    /// only the sums of the key groups of which all devices have answered.
    ///
    /// # Errors
    /// [`Rejection`], with the errors of [`open`](Self::open) from `BelowFloor` on.
    pub fn open_sum(&mut self, epoch: u64, sum: &Sum) -> Result<Accepted, Rejection> {
        let openable = self.openable(sum);
        let sum = openable.as_ref().unwrap_or(sum);
        self.check_floor(sum.participants())?;
        if self.accepted.is_past(epoch) {
            return Err(Rejection::WrongEpoch);
        }
        let plan = Plan::decode(&self.question.plan).map_err(|_| Rejection::WrongQuery)?;
        let totals = self.keys.open(&self.engine, sum, &self.most, epoch).map_err(|failed| {
            let NotOpened { slot, key_group, error } = failed;
            let slot = plan
                .slots()
                .nth(usize::from(slot.0))
                .map(|slot| slot.to_string())
                .unwrap_or_default();
            Rejection::Sum { error, slot, key_group }
        })?;
        let participants = sum.participants().clone();
        let key_group = self.question.key_group.max(1);
        let mut rings: Vec<u32> =
            participants.iter().map(|position| position / key_group).collect();
        rings.dedup();
        let rings = u32::try_from(rings.len()).unwrap_or(u32::MAX);
        let answer = plan.answer(&totals, participants.count(), rings);
        let answer = answer.map_err(Rejection::Answer)?;
        // Noise protects small groups.
        let minimum = if plan.has_noise() { 0 } else { self.question.min_count };
        let groups: Vec<GroupResult> =
            answer.groups().map(|group| GroupResult::new(&group, minimum)).collect();
        if !self.accepted.accept(epoch) {
            return Err(Rejection::AlreadyAccepted);
        }
        let is_shown =
            |group: &GroupResult| group.results.as_ref().is_some_and(|results| results.count > 0);
        let is_withheld = groups.iter().any(|group| group.results.is_none());
        if is_withheld && !groups.iter().any(is_shown) {
            return Err(Rejection::TooFewReadings { minimum });
        }
        Ok(Accepted { query: self.id, epoch, participants, groups })
    }

    /// Returns whether a share is the correct sum of its participants. Unlike opening, this check
    /// is allowed below the floor, because it reveals nothing except the result of the check.
    pub(super) fn is_correct(&self, epoch: u64, sum: &Sum) -> bool {
        self.keys.open(&self.engine, sum, &self.most, epoch).is_ok()
    }

    fn check_names(&self, epoch: u64, share: &Share<'_>) -> Result<(), Rejection> {
        if share.query != self.id.reference() {
            return Err(Rejection::WrongQuery);
        }
        if share.epoch != epoch { Err(Rejection::WrongEpoch) } else { Ok(()) }
    }

    const fn check_floor(&self, participants: &Participants) -> Result<(), Rejection> {
        let (participants, floor) = (participants.count(), self.question.floor);
        if participants < floor {
            Err(Rejection::BelowFloor { participants, floor })
        } else {
            Ok(())
        }
    }
}

/// Checks a plan and a floor for a number of sources.
fn check(plan: &Plan<'_>, floor: u32, sources: u32) -> Result<(), PoseError> {
    if !(LEAST_FLOOR..=sources).contains(&floor) {
        return Err(PoseError::FloorOutOfRange { floor, sources });
    }
    plan.check_capacity(sources).map_err(|overflow| PoseError::Overflow(overflow.to_string()))
}

/// The epochs that have an accepted answer, among the [`EPOCHS_AFTER`] epochs up to and including
/// the newest such epoch.
#[derive(Clone, Copy, Debug, Default)]
struct AcceptedEpochs {
    /// The newest epoch, and a bitmap. Bit `i` of the bitmap represents the epoch that is `i`
    /// epochs before the newest.
    newest: Option<(u64, u64)>,
}

impl AcceptedEpochs {
    /// Returns whether an epoch is so old that it is no longer tracked.
    fn is_past(self, epoch: u64) -> bool {
        self.newest.is_some_and(|(newest, _)| newest.saturating_sub(epoch) >= EPOCHS_AFTER)
    }

    /// Records an epoch. Returns false if the epoch was recorded before or is too old.
    fn accept(&mut self, epoch: u64) -> bool {
        let (newest, seen) = self.newest.unwrap_or((epoch, 0));
        let (newest, seen) = match epoch.checked_sub(newest) {
            Some(ahead) => (
                epoch,
                u32::try_from(ahead).ok().and_then(|ahead| seen.checked_shl(ahead)).unwrap_or(0),
            ),
            None => (newest, seen),
        };
        let age = newest - epoch;
        if age >= EPOCHS_AFTER || seen >> age & 1 != 0 {
            return false;
        }
        self.newest = Some((newest, seen | 1 << age));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_epoch_is_accepted_once(epochs in prop::collection::vec(1000_u64..1200, 1..200)) {
            let (mut epochs_seen, mut found) = (BTreeSet::new(), AcceptedEpochs::default());
            for epoch in epochs {
                let newest = epochs_seen.last().copied().unwrap_or(epoch);
                let is_past = newest.saturating_sub(epoch) >= EPOCHS_AFTER;
                prop_assert_eq!(found.is_past(epoch), is_past);
                prop_assert_eq!(found.accept(epoch), !is_past && epochs_seen.insert(epoch));
            }
        }
    }
}
