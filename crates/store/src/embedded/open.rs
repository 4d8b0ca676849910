//! Opens and creates the file and the journal of an embedded store. Error messages name the file
//! and what the user can do.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moteseal_api::ErrorKind;
use moteseal_files::{PRIVATE, Temporary, sync_folder_of};
use redb::{Database, DatabaseError, ReadableDatabase, StorageError, WriteTransaction};

use super::commit::{Known, sync};
use super::journal_replay::{Failure, Withheld, replay};
use super::urgent::{URGENT, URGENT_BYTES, URGENT_ORDER};
use super::{EQUIVOCATIONS, MANIFESTS, PIECES, SCHEMAS, SEALS, UNORDERED};
use crate::epochs::PutError;
use crate::journal::{Journal, JournalError, is_full};
use crate::pages::{self, Damaged, Pages};

/// A callback that receives the share of the work done (0 to 1) while a store recovers.
type OnRecovery = Arc<dyn Fn(f64) + Send + Sync>;

/// The options of an embedded store.
#[derive(Clone)]
pub struct Options {
    /// Whether to create a store if the file does not exist.
    pub create: bool,
    /// Whether to sync the journal before a batch is acknowledged. If false, the store does not
    /// keep its promise of durability; use this only for measurements.
    pub sync: bool,
    /// The memory for cached pages, in bytes.
    pub cache_bytes: usize,
    /// The maximum number of bytes that wait to be journaled and applied; beyond it, the store
    /// returns [`PutError::Busy`](crate::PutError::Busy). If nothing waits, a batch of any size is
    /// accepted.
    pub queue_bytes: usize,
    /// How long a batch may stay only in the journal before it is applied to the tables, unless a
    /// read needs it earlier.
    pub apply_after: Duration,
    /// The length of the journal, in bytes, at which the tables are synced and the journal is
    /// emptied.
    pub journal_bytes: u64,
    /// Receives the share of the work done (0 to 1) while the store recovers after the process or
    /// the machine died.
    pub on_recovery: Option<OnRecovery>,
}

impl Default for Options {
    /// Creates the store if needed and syncs the journal. The cache has 256 MiB, the queue 64 MiB,
    /// and the journal 32 MiB. Batches are applied after 50 ms.
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
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist, and the options do not allow its creation.
    #[error("{} does not exist; check the path", .0.display())]
    NotFound(PathBuf),
    /// Another process has the store open.
    #[error("another process has {} open; stop it first, or choose another store", .0.display())]
    Locked(PathBuf),
    /// The file is empty.
    #[error("{} is empty; delete it to start a new store, or restore it", .0.display())]
    Empty(PathBuf),
    /// The file is not a store.
    #[error("{} is not an epoch store; check the path", .0.display())]
    NotAStore(PathBuf),
    /// The disk is full.
    #[error("no space left for {}; free some space and try again", .0.display())]
    DiskFull(PathBuf),
    /// The file is too damaged to be opened; with a description of the damage.
    #[error(
        "{} is damaged ({}); restore it from a copy, or delete it and push the devices' data \
         again", .0.display(), .1)]
    Damaged(PathBuf, String),
    /// The journal exists, but its store does not.
    #[error(
        "{} exists but its store does not; restore the store, or move the journal away to \
         start with an empty store",
        .0.display()
    )]
    Orphaned(PathBuf),
    /// The store was not closed, and its journal does not exist.
    #[error(
        "{} is missing, and with it the last acknowledged uploads; restore it, or run \
         `moteseal store discard-journal STORE` and push the devices' data again",
        .0.display()
    )]
    JournalMissing(PathBuf),
    /// The store's journal is damaged; with the place of the damage.
    #[error(
        "{} is damaged {}, so the last acknowledged uploads are lost; restore it from a \
         copy, or run `moteseal store discard-journal STORE` and push the devices' data again",
        .0.display(), .1
    )]
    JournalDamaged(PathBuf, String),
    /// The file with the name of the store's journal is not a journal.
    #[error(
        "{} has the name of the store's journal but is not a journal; restore the journal, or \
         run `moteseal store discard-journal STORE` and push the devices' data again",
        .0.display()
    )]
    NotAJournal(PathBuf),
    /// The store was opened through a symbolic link, and a journal exists next to the link. A store
    /// uses only the journal next to its file.
    #[error(
        "{} is not the journal of this store, because the store is a symbolic link; if {} does \
         not exist, rename the file to this name, otherwise move it away",
        .found.display(), .journal.display()
    )]
    JournalMisplaced {
        /// The journal next to the link.
        found: PathBuf,
        /// The path of the store's journal.
        journal: PathBuf,
    },
    /// Another failure of the operating system.
    #[error("{}: {}", .0.display(), .1)]
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
            // Only `Journal::append` returns this error, and opening a store appends nothing.
            JournalError::TooMuch(path) => {
                Self::JournalDamaged(path, "by a record that is too long".to_owned())
            }
        }
    }

    fn redb(path: &Path, error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::Locked(path.to_owned()),
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == io::ErrorKind::InvalidData =>
            {
                Self::Damaged(path.to_owned(), "its header is not that of a store".to_owned())
            }
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Self::Damaged(path.to_owned(), "it is truncated".to_owned())
            }
            DatabaseError::Storage(StorageError::Io(error)) => Self::io(path, &error),
            other => Self::Damaged(path.to_owned(), other.to_string()),
        }
    }

    /// Returns the error's stable name.
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
            Self::JournalMissing(_) => "JournalMissing",
            Self::JournalDamaged(..) => "JournalDamaged",
            Self::NotAJournal(_) => "NotAJournal",
            Self::JournalMisplaced { .. } => "JournalMisplaced",
            Self::Io(..) => "StoreFailed",
        }
    }

    /// Returns whether the store or its journal is damaged. A check reports this as a finding
    /// rather than as a mistake of the user.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged(..) | Self::JournalDamaged(..) | Self::JournalMissing(_))
    }

    /// Returns [`Usage`](ErrorKind::Usage) if the file is the wrong one, otherwise
    /// [`Internal`](ErrorKind::Internal).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(_)
            | Self::Locked(_)
            | Self::Empty(_)
            | Self::NotAStore(_)
            | Self::NotAJournal(_)
            | Self::JournalMisplaced { .. }
            | Self::Orphaned(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(OpenError);

/// The space that a journal writes in advance at a time, in bytes.
const AHEAD: u64 = 1 << 20;

/// Returns the path of a store's journal, which is in the same folder as the store.
pub(crate) fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    PathBuf::from(name)
}

