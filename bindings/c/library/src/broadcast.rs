//! The receiver of authenticated broadcasts (DESIGN section 8): one signature check a chain, one hash a message. Three sizes, for chains whose
//! blocks have at most 8, 32 and 64 messages.
//!
//! It checks and says what is missing. When to ask, what to store and whom to pass it on to is the application's; core's
//! `broadcast::recovery` is a whole node for that, which is not bound here.

use ::moteseal_broadcast::wire::BroadcastFrame;
use ::moteseal_broadcast::{
    BlockTooLarge, Head, HeadError, Incoming, LeafError, MAX_HEAD, MAX_SNAPSHOT, Taken,
};
use moteseal_core::cbor::Writer;

use crate::error::moteseal_error;
use crate::error::{by_name, moteseal_error as Error};
use crate::frame::{MOTESEAL_FRAME_LEAF, moteseal_frame};
use crate::memory::{
    Opaque, begin, begun, buffer, bytes, call, checked, given, optional, put, state,
};
use crate::sender::{check_floor, moteseal_sender};

/// A leaf that was there already.
pub const MOTESEAL_TAKEN_REPEATED: u8 = 0;
/// A leaf whose tag fits: worth storing and passing on, not yet to be acted on.
pub const MOTESEAL_TAKEN_PENDING: u8 = 1;
/// A leaf that completes its block: every message of the block is authentic, act on them.
pub const MOTESEAL_TAKEN_VERIFIED: u8 = 2;

/// Bytes that suffice for a snapshot of a receiver.
pub const MOTESEAL_MAX_SNAPSHOT: usize = 624;
/// Bytes that suffice for a request.
pub const MOTESEAL_MAX_WANTED: usize = 32;

const _: () = assert!(MOTESEAL_MAX_SNAPSHOT == MAX_SNAPSHOT);
// Three array heads, a reference, a block and a mask.
const _: () = assert!(MOTESEAL_MAX_WANTED >= 1 + 2 + 9 + 5 + 9);

/// A receiver of one chain whose blocks have at most 8 messages. Declare it as `moteseal_broadcast8 broadcast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_broadcast8 {
    opaque: [u64; 102],
}

/// A receiver of one chain whose blocks have at most 32 messages. Declare it as `moteseal_broadcast32 broadcast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_broadcast32 {
    opaque: [u64; 246],
}

/// A receiver of one chain of any kind: blocks have at most 64 messages. Declare it as `moteseal_broadcast64 broadcast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_broadcast64 {
    opaque: [u64; 438],
}

impl Opaque for moteseal_broadcast8 {
    type Value = Follow<8>;
    const MARK: u32 = 0x6d73_6208;
}

impl Opaque for moteseal_broadcast32 {
    type Value = Follow<32>;
    const MARK: u32 = 0x6d73_6220;
}

impl Opaque for moteseal_broadcast64 {
    type Value = Follow<64>;
    const MARK: u32 = 0x6d73_6240;
}

/// See `moteseal_broadcast8` and its fellows.
pub struct Follow<const B: usize> {
    incoming: Incoming<B>,
    is_durable: bool,
}

/// What a head says. Its pointer leads into the head's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_head_info {
    /// The chain's number. Make it durable before you act on anything that the chain says.
    pub number: u64,
    /// The chain's reference: what its frames name it by.
    pub chain: [u8; 8],
    /// What the chain is called: UTF-8 without control characters, not ended by a zero byte; may be empty.
    pub label: *const u8,
    /// Its length in bytes, at most 64.
    pub label_length: usize,
    /// Messages of the chain.
    pub messages: u32,
    /// Blocks of the chain.
    pub blocks: u32,
    /// 0 for messages that each stand for themselves, 1 for the pieces of one file, 2 for a querier's schedule.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

/// What a leaf that was taken is. Its pointer leads into the frame's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_taken {
    /// The leaf's message; null of a repeated one.
    pub message: *const u8,
    /// Its length in bytes.
    pub message_length: usize,
    /// The leaf's block, from 1.
    pub block: u32,
    /// `MOTESEAL_TAKEN_...`.
    pub what: u8,
    /// 1 if the chain is complete now.
    pub is_last: u8,
    /// Zeros.
    pub reserved: [u8; 2],
}

by_name!(BlockTooLarge, HeadError, LeafError);

/// # Safety
/// As `moteseal_broadcast32_begin`.
unsafe fn begin_broadcast<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *mut C,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> Result<(), Error> {
    checked(broadcast)?;
    checked(info)?;
    // SAFETY: the caller keeps what the header asks.
    let (sender, bytes_of_head, floor) =
        unsafe { (begun(sender)?, bytes(head, length)?, optional(floor)?) };
    // What an old head would be refused for costs no signature check.
    check_floor(Head::peek(bytes_of_head)?.id().number, floor)?;
    let mut scratch = [0; MAX_HEAD];
    let head = Head::open(bytes_of_head, sender.network, sender.id, &sender.key, &mut scratch)?;
    let incoming = Incoming::new(&head)?;
    let label = head.label();
    let value = moteseal_head_info {
        number: head.id().number.0,
        chain: head.reference().0,
        label: label.as_ptr(),
        label_length: label.len(),
        messages: head.outline().messages,
        blocks: head.blocks(),
        kind: head.outline().kind.number(),
        reserved: [0; 7],
    };
    // SAFETY: as above.
    unsafe {
        put(info, value)?;
        begin(broadcast, Follow { incoming, is_durable: false })
    }
}

