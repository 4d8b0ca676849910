//! Where a backup is: a folder, or a bucket of S3.

use std::io;
use std::path::{Path, PathBuf};

use super::BackupError;
#[cfg(feature = "s3")]
use super::bucket::Bucket;

/// The folder of the objects, within the place of a backup.
const OBJECTS: &str = "objects";

/// The place of a backup.
#[derive(Clone, Debug)]
pub struct Place(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Folder(Folder),
    #[cfg(feature = "s3")]
    Bucket(Bucket),
}

#[derive(Clone, Debug)]
struct Folder(PathBuf);

impl Place {
    /// Opens a folder. It is created when something is written to it.
    #[must_use]
    pub fn folder(path: &Path) -> Self {
        Self(Kind::Folder(Folder(path.to_owned())))
    }

    /// Opens a folder, or the bucket of an address `s3://BUCKET[/PREFIX]`. The server and the
    /// credentials of a bucket are in the environment variables that other programs for S3 use
    /// (docs/backup.md).
    ///
    /// # Errors
    /// [`BackupError::Bucket`] if the address or a variable is wrong.
    #[cfg(feature = "s3")]
    pub fn open(place: &Path) -> Result<Self, BackupError> {
        match place.to_str().and_then(|text| text.strip_prefix("s3://")) {
            Some(address) => Ok(Self(Kind::Bucket(Bucket::open(address)?))),
            None => Ok(Self::folder(place)),
        }
    }

    /// Returns the name of the place, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Folder(Folder(path)) => path.display().to_string(),
            #[cfg(feature = "s3")]
            Kind::Bucket(bucket) => bucket.name(),
        }
    }

    /// Reads an object of at most `most` bytes, or returns `None` if there is none.
    pub(super) async fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, BackupError> {
        match &self.0 {
            Kind::Folder(folder) => folder.read(name, most).await,
            #[cfg(feature = "s3")]
            Kind::Bucket(bucket) => bucket.read(name, most).await,
        }
    }

    /// Writes an object. It appears complete or not at all, and is durable when this returns.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Folder(folder) => folder.write(name, bytes).await,
            #[cfg(feature = "s3")]
            Kind::Bucket(bucket) => bucket.write(name, bytes).await,
        }
    }

    /// Returns the names of all objects, without the index.
    pub(super) async fn list(&self) -> Result<Vec<String>, BackupError> {
        match &self.0 {
            Kind::Folder(folder) => folder.list().await,
            #[cfg(feature = "s3")]
            Kind::Bucket(bucket) => bucket.list(OBJECTS).await,
        }
    }

    /// Removes an object. Does nothing if there is none.
    pub(super) async fn remove(&self, name: &str) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Folder(folder) => folder.remove(name).await,
            #[cfg(feature = "s3")]
            Kind::Bucket(bucket) => bucket.remove(name).await,
        }
    }
}

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn failed(&self, action: &'static str, name: &str, error: &io::Error) -> BackupError {
        let object = self.path(name).display().to_string();
        BackupError::Io { action, object, cause: error.to_string() }
    }

    async fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, BackupError> {
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

    async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let path = self.path(name);
        let work = move || {
            if let Some(folder) = path.parent() {
                moteseal_files::create_folder(folder)?;
            }
            moteseal_files::replace(&path, &bytes, moteseal_files::PRIVATE)
        };
        blocking(work).await.map_err(|error| self.failed("write", name, &error))
    }

    async fn list(&self) -> Result<Vec<String>, BackupError> {
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

    async fn remove(&self, name: &str) -> Result<(), BackupError> {
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
