//! A value that is read from files, for example a certificate and its key, and read again after they have
//! changed. A value that cannot be read does not replace the one before it.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use tracing::{info, warn};

use crate::file_watch::FileWatch;

/// How often the files are looked up, at most.
const INTERVAL: Duration = Duration::from_secs(1);

type Load<T> = dyn Fn() -> Result<T, String> + Send + Sync;

/// A value that is read from files.
///
/// [`current`](Self::current) looks the files up at most once a second. It therefore needs no task, and a value
/// that nobody uses costs nothing.
pub struct Reloaded<T> {
    /// What the files are, for the log.
    what: &'static str,
    load: Box<Load<T>>,
    current: RwLock<Arc<T>>,
    look: Mutex<Look>,
}

/// What is known about the files.
struct Look {
    watches: Vec<FileWatch>,
    next: Instant,
    /// The digest of the files from which the current value was read.
    used: Option<Digest>,
    failure: Option<Failure>,
}

/// Why the files cannot be used. Some of them may be about to be replaced, so this is logged when it is found a
/// second time.
struct Failure {
    what: String,
    is_logged: bool,
}

/// What a look at the files found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The files are those in use, or it was logged before that they cannot be used.
    Nothing,
    /// A new value is in use.
    New,
    /// The files cannot be used, for this cause.
    Unusable(String),
}

impl<T> Reloaded<T> {
    /// Reads the value. `load` reads it from `files`; `what` names the files in the log.
    ///
    /// # Errors
    /// The error of `load`.
    pub fn new<E: Display>(
        what: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let watches: Vec<_> = files.into_iter().map(FileWatch::new).collect();
        // A change after this line is found, because the digest is that of the files before it.
        let used = digest(&watches).ok();
        let current = RwLock::new(Arc::new(load()?));
        let next = Instant::now() + INTERVAL;
        let look = Mutex::new(Look { watches, next, used, failure: None });
        let load = Box::new(move || load().map_err(|error| error.to_string()));
        Ok(Self { what, load, current, look })
    }

    /// Returns the value. If the files have changed, reads them again first. While they cannot be used, returns
    /// the value from before.
    pub fn current(&self) -> Arc<T> {
        // While one thread reads the files, the others use the value from before.
        let look = match self.look.try_lock() {
            Ok(look) => Some(look),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut look) = look
            && Instant::now() >= look.next
        {
            match self.look(&mut look) {
                Found::Nothing => {}
                Found::New => info!(files = look.names(), "loaded the new {}", self.what),
                Found::Unusable(error) => warn!(
                    files = look.names(),
                    "{error}; the {} from before is used until the files are replaced", self.what
                ),
            }
            look.next = Instant::now() + INTERVAL;
        }
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn look(&self, look: &mut Look) -> Found {
        let mut has_changed = false;
        for file in &mut look.watches {
            has_changed |= file.has_changed();
        }
        if !has_changed && look.failure.is_none() {
            return Found::Nothing;
        }
        let loaded = digest(&look.watches).and_then(|found| {
            if look.used == Some(found) { Ok(None) } else { Ok(Some((found, (self.load)()?))) }
        });
        match loaded {
            Ok(None) => {
                look.failure = None;
                Found::Nothing
            }
            Ok(Some((found, value))) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                (look.used, look.failure) = (Some(found), None);
                Found::New
            }
            Err(what) => {
                let before = look.failure.take().filter(|before| before.what == what);
                let is_logged = before.is_some();
                let is_second = before.is_some_and(|before| !before.is_logged);
                look.failure = Some(Failure { what: what.clone(), is_logged });
                if is_second { Found::Unusable(what) } else { Found::Nothing }
            }
        }
    }
}

impl Look {
    fn names(&self) -> String {
        let names: Vec<_> =
            self.watches.iter().map(|file| file.path().display().to_string()).collect();
        names.join(", ")
    }
}

/// Returns the digest of all files.
fn digest(files: &[FileWatch]) -> Result<Digest, String> {
    let mut digests = Vec::new();
    for file in files {
        let path = file.path();
        let content = std::fs::read(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        digests.extend(Digest::of(&[&content]).0);
    }
    Ok(Digest::of(&[&digests]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn look(value: &Reloaded<u32>) -> Found {
        let mut look = value.look.lock().unwrap();
        // The files are looked up only here.
        look.next = Instant::now() + 1_000 * INTERVAL;
        value.look(&mut look)
    }

    #[test]
    fn a_file_that_cannot_be_used_is_logged_once_and_the_value_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("1");
        let file = path.clone();
        let value = Reloaded::new("number", vec![path.clone()], move || {
            let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            text.parse::<u32>().map_err(|error| error.to_string())
        })
        .unwrap();
        assert_eq!((look(&value), *value.current()), (Found::Nothing, 1));
        write("2");
        assert_eq!((look(&value), *value.current()), (Found::New, 2));
        // The same content again is not new.
        write("2");
        assert_eq!((look(&value), *value.current()), (Found::Nothing, 2));

        write("two");
        assert_eq!(look(&value), Found::Nothing, "it may be about to be replaced");
        assert!(matches!(look(&value), Found::Unusable(what) if what.contains("invalid digit")));
        assert_eq!((look(&value), *value.current()), (Found::Nothing, 2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((look(&value), *value.current()), (Found::Nothing, 2));
        assert!(matches!(look(&value), Found::Unusable(what) if what.contains("cannot read")));
        assert_eq!((look(&value), *value.current()), (Found::Nothing, 2));
        write("3");
        assert_eq!((look(&value), *value.current()), (Found::New, 3));
    }

    #[test]
    fn a_file_that_is_replaced_by_an_older_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["used", "old"].map(|name| folder.path().join(name));
        std::fs::write(&old, "7").unwrap();
        std::fs::write(&path, "8").unwrap();
        let file = path.clone();
        let value = Reloaded::new("number", vec![path.clone()], move || {
            std::fs::read_to_string(&file).unwrap().parse::<u32>()
        })
        .unwrap();
        std::fs::rename(&old, &path).unwrap();
        assert_eq!((look(&value), *value.current()), (Found::New, 7));
    }
}
