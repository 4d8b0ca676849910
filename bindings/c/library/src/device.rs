//! Who seals: what all seals of one device have in common.

use core::ffi::c_char;

use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, MAX_LEVELS};
use moteseal_core::roster::Roster;
use moteseal_core::schema::{Field, MAX_FIELDS, Schema};
use moteseal_core::signature::{Algorithm, PublicKey};

use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::memory::{buffer, bytes, call, checked, given, given_mut, put};

/// Ed25519 (RFC 8032): keys and secrets of 32 bytes, signatures of 64.
pub const MOTESEAL_ED25519: u8 = 1;
/// ECDSA on P-256 with SHA-256, `s` in the lower half: public keys of 65 bytes (uncompressed, first byte 4), secret scalars of 32 bytes,
/// signatures of 64 bytes (`r`, then `s`); all big-endian.
pub const MOTESEAL_ESP256: u8 = 2;
/// Bytes of a signature of either algorithm.
pub const MOTESEAL_SIGNATURE: usize = 64;
/// Bytes that suffice for a raw public key of either algorithm.
pub const MOTESEAL_MAX_PUBLIC_KEY: usize = 65;
/// Scratch that opening a roster needs beyond the roster's own length, in bytes.
pub const MOTESEAL_ROSTER_SCRATCH: usize = 64;
/// Bytes that suffice for any encoded schema.
pub const MOTESEAL_MAX_SCHEMA: usize = 6152;

const _: () = assert!(MOTESEAL_ROSTER_SCRATCH == moteseal_core::roster::SCRATCH_OVERHEAD);
const _: () = assert!(MOTESEAL_MAX_PUBLIC_KEY == moteseal_core::signature::MAX_PUBLIC_KEY);
const _: () = assert!(MOTESEAL_MAX_SCHEMA == moteseal_core::schema::MAX_SCHEMA);

/// What all seals of a device have in common. Plain data: fill it by `moteseal_device_from_roster` and `moteseal_device_set_schema`, on the
/// mote itself or when its firmware is made, or field by field from what the operator says.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_device {
    /// The group's id.
    pub group: [u8; 8],
    /// The device's id.
    pub device: [u8; 8],
    /// The digest of the roster that the device goes by.
    pub roster: [u8; 32],
    /// The digest of the device's first certificate: what its first seal names as its predecessor.
    pub certificate: [u8; 32],
    /// The digest of the schema.
    pub schema: [u8; 32],
    /// The length of an epoch, in milliseconds: epoch `e` starts `e * epoch_ms` after 1970-01-01T00:00:00Z.
    pub epoch_ms: u64,
    /// The first epoch that may be sealed.
    pub first_epoch: u64,
    /// The last epoch that may be sealed; `UINT64_MAX` for no end.
    pub last_epoch: u64,
    /// The roster's version.
    pub roster_version: u32,
    /// Bytes of an event; 0 if events are of any length up to 65,535.
    pub record_size: u16,
    /// The group's number of levels, 1 to 32.
    pub levels: u8,
    /// What its seals are signed with: `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
    pub algorithm: u8,
}

/// The algorithm of a number in the header.
pub(crate) const fn algorithm(number: u8) -> Result<Algorithm, Error> {
    match number {
        MOTESEAL_ED25519 => Ok(Algorithm::Ed25519),
        MOTESEAL_ESP256 => Ok(Algorithm::Esp256),
        _ => Err(Error::UnknownAlgorithm),
    }
}

/// The number in the header of an algorithm.
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

    /// Its levels and algorithm, if they can be: the fields are the caller's.
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

