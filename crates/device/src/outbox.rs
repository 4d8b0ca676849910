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

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use moteseal_api::ErrorKind;
use moteseal_core::Digest;
use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_files::{PRIVATE, Temporary, create_folder};
use moteseal_seal::Position;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

use crate::seal::{Bundle, Chain};

/// The file name extension of bundles.
pub const EXTENSION: &str = "mseal";
/// The number of bundles that are written concurrently.
const WRITERS: usize = 16;
/// The maximum length of the encoded state in bytes, without the directory.
const MAX_STATE: usize = 192;

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
        "{} is not this device's chain state, or is damaged; restore it from a backup, or \
         give the device a new name",
        .0.display()
    )]
    BadState(PathBuf),
    /// There is a bundle whose index is the state's next index or a later one, so the state does
    /// not record it.
    #[error(
        "{} exists, but the state {} does not record it. Restore the right state or name it \
         with --state; if it is lost, give the device a new name, because it must not sign \
         an index twice. Keep bundles of another group in another directory",
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
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(OutboxError);

fn at(path: &Path) -> impl FnOnce(io::Error) -> OutboxError + '_ {
    |error| OutboxError::Io { path: path.to_owned(), error }
}

/// Returns the default path of a chain's state. It is next to the device's secret key, for example
/// `dev1.<device id>.chain` for `dev1.key.pem`. Symbolic links are resolved, so that a key has the
/// same state under all its names.
///
/// # Errors
/// `NoState` if the key is not a file in a directory, for example if it is a pipe.
pub fn default_state_path(key: &Path, device: DeviceId) -> Result<PathBuf, OutboxError> {
    let no_state = |error| OutboxError::NoState { path: key.to_owned(), error };
    let file = fs::canonicalize(key).map_err(no_state)?;
    if !file.is_file() {
        return Err(no_state(io::Error::other("the key is not a file")));
    }
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(file.with_file_name(format!(
        "{}.{device}.chain",
        name.strip_suffix(".key.pem").unwrap_or(&name)
    )))
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
    _locks: [File; 2],
}

