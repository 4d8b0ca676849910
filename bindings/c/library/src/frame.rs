//! The frames of broadcasts as they travel, one a datagram: read, not checked.

use ::moteseal_broadcast::wire::BroadcastFrame;

use crate::error::moteseal_error;
use crate::memory::{bytes, call, checked, put};

/// A frame with a sender's certificate.
pub const MOTESEAL_FRAME_CERTIFICATE: u8 = 32;
/// A frame with a base station's revocation.
pub const MOTESEAL_FRAME_REVOCATION: u8 = 33;
/// A frame with the head of a chain.
pub const MOTESEAL_FRAME_HEAD: u8 = 34;
/// A frame with a leaf of a chain: a message, and of a block's last one what announces the next block.
pub const MOTESEAL_FRAME_LEAF: u8 = 35;
/// A frame that says what somebody lacks.
pub const MOTESEAL_FRAME_WANTED: u8 = 36;
/// A frame that says what somebody has.
pub const MOTESEAL_FRAME_HOLDS: u8 = 37;
/// A frame with a whole chain of one message: a live command.
pub const MOTESEAL_FRAME_SINGLE: u8 = 38;
/// A frame with several leaves added up.
pub const MOTESEAL_FRAME_REPAIR: u8 = 39;

/// A frame of a broadcast, read but not checked: anybody can write any. Its pointers lead into the bytes that were read.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_frame {
    /// `MOTESEAL_FRAME_...`.
    pub kind: u8,
    /// The leaf's place in its block, of a leaf or holds frame.
    pub index: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The block, from 1, of a frame that speaks of one.
    pub block: u32,
    /// The chain's reference, of a frame that speaks of one.
    pub chain: [u8; 8],
    /// Which leaves, a bit each, of a wanted or repair frame.
    pub mask: u64,
    /// The certificate, revocation, head or leaf; of a single its head; of a repair the added bytes.
    pub body: *const u8,
    /// Its length in bytes.
    pub body_length: usize,
    /// Of a single its leaf.
    pub second: *const u8,
    /// Its length in bytes.
    pub second_length: usize,
}

/// Reads a frame: one datagram, one frame. Nothing in it has been checked but its form.
///
/// @param frame  Its pointers lead into `datagram`, which must stay as it is while they are used.
/// @return The names of bytes; `UnknownItem` for what is none of these frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_frame_read(
    datagram: *const u8,
    length: usize,
    frame: *mut moteseal_frame,
) -> moteseal_error {
    call(|| {
        checked(frame)?;
        // SAFETY: the caller keeps what the header asks.
        let datagram = unsafe { bytes(datagram, length)? };
        let none = core::ptr::null();
        let mut read = moteseal_frame {
            kind: 0,
            index: 0,
            reserved: [0; 2],
            block: 0,
            chain: [0; 8],
            mask: 0,
            body: none,
            body_length: 0,
            second: none,
            second_length: 0,
        };
        let (kind, body, second): (u8, &[u8], &[u8]) = match BroadcastFrame::decode(datagram)? {
            BroadcastFrame::Certificate(body) => (MOTESEAL_FRAME_CERTIFICATE, body, &[]),
            BroadcastFrame::Revocation(body) => (MOTESEAL_FRAME_REVOCATION, body, &[]),
            BroadcastFrame::Head(body) => (MOTESEAL_FRAME_HEAD, body, &[]),
            BroadcastFrame::Fragment { chain, block, index, leaf } => {
                (read.chain, read.block, read.index) = (chain.0, block, index);
                (MOTESEAL_FRAME_LEAF, leaf, &[])
            }
            BroadcastFrame::Wanted { chain, block, wanted } => {
                (read.chain, read.block, read.mask) = (chain.0, block, wanted);
                (MOTESEAL_FRAME_WANTED, &[], &[])
            }
            BroadcastFrame::Holds { chain, block, index } => {
                (read.chain, read.block, read.index) = (chain.0, block, index);
                (MOTESEAL_FRAME_HOLDS, &[], &[])
            }
            BroadcastFrame::Single { head, leaf } => (MOTESEAL_FRAME_SINGLE, head, leaf),
            BroadcastFrame::Repair { chain, block, mask, bytes, .. } => {
                (read.chain, read.block, read.mask) = (chain.0, block, mask);
                (MOTESEAL_FRAME_REPAIR, bytes, &[])
            }
        };
        read.kind = kind;
        (read.body, read.body_length) = (body.as_ptr(), body.len());
        (read.second, read.second_length) = (second.as_ptr(), second.len());
        // SAFETY: as above.
        unsafe { put(frame, read) }
    })
}
