//! The source of exact private sums (docs/design.md, section *sums*): it encrypts one value for
//! each slot and epoch, and never encrypts two values with the same key.
//!
//! As in `moteseal-sum`, a source needs a permit to encrypt. In addition, the application must
//! first confirm to this library that the guard's record is durable. Query parsing, links and the
//! querier are not part of this library.

use ::moteseal_sum::guard::{EpochGuard, GUARD_LENGTH, GuardDecodeError, GuardError, Permit};
use ::moteseal_sum::key_file::{KeyFileError, SourceKeys};
use ::moteseal_sum::query::QueryId;
use ::moteseal_sum::sies::{EncryptError, PSR, Psr, PsrError, Slot, SourceKey, SourceSecret};
use moteseal_core::Digest;

use crate::boundary::{Opaque, begin, begun, bytes, call, checked, fixed, given, put, state, wipe};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The length of a guard's record in bytes, a multiple of 8. The mote stores the record in flash.
pub const MOTESEAL_GUARD_RECORD: usize = 280;
/// The length of a partial state record in bytes. The record is an encrypted value, or the sum of
/// several encrypted values, as a big-endian number.
pub const MOTESEAL_PSR: usize = 32;

const _: () = assert!(MOTESEAL_PSR == PSR && MOTESEAL_GUARD_RECORD >= GUARD_LENGTH + 8);

/// The length of the part of a record before its checksum, in bytes.
const CHECKED: usize = MOTESEAL_GUARD_RECORD - 8;

/// The long-term secrets of a source. Declare it as `moteseal_sum_source source = {0};` and end it
/// with `moteseal_sum_source_wipe`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_sum_source {
    opaque: [u64; 9],
}

impl Opaque for moteseal_sum_source {
    type Value = SourceSecret;
    const MARK: u32 = 0x6d73_7001;
}

/// A source's keys for one query. Declare it as `moteseal_sum_key key = {0};` and end it with
/// `moteseal_sum_key_wipe`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_sum_key {
    opaque: [u64; 11],
}

impl Opaque for moteseal_sum_key {
    type Value = SourceKey;
    const MARK: u32 = 0x6d73_7002;
}

/// The guard that lets a source answer each epoch of a query only once. Two values encrypted for
/// the same query, slot and epoch reveal a secret that all sources of a key group share. Declare it
/// as `moteseal_guard guard = {0};`.
///
/// Begin it with `moteseal_guard_start` if the source's keys are new, with `moteseal_guard_restore`
/// after each reboot, and with `moteseal_guard_start_at` if the guard's record was lost.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_guard {
    opaque: [u64; 42],
}

impl Opaque for moteseal_guard {
    type Value = EpochGuard;
    const MARK: u32 = 0x6d73_6701;
}

/// The permission to encrypt the values of one query and epoch: one value for each slot, in
/// ascending order of slot numbers. Declare it as `moteseal_permit permit = {0};` and never copy
/// it.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_permit {
    opaque: [u64; 6],
}

impl Opaque for moteseal_permit {
    type Value = Permitted;
    const MARK: u32 = 0x6d73_6702;
}

/// The value of a `moteseal_permit`.
pub struct Permitted {
    permit: Permit,
    is_durable: bool,
}

macro_rules! by_variant {
    ($error:ident { $($variant:ident),+ }) => {
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                match error {
                    $($error::$variant => Self::$variant,)+
                    _ => Self::Unexpected,
                }
            }
        }
    };
}
by_variant!(GuardError { EpochAnswered, TooOld, DurationMismatch, EpochOutOfRange });
by_variant!(EncryptError { WrongQuery, SlotUsed, ValueTooLarge });

impl From<GuardDecodeError> for Error {
    fn from(error: GuardDecodeError) -> Self {
        match error {
            GuardDecodeError::UnsupportedVersion => Self::UnsupportedVersion,
            _ => Self::NonCanonical,
        }
    }
}

impl From<KeyFileError> for Error {
    fn from(error: KeyFileError) -> Self {
        Self::named(error.name())
    }
}

impl From<PsrError> for Error {
    fn from(_: PsrError) -> Self {
        Self::NonCanonical
    }
}

fn record(guard: &EpochGuard) -> [u8; MOTESEAL_GUARD_RECORD] {
    let mut out = [0; MOTESEAL_GUARD_RECORD];
    out[..GUARD_LENGTH].copy_from_slice(&guard.encode());
    let check = check_of(&out);
    out[CHECKED..].copy_from_slice(&check);
    out
}

/// Returns the checksum of a record. It detects erased flash, interrupted writes and worn-out
/// flash; it does not protect against an attacker.
fn check_of(record: &[u8; MOTESEAL_GUARD_RECORD]) -> [u8; 8] {
    let mut check = [0; 8];
    check.copy_from_slice(&Digest::of(&[b"moteseal/c/1/guard", &record[..CHECKED]]).0[..8]);
    check
}

