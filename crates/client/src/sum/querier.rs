//! Opening the answer to an epoch of a query, and nothing that was not checked gets out
//! (`docs/design.md`, *Sums*).
//!
//! The answer is exact over the participants that it names, or it is refused by the name of what is
//! wrong with it. Of each epoch one result is accepted: the difference of two would be the readings
//! of those who are in one of them only.

use std::fmt;

use moteseal_core::cbor::DecodeError;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::participation::{Participation, ParticipationError};
use moteseal_sum::query::{AnswerError, FixedPoint, Plan, QueryId};
use moteseal_sum::sies::{Master, OpenError, PsrError};
use moteseal_sum::wire::Share;

use super::key_table::{KeyTable, NotOpened};
use super::participants::Participants;
use super::share::{Shape, ShareError, Sum};

/// Sums of fewer sources are never shown: one alone would be a reading.
pub const LEAST_FLOOR: u32 = 2;
/// As many epochs behind the newest that was accepted can still be accepted.
pub const EPOCHS_AFTER: u64 = 64;

/// The floor where nobody names one: more than half of the sources, and no fewer than two.
#[must_use]
pub fn default_floor(sources: u32) -> u32 {
    (sources / 2 + 1).max(LEAST_FLOOR)
}

/// Why a query cannot be asked of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoseError {
    /// A floor below two, or above the number of sources.
    FloorOutOfRange {
        /// The floor.
        floor: u32,
        /// The sources of the roster.
        sources: u32,
    },
    /// A sum could be too large; which one, and what to do.
    Overflow(String),
    /// The plan is none.
    Plan(DecodeError),
}

impl PoseError {
    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FloorOutOfRange { .. } => "FloorOutOfRange",
            Self::Overflow(_) => "Overflow",
            Self::Plan(error) => error.name(),
        }
    }
}

impl fmt::Display for PoseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FloorOutOfRange { floor, sources } if *sources < LEAST_FLOOR => {
                write!(
                    f,
                    "a sum over fewer than {LEAST_FLOOR} sources would show a reading ({floor} of {sources})"
                )
            }
            Self::FloorOutOfRange { floor, sources } => {
                write!(
                    f,
                    "the floor is {floor}; it must be from {LEAST_FLOOR} to the {sources} sources of the roster"
                )
            }
            Self::Overflow(text) => f.write_str(text),
            Self::Plan(error) => error.named().fmt(f),
        }
    }
}

impl std::error::Error for PoseError {}

/// Why an answer is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The answer to another query.
    WrongQuery,
    /// The answer for another epoch, or for one that ended long before one that was accepted.
    WrongEpoch,
    /// Its participants or its records are not what they must be.
    Share(ShareError),
    /// Fewer participants than the floor.
    BelowFloor {
        /// How many there are.
        participants: u32,
        /// How many there must be.
        floor: u32,
    },
    /// The numbers are wrong.
    Sum {
        /// In which way.
        error: OpenError,
        /// Of which sum: `the count`, or `the sum of temperature`.
        slot: String,
        /// Of which key group.
        key_group: u32,
    },
    /// Every sum is one that the participants can have said, and together no readings have them.
    Answer(AnswerError),
    /// The epoch has a result.
    AlreadyAccepted,
}

impl Rejection {
    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WrongQuery => "WrongQuery",
            Self::WrongEpoch => "WrongEpoch",
            Self::Share(error) => error.name(),
            Self::BelowFloor { .. } => "BelowFloor",
            Self::Sum { error, .. } => error.name(),
            Self::Answer(error) => error.name(),
            Self::AlreadyAccepted => "AlreadyAccepted",
        }
    }
}

impl fmt::Display for Rejection {
    /// The name, and what is wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongQuery => f.write_str("the answer to another query"),
            Self::WrongEpoch => {
                f.write_str("the answer for another epoch than the one that is opened")
            }
            Self::Share(error) => error.fmt(f),
            Self::BelowFloor { participants, floor } => {
                write!(f, "{participants} took part, and sums of fewer than {floor} are not shown")
            }
            Self::Sum { error, slot, key_group } => {
                write!(f, "{error} ({slot}, key group {key_group})")
            }
            Self::Answer(error) => error.fmt(f),
            Self::AlreadyAccepted => f.write_str(
                "this epoch has a result, and the difference of two would show single readings",
            ),
        }
    }
}

impl std::error::Error for Rejection {}

impl From<ShareError> for Rejection {
    fn from(error: ShareError) -> Self {
        Self::Share(error)
    }
}

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

/// What is asked of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that gives the sources their positions.
    pub roster: Digest,
    /// Random, so that the query has keys of its own.
    pub nonce: [u8; 16],
    /// The plan, encoded.
    pub plan: Vec<u8>,
    /// How many sources are in a key group.
    pub key_group: u32,
    /// Sums of fewer sources are not shown.
    pub floor: u32,
}

impl Question {
    /// The query's id.
    #[must_use]
    pub fn id(&self) -> QueryId {
        QueryId::of(&self.roster, &self.nonce, &self.plan)
    }
}

/// The querier of one query: its keys, and what it has accepted.
#[derive(Debug)]
pub struct Querier<E> {
    question: Question,
    id: QueryId,
    /// Of each slot the largest value of one source.
    most: Vec<u128>,
    epoch_ms: u32,
    keys: KeyTable,
    accepted: AcceptedEpochs,
    engine: E,
}

/// The exact answer for an epoch, over the participants that it names. Opened and checked; there is
/// no other kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    query: QueryId,
    epoch: u64,
    participants: Participants,
    values: Vec<Option<FixedPoint>>,
}

