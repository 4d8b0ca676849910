//! The directory of a device's signed bundles, with one `.mseal` file for each seal, and the small
//! state file of the device's chain.
//!
//! The state belongs to the device's key, not to the directory. By default it is stored next to the
//! key ([`default_state_path`]), so that a key has only one chain even if its bundles are in
//! different directories.
//!
//! A batch of bundles is stored completely or not at all, in these steps:
//!
//! 1. Make the contents of every bundle durable under a temporary name.
//! 2. Record in the state that the indices of the bundles are opened.
//! 3. Give the bundles their final names.
//! 4. Record in the state that the indices are signed.
//!
//! After a crash between steps 3 and 4, there are signed bundles after the position that the state
//! records. [`Outbox::open`] finds them in the directory that the state names, so that no index is
//! ever signed twice. Locks on the state and on the directory prevent two processes from sealing at
//! the same time.
//!
//! The file of the state's lock also contains the next index. If only the state is restored from a
//! backup, this index is higher than that of the state, and [`Outbox::open`] refuses the state.

mod columns;
mod outdated;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use moteseal_api::ErrorKind;
use moteseal_core::Digest;
use moteseal_core::confidential::KeyAccessError;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_files::{PRIVATE, Temporary, create_folder};
use moteseal_seal::Position;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};
use tracing::warn;

pub use crate::chain_state::default_state_path;
use crate::chain_state::{self, encode, lock_file};
use crate::column_keys::Stored;
use crate::seal::{Bundle, Chain};

/// The file name extension of bundles.
pub const EXTENSION: &str = "mseal";
/// The number of bundles that are written concurrently.
const WRITERS: usize = 16;

/// Why the outbox cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// A file or directory cannot be read or written.
    #[error("{}: {}", .path.display(), reason(.error))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process is sealing with this state or into this directory.
    #[error("another process is sealing with {}; wait for it to end", .0.display())]
    Locked(PathBuf),
    /// The chain's state cannot be stored at this path.
    #[error(
        "the chain's state cannot be stored at {}: {error}; give a file with --state: \
         always the same one, in a folder that is never deleted",
        .path.display()
    )]
    NoState {
        /// The path of the state file, or of the key next to which the state file would be.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not a state file, is incomplete, or belongs to another device.
    #[error(
        "{} is not this device's chain state, or is damaged; name the right file with --state, or \
         move this one away and run `moteseal chain recover --from CLOUD`",
        .0.display()
    )]
    BadState(PathBuf),
    /// There is no state at this path, so it is not known where the device's chain continues.
    #[error(
        "{} does not exist, so it is not known where the chain of {} continues. Name it with \
         --state, or run `moteseal chain new` (if the device has never sealed) or `moteseal chain \
         recover --from CLOUD` (otherwise)",
        .state.display(), .device
    )]
    ChainUnknown {
        /// The path of the state file.
        state: PathBuf,
        /// The device's name, or its id if the roster does not list it.
        device: String,
    },
    /// There is already a state at this path.
    #[error(
        "{} already exists; a chain's state is never replaced. Seal with it, or move it away if \
         it is not this device's",
        .0.display()
    )]
    ChainExists(PathBuf),
    /// The state is older than the lock that belongs to it.
    #[error(
        "{} is an old copy: the chain has reached index {reached}, but this state continues at {}. \
         Restore the newest state, or move this one away and run `moteseal chain recover --from \
         CLOUD`",
        .state.display(), .next
    )]
    StateOutdated {
        /// The path of the state file.
        state: PathBuf,
        /// The next index according to the state.
        next: SealIndex,
        /// The next index according to the lock.
        reached: SealIndex,
    },
    /// The file with the keys of the encrypted columns is damaged, or belongs to another device.
    #[error(
        "{} does not have the keys of this device's encrypted columns, or is damaged; move it away \
         and give the device its stream secret",
        .0.display()
    )]
    BadColumnKeys(PathBuf),
    /// The schema has encrypted columns, and neither their keys nor a stream secret is there.
    #[error(
        "the schema has encrypted columns, and {} does not have their keys; give the device its \
         stream secret",
        .0.display()
    )]
    NoStreamSecret(PathBuf),
    /// The stream secret has no keys for the epochs of the chain.
    #[error("{0}")]
    Key(KeyAccessError),
    /// The file has the keys of as many columns as a stream secret can have.
    #[error(
        "{} has the keys of 256 encrypted columns of one stream secret; give the device a new stream \
         secret (`moteseal owner add`)",
        .0.display()
    )]
    ColumnCount(PathBuf),
    /// The stream secret is an earlier one than that of the file.
    #[error(
        "the stream secret is older than the one from which {} has the keys, and readings would be open to \
         grants of the older one; give the device the newest secret (`moteseal owner copy`), or none",
        .0.display()
    )]
    SecretNotLater(PathBuf),
    /// There is a bundle whose index is the state's next index or a later one, so the state does
    /// not record it.
    #[error(
        "{} exists, but the state {} does not record it. Restore the right state or name it \
         with --state; if it is lost, move this state away and run `moteseal chain recover`. Keep \
         bundles of another group in another directory",
        .bundle.display(), .state.display()
    )]
    Unknown {
        /// The path of the bundle.
        bundle: PathBuf,
        /// The path of the state file.
        state: PathBuf,
    },
}

