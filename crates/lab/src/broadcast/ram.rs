//! Computes the memory that a chain needs at the sender and at a receiver (tables I and II), from
//! the sizes of the product's types on this machine. ROM depends on the firmware; this module does
//! not measure it.

use std::mem::size_of;

use moteseal_broadcast::recovery::Node;
use moteseal_broadcast::{Incoming, OutgoingChain, Tag};
use moteseal_core::Digest;

use super::PAYLOAD;
use super::chains::{CHAINS, SENDERS};

/// Returns the bytes that a sender needs in memory: the chain, a digest per block, a tag per
/// message if blocks have more than one message, and the messages, which the paper's sender
/// buffers. The product's sender can instead read the messages again when it sends them.
#[must_use]
pub fn sender(messages: u32, per_block: u8) -> Option<u64> {
    let blocks = u64::from(messages.div_ceil(u32::from(per_block).max(1)));
    let tags = if per_block > 1 { u64::from(messages) } else { 0 };
    let payloads = u64::from(messages) * PAYLOAD as u64;
    Some(
        size_of::<OutgoingChain<'_>>() as u64
            + blocks * size_of::<Digest>() as u64
            + tags * size_of::<Tag>() as u64
            + payloads,
    )
}

/// Returns the bytes that a receiver needs to verify one chain with blocks of this size. They do
/// not include messages, because verification does not keep them.
#[must_use]
pub const fn receiver(per_block: u8) -> Option<u64> {
    Some(match per_block {
        1 => size_of::<Incoming<1>>(),
        2 => size_of::<Incoming<2>>(),
        5 => size_of::<Incoming<5>>(),
        10 => size_of::<Incoming<10>>(),
        _ => return None,
    } as u64)
}

/// Returns the size in bytes of a complete node of the experiments, which verifies, relays, repairs
/// and limits rates. It has room for two senders and two chains with blocks of this size. Messages
/// are stored outside the node, in flash.
#[must_use]
pub const fn node(per_block: u8) -> Option<u64> {
    Some(match per_block {
        1 => size_of::<Node<'_, SENDERS, CHAINS, 1>>(),
        2 => size_of::<Node<'_, SENDERS, CHAINS, 2>>(),
        5 => size_of::<Node<'_, SENDERS, CHAINS, 5>>(),
        10 => size_of::<Node<'_, SENDERS, CHAINS, 10>>(),
        _ => return None,
    } as u64)
}