impl Accepted {
    /// The query.
    #[must_use]
    pub const fn query(&self) -> QueryId {
        self.query
    }

    /// The epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whose readings it is of.
    #[must_use]
    pub const fn participants(&self) -> &Participants {
        &self.participants
    }

    /// The value of each selected item, in order; `None` where it is one of no readings.
    #[must_use]
    pub fn values(&self) -> &[Option<FixedPoint>] {
        &self.values
    }
}

impl<E: KeyEngine + Sync> Querier<E> {
    /// Derives the keys for a question to the devices at the positions `0, 1, ...` of its roster.
    /// `progress` is told of every few thousand sources whose keys were derived, by any thread.
    ///
    /// # Errors
    /// [`PoseError`], before anything is derived.
    pub fn new(
        question: Question,
        master: &Master,
        devices: &[DeviceId],
        engine: E,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Self, PoseError> {
        let plan = Plan::decode(&question.plan).map_err(PoseError::Plan)?;
        let sources = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        if !(LEAST_FLOOR..=sources).contains(&question.floor) {
            return Err(PoseError::FloorOutOfRange { floor: question.floor, sources });
        }
        plan.check_capacity(sources)
            .map_err(|overflow| PoseError::Overflow(overflow.to_string()))?;
        let most: Vec<u128> = plan.slots().map(|slot| slot.vmax).collect();
        let slots =
            u8::try_from(most.len()).map_err(|_| PoseError::Plan(DecodeError::FieldOutOfRange))?;
        let shape = Shape { sources, key_group: question.key_group.max(1), slots };
        let (id, epoch_ms) = (question.id(), plan.epoch_ms());
        let keys = KeyTable::build(master, question.group, id, devices, shape, progress);
        Ok(Self { question, id, most, epoch_ms, keys, accepted: AcceptedEpochs::default(), engine })
    }

    /// The query's id.
    #[must_use]
    pub const fn id(&self) -> QueryId {
        self.id
    }

    /// What is asked.
    #[must_use]
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// How long an epoch of the query lasts, in milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u32 {
        self.epoch_ms
    }

    /// How the sources are arranged.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.keys.shape()
    }

    /// Reads what a child says of an epoch of this query.
    ///
    /// # Errors
    /// `WrongQuery`, `WrongEpoch`, and [`ShareError`], in this order.
    pub fn read(&self, epoch: u64, share: &Share<'_>) -> Result<Sum, Rejection> {
        self.check_names(epoch, share)?;
        Ok(Sum::read(self.shape(), share.participation, &share.psrs)?)
    }

    /// Opens the whole answer for an epoch, as one share.
    ///
    /// # Errors
    /// [`Rejection`]: the first that holds of `WrongQuery`, `WrongEpoch`, `MalformedParticipation`,
    /// `UnknownPosition`, `BelowFloor`, `WrongPsrCount`, `TruncatedPsr`, `NotCanonical`,
    /// `SharesMismatch`, `SumOutOfRange`, those of [`AnswerError`], `AlreadyAccepted`.
    pub fn open(&mut self, epoch: u64, share: &Share<'_>) -> Result<Accepted, Rejection> {
        self.check_names(epoch, share)?;
        let shape = self.shape();
        let participants = Participants::of(
            &Participation::decode(share.participation, shape.sources)?,
            shape.sources,
        );
        self.check_floor(&participants)?;
        self.open_sum(epoch, &Sum::read_psrs(shape, participants, &share.psrs)?)
    }

    /// Opens what all children have said of an epoch, added up.
    ///
    /// # Errors
    /// [`Rejection`]: as [`open`](Self::open) from `BelowFloor` on.
    pub fn open_sum(&mut self, epoch: u64, sum: &Sum) -> Result<Accepted, Rejection> {
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
        let participants = sum.participants();
        let values =
            plan.answer(&totals, participants.count()).map_err(Rejection::Answer)?.collect();
        if !self.accepted.accept(epoch) {
            return Err(Rejection::AlreadyAccepted);
        }
        Ok(Accepted { query: self.id, epoch, participants: participants.clone(), values })
    }

    /// Whether a share is what its participants have said: yes or no, and nothing of what that is,
    /// also below the floor.
    pub(super) fn is_true(&self, epoch: u64, sum: &Sum) -> bool {
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

/// The epochs that have a result: the newest, and which of those shortly before it.
#[derive(Clone, Copy, Debug, Default)]
struct AcceptedEpochs {
    /// The newest, and a bit for each epoch back from it.
    newest: Option<(u64, u64)>,
}

impl AcceptedEpochs {
    /// Whether nothing is known of an epoch any more.
    fn is_past(self, epoch: u64) -> bool {
        self.newest.is_some_and(|(newest, _)| newest.saturating_sub(epoch) >= EPOCHS_AFTER)
    }

    /// Notes an epoch; says whether it was the first time.
    fn accept(&mut self, epoch: u64) -> bool {
        let (newest, seen) = self.newest.unwrap_or((epoch, 0));
        let (newest, seen) = match epoch.checked_sub(newest) {
            Some(ahead) => (
                epoch,
                u32::try_from(ahead).ok().and_then(|ahead| seen.checked_shl(ahead)).unwrap_or(0),
            ),
            None => (newest, seen),
        };
        let behind = newest - epoch;
        if behind >= EPOCHS_AFTER || seen >> behind & 1 != 0 {
            return false;
        }
        self.newest = Some((newest, seen | 1 << behind));
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
