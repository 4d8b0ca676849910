//! Stars of schemas with column groups (spec/groups.md): a running digest for each level and group.

use ::moteseal_seal::level::SaltKey;
use ::moteseal_seal::star::{GroupedStarState, LevelDigest};
use moteseal_core::record::{MAX_LEVELS, Scheme};
use moteseal_core::schema::{GroupLayout, MAX_GROUPS, Schema};

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

/// A star of a schema with column groups. Programs that do not get a group can still verify the rest
/// of a seal. It occupies `MOTESEAL_GROUPED_STAR_SIZE(digests)` bytes of the caller's memory, for
/// `digests = levels * groups`:
///
///     uint64_t memory[MOTESEAL_GROUPED_STAR_SIZE(16 * 2) / 8] = {0};
///     moteseal_grouped_star *star = (moteseal_grouped_star *)memory;
#[allow(non_camel_case_types)]
pub struct moteseal_grouped_star([u8; 0]);

impl Storage for moteseal_grouped_star {
    type Value = Open;
    type Element = LevelDigest;
    const MARK: u32 = 0x6d73_2102;
    const FIXED: usize = 504;
    const MOST: usize = MAX_LEVELS * MAX_GROUPS;
}

/// The fixed part of a star's memory. An array with one digest for each level and group follows it.
pub struct Open {
    open_seal: OpenSeal,
    schema: [u8; 32],
    star: GroupedStarState,
}

/// Begins the star of the chain's open seal, for a device with column groups.
///
/// @param star, size  Memory for the star, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_GROUPED_STAR_SIZE(levels * groups)` or more.
/// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
///        record.
/// @param salt_key  32 secret bytes, as for `moteseal_star_begin`.
/// @param schema, schema_length  The device's encoded schema.
/// @return `BufferTooSmall` (`size` is less than `MOTESEAL_GROUPED_STAR_SIZE(1)`), `NotOpen`,
///         `NotPersisted`, `LevelsOutOfRange` (the device has no valid number of levels, or `size` has
///         no room for a digest for each level and group), `UnknownAlgorithm`, `NotOfThisSeal` (the
///         schema is not the device's), `ColumnGroups` (the schema has no column groups), an error of
///         schemas or of decoding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_grouped_star_begin(
    star: *mut moteseal_grouped_star,
    size: usize,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
    schema: *const u8,
    schema_length: usize,
) -> moteseal_error {
    call(|| {
        let capacity = capacity(star, size)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, chain, key, schema) = unsafe {
            (
                given(device)?,
                state(chain)?,
                fixed(salt_key)?,
                Schema::decode(bytes(schema, schema_length)?)?,
            )
        };
        let digest = schema.digest().0;
        if digest != device.schema {
            return Err(Error::NotOfThisSeal);
        }
        let groups = schema.groups();
        let layout = GroupLayout::new(&schema, groups).ok_or(Error::ColumnGroups)?;
        let open_seal = OpenSeal::new(device, chain, &SaltKey::new(*key), groups)?;
        let (id, digests) = (device.ids().1, usize::from(device.levels) * groups.len());
        let of_records = (layout, device.framing());
        let open =
            GroupedStarState::new(id, open_seal.index, &open_seal.salt, of_records, device.levels);
        let open = open.filter(|_| digests <= capacity).ok_or(Error::LevelsOutOfRange)?;
        // SAFETY: as above; `capacity` checked that the memory has room for this many digests.
        unsafe {
            clear_array(star, digests, LevelDigest::EMPTY);
            begin_array(star, digests, Open { open_seal, schema: digest, star: open });
        }
        Ok(())
    })
}

/// Adds the next event. The star keeps digests only: store the event itself elsewhere if you want
/// to send it.
///
/// @param event, length  The event in the schema's format, encrypted with `moteseal_cipher_encrypt`:
///        `record_size` bytes, or up to 65,535 bytes if `record_size` is 0.
/// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events). After an error, nothing
///         has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_grouped_star_push(
    star: *mut moteseal_grouped_star,
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
pub unsafe extern "C" fn moteseal_grouped_star_count(
    star: *const moteseal_grouped_star,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps the header's contract.
    call(|| unsafe { put(events, array_ref(star)?.0.star.len()) })
}

/// Ends the star and begins its seal, which you sign next.
///
/// @param last_in_epoch, answers, cipher, seal  As for `moteseal_star_close`.
/// @return As `moteseal_star_close`; also `NotOfThisSeal` if the device has another schema. After an
///         error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_grouped_star_close(
    star: *mut moteseal_grouped_star,
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
        if device.schema != open.schema {
            return Err(Error::NotOfThisSeal);
        }
        // SAFETY: as above.
        let keys = unsafe { commitments(cipher, device, chain.opened()?, open.star.len().into())? };
        let closing = Closing::new(&open.open_seal, device, chain, last_in_epoch, answers)?;
        let (counters, root) = open.star.close_to_root(digests);
        let size = moteseal_grouped_star::size(digests.len());
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
pub unsafe extern "C" fn moteseal_grouped_star_wipe(star: *mut moteseal_grouped_star, size: usize) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe_bytes(star.cast(), size) };
}
