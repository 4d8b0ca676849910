//! The faults that end the mote's program.

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
    /// The flash does not contain the readings that the provisioning selects.
    Readings,
    /// The group has more levels than this firmware supports.
    Levels,
    /// The seal could not be signed.
    Sign,
}

impl Fault {
    /// The fault's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::Schema => "SchemaUnusable",
            Self::Readings => "NoSuchReadings",
            Self::Levels => "LevelsMismatch",
            Self::Sign => "NotSigned",
        }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}
