//! Trees: a seal's events as an online RFC 9162 tree (DESIGN section 5), of which single events can be proven later. Two sizes, for
//! seals of at most 2^10 - 1 and 2^20 - 1 events.

use ::moteseal_seal::level::LevelKey;
use ::moteseal_seal::level::{Counters, SaltKey};
use ::moteseal_seal::tree::{Tree, TreeFull};
use moteseal_core::record::Scheme;

use crate::chain::moteseal_chain;
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::memory::{
    Opaque, begin, begun, bytes, call, checked, fixed, given, optional, put, state, wipe,
};
use crate::seal::{Closing, Folded, Ground, moteseal_answers, moteseal_seal};

/// A tree for seals of at most 1,023 events. Declare it as `moteseal_tree10 tree = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_tree10 {
    opaque: [u64; 74],
}

/// A tree for seals of at most 1,048,575 events. Declare it as `moteseal_tree20 tree = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_tree20 {
    opaque: [u64; 114],
}

/// See `moteseal_tree10` and its fellow.
pub struct Open<const H: usize> {
    ground: Ground,
    key: LevelKey,
    counters: Counters,
    record_size: u16,
    tree: Tree<H>,
}

impl Opaque for moteseal_tree10 {
    type Value = Open<10>;
    const MARK: u32 = 0x6d73_220a;
}

impl Opaque for moteseal_tree20 {
    type Value = Open<20>;
    const MARK: u32 = 0x6d73_2214;
}

impl From<TreeFull> for Error {
    fn from(_: TreeFull) -> Self {
        Self::TreeFull
    }
}

/// # Safety
/// As `moteseal_tree10_begin`.
unsafe fn begin_tree<T: Opaque<Value = Open<H>>, const H: usize>(
    tree: *mut T,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> Result<(), Error> {
    checked(tree)?;
    // SAFETY: the caller keeps what the header asks.
    let (device, chain, key) = unsafe { (given(device)?, state(chain)?, fixed(salt_key)?) };
    let ground = Ground::new(device, chain, &SaltKey::new(*key))?;
    let key = LevelKey::new(&ground.salt);
    let counters = Counters::new(device.levels);
    // SAFETY: as above.
    unsafe {
        begin(
            tree,
            Open { ground, key, counters, record_size: device.record_size, tree: Tree::new() },
        )
    }
}

impl<const H: usize> Open<H> {
    fn push(&mut self, event: &[u8]) -> Result<u8, Error> {
        let fits = match self.record_size {
            0 => event.len() <= usize::from(u16::MAX),
            size => event.len() == usize::from(size),
        };
        if !fits {
            return Err(Error::WrongLength);
        }
        let seq = self.tree.push(event)?;
        let level = self.key.level(seq.0, self.counters.levels());
        // A tree holds fewer than 2^32 events, so no count overflows.
        if let Some(count) = self.counters.as_mut_slice().get_mut(usize::from(level.0)) {
            *count = count.saturating_add(1);
        }
        Ok(level.0)
    }
}

/// # Safety
/// As `moteseal_tree10_push`.
unsafe fn push<T: Opaque<Value = Open<H>>, const H: usize>(
    tree: *mut T,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let (open, event) = unsafe { (state(tree)?, bytes(event, length)?) };
    let found = open.push(event)?;
    // SAFETY: as above.
    if level.is_null() { Ok(()) } else { unsafe { put(level, found) } }
}

/// # Safety
/// As `moteseal_tree10_close`.
unsafe fn close<T: Opaque<Value = Open<H>>, const H: usize>(
    tree: *mut T,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> Result<(), Error> {
    checked(seal)?;
    // SAFETY: the caller keeps what the header asks.
    let (open, device, chain, answers) =
        unsafe { (state(tree)?, given(device)?, state(chain)?, optional(answers)?) };
    let closing = Closing::new(&open.ground, device, chain, last_in_epoch, answers)?;
    let folded = Folded { scheme: Scheme::Tree, counters: open.counters, root: open.tree.root() };
    // SAFETY: as above.
    unsafe {
        closing.seal(folded, seal)?;
        wipe(tree);
    }
    Ok(())
}

/// # Safety
/// As `moteseal_tree10_count`.
unsafe fn count<T: Opaque<Value = Open<H>>, const H: usize>(
    tree: *const T,
    events: *mut u32,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let count = unsafe { begun(tree)? }.tree.len();
    // SAFETY: as above.
    unsafe { put(events, u32::try_from(count).unwrap_or(u32::MAX)) }
}

/// Begins the tree of the chain's open seal.
///
/// @param chain  With an open seal, whose record was shown to be durable.
/// @param salt_key  32 secret bytes, uniformly random, of this device alone and apart from its signing key (`NAME.salt.key` of `moteseal key
///        new`, there as hexadecimal digits). Nobody else may know them, or could steer what is sampled. They are not kept.
/// @return `NotOpen`, `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree10_begin(
    tree: *mut moteseal_tree10,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_tree(tree, device, chain, salt_key) })
}