/// Describes an error of the operating system. If the disk is full, also says what to do.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            "the disk is full; nothing was stored; free some space and try again".to_owned()
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "this path, or a part of it, is a file; name a directory".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns whether a file could not be written because the disk or a limit has no room.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

impl OutboxError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull => "DiskFull",
            Self::Io { .. } => "OutboxFailed",
            Self::Locked(_) => "StateLocked",
            Self::NoState { .. } => "StateFailed",
            Self::BadState(_) => "StateDamaged",
            Self::ChainUnknown { .. } => "ChainUnknown",
            Self::ChainExists(_) => "ChainExists",
            Self::StateOutdated { .. } => "StateOutdated",
            Self::BadColumnKeys(_) => "MalformedKey",
            Self::NoStreamSecret(_) => "NoStreamSecret",
            Self::Key(error) => error.name(),
            Self::ColumnCount(_) => "ColumnCount",
            Self::SecretNotLater(_) => "SecretNotLater",
            Self::Unknown { .. } => "UnknownBundle",
        }
    }

    /// Returns [`Internal`](ErrorKind::Internal) if a file could not be read or written, and
    /// [`Usage`](ErrorKind::Usage) otherwise, for example if the directory's path is a file.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => ErrorKind::Usage,
                _ => ErrorKind::Internal,
            },
            Self::NoState { error, .. } if is_full(error) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(OutboxError);

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OutboxError + '_ {
    |error| OutboxError::Io { path: path.to_owned(), error }
}

/// One device's outbox.
#[derive(Debug)]
pub struct Outbox {
    directory: PathBuf,
    /// The directory's absolute path without symbolic links, as it is stored in the state.
    whole: PathBuf,
    state: PathBuf,
    stem: String,
    device: DeviceId,
    /// The locks on the state and on the directory, which are held until the outbox is dropped.
    state_lock: File,
    _directory_lock: File,
    outdated: Vec<PathBuf>,
    /// The keys of encrypted columns, once they were read.
    columns: Mutex<Option<Stored>>,
}

impl Outbox {
    /// Opens the outbox of a device and returns the position in the device's chain. Creates the
    /// directory if necessary. `state` is the path of the chain's state, for example
    /// [`default_state_path`] of the key. A chain has one state, even if its bundles go to
    /// different directories. A missing state is refused, because the device may have sealed with
    /// it ([`chain_state`]).
    ///
    /// If a later version of the roster has made the newest seals outdated, the chain continues
    /// after the seal before them, and their bundles are renamed ([`outdated`](Self::outdated)).
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open(
        directory: &Path,
        state: &Path,
        roster: &Roster,
        device: DeviceId,
    ) -> Result<(Self, Chain), OutboxError> {
        let (mut outbox, chain, newest) = Self::locked(directory, state, roster, device)?;
        match reached(&outbox.state_lock, device).filter(|reached| *reached > chain.next_index) {
            None => {
                let chain = outbox.leave_outdated(roster, chain, &newest)?;
                Ok((outbox, chain))
            }
            Some(reached) => Err(OutboxError::StateOutdated {
                state: outbox.state,
                next: chain.next_index,
                reached,
            }),
        }
    }