/// Reads a roster file (`moteseal roster new`), checks every signature in it, and says what the device `name` needs of it.
///
/// The schema is not the roster's business: `record_size` is 0 and `schema` that of opaque records until `moteseal_device_set_schema`.
///
/// @param roster, roster_length  The file's bytes.
/// @param operator_algorithm, operator_key, operator_key_length  The operator's raw public key: the one thing to know beforehand.
/// @param name  The device's name, UTF-8, ended by a zero byte.
/// @param scratch, scratch_capacity  Working memory: `roster_length + MOTESEAL_ROSTER_SCRATCH` bytes suffice.
/// @param device  Written when all is well, else left alone.
/// @return `UnknownDevice` if there is no such device; `BufferTooSmall` for the scratch; `InvalidName` for a name that none can have; the
///         names of rosters, certificates, keys and signatures for what is wrong with the file.
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
        // SAFETY: the caller keeps what the header asks.
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
        let value = moteseal_device {
            group: roster.group().0,
            device: found.id.0,
            roster: roster.digest().0,
            certificate: first.digest().0,
            schema: Schema::OPAQUE.digest().0,
            epoch_ms: roster.epoch_ms(),
            first_epoch: roster.first_epoch().0,
            last_epoch: roster.last_epoch().map_or(u64::MAX, |EpochNumber(last)| last),
            roster_version: roster.version(),
            record_size: 0,
            levels: roster.levels(),
            algorithm: number_of(current.algorithm)?,
        };
        // SAFETY: the caller keeps what the header asks.
        unsafe { put(device, value) }
    })
}

/// Text that ends with a zero byte, of at most 4,096 bytes: longer than any that has a meaning here.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::NullPointer);
    }
    let mut length = 0;
    // SAFETY: the caller's text has a zero byte, and none before it is passed over.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
        if length > 4096 {
            return Err(Error::LengthOutOfRange);
        }
    }
    // SAFETY: so many bytes were read right now.
    core::str::from_utf8(unsafe { bytes(text.cast(), length)? }).map_err(|_| Error::InvalidName)
}

/// Encodes a schema: what stands in a record, as `moteseal seal --column` takes it.
///
/// Fields are packed in the order given, big-endian. Types: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 time (milliseconds since 1970 in an i64).
///
/// @param fields, count  Texts `NAME:UNIT:TYPE[/DIVISOR][+OFFSET]`, such as "temperature:Cel:i16/100", each ended by a zero byte; at most 64.
///        None give the schema of opaque records.
/// @param out, capacity  Where the schema goes; `MOTESEAL_MAX_SCHEMA` bytes always suffice, 16 bytes and each field's text nearly always.
/// @param length  How many bytes were written.
/// @return `MalformedField` and the other names of schemas; `BufferTooSmall`.
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
        // SAFETY: the caller keeps what the header asks.
        let out = unsafe { buffer(out, capacity)? };
        let schema = Schema::encode(parsed.get(..count).unwrap_or_default(), out)?;
        // SAFETY: as above.
        unsafe { put(length, schema.as_bytes().len()) }
    })
}

/// Checks an encoded schema and notes it in a device: its digest, and the size of a record.
///
/// @param device  Filled before; only `schema` and `record_size` change.
/// @param schema, schema_length  The encoded schema, as `moteseal_schema_encode` or any other tool wrote it.
/// @return The names of schemas and of bytes; `WrongLength` for records longer than 65,535 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_device_set_schema(
    device: *mut moteseal_device,
    schema: *const u8,
    schema_length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps what the header asks; every bit pattern of a moteseal_device is one.
        let (device, schema) =
            unsafe { (given_mut(device)?, Schema::decode(bytes(schema, schema_length)?)?) };
        device.record_size =
            u16::try_from(schema.record_size().unwrap_or(0)).map_err(|_| Error::WrongLength)?;
        device.schema = schema.digest().0;
        Ok(())
    })
}

/// The epoch of a time, in milliseconds since 1970: `unix_ms / device->epoch_ms`.
///
/// @return `EpochLengthOutOfRange` if `epoch_ms` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_device_epoch(
    device: *const moteseal_device,
    unix_ms: u64,
    epoch: *mut u64,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps what the header asks.
        let device = unsafe { given(device)? };
        let value = unix_ms.checked_div(device.epoch_ms).ok_or(Error::EpochLengthOutOfRange)?;
        // SAFETY: as above.
        unsafe { put(epoch, value) }
    })
}
