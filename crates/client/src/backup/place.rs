//! Where a backup is: a folder.

use std::io;
use std::path::{Path, PathBuf};

use super::BackupError;

/// The folder of the objects, within the place of a backup.
const OBJECTS: &str = "objects";

/// The place of a backup.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// Opens a folder. It is created when something is written to it.
    #[must_use]
    pub fn folder(path: &Path) -> Self {
        Self { folder: path.to_owned() }
    }

    /// Returns the name of the place, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn failed(&self, action: &'static str, name: &str, error: &io::Error) -> BackupError {
        let object = self.path(name).display().to_string();
        BackupError::Io { action, object, cause: error.to_string() }
    }

    /// Reads an object of at most `most` bytes, or returns `None` if there is none.
    pub(super) async fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, BackupError> {
        let path = self.path(name);
        let work = move || match std::fs::metadata(&path) {
            Ok(found) if found.len() > most => {
                Err(io::Error::other(format!("it is longer than {most} bytes")))
            }
            Ok(_) => std::fs::read(&path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        blocking(work).await.map_err(|error| self.failed("read", name, &error))
    }

    /// Writes an object. It appears complete or not at all, and is durable when this returns.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let path = self.path(name);
        let work = move || {
            if let Some(folder) = path.parent() {
                moteseal_files::create_folder(folder)?;
            }
            moteseal_files::replace(&path, &bytes, moteseal_files::PRIVATE)
        };
        blocking(work).await.map_err(|error| self.failed("write", name, &error))
    }

    /// Returns the names of all objects, without the index.
    pub(super) async fn list(&self) -> Result<Vec<String>, BackupError> {
        let path = self.path(OBJECTS);
        let work = move || {
            let entries = match std::fs::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let name = |entry: io::Result<std::fs::DirEntry>| {
                entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
            };
            entries.map(name).collect::<io::Result<Vec<String>>>()
        };
        let names = blocking(work).await.map_err(|error| self.failed("list", OBJECTS, &error))?;
        Ok(names.into_iter().map(|name| object(&name)).collect())
    }

    /// Removes an object. Does nothing if there is none.
    pub(super) async fn remove(&self, name: &str) -> Result<(), BackupError> {
        let path = self.path(name);
        let work = move || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        blocking(work).await.map_err(|error| self.failed("remove", name, &error))
    }
}

/// Returns the name of an object within a place.
pub(super) fn object(name: &str) -> String {
    format!("{OBJECTS}/{name}")
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