/// Begins a source from its key file (`NAME.sum.key`, which `moteseal sum setup` writes).
///
/// @param device  The device. The key file must be for this device.
/// @param pem, length  The file's bytes. Wipe your copy afterwards.
/// @return `MalformedPem`, `WrongPemLabel`, `WrongGroup`, `UnknownDevice` (another device's file),
///         `PolicyMissing` (the set-up made masks, which this library does not support), or
///         an error of decoding or of keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_source_from_key_file(
    source: *mut moteseal_sum_source,
    device: *const moteseal_device,
    pem: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        checked(source)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, pem) = unsafe { (given(device)?, bytes(pem, length)?) };
        let keys = SourceKeys::decode(pem)?;
        let (group, id) = device.ids();
        if keys.circle.group != group {
            return Err(Error::WrongGroup);
        }
        if keys.device != id {
            return Err(Error::UnknownDevice);
        }
        // Without a mask, the querier could open the value of this source alone.
        if keys.needs_policy {
            return Err(Error::PolicyMissing);
        }
        // SAFETY: as above.
        unsafe { begin(source, keys.secret) }
    })
}

/// Begins a source from its 64 secret bytes: the device's secret (32 bytes), then the secret of the
/// device's key group (32 bytes). Wipe your own copy.
///
/// @return `KeyLength`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_source_from_bytes(
    source: *mut moteseal_sum_source,
    secret: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let secret: &[u8; 64] =
            unsafe { bytes(secret, length)? }.try_into().map_err(|_| Error::KeyLength)?;
        // SAFETY: as above.
        unsafe { begin(source, SourceSecret::from_bytes(secret)) }
    })
}

/// Overwrites a source's secrets with zeros. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_source_wipe(source: *mut moteseal_sum_source) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(source) };
}

/// Derives the source's keys for a query. Call it once for each query.
///
/// @param query  The query's id: 16 bytes.
/// @return `NotBegun`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_key_begin(
    key: *mut moteseal_sum_key,
    source: *const moteseal_sum_source,
    query: *const u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        unsafe {
            let query: &[u8; 16] = fixed(query)?;
            begin(key, begun(source)?.for_query(QueryId(*query)))
        }
    })
}

/// Overwrites a query's keys with zeros. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_key_wipe(key: *mut moteseal_sum_key) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(key) };
}

/// Begins the guard of a source that has never answered a query, because its keys are new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_guard_start(guard: *mut moteseal_guard) -> moteseal_error {
    // SAFETY: the caller keeps the header's contract.
    call(|| unsafe { begin(guard, EpochGuard::default()) })
}

/// Begins the guard of a source that may have answered queries but has lost its guard's record. The
/// guard permits no epoch that starts before `floor_ms`, in milliseconds since 1970. Use the
/// present time if no attacker can set the clock back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_guard_start_at(
    guard: *mut moteseal_guard,
    floor_ms: u64,
) -> moteseal_error {
    // SAFETY: the caller keeps the header's contract.
    call(|| unsafe { begin(guard, EpochGuard::starting_at(floor_ms)) })
}

/// Begins a guard from its record.
///
/// @param bytes_of_record, length  The newest stored record, `MOTESEAL_GUARD_RECORD` bytes. With an
///        older record, the guard would permit an epoch twice.
/// @return `Damaged` if the record was erased, only partly written, or altered; `Truncated` or
///         `TrailingBytes` if it has another length; `UnsupportedVersion`, `NonCanonical`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_guard_restore(
    guard: *mut moteseal_guard,
    bytes_of_record: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        match length {
            0..MOTESEAL_GUARD_RECORD => return Err(Error::Truncated),
            MOTESEAL_GUARD_RECORD => {}
            _ => return Err(Error::TrailingBytes),
        }
        // SAFETY: the caller keeps the header's contract.
        let kept: &[u8; MOTESEAL_GUARD_RECORD] = unsafe { fixed(bytes_of_record)? };
        if kept[CHECKED..] != check_of(kept) {
            return Err(Error::Damaged);
        }
        let mut encoded = [0; GUARD_LENGTH];
        encoded.copy_from_slice(&kept[..GUARD_LENGTH]);
        let value = EpochGuard::decode(&encoded)?;
        if record(&value) != *kept {
            return Err(Error::NonCanonical);
        }
        // SAFETY: as above.
        unsafe { begin(guard, value) }
    })
}

