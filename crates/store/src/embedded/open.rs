//! Opening and making the file and the journal of an embedded store, with errors that name the file and the way out.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::{Database, DatabaseError, ReadableDatabase, StorageError};

use super::apply::{Failure, Withheld, replay};
use super::commit::{Known, sync};
use super::{EQUIVOCATIONS, MANIFESTS, PIECES, SCHEMAS, SEALS, UNORDERED};
use crate::epochs::PutError;
use crate::journal::{Journal, JournalError, is_full, sync_directory};
use crate::pages::{self, Damaged, Pages};

/// Called with the share of the work done (0 to 1) while a store recovers.
type OnRecovery = Arc<dyn Fn(f64) + Send + Sync>;

/// How to run an embedded store.
#[derive(Clone)]
pub struct Options {
    /// Make a new store if there is no such file.
    pub create: bool,
    /// Sync the journal to the disk before a batch is acknowledged. Without it the store breaks its promise: for measurements only.
    pub sync: bool,
    /// Bytes of memory for pages.
    pub cache_bytes: usize,
    /// Bytes that may wait to be journaled and applied before [`PutError::Busy`](crate::PutError::Busy). One batch may always wait, whatever its size.
    pub queue_bytes: usize,
    /// How long a batch may stand in the journal before it is brought into the tables, if no read needs it earlier.
    pub apply_after: Duration,
    /// How long the journal may become, in bytes, before the tables are synced and it is emptied.
    pub journal_bytes: u64,
    /// Called with the share of the work done (0 to 1) while the store recovers after the process or the machine died.
    pub on_recovery: Option<OnRecovery>,
}