impl Outbox {
    /// Opens the outbox of a device and returns the position in the device's chain. Creates the
    /// directory if necessary. `state` is the path of the chain's state, for example
    /// [`default_state_path`] of the key; its folder must exist. A chain has one state, even if its
    /// bundles go to different directories.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open(
        directory: &Path,
        state: &Path,
        roster: &Roster,
        device: DeviceId,
    ) -> Result<(Self, Chain), OutboxError> {
        // Each write replaces the state file, so the lock is on a separate file that is not
        // replaced.
        let no_state = |error| OutboxError::NoState { path: state.to_owned(), error };
        let lock_path = with_suffix(state, ".lock");
        let state_lock = moteseal_files::private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(no_state)?;
        lock(&state_lock, state)?;
        moteseal_files::remove_abandoned(state);
        create_folder(directory).map_err(at(directory))?;
        let directory_lock = File::open(directory).map_err(at(directory))?;
        lock(&directory_lock, directory)?;
        let outbox = Self {
            directory: directory.to_owned(),
            whole: fs::canonicalize(directory).map_err(at(directory))?,
            state: state.to_owned(),
            stem: stem(roster.name(device).unwrap_or_default(), device),
            device,
            _locks: [state_lock, directory_lock],
        };
        let chain = outbox.recover(roster)?;
        Ok((outbox, chain))
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
    ///
    /// # Errors
    /// `Io`. The state has not changed.
    pub fn persist(&self, chain: &Chain) -> Result<(), OutboxError> {
        let bytes = encode(self.device, chain, &self.whole);
        moteseal_files::replace(&self.state, &bytes, PRIVATE).map_err(at(&self.state))
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
        let before = self.read_state()?.map(|(chain, _)| chain);
        let mut opened = before.unwrap_or(Chain {
            position: Position::start(Digest::NULL),
            readings: 0,
            ..last.chain
        });
        if let (None, Some(first)) = (before, bundles.first()) {
            let statement = first.seal.statement();
            opened.position =
                Position { prev: statement.prev, last: statement.last, epoch_closed: false };
        }
        opened.next_index = last.chain.next_index;
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

    /// Reads the state: the chain, and the directory of its newest bundles.
    fn read_state(&self) -> Result<Option<(Chain, PathBuf)>, OutboxError> {
        match fs::read(&self.state) {
            Ok(bytes) => decode(self.device, &bytes)
                .ok_or_else(|| OutboxError::BadState(self.state.clone()))
                .map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&self.state)(error)),
        }
    }

    /// Returns the chain that follows from the state and from the bundles that were signed after
    /// the state was written.
    fn recover(&self, roster: &Roster) -> Result<Chain, OutboxError> {
        let certificate =
            roster.device(self.device).map_or(Digest::NULL, |device| device.certificate);
        let (mut chain, newest) =
            self.read_state()?.unwrap_or_else(|| (Chain::start(certificate), self.whole.clone()));
        let from = chain.position.last.map_or(0, |(index, _)| index.0.saturating_add(1));
        // The directory that the state names may have been renamed, so look there and in this
        // directory. After a gap, most indices have no bundle.
        let directories = [&newest, &self.directory];
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

fn lock(file: &File, path: &Path) -> Result<(), OutboxError> {
    match moteseal_store::lock::try_lock(file) {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(OutboxError::Locked(path.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(at(path)(error)),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
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

/// Encodes the state: `[1, device, prev, prev_index / null, prev_epoch / null, closed, next index,
/// epoch / null, readings, directory]`, followed by its SHA-256.
fn encode(device: DeviceId, chain: &Chain, directory: &Path) -> Vec<u8> {
    let directory = directory.as_os_str().as_bytes();
    let mut buffer = vec![0; MAX_STATE + directory.len()];
    let mut out = Writer::new(&mut buffer);
    let position = &chain.position;
    let mut write = || -> Result<(), moteseal_core::cbor::BufferTooSmall> {
        out.array(10)?.uint(1u8)?.bytes(&device.0)?.bytes(&position.prev.0)?;
        out.optional(position.last, |out, (index, _)| out.uint(index.0))?;
        out.optional(position.last, |out, (_, epoch)| out.uint(epoch.0))?;
        out.bool(position.epoch_closed)?.uint(chain.next_index.0)?;
        out.optional(chain.epoch, |out, epoch| out.uint(epoch.0))?;
        out.uint(chain.readings)?.bytes(directory)?;
        Ok(())
    };
    let written = write();
    debug_assert!(
        written.is_ok(),
        "at most 2 + 9 + 34 + 5 + 9 + 1 + 5 + 9 + 9 + 9 bytes and the directory"
    );
    let length = out.position();
    let digest = Digest::of(&[&buffer[..length]]);
    [&buffer[..length], &digest.0].concat()
}

fn decode(device: DeviceId, bytes: &[u8]) -> Option<(Chain, PathBuf)> {
    let (state, digest) = bytes.split_last_chunk::<32>()?;
    if Digest::of(&[state]).0 != *digest {
        return None;
    }
    let read = || -> Result<(DeviceId, (Chain, PathBuf)), DecodeError> {
        let mut reader = Reader::new(state)?;
        reader.array(10)?;
        reader.version()?;
        let device = DeviceId(reader.fixed()?);
        let prev = Digest(reader.fixed()?);
        let index = reader.optional(Reader::uint)?.map(SealIndex);
        let epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let epoch_closed = reader.bool()?;
        let position = Position { prev, last: index.zip(epoch), epoch_closed };
        let next_index = SealIndex(reader.uint()?);
        let epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let chain = Chain { position, next_index, epoch, readings: reader.u64()? };
        Ok((device, (chain, PathBuf::from(std::ffi::OsString::from_vec(reader.bytes()?.to_vec())))))
    };
    read().ok().filter(|(found, _)| *found == device).map(|(_, state)| state)
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
