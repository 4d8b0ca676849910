//! Computes the authenticator bytes per message on the air in three ways: from real encodings
//! (spec/broadcast.md), from the same encodings with digests of eight bytes as in the paper, and by
//! the paper's equation 7.

use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, OutgoingChain, Window,
};
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};
use serde::Serialize;

use super::{PAYLOAD, paper};

/// Sizes of our digests and tags, in bytes.
const DIGEST: u64 = 32;
const TAG: u64 = 8;
/// The longest chain that [`break_even`] tries.
const MOST: u32 = 1000;

/// The sizes of the parts of one chain other than its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Number of messages in the chain.
    pub messages: u32,
    /// Number of messages per block.
    pub per_block: u8,
    /// Size of the signature.
    pub signature: u64,
    /// Total size of all digests: the first block's in the head, and each later block's in the
    /// block before it.
    pub digests: u64,
    /// Total size of all tags.
    pub tags: u64,
    /// Size of everything on the air that is not a message: the frames of the head and of all
    /// fragments, without the messages in them.
    pub all: u64,
}

impl Bytes {
    /// Returns the bytes of signature, digests and tags per message.
    #[must_use]
    pub fn authenticators(&self) -> f64 {
        each(self.signature + self.digests + self.tags, self.messages)
    }

    /// Returns the same as [`authenticators`](Self::authenticators), but with digests of eight
    /// bytes, as in the paper. The result includes tags, which the paper does not have. With tags a
    /// node can reject forged fragments before a block is complete.
    #[must_use]
    pub fn short_authenticators(&self) -> f64 {
        each(
            self.signature + self.digests / DIGEST * u64::from(paper::DIGEST) + self.tags,
            self.messages,
        )
    }

    /// Returns the bytes per message of everything that is not a message.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        each(self.all, self.messages)
    }
}

#[allow(clippy::cast_precision_loss)]
fn each(bytes: u64, messages: u32) -> f64 {
    bytes as f64 / f64::from(messages.max(1))
}

/// Encodes a chain of messages of [`PAYLOAD`] bytes and counts the bytes of its parts. Returns
/// `None` if a chain cannot have this number of messages or this block size, or if the suite is not
/// built in.
#[must_use]
pub fn of(messages: u32, per_block: u8, algorithm: Algorithm) -> Option<Bytes> {
    let key = SecretKey::from_seed(algorithm, &[7; 32]).ok()?;
    let id =
        ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(1) };
    let draft = ChainDraft {
        id,
        key: KeyId::of(&key.public()),
        messages,
        per_block,
        kind: Kind::Announcement,
        label: "",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages as usize], vec![[0; 8]; messages as usize]);
    let mut scratch = vec![0; MAX_LEAF];
    let message = |number: u32, out: &mut [u8]| -> Result<usize, std::convert::Infallible> {
        out[..PAYLOAD].fill(0);
        out[..4].copy_from_slice(&number.to_be_bytes());
        Ok(PAYLOAD)
    };
    let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, message).ok()?;
    let (mut signed, mut head) = (vec![0; MAX_HEAD], vec![0; MAX_HEAD]);
    let head = chain.head(&key, &mut signed, &mut head).ok()?;
    let mut all = framed(&BroadcastFrame::Head(head))?;
    let mut trailers = 0;
    let mut leaf = vec![0; MAX_LEAF];
    for block in 1..=chain.blocks() {
        for index in 0..chain.in_block(block) {
            let mut text = [0; PAYLOAD];
            message(chain.outline().message(block, index), &mut text).ok()?;
            let leaf = chain.leaf(block, index, &text, &mut leaf).ok()?;
            trailers += (leaf.len() - PAYLOAD) as u64;
            all +=
                framed(&BroadcastFrame::Fragment { chain: chain.reference(), block, index, leaf })?
                    - PAYLOAD as u64;
        }
    }
    let first = if chain.in_block(1) > 1 { TAG * u64::from(chain.in_block(1)) } else { 0 };
    let digests = DIGEST * u64::from(chain.blocks());
    let signature = algorithm.signature_length() as u64;
    Some(Bytes {
        messages,
        per_block,
        signature,
        digests,
        tags: trailers + DIGEST + first - digests,
        all,
    })
}

fn framed(frame: &BroadcastFrame<'_>) -> Option<u64> {
    let mut buffer = vec![0; MAX_LEAF + MAX_HEAD];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).ok()?;
    Some(out.position() as u64)
}

/// Returns the smallest number of messages for which a chain adds fewer bytes than one signature
/// per message would. `None` if even a thousand messages are not enough.
#[must_use]
pub fn break_even(per_block: u8, algorithm: Algorithm) -> Option<u32> {
    (1..=MOST).find(|&messages| {
        of(messages, per_block, algorithm).is_some_and(|bytes| {
            bytes.all < u64::from(messages) * algorithm.signature_length() as u64
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_single_messages_has_one_digest_each_and_no_tags() {
        let bytes = of(100, 1, Algorithm::Ed25519).expect("such a chain");
        assert_eq!((bytes.signature, bytes.digests, bytes.tags), (64, 3200, 0));
    }

    /// Equation 7 counts one digest too many: the digest of a block that would follow the last one.
    #[test]
    fn blocks_have_one_digest_and_one_tag_per_message() {
        let bytes = of(100, 10, Algorithm::Ed25519).expect("such a chain");
        assert_eq!((bytes.digests, bytes.tags), (320, 800));
        assert!(
            (bytes.authenticators() - 11.84).abs() < 1e-9
                && (bytes.short_authenticators() - 9.44).abs() < 1e-9
        );
        let uneven = of(23, 10, Algorithm::Ed25519).expect("such a chain");
        assert_eq!((uneven.digests, uneven.tags), (96, 184));
        let last_alone = of(21, 10, Algorithm::Ed25519).expect("such a chain");
        assert_eq!(last_alone.tags, 160, "a block of one message has no tag");
    }

    #[test]
    fn chains_are_smaller_than_single_signatures_from_the_break_even_on() {
        for algorithm in [Algorithm::Ed25519, Algorithm::MlDsa44] {
            let messages = break_even(1, algorithm).expect("there is one");
            let gains = |messages| {
                of(messages, 1, algorithm).map(|bytes| {
                    bytes.all < u64::from(messages) * algorithm.signature_length() as u64
                })
            };
            assert_eq!((gains(messages - 1), gains(messages)), (Some(false), Some(true)));
        }
    }
}
