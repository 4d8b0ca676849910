//! Decodes broadcast frames, one per datagram. Decoding does not authenticate them.

use ::moteseal_broadcast::wire::BroadcastFrame;
use moteseal_core::cbor::DecodeError;

use crate::boundary::{bytes, call, checked, put};
use crate::error::moteseal_error;

/// A frame with a sender's certificate.
pub const MOTESEAL_FRAME_CERTIFICATE: u8 = 32;
/// A frame with a base station's revocation.
pub const MOTESEAL_FRAME_REVOCATION: u8 = 33;
/// A frame with the head of a chain.
pub const MOTESEAL_FRAME_HEAD: u8 = 34;
/// A frame with a leaf of a chain: a message; the last leaf of a block also announces the next
/// block.
pub const MOTESEAL_FRAME_LEAF: u8 = 35;
/// A frame with a request: the leaves that a node is missing.
pub const MOTESEAL_FRAME_WANTED: u8 = 36;
/// A frame with a report: a node has all leaves of the chain up to and including this one.
pub const MOTESEAL_FRAME_HOLDS: u8 = 37;
/// A frame with a whole chain of one message: a live command.
pub const MOTESEAL_FRAME_SINGLE: u8 = 38;
/// A frame with the sum (XOR) of several leaves.
pub const MOTESEAL_FRAME_REPAIR: u8 = 39;

/// A broadcast frame, decoded but not authenticated: anyone may have sent it. Its pointers point
/// into the datagram.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_frame {
    /// The kind of frame: one of the constants `MOTESEAL_FRAME_...`.
    pub kind: u8,
    /// In a frame of the kind `MOTESEAL_FRAME_LEAF` or `MOTESEAL_FRAME_HOLDS`: the leaf's position
    /// in its block, counted from 0.
    pub index: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The number of the block, counted from 1, if the frame refers to one. 0 in a request for the
    /// chain's head and certificate, and in a report of a node that has only the head.
    pub block: u32,
    /// The chain's reference, if the frame refers to a chain.
    pub chain: [u8; 8],
    /// In a frame of the kind `MOTESEAL_FRAME_WANTED` or `MOTESEAL_FRAME_REPAIR`: the leaves that
    /// are requested or combined, bit `j` for leaf `j`. In a request for block 0, bit 0 is the head
    /// and bit 1 the certificate.
    pub mask: u64,
    /// The certificate, revocation, head or leaf that the frame contains; the head if the kind is
    /// `MOTESEAL_FRAME_SINGLE`; the XOR of the leaves if it is `MOTESEAL_FRAME_REPAIR`.
    pub body: *const u8,
    /// The body's length in bytes.
    pub body_length: usize,
    /// In a frame of the kind `MOTESEAL_FRAME_SINGLE`: the leaf. Otherwise empty.
    pub second: *const u8,
    /// The length of `second` in bytes.
    pub second_length: usize,
}

/// Decodes the frame in a datagram. The function checks the frame's encoding only, not its
/// signatures or digests.
///
/// @param frame  Its pointers point into `datagram`, which must stay unchanged as long as you use
///        the frame.
/// @return A decoding error; `UnknownItem` if the datagram is not a frame of a known kind, or is one
///         of a receiver that shares a key with the sender, which this library does not support.
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
            BroadcastFrame::Receipts { .. }
            | BroadcastFrame::ReceiptsWanted { .. }
            | BroadcastFrame::HeadWanted { .. }
            | BroadcastFrame::HeadFor { .. }
            | BroadcastFrame::ReceiverWanted { .. } => return Err(DecodeError::UnknownItem.into()),
        };
        read.kind = kind;
        (read.body, read.body_length) = (body.as_ptr(), body.len());
        (read.second, read.second_length) = (second.as_ptr(), second.len());
        // SAFETY: as above.
        unsafe { put(frame, read) }
    })
}
