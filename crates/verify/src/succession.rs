//! Whether a roster is a later version of another one (spec/formats.md, section 2.2).
//!
//! A roster states its own epochs, levels and budget, and is what epochs under earlier versions are judged by as well: a seal's
//! counters, the round that is due, what *at most* serves. So these may not change between versions; a group that needs others is
//! another group. Who belongs to a group, and by which keys, may change, and is not judged here.

use std::fmt;

use moteseal_core::roster::Directory as _;

use crate::roster::Roster;

/// Why a roster does not succeed another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuccessionError {
    /// It is of another group.
    WrongGroup,
    /// It is not a later version, or not one of that roster: its history does not have it.
    NotLater,
    /// Its epochs are of another length.
    EpochLengthChanged,
    /// It has another number of levels.
    LevelsChanged,
    /// It has another budget, or none where there was one.
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

impl fmt::Display for SuccessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::WrongGroup => "the roster is of another group",
            Self::NotLater => {
                "the roster is no later version: its history does not have the one that is in use"
            }
            Self::EpochLengthChanged => {
                "the length of an epoch cannot change between versions of a roster; make a new group"
            }
            Self::LevelsChanged => {
                "the number of levels cannot change between versions of a roster; make a new group"
            }
            Self::BudgetChanged => {
                "the budget cannot change between versions of a roster; make a new group"
            }
        };
        write!(f, "{}: {what}", self.name())
    }
}

impl std::error::Error for SuccessionError {}

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
