//! The source of a sender's chain numbers. Each number is used only once and is higher than all
//! earlier ones, across crashes, reboots and processes.
//!
//! A small journal contains the last number of each key of the sender. A chain states the number of
//! the chain before it under the same key, so that receivers detect which chains they missed. The
//! journal is open only while the next number is created, so that several processes can use the same
//! key. The first number is the time in milliseconds since 1970. If the file is lost, the sender starts again with the current time,
//! which is higher than every number used before, unless the sender created more than a thousand
//! chains per second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moteseal_api::ErrorKind;
use moteseal_broadcast::{ChainNumber, KeyId};
use moteseal_core::record::DeviceId;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;

/// The journal is rewritten when it has this many records.
const MOST_RECORDS: u64 = 64;
/// The maximum time to wait for another process that has the journal open.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to open the journal.
const PAUSE: Duration = Duration::from_millis(5);

/// Why the next number could not be returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file contains the numbers of another sender.
    #[error("{} contains the chain numbers of another sender; use another file", .0.display())]
    OtherSender(PathBuf),
    /// All numbers are used.
    #[error("{} records that all numbers are used; certify another sender", .0.display())]
    Exhausted(PathBuf),
}

impl NumbersError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::OtherSender(_) => "OtherSender",
            Self::Exhausted(_) => "NumbersExhausted",
        }
    }

    /// Returns [`ErrorKind::Internal`] for every error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }
}

moteseal_api::named_error!(NumbersError);

/// The source of a sender's chain numbers.
#[derive(Clone, Debug)]
pub struct ChainNumbers {
    path: PathBuf,
    sender: DeviceId,
}

impl ChainNumbers {
    /// Creates a source of chain numbers for `sender` that stores them in the file `path`. The file
    /// is created with the first number.
    #[must_use]
    pub fn new(path: &Path, sender: DeviceId) -> Self {
        Self { path: path.to_owned(), sender }
    }

    /// Returns the next number for a chain under `key`, and the number of the chain before it under
    /// this key, if the file has it. Before this function returns, it durably marks the next number
    /// as used.
    ///
    /// # Errors
    /// [`NumbersError`]. `JournalLocked` only if another process keeps the file locked for several
    /// seconds.
    pub fn next(&self, key: KeyId) -> Result<(ChainNumber, Option<ChainNumber>), NumbersError> {
        let mut journal = self.open()?;
        let mut used = self.used(&journal)?;
        let next = match used.values().max() {
            Some(last) => {
                last.checked_add(1).ok_or_else(|| NumbersError::Exhausted(self.path.clone()))?
            }
            None => milliseconds(),
        };
        let previous = used.insert(key, next);
        let record =
            |key: KeyId, number: u64| [self.sender.0, key.0, number.to_be_bytes()].concat();
        if journal.synced_records() >= MOST_RECORDS {
            let records: Vec<_> = used.iter().map(|(key, number)| record(*key, *number)).collect();
            journal.compact(records.iter().map(Vec::as_slice))?;
        } else {
            journal.append(&record(key, next))?;
            journal.sync()?;
        }
        Ok((ChainNumber(next), previous.map(ChainNumber)))
    }

    /// Returns the last number of the sender, under any key, if the file has one.
    ///
    /// # Errors
    /// [`NumbersError`].
    pub fn last(&self) -> Result<Option<ChainNumber>, NumbersError> {
        if !self.path.exists() {
            return Ok(None);
        }
        Ok(self.used(&self.open()?)?.values().max().copied().map(ChainNumber))
    }

    /// Returns the last number of each key.
    fn used(&self, journal: &Journal) -> Result<BTreeMap<KeyId, u64>, NumbersError> {
        let mut used = BTreeMap::new();
        for record in journal.iter() {
            let record = record?;
            let last = match record.as_chunks::<8>() {
                ([sender, of, number], []) if DeviceId(*sender) == self.sender => {
                    (KeyId(*of), u64::from_be_bytes(*number))
                }
                _ => return Err(NumbersError::OtherSender(self.path.clone())),
            };
            let newest: &mut u64 = used.entry(last.0).or_default();
            *newest = last.1.max(*newest);
        }
        Ok(used)
    }

    fn open(&self) -> Result<Journal, JournalError> {
        let mut left = PATIENCE;
        loop {
            match Journal::open_strict(&self.path) {
                Err(JournalError::Locked(_)) if !left.is_zero() => {
                    thread::sleep(PAUSE);
                    left = left.saturating_sub(PAUSE);
                }
                opened => return opened,
            }
        }
    }
}

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SENDER: DeviceId = DeviceId(*b"sender 1");
    const KEY: KeyId = KeyId(*b"key of 1");

    #[test]
    fn numbers_start_at_the_time_and_rise_by_one_across_processes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ops.chains");
        let (ChainNumber(first), previous) = ChainNumbers::new(&path, SENDER).next(KEY).unwrap();
        assert_eq!(previous, None);
        assert!(first <= milliseconds() && first > milliseconds() - 60_000);
        for step in 1..200 {
            let next = ChainNumbers::new(&path, SENDER).next(KEY).unwrap();
            let expected = (ChainNumber(first + step), Some(ChainNumber(first + step - 1)));
            assert_eq!(next, expected);
        }
        assert!(std::fs::metadata(&path).unwrap().len() < 8192, "the file stays small");
    }

    #[test]
    fn concurrent_processes_get_different_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ops.chains");
        let take = || {
            let next = |_| ChainNumbers::new(&path, SENDER).next(KEY).unwrap().0;
            (0..20).map(next).collect::<Vec<_>>()
        };
        let mut all: Vec<ChainNumber> = thread::scope(|scope| {
            let takers: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 60);
    }

    #[test]
    fn the_previous_number_is_that_of_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = ChainNumbers::new(&folder.path().join("ops.chains"), SENDER);
        let other = KeyId(*b"key of 2");
        let first = numbers.next(KEY).unwrap().0;
        let second = numbers.next(other).unwrap();
        assert_eq!(second, (ChainNumber(first.0 + 1), None), "numbers rise across keys");
        // The journal is rewritten in between.
        let last = (0..100).fold(None, |_, _| Some(numbers.next(KEY).unwrap().0));
        assert_eq!(numbers.next(other).unwrap().1, Some(second.0));
        assert_eq!(numbers.next(KEY).unwrap().1, last);
    }

    #[test]
    fn does_not_use_the_numbers_of_another_sender() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ops.chains");
        ChainNumbers::new(&path, SENDER).next(KEY).unwrap();
        assert_eq!(
            ChainNumbers::new(&path, DeviceId(*b"sender 2")).next(KEY).unwrap_err().name(),
            "OtherSender"
        );
        let last = [SENDER.0, KEY.0, u64::MAX.to_be_bytes()].concat();
        let mut journal = Journal::open(&path).unwrap();
        journal.append(&last).unwrap();
        journal.sync().unwrap();
        drop(journal);
        let exhausted = ChainNumbers::new(&path, SENDER).next(KEY);
        assert_eq!(exhausted.unwrap_err().name(), "NumbersExhausted");
    }
}
