//! The files that tell where a device's chain continues.
//!
//! The *state* of a chain contains the chain's position and the directory of its newest bundles. It
//! must never be lost: a device without it would sign its indices again. A missing state is
//! therefore never taken for a new device. A chain begins only in one of these ways:
//!
//! - `moteseal key new` writes a *record of begun chains* next to the key, which lists no device
//!   yet. [`begin_first`] begins the chain of a device that the record does not list, and adds the
//!   device. A key has one chain for each device id, because the id depends on the group.
//! - [`begin`] begins a chain on request, for a key that was made by another program.
//! - [`recover`] continues a chain whose state is lost after the newest seal that is known, and
//!   leaves a gap for the indices that the lost state may have signed.
//!
//! The record is not copied with the key file alone. A copy or a new name of the key thus has
//! neither a record nor a state, and does not begin a second chain. If the record, the state and the
//! key are all copied, nothing on this machine shows it; the gateway or the cloud that receives the
//! seals of both copies does.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use moteseal_core::Digest;
use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::identity::{MAX_PEM, encode_public_pem};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::signature::PublicKey;
use moteseal_files::PRIVATE;
use moteseal_seal::Position;
use moteseal_seal::device_session::{INDEX_GAP, INDEX_SPREAD};
use moteseal_verify::roster::Device;

use crate::outbox::{OutboxError, at, with_suffix};
use crate::seal::{Chain, Covered};

/// The maximum length of the encoded state in bytes, without the directory.
const MAX_STATE: usize = 192;

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

/// Encodes the state: `[1, device, prev, prev_index / null, prev_epoch / null, closed, next index,
/// epoch / null, readings, directory, covered readings, their digest]`, followed by its SHA-256.
pub(crate) fn encode(device: DeviceId, chain: &Chain, directory: &Path) -> Vec<u8> {
    let directory = directory.as_os_str().as_bytes();
    let mut buffer = vec![0; MAX_STATE + directory.len()];
    let mut out = Writer::new(&mut buffer);
    let position = &chain.position;
    let mut write = || -> Result<(), moteseal_core::cbor::BufferTooSmall> {
        out.array(12)?.uint(1u8)?.bytes(&device.0)?.bytes(&position.prev.0)?;
        out.optional(position.last, |out, (index, _)| out.uint(index.0))?;
        out.optional(position.last, |out, (_, epoch)| out.uint(epoch.0))?;
        out.bool(position.epoch_closed)?.uint(chain.next_index.0)?;
        out.optional(chain.epoch, |out, epoch| out.uint(epoch.0))?;
        out.uint(chain.readings)?.bytes(directory)?;
        let covered = chain.covered.unwrap_or(Covered::NONE);
        out.uint(covered.readings)?.bytes(&covered.digest.0)?;
        Ok(())
    };
    let written = write();
    debug_assert!(
        written.is_ok(),
        "at most 2 + 9 + 34 + 5 + 9 + 1 + 5 + 9 + 9 + 9 + 9 + 34 bytes and the directory"
    );
    let length = out.position();
    let digest = Digest::of(&[&buffer[..length]]);
    [&buffer[..length], &digest.0].concat()
}

pub(crate) fn decode(device: DeviceId, bytes: &[u8]) -> Option<(Chain, PathBuf)> {
    let state = checked(bytes)?;
    let read = || -> Result<(DeviceId, (Chain, PathBuf)), DecodeError> {
        let mut reader = Reader::new(state)?;
        let members = reader.array_any()?;
        reader.version()?;
        let device = DeviceId(reader.fixed()?);
        let prev = Digest(reader.fixed()?);
        let index = reader.optional(Reader::uint)?.map(SealIndex);
        let epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let epoch_closed = reader.bool()?;
        let position = Position { prev, last: index.zip(epoch), epoch_closed };
        let next_index = SealIndex(reader.uint()?);
        let epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let readings = reader.u64()?;
        let directory = PathBuf::from(std::ffi::OsString::from_vec(reader.bytes()?.to_vec()));
        // Earlier versions do not store the digest of the readings.
        let covered = if members == 12 {
            let readings = reader.u64()?;
            let digest = Digest(reader.fixed()?);
            (digest != Digest::NULL).then_some(Covered { readings, digest })
        } else {
            None
        };
        let chain = Chain { position, next_index, epoch, readings, covered };
        Ok((device, (chain, directory)))
    };
    read().ok().filter(|(found, _)| *found == device).map(|(_, state)| state)
}

