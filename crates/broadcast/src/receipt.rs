//! Receipts: how a sender learns which receivers have a chain (spec/broadcast.md, section 7).
//!
//! Each receiver shares a key with the sender ([`ReceiverKey`]). A receipt is a tag of 16 bytes
//! under this key over the head of a chain. Nodes combine the receipts of different receivers by
//! exclusive or, and state the set of receivers: Katz and Lindell, "Aggregate Message
//! Authentication Codes" (CT-RSA 2008). Only the sender can check a combined receipt, and no relay
//! can make one for a receiver that has not sent its own.
//!
//! The same key authenticates a receiver's requests, so that forged requests do not delay the
//! sender, and the heads that the sender sends to one receiver, so that a receiver finds the
//! genuine head among forged ones.

mod key;
mod relay;

pub use key::{
    KeyFileError, MAX_KEY_FILE, MAX_RECEIVER_NAME, ReceiverKey, ReceiverTag, check_receiver_name,
    decode_hex,
};
pub use relay::ReceiptRelay;

use subtle::ConstantTimeEq;

use crate::{ChainRef, KeyId, MAX_RECEIVERS};
use moteseal_core::participation::{Participation, ParticipationError};

/// The length of a tag in bytes.
pub const RECEIVER_TAG: usize = 16;

/// Reads the set of receivers of a frame: positions below [`MAX_RECEIVERS`].
///
/// # Errors
/// [`ParticipationError`].
pub fn receivers(bytes: &[u8]) -> Result<Participation<'_>, ParticipationError> {
    Participation::decode(bytes, MAX_RECEIVERS)
}

/// A request of a receiver for parts of a chain, as [`ReceiverKey::request`] authenticates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The chain.
    pub chain: ChainRef,
    /// The block; 0 asks for the head.
    pub block: u32,
    /// The leaves, as in a `Wanted` frame.
    pub wanted: u64,
    /// The number of the request. A receiver increases it with every request, and starts again
    /// from 1 after a restart.
    pub attempt: u32,
}

/// Combines two tags by exclusive or.
#[must_use]
pub fn combine(one: ReceiverTag, other: ReceiverTag) -> ReceiverTag {
    core::array::from_fn(|at| one[at] ^ other[at])
}

/// Compares two tags in constant time.
#[must_use]
pub fn is_tag(expected: &ReceiverTag, tag: &ReceiverTag) -> bool {
    bool::from(expected.ct_eq(tag))
}

/// A request of a receiver for the newest head of a sender's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRequest {
    /// The sender's key.
    pub key: KeyId,
    /// The highest number that the receiver has accepted under the key; 0 if there is none.
    pub above: u64,
}
