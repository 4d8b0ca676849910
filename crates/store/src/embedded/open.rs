//! Opening and making the file of an embedded store, with errors that name the file and the way out.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, DatabaseError, StorageError};

use super::{EQUIVOCATIONS, PIECES, SCHEMAS, SEALS, UNORDERED};
use crate::journal::{is_full, sync_directory};
use crate::pages::{self, Damaged, Pages};

/// Called with the share of the work done (0 to 1) while a store recovers.
type OnRecovery = Arc<dyn Fn(f64) + Send + Sync>;

/// How to run an embedded store.
#[derive(Clone)]
pub struct Options {
    /// Make a new store if there is no such file.
    pub create: bool,
    /// Sync each commit to the disk before it is acknowledged. Without it the store breaks its promise: for measurements only.
    pub sync: bool,
    /// Bytes of memory for pages.
    pub cache_bytes: usize,
    /// Bytes that may wait to be written before [`PutError::Busy`](crate::PutError::Busy). One batch may always wait, whatever its size.
    pub queue_bytes: usize,
    /// Called with the share of the work done (0 to 1) while the store recovers after the process or the machine died.
    pub on_recovery: Option<OnRecovery>,
}

impl Default for Options {
    /// A store that is there or made, synced, with 256 MiB of pages and 64 MiB of queue.
    fn default() -> Self {
        Self { create: true, sync: true, cache_bytes: 256 << 20, queue_bytes: 64 << 20, on_recovery: None }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("sync", &self.sync)
            .field("cache_bytes", &self.cache_bytes)
            .field("queue_bytes", &self.queue_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, and none was to be made.
    NotFound(PathBuf),
    /// Another process has it open.
    Locked(PathBuf),
    /// The file is empty.
    Empty(PathBuf),
    /// The file is something else.
    NotAStore(PathBuf),
    /// The disk is full.
    DiskFull(PathBuf),
    /// The file is damaged where all of it hangs on: what is wrong.
    Damaged(PathBuf, String),
    /// Another failure of the operating system.
    Io(PathBuf, io::Error),
}

impl OpenError {
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.to_owned()),
            kind if is_full(kind) => Self::DiskFull(path.to_owned()),
            kind => Self::Io(path.to_owned(), error.raw_os_error().map_or_else(|| kind.into(), io::Error::from_raw_os_error)),
        }
    }

    fn redb(path: &Path, error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::Locked(path.to_owned()),
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Damaged(path.to_owned(), "its first bytes are not those of a store".to_owned())
            }
            DatabaseError::Storage(StorageError::Io(error)) => Self::io(path, &error),
            other => Self::Damaged(path.to_owned(), other.to_string()),
        }
    }

    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "StoreNotFound",
            Self::Locked(_) => "StoreLocked",
            Self::Empty(_) => "StoreEmpty",
            Self::NotAStore(_) => "NotAStore",
            Self::DiskFull(_) => "DiskFull",
            Self::Damaged(..) => "StoreDamaged",
            Self::Io(..) => "StoreFailed",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::NotFound(path) => write!(f, "{name}: there is no {}; check the path", path.display()),
            Self::Locked(path) => {
                write!(f, "{name}: another process has {} open; stop it first, or choose another store", path.display())
            }
            Self::Empty(path) => write!(f, "{name}: {} is empty; delete it to start a new store, or restore it", path.display()),
            Self::NotAStore(path) => write!(f, "{name}: {} is not an epoch store; check the path", path.display()),
            Self::DiskFull(path) => write!(f, "{name}: no space left for {}; free some and try again", path.display()),
            Self::Damaged(path, what) => {
                write!(
                    f,
                    "{name}: {} is damaged ({what}); restore it from a copy, or delete it and let the devices push again",
                    path.display()
                )
            }
            Self::Io(path, error) => write!(f, "{name}: {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens a store, or makes one.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Database, OpenError> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create => {
            make(path, options)?;
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| OpenError::io(path, &error))?
        }
        Err(error) => return Err(OpenError::io(path, &error)),
    };
    recognise(path, &file)?;
    let pages = Pages::new(file, Damaged::default()).map_err(|error| OpenError::io(path, &error))?;
    database(path, pages, options)
}

/// Opens a store for reading all of it, without ever writing to its file.
pub(crate) fn open_frozen(path: &Path, options: &Options, damaged: &Damaged) -> Result<Database, OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    // Locks need a file that is open for writing.
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
    recognise(path, &file)?;
    database(path, Pages::frozen(file, Arc::clone(damaged)).map_err(io)?, options)
}

fn recognise(path: &Path, file: &File) -> Result<(), OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        Err(OpenError::NotAStore(path.to_owned()))
    } else if metadata.len() == 0 {
        Err(OpenError::Empty(path.to_owned()))
    } else if pages::is_marked(file).map_err(io)? {
        Ok(())
    } else {
        Err(OpenError::NotAStore(path.to_owned()))
    }
}

fn database(path: &Path, pages: Pages, options: &Options) -> Result<Database, OpenError> {
    let mut builder = Database::builder();
    builder.set_cache_size(options.cache_bytes);
    if let Some(on_recovery) = options.on_recovery.clone() {
        builder.set_repair_callback(move |session| on_recovery(session.progress()));
    }
    // redb asserts what it has not verified; at a damaged file that is a panic.
    match catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(pages))) {
        Ok(opened) => opened.map_err(|error| OpenError::redb(path, error)),
        Err(_) => {
            Err(OpenError::Damaged(path.to_owned(), "a page that all others hang on does not match its checksum".to_owned()))
        }
    }
}

/// Makes an empty store beside its place and moves it there, so that no crash leaves half a store.
fn make(path: &Path, options: &Options) -> Result<(), OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let made = make_at(&temporary, options).and_then(|()| {
        let io = |error: io::Error| OpenError::io(path, &error);
        fs::rename(&temporary, path).map_err(io)?;
        sync_directory(path).map_err(io)
    });
    made.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

fn make_at(path: &Path, options: &Options) -> Result<(), OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).map_err(io)?;
    let handle = file.try_clone().map_err(io)?;
    let database = database(path, Pages::new(file, Damaged::default()).map_err(io)?, options)?;
    pages::mark(&handle).map_err(io)?;
    make_tables(&database).map_err(|error| match error {
        redb::Error::Io(error) => OpenError::io(path, &error),
        other => OpenError::Damaged(path.to_owned(), other.to_string()),
    })?;
    drop(database);
    handle.sync_all().map_err(io)
}

/// Every table is there from the start, so that no read has to ask.
pub(super) fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(SEALS)?;
    transaction.open_table(PIECES)?;
    transaction.open_table(SCHEMAS)?;
    transaction.open_table(EQUIVOCATIONS)?;
    transaction.open_table(UNORDERED)?;
    Ok(transaction.commit()?)
}
