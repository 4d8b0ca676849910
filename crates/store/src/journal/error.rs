//! The error type of journals.

use std::io;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;

use super::is_full;

/// Why a journal cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has the journal open.
    #[error("another process has {} open; stop it first", .0.display())]
    Locked(PathBuf),
    /// The file is not a journal.
    #[error("{} is not a journal; check the path", .0.display())]
    NotAJournal(PathBuf),
    /// A frame was damaged after it had been synced.
    #[error(
        "{} is damaged at byte {offset}, from record {record} on; restore it, or move it away \
         to start with an empty journal",
        .path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The position of the damaged frame in the file, in bytes.
        offset: u64,
        /// The number of the frame's first record, from 0.
        record: u64,
    },
    /// The records that wait for the next sync exceed the limit of one frame.
    #[error("more records wait for a sync of {} than one frame can hold; sync more often", .0.display())]
    TooMuch(PathBuf),
    /// The disk is full. The journal still holds the records that wait for the next sync.
    #[error("no space left for {}; free some space and try again", .0.display())]
    DiskFull(PathBuf),
    /// Another failure of the operating system.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

impl JournalError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Locked(_) => "JournalLocked",
            Self::NotAJournal(_) => "NotAJournal",
            Self::Damaged { .. } => "JournalDamaged",
            Self::TooMuch(_) => "JournalTooMuch",
            Self::DiskFull(_) => "DiskFull",
            Self::Io(..) => "JournalFailed",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) if the path is the wrong one, otherwise
    /// [`Internal`](ErrorKind::Internal).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked(_) | Self::NotAJournal(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }

    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            kind if is_full(kind) => Self::DiskFull(path.to_owned()),
            _ => Self::Io(path.to_owned(), error),
        }
    }
}

moteseal_api::named_error!(JournalError);
