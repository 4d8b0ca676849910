//! The receiver of authenticated broadcasts (docs/design.md, section *broadcast*): it checks one
//! signature per chain and computes one hash per message.
//!
//! The receiver checks leaves and reports which ones are missing. The application decides when to
//! request missing leaves, what to store and what to relay. In Rust, `moteseal_broadcast::recovery`
//! does all of this; it has no C binding.

use ::moteseal_broadcast::wire::BroadcastFrame;
use ::moteseal_broadcast::{
    BYTES_PER_MESSAGE, BlockTooLarge, Head, HeadError, IncomingState, LeafError, MAX_HEAD,
    MAX_PER_BLOCK, MAX_SNAPSHOT, Taken,
};
use moteseal_core::cbor::Writer;

use crate::boundary::{
    Storage, array, array_ref, begin_array, begun, buffer, bytes, call, capacity, checked,
    clear_array, given, optional, put,
};
use crate::error::moteseal_error;
use crate::error::{by_name, moteseal_error as Error};
use crate::frame::{MOTESEAL_FRAME_LEAF, moteseal_frame};
use crate::sender::{check_floor, moteseal_sender};

/// A leaf that was already received.
pub const MOTESEAL_TAKEN_REPEATED: u8 = 0;
/// A leaf whose tag matches: you may store and relay it, but do not act on it yet.
pub const MOTESEAL_TAKEN_PENDING: u8 = 1;
/// A leaf that completes its block: every message of the block is authentic; you may act on them.
pub const MOTESEAL_TAKEN_VERIFIED: u8 = 2;

/// The maximum length of a receiver's snapshot, in bytes.
pub const MOTESEAL_MAX_SNAPSHOT: usize = 624;
/// The maximum length of a request, in bytes.
pub const MOTESEAL_MAX_WANTED: usize = 32;

const _: () = assert!(MOTESEAL_MAX_SNAPSHOT == MAX_SNAPSHOT);
// The parts of a request: the head of an array, the kind, the chain's reference, the block and the
// mask.
const _: () = assert!(MOTESEAL_MAX_WANTED >= 1 + 2 + 9 + 5 + 9);

/// A receiver of one chain whose blocks have at most `block` messages (1 to 64). It occupies
/// `MOTESEAL_BROADCAST_SIZE(block)` bytes of the caller's memory:
///
///     uint64_t memory[MOTESEAL_BROADCAST_SIZE(8) / 8] = {0};
///     moteseal_broadcast *broadcast = (moteseal_broadcast *)memory;
#[allow(non_camel_case_types)]
pub struct moteseal_broadcast([u8; 0]);

impl Storage for moteseal_broadcast {
    type Value = Receiver;
    type Element = [u8; BYTES_PER_MESSAGE];
    const MARK: u32 = 0x6d73_6203;
    const FIXED: usize = 328;
    const MOST: usize = MAX_PER_BLOCK as usize;
}

/// The fixed part of a receiver's memory. An array with 48 bytes for each message of a block
/// follows it.
pub struct Receiver {
    incoming: IncomingState,
    is_durable: bool,
}

/// The properties of a chain, as stated in its head. `label` points into the head's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_head_info {
    /// The chain's number. Make it durable as the sender's new floor before you act on any message
    /// of the chain.
    pub number: u64,
    /// The chain's reference, which every frame of the chain contains.
    pub chain: [u8; 8],
    /// The chain's label: UTF-8 without control characters, not terminated by a zero byte; may be
    /// empty.
    pub label: *const u8,
    /// The label's length in bytes, at most 64.
    pub label_length: usize,
    /// The number of messages in the chain.
    pub messages: u32,
    /// The number of blocks in the chain.
    pub blocks: u32,
    /// The first second in which the messages may be delivered, in Unix time.
    pub not_before: u64,
    /// The first second in which they may not be delivered any more, in Unix time; 2^64-1 for no end.
    /// Obey a command (kind 3) only if you know the time, and only within its window.
    pub not_after: u64,
    /// 0 for announcements, 1 for the pieces of one file, 2 for a query schedule, 3 for commands.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

