//! Stars: a star commits to a seal's events with one running digest per level (docs/design.md,
//! section *sealing*).

use ::moteseal_seal::level::SaltKey;
use ::moteseal_seal::star::{LevelDigest, PushError, StarState};
use moteseal_core::record::{MAX_LEVELS, Scheme};
use moteseal_core::schema::Groups;

use crate::boundary::{
    Storage, array, array_ref, begin_array, bytes, call, capacity, checked, clear_array, fixed,
    given, optional, put, state, wipe_bytes,
};
use crate::chain_position::moteseal_chain;
use crate::cipher::{commitments, moteseal_cipher};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::seal::{Closing, Folded, OpenSeal, moteseal_answers, moteseal_seal};

/// A star for a group of at most `levels` levels (1 to 32). It occupies
/// `MOTESEAL_STAR_SIZE(levels)` bytes of the caller's memory:
///
///     uint64_t memory[MOTESEAL_STAR_SIZE(16) / 8] = {0};
///     moteseal_star *star = (moteseal_star *)memory;
#[allow(non_camel_case_types)]
pub struct moteseal_star([u8; 0]);

impl Storage for moteseal_star {
    type Value = Open;
    type Element = LevelDigest;
    const MARK: u32 = 0x6d73_2101;
    const FIXED: usize = 104;
    const MOST: usize = MAX_LEVELS;
}

/// The fixed part of a star's memory. An array with one digest for each level follows it.
pub struct Open {
    open_seal: OpenSeal,
    star: StarState,
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

/// Begins the star of the chain's open seal.
///
/// @param star, size  Memory for the star, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_STAR_SIZE(device->levels)` or more.
/// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
///        record.
/// @param salt_key  32 secret bytes, uniformly random, for this device only and independent of its
///        signing key. `moteseal key new` writes them to `NAME.salt.key`, as hexadecimal digits. An
///        attacker who knows them can choose which events are sampled. The star keeps no copy of
///        them.
/// @return `BufferTooSmall` (`size` is less than `MOTESEAL_STAR_SIZE(1)`), `NotOpen`,
///         `NotPersisted`, `LevelsOutOfRange` (the device has no valid number of levels, or more
///         than `size` has room for), `UnknownAlgorithm`, `ColumnGroups` (the device has column groups:
///         use a `moteseal_grouped_star`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star_begin(
    star: *mut moteseal_star,
    size: usize,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    call(|| {
        let capacity = capacity(star, size)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, chain, key) = unsafe { (given(device)?, state(chain)?, fixed(salt_key)?) };
        let open_seal = OpenSeal::new(device, chain, &SaltKey::new(*key), Groups::NONE)?;
        let ((_, id), levels) = (device.ids(), usize::from(device.levels));
        let open =
            StarState::new(id, open_seal.index, &open_seal.salt, device.framing(), device.levels)
                .filter(|_| levels <= capacity)
                .ok_or(Error::LevelsOutOfRange)?;
        // SAFETY: as above; `capacity` checked that the memory has room for this many levels.
        unsafe {
            clear_array(star, levels, LevelDigest::EMPTY);
            begin_array(star, levels, Open { open_seal, star: open });
        }
        Ok(())
    })
}

/// Adds the next event. The star keeps digests only: store the event itself elsewhere if you want
/// to send it.
///
/// @param event, length  The event in the schema's format: `record_size` bytes, or 0 to 65,535
///        bytes if `record_size` is 0.
/// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events). After an error, nothing
///         has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star_push(
    star: *mut moteseal_star,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let ((open, digests), event) = unsafe { (array(star)?, bytes(event, length)?) };
        let found = open.star.push(digests, event)?;
        // SAFETY: as above.
        if level.is_null() { Ok(()) } else { unsafe { put(level, found.0) } }
    })
}

/// Returns the number of events in the star.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star_count(
    star: *const moteseal_star,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps the header's contract.
    call(|| unsafe { put(events, array_ref(star)?.0.star.len()) })
}

/// Ends the star and begins its seal, which you sign next.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device has answered and that no earlier
///        seal states.
/// @param cipher  The cipher of this seal if the device has encrypted columns; otherwise null.
/// @param seal  Begun on success. The function then also wipes the star; use its memory for the
///        next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has another open seal, or the cipher is
///         for another one), `NoStreamSecret` (the cipher is missing), `NotEncrypted` (the cipher has
///         encrypted fewer events than were pushed), `FieldOutOfRange` (`last_in_epoch`). After an
///         error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star_close(
    star: *mut moteseal_star,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    cipher: *const moteseal_cipher,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    call(|| {
        checked(seal)?;
        // SAFETY: the caller keeps the header's contract.
        let ((open, digests), device, chain, answers) =
            unsafe { (array(star)?, given(device)?, state(chain)?, optional(answers)?) };
        // All checks come first: `close_to_root` consumes the star.
        // SAFETY: as above.
        let keys = unsafe { commitments(cipher, device, chain.opened()?, open.star.len().into())? };
        let closing = Closing::new(&open.open_seal, device, chain, last_in_epoch, answers)?;
        let (counters, root) = open.star.close_to_root(digests);
        let size = moteseal_star::size(digests.len());
        // SAFETY: as above.
        unsafe {
            closing.seal(keys, Folded { scheme: Scheme::Star, counters, root }, seal)?;
            wipe_bytes(star.cast(), size);
        }
        Ok(())
    })
}

/// Overwrites a star with zeros. Null is allowed.
///
/// @param size  The size of the star's memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_star_wipe(star: *mut moteseal_star, size: usize) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe_bytes(star.cast(), size) };
}