/// Returns the content before the SHA-256 at the end of a file, if the SHA-256 is correct.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (content, digest) = bytes.split_last_chunk::<32>()?;
    (Digest::of(&[content]).0 == *digest).then_some(content)
}

/// Resolves the symbolic links of a state's path, so that replacing the state does not replace a
/// link. A path that does not exist yet is returned unchanged.
pub(crate) fn resolved(state: &Path) -> PathBuf {
    fs::canonicalize(state).unwrap_or_else(|_| state.to_owned())
}

/// Reads a chain's state: the chain, and the directory of its newest bundles. Returns `None` if the
/// file does not exist.
///
/// # Errors
/// `NoState` or `BadState`.
pub fn read(state: &Path, device: DeviceId) -> Result<Option<(Chain, PathBuf)>, OutboxError> {
    match fs::read(state) {
        Ok(bytes) => {
            decode(device, &bytes).ok_or_else(|| OutboxError::BadState(state.to_owned())).map(Some)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OutboxError::NoState { path: state.to_owned(), error }),
    }
}

/// Writes the state of a chain that has no state file. Never replaces a state.
///
/// # Errors
/// `ChainExists` if there is a file with this name, and `NoState` if the file cannot be written.
pub fn begin(state: &Path, device: DeviceId, chain: &Chain) -> Result<(), OutboxError> {
    let bytes = encode(device, chain, Path::new(""));
    moteseal_files::create(state, &bytes, PRIVATE).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => OutboxError::ChainExists(state.to_owned()),
        _ => OutboxError::NoState { path: state.to_owned(), error },
    })
}

/// Returns the chain with which a device continues after `newest`, the newest seal that is known of
/// it, if its state is lost. The next index is at least 65,536 above all known indices, plus a
/// random number below 2^20: the device may have signed indices that nobody has received
/// (spec/coordinator.md, section 5). `floor` is the lowest index that is not known to have been
/// opened.
#[must_use]
pub fn recovered(newest: Position, floor: SealIndex, random: u32) -> Chain {
    let known = newest.last.map_or(0, |(index, _)| index.0).max(floor.0);
    Chain {
        position: newest,
        next_index: SealIndex(known.saturating_add(INDEX_GAP + random % INDEX_SPREAD)),
        epoch: newest.last.map(|(_, epoch)| epoch),
        readings: 0,
        covered: None,
    }
}

/// Returns the path of a key's record of begun chains: `dev1.begun` for `dev1.key.pem`. Symbolic
/// links of the key are resolved.
fn record_path(key: &Path) -> io::Result<PathBuf> {
    let file = fs::canonicalize(key)?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(file.with_file_name(format!("{}.begun", name.strip_suffix(".key.pem").unwrap_or(&name))))
}

/// Returns the content of the record of begun chains of a new key. It lists no device.
#[must_use]
pub fn new_record(key: &PublicKey) -> Vec<u8> {
    encode_record(&key_digest(key), &[])
}

/// Begins the chain of a device with its first key, if the key's record shows that the device has
/// no chain yet. Does nothing if there is a state, or no record of this key, or if the roster lists
/// an earlier key: the device may have sealed with that one.
///
/// # Errors
/// `Io`, `Locked`, or the errors of [`begin`].
pub fn begin_first(
    key: (&Path, &PublicKey),
    state: &Path,
    device: &Device,
) -> Result<(), OutboxError> {
    if !is_first_key(device, key.1) {
        return Ok(());
    }
    let chain = Chain::start(device.certificate);
    update_record(key, device.id, || match begin(state, device.id, &chain) {
        Err(OutboxError::ChainExists(_)) => Ok(()),
        begun => begun,
    })
}

/// Returns whether a key is the first one that the roster lists for a device.
#[must_use]
pub fn is_first_key(device: &Device, key: &PublicKey) -> bool {
    device.terms().first().is_some_and(|term| term.key == *key)
}

