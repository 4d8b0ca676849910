//! Where a device's signed bundles and its chain's state rest: a directory with one `.mseal` file a seal, and one small state file.
//!
//! A batch of bundles is stored whole or not at all. The order of writes is the one of DESIGN section 5: every bundle's bytes are
//! durable under a temporary name, then the state says that their indices are opened, then they get their names, then the state says
//! that they are signed. A crash between the last steps leaves signed bundles beyond the state; [`Outbox::open`] takes them up again,
//! so that no index is ever signed twice. A lock on the directory keeps two processes from sealing at once.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use moteseal_core::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::seal::Position;
use moteseal_core::seal::follow::Limits;
use moteseal_core::wire::cbor::{DecodeError, Reader, Writer};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

use crate::seal::{Bundle, Chain};

/// What bundles are called.
pub const EXTENSION: &str = "mseal";
/// How many bundles are written at once.
const WRITERS: usize = 16;
/// The longest encoding of the state, and its digest.
const MAX_STATE: usize = 160;

/// Why the outbox cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutboxError {
    /// A file or directory cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process is sealing into the directory.
    Locked(PathBuf),
    /// The state file is not one, or not whole, or another device's.
    BadState(PathBuf),
    /// A bundle stands where the next one would go, but the state does not know of it.
    Unknown {
        /// The bundle.
        bundle: PathBuf,
        /// The state.
        state: PathBuf,
    },
}

impl fmt::Display for OutboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                write!(f, "{}: the disk is full; nothing was stored: make room and run it again", path.display())
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Locked(path) => write!(f, "{}: another process is sealing into it; wait for it to end", path.display()),
            Self::BadState(path) => write!(
                f,
                "{}: not this device's chain state, or damaged; restore it from a backup, or start a new device name",
                path.display()
            ),
            Self::Unknown { bundle, state } => write!(
                f,
                "{}: exists, but {} does not know of it; restore the state, or choose another directory for another chain",
                bundle.display(),
                state.display()
            ),
        }
    }
}

impl std::error::Error for OutboxError {}

fn at(path: &Path) -> impl FnOnce(io::Error) -> OutboxError + '_ {
    |error| OutboxError::Io { path: path.to_owned(), error }
}

/// One device's outbox.
#[derive(Debug)]
pub struct Outbox {
    directory: PathBuf,
    state: PathBuf,
    stem: String,
    device: DeviceId,
    /// Held for as long as the outbox is open.
    _lock: File,
}

impl Outbox {
    /// Opens the outbox of the device called `name`, makes the directory if there is none, and says where the chain stands. The
    /// state is at `state`, or in the directory as a hidden file.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open(directory: &Path, state: Option<&Path>, roster: &Roster, device: DeviceId) -> Result<(Self, Chain), OutboxError> {
        fs::create_dir_all(directory).map_err(at(directory))?;
        let lock = File::open(directory).map_err(at(directory))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OutboxError::Locked(directory.to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(at(directory)(error)),
        }
        let stem = stem(roster.name(device).unwrap_or_default(), device);
        let state = state.map_or_else(|| directory.join(format!(".{stem}.chain")), Path::to_owned);
        let outbox = Self { directory: directory.to_owned(), state, stem, device, _lock: lock };
        let chain = outbox.recover(roster)?;
        Ok((outbox, chain))
    }

    /// The file of a bundle.
    #[must_use]
    pub fn path(&self, index: SealIndex) -> PathBuf {
        // Ten digits: names sort as indices do.
        self.directory.join(format!("{}-{:010}.{EXTENSION}", self.stem, index.0))
    }

    /// The file of the state.
    #[must_use]
    pub fn state_path(&self) -> &Path {
        &self.state
    }

    /// Persists where the chain stands: before the first event of a seal is taken, [`Sealer::would_open`](crate::Sealer::would_open).
    ///
    /// # Errors
    /// `Io`; the state is then the one before.
    pub fn persist(&self, chain: &Chain) -> Result<(), OutboxError> {
        write_durably(&self.state, &encode(self.device, chain)).map_err(at(&self.state))?;
        let directory = self.state.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_directory(directory)
    }

    /// Stores bundles of one chain, in order: all of them, durably, or none. `stored` is called after each.
    ///
    /// # Errors
    /// `Io` or `Unknown`; nothing is stored.
    pub fn store(&self, bundles: &[Bundle], stored: &mut dyn FnMut(&Bundle)) -> Result<Vec<PathBuf>, OutboxError> {
        let Some(last) = bundles.last() else { return Ok(Vec::new()) };
        let mut staged = Staged(Vec::with_capacity(bundles.len()));
        for bundle in bundles {
            let path = self.path(bundle.index());
            if path.exists() {
                return Err(OutboxError::Unknown { bundle: path, state: self.state.clone() });
            }
            staged.0.push(path.with_extension(format!("{EXTENSION}.tmp")));
        }
        write_all(bundles, &staged.0, stored)?;
        let before = self.read_state()?;
        let mut opened = before.unwrap_or(Chain { position: Position::start(Digest::NULL), ..last.chain });
        if let (None, Some(first)) = (before, bundles.first()) {
            let statement = first.seal.statement();
            opened.position = Position { prev: statement.prev, last: statement.last, epoch_closed: false };
        }
        opened.next_index = last.chain.next_index;
        // After a crash the chain goes on behind what got its name; no later epoch of this batch is closed to it.
        opened.epoch = bundles.first().map(Bundle::epoch);
        self.persist(&opened)?;
        let mut paths = Vec::with_capacity(bundles.len());
        for (bundle, temporary) in bundles.iter().zip(&staged.0) {
            let path = self.path(bundle.index());
            fs::rename(temporary, &path).map_err(at(&path))?;
            paths.push(path);
        }
        sync_directory(&self.directory)?;
        self.persist(&last.chain)?;
        Ok(paths)
    }

    fn read_state(&self) -> Result<Option<Chain>, OutboxError> {
        match fs::read(&self.state) {
            Ok(bytes) => decode(self.device, &bytes).ok_or_else(|| OutboxError::BadState(self.state.clone())).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&self.state)(error)),
        }
    }

    /// The chain as the state has it, and what was signed beyond.
    fn recover(&self, roster: &Roster) -> Result<Chain, OutboxError> {
        let certificate = roster.device(self.device).map_or(Digest::NULL, |device| device.certificate);
        let mut chain = self.read_state()?.unwrap_or(Chain::start(certificate));
        let from = chain.position.last.map_or(0, |(index, _)| index.0 + 1);
        for index in (from..chain.next_index.0).map(SealIndex) {
            let path = self.path(index);
            let Some(position) = fs::read(&path).ok().and_then(|bytes| proven(&bytes, roster, self.device)) else { continue };
            if position.0 == chain.position.prev {
                chain.position = position.1;
                chain.epoch = chain.epoch.max(position.1.last.map(|(_, epoch)| epoch));
            }
        }
        let next = self.path(chain.next_index);
        if next.exists() {
            return Err(OutboxError::Unknown { bundle: next, state: self.state.clone() });
        }
        Ok(chain)
    }
}

