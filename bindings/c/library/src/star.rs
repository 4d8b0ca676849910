//! Stars: a seal's events as one running digest a level (DESIGN section 5). Three sizes, for groups of at most 8, 16 and 32 levels.
//!
//! cbindgen does not expand macros, so each size has its functions written out; they do nothing but name the size.

use ::moteseal_seal::level::SaltKey;
use ::moteseal_seal::star::PushError;
use ::moteseal_seal::{Star, star};
use moteseal_core::record::Scheme;

use crate::chain::moteseal_chain;
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::memory::{
    Opaque, begin, begun, bytes, call, checked, fixed, given, optional, put, state, wipe,
};
use crate::seal::{Closing, Folded, Ground, moteseal_answers, moteseal_seal};

/// A star for groups of at most 8 levels. Declare it as `moteseal_star8 star = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_star8 {
    opaque: [u64; 132],
}

/// A star for groups of at most 16 levels. Declare it as `moteseal_star16 star = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_star16 {
    opaque: [u64; 244],
}

/// A star for groups of at most 32 levels: any group. Declare it as `moteseal_star32 star = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_star32 {
    opaque: [u64; 468],
}

/// See `moteseal_star8` and its fellows.
pub struct Open<const L: usize> {
    ground: Ground,
    star: Star<L>,
}

impl Opaque for moteseal_star8 {
    type Value = Open<8>;
    const MARK: u32 = 0x6d73_2108;
}

impl Opaque for moteseal_star16 {
    type Value = Open<16>;
    const MARK: u32 = 0x6d73_2110;
}

impl Opaque for moteseal_star32 {
    type Value = Open<32>;
    const MARK: u32 = 0x6d73_2120;
}

impl From<PushError> for Error {
    fn from(error: PushError) -> Self {
        match error {
            PushError::WrongLength => Self::WrongLength,
            PushError::Full => Self::Full,
            _ => Self::Unexpected,
        }
    }
}

/// # Safety
/// As `moteseal_star16_begin`.
unsafe fn begin_star<S: Opaque<Value = Open<L>>, const L: usize>(
    star: *mut S,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> Result<(), Error> {
    checked(star)?;
    // SAFETY: the caller keeps what the header asks.
    let (device, chain, key) = unsafe { (given(device)?, state(chain)?, fixed(salt_key)?) };
    let ground = Ground::new(device, chain, &SaltKey::new(*key))?;
    let (_, id) = device.ids();
    let open = Star::with_levels(id, ground.index, &ground.salt, device.framing(), device.levels)
        .ok_or(Error::LevelsOutOfRange)?;
    // SAFETY: as above.
    unsafe { begin(star, Open { ground, star: open }) }
}

/// # Safety
/// As `moteseal_star16_push`.
unsafe fn push<S: Opaque<Value = Open<L>>, const L: usize>(
    star: *mut S,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> Result<(), Error> {
    if !level.is_null() {
        checked(level)?;
    }
    // SAFETY: the caller keeps what the header asks.
    let (open, event) = unsafe { (state(star)?, bytes(event, length)?) };
    let found = open.star.push(event)?;
    if !level.is_null() {
        // SAFETY: as above.
        unsafe { put(level, found.0)? };
    }
    Ok(())
}

/// # Safety
/// As `moteseal_star16_close`.
unsafe fn close<S: Opaque<Value = Open<L>>, const L: usize>(
    star: *mut S,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> Result<(), Error> {
    checked(seal)?;
    // SAFETY: the caller keeps what the header asks.
    let (open, device, chain, answers) =
        unsafe { (state(star)?, given(device)?, state(chain)?, optional(answers)?) };
    // Everything that can be refused is, before the star is spent.
    let closing = Closing::new(&open.ground, device, chain, last_in_epoch, answers)?;
    let (counters, digests) = open.star.close_in_place();
    let folded = Folded { scheme: Scheme::Star, counters, root: star::root(&counters, &digests) };
    // SAFETY: as above.
    unsafe {
        closing.seal(folded, seal)?;
        wipe(star);
    }
    Ok(())
}

/// # Safety
/// As `moteseal_star16_count`.
unsafe fn count<S: Opaque<Value = Open<L>>, const L: usize>(
    star: *const S,
    count: *mut u32,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    unsafe { put(count, begun(star)?.star.len()) }
}

/// Begins the star of the chain's open seal.
///
/// @param device  With at most 8 levels.
/// @param chain  With an open seal, whose record was shown to be durable.
/// @param salt_key  32 secret bytes, uniformly random, of this device alone and apart from its signing key (`NAME.salt.key` of `moteseal key
///        new`, there as hexadecimal digits). Nobody else may know them, or could steer what is sampled. They are not kept.
/// @return `NotOpen`, `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star8_begin(
    star: *mut moteseal_star8,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_star(star, device, chain, salt_key) })
}

