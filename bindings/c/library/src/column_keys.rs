//! The keys of a device's encrypted columns (spec/confidential.md, sections 1 and 2).
//!
//! The state holds, for each column, the key of one epoch and the nodes from which the keys of later
//! epochs follow. It cannot compute the keys of earlier epochs. Its record is what a mote stores.

use moteseal_core::Digest;
use moteseal_core::confidential::{KeyAccessError, KeyEncodingError, PATH, Path, StreamSecret};
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::Schema;

use crate::boundary::{
    Storage, array_ref, begin_array, buffer, bytes, call, capacity, checked, fill_array, fixed,
    put, wipe_bytes,
};
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The length in bytes of the keys of one column in a record.
pub const MOTESEAL_COLUMN_KEY: usize = 1084;
/// The length in bytes of a record of keys without the keys of the columns.
pub const MOTESEAL_COLUMN_KEYS_OVERHEAD: usize = 12;

const _: () = assert!(MOTESEAL_COLUMN_KEY == PATH);

/// The length of the checksum at the end of a record, in bytes.
const CHECK: usize = 8;
/// The first bytes of a record: the version, zeros. The number of columns follows.
const VERSION: [u8; 3] = [1, 0, 0];

/// The keys of the encrypted columns of a schema. It occupies `MOTESEAL_COLUMN_KEYS_SIZE(columns)`
/// bytes of the caller's memory:
///
///     uint64_t memory[MOTESEAL_COLUMN_KEYS_SIZE(2) / 8] = {0};
///     moteseal_column_keys *keys = (moteseal_column_keys *)memory;
///
/// The state is secret. End it with `moteseal_column_keys_wipe`.
#[allow(non_camel_case_types)]
pub struct moteseal_column_keys([u8; 0]);

impl Storage for moteseal_column_keys {
    type Value = Keys;
    type Element = ColumnKey;
    const MARK: u32 = 0x6d73_6501;
    const FIXED: usize = 48;
    const MOST: usize = moteseal_core::confidential::MAX_ENCRYPTED;
}

/// The fixed part of the memory of keys. An array with the keys of each column follows it.
pub struct Keys {
    /// The digest of the schema.
    pub(crate) schema: Digest,
    /// The seal whose cipher was begun last with these keys.
    pub(crate) newest: Option<SealIndex>,
}

impl Keys {
    const fn new(schema: Digest) -> Self {
        Self { schema, newest: None }
    }
}

/// The encoded keys of one column, padded to a multiple of 8 bytes.
pub struct ColumnKey([u8; PATH + 4]);

impl ColumnKey {
    fn of(path: &Path) -> Self {
        let mut key = Self([0; PATH + 4]);
        key.0[..PATH].copy_from_slice(&*path.encode());
        key
    }

    pub(crate) fn path(&self) -> Result<Path, Error> {
        let encoded = self.0.first_chunk().ok_or(Error::MalformedKey)?;
        Ok(Path::decode(encoded)?)
    }

    /// Moves to an epoch, and erases the keys of the epochs before it.
    pub(crate) fn advance(&mut self, epoch: EpochNumber) -> Result<Path, Error> {
        let mut path = self.path()?;
        path.advance(epoch)?;
        self.0[..PATH].copy_from_slice(&*path.encode());
        Ok(path)
    }
}

impl From<KeyAccessError> for Error {
    fn from(error: KeyAccessError) -> Self {
        Self::named(error.name())
    }
}

impl From<KeyEncodingError> for Error {
    fn from(error: KeyEncodingError) -> Self {
        Self::named(error.name())
    }
}

/// Checks that a schema has encrypted columns, all of suites that are built in, and at most as many
/// as there is room for.
fn check(schema: &Schema<'_>, capacity: usize) -> Result<(), Error> {
    match schema.encrypted_count() {
        0 => return Err(Error::KeyCount),
        count if count > capacity => return Err(Error::BufferTooSmall),
        _ => {}
    }
    let mut suites = schema.encrypted_columns().filter_map(|(field, _)| field.suite);
    if suites.all(|suite| suite.is_supported()) { Ok(()) } else { Err(Error::UnsupportedSuite) }
}

fn check_of(record: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&Digest::of(&[b"moteseal/c/1/columns", record]).0[..CHECK]);
    check
}

/// Begins the keys of a schema's encrypted columns from the stream secret of the device.
///
/// The secret opens all epochs of the device. Call this function once, where the device is
/// provisioned, store the record (`moteseal_column_keys_record`), and erase the secret from the
/// device. Without the secret, the device cannot open the epochs before `epoch`, and neither can a
/// thief of the device.
///
/// @param keys, size  Memory for the keys, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_COLUMN_KEYS_SIZE(columns)` or more.
/// @param schema, schema_length  The device's encoded schema.
/// @param secret  The secret, 32 bytes: `NAME.stream.key` contains it as hexadecimal digits, then
///        the base epoch and the device's id.
/// @param base_epoch  The base epoch of the secret.
/// @param epoch  The first epoch that will be sealed. An epoch before the base epoch counts as the
///        base epoch.
/// @return `KeyCount` (the schema has no encrypted columns), `BufferTooSmall` (it has more than
///         `size` has room for), `UnsupportedSuite` (a column needs AES-128, and the feature
///         `aes128` is not built in), `EpochOutOfKeyRange`, an error of schemas or of decoding. After
///         an error, the keys are not begun.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_column_keys_begin(
    keys: *mut moteseal_column_keys,
    size: usize,
    schema: *const u8,
    schema_length: usize,
    secret: *const u8,
    base_epoch: u64,
    epoch: u64,
) -> moteseal_error {
    call(|| {
        let capacity = capacity(keys, size)?;
        // SAFETY: the caller keeps the header's contract.
        let (schema, secret) =
            unsafe { (Schema::decode(bytes(schema, schema_length)?)?, fixed(secret)?) };
        check(&schema, capacity)?;
        let secret = StreamSecret::new(*secret, EpochNumber(base_epoch));
        let epoch = EpochNumber(epoch.max(base_epoch));
        let paths = schema
            .encrypted_columns()
            .map(|(_, column)| Ok(ColumnKey::of(&Path::new(&secret.column(column), epoch)?)));
        // SAFETY: as above; `check` compared the number of columns with the memory.
        unsafe {
            let count = fill_array(keys, size, paths)?.len();
            begin_array(keys, count, Keys::new(schema.digest()));
        }
        Ok(())
    })
}

