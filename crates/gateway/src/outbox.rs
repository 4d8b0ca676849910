//! The durable queue of what a gateway has not yet uploaded to the cloud: ended epochs, and seals
//! that arrived late. It is a folder with one file for each ended epoch and one file for each late
//! seal.
//!
//! A file is written under a temporary name, synced and renamed, so that either the complete file
//! exists or no file. Its contents are checked when it is read. A file is a journal
//! (`moteseal_store::Journal`). The first record is the manifest (empty for a late seal), and the
//! other records are the bundles. An item is removed ([`Outbox::remove`]) only after the cloud has
//! stored it durably. The station limits the size of the outbox.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;
use tokio::sync::Notify;

/// The name of an item. Names are ordered by epoch. Within an epoch, the item with the manifest and
/// bundles is before the items of late seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The epoch.
    pub epoch: EpochNumber,
    /// `None` for the item of the epoch itself. For a late seal, the first 8 bytes of the SHA-256
    /// of its bundle, big-endian.
    pub late: Option<u64>,
}

impl Name {
    /// Returns the name of an ended epoch's item.
    #[must_use]
    pub const fn of(epoch: EpochNumber) -> Self {
        Self { epoch, late: None }
    }

    /// Returns the name of a late seal's item.
    #[must_use]
    pub fn of_late(epoch: EpochNumber, bundle: &[u8]) -> Self {
        let digest = Digest::of(&[bundle]);
        let start = digest.0.first_chunk().copied().unwrap_or_default();
        Self { epoch, late: Some(u64::from_be_bytes(start)) }
    }

    /// Parses a file name. Returns `None` if it is not the name of an item.
    fn parse(name: &str) -> Option<Self> {
        let (stem, kind) = name.split_once('.')?;
        let parsed = match (kind, stem.split_once('-')) {
            ("epoch", None) => Self::of(EpochNumber(stem.parse().ok()?)),
            ("late", Some((epoch, digest))) => Self {
                epoch: EpochNumber(epoch.parse().ok()?),
                late: Some(u64::from_str_radix(digest, 16).ok()?),
            },
            _ => return None,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch: EpochNumber(epoch), late } = self;
        match late {
            // Epoch numbers have twenty digits, so that file names sort by epoch.
            None => write!(f, "{epoch:020}.epoch"),
            Some(digest) => write!(f, "{epoch:020}-{digest:016x}.late"),
        }
    }
}

/// The contents of one file: what is uploaded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The epoch's signed manifest; `None` for a late seal.
    pub manifest: Option<Vec<u8>>,
    /// The bundles.
    pub bundles: Vec<Vec<u8>>,
}

/// Why the outbox cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// A file does not contain an item, or was damaged after it was written.
    #[error("{}; restore it, or move it away to discard its epoch", damage(.path, .error))]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The error from reading the file.
        error: JournalError,
    },
    /// The disk is full.
    #[error("no space left for {}; free some space", .0.display())]
    DiskFull(PathBuf),
    /// Another failure of the operating system.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

impl OutboxError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "OutboxDamaged",
            Self::DiskFull(_) => "DiskFull",
            Self::Io(..) => "OutboxFailed",
        }
    }

    /// Returns [`ErrorKind::Internal`] for every error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }

    fn journal(path: &Path, error: JournalError) -> Self {
        match error {
            JournalError::DiskFull(_) => Self::DiskFull(path.to_owned()),
            JournalError::Io(_, error) => Self::Io(path.to_owned(), error),
            error => Self::Damaged { path: path.to_owned(), error },
        }
    }
}

/// Describes which file is damaged, and where.
fn damage(path: &Path, error: &JournalError) -> String {
    match error {
        JournalError::Damaged { offset, record, .. } => {
            format!("{} is damaged at byte {offset}, from record {record} on", path.display())
        }
        error => error.to_string(),
    }
}

moteseal_api::named_error!(OutboxError);

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OutboxError + '_ {
    |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            OutboxError::DiskFull(path.to_owned())
        }
        _ => OutboxError::Io(path.to_owned(), error),
    }
}