/// Folds in the next event. What is not also kept elsewhere is gone: the star holds digests, not events.
///
/// @param event, length  The event as the schema has it: `record_size` bytes, or any number up to 65,535 where that is 0.
/// @param level  May be null. Says the event's level. It is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star8_push(
    star: *mut moteseal_star8,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { push(star, event, length, level) })
}

/// Says how many events were folded in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star8_count(
    star: *const moteseal_star8,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { count(star, events) })
}

/// Ends the star and begins the seal, which is to be signed.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device answered and has not stated yet.
/// @param seal  Begun if all is well. The star is wiped then, and may be begun again for the next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has gone on), `FieldOutOfRange` (`last_in_epoch`); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star8_close(
    star: *mut moteseal_star8,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { close(star, device, chain, last_in_epoch, answers, seal) })
}

/// Overwrites a star with zeros. Null is nothing to wipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star8_wipe(star: *mut moteseal_star8) {
    // SAFETY: the caller keeps what the header asks.
    unsafe { wipe(star) };
}

/// Begins the star of the chain's open seal.
///
/// @param device  With at most 16 levels.
/// @param chain  With an open seal, whose record was shown to be durable.
/// @param salt_key  32 secret bytes, uniformly random, of this device alone and apart from its signing key (`NAME.salt.key` of `moteseal key
///        new`, there as hexadecimal digits). Nobody else may know them, or could steer what is sampled. They are not kept.
/// @return `NotOpen`, `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star16_begin(
    star: *mut moteseal_star16,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_star(star, device, chain, salt_key) })
}

/// Folds in the next event. What is not also kept elsewhere is gone: the star holds digests, not events.
///
/// @param event, length  The event as the schema has it: `record_size` bytes, or any number up to 65,535 where that is 0.
/// @param level  May be null. Says the event's level. It is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star16_push(
    star: *mut moteseal_star16,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { push(star, event, length, level) })
}

/// Says how many events were folded in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star16_count(
    star: *const moteseal_star16,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { count(star, events) })
}

/// Ends the star and begins the seal, which is to be signed.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device answered and has not stated yet.
/// @param seal  Begun if all is well. The star is wiped then, and may be begun again for the next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has gone on), `FieldOutOfRange` (`last_in_epoch`); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star16_close(
    star: *mut moteseal_star16,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { close(star, device, chain, last_in_epoch, answers, seal) })
}

/// Overwrites a star with zeros. Null is nothing to wipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star16_wipe(star: *mut moteseal_star16) {
    // SAFETY: the caller keeps what the header asks.
    unsafe { wipe(star) };
}

/// Begins the star of the chain's open seal.
///
/// @param device  With at most 32 levels.
/// @param chain  With an open seal, whose record was shown to be durable.
/// @param salt_key  32 secret bytes, uniformly random, of this device alone and apart from its signing key (`NAME.salt.key` of `moteseal key
///        new`, there as hexadecimal digits). Nobody else may know them, or could steer what is sampled. They are not kept.
/// @return `NotOpen`, `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star32_begin(
    star: *mut moteseal_star32,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_star(star, device, chain, salt_key) })
}

/// Folds in the next event. What is not also kept elsewhere is gone: the star holds digests, not events.
///
/// @param event, length  The event as the schema has it: `record_size` bytes, or any number up to 65,535 where that is 0.
/// @param level  May be null. Says the event's level. It is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star32_push(
    star: *mut moteseal_star32,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { push(star, event, length, level) })
}

/// Says how many events were folded in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star32_count(
    star: *const moteseal_star32,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { count(star, events) })
}

/// Ends the star and begins the seal, which is to be signed.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device answered and has not stated yet.
/// @param seal  Begun if all is well. The star is wiped then, and may be begun again for the next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has gone on), `FieldOutOfRange` (`last_in_epoch`); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star32_close(
    star: *mut moteseal_star32,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { close(star, device, chain, last_in_epoch, answers, seal) })
}

/// Overwrites a star with zeros. Null is nothing to wipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star32_wipe(star: *mut moteseal_star32) {
    // SAFETY: the caller keeps what the header asks.
    unsafe { wipe(star) };
}