/// Permits one epoch of a query. The guard never again permits this epoch or an earlier one.
///
/// Make the guard's record durable, read it back and pass it to `moteseal_permit_persisted`. Until
/// then, `moteseal_sum_encrypt` fails.
///
/// @param query  16 bytes.
/// @param duration_ms  The length of the query's epochs in milliseconds: epoch `e` starts at `e *
///        duration_ms`.
/// @param record_out  `MOTESEAL_GUARD_RECORD` bytes to make durable.
/// @return `EpochAnswered`, `TooOld`, `DurationMismatch`, `EpochOutOfRange`. After an error,
///         nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_guard_advance(
    guard: *mut moteseal_guard,
    query: *const u8,
    duration_ms: u64,
    epoch: u64,
    permit: *mut moteseal_permit,
    record_out: *mut u8,
) -> moteseal_error {
    call(|| {
        checked(permit)?;
        checked(record_out)?;
        // SAFETY: the caller keeps the header's contract.
        let (guard, query) = unsafe { (state(guard)?, fixed::<16>(query)?) };
        let permitted = guard.advance(QueryId(*query), duration_ms, epoch)?;
        // SAFETY: as above; bytes need no alignment.
        unsafe {
            put::<[u8; MOTESEAL_GUARD_RECORD]>(record_out.cast(), record(guard))?;
            begin(permit, Permitted { permit: permitted, is_durable: false })
        }
    })
}

/// Confirms that the guard's record, which contains the permitted epoch, is durable.
///
/// @param guard  The guard that gave the permit. It must not have changed since.
/// @param bytes_of_record, length  The record, as read back from the memory that stores it.
/// @return `Damaged` if the bytes are not the guard's current record: write the record again, at
///         another address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_permit_persisted(
    permit: *mut moteseal_permit,
    guard: *const moteseal_guard,
    bytes_of_record: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (permitted, guard, kept) =
            unsafe { (state(permit)?, begun(guard)?, bytes(bytes_of_record, length)?) };
        // If the guard no longer lists the query, its floor is after the permitted epoch: such a
        // record also prevents a second permit.
        let covers = guard
            .last(permitted.permit.query())
            .is_none_or(|last| last >= permitted.permit.epoch());
        if !covers || record(guard) != *kept {
            return Err(Error::Damaged);
        }
        permitted.is_durable = true;
        Ok(())
    })
}

/// Returns the query and the epoch of a permit. Pass them to `moteseal_answers_add` once the epoch
/// is answered.
///
/// @param query  Receives 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_permit_info(
    permit: *const moteseal_permit,
    query: *mut u8,
    epoch: *mut u64,
) -> moteseal_error {
    call(|| {
        checked(query)?;
        checked(epoch)?;
        // SAFETY: the caller keeps the header's contract; bytes need no alignment.
        unsafe {
            let permit = &begun(permit)?.permit;
            put(query.cast(), permit.query().0)?;
            put(epoch, permit.epoch())
        }
    })
}

/// Encrypts the value of one slot: `value_high * 2^64 + value_low`, below 2^96 - 1.
///
/// @param slot  The slot's number in the query, counted from 0. A source answers every slot of a
///        query, with the value 0 if its reading does not match the query.
/// @param psr  Receives `MOTESEAL_PSR` bytes.
/// @return `NotBegun`, `NotPersisted`, `WrongQuery`, `ValueTooLarge`, `SlotUsed`. After an error,
///         nothing was encrypted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sum_encrypt(
    key: *const moteseal_sum_key,
    permit: *mut moteseal_permit,
    slot: u8,
    value_high: u32,
    value_low: u64,
    psr: *mut u8,
) -> moteseal_error {
    call(|| {
        checked(psr)?;
        // SAFETY: the caller keeps the header's contract.
        let (key, permitted) = unsafe { (begun(key)?, state(permit)?) };
        if !permitted.is_durable {
            return Err(Error::NotPersisted);
        }
        let value = u128::from(value_high) << 64 | u128::from(value_low);
        let sealed = key.encrypt(&mut permitted.permit, Slot(slot), value)?;
        // SAFETY: as above; bytes need no alignment.
        unsafe { put(psr.cast(), sealed.to_bytes()) }
    })
}

/// Adds one partial state record to another. Only a mote that aggregates the records of other
/// sources needs this.
///
/// @param sum  `MOTESEAL_PSR` bytes, changed in place. Begin with zeros: they are the empty sum.
/// @param psr  `MOTESEAL_PSR` bytes.
/// @return `NonCanonical` if `sum` or `psr` is not a valid record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_psr_add(sum: *mut u8, psr: *const u8) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract; both inputs are read before the output is
        // written.
        let (old, more) = unsafe { (*fixed::<PSR>(sum)?, *fixed::<PSR>(psr)?) };
        let merged = Psr::from_bytes(&old)?.merge(&Psr::from_bytes(&more)?);
        // SAFETY: as above; bytes need no alignment.
        unsafe { put(sum.cast(), merged.to_bytes()) }
    })
}

/// Overwrites a permit with zeros. It then permits nothing. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_permit_wipe(permit: *mut moteseal_permit) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(permit) };
}
