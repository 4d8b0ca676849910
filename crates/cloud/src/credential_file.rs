//! A file of tokens or of users, which is read again as soon as it has changed.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use moteseal_service::FileState;
use tracing::{error, info};

/// The content of a file of credentials, as it was when it was last looked up. Each call of
/// [`current`](Self::current) looks the file up, so that a change takes effect before the next
/// request is served.
#[derive(Debug)]
pub(crate) struct CredentialFile<T> {
    path: PathBuf,
    /// What the file contains, for the log.
    what: &'static str,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    seen: Option<FileState>,
    /// Whether the file may have changed without a change of `seen`.
    is_recent: bool,
    /// `None` while the file cannot be used.
    content: Option<Arc<T>>,
}

/// A file that cannot be used: it is missing, not readable or damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

/// Reads the content of a file.
pub(crate) type Read<T, E> = fn(&Path) -> Result<T, E>;

impl<T> CredentialFile<T> {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The error of `read`.
    pub(crate) fn open<E>(path: PathBuf, what: &'static str, read: Read<T, E>) -> Result<Self, E> {
        // The file is looked up before it is read, so that no change is missed.
        let (seen, now) = (FileState::of(&path).ok(), SystemTime::now());
        let content = Some(Arc::new(read(&path)?));
        let is_recent = seen.is_none_or(|seen| seen.is_recent(now));
        Ok(Self { path, what, state: Mutex::new(State { seen, is_recent, content }) })
    }

    /// Returns the content of the file. Looks the file up, and reads it with `read` if it has
    /// changed. A file that cannot be used is reported in the log, once after each change.
    pub(crate) fn current<E: Display>(&self, read: Read<T, E>) -> Result<Arc<T>, Unusable> {
        let (seen, now) = (FileState::of(&self.path).ok(), SystemTime::now());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = seen != state.seen;
        // A file that cannot be looked up is not served from memory.
        if has_changed || state.is_recent || seen.is_none() {
            let (path, what) = (self.path.display(), self.what);
            let could = state.content.is_some();
            match read(&self.path) {
                Ok(content) => {
                    if has_changed || !could {
                        info!(file = %path, "loaded the {what} again");
                    }
                    state.content = Some(Arc::new(content));
                }
                Err(error) => {
                    if has_changed || could {
                        error!("{error}; requests that need these {what} are refused");
                    }
                    state.content = None;
                }
            }
            state.seen = seen;
            state.is_recent = seen.is_some_and(|seen| seen.is_recent(now));
        }
        state.content.clone().ok_or(Unusable)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, File, FileTimes};
    use std::io;
    use std::time::Duration;

    use super::*;

    fn read(path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn open(path: &Path) -> CredentialFile<String> {
        CredentialFile::open(path.to_owned(), "words", read).unwrap()
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
            assert_eq!(*file.current(read).unwrap(), text);
        }
    }

    #[test]
    fn nothing_is_served_while_the_file_is_missing_or_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let file = open(&path);
        fs::rename(&path, folder.path().join("away")).unwrap();
        assert_eq!(file.current(read), Err(Unusable));
        assert_eq!(file.current(read), Err(Unusable));
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(file.current(read), Err(Unusable));
        fs::rename(folder.path().join("away"), &path).unwrap();
        assert_eq!(*file.current(read).unwrap(), "old");
    }

    #[test]
    fn a_file_that_has_not_changed_for_a_while_is_not_read_again() {
        fn once(path: &Path) -> Result<String, String> {
            Err(path.display().to_string())
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let file = open(&path);
        file.state.lock().unwrap().is_recent = false;
        assert_eq!(*file.current(once).unwrap(), "old");
        let seen = FileState::of(&path).unwrap();
        assert!(seen.is_recent(SystemTime::now()));
        assert!(seen.is_recent(SystemTime::UNIX_EPOCH), "the clock was set back");
        assert!(!seen.is_recent(SystemTime::now() + Duration::from_secs(3)));
    }
}