    /// Like [`open`](Self::open), for a device that forwards to a gateway. If the state is an old
    /// copy, the chain continues after a gap, and the gateway's first acknowledgement tells after
    /// which seal. `random` determines the size of the gap ([`chain_state::recovered`]).
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open_forwarding(
        directory: &Path,
        state: &Path,
        roster: &Roster,
        device: DeviceId,
        random: u32,
    ) -> Result<(Self, Chain), OutboxError> {
        let (outbox, mut chain, _) = Self::locked(directory, state, roster, device)?;
        if let Some(reached) =
            reached(&outbox.state_lock, device).filter(|reached| *reached > chain.next_index)
        {
            warn!(
                state = %outbox.state.display(),
                reached = reached.0,
                "the chain's state is an old copy; sealing continues after a gap"
            );
            let after_gap = chain_state::recovered(chain.position, reached, random);
            chain.next_index = after_gap.next_index;
            outbox.persist(&chain)?;
        }
        Ok((outbox, chain))
    }

    /// Locks the state and the directory. Returns the chain, and the directory that the state names.
    fn locked(
        directory: &Path,
        state: &Path,
        roster: &Roster,
        device: DeviceId,
    ) -> Result<(Self, Chain, PathBuf), OutboxError> {
        let state = &chain_state::resolved(state);
        let name = roster.name(device).unwrap_or_default();
        let unknown = || OutboxError::ChainUnknown {
            state: state.clone(),
            device: if name.is_empty() { device.to_string() } else { name.to_owned() },
        };
        // Each write replaces the state file, so the lock is on a separate file that is not
        // replaced.
        if chain_state::read(state, device)?.is_none() {
            return Err(unknown());
        }
        let state_lock = lock_state(state)?;
        moteseal_files::remove_abandoned(state);
        create_folder(directory).map_err(at(directory))?;
        let directory_lock = File::open(directory).map_err(at(directory))?;
        lock_file(&directory_lock, directory)?;
        let outbox = Self {
            directory: directory.to_owned(),
            whole: fs::canonicalize(directory).map_err(at(directory))?,
            state: state.clone(),
            stem: stem(name, device),
            device,
            state_lock,
            _directory_lock: directory_lock,
            outdated: Vec::new(),
            columns: Mutex::new(None),
        };
        // The state may have changed before it was locked.
        let (chain, newest) = chain_state::read(state, device)?.ok_or_else(unknown)?;
        let chain = outbox.recover(roster, chain, &newest)?;
        Ok((outbox, chain, newest))
    }

    /// Returns the path of the bundle with this index.
    #[must_use]
    pub fn path(&self, index: SealIndex) -> PathBuf {
        self.directory.join(self.file_name(index))
    }

    fn file_name(&self, index: SealIndex) -> String {
        // The index has ten digits, so that file names sort by index.
        format!("{}-{:010}.{EXTENSION}", self.stem, index.0)
    }

    /// Returns the device's bundles in the directory, in ascending order of index.
    ///
    /// # Errors
    /// `Io`.
    pub fn bundles(&self) -> Result<Vec<(SealIndex, PathBuf)>, OutboxError> {
        self.bundles_in(&self.directory)
    }

