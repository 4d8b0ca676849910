//! A file of tokens or of users, which is read again as soon as it has changed.

use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use moteseal_service::FileState;
use tracing::{error, info};
use zeroize::Zeroizing;

/// The content of a file of credentials.
pub(crate) trait Credentials: Sized {
    /// Why the file cannot be used. The message names the file, and has no secrets.
    type Error: Display;
    /// What the file contains, for the log.
    const WHAT: &str;

    /// Reads the file.
    fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, Self::Error>;

    /// Parses what was read from the file.
    fn of_file(path: &Path, bytes: &[u8]) -> Result<Self, Self::Error>;
}

/// Reads a file. Reads one byte more than `most` if the file is longer.
pub(crate) fn read_at_most(path: &Path, most: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    // With this capacity, the buffer does not move and leaves no copy of its content.
    let length = file.metadata()?.len().min(most).saturating_add(2);
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0)));
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file of credentials, as it was when it was last looked up. Each call of
/// [`current`](Self::current) looks the file up, so that a change takes effect before the next
/// request is served.
#[derive(Debug)]
pub(crate) struct CredentialFile<T> {
    path: PathBuf,
    hasher: RandomState,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    seen: Option<FileState>,
    /// Whether the file may have changed without a change of `seen`.
    is_recent: bool,
    /// The hash of the bytes that `content` was made from.
    hash: u64,
    /// `None` while the file cannot be used.
    content: Option<Arc<T>>,
}

/// A file that cannot be used: it is missing, not readable or damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

impl<T: Credentials> CredentialFile<T> {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`Credentials::Error`].
    pub(crate) fn open(path: PathBuf) -> Result<Self, T::Error> {
        // The file is looked up before it is read, so that no change is missed.
        let (seen, now) = (FileState::of(&path).ok(), SystemTime::now());
        let (hasher, bytes) = (RandomState::new(), T::bytes(&path)?);
        let content = Some(Arc::new(T::of_file(&path, &bytes)?));
        let is_recent = seen.is_none_or(|seen| seen.is_recent(now));
        let state = State { seen, is_recent, hash: hasher.hash_one(&*bytes), content };
        Ok(Self { path, hasher, state: Mutex::new(state) })
    }

    /// Returns the content of the file. Looks the file up, and reads it if it has changed. A file
    /// that cannot be used is reported in the log, once after each change.
    pub(crate) fn current(&self) -> Result<Arc<T>, Unusable> {
        let (seen, now) = (FileState::of(&self.path).ok(), SystemTime::now());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = seen != state.seen;
        // A file that cannot be looked up is not served from memory.
        if has_changed || state.is_recent || seen.is_none() {
            self.read(&mut state, has_changed);
            state.seen = seen;
            state.is_recent = seen.is_some_and(|seen| seen.is_recent(now));
        }
        state.content.clone().ok_or(Unusable)
    }

    fn read(&self, state: &mut State<T>, has_changed: bool) {
        let was_usable = state.content.is_some();
        let read = T::bytes(&self.path).and_then(|bytes| {
            let hash = self.hasher.hash_one(&*bytes);
            if hash == state.hash && was_usable {
                return Ok(());
            }
            state.content = Some(Arc::new(T::of_file(&self.path, &bytes)?));
            state.hash = hash;
            info!(file = %self.path.display(), "loaded the {} again", T::WHAT);
            Ok(())
        });
        if let Err(error) = read {
            if has_changed || was_usable {
                error!("{error}; requests that need these {} are refused", T::WHAT);
            }
            state.content = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, FileTimes};
    use std::time::Duration;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Words(String);

    impl Credentials for Words {
        type Error = String;
        const WHAT: &str = "words";

        fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
            read_at_most(path, 100).map_err(|error| error.to_string())
        }

        fn of_file(_: &Path, bytes: &[u8]) -> Result<Self, String> {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok(Self(text.to_owned()))
        }
    }

    fn open(path: &Path) -> CredentialFile<Words> {
        CredentialFile::open(path.to_owned()).unwrap()
    }

    #[test]
    fn every_change_is_seen_at_the_next_request_also_within_one_step_of_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "0000").unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let file = open(&path);
        for number in 1..200 {
            let text = format!("{number:04}");
            // The length, the inode and the time stay the same.
            fs::write(&path, &text).unwrap();
            let opened = File::options().write(true).open(&path).unwrap();
            opened.set_times(FileTimes::new().set_modified(time)).unwrap();
            assert_eq!(file.current().unwrap().0, text);
        }
    }

    #[test]
    fn nothing_is_served_while_the_file_is_missing_or_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let file = open(&path);
        fs::rename(&path, folder.path().join("away")).unwrap();
        assert_eq!(file.current(), Err(Unusable));
        assert_eq!(file.current(), Err(Unusable));
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(file.current(), Err(Unusable));
        fs::rename(folder.path().join("away"), &path).unwrap();
        assert_eq!(file.current().unwrap().0, "old");
    }

    #[test]
    fn a_file_that_has_not_changed_for_a_while_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let file = open(&path);
        let first = file.current().unwrap();
        assert!(Arc::ptr_eq(&first, &file.current().unwrap()), "the same bytes are parsed once");
        file.state.lock().unwrap().is_recent = false;
        let hash = std::mem::take(&mut file.state.lock().unwrap().hash);
        assert!(Arc::ptr_eq(&first, &file.current().unwrap()), "the file is not read");
        file.state.lock().unwrap().hash = hash;
        let seen = FileState::of(&path).unwrap();
        assert!(seen.is_recent(SystemTime::now()));
        assert!(seen.is_recent(SystemTime::UNIX_EPOCH), "the clock was set back");
        assert!(!seen.is_recent(SystemTime::now() + Duration::from_secs(3)));
    }
}
