//! Stores the number of the newest query schedule that a gateway has accepted, so that nobody can
//! replay an older schedule after a restart.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_files::PRIVATE;

/// The file in the state folder that contains the number, and the file that is locked while a
/// process uses the folder. The names are part of the folder's format: under another name, a
/// gateway would not find the number that it stored, and would accept an older schedule.
const NUMBER: &str = "agenda";
const LOCK: &str = "agenda.lock";
/// The length of the longest number and its newline, in bytes.
const MAX_BYTES: u64 = 21;

/// Why the number could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// The folder could not be created, read or written.
    #[error("{}: {}", .0.display(), .1)]
    StateFailed(PathBuf, io::Error),
    /// The file does not contain a number.
    #[error(
        "{} does not contain the number of a query schedule; restore it, or remove it to accept \
         the next query schedule, even if that schedule is an old one",
        .0.display()
    )]
    StateDamaged(PathBuf),
    /// Another process uses the folder.
    #[error("another process uses {}; stop it, or use another folder", .0.display())]
    StateLocked(PathBuf),
}

impl NumberError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StateFailed(..) => "StateFailed",
            Self::StateDamaged(_) => "StateDamaged",
            Self::StateLocked(_) => "StateLocked",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) if another process uses the folder, and
    /// [`Internal`](ErrorKind::Internal) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::StateLocked(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(NumberError);

/// The file with the number. Other processes cannot open it while this object exists.
#[derive(Debug)]
pub struct NumberFile {
    folder: PathBuf,
    _lock: File,
}

impl NumberFile {
    /// Opens the file in a state folder, and creates the folder if necessary. Returns the number in
    /// the file, or 0 if the file does not exist.
    ///
    /// # Errors
    /// [`NumberError`].
    pub fn open(folder: &Path) -> Result<(Self, u64), NumberError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| NumberError::StateFailed(path, error)
        };
        moteseal_files::create_folder(folder).map_err(failed(folder))?;
        let path = folder.join(LOCK);
        let lock = moteseal_files::private()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed(&path))?;
        moteseal_store::lock::try_lock(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => NumberError::StateLocked(folder.to_owned()),
            TryLockError::Error(error) => NumberError::StateFailed(path, error),
        })?;
        let path = folder.join(NUMBER);
        moteseal_files::remove_abandoned(&path);
        let number = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(NumberError::StateFailed(path, error)),
            Ok(file) => {
                let mut text = Vec::new();
                file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed(&path))?;
                let digits =
                    text.strip_suffix(b"\n").and_then(|digits| std::str::from_utf8(digits).ok());
                let number =
                    digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                number
                    .and_then(|digits| digits.parse().ok())
                    .ok_or(NumberError::StateDamaged(path))?
            }
        };
        Ok((Self { folder: folder.to_owned(), _lock: lock }, number))
    }

    /// Makes a number durable. After a crash the file contains either this number or the previous
    /// one.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn store(&self, number: u64) -> io::Result<()> {
        let text = format!("{number}\n");
        moteseal_files::replace(&self.folder.join(NUMBER), text.as_bytes(), PRIVATE)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn reads_the_stored_number_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        for (before, number) in [(0, 5), (5, u64::MAX), (u64::MAX, 7)] {
            let (file, found) = NumberFile::open(&state).unwrap();
            assert_eq!(found, before);
            file.store(number).unwrap();
            assert_eq!(NumberFile::open(&state).unwrap_err().name(), "StateLocked");
        }
    }

    #[test]
    fn reports_an_invalid_number_and_does_not_change_the_file() {
        for damage in [
            "",
            "7",
            "-7\n",
            "+7\n",
            " 7\n",
            "18446744073709551616\n",
            "7\n7\n",
            "111111111111111111111111\n",
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(NUMBER), damage).unwrap();
            assert_eq!(
                NumberFile::open(folder.path()).unwrap_err().name(),
                "StateDamaged",
                "{damage:?}"
            );
            assert_eq!(fs::read(folder.path().join(NUMBER)).unwrap(), damage.as_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = NumberFile::open(folder.path()).unwrap();
        fs::create_dir(folder.path().join(NUMBER)).unwrap();
        file.store(7).unwrap_err();
        drop(file);
        fs::remove_dir(folder.path().join(NUMBER)).unwrap();
        assert_eq!(NumberFile::open(folder.path()).unwrap().1, 0);
    }
}