    /// Returns the number of a device's bundles in a directory; 0 if it cannot be read.
    #[must_use]
    pub fn count(directory: &Path, roster: &Roster, device: DeviceId) -> u64 {
        let prefix = format!("{}-", stem(roster.name(device).unwrap_or_default(), device));
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_bundle = |name: &String| {
            let rest = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(EXTENSION));
            let digits = rest.and_then(|rest| rest.strip_suffix('.'));
            digits.is_some_and(|digits| digits.len() == 10 && digits.parse::<u32>().is_ok())
        };
        names.filter(is_bundle).count() as u64
    }

    fn bundles_in(&self, directory: &Path) -> Result<Vec<(SealIndex, PathBuf)>, OutboxError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(at(directory))? {
            let name = entry.map_err(at(directory))?.file_name();
            let name = name.to_string_lossy();
            let digits = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_prefix('-'));
            let digits = digits
                .and_then(|rest| rest.strip_suffix(EXTENSION))
                .and_then(|rest| rest.strip_suffix('.'));
            if let Some(index) = digits.and_then(|digits| digits.parse().ok()).map(SealIndex)
                && name == self.file_name(index)
            {
                found.push((index, directory.join(&*name)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the path of the state file.
    #[must_use]
    pub fn state_path(&self) -> &Path {
        &self.state
    }

    /// Stores the position in the chain. Call this with the result of
    /// [`Sealer::would_open`](crate::Sealer::would_open) before the first event of a seal is added.
    /// Then erases the keys of encrypted columns of the epochs before the chain's newest epoch.
    ///
    /// # Errors
    /// `Io`. The state has not changed, or the keys were not erased; the call can be repeated.
    pub fn persist(&self, chain: &Chain) -> Result<(), OutboxError> {
        let bytes = encode(self.device, chain, &self.whole);
        moteseal_files::replace(&self.state, &bytes, PRIVATE).map_err(at(&self.state))?;
        // This need not be durable: a lower index than that of the state means nothing.
        let next = chain.next_index.0.to_be_bytes();
        let _ = self.state_lock.write_all_at(&[&self.device.0[..], &next].concat(), 0);
        self.erase_keys(chain)
    }

    /// Stores bundles of one chain durably and in order: either all bundles or none. Calls `stored`
    /// after each bundle. A failed call can be repeated: if a bundle already exists with the same
    /// bytes, it is kept.
    ///
    /// # Errors
    /// `Io` or `Unknown`. Nothing has been stored, with one exception: if the last step could not
    /// rename a file, the bundles before that file are stored.
    pub fn store(
        &self,
        bundles: &[Bundle],
        stored: &mut dyn FnMut(&Bundle),
    ) -> Result<Vec<PathBuf>, OutboxError> {
        let Some(last) = bundles.last() else { return Ok(Vec::new()) };
        let mut paths = Vec::with_capacity(bundles.len());
        let mut missing = Vec::with_capacity(bundles.len());
        for bundle in bundles {
            let path = self.path(bundle.index());
            match fs::read(&path) {
                Ok(bytes) if bytes == bundle.bytes => stored(bundle),
                Ok(_) => {
                    return Err(OutboxError::Unknown { bundle: path, state: self.state.clone() });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    paths.push(path.with_extension(format!("{EXTENSION}.tmp")));
                    missing.push(bundle);
                }
                Err(error) => return Err(at(&path)(error)),
            }
        }
        let staged = write_all(&missing, &paths, stored)?;
        let before = chain_state::read(&self.state, self.device)?;
        let (mut opened, _) = before.ok_or_else(|| OutboxError::ChainUnknown {
            state: self.state.clone(),
            device: self.device.to_string(),
        })?;
        opened.next_index = last.chain.next_index;
        // This is the digest if all bundles of the batch are found; otherwise the counts differ.
        opened.covered = last.chain.covered;
        // After a crash during the renaming, the chain continues after the renamed bundles. Record
        // only the first epoch, so that the later epochs of this batch can still be sealed.
        opened.epoch = bundles.first().map(Bundle::epoch);
        self.persist(&opened)?;
        for (bundle, temporary) in missing.iter().zip(staged) {
            let path = self.path(bundle.index());
            temporary.replace(&path).map_err(at(&path))?;
        }
        sync_directory(&self.directory)?;
        self.persist(&last.chain)?;
        Ok(bundles.iter().map(|bundle| self.path(bundle.index())).collect())
    }

    /// Returns the chain that follows from the state and from the bundles that were signed after
    /// the state was written. `newest` is the directory that the state names.
    fn recover(
        &self,
        roster: &Roster,
        mut chain: Chain,
        newest: &PathBuf,
    ) -> Result<Chain, OutboxError> {
        let from = chain.position.last.map_or(0, |(index, _)| index.0.saturating_add(1));
        // The directory that the state names may have been renamed, so look there and in this
        // directory. After a gap, most indices have no bundle.
        let directories = [newest, &self.directory];
        let indices: BTreeSet<SealIndex> = directories
            .into_iter()
            .filter_map(|directory| self.bundles_in(directory).ok())
            .flatten()
            .map(|(index, _)| index)
            .filter(|index| (from..chain.next_index.0).contains(&index.0))
            .collect();
        for index in indices {
            for directory in directories {
                let bytes = fs::read(directory.join(self.file_name(index))).ok();
                let Some(found) = bytes.and_then(|bytes| proven(&bytes, roster, self.device))
                else {
                    continue;
                };
                if found.prev == chain.position.prev
                    && found.position.last.is_some_and(|(of, _)| of == index)
                {
                    let epoch = |position: Position| position.last.map(|(_, epoch)| epoch);
                    let before = if epoch(chain.position) == epoch(found.position) {
                        chain.readings
                    } else {
                        0
                    };
                    chain.readings = before + found.readings;
                    chain.position = found.position;
                    chain.epoch = chain.epoch.max(epoch(found.position));
                    break;
                }
            }
        }
        match self.bundles()?.pop() {
            Some((index, bundle)) if index >= chain.next_index => {
                Err(OutboxError::Unknown { bundle, state: self.state.clone() })
            }
            _ => Ok(chain),
        }
    }
}

/// Locks a chain's state against other processes.
///
/// # Errors
/// `Locked`, or `NoState` if the lock's file cannot be opened.
pub fn lock_state(state: &Path) -> Result<File, OutboxError> {
    let lock = moteseal_files::private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(with_suffix(state, ".lock"))
        .map_err(|error| OutboxError::NoState { path: state.to_owned(), error })?;
    lock_file(&lock, state)?;
    Ok(lock)
}

/// Returns the next index of a device that was stored last with the lock of its chain's state.
/// Returns `None` if the device has not sealed with this state.
#[must_use]
pub fn reached(lock: &File, device: DeviceId) -> Option<SealIndex> {
    let mut bytes = [0; 12];
    lock.read_exact_at(&mut bytes, 0).ok()?;
    let (found, next) = bytes.split_first_chunk::<8>()?;
    let next = u32::from_be_bytes(next.try_into().ok()?);
    (*found == device.0).then_some(SealIndex(next))
}

/// Returns a path with a suffix after the file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What a verified bundle proves about the chain.
struct Found {
    /// The `prev` digest of the bundle's seal.
    prev: Digest,
    /// The chain's position after the bundle's seal.
    position: Position,
    /// The number of readings that the seal covers.
    readings: u64,
}

fn proven(bytes: &[u8], roster: &Roster, device: DeviceId) -> Option<Found> {
    let mut found = None;
    let mut reader = StreamReader::new(roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            found = (statement.device == device).then(|| Found {
                prev: statement.prev,
                position: proven.seal.position(),
                readings: statement.counters.total(),
            });
        }
        Ok::<(), ReadError>(())
    };
    reader.feed(bytes, &mut visit).ok()?;
    reader.finish(&mut visit).ok()?;
    found
}

/// Returns the start of a device's file names. This is the device's name if it has only plain
/// characters. Otherwise it is the plain characters of the name and the start of the device's id.
fn stem(name: &str, device: DeviceId) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    format!("{name}-{}", &device.to_string()[..8])
}

