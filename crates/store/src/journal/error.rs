//! Why a journal cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::is_full;

/// Why a journal cannot be opened, read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has it open.
    Locked(PathBuf),
    /// The file is not a journal.
    NotAJournal(PathBuf),
    /// A frame was damaged after it had been synced.
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where the damaged frame starts, in bytes.
        offset: u64,
        /// The number of its first record, from 0.
        record: u64,
    },
    /// The waiting records exceed the limit of one frame.
    TooMuch(PathBuf),
    /// The disk is full. Records that wait to be synced are kept.
    DiskFull(PathBuf),
    /// Another failure of the operating system.
    Io(PathBuf, io::Error),
}

impl JournalError {
    /// The error's name.
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

    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            kind if is_full(kind) => Self::DiskFull(path.to_owned()),
            _ => Self::Io(path.to_owned(), error),
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Locked(path) => {
                write!(f, "{name}: another process has {} open; stop it first", path.display())
            }
            Self::NotAJournal(path) => {
                write!(f, "{name}: {} is not a journal; check the path", path.display())
            }
            Self::Damaged { path, offset, record } => write!(
                f,
                "{name}: {} is damaged at byte {offset}, from record {record} on; \
                 restore it from a copy, or move it away to start a new one",
                path.display()
            ),
            Self::TooMuch(path) => write!(
                f,
                "{name}: too many records wait to be written to {}; sync more often",
                path.display()
            ),
            Self::DiskFull(path) => {
                write!(f, "{name}: no space left for {}; free some and try again", path.display())
            }
            Self::Io(path, error) => write!(f, "{name}: {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for JournalError {}
