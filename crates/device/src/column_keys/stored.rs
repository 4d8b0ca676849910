//! The private file with the keys of a device's encrypted columns, next to the state of its chain.
//!
//! The file is the deterministic CBOR encoding of `[1, device, [name, base epoch, step, spare secret],
//! [* path]]`, followed by its SHA-256. `path` is an encoded [`Path`]. `name` is a digest that identifies
//! the stream secret from which the paths are derived. The spare secret is the stream secret after `step`
//! steps to its successor (spec/confidential.md, section 1, rule 10). Columns that are added to the schema
//! later start from it, and it is then replaced by its successor. It opens none of the columns in the file.
//! If the device gets another stream secret, the content is replaced. The base epoch of a secret is also that
//! of its successors. A secret with an earlier base epoch than that of the spare secret is refused: the owner
//! has replaced it by a later one, and grants of it would open what is sealed from now on.
//!
//! When a later epoch is durably opened, the file is replaced by one without the earlier keys, and the
//! previous file is overwritten with zeros. A file system or disk that writes changed data to another
//! place may keep a copy.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path as FilePath;

use moteseal_core::Digest;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::{KeyAccessError, KeyEncodingError, PATH, Path, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::schema::Schema;
use moteseal_files::PRIVATE;
use zeroize::Zeroizing;

use super::{ColumnKeys, erase_before};

/// The largest number of columns of a stream secret, as in an owner's file (spec/grants.md, section 2.1).
/// A schema has at most 16 encrypted columns; the file also has those of earlier schemas.
pub(super) const MAX_COLUMNS: usize = 256;
/// The maximum length of the encoding of a column in bytes.
const COLUMN: usize = PATH + 4;
/// The maximum length of the encoding of everything else in bytes.
const REST: usize = 160;

/// Why there are no keys for a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysError {
    /// The epoch has no key.
    Key(KeyAccessError),
    /// The device would have more than [`MAX_COLUMNS`] columns of one stream secret.
    ColumnCount,
    /// The given stream secret has an earlier base epoch than that of the spare secret.
    SecretNotLater,
}

/// The secret from which columns that are added later start.
#[derive(Clone)]
struct Spare {
    /// Identifies the stream secret.
    name: [u8; 16],
    /// The number of steps from the stream secret to `secret`.
    step: u32,
    secret: StreamSecret,
}

