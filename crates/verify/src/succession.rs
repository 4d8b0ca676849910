//! Checks whether a roster is a later version of another (spec/formats.md, section 2.2).
//!
//! A roster's epoch length, levels and budget also apply to the epochs under its earlier versions:
//! they determine the number of counters in a seal, the round that a budget requires, and the
//! selection of an *at most* query. They must therefore not change between versions. A group that
//! needs other values must become a new group. Devices and keys may change; this module does not
//! compare them.

use moteseal_core::error::Named;
use moteseal_core::roster::Directory as _;

use crate::roster::Roster;

/// Why a roster is not a later version of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuccessionError {
    /// The roster is of another group.
    #[error("the roster is of another group")]
    WrongGroup,
    /// The roster is not a later version of the earlier one: its history does not contain the
    /// earlier roster.
    #[error("the roster is not a later version of the one in use: its history does not contain it")]
    NotLater,
    /// The two rosters have different epoch lengths.
    #[error("the length of an epoch cannot change between versions of a roster; make a new group")]
    EpochLengthChanged,
    /// The two rosters have different numbers of levels.
    #[error("the number of levels cannot change between versions of a roster; make a new group")]
    LevelsChanged,
    /// The two rosters have different budgets, or only one of them has a budget.
    #[error("the budget cannot change between versions of a roster; make a new group")]
    BudgetChanged,
}

impl SuccessionError {
    /// Returns the error's name: spec/errors.md.
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

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl Roster {
    /// Checks that this roster is a later version of `before`. Both must have been verified.
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
