//! The properties of a device that all its seals have in common, and the schema of its events.

use core::ffi::c_char;

use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, MAX_LEVELS};
use moteseal_core::roster::{Period, Roster};
use moteseal_core::schema::{Field, MAX_FIELDS, Schema};
use moteseal_core::signature::{Algorithm, PublicKey};

use crate::boundary::{buffer, bytes, call, checked, given, given_mut, put};
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// Ed25519 (RFC 8032): public keys and secrets have 32 bytes, signatures 64 bytes.
pub const MOTESEAL_ED25519: u8 = 1;
/// ECDSA on P-256 with SHA-256, with `s` in the lower half. Public keys have 65 bytes
/// (uncompressed, first byte 4), secret scalars 32 bytes, signatures 64 bytes (`r`, then `s`). All
/// numbers are big-endian.
pub const MOTESEAL_ESP256: u8 = 2;
/// The length of a signature of either algorithm, in bytes.
pub const MOTESEAL_SIGNATURE: usize = 64;
/// The maximum length of a raw public key of either algorithm, in bytes.
pub const MOTESEAL_MAX_PUBLIC_KEY: usize = 65;
/// Working memory for opening a roster, in bytes, in addition to the roster's own length.
pub const MOTESEAL_ROSTER_SCRATCH: usize = 64;
/// The maximum length of an encoded schema, in bytes.
pub const MOTESEAL_MAX_SCHEMA: usize = 6152;

const _: () = assert!(MOTESEAL_ROSTER_SCRATCH == moteseal_core::roster::SCRATCH_OVERHEAD);
const _: () = assert!(MOTESEAL_MAX_PUBLIC_KEY == moteseal_core::signature::MAX_PUBLIC_KEY);
const _: () = assert!(MOTESEAL_MAX_SCHEMA == moteseal_core::schema::MAX_SCHEMA);

/// The properties that all seals of a device have in common. This is plain data: fill it in with
/// `moteseal_device_from_roster` and `moteseal_device_set_schema`, either on the mote or when you
/// build its firmware; or set each field from the operator's data.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_device {
    /// The group's id.
    pub group: [u8; 8],
    /// The device's id.
    pub device: [u8; 8],
    /// The digest of the device's roster.
    pub roster: [u8; 32],
    /// The digest of the device's first certificate. The device's first seal states it as the
    /// digest of its predecessor.
    pub certificate: [u8; 32],
    /// The digest of the schema.
    pub schema: [u8; 32],
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The start of the first epoch that may be sealed, in milliseconds since
    /// 1970-01-01T00:00:00Z. Epoch `e` starts `(e - first_epoch) * epoch_ms` after it.
    pub start_ms: u64,
    /// The first epoch that may be sealed: the first one of the newest period of the roster.
    pub first_epoch: u64,
    /// The last epoch that may be sealed; `UINT64_MAX` if there is no last one.
    pub last_epoch: u64,
    /// The roster's version.
    pub roster_version: u32,
    /// The length of an event in bytes; 0 if events may have any length up to 65,535 bytes.
    pub record_size: u16,
    /// The group's number of levels, 1 to 32.
    pub levels: u8,
    /// The algorithm of the device's signatures: `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
    pub algorithm: u8,
    /// The number of encrypted columns of the schema. If it is not 0, a seal and an urgent event need
    /// a `moteseal_cipher`.
    pub encrypted: u8,
    /// The column groups of the schema: bit `g` is group `g`. If it is not 0, a seal needs a
    /// `moteseal_grouped_star`.
    pub column_groups: u8,
    /// Zeros.
    pub reserved: [u8; 6],
}

/// Converts an algorithm's number in the header (`MOTESEAL_ED25519` or `MOTESEAL_ESP256`).
pub(crate) const fn algorithm(number: u8) -> Result<Algorithm, Error> {
    match number {
        MOTESEAL_ED25519 => Ok(Algorithm::Ed25519),
        MOTESEAL_ESP256 => Ok(Algorithm::Esp256),
        _ => Err(Error::UnknownAlgorithm),
    }
}

/// Converts an algorithm to its number in the header.
pub(crate) const fn number_of(algorithm: Algorithm) -> Result<u8, Error> {
    match algorithm {
        Algorithm::Ed25519 => Ok(MOTESEAL_ED25519),
        Algorithm::Esp256 => Ok(MOTESEAL_ESP256),
        _ => Err(Error::UnknownAlgorithm),
    }
}