/// Writes every bundle durably to its temporary path. Several bundles are written concurrently, so
/// that one commit of the file system's own journal covers many files. The lock on the directory
/// excludes other processes.
fn write_all(
    bundles: &[&Bundle],
    paths: &[PathBuf],
    stored: &mut dyn FnMut(&Bundle),
) -> Result<Vec<Temporary>, OutboxError> {
    let next = AtomicUsize::new(0);
    let (send, written) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..WRITERS.min(bundles.len()) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((i, bundle, path)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    bundles.get(i).zip(paths.get(i)).map(|(bundle, path)| (i, bundle, path))
                } {
                    let result = Temporary::create_named(path.clone(), PRIVATE)
                        .and_then(|temporary| temporary.filled(&bundle.bytes))
                        .map_err(at(path));
                    if send.send(result.map(|temporary| (i, temporary))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut staged: BTreeMap<usize, Temporary> = BTreeMap::new();
        let mut outcome = Ok(());
        for result in written {
            match result {
                Ok((i, temporary)) => {
                    stored(bundles[i]);
                    staged.insert(i, temporary);
                }
                Err(error) => {
                    next.store(bundles.len(), Ordering::Relaxed);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome.map(|()| staged.into_values().collect())
    })
}

fn sync_directory(directory: &Path) -> Result<(), OutboxError> {
    moteseal_files::sync_folder(directory).map_err(at(directory))
}