/// Returns the file to which a path leads, if the path is a symbolic link. A store and the symbolic
/// links to it thus have the same journal.
///
/// # Errors
/// `NotFound` for a link to a file that does not exist: a new store would replace the link.
/// `JournalMisplaced` if there is a journal next to the link.
pub fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        return Ok(path.to_owned());
    }
    let file = path.canonicalize().map_err(|error| {
        let target = fs::read_link(path).unwrap_or_default();
        OpenError::io(&path.parent().unwrap_or(Path::new("")).join(target), &error)
    })?;
    let (found, journal) = (journal_path(path), journal_path(&file));
    if found != journal && fs::symlink_metadata(&found).is_ok() {
        return Err(OpenError::JournalMisplaced { found, journal });
    }
    Ok(file)
}

/// Checks that the journal of a store exists, if the store needs it. Returns the length of the
/// journal up to which the store is known to have acknowledged it, in bytes.
fn check_journal_exists(path: &Path) -> Result<u64, OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let file = File::open(path).map_err(io)?;
    if !pages::needs_journal(&file).map_err(io)? {
        return Ok(0);
    }
    let journal = journal_path(path);
    match fs::metadata(&journal) {
        Ok(metadata) if metadata.len() >= Journal::EMPTY_BYTES => {
            pages::acknowledged(&file).map_err(io)
        }
        Ok(_) => {
            let what = "in its header, which is incomplete".to_owned();
            Err(OpenError::JournalDamaged(journal, what))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::JournalMissing(journal))
        }
        Err(error) => Err(OpenError::io(&journal, &error)),
    }
}

/// Records in the file of a store whether the store needs its journal.
pub(super) fn set_needs_journal(path: &Path, needs: bool) -> io::Result<()> {
    pages::set_needs_journal(&writable(path)?, needs)
}

/// Opens the file of a store, to write the store's records in its first page.
pub(super) fn writable(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Removes from a journal the batches that are durable in the tables of the store `file`.
pub(super) fn empty_journal(
    file: &File,
    withheld: &Withheld,
    journal: &mut Journal,
) -> Result<(), JournalError> {
    // The store must not state a longer journal than it has, also after a power loss.
    pages::set_acknowledged(file, 0)
        .and_then(|()| file.sync_data())
        .map_err(|error| JournalError::Io(journal.path().to_owned(), error))?;
    withheld.empty(journal)
}

/// What [`discard_journal`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedJournal {
    /// Whether the store was not closed, so that it could not be opened without its journal.
    pub was_needed: bool,
    /// The new name of the journal; `None` if there was no journal.
    pub kept: Option<PathBuf>,
}

