//! Whether a roster is a later version of another (spec/formats.md, section 2.2).
//!
//! The epoch length, levels and budget of a roster also apply to epochs under its earlier versions:
//! to the counters of seals, the round that a budget requires, and the selection of *at most*. They
//! must therefore not change between versions; a group that needs other values is a new group.
//! Devices and keys may change and are not compared here.

use moteseal_core::error::Named;
use moteseal_core::roster::Directory as _;

use crate::roster::Roster;

/// Why a roster is not a later version of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuccessionError {
    /// It is of another group.
    #[error("the roster is of another group")]
    WrongGroup,
    /// It is not a later version of this roster: its history does not contain this one.
    #[error("the roster is not a later version of the one in use: its history does not contain it")]
    NotLater,
    /// Its epochs have a different length.
    #[error("the length of an epoch cannot change between versions of a roster; make a new group")]
    EpochLengthChanged,
    /// It has a different number of levels.
    #[error("the number of levels cannot change between versions of a roster; make a new group")]
    LevelsChanged,
    /// It has a different budget, or only one of the two rosters has a budget.
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

    /// The error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl Roster {
    /// Checks that this is a later version of `before`. Both have been verified.
    ///
    /// # Errors
    /// [`SuccessionError`]: the first check that fails, in the order of spec/formats.md, section
    /// 2.2.
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
