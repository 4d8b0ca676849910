//! Trees: a tree commits to a seal's events as an RFC 9162 Merkle tree that grows event by event,
//! so that single events can be proven later (docs/design.md, section *sealing*).

use ::moteseal_seal::level::{Counters, LevelKey, SaltKey};
use ::moteseal_seal::tree::{TreeFull, TreeState};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
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

/// A tree for a seal of at most `2^height - 1` events (a height of 1 to 32). It occupies
/// `MOTESEAL_TREE_SIZE(height)` bytes of the caller's memory:
///
///     uint64_t memory[MOTESEAL_TREE_SIZE(10) / 8] = {0};
///     moteseal_tree *tree = (moteseal_tree *)memory;
#[allow(non_camel_case_types)]
pub struct moteseal_tree([u8; 0]);

impl Storage for moteseal_tree {
    type Value = Open;
    type Element = Digest;
    const MARK: u32 = 0x6d73_2201;
    const FIXED: usize = 224;
    const MOST: usize = 32;
}

/// The fixed part of a tree's memory. An array follows it, with one place for the root of a perfect
/// subtree of each height.
pub struct Open {
    open_seal: OpenSeal,
    key: LevelKey,
    counters: Counters,
    record_size: u16,
    tree: TreeState,
}

impl From<TreeFull> for Error {
    fn from(_: TreeFull) -> Self {
        Self::TreeFull
    }
}

impl Open {
    fn push(&mut self, slots: &mut [Digest], event: &[u8]) -> Result<u8, Error> {
        let fits = match self.record_size {
            0 => event.len() <= usize::from(u16::MAX),
            size => event.len() == usize::from(size),
        };
        if !fits {
            return Err(Error::WrongLength);
        }
        let seq = self.tree.push(slots, event)?;
        let level = self.key.level(seq.0, self.counters.levels());
        // A tree has fewer than 2^32 events, so no count overflows.
        if let Some(count) = self.counters.as_mut_slice().get_mut(usize::from(level.0)) {
            *count = count.saturating_add(1);
        }
        Ok(level.0)
    }
}

/// Begins the tree of the chain's open seal.
///
/// @param tree, size  Memory for the tree, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_TREE_SIZE(height)`.
/// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
///        record.
/// @param salt_key  32 secret bytes, uniformly random, for this device only and independent of its
///        signing key. `moteseal key new` writes them to `NAME.salt.key`, as hexadecimal digits. An
///        attacker who knows them can choose which events are sampled. The tree keeps no copy of
///        them.
/// @return `BufferTooSmall` (`size` is less than `MOTESEAL_TREE_SIZE(1)`), `NotOpen`,
///         `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`, `ColumnGroups` (the device has
///         column groups: use a `moteseal_grouped_star`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree_begin(
    tree: *mut moteseal_tree,
    size: usize,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    call(|| {
        let height = capacity(tree, size)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, chain, key) = unsafe { (given(device)?, state(chain)?, fixed(salt_key)?) };
        let open_seal = OpenSeal::new(device, chain, &SaltKey::new(*key), Groups::NONE)?;
        let key = LevelKey::new(&open_seal.salt);
        let (counters, record_size) = (Counters::new(device.levels), device.record_size);
        let open = Open { open_seal, key, counters, record_size, tree: TreeState::new() };
        // SAFETY: as above; `capacity` checked that the memory has room for this many slots.
        unsafe {
            clear_array(tree, height, Digest::NULL);
            begin_array(tree, height, open);
        }
        Ok(())
    })
}

/// Adds the next event. The tree keeps digests only: store the event itself elsewhere if you want
/// to send it.
///
/// @param event, length  The event in the schema's format: `record_size` bytes, or 0 to 65,535
///        bytes if `record_size` is 0.
/// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `TreeFull` (2^height - 1 events). After an error, nothing
///         has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree_push(
    tree: *mut moteseal_tree,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let ((open, slots), event) = unsafe { (array(tree)?, bytes(event, length)?) };
        let found = open.push(slots, event)?;
        // SAFETY: as above.
        if level.is_null() { Ok(()) } else { unsafe { put(level, found) } }
    })
}

/// Returns the number of events in the tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree_count(
    tree: *const moteseal_tree,
    events: *mut u32,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let count = unsafe { array_ref(tree)? }.0.tree.len();
        // SAFETY: as above.
        unsafe { put(events, u32::try_from(count).unwrap_or(u32::MAX)) }
    })
}

/// Ends the tree and begins its seal, which you sign next.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device has answered and that no earlier
///        seal states.
/// @param cipher  The cipher of this seal if the device has encrypted columns; otherwise null.
/// @param seal  Begun on success. The function then also wipes the tree; use its memory for the
///        next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has another open seal, or the cipher is
///         for another one), `NoStreamSecret` (the cipher is missing), `NotEncrypted` (the cipher has
///         encrypted fewer events than were pushed), `FieldOutOfRange` (`last_in_epoch`). After an
///         error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree_close(
    tree: *mut moteseal_tree,
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
        let ((open, slots), device, chain, answers) =
            unsafe { (array(tree)?, given(device)?, state(chain)?, optional(answers)?) };
        // SAFETY: as above.
        let keys = unsafe { commitments(cipher, device, chain.opened()?, open.tree.len())? };
        let closing = Closing::new(&open.open_seal, device, chain, last_in_epoch, answers)?;
        let (counters, root) = (open.counters, open.tree.root(slots));
        let size = moteseal_tree::size(slots.len());
        // SAFETY: as above.
        unsafe {
            closing.seal(keys, Folded { scheme: Scheme::Tree, counters, root }, seal)?;
            wipe_bytes(tree.cast(), size);
        }
        Ok(())
    })
}

/// Overwrites a tree with zeros. Null is allowed.
///
/// @param size  The size of the tree's memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree_wipe(tree: *mut moteseal_tree, size: usize) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe_bytes(tree.cast(), size) };
}
