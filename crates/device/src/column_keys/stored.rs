//! The private file with the keys of a device's encrypted columns, next to the state of its chain.
//!
//! The file is the deterministic CBOR encoding of `[1, device, [* [name, path]]]`, followed by its
//! SHA-256. `path` is an encoded [`Path`], and `name` is a digest that identifies the stream secret from
//! which it is derived. If the device gets another secret, the paths of the previous one are replaced.
//!
//! When a later epoch is durably opened, the file is replaced by one without the earlier keys, and the
//! previous file is overwritten with zeros. A file system or disk that writes changed data to another
//! place may keep a copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path as FilePath;

use moteseal_core::Digest;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::{KeyAccessError, KeyEncodingError, PATH, Path, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::schema::Schema;
use moteseal_files::PRIVATE;
use zeroize::Zeroizing;

use super::{ColumnKeys, erase_before};

/// The largest number of columns in a file. A schema has at most 16 encrypted columns.
const MAX_COLUMNS: usize = 256;
/// The maximum length of the encoding of a column in bytes.
const COLUMN: usize = PATH + 24;

/// The keys of a column, and the name of the secret from which they are derived.
struct Column {
    name: [u8; 16],
    path: Path,
}

/// The keys of all columns that a device has encrypted.
pub(crate) struct Stored {
    device: DeviceId,
    columns: Vec<Column>,
    /// Whether the file lacks a change.
    is_changed: bool,
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| &column.path)).finish()
    }
}

/// Returns the digest that identifies a stream secret.
fn name_of(secret: &StreamSecret) -> [u8; 16] {
    let base = secret.base().0.to_be_bytes();
    let digest = Digest::of(&[b"moteseal/1/stream-secret\0", secret.expose(), &base]);
    let mut name = [0; 16];
    name.copy_from_slice(&digest.0[..16]);
    name
}

impl Stored {
    /// Creates the keys of a device without columns.
    pub(crate) const fn new(device: DeviceId) -> Self {
        Self { device, columns: Vec::new(), is_changed: false }
    }

    /// Returns the keys of a schema's encrypted columns. Derives those that are missing, or that are of
    /// another secret, from `secret`, for the epochs from `epoch` on. Returns `None` if a column's keys
    /// are missing and there is no secret, or if the schema has no encrypted columns.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange`.
    pub(crate) fn keys_of(
        &mut self,
        schema: &Schema<'_>,
        secret: Option<&StreamSecret>,
        epoch: EpochNumber,
    ) -> Result<Option<ColumnKeys>, KeyAccessError> {
        let mut paths = Vec::new();
        let named = secret.map(|secret| (name_of(secret), secret));
        for (_, id) in schema.encrypted_columns() {
            let known = self.columns.iter().position(|column| column.path.column() == id);
            let is_current =
                |at: &usize| named.as_ref().is_none_or(|(name, _)| self.columns[*at].name == *name);
            match (known.filter(is_current), &named) {
                (Some(at), _) => paths.push(self.columns[at].path.clone()),
                (None, Some((name, secret))) => {
                    let path = Path::new(&secret.column(id), epoch.max(secret.base()))?;
                    paths.push(path.clone());
                    self.columns.retain(|column| column.path.column() != id);
                    self.columns.push(Column { name: *name, path });
                    self.is_changed = true;
                }
                (None, None) => return Ok(None),
            }
        }
        let mut keys = ColumnKeys::of(paths);
        keys.iter_mut().for_each(|keys| keys.erase_before(epoch));
        Ok(keys)
    }

    /// Erases the keys of the epochs before `epoch`.
    pub(crate) fn erase_before(&mut self, epoch: EpochNumber) {
        for Column { path, .. } in &mut self.columns {
            let first = path.epoch();
            erase_before(path, epoch);
            self.is_changed |= path.epoch() != first;
        }
    }

    /// Reads a file. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of the operating system. The inner error is `MalformedKey` if the file is damaged or
    /// belongs to another device.
    pub(crate) fn read(
        file: &FilePath,
        device: DeviceId,
    ) -> io::Result<Option<Result<Self, KeyEncodingError>>> {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let stored = Self::decode(&bytes).filter(|stored| stored.device == device);
        Ok(Some(stored.ok_or(KeyEncodingError::MalformedKey)))
    }

    /// Replaces a file durably, and overwrites the previous one. Does nothing if the keys have not
    /// changed since the file was read or written.
    ///
    /// # Errors
    /// The errors of the operating system. The file has the previous or the new content, and the call
    /// can be repeated.
    pub(crate) fn write(&mut self, file: &FilePath) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let previous = File::options().write(true).open(file).ok();
        moteseal_files::replace(file, &self.encode(), PRIVATE)?;
        if let Some(previous) = previous {
            let length = previous.metadata()?.len();
            let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
            previous.write_all_at(&zeros, 0)?;
            previous.sync_data()?;
        }
        self.is_changed = false;
        Ok(())
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut buffer = Zeroizing::new(vec![0; 64 + COLUMN * self.columns.len()]);
        let mut out = Writer::new(&mut buffer);
        let mut write = || -> Result<(), BufferTooSmall> {
            out.array(3)?.uint(1u8)?.bytes(&self.device.0)?.array(self.columns.len() as u64)?;
            for Column { name, path } in &self.columns {
                out.array(2)?.bytes(name)?.bytes(&*path.encode())?;
            }
            Ok(())
        };
        let written = write();
        debug_assert!(written.is_ok(), "the buffer has room for every column");
        let length = out.position();
        let digest = Digest::of(&[&buffer[..length]]);
        buffer[length..length + 32].copy_from_slice(&digest.0);
        buffer.truncate(length + 32);
        buffer
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, digest) = bytes.split_last_chunk::<32>()?;
        if Digest::of(&[content]).0 != *digest {
            return None;
        }
        let read = || -> Result<Option<Self>, DecodeError> {
            let mut reader = Reader::new(content)?;
            reader.array(3)?;
            reader.version()?;
            let device = DeviceId(reader.fixed()?);
            let count = reader.array_any()?;
            if count > MAX_COLUMNS as u64 {
                return Ok(None);
            }
            let mut columns = Vec::new();
            for _ in 0..count {
                reader.array(2)?;
                let name = reader.fixed()?;
                let path = Zeroizing::new(reader.fixed::<PATH>()?);
                let Ok(path) = Path::decode(&path) else { return Ok(None) };
                columns.push(Column { name, path });
            }
            Ok(Some(Self { device, columns, is_changed: false }))
        };
        read().ok().flatten()
    }
}
