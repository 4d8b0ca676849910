//! Whether a roster is a later version of another one (spec/formats.md, section 2.2).
//!
//! A roster states its own epochs, levels and budget, and is what epochs under earlier versions are judged by as well: a seal's
//! counters, the round that is due, what *at most* serves. So these may not change between versions; a group that needs others is
//! another group. Who belongs to a group, and by which keys, may change, and is not judged here.

use moteseal_core::roster::Directory as _;

use crate::roster::Roster;

/// Why a roster does not succeed another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuccessionError {
    /// It is of another group.
    #[error("the roster is of another group")]
    WrongGroup,
    /// It is not a later version of this roster: its history does not contain this one.
    #[error("the roster is not a later version of the one in use: its history does not contain it")]
    NotLater,
    /// Its epochs have another length.
    #[error("the length of an epoch cannot change between versions of a roster; make a new group")]
    EpochLengthChanged,
    /// It has another number of levels.
    #[error("the number of levels cannot change between versions of a roster; make a new group")]
    LevelsChanged,
    /// It has another budget, or none where there was one.
    #[error("the budget cannot change between versions of a roster; make a new group")]
    BudgetChanged,
}

impl SuccessionError {
    /// The error's name: spec/errors.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongGroup => "WrongGroup",
            Self::NotLater => "NotLater",
            Self::EpochLengthChanged => "EpochLengthChanged",
            Self::LevelsChanged => "LevelsChanged",
            Self::BudgetChanged => "BudgetChanged",
        }
    }
}

impl Roster {
    /// Whether this is a later version of `before`, both of them verified.
    ///
    /// # Errors
    /// [`SuccessionError`]: the first property that fails, in the order of section 2.2.
    pub fn check_succeeds(&self, before: &Self) -> Result<(), SuccessionError> {
        if self.group() != before.group() {
            return Err(SuccessionError::WrongGroup);
        }
        if self.version() <= before.version()
            || self.version_of(&before.digest()) != Some(before.version())
        {
            return Err(SuccessionError::NotLater);
        }
        if self.epoch_ms() != before.epoch_ms() {
            return Err(SuccessionError::EpochLengthChanged);
        }
        if self.levels() != before.levels() {
            return Err(SuccessionError::LevelsChanged);
        }
        if self.budget() != before.budget() { Err(SuccessionError::BudgetChanged) } else { Ok(()) }
    }
}