/// Lets a store open without its journal from now on: the acknowledged data that is only in the
/// journal is lost. An existing journal is kept under another name.
///
/// # Errors
/// [`OpenError`] if the file is not a store, is in use, or cannot be written.
pub fn discard_journal(path: &Path) -> Result<DiscardedJournal, OpenError> {
    let path = &resolve(path)?;
    let io = |error: io::Error| OpenError::io(path, &error);
    // Opening the tables locks the store against other processes.
    let database = open(path, &Options { create: false, ..Options::default() })?;
    let was_needed = pages::needs_journal(&File::open(path).map_err(io)?).map_err(io)?;
    let journal = journal_path(path);
    let mut names = (1_u32..).map(|number| {
        let mut name = journal.as_os_str().to_owned();
        name.push(format!(".discarded-{number}"));
        PathBuf::from(name)
    });
    let free = names.find(|name| fs::symlink_metadata(name).is_err());
    let kept = match free.map(|name| fs::rename(&journal, &name).map(|()| name)) {
        Some(Ok(name)) => Some(name),
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            return Err(OpenError::io(&journal, &error));
        }
        // There was no journal.
        Some(Err(_)) | None => None,
    };
    sync_folder_of(path).map_err(io)?;
    set_needs_journal(path, false).map_err(io)?;
    drop(database);
    Ok(DiscardedJournal { was_needed, kept })
}

/// The tables and the journal of a store that was opened.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) journal: Journal,
    pub(super) withheld: Withheld,
    /// Why the file cannot be written, or `None` if it can.
    pub(super) held: Option<PutError>,
}

/// Opens a store whose journal has batches for which the disk has no space. Applies the batches in
/// memory.
pub(super) fn on_full_disk(path: &Path, options: &Options) -> Result<Opened, OpenError> {
    let acknowledged = check_journal_exists(path)?;
    let journal = Journal::open_acknowledged(&journal_path(path), acknowledged)
        .map_err(OpenError::journal)?
        .fill_ahead(ahead(options));
    let database = open_frozen(path, options, &Damaged::default())?;
    let name = path.display().to_string();
    let replayed = replay(&database, &name, &mut Known::default(), &journal, usize::MAX);
    let withheld = replayed.map_err(|failure| not_replayed(path, &journal, failure))?;
    let held = Some(PutError::DiskFull { store: name });
    Ok(Opened { database, journal, withheld, held })
}

/// Returns how much space the journal writes in advance at a time, in bytes.
fn ahead(options: &Options) -> u64 {
    AHEAD.min(options.journal_bytes / 8)
}

/// Opens or creates a store's journal, and applies its batches durably to the store. Batches that
/// need a damaged page are withheld.
pub(super) fn journal(
    path: &Path,
    database: Database,
    options: &Options,
) -> Result<Opened, OpenError> {
    let acknowledged = check_journal_exists(path)?;
    let journal = Journal::open_acknowledged(&journal_path(path), acknowledged)
        .map_err(OpenError::journal)?;
    set_needs_journal(path, true).map_err(|error| OpenError::io(path, &error))?;
    let mut journal = journal.fill_ahead(ahead(options));
    if journal.synced_records() == 0 {
        return Ok(Opened { database, journal, withheld: Withheld::default(), held: None });
    }
    let name = path.display().to_string();
    let replayed = replay(&database, &name, &mut Known::default(), &journal, usize::MAX)
        .and_then(|withheld| Ok((withheld, sync(&database, &name).map_err(Failure::Unwritable)?)));
    let (withheld, synced) = match replayed {
        Ok(replayed) => replayed,
        Err(failure) => {
            // After a failed write, redb may panic when it closes the file.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
            return Err(not_replayed(path, &journal, failure));
        }
    };
    if synced {
        let file = writable(path).map_err(|error| OpenError::io(path, &error))?;
        empty_journal(&file, &withheld, &mut journal).map_err(OpenError::journal)?;
    }
    Ok(Opened { database, journal, withheld, held: None })
}

fn not_replayed(path: &Path, journal: &Journal, failure: Failure) -> OpenError {
    match failure {
        Failure::Journal(error) => OpenError::journal(error),
        Failure::NotABatch(number) => OpenError::JournalDamaged(
            journal.path().to_owned(),
            format!("in record {number}, which is not a batch"),
        ),
        Failure::Unwritable(PutError::DiskFull { .. }) => OpenError::DiskFull(path.to_owned()),
        Failure::Unwritable(error) => {
            OpenError::Io(path.to_owned(), io::Error::other(error.to_string()))
        }
    }
}