impl Default for Options {
    /// A store that is there or made, synced, with 256 MiB of pages, 64 MiB of queue and a journal of 32 MiB that is applied
    /// after 50 ms.
    fn default() -> Self {
        Self {
            create: true,
            sync: true,
            cache_bytes: 256 << 20,
            queue_bytes: 64 << 20,
            apply_after: Duration::from_millis(50),
            journal_bytes: 32 << 20,
            on_recovery: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("sync", &self.sync)
            .field("cache_bytes", &self.cache_bytes)
            .field("queue_bytes", &self.queue_bytes)
            .field("apply_after", &self.apply_after)
            .field("journal_bytes", &self.journal_bytes)
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
    /// A journal without its store.
    Orphaned(PathBuf),
    /// The store's journal is damaged: where.
    JournalDamaged(PathBuf, String),
    /// What stands in the store's journal's place is something else.
    NotAJournal(PathBuf),
    /// Another failure of the operating system.
    Io(PathBuf, io::Error),
}

impl OpenError {
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.to_owned()),
            kind if is_full(kind) => Self::DiskFull(path.to_owned()),
            kind => Self::Io(
                path.to_owned(),
                error.raw_os_error().map_or_else(|| kind.into(), io::Error::from_raw_os_error),
            ),
        }
    }

    pub(crate) fn journal(error: JournalError) -> Self {
        match error {
            JournalError::Locked(path) => Self::Locked(path),
            JournalError::NotAJournal(path) => Self::NotAJournal(path),
            JournalError::Damaged { path, offset, record } => {
                Self::JournalDamaged(path, format!("at byte {offset}, from record {record} on"))
            }
            JournalError::DiskFull(path) => Self::DiskFull(path),
            JournalError::Io(path, error) => Self::io(&path, &error),
            // Nothing is appended while a store is opened.
            JournalError::TooMuch(path) => {
                Self::JournalDamaged(path, "a record is too long".to_owned())
            }
        }
    }

    fn redb(path: &Path, error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::Locked(path.to_owned()),
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == io::ErrorKind::InvalidData =>
            {
                Self::Damaged(
                    path.to_owned(),
                    "its first bytes are not those of a store".to_owned(),
                )
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
            Self::Orphaned(_) => "JournalOrphaned",
            Self::JournalDamaged(..) => "JournalDamaged",
            Self::NotAJournal(_) => "NotAJournal",
            Self::Io(..) => "StoreFailed",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::NotFound(path) => {
                write!(f, "{name}: there is no {}; check the path", path.display())
            }
            Self::Locked(path) => {
                write!(
                    f,
                    "{name}: another process has {} open; stop it first, or choose another store",
                    path.display()
                )
            }
            Self::Empty(path) => write!(
                f,
                "{name}: {} is empty; delete it to start a new store, or restore it",
                path.display()
            ),
            Self::NotAStore(path) => {
                write!(f, "{name}: {} is not an epoch store; check the path", path.display())
            }
            Self::DiskFull(path) => {
                write!(f, "{name}: no space left for {}; free some and try again", path.display())
            }
            Self::Damaged(path, what) => {
                write!(
                    f,
                    "{name}: {} is damaged ({what}); restore it from a copy, or delete it and let the devices push again",
                    path.display()
                )
            }
            Self::Orphaned(path) => write!(
                f,
                "{name}: {} is there and its store is not; restore the store beside it, or move the journal away to start anew",
                path.display()
            ),
            Self::JournalDamaged(path, at) => write!(
                f,
                "{name}: {} is damaged {at}, and with it what was acknowledged last; restore it from a copy, or move it away and let the devices push again",
                path.display()
            ),
            Self::NotAJournal(path) => {
                write!(
                    f,
                    "{name}: {} is in the place of the store's journal and is none; move it away",
                    path.display()
                )
            }
            Self::Io(path, error) => write!(f, "{name}: {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// How much room a journal is given at once, in bytes.
const AHEAD: u64 = 1 << 20;

/// Where a store's journal lies: beside it.
pub(crate) fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    PathBuf::from(name)
}

/// Opens a store's journal, or makes one. What stands in it is brought into the store, durably, but for what a damaged page
/// keeps out.
pub(super) fn journal(
    path: &Path,
    database: &Database,
    options: &Options,
) -> Result<(Journal, Withheld), OpenError> {
    let journal = Journal::open_strict(&journal_path(path)).map_err(OpenError::journal)?;
    let mut journal = journal.fill_ahead(AHEAD.min(options.journal_bytes / 8));
    if journal.synced_records() == 0 {
        return Ok((journal, Withheld::default()));
    }
    let name = path.display().to_string();
    let replayed = replay(database, &name, &mut Known::default(), &journal, usize::MAX)
        .and_then(|withheld| Ok((withheld, sync(database, &name).map_err(Failure::Unwritable)?)));
    let (withheld, synced) = replayed.map_err(|failure| match failure {
        Failure::Journal(error) => OpenError::journal(error),
        Failure::NotABatch(number) => OpenError::JournalDamaged(
            journal.path().to_owned(),
            format!("in record {number}, which is not a batch"),
        ),
        Failure::Unwritable(PutError::DiskFull { .. }) => OpenError::DiskFull(path.to_owned()),
        Failure::Unwritable(error) => {
            OpenError::Io(path.to_owned(), io::Error::other(error.to_string()))
        }
    })?;
    if synced {
        withheld.empty(&mut journal).map_err(OpenError::journal)?;
    }
    Ok((journal, withheld))
}

/// Brings what stands in a store's journal into a frozen store, so that it is checked with the rest. Neither file is written.
pub(crate) fn frozen_journal(path: &Path, database: &Database) -> Result<(), OpenError> {
    let path = journal_path(path);
    if !path.exists() {
        return Ok(());
    }
    let journal = Journal::open_frozen(&path).map_err(OpenError::journal)?;
    match replay(database, &path.display().to_string(), &mut Known::default(), &journal, usize::MAX)
    {
        Ok(withheld) if withheld.is_empty() => Ok(()),
        Ok(_) => {
            Err(OpenError::Damaged(path, "a page that its batches need is damaged".to_owned()))
        }
        Err(Failure::Journal(error)) => Err(OpenError::journal(error)),
        Err(Failure::NotABatch(number)) => Err(OpenError::JournalDamaged(
            path,
            format!("in record {number}, which is not a batch"),
        )),
        Err(Failure::Unwritable(error)) => {
            Err(OpenError::Io(path, io::Error::other(error.to_string())))
        }
    }
}

/// Opens a store, or makes one.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Database, OpenError> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && journal_path(path).exists() => {
            return Err(OpenError::Orphaned(journal_path(path)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create => {
            make(path, options)?;
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map_err(|error| OpenError::io(path, &error))?
        }
        Err(error) => return Err(OpenError::io(path, &error)),
    };
    recognise(path, &file)?;
    let pages =
        Pages::new(file, Damaged::default()).map_err(|error| OpenError::io(path, &error))?;
    database(path, pages, options)
}

/// Opens a store for reading all of it, without ever writing to its file.
pub(crate) fn open_frozen(
    path: &Path,
    options: &Options,
    damaged: &Damaged,
) -> Result<Database, OpenError> {
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
        Ok(opened) => {
            let opened = opened.map_err(|error| OpenError::redb(path, error))?;
            add_tables(&opened);
            Ok(opened)
        }
        Err(_) => Err(OpenError::Damaged(
            path.to_owned(),
            "a page that all others hang on does not match its checksum".to_owned(),
        )),
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
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(io)?;
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

/// Makes the table that a store of an earlier version lacks. Where a damaged page is in the way, reads will name it.
fn add_tables(database: &Database) {
    let add = || -> Result<(), redb::Error> {
        let lacks = match database.begin_read()?.open_table(MANIFESTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => {
                database.begin_read()?.list_tables()?.next().is_some()
            }
            _ => false,
        };
        if lacks {
            let transaction = database.begin_write()?;
            transaction.open_table(MANIFESTS)?;
            transaction.commit()?;
        }
        Ok(())
    };
    let _ = catch_unwind(AssertUnwindSafe(add));
}

/// Every table is there from the start, so that no read has to ask.
pub(super) fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(SEALS)?;
    transaction.open_table(PIECES)?;
    transaction.open_table(MANIFESTS)?;
    transaction.open_table(SCHEMAS)?;
    transaction.open_table(EQUIVOCATIONS)?;
    transaction.open_table(UNORDERED)?;
    Ok(transaction.commit()?)
}
