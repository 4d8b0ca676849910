//! Checks whether a roster is a later version of another (spec/objects.md, section 4).
//!
//! A later version may add periods, devices and keys, and may end the terms of keys. Everything
//! else must be as in the earlier version: otherwise seals that were valid under the earlier
//! version could become invalid under the later one, and the reverse.

use moteseal_core::error::Named;
use moteseal_core::roster::Directory as _;

use crate::roster::{Device, Roster, Term};

/// Why a roster is not a later version of another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuccessionError {
    /// The roster is of another group.
    #[error("the roster is of another group")]
    WrongGroup,
    /// The roster is not a later version of the earlier one: its history does not contain the
    /// earlier roster.
    #[error("the roster is not a later version of the one in use: its history does not contain it")]
    NotLater,
    /// A period of the earlier roster is missing or different, or a new period begins with a
    /// version that the earlier roster already had.
    #[error(
        "the roster changes the epoch length, levels, budget or coordinator of a period that an \
         earlier version fixed; begin a new period with `moteseal roster set`"
    )]
    PeriodsChanged,
    /// A device of the earlier roster is missing or different in more than additional keys and
    /// earlier ends, or a new device claims to have been listed before.
    #[error("the roster changes what an earlier version states about the device {name}")]
    DeviceChanged {
        /// The device's name.
        name: String,
    },
}

impl SuccessionError {
    /// Returns the error's name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WrongGroup => "WrongGroup",
            Self::NotLater => "NotLater",
            Self::PeriodsChanged => "PeriodsChanged",
            Self::DeviceChanged { .. } => "DeviceChanged",
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
    /// [`SuccessionError`]: the first check that fails, in the order of spec/objects.md, section
    /// 4.
    pub fn check_succeeds(&self, before: &Self) -> Result<(), SuccessionError> {
        if self.group() != before.group() {
            return Err(SuccessionError::WrongGroup);
        }
        if self.version() <= before.version()
            || self.version_of(&before.digest()) != Some(before.version())
        {
            return Err(SuccessionError::NotLater);
        }
        let (kept, added) =
            self.periods().split_at_checked(before.periods().len()).unwrap_or_default();
        if kept != before.periods() || added.iter().any(|new| new.version <= before.version()) {
            return Err(SuccessionError::PeriodsChanged);
        }
        let changed =
            |device: &Device| SuccessionError::DeviceChanged { name: device.name.clone() };
        for earlier in before.devices() {
            let later = self.device(earlier.id).ok_or_else(|| changed(earlier))?;
            if !continues(later, earlier) {
                return Err(changed(earlier));
            }
        }
        let is_new = |device: &&Device| before.device(device.id).is_none();
        match self.devices().filter(is_new).find(|device| device.since <= before.version()) {
            Some(device) => Err(changed(device)),
            None => Ok(()),
        }
    }
}

/// Returns whether a device's entry has all terms of an earlier entry, each of which may end
/// earlier than before, but not later.
fn continues(later: &Device, earlier: &Device) -> bool {
    let is_same = |(later, earlier): (&Term, &Term)| {
        later.certificate == earlier.certificate
            && later.first_epoch == earlier.first_epoch
            && earlier.end_index.is_none_or(|end| later.end_index.is_some_and(|new| new <= end))
            && earlier.end_epoch.is_none_or(|end| later.end_epoch.is_some_and(|new| new <= end))
    };
    later.since == earlier.since
        && later.terms().len() >= earlier.terms().len()
        && later.terms().iter().zip(earlier.terms()).all(is_same)
}
