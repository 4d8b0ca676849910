//! Why a durable mote cannot continue.

use std::path::PathBuf;

use moteseal_api::ErrorKind;
use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::record::{Scheme, SealIndex};
use moteseal_store::journal::JournalError;

use crate::outbox::OutboxError;
use crate::seal::SealRefused;

/// Why a durable mote cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The chain does not accept the reading or the epoch.
    #[error(transparent)]
    Refused(#[from] SealRefused),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The chain's state could not be read or written.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The journal belongs to another device, or is not the journal of a mote.
    #[error(
        "{} is not a journal of this device; give each device its own state folder",
        .0.display()
    )]
    NotThisDevice(PathBuf),
    /// The journal contains readings with another schema that the gateway does not have yet.
    #[error(
        "{} holds readings with other columns that the gateway does not have yet; run once \
         more with those columns, or move the file away to discard the readings",
        .0.display()
    )]
    OtherSchema(PathBuf),
    /// The journal contains readings for seals of the other scheme (star or tree) that the gateway
    /// does not have yet.
    #[error(
        "{} holds readings, sealed by {}, that the gateway does not have yet; run once more \
         with that scheme, or move the file away to discard the readings",
        .0.display(), .1.as_str()
    )]
    OtherScheme(PathBuf, Scheme),
    /// A frame that must be sent is too long. This is a bug, because readings that are too long are
    /// rejected earlier.
    #[error("a frame that must be sent is too long: {0}")]
    Unsendable(#[from] BufferTooSmall),
    /// The journal names a version of the roster that the given roster does not succeed.
    #[error(
        "{} was written under version {named} of the roster, which the given roster does not \
         succeed; give the device the newest roster",
        .journal.display()
    )]
    RosterNotLater {
        /// The journal.
        journal: PathBuf,
        /// The version of the roster that the journal names.
        named: u32,
    },
    /// Another sealer with the same key has extended the chain.
    #[error(
        "{} is outdated: the key has sealed elsewhere since it was written. Its next seal \
         would be {next}, but the chain's state is at {found}; move the file away to \
         discard its readings",
        .journal.display()
    )]
    SealedElsewhere {
        /// The journal.
        journal: PathBuf,
        /// The index that this mote would use next.
        next: SealIndex,
        /// The next index according to the chain's state.
        found: SealIndex,
    },
}

impl DurableError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused(error) => error.name(),
            Self::Journal(error) => error.name(),
            Self::Outbox(error) => error.name(),
            Self::NotThisDevice(_) => "OtherDevice",
            Self::OtherSchema(_) => "OtherSchema",
            Self::OtherScheme(..) => "OtherScheme",
            Self::Unsendable(_) => "BufferTooSmall",
            Self::SealedElsewhere { .. } => "SealedElsewhere",
            Self::RosterNotLater { .. } => "NotLater",
        }
    }

    /// Returns [`Internal`](ErrorKind::Internal) if the journal or the chain's state failed, and
    /// [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(_) | Self::Outbox(_) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(DurableError);