/// The items of a folder. The writer and the uploader share this object.
#[derive(Debug)]
pub struct Outbox {
    folder: PathBuf,
    /// The items and their sizes in bytes.
    items: Mutex<BTreeMap<Name, u64>>,
    /// Notified when an item was stored.
    stored: Notify,
}

impl Outbox {
    /// Opens the outbox in a folder, and creates the folder if necessary. Removes incomplete files.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open(folder: &Path) -> Result<Self, OutboxError> {
        moteseal_files::create_folder(folder).map_err(at(folder))?;
        let mut items = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(at(folder))? {
            let entry = entry.map_err(at(folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(item) = Name::parse(&name) {
                items.insert(item, entry.metadata().map_err(at(folder))?.len());
            } else if name.strip_suffix(".tmp").is_some_and(|name| Name::parse(name).is_some()) {
                fs::remove_file(entry.path()).map_err(at(folder))?;
            }
        }
        Ok(Self { folder: folder.to_owned(), items: Mutex::new(items), stored: Notify::new() })
    }

    fn items(&self) -> MutexGuard<'_, BTreeMap<Name, u64>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: Name) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Writes an item durably. If an item with this name exists, it is not replaced: the same epoch
    /// always gives the same item.
    ///
    /// # Errors
    /// [`OutboxError`]. Nothing has changed.
    pub fn store(&self, name: Name, item: &Item) -> Result<(), OutboxError> {
        if self.items().contains_key(&name) {
            return Ok(());
        }
        let path = self.path(name);
        let temporary = self.folder.join(format!("{name}.tmp"));
        let written = write(&temporary, item)
            .map_err(|error| OutboxError::journal(&path, error))
            .and_then(|()| {
                fs::rename(&temporary, &path).map_err(at(&path))?;
                moteseal_files::sync_folder(&self.folder).map_err(at(&self.folder))?;
                Ok(fs::metadata(&path).map_err(at(&path))?.len())
            });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        self.items().insert(name, written?);
        self.stored.notify_one();
        Ok(())
    }

    /// Waits until an item was stored since the last call.
    pub(crate) async fn next_stored(&self) {
        self.stored.notified().await;
    }

    /// Reads an item. A damaged file is not modified, so that an operator can inspect it.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn read(&self, name: Name) -> Result<Item, OutboxError> {
        let path = self.path(name);
        let damaged = |error| OutboxError::journal(&path, error);
        let journal = Journal::open_frozen(&path, 0).map_err(damaged)?;
        if journal.torn_bytes() > 0 {
            // A file gets this name only after all of it is durable. An incomplete record at its
            // end is therefore damage.
            let (offset, record) = (journal.length(), journal.synced_records());
            return Err(damaged(JournalError::Damaged { path: path.clone(), offset, record }));
        }
        let mut records =
            journal.iter().collect::<Result<Vec<_>, _>>().map_err(damaged)?.into_iter();
        let manifest =
            records.next().ok_or_else(|| damaged(JournalError::NotAJournal(path.clone())))?;
        Ok(Item {
            manifest: (!manifest.is_empty()).then_some(manifest),
            bundles: records.collect(),
        })
    }

    /// Removes an item that the cloud has stored.
    ///
    /// # Errors
    /// [`OutboxError`]. The item still exists.
    pub fn remove(&self, name: Name) -> Result<(), OutboxError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        self.items().remove(&name);
        Ok(())
    }

    /// Returns the names of the items, oldest first.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        self.items().keys().copied().collect()
    }

    /// Returns the total size of the items, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.items().values().sum()
    }
}

fn write(path: &Path, item: &Item) -> Result<(), JournalError> {
    let mut journal = Journal::create(path)?;
    let manifest = item.manifest.as_deref().unwrap_or_default();
    for record in std::iter::once(manifest).chain(item.bundles.iter().map(Vec::as_slice)) {
        if matches!(journal.append(record), Err(JournalError::TooMuch(_))) {
            journal.sync()?;
            journal.append(record)?;
        }
    }
    journal.sync()
}