impl moteseal_device {
    pub(crate) fn framing(&self) -> Framing {
        Framing::fixed(self.record_size.into()).unwrap_or(Framing::Prefixed)
    }

    /// Checks the levels and the algorithm, which the caller may have set, and returns the
    /// algorithm.
    pub(crate) fn check(&self) -> Result<Algorithm, Error> {
        if !(1..=MAX_LEVELS).contains(&usize::from(self.levels)) {
            return Err(Error::LevelsOutOfRange);
        }
        algorithm(self.algorithm)
    }

    pub(crate) const fn ids(&self) -> (GroupId, DeviceId) {
        (GroupId(self.group), DeviceId(self.device))
    }
}

/// Reads a roster file (`moteseal roster new`), checks every signature in it, and returns the
/// properties of the device `name`.
///
/// A roster has no schema: `record_size` is 0 and `schema` is the digest of the schema of opaque
/// records until you call `moteseal_device_set_schema`.
///
/// @param roster, roster_length  The file's bytes.
/// @param operator_algorithm, operator_key, operator_key_length  The operator's raw public key,
///        which the caller must know and trust.
/// @param name  The device's name, UTF-8, terminated by a zero byte.
/// @param scratch, scratch_capacity  Working memory: `roster_length + MOTESEAL_ROSTER_SCRATCH`
///        bytes suffice.
/// @param device  Written on success only.
/// @return `UnknownDevice` if the roster has no device of that name; `BufferTooSmall` if the
///         scratch memory is too small; `InvalidName`; or an error of rosters, certificates, keys
///         or signatures.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_device_from_roster(
    roster: *const u8,
    roster_length: usize,
    operator_algorithm: u8,
    operator_key: *const u8,
    operator_key_length: usize,
    name: *const c_char,
    scratch: *mut u8,
    scratch_capacity: usize,
    device: *mut moteseal_device,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (file, key, name, scratch) = unsafe {
            (
                bytes(roster, roster_length)?,
                bytes(operator_key, operator_key_length)?,
                text(name)?,
                buffer(scratch, scratch_capacity)?,
            )
        };
        checked(device)?;
        let operator = PublicKey::from_bytes(algorithm(operator_algorithm)?, key)?;
        let roster = Roster::open(file, &operator, scratch)?;
        let found = roster.device_named(name).ok_or(Error::UnknownDevice)?;
        let first = found.first_certificate().ok_or(Error::CertificateMissing)?;
        let current = found.certificates().last().unwrap_or(first);
        let period = roster.newest_period();
        let value = moteseal_device {
            group: roster.group().0,
            device: found.id.0,
            roster: roster.digest().0,
            certificate: first.digest().0,
            schema: Schema::OPAQUE.digest().0,
            epoch_ms: period.epoch_ms,
            start_ms: period.start_ms.ok_or(Error::EpochStartMismatch)?,
            first_epoch: period.first_epoch.0,
            last_epoch: roster.last_epoch().map_or(u64::MAX, |EpochNumber(last)| last),
            roster_version: roster.version(),
            record_size: 0,
            levels: period.levels,
            algorithm: number_of(current.algorithm)?,
            encrypted: 0,
            column_groups: 0,
            reserved: [0; 6],
        };
        // SAFETY: the caller keeps the header's contract.
        unsafe { put(device, value) }
    })
}

/// Reads text that ends with a zero byte. The limit is 4,096 bytes, which is more than any valid
/// text has.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::NullPointer);
    }
    let mut length = 0;
    // SAFETY: the caller's text ends with a zero byte, and the loop stops at the first one.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
        if length > 4096 {
            return Err(Error::LengthOutOfRange);
        }
    }
    // SAFETY: the loop above has read all these bytes.
    core::str::from_utf8(unsafe { bytes(text.cast(), length)? }).map_err(|_| Error::InvalidName)
}