/// The result of accepting a leaf. `message` points into the frame's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_taken {
    /// The leaf's message; null for a repeated leaf.
    pub message: *const u8,
    /// The message's length in bytes.
    pub message_length: usize,
    /// The number of the leaf's block, counted from 1.
    pub block: u32,
    /// One of the constants `MOTESEAL_TAKEN_...`.
    pub what: u8,
    /// 1 if the chain is now complete.
    pub is_last: u8,
    /// Zeros.
    pub reserved: [u8; 2],
}

by_name!(BlockTooLarge, HeadError, LeafError);

/// Checks the head of a chain, including its signature, and begins the chain's receiver. Make
/// `info->number` durable as the sender's new floor, read it back and pass it to
/// `moteseal_broadcast_persisted`. Until then, the receiver accepts no leaf.
///
/// @param broadcast, size  Memory for the receiver, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_BROADCAST_SIZE(block)`.
/// @param sender  The sender that must have signed the head.
/// @param head, length  The body of a head frame.
/// @param floor  The highest chain number accepted so far under this sender's key; null if there is
///        none.
/// @param info  Receives the chain's properties; `info->label` points into `head`.
/// @return `BufferTooSmall` (`size` is less than `MOTESEAL_BROADCAST_SIZE(1)`), `ChainGoesBack`
///         (found before the signature is checked), `WrongNetwork`, `WrongSender`, `WrongKey`,
///         `NotAuthentic`, `BlockTooLarge` (the chain's blocks have more messages than fit in
///         `size`), `UnknownItem` (the chain is encrypted for named receivers; this library does not
///         decrypt), or a decoding error. After an error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_begin(
    broadcast: *mut moteseal_broadcast,
    size: usize,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    call(|| {
        let count = capacity(broadcast, size)?;
        checked(info)?;
        // SAFETY: the caller keeps the header's contract.
        let (sender, bytes_of_head, floor) =
            unsafe { (begun(sender)?, bytes(head, length)?, optional(floor)?) };
        // Reject an old head first: the signature check is expensive.
        check_floor(Head::peek(bytes_of_head)?.id().number, floor)?;
        let mut scratch = [0; MAX_HEAD];
        let head = Head::open(bytes_of_head, sender.network, sender.id, &sender.key, &mut scratch)?;
        // This library does not decrypt.
        if head.outline().is_addressed {
            return Err(Error::UnknownItem);
        }
        if usize::from(head.outline().largest_block()) > count {
            return Err(Error::BlockTooLarge);
        }
        let label = head.label();
        let value = moteseal_head_info {
            number: head.id().number.0,
            chain: head.reference().0,
            label: label.as_ptr(),
            label_length: label.len(),
            messages: head.outline().messages,
            blocks: head.blocks(),
            not_before: head.window().not_before,
            not_after: head.window().not_after,
            kind: head.outline().kind_number(),
            reserved: [0; 7],
        };
        // SAFETY: as above; `capacity` checked that the memory has room for this many messages.
        unsafe {
            let memory = clear_array(broadcast, count, [0; BYTES_PER_MESSAGE]);
            let incoming = IncomingState::new(&head, memory)?;
            begin_array(broadcast, count, Receiver { incoming, is_durable: false });
            put(info, value)
        }
    })
}

/// Confirms that the chain's number is durable.
///
/// @param number  The number, as read back from the memory that stores the floor.
/// @return `Damaged` if it is not the chain's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_persisted(
    broadcast: *mut moteseal_broadcast,
    number: u64,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (receiver, _) = unsafe { array(broadcast)? };
        if number != receiver.incoming.outline().id.number.0 {
            return Err(Error::Damaged);
        }
        receiver.is_durable = true;
        Ok(())
    })
}