/// # Safety
/// As `moteseal_broadcast32_persisted`.
unsafe fn persisted<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *mut C,
    number: u64,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let follow = unsafe { state(broadcast)? };
    if number != follow.incoming.outline().id.number.0 {
        return Err(Error::Damaged);
    }
    follow.is_durable = true;
    Ok(())
}

/// # Safety
/// As `moteseal_broadcast32_take`.
unsafe fn take<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *mut C,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> Result<(), Error> {
    checked(taken)?;
    // SAFETY: the caller keeps what the header asks.
    let (follow, frame) = unsafe { (state(broadcast)?, given(frame)?) };
    if frame.kind != MOTESEAL_FRAME_LEAF {
        return Err(Error::UnknownItem);
    }
    if !follow.is_durable {
        return Err(Error::NotPersisted);
    }
    if frame.chain != follow.incoming.reference().0 {
        return Err(Error::WrongChain);
    }
    // SAFETY: as above: a frame's pointers lead to as many bytes as it says.
    let leaf = unsafe { bytes(frame.body, frame.body_length)? };
    let (message, what, is_last) = match follow.incoming.take(frame.block, frame.index, leaf)? {
        Taken::Repeated => (None, MOTESEAL_TAKEN_REPEATED, false),
        Taken::Pending { message } => (Some(message), MOTESEAL_TAKEN_PENDING, false),
        Taken::Verified { message, is_last, .. } => {
            (Some(message), MOTESEAL_TAKEN_VERIFIED, is_last)
        }
    };
    let value = moteseal_taken {
        message: message.map_or(core::ptr::null(), <[u8]>::as_ptr),
        message_length: message.map_or(0, <[u8]>::len),
        block: frame.block,
        what,
        is_last: is_last.into(),
        reserved: [0; 2],
    };
    // SAFETY: as above.
    unsafe { put(taken, value) }
}

/// # Safety
/// As `moteseal_broadcast32_missing`.
unsafe fn missing<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *const C,
    block: *mut u32,
    mask: *mut u64,
) -> Result<(), Error> {
    checked(block)?;
    checked(mask)?;
    // SAFETY: the caller keeps what the header asks.
    unsafe {
        let incoming = &begun(broadcast)?.incoming;
        put(block, incoming.current())?;
        put(mask, if incoming.is_complete() { 0 } else { incoming.missing() })
    }
}

/// # Safety
/// As `moteseal_broadcast32_wanted`.
unsafe fn wanted<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *const C,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let (incoming, out) = unsafe { (&begun(broadcast)?.incoming, buffer(out, capacity)?) };
    let mut out = Writer::new(out);
    let wanted = if incoming.is_complete() { 0 } else { incoming.missing() };
    BroadcastFrame::Wanted { chain: incoming.reference(), block: incoming.current(), wanted }
        .encode(&mut out)?;
    // SAFETY: as above.
    unsafe { put(length, out.position()) }
}

/// # Safety
/// As `moteseal_broadcast32_save`.
unsafe fn save<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *const C,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let (follow, out) = unsafe { (begun(broadcast)?, buffer(out, capacity)?) };
    if !follow.is_durable {
        return Err(Error::NotPersisted);
    }
    let written = follow.incoming.save(out)?.len();
    // SAFETY: as above.
    unsafe { put(length, written) }
}

/// # Safety
/// As `moteseal_broadcast32_restore`.
unsafe fn restore<C: Opaque<Value = Follow<B>>, const B: usize>(
    broadcast: *mut C,
    snapshot: *const u8,
    length: usize,
) -> Result<(), Error> {
    checked(broadcast)?;
    // SAFETY: the caller keeps what the header asks.
    let incoming = Incoming::restore(unsafe { bytes(snapshot, length)? })?;
    // SAFETY: as above.
    unsafe { begin(broadcast, Follow { incoming, is_durable: true }) }
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_broadcast8_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 8 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_begin(
    broadcast: *mut moteseal_broadcast8,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_broadcast(broadcast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_persisted(
    broadcast: *mut moteseal_broadcast8,
    number: u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(broadcast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_take(
    broadcast: *mut moteseal_broadcast8,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(broadcast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_missing(
    broadcast: *const moteseal_broadcast8,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(broadcast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_wanted(
    broadcast: *const moteseal_broadcast8,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(broadcast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_save(
    broadcast: *const moteseal_broadcast8,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(broadcast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 8 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast8_restore(
    broadcast: *mut moteseal_broadcast8,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(broadcast, snapshot, length) })
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_broadcast32_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 32 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_begin(
    broadcast: *mut moteseal_broadcast32,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_broadcast(broadcast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_persisted(
    broadcast: *mut moteseal_broadcast32,
    number: u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(broadcast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_take(
    broadcast: *mut moteseal_broadcast32,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(broadcast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_missing(
    broadcast: *const moteseal_broadcast32,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(broadcast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_wanted(
    broadcast: *const moteseal_broadcast32,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(broadcast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_save(
    broadcast: *const moteseal_broadcast32,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(broadcast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 32 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast32_restore(
    broadcast: *mut moteseal_broadcast32,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(broadcast, snapshot, length) })
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_broadcast64_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 64 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_begin(
    broadcast: *mut moteseal_broadcast64,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_broadcast(broadcast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_persisted(
    broadcast: *mut moteseal_broadcast64,
    number: u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(broadcast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_take(
    broadcast: *mut moteseal_broadcast64,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(broadcast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_missing(
    broadcast: *const moteseal_broadcast64,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(broadcast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_wanted(
    broadcast: *const moteseal_broadcast64,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(broadcast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_save(
    broadcast: *const moteseal_broadcast64,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(broadcast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 64 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast64_restore(
    broadcast: *mut moteseal_broadcast64,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(broadcast, snapshot, length) })
}