/// Begins the keys from a stored record.
///
/// @param keys, size  As in `moteseal_column_keys_begin`.
/// @param schema, schema_length  The device's encoded schema.
/// @param record, length  The newest stored record.
/// @return `Damaged` if the record was erased, only partly written, or altered;
///         `UnsupportedVersion`; `WrongColumn` if the record is for other columns than those of the
///         schema; `MalformedKey`; `KeyCount`, `BufferTooSmall`, `UnsupportedSuite`, an error of
///         schemas or of decoding. After an error, the keys are not begun.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_column_keys_restore(
    keys: *mut moteseal_column_keys,
    size: usize,
    schema: *const u8,
    schema_length: usize,
    record: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        let capacity = capacity(keys, size)?;
        // SAFETY: the caller keeps the header's contract.
        let (schema, record) =
            unsafe { (Schema::decode(bytes(schema, schema_length)?)?, bytes(record, length)?) };
        check(&schema, capacity)?;
        let (content, stated) = record.split_last_chunk::<CHECK>().ok_or(Error::Damaged)?;
        if *stated != check_of(content) {
            return Err(Error::Damaged);
        }
        let (head, content) = content.split_first_chunk::<4>().ok_or(Error::Damaged)?;
        if head[..3] != VERSION {
            return Err(Error::UnsupportedVersion);
        }
        let (stored, rest) = content.as_chunks::<PATH>();
        let count = usize::from(head[3]);
        if !rest.is_empty() || stored.len() != count || count != schema.encrypted_count() {
            return Err(Error::WrongColumn);
        }
        let paths = stored.iter().zip(schema.encrypted_columns()).map(|(stored, (_, column))| {
            let path = Path::decode(stored)?;
            if path.column() == column { Ok(ColumnKey::of(&path)) } else { Err(Error::WrongColumn) }
        });
        // SAFETY: as above; `check` compared the number of columns with the memory.
        unsafe {
            let count = fill_array(keys, size, paths)?.len();
            begin_array(keys, count, Keys::new(schema.digest()));
        }
        Ok(())
    })
}

/// Writes the record of the keys. It is secret.
///
/// Store the record when the keys were begun, and again after each `moteseal_cipher_begin` for a
/// later epoch. Then erase the record before it: a party that reads it can decrypt the epochs that have
/// passed.
///
/// @param out, capacity  `MOTESEAL_COLUMN_KEYS_OVERHEAD + columns * MOTESEAL_COLUMN_KEY` bytes.
/// @param length  Receives the number of bytes written.
/// @return `NotBegun`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_column_keys_record(
    keys: *const moteseal_column_keys,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        // SAFETY: the caller keeps the header's contract.
        let ((_, columns), out) = unsafe { (array_ref(keys)?, buffer(out, capacity)?) };
        let total = MOTESEAL_COLUMN_KEYS_OVERHEAD + columns.len() * PATH;
        let out = out.get_mut(..total).ok_or(Error::BufferTooSmall)?;
        let (content, check) = out.split_last_chunk_mut::<CHECK>().ok_or(Error::BufferTooSmall)?;
        content[..3].copy_from_slice(&VERSION);
        content[3] = u8::try_from(columns.len()).map_err(|_| Error::Unexpected)?;
        for (place, column) in content[4..].as_chunks_mut::<PATH>().0.iter_mut().zip(columns) {
            place.copy_from_slice(&column.0[..PATH]);
        }
        *check = check_of(content);
        // SAFETY: as above.
        unsafe { put(length, total) }
    })
}

/// Returns the first epoch whose keys the state has. The keys of earlier epochs are erased.
///
/// @return `NotBegun`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_column_keys_epoch(
    keys: *const moteseal_column_keys,
    epoch: *mut u64,
) -> moteseal_error {
    call(|| {
        checked(epoch)?;
        // SAFETY: the caller keeps the header's contract.
        let (_, columns) = unsafe { array_ref(keys)? };
        let path = columns.first().ok_or(Error::KeyCount)?.path()?;
        // SAFETY: as above.
        unsafe { put(epoch, path.epoch().0) }
    })
}

/// Overwrites keys with zeros. Null is allowed.
///
/// @param size  The size of the keys' memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_column_keys_wipe(keys: *mut moteseal_column_keys, size: usize) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe_bytes(keys.cast(), size) };
}
