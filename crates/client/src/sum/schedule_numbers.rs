//! The numbers of query schedules. They always increase, even if the clock is set back: a file
//! holds the last number, and each number is written to the file before it is used.
//!
//! A querier locks the file while it runs. A group has only one query schedule at a time, so two
//! queriers would end each other's queries.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;

/// Why a querier cannot get the next number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleNumberError {
    /// Another query runs with this file.
    #[error(
        "another query runs with {}; end that query first, or use another state file",
        _0.display()
    )]
    Busy(PathBuf),
    /// The file does not contain a number.
    #[error(
        "{} does not contain the number of a query schedule; is it the right file?",
        _0.display()
    )]
    NotAState(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot use {}: {_1}", _0.display())]
    File(PathBuf, io::Error),
}

impl ScheduleNumberError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Busy(_) => "QuerierBusy",
            Self::NotAState(_) => "NotAState",
            Self::File(..) => "StateUnusable",
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File(_, error) if error.kind() != io::ErrorKind::NotFound => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(ScheduleNumberError);

/// The file with the number of the newest query schedule.
#[derive(Debug)]
pub struct ScheduleNumbers {
    path: PathBuf,
    file: File,
    last: u64,
}

impl ScheduleNumbers {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// [`ScheduleNumberError`] if another process uses the file, if the file does not contain a
    /// number, or if it cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, ScheduleNumberError> {
        let fail = |error| ScheduleNumberError::File(path.to_owned(), error);
        let mut file = moteseal_files::private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ScheduleNumberError::Busy(path.to_owned()));
            }
            // The file system does not support locks. The querier runs without the lock, although a
            // second querier with this file would then end the query of the first one.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let mut text = String::new();
        let read = io::Read::by_ref(&mut file).take(64).read_to_string(&mut text);
        let last = match (read, text.trim_ascii()) {
            (Ok(0), _) => Some(0),
            (Ok(_), digits) => digits.parse().ok(),
            (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => None,
            (Err(error), _) => return Err(fail(error)),
        };
        let last = last.ok_or_else(|| ScheduleNumberError::NotAState(path.to_owned()))?;
        Ok(Self { path: path.to_owned(), file, last })
    }

    /// Returns the next number: the time in Unix milliseconds, or the last number plus one if that
    /// is greater. When this function returns, the number is durable.
    ///
    /// # Errors
    /// [`ScheduleNumberError::File`] if the number cannot be written. The number is then not used.
    pub fn next(&mut self, now_ms: u64) -> Result<u64, ScheduleNumberError> {
        let number = now_ms.max(self.last.saturating_add(1));
        // A number always has twenty digits, so that it overwrites the previous number completely.
        let text = format!("{number:020}\n");
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .and_then(|()| self.file.sync_all());
        written.map_err(|error| ScheduleNumberError::File(self.path.clone(), error))?;
        self.last = number;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_increase_when_the_clock_is_set_back_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("querier.state");
        let mut numbers = ScheduleNumbers::open(&path).unwrap();
        assert_eq!(numbers.next(1_000_000).unwrap(), 1_000_000);
        assert_eq!(numbers.next(5).unwrap(), 1_000_001);
        assert_eq!(ScheduleNumbers::open(&path).unwrap_err().name(), "QuerierBusy");
        drop(numbers);
        let mut numbers = ScheduleNumbers::open(&path).unwrap();
        assert_eq!(numbers.next(7).unwrap(), 1_000_002);
        assert_eq!(numbers.next(2_000_000).unwrap(), 2_000_000);
    }

    #[test]
    fn rejects_a_file_with_other_content_and_does_not_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        for text in ["remember the milk", "-4", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(ScheduleNumbers::open(&path).unwrap_err().name(), "NotAState");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(ScheduleNumbers::open(folder.path()).unwrap_err().name(), "StateUnusable");
    }
}