/// Encodes a schema: the fields of a record, in the notation of `moteseal seal --column`.
///
/// Fields are packed in the given order, big-endian. Types: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64
/// time (milliseconds since the start of the epoch, in 4 bytes), bool, enum(off,on) with 1 to 254
/// labels, timestamp (milliseconds since 1970, in 8 bytes), point (latitude and longitude in 10^-7
/// degrees, in 4 bytes each), text32 with the length of the longest text. Texts come after all other
/// cells of a record, each with its length in one byte. `?` marks a field that may be null, `~` one
/// whose values another device reported, `!` one that is encrypted with ChaCha20 and `!aes` one with
/// AES-128 (`moteseal_cipher`), `#` an id other than the position. spec/objects.md, section
/// 5, defines the cells and their nulls.
///
/// @param fields, count  An array of texts `NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!][@GROUP][#ID]`, for
///        example "temperature:Cel:i16/100", each terminated by a zero byte; at most 64. With no fields,
///        the result is the schema of opaque records.
/// @param out, capacity  Receives the schema; `MOTESEAL_MAX_SCHEMA` bytes always suffice; 16 bytes
///        plus the length of all field texts nearly always suffice.
/// @param length  Receives the number of bytes written.
/// @return `MalformedField` and the other errors of schemas; `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_schema_encode(
    fields: *const *const c_char,
    count: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        if count > MAX_FIELDS {
            return Err(Error::TooManyFields);
        }
        let mut parsed = [Field::new("", "", moteseal_core::schema::FieldType::U8); MAX_FIELDS];
        for (at, field) in parsed.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's array has `count` texts.
            *field = Field::parse(unsafe {
                given(fields)?;
                text(*given(fields.add(at))?)?
            })?;
        }
        // SAFETY: the caller keeps the header's contract.
        let out = unsafe { buffer(out, capacity)? };
        let schema = Schema::encode(parsed.get(..count).unwrap_or_default(), out)?;
        // SAFETY: as above.
        unsafe { put(length, schema.as_bytes().len()) }
    })
}

/// Checks an encoded schema and sets a device's schema digest, record size, number of encrypted
/// columns and column groups.
///
/// @param device  The device, already filled in; only `schema`, `record_size`, `encrypted` and
///        `column_groups` change. A schema with texts sets `record_size` to 0: records then have
///        different lengths, as without fields.
/// @param schema, schema_length  The encoded schema, from `moteseal_schema_encode` or another tool.
/// @return An error of schemas or of decoding; `WrongLength` if records are longer than 65,535
///         bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_device_set_schema(
    device: *mut moteseal_device,
    schema: *const u8,
    schema_length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract; every bit pattern is a valid
        // moteseal_device.
        let (device, schema) =
            unsafe { (given_mut(device)?, Schema::decode(bytes(schema, schema_length)?)?) };
        device.record_size =
            u16::try_from(schema.record_size().unwrap_or(0)).map_err(|_| Error::WrongLength)?;
        device.encrypted =
            u8::try_from(schema.encrypted_count()).map_err(|_| Error::TooManyEncryptedFields)?;
        device.column_groups = schema.groups().bits();
        device.schema = schema.digest().0;
        Ok(())
    })
}

/// Checks a record against an encoded schema. Call this before you seal a record with columns of
/// the types bool, enum, point or text: verifiers reject a seal with a record that does not pass.
///
/// @param schema, schema_length  The encoded schema.
/// @param record, record_length  The record.
/// @return An error of schemas or of decoding; `RecordLength`, `RecordValue`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_record_check(
    schema: *const u8,
    schema_length: usize,
    record: *const u8,
    record_length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (schema, record) =
            unsafe { (bytes(schema, schema_length)?, bytes(record, record_length)?) };
        Ok(Schema::decode(schema)?.check_plain_record(record)?)
    })
}

/// Returns the epoch of a time in milliseconds since 1970.
///
/// @return `EpochLengthOutOfRange` if `epoch_ms` is 0, `EpochOutOfRange` if the time is before
/// `start_ms`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_device_epoch(
    device: *const moteseal_device,
    unix_ms: u64,
    epoch: *mut u64,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let device = unsafe { given(device)? };
        let period = Period {
            version: device.roster_version,
            first_epoch: EpochNumber(device.first_epoch),
            start_ms: Some(device.start_ms),
            epoch_ms: device.epoch_ms,
            levels: device.levels,
            budget: None,
            coordinator: None,
        };
        if device.epoch_ms == 0 {
            return Err(Error::EpochLengthOutOfRange);
        }
        let EpochNumber(value) = period.epoch_of(unix_ms).ok_or(Error::EpochOutOfRange)?;
        // SAFETY: as above.
        unsafe { put(epoch, value) }
    })
}
