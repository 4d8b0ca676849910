//! The faults that end the mote's program.

use crate::flash::FlashFailed;
use crate::journal::JournalError;

/// Why the mote cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The journal failed.
    Journal(JournalError),
    /// The schema is invalid, its records are longer than 65,535 bytes, or a reading does not have
    /// its record size.
    Schema,
    /// The schema has more column groups than this firmware supports, or the mote is to seal them as
    /// trees.
    ColumnGroups,
    /// The flash does not contain the readings that the provisioning selects.
    Readings,
    /// The group has more levels than this firmware supports.
    Levels,
    /// The seal could not be signed.
    Sign,
    /// There are no keys of the encrypted columns, or not for the epoch.
    NoKeys,
}

impl Fault {
    /// The fault's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::Schema => "SchemaUnusable",
            Self::ColumnGroups => "ColumnGroups",
            Self::Readings => "NoSuchReadings",
            Self::Levels => "LevelsMismatch",
            Self::Sign => "NotSigned",
            Self::NoKeys => "NoStreamSecret",
        }
    }
}

impl From<FlashFailed> for Fault {
    fn from(error: FlashFailed) -> Self {
        Self::Journal(error.into())
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}
