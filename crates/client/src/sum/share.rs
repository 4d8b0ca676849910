//! A child's share of an epoch: a set of participants, and one record per slot for each key group
//! that has a participant.
//!
//! Parsing checks the encoding completely. It cannot check whether the sums in the records are
//! correct; only opening a share shows that. Before that, shares can only be added and compared.

use std::ops::Range;

use moteseal_api::ErrorKind;
use moteseal_core::participation::{Participation, ParticipationError};
use moteseal_sum::sies::{Psr, PsrError, Slot};
use moteseal_sum::wire::Psrs;

use super::participants::Participants;

/// The arrangement of a query's sources in key groups, and the number of slots of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of sources in the roster.
    pub sources: u32,
    /// The number of sources in a key group, in the order of their positions; at least 1.
    pub key_group: u32,
    /// The number of slots of the query.
    pub slots: u8,
}

impl Shape {
    /// Returns the number of key groups.
    #[must_use]
    pub const fn groups(&self) -> u32 {
        self.sources.div_ceil(if self.key_group == 0 { 1 } else { self.key_group })
    }

    /// Returns the positions of a key group.
    #[must_use]
    pub fn positions(&self, key_group: u32) -> Range<u32> {
        let start = key_group.saturating_mul(self.key_group).min(self.sources);
        start..start.saturating_add(self.key_group).min(self.sources)
    }
}

/// Why a child's share is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The encoding of the participants is invalid.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// The number of records is not the number of slots times the number of key groups that have a
    /// participant.
    #[error(
        "the share does not have the {expected} partial state records that its participants need \
         (counted {found})"
    )]
    WrongPsrCount {
        /// The number of records that the participants require.
        expected: usize,
        /// The number of records found. Counting stops at one more than `expected`.
        found: usize,
    },
    /// A record has an invalid encoding.
    #[error(transparent)]
    Psr(PsrError),
    /// A participant is not below the child in the tree.
    #[error("the share names a participant that is not below the child in the tree")]
    NotBeneath,
    /// Another child named the same participant.
    #[error("two children name the same participant")]
    Overlap,
}

impl ShareError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Participation(error) => error.name(),
            Self::WrongPsrCount { .. } => "WrongPsrCount",
            Self::Psr(error) => error.name(),
            Self::NotBeneath => "NotBeneath",
            Self::Overlap => "Overlap",
        }
    }

    /// Always returns [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

moteseal_api::named_error!(ShareError);

/// A share, or the sum of several shares of one query and epoch. It has not been opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    shape: Shape,
    participants: Participants,
    /// The records of each key group, one per slot. They are zero if the key group has no
    /// participant.
    psrs: Box<[Psr]>,
}

impl Sum {
    /// Returns the sum of no shares.
    #[must_use]
    pub fn none(shape: Shape) -> Self {
        let psrs = vec![Psr::ZERO; shape.groups() as usize * usize::from(shape.slots)].into();
        Self { shape, participants: Participants::none(shape.sources), psrs }
    }

    /// Parses a child's share.
    ///
    /// # Errors
    /// [`ShareError`]. The participants, the number of records and the records are checked in this
    /// order.
    pub fn read(shape: Shape, participation: &[u8], psrs: &Psrs<'_>) -> Result<Self, ShareError> {
        let participation = Participation::decode(participation, shape.sources)?;
        Self::read_psrs(shape, Participants::of(&participation, shape.sources), psrs)
    }

    /// Parses the records for these participants.
    pub(super) fn read_psrs(
        shape: Shape,
        participants: Participants,
        psrs: &Psrs<'_>,
    ) -> Result<Self, ShareError> {
        let mut sum = Self { participants, ..Self::none(shape) };
        let slots = usize::from(shape.slots);
        let with = |group: &u32| sum.participants.count_in(&shape.positions(*group)) > 0;
        let present: Vec<usize> =
            (0..shape.groups()).filter(with).map(|group| group as usize).collect();
        let expected = present.len() * slots;
        let found = psrs.iter().take(expected + 1).count();
        if found != expected {
            return Err(ShareError::WrongPsrCount { expected, found });
        }
        let places = present.into_iter().flat_map(|group| group * slots..(group + 1) * slots);
        for (place, psr) in places.zip(psrs.iter()) {
            sum.psrs[place] = psr.map_err(ShareError::Psr)?;
        }
        Ok(sum)
    }

    /// Adds another share of the same query and epoch.
    ///
    /// # Errors
    /// [`ShareError::Overlap`] if the shares have a participant in common. Then the sum is
    /// unchanged.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShareError> {
        if self.participants.overlap(&other.participants) {
            return Err(ShareError::Overlap);
        }
        self.participants.merge(&other.participants);
        self.psrs.iter_mut().zip(&other.psrs).for_each(|(psr, other)| *psr = psr.merge(other));
        Ok(())
    }

    /// Returns the part of the sum that is in certain key groups.
    #[must_use]
    pub(super) fn only(&self, has: impl Fn(u32) -> bool) -> Self {
        let mut part = Self::none(self.shape);
        let slots = usize::from(self.shape.slots);
        for key_group in (0..self.shape.groups()).filter(|key_group| has(*key_group)) {
            let places = key_group as usize * slots..(key_group as usize + 1) * slots;
            part.psrs[places.clone()].copy_from_slice(&self.psrs[places]);
            let positions = self.shape.positions(key_group);
            for position in positions.filter(|position| self.participants.contains(*position)) {
                part.participants.insert(position..position + 1);
            }
        }
        part
    }

    /// Returns how the sources of the query are arranged.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the participants that the share names.
    #[must_use]
    pub const fn participants(&self) -> &Participants {
        &self.participants
    }

    /// Returns the record of a slot of a key group.
    pub(super) fn psr(&self, key_group: u32, slot: Slot) -> Option<Psr> {
        self.psrs
            .get(key_group as usize * usize::from(self.shape.slots) + usize::from(slot.0))
            .copied()
    }
}