/// Adds a device whose chain has begun to the key's record, if the key has a record.
///
/// # Errors
/// `Io` or `Locked`.
pub fn record_begun(key: (&Path, &PublicKey), device: DeviceId) -> Result<(), OutboxError> {
    update_record(key, device, || Ok(()))
}

/// Calls `begin` and then adds a device to the key's record, if the record does not list it yet.
/// Does nothing if there is no record of this key.
fn update_record(
    (path, public): (&Path, &PublicKey),
    device: DeviceId,
    begin: impl FnOnce() -> Result<(), OutboxError>,
) -> Result<(), OutboxError> {
    let Ok(record) = record_path(path) else { return Ok(()) };
    if !record.exists() {
        return Ok(());
    }
    let lock_path = with_suffix(&record, ".lock");
    let lock = moteseal_files::private().write(true).create(true).truncate(false).open(&lock_path);
    // If the key's folder is read-only, no chain can begin next to the key.
    let Ok(lock) = lock else { return Ok(()) };
    lock_file(&lock, &record)?;
    let bytes = fs::read(&record).map_err(at(&record))?;
    let digest = key_digest(public);
    let Some(mut devices) = decode_record(&digest, &bytes) else { return Ok(()) };
    if devices.contains(&device) {
        return Ok(());
    }
    // The state is written first: if the process is killed between the two writes, the next call
    // finds the state and adds the device to the record.
    begin()?;
    devices.push(device);
    moteseal_files::replace(&record, &encode_record(&digest, &devices), PRIVATE)
        .map_err(at(&record))
}

/// Returns whether the record next to a key shows that the device's chain has begun.
#[must_use]
pub fn has_begun(key: (&Path, &PublicKey), device: DeviceId) -> bool {
    let bytes = record_path(key.0).and_then(fs::read).unwrap_or_default();
    decode_record(&key_digest(key.1), &bytes).is_some_and(|devices| devices.contains(&device))
}

fn key_digest(key: &PublicKey) -> Digest {
    let mut buffer = [0; MAX_PEM];
    encode_public_pem(key, &mut buffer).map_or(Digest::NULL, |pem| Digest::of(&[pem.as_bytes()]))
}

/// Encodes a record: `[1, SHA-256 of the public key's PEM text, [* device]]`, followed by its
/// SHA-256.
fn encode_record(key: &Digest, devices: &[DeviceId]) -> Vec<u8> {
    let mut buffer = vec![0; 64 + 16 * devices.len()];
    let mut out = Writer::new(&mut buffer);
    let mut write = || -> Result<(), moteseal_core::cbor::BufferTooSmall> {
        out.array(3)?.uint(1u8)?.bytes(&key.0)?.array(devices.len() as u64)?;
        for device in devices {
            out.bytes(&device.0)?;
        }
        Ok(())
    };
    let written = write();
    debug_assert!(written.is_ok(), "at most 1 + 1 + 34 + 9 bytes, and 9 bytes for each device");
    let length = out.position();
    let digest = Digest::of(&[&buffer[..length]]);
    [&buffer[..length], &digest.0].concat()
}

/// Decodes the record of a key. Returns `None` if the record is damaged, or belongs to another key.
fn decode_record(key: &Digest, bytes: &[u8]) -> Option<Vec<DeviceId>> {
    let record = checked(bytes)?;
    let read = || -> Result<(Digest, Vec<DeviceId>), DecodeError> {
        let mut reader = Reader::new(record)?;
        reader.array(3)?;
        reader.version()?;
        let key = Digest(reader.fixed()?);
        let count = reader.array_any()?;
        let devices = (0..count).map(|_| reader.fixed().map(DeviceId)).collect::<Result<_, _>>()?;
        Ok((key, devices))
    };
    read().ok().filter(|(found, _)| found == key).map(|(_, devices)| devices)
}

/// Locks the file `lock`, which protects `path`, against other processes.
pub(crate) fn lock_file(lock: &File, path: &Path) -> Result<(), OutboxError> {
    match moteseal_store::lock::try_lock(lock) {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(OutboxError::Locked(path.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(at(path)(error)),
    }
}