/// Folds in the next event. What is not also kept elsewhere is gone: the tree holds digests, not events.
///
/// @param event, length  The event as the schema has it: `record_size` bytes, or any number up to 65,535 where that is 0.
/// @param level  May be null. Says the event's level. It is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `TreeFull` (2^10 - 1 events); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree10_push(
    tree: *mut moteseal_tree10,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { push(tree, event, length, level) })
}

/// Says how many events were folded in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree10_count(
    tree: *const moteseal_tree10,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { count(tree, events) })
}

/// Ends the tree and begins the seal, which is to be signed.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device answered and has not stated yet.
/// @param seal  Begun if all is well. The tree is wiped then, and may be begun again for the next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has gone on), `FieldOutOfRange` (`last_in_epoch`); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree10_close(
    tree: *mut moteseal_tree10,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { close(tree, device, chain, last_in_epoch, answers, seal) })
}

/// Overwrites a tree with zeros. Null is nothing to wipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree10_wipe(tree: *mut moteseal_tree10) {
    // SAFETY: the caller keeps what the header asks.
    unsafe { wipe(tree) };
}

/// Begins the tree of the chain's open seal.
///
/// @param chain  With an open seal, whose record was shown to be durable.
/// @param salt_key  32 secret bytes, uniformly random, of this device alone and apart from its signing key (`NAME.salt.key` of `moteseal key
///        new`, there as hexadecimal digits). Nobody else may know them, or could steer what is sampled. They are not kept.
/// @return `NotOpen`, `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree20_begin(
    tree: *mut moteseal_tree20,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    salt_key: *const u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_tree(tree, device, chain, salt_key) })
}

/// Folds in the next event. What is not also kept elsewhere is gone: the tree holds digests, not events.
///
/// @param event, length  The event as the schema has it: `record_size` bytes, or any number up to 65,535 where that is 0.
/// @param level  May be null. Says the event's level. It is secret until the seal is sent.
/// @return `NotBegun`, `WrongLength`, `TreeFull` (2^20 - 1 events); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree20_push(
    tree: *mut moteseal_tree20,
    event: *const u8,
    length: usize,
    level: *mut u8,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { push(tree, event, length, level) })
}

/// Says how many events were folded in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree20_count(
    tree: *const moteseal_tree20,
    events: *mut u32,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { count(tree, events) })
}

/// Ends the tree and begins the seal, which is to be signed.
///
/// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
/// @param answers  May be null. The query epochs that the device answered and has not stated yet.
/// @param seal  Begun if all is well. The tree is wiped then, and may be begun again for the next seal.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has gone on), `FieldOutOfRange` (`last_in_epoch`); then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree20_close(
    tree: *mut moteseal_tree20,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    last_in_epoch: u8,
    answers: *const moteseal_answers,
    seal: *mut moteseal_seal,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { close(tree, device, chain, last_in_epoch, answers, seal) })
}

/// Overwrites a tree with zeros. Null is nothing to wipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_tree20_wipe(tree: *mut moteseal_tree20) {
    // SAFETY: the caller keeps what the header asks.
    unsafe { wipe(tree) };
}