/// The keys of all columns that a device has encrypted with one stream secret.
pub(crate) struct Stored {
    device: DeviceId,
    /// `None` if no stream secret was given yet.
    spare: Option<Spare>,
    columns: Vec<Path>,
    /// Whether the file lacks a change.
    is_changed: bool,
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.columns).finish()
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
        Self { device, spare: None, columns: Vec::new(), is_changed: false }
    }

    /// Returns the keys of a schema's encrypted columns. Derives those that are missing for the epochs
    /// from `epoch` on: from `secret` if it is another one than before, which replaces all columns, and
    /// otherwise from the spare secret, which is then replaced by its successor. Returns `None` if there
    /// is no secret, or if the schema has no encrypted columns.
    ///
    /// # Errors
    /// [`KeysError`]. Nothing is then changed.
    pub(crate) fn keys_of(
        &mut self,
        schema: &Schema<'_>,
        secret: Option<&StreamSecret>,
        epoch: EpochNumber,
    ) -> Result<Option<ColumnKeys>, KeysError> {
        let is_known = |name: &[u8; 16]| self.spare.as_ref().is_some_and(|of| of.name == *name);
        let other = secret.map(|secret| (name_of(secret), secret));
        let other = other.filter(|(name, _)| !is_known(name));
        if let (Some((_, secret)), Some(spare)) = (&other, &self.spare)
            && secret.base() < spare.secret.base()
        {
            return Err(KeysError::SecretNotLater);
        }
        let (start, mut columns) = match (other, &self.spare) {
            (Some((name, secret)), _) => {
                (Spare { name, step: 0, secret: secret.clone() }, Vec::new())
            }
            (None, Some(spare)) => (spare.clone(), self.columns.clone()),
            (None, None) => return Ok(None),
        };
        let (mut paths, before) = (Vec::new(), columns.len());
        for (_, id) in schema.encrypted_columns() {
            let known = columns.iter().find(|path| path.column() == id).cloned();
            let path = known.map_or_else(
                || {
                    let first = epoch.max(start.secret.base());
                    let path = Path::new(&start.secret.column(id), first);
                    path.inspect(|path| columns.push(path.clone()))
                },
                Ok,
            );
            paths.push(path.map_err(KeysError::Key)?);
        }
        if columns.len() > MAX_COLUMNS {
            return Err(KeysError::ColumnCount);
        }
        if columns.len() > before {
            let Spare { name, step, secret } = start;
            self.spare = Some(Spare { name, step: step + 1, secret: secret.next() });
            self.columns = columns;
            self.is_changed = true;
        }
        let mut keys = ColumnKeys::of(paths);
        keys.iter_mut().for_each(|keys| keys.erase_before(epoch));
        Ok(keys)
    }

    /// Erases the keys of the epochs before `epoch`.
    pub(crate) fn erase_before(&mut self, epoch: EpochNumber) {
        for path in &mut self.columns {
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
        let opened = match File::open(file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The buffer never moves and leaves no copy behind. A file that is too long is cut short, and
        // is then damaged.
        let longest = REST + COLUMN * MAX_COLUMNS;
        let mut bytes = Zeroizing::new(Vec::with_capacity(longest + 1));
        opened.take(longest as u64).read_to_end(&mut bytes)?;
        let stored = Self::decode(&bytes).filter(|stored| stored.device == device);
        Ok(Some(stored.ok_or(KeyEncodingError::MalformedKey)))
    }

    /// Replaces a file durably, and overwrites the previous one. Does nothing if the keys have not
    /// changed since the file was read or written.
    ///
    /// # Errors
    /// The errors of the operating system. The file has the previous or the new content, and the call
    /// can be repeated after [`erase_abandoned`](moteseal_files::erase_abandoned).
    pub(crate) fn write(&mut self, file: &FilePath) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        moteseal_files::replace_erasing(file, &self.encode(), PRIVATE)?;
        self.is_changed = false;
        Ok(())
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut buffer = Zeroizing::new(vec![0; REST + COLUMN * self.columns.len()]);
        let mut out = Writer::new(&mut buffer);
        let mut write = || -> Result<(), BufferTooSmall> {
            out.array(4)?.uint(1u8)?.bytes(&self.device.0)?;
            out.optional(self.spare.as_ref(), |out, Spare { name, step, secret }| {
                out.array(4)?.bytes(name)?.uint(secret.base().0)?;
                out.uint(*step)?.bytes(secret.expose())
            })?;
            out.array(self.columns.len() as u64)?;
            for path in &self.columns {
                out.bytes(&*path.encode())?;
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
            reader.array(4)?;
            reader.version()?;
            let device = DeviceId(reader.fixed()?);
            let spare = reader.optional(|reader| {
                reader.array(4)?;
                let (name, base) = (reader.fixed()?, EpochNumber(reader.u64()?));
                let (step, secret) = (reader.uint()?, Zeroizing::new(reader.fixed()?));
                Ok(Spare { name, step, secret: StreamSecret::new(*secret, base) })
            })?;
            let count = reader.array_any()?;
            if count > MAX_COLUMNS as u64 {
                return Ok(None);
            }
            let mut columns = Vec::new();
            for _ in 0..count {
                let path = Zeroizing::new(reader.fixed::<PATH>()?);
                let Ok(path) = Path::decode(&path) else { return Ok(None) };
                columns.push(path);
            }
            Ok(Some(Self { device, spare, columns, is_changed: false }))
        };
        read().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::schema::{Field, MAX_SCHEMA};
    use proptest::prelude::*;

    use super::*;

    const EPOCH: EpochNumber = EpochNumber(1000);

    /// The content of a file with the keys of as many columns, without its digest.
    fn content(columns: usize) -> Vec<u8> {
        let mut stored = Stored::new(DeviceId::of("home", "dev1"));
        let names: Vec<String> = (0..columns).map(|at| format!("c{at}::u32!")).collect();
        let fields: Vec<_> = names.iter().map(|name| Field::parse(name).unwrap()).collect();
        let mut buffer = [0; MAX_SCHEMA];
        let secret = StreamSecret::new([7; 32], EpochNumber(9));
        if columns > 0 {
            let schema = Schema::encode(&fields, &mut buffer).unwrap();
            stored.keys_of(&schema, Some(&secret), EPOCH).unwrap().unwrap();
        }
        let bytes = stored.encode();
        bytes[..bytes.len() - 32].to_vec()
    }

    fn with_digest(content: &[u8]) -> Vec<u8> {
        [content, &Digest::of(&[content]).0].concat()
    }

    /// Whether the bytes are read. What is read has no other encoding.
    fn is_read(bytes: &[u8]) -> bool {
        let stored = Stored::decode(bytes);
        assert!(stored.as_ref().is_none_or(|stored| **stored.encode() == *bytes), "two encodings");
        stored.is_some()
    }

    #[test]
    fn a_file_is_read_only_whole_and_unchanged() {
        for columns in [0, 1, 16] {
            let bytes = with_digest(&content(columns));
            assert!(is_read(&bytes));
            assert!((0..bytes.len()).all(|length| !is_read(&bytes[..length])));
            let mut altered = bytes.clone();
            for at in 0..bytes.len() {
                altered[at] ^= 0x10;
                assert!(!is_read(&altered), "byte {at}");
                altered[at] = bytes[at];
            }
        }
    }

    #[test]
    fn more_columns_than_an_owner_has_are_refused_before_they_are_read() {
        let mut most = content(1);
        let path = PATH + 3;
        let count = most.len() - path - 1;
        assert_eq!(most[count], 0x81);
        let one = most[count + 1..].to_vec();
        most.truncate(count);
        for (columns, is_right) in [(MAX_COLUMNS, true), (MAX_COLUMNS + 1, false)] {
            let head = [0x99, (columns >> 8) as u8, columns as u8];
            let content = [&most[..], &head, &one.repeat(columns)].concat();
            assert_eq!(is_read(&with_digest(&content)), is_right);
        }
        // A count without content.
        let head = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(!is_read(&with_digest(&[&most[..], &head].concat())));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Changes with a digest that is right.
        #[test]
        fn any_content_is_read_or_refused(
            columns in 0..3_usize,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut content = content(columns);
            for (at, byte) in changes {
                let at = at.index(content.len());
                content[at] = byte;
            }
            if is_cut {
                content.truncate(cut.index(content.len()));
            }
            is_read(&with_digest(&content));
            content.extend(more);
            is_read(&with_digest(&content));
        }
    }
}
