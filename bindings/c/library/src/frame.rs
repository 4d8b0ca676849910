//! Broadcast frames, one a datagram: decoded, not authenticated.

use ::moteseal_broadcast::wire::BroadcastFrame;

use crate::error::moteseal_error;
use crate::memory::{bytes, call, checked, put};

/// A frame with a sender's certificate.
pub const MOTESEAL_FRAME_CERTIFICATE: u8 = 32;
/// A frame with a base station's revocation.
pub const MOTESEAL_FRAME_REVOCATION: u8 = 33;
/// A frame with the head of a chain.
pub const MOTESEAL_FRAME_HEAD: u8 = 34;
/// A frame with a leaf of a chain: a message; the last leaf of a block also announces the next
/// block.
pub const MOTESEAL_FRAME_LEAF: u8 = 35;
/// A request: the leaves that a node is missing.
pub const MOTESEAL_FRAME_WANTED: u8 = 36;
/// A report: the leaves that a node has.
pub const MOTESEAL_FRAME_HOLDS: u8 = 37;
/// A frame with a whole chain of one message: a live command.
pub const MOTESEAL_FRAME_SINGLE: u8 = 38;
/// A frame with the sum (XOR) of several leaves.
pub const MOTESEAL_FRAME_REPAIR: u8 = 39;

/// A frame of a broadcast, decoded but not authenticated: anybody can send one. Its pointers lead
/// into the datagram.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_frame {
    /// `MOTESEAL_FRAME_...`.
    pub kind: u8,
    /// In a leaf or holds frame: the leaf's place in its block.
    pub index: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The block, from 1, if the frame names one.
    pub block: u32,
    /// The chain's reference, if the frame names a chain.
    pub chain: [u8; 8],
    /// In a wanted or repair frame: the leaves, one bit each.
    pub mask: u64,
    /// The certificate, revocation, head or leaf; in a single frame the head; in a repair frame the
    /// sum.
    pub body: *const u8,
    /// The length in bytes.
    pub body_length: usize,
    /// In a single frame: the leaf.
    pub second: *const u8,
    /// The length in bytes.
    pub second_length: usize,
}

/// Decodes a frame: one datagram, one frame. Only its form is checked.
///
/// @param frame  Its pointers point into `datagram`, which must stay unchanged while they are used.
/// @return A decoding error; `UnknownItem` for anything that is not a known frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_frame_read(
    datagram: *const u8,
    length: usize,
    frame: *mut moteseal_frame,
) -> moteseal_error {
    call(|| {
        checked(frame)?;
        // SAFETY: the caller keeps the header's contract.
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