/// Checks a leaf; this computes one hash. The leaves of a block may arrive in any order; blocks
/// must arrive in order.
///
/// @param frame  A leaf frame, from `moteseal_frame_read`.
/// @param taken  Receives the result; `taken->message` points into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (not a leaf frame), `WrongChain`, `NotThisBlock`,
///         `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`, `ForgedLeaf`: nothing has changed.
///         `BlockMismatch`: discard all stored leaves of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_take(
    broadcast: *mut moteseal_broadcast,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    call(|| {
        checked(taken)?;
        // SAFETY: the caller keeps the header's contract.
        let ((receiver, memory), frame) = unsafe { (array(broadcast)?, given(frame)?) };
        if frame.kind != MOTESEAL_FRAME_LEAF {
            return Err(Error::UnknownItem);
        }
        if !receiver.is_durable {
            return Err(Error::NotPersisted);
        }
        let incoming = &mut receiver.incoming;
        if frame.chain != incoming.reference().0 {
            return Err(Error::WrongChain);
        }
        // SAFETY: as above: a frame's pointers point to as many bytes as it states.
        let leaf = unsafe { bytes(frame.body, frame.body_length)? };
        let (message, what, is_last) =
            match incoming.take(memory, frame.block, frame.index, leaf)? {
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
    })
}

/// Returns the missing leaves of the current block, bit `j` for leaf `j`; 0 if the chain is
/// complete.
const fn missing(incoming: &IncomingState) -> u64 {
    if incoming.is_complete() { 0 } else { incoming.missing() }
}

/// Returns which leaves are missing.
///
/// @param block  Receives the number of the current block, counted from 1. When the chain is
///        complete, this is the number of its blocks plus 1.
/// @param mask  Receives the missing leaves of that block: bit `j` for leaf `j`. 0 if the chain is
///        complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_missing(
    broadcast: *const moteseal_broadcast,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    call(|| {
        checked(block)?;
        checked(mask)?;
        // SAFETY: the caller keeps the header's contract.
        unsafe {
            let incoming = &array_ref(broadcast)?.0.incoming;
            put(block, incoming.current())?;
            put(mask, missing(incoming))
        }
    })
}

/// Writes the frame that requests the missing leaves. Send it rarely, after a random delay, and not
/// if another node has just requested the same leaves.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_wanted(
    broadcast: *const moteseal_broadcast,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let ((receiver, _), out) = unsafe { (array_ref(broadcast)?, buffer(out, capacity)?) };
        let (incoming, mut out) = (&receiver.incoming, Writer::new(out));
        let (chain, block) = (incoming.reference(), incoming.current());
        BroadcastFrame::Wanted { chain, block, wanted: missing(incoming) }.encode(&mut out)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Writes a snapshot with which the receiver can continue after a reboot: its position after the
/// last verified block. A snapshot is not authenticated: store it where no other device can write.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_save(
    broadcast: *const moteseal_broadcast,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let ((receiver, memory), out) = unsafe { (array_ref(broadcast)?, buffer(out, capacity)?) };
        if !receiver.is_durable {
            return Err(Error::NotPersisted);
        }
        let written = receiver.incoming.save(memory, out)?.len();
        // SAFETY: as above.
        unsafe { put(length, written) }
    })
}

/// Begins a receiver at the position of a snapshot.
///
/// @param broadcast, size  As for `moteseal_broadcast_begin`.
/// @return `BufferTooSmall`; a decoding error; `FieldOutOfRange` if the chain's blocks have more
///         messages than fit in `size`. After an error the receiver is not begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_broadcast_restore(
    broadcast: *mut moteseal_broadcast,
    size: usize,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        let count = capacity(broadcast, size)?;
        // SAFETY: the caller keeps the header's contract; `capacity` checked that the memory has
        // room for this many messages.
        unsafe {
            let snapshot = bytes(snapshot, length)?;
            let memory = clear_array(broadcast, count, [0; BYTES_PER_MESSAGE]);
            let incoming = IncomingState::restore(snapshot, memory)?;
            begin_array(broadcast, count, Receiver { incoming, is_durable: true });
        }
        Ok(())
    })
}