/// Applies the batches of a store's journal to a frozen store in memory, so that a check covers
/// them. Writes to neither file. Returns the length of the journal's incomplete last frame, in
/// bytes.
pub(crate) fn frozen_journal(path: &Path, database: &Database) -> Result<u64, OpenError> {
    let acknowledged = check_journal_exists(path)?;
    let journal_path = journal_path(path);
    if !journal_path.exists() {
        return Ok(0);
    }
    let journal = Journal::open_frozen(&journal_path, acknowledged).map_err(OpenError::journal)?;
    let name = journal_path.display().to_string();
    match replay(database, &name, &mut Known::default(), &journal, usize::MAX) {
        Ok(withheld) if withheld.is_empty() => Ok(journal.torn_bytes()),
        Ok(_) => Err(OpenError::Damaged(
            path.to_owned(),
            "a page that the batches of its journal need is damaged".to_owned(),
        )),
        Err(Failure::Journal(error)) => Err(OpenError::journal(error)),
        Err(Failure::NotABatch(number)) => Err(OpenError::JournalDamaged(
            journal_path,
            format!("in record {number}, which is not a batch"),
        )),
        // All writes go to memory, so they fail only if a page cannot be read.
        Err(Failure::Unwritable(error)) => Err(OpenError::Damaged(
            path.to_owned(),
            format!("its journal cannot be applied: {error}"),
        )),
    }
}

/// Opens a store, or creates one.
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

/// Opens a store for a check of all its data. Never writes to the file.
pub(crate) fn open_frozen(
    path: &Path,
    options: &Options,
    damaged: &Damaged,
) -> Result<Database, OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    // Locking requires a file that is open for writing.
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
    // redb asserts properties that it has not verified, and panics if a damaged file does not have
    // them.
    match catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(pages))) {
        Ok(opened) => {
            let opened = opened.map_err(|error| OpenError::redb(path, error))?;
            add_tables(&opened);
            Ok(opened)
        }
        Err(_) => Err(OpenError::Damaged(
            path.to_owned(),
            "a page that every read needs does not match its checksum".to_owned(),
        )),
    }
}

/// Creates an empty store under a temporary name and renames it, so that a crash cannot leave an
/// incomplete store.
fn make(path: &Path, options: &Options) -> Result<(), OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let io = |error: io::Error| OpenError::io(path, &error);
    let temporary = Temporary::create_named(PathBuf::from(name), PRIVATE).map_err(io)?;
    make_at(&temporary, options)?;
    temporary.replace(path).map_err(io)?;
    sync_folder_of(path).map_err(io)
}

fn make_at(temporary: &Temporary, options: &Options) -> Result<(), OpenError> {
    let path = temporary.path();
    let io = |error: io::Error| OpenError::io(path, &error);
    let (file, handle) = (temporary.file().map_err(io)?, temporary.file().map_err(io)?);
    let database = database(path, Pages::new(file, Damaged::default()).map_err(io)?, options)?;
    pages::mark(&handle).map_err(io)?;
    make_tables(&database).map_err(|error| match error {
        redb::Error::Io(error) => OpenError::io(path, &error),
        other => OpenError::Damaged(path.to_owned(), other.to_string()),
    })?;
    drop(database);
    handle.sync_all().map_err(io)
}

/// Creates the tables of manifests and urgent events, which stores of earlier versions do not have. If a damaged
/// page prevents it, later reads report the page.
fn add_tables(database: &Database) {
    let add = || -> Result<(), redb::Error> {
        let reader = database.begin_read()?;
        let is_absent = |error: Option<redb::TableError>| {
            matches!(error, Some(redb::TableError::TableDoesNotExist(_)))
        };
        let lacks = is_absent(reader.open_table(MANIFESTS).err())
            || is_absent(reader.open_table(URGENT).err());
        if lacks && reader.list_tables()?.next().is_some() {
            let transaction = database.begin_write()?;
            transaction.open_table(MANIFESTS)?;
            make_urgent_tables(&transaction)?;
            transaction.commit()?;
        }
        Ok(())
    };
    let _ = catch_unwind(AssertUnwindSafe(add));
}

/// Creates every table at once, so that reads need not check whether a table exists.
pub(super) fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(SEALS)?;
    transaction.open_table(PIECES)?;
    transaction.open_table(MANIFESTS)?;
    transaction.open_table(SCHEMAS)?;
    transaction.open_table(EQUIVOCATIONS)?;
    transaction.open_table(UNORDERED)?;
    make_urgent_tables(&transaction)?;
    Ok(transaction.commit()?)
}

fn make_urgent_tables(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(URGENT)?;
    transaction.open_table(URGENT_ORDER)?;
    transaction.open_table(URGENT_BYTES)?;
    Ok(())
}
