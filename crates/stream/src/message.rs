//! The messages of a stream.
//!
//! A message is a batch ([`moteseal_store::Batch::encode`]), and its id states the SHA-256 digest of the
//! batch. A batch that is longer than the servers' `max_payload` travels in pieces: an intake publishes
//! the pieces, then a message without a payload that states how many there are.

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use moteseal_core::digest::Digest;
use moteseal_store::Batch;

/// The header that states the digest of the whole batch, in hexadecimal.
pub(crate) const DIGEST: &str = "Moteseal-Digest";
/// The header that states the id of the pieces of a batch and their number.
pub(crate) const PIECES: &str = "Moteseal-Pieces";
/// The header that states how many bytes all pieces have.
pub(crate) const LENGTH: &str = "Moteseal-Length";
/// In a dead letter, the header that states the name of the error.
pub(crate) const ERROR: &str = "Moteseal-Error";
/// In a dead letter, the header that states the message's position in the stream.
pub(crate) const POSITION: &str = "Moteseal-Position";
/// The most bytes of a message's headers.
pub(crate) const HEADER_BYTES: usize = 1024;

/// Why a message can never be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unstorable {
    /// The headers are not those of an intake.
    NotAMessage,
    /// The content does not have the digest that the message states.
    Altered,
    /// The content is not a batch, or one of a later version.
    NotABatch,
    /// A piece of the batch does not exist.
    PieceMissing,
    /// The batch is longer than a worker accepts.
    TooLong,
}

impl Unstorable {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotAMessage => "NotAMessage",
            Self::Altered => "Altered",
            Self::NotABatch => "NotABatch",
            Self::PieceMissing => "PieceMissing",
            Self::TooLong => "TooLong",
        }
    }
}

/// What a message contains.
#[derive(Debug)]
pub(crate) enum Content {
    /// The whole batch.
    Whole(Digest, Bytes),
    /// The pieces of a batch.
    Pieces(Pieces),
}

/// Where the pieces of a batch are.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    pub(crate) digest: Digest,
    pub(crate) id: String,
    pub(crate) count: u32,
    pub(crate) length: u64,
}

impl Content {
    /// Returns what a message contains. Its digest is not checked yet.
    pub(crate) fn of(message: &Message) -> Result<Self, Unstorable> {
        let headers = message.headers.as_ref().ok_or(Unstorable::NotAMessage)?;
        Self::parse(headers, &message.payload).ok_or(Unstorable::NotAMessage)
    }

    fn parse(headers: &HeaderMap, payload: &Bytes) -> Option<Self> {
        let text = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
        let mut digest = Digest::NULL;
        hex::decode_to_slice(text(DIGEST)?, &mut digest.0).ok()?;
        let Some(pieces) = text(PIECES) else { return Some(Self::Whole(digest, payload.clone())) };
        let (id, count) = pieces.split_once(' ')?;
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Self::Pieces(Pieces {
            digest,
            id: is_id.then(|| id.to_owned())?,
            count: count.parse().ok()?,
            length: text(LENGTH)?.parse().ok()?,
        }))
    }
}

/// Returns how many bytes the batch of a message has, as far as the message states it.
pub(crate) fn length(message: &Message) -> usize {
    let of_pieces = message.headers.as_ref().and_then(|headers| headers.get(LENGTH));
    let of_pieces = of_pieces.and_then(|length| length.as_str().parse().ok()).unwrap_or(0);
    message.payload.len().saturating_add(of_pieces)
}

/// Returns the batch that these bytes encode, if they have this digest.
pub(crate) fn open(digest: &Digest, bytes: &[u8]) -> Result<Batch, Unstorable> {
    if Digest::of(&[bytes]) != *digest {
        return Err(Unstorable::Altered);
    }
    Batch::decode(bytes).ok_or(Unstorable::NotABatch)
}