/// Temporary files that have not got their names; they go when this does.
struct Staged(Vec<PathBuf>);

impl Drop for Staged {
    fn drop(&mut self) {
        for path in &self.0 {
            // Those that were renamed are not there any more.
            let _ = fs::remove_file(path);
        }
    }
}

/// The `prev` of the one seal that a bundle proves, and the position behind it.
fn proven(bytes: &[u8], roster: &Roster, device: DeviceId) -> Option<(Digest, Position)> {
    let mut found = None;
    let mut reader = StreamReader::new(roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            found = (statement.device == device).then(|| (statement.prev, proven.seal.position()));
        }
        Ok::<(), ReadError>(())
    };
    reader.feed(bytes, &mut visit).ok()?;
    reader.finish(&mut visit).ok()?;
    found
}

/// A file name for a device: its name where that is plain, else what is plain of it and the start of its id.
fn stem(name: &str, device: DeviceId) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    format!("{name}-{}", &device.to_string()[..8])
}

/// `[1, device, prev, prev_index / null, prev_epoch / null, closed, next index, epoch / null]` and its SHA-256.
fn encode(device: DeviceId, chain: &Chain) -> Vec<u8> {
    let mut buffer = [0; MAX_STATE];
    let mut out = Writer::new(&mut buffer);
    let position = &chain.position;
    let mut write = || -> Result<(), moteseal_core::wire::cbor::BufferTooSmall> {
        out.array(8)?.uint(1u8)?.bytes(&device.0)?.bytes(&position.prev.0)?;
        out.optional(position.last, |out, (index, _)| out.uint(index.0))?;
        out.optional(position.last, |out, (_, epoch)| out.uint(epoch.0))?;
        out.bool(position.epoch_closed)?.uint(chain.next_index.0)?;
        out.optional(chain.epoch, |out, epoch| out.uint(epoch.0))?;
        Ok(())
    };
    let written = write();
    debug_assert!(written.is_ok(), "at most 9 + 34 + 5 + 9 + 1 + 5 + 9 + 2 bytes");
    let length = out.position();
    let digest = Digest::of(&[&buffer[..length]]);
    [&buffer[..length], &digest.0].concat()
}

fn decode(device: DeviceId, bytes: &[u8]) -> Option<Chain> {
    let (state, digest) = bytes.split_last_chunk::<32>()?;
    if Digest::of(&[state]).0 != *digest {
        return None;
    }
    let read = || -> Result<(DeviceId, Chain), DecodeError> {
        let mut reader = Reader::new(state)?;
        reader.array(8)?;
        reader.version()?;
        let device = DeviceId(reader.fixed()?);
        let prev = Digest(reader.fixed()?);
        let index = reader.optional(Reader::uint)?.map(SealIndex);
        let epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let epoch_closed = reader.bool()?;
        let position = Position { prev, last: index.zip(epoch), epoch_closed };
        let next_index = SealIndex(reader.uint()?);
        Ok((device, Chain { position, next_index, epoch: reader.optional(Reader::u64)?.map(EpochNumber) }))
    };
    read().ok().filter(|(found, _)| *found == device).map(|(_, chain)| chain)
}

/// Writes every bundle to its path, durably. Several at once, for one commit of a file system's journal serves many files.
fn write_all(bundles: &[Bundle], paths: &[PathBuf], stored: &mut dyn FnMut(&Bundle)) -> Result<(), OutboxError> {
    let next = AtomicUsize::new(0);
    let (send, written) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..WRITERS.min(bundles.len()) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((bundle, path)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    bundles.get(i).zip(paths.get(i))
                } {
                    let result = write_file(path, &bundle.bytes).map_err(at(path));
                    if send.send(result.map(|()| bundle)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut outcome = Ok(());
        for result in written {
            match result {
                Ok(bundle) => stored(bundle),
                Err(error) => {
                    next.store(bundles.len(), Ordering::Relaxed);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    })
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Replaces a file at once: whoever reads it sees the old bytes or the new ones.
fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = Staged(vec![PathBuf::from(name)]);
    write_file(&temporary.0[0], bytes)?;
    fs::rename(&temporary.0[0], path)
}

fn sync_directory(directory: &Path) -> Result<(), OutboxError> {
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(at(directory))
}
