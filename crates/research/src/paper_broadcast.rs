//! Signature amortization as published: Liu, Li and Guizani, "PKC Based Broadcast Authentication
//! using Signature Amortization for WSNs" (IEEE TWC 2012), sections III and V. The digests are
//! `d_i = H(m || ... || m || d_{i+1})`, and a chain starts with `EB_0 = d_1 || E(PR_s, d_1)`. `H`
//! is the first 64 bits of SHA-1, and the signature is ECDSA over secp160r1.
//!
//! This implementation keeps the weaknesses of the published scheme, so that the same attack can be
//! tried on it and on the product. A chain has no number, no network and no length. Messages are
//! joined without their boundaries. A receiver forwards fragments before it can check them, checks
//! every signature that it receives, and answers every acknowledgement. Where the paper does not
//! define a receiver's behaviour, this implementation chooses the safer behaviour and documents it.

use std::collections::BTreeMap;

use sha1::{Digest as _, Sha1};

use crate::secp160r1::{PublicKey, SIGNATURE, SecretKey};

/// The length of a digest, in bytes.
pub const DIGEST: usize = 8;

/// A digest: 64 bits of SHA-1.
pub type ShortDigest = [u8; DIGEST];

/// Returns the paper's `H` of the bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> ShortDigest {
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(&Sha1::digest(bytes)[..DIGEST]);
    digest
}

/// Returns `H(PAD(CON(B)))` (equations 2 to 4): the digest of the concatenation of a block's
/// messages and the next digest.
#[must_use]
pub fn block_digest<M: AsRef<[u8]>>(messages: &[M], next: &ShortDigest) -> ShortDigest {
    let mut hasher = Sha1::new();
    messages.iter().for_each(|message| hasher.update(message));
    hasher.update(next);
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(&hasher.finalize()[..DIGEST]);
    digest
}

/// The extended block `EB_i`: a block's messages and the digest of the next block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedBlock {
    /// The messages.
    pub messages: Vec<Vec<u8>>,
    /// The digest `d_{i+1}`; random in the last block.
    pub next: ShortDigest,
}

/// A chain, as algorithm 1 creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The digest `d_1`.
    pub first: ShortDigest,
    /// The signature of `d_1`.
    pub signature: [u8; SIGNATURE],
    /// `EB_1` to `EB_k`.
    pub blocks: Vec<ExtendedBlock>,
}

impl Chain {
    /// Creates the extended blocks and signs `d_1`. `random` is `d_{k+1}`.
    #[must_use]
    pub fn generate(
        messages: &[Vec<u8>],
        per_block: usize,
        random: ShortDigest,
        key: &SecretKey,
    ) -> Self {
        let (mut next, mut blocks) = (random, Vec::new());
        for messages in messages.chunks(per_block.max(1)).rev() {
            let block = ExtendedBlock { messages: messages.to_vec(), next };
            next = block_digest(&block.messages, &block.next);
            blocks.push(block);
        }
        blocks.reverse();
        Self { first: next, signature: key.sign(&next), blocks }
    }

    /// Returns all packets that a sender broadcasts, in order. A block's last packet also contains
    /// the digest of the next block.
    #[must_use]
    pub fn packets(&self) -> Vec<Packet> {
        let mut packets = vec![Packet::First { digest: self.first, signature: self.signature }];
        for (block, number) in self.blocks.iter().zip(1..) {
            packets.extend((0..block.messages.len()).map(|index| fragment(block, number, index)));
        }
        packets
    }

    /// Returns the number of bytes in addition to the messages: `L_sig + (k + 1) L_d`, as in
    /// equation 7.
    #[must_use]
    pub fn authenticator_bytes(&self) -> usize {
        SIGNATURE + (self.blocks.len() + 1) * DIGEST
    }
}

fn fragment(block: &ExtendedBlock, number: u32, index: usize) -> Packet {
    let next = (index + 1 == block.messages.len()).then_some(block.next);
    Packet::Fragment { block: number, index, message: block.messages[index].clone(), next }
}

/// A packet of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The start of a chain, `EB_0`.
    First {
        /// The digest `d_1`.
        digest: ShortDigest,
        /// The signature of `d_1`.
        signature: [u8; SIGNATURE],
    },
    /// A fragment: one message of a block.
    Fragment {
        /// The block, from 1.
        block: u32,
        /// The index of the message in the block, from 0.
        index: usize,
        /// The message.
        message: Vec<u8>,
        /// The digest of the next block, if this is the last message of its block.
        next: Option<ShortDigest>,
    },
    /// An acknowledgement, which states the missing messages of a block.
    Acknowledgement {
        /// The block.
        block: u32,
        /// The missing messages: bit `j` stands for message `j`.
        missing: u64,
    },
}

/// A receiver, which also answers its neighbours. The lengths of chain and block are agreed
/// beforehand, because `EB_0` does not contain them.
#[derive(Clone, Debug)]
pub struct Receiver {
    key: PublicKey,
    messages: usize,
    per_block: usize,
    /// The digest `d_i` of the current block; `None` before the first `EB_0`.
    expected: Option<ShortDigest>,
    /// The number of the current block, from 1.
    current: u32,
    held: BTreeMap<usize, (Vec<u8>, Option<ShortDigest>)>,
    /// Fragments of later blocks. The paper calls them "buffered".
    ahead: Vec<Packet>,
    verified: Vec<ExtendedBlock>,
    /// The messages delivered to the application, in order.
    pub accepted: Vec<Vec<u8>>,
    /// The number of signatures that the receiver has checked.
    pub signature_checks: u64,
    /// The number of complete blocks whose digest was wrong.
    pub failed_blocks: u64,
}

impl Receiver {
    /// Creates a receiver of chains with this number of messages, in blocks of `per_block`.
    #[must_use]
    pub const fn new(key: PublicKey, messages: usize, per_block: usize) -> Self {
        Self {
            key,
            messages,
            per_block,
            expected: None,
            current: 0,
            held: BTreeMap::new(),
            ahead: Vec::new(),
            verified: Vec::new(),
            accepted: Vec::new(),
            signature_checks: 0,
            failed_blocks: 0,
        }
    }

    /// Returns the number of fragments that the receiver keeps.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.held.len() + self.ahead.len()
    }

    /// Processes a packet and returns the packets that the receiver transmits in response (section
    /// III.A.2).
    pub fn receive(&mut self, packet: &Packet) -> Vec<Packet> {
        match packet {
            Packet::First { digest, signature } => {
                // Accept every valid `EB_0`: nothing distinguishes an old one from a new one.
                self.signature_checks += 1;
                if !self.key.verify(digest, signature) {
                    return Vec::new();
                }
                if self.expected == Some(*digest) && self.current == 1 {
                    return Vec::new();
                }
                (self.expected, self.current) = (Some(*digest), 1);
                self.held.clear();
                self.ahead.clear();
                self.verified.clear();
                vec![packet.clone()]
            }
            Packet::Fragment { block, index, message, next } => {
                self.fragment(packet, *block, *index, message, *next)
            }
            Packet::Acknowledgement { block, missing } => {
                let of = usize::try_from(*block)
                    .ok()
                    .and_then(|block| self.verified.get(block.checked_sub(1)?));
                let wanted = |(index, _): &(usize, &Vec<u8>)| missing >> index & 1 == 1;
                of.map_or_else(Vec::new, |of| {
                    of.messages
                        .iter()
                        .enumerate()
                        .take(64)
                        .filter(wanted)
                        .map(|(index, _)| fragment(of, *block, index))
                        .collect()
                })
            }
        }
    }

    fn in_block(&self) -> usize {
        self.messages.saturating_sub(self.verified.len() * self.per_block).min(self.per_block)
    }

    fn missing(&self) -> u64 {
        (0..self.in_block().min(64))
            .filter(|index| !self.held.contains_key(index))
            .fold(0, |bits, index| bits | 1 << index)
    }

    fn fragment(
        &mut self,
        packet: &Packet,
        block: u32,
        index: usize,
        message: &[u8],
        next: Option<ShortDigest>,
    ) -> Vec<Packet> {
        let Some(expected) = self.expected else { return Vec::new() };
        if block > self.current {
            // The paper: "The receiver buffers m_j and broadcasts an acknowledgement to ask for the
            // missing messages."
            self.ahead.push(packet.clone());
            return vec![Packet::Acknowledgement { block: self.current, missing: self.missing() }];
        }
        if block < self.current || index >= self.in_block() || self.held.contains_key(&index) {
            return Vec::new();
        }
        // The paper: "Tries authenticating EB_i and broadcasts m_j to its neighbors". A part of a
        // block cannot be authenticated, and is sent nevertheless.
        self.held.insert(index, (message.to_vec(), next));
        let mut out = vec![packet.clone()];
        if self.held.len() < self.in_block() {
            return out;
        }
        let held = std::mem::take(&mut self.held);
        let next = held.values().find_map(|(_, next)| *next).unwrap_or_default();
        let messages: Vec<_> = held.into_values().map(|(message, _)| message).collect();
        if block_digest(&messages, &next) != expected {
            // The paper does not define how a receiver continues after a wrong digest. Here the
            // block starts again, because otherwise it would be lost.
            self.failed_blocks += 1;
            return out;
        }
        self.accepted.extend(messages.iter().cloned());
        self.verified.push(ExtendedBlock { messages, next });
        (self.expected, self.current) = (Some(next), self.current + 1);
        for waiting in std::mem::take(&mut self.ahead) {
            out.extend(self.receive(&waiting));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use num_bigint::BigUint;

    use super::*;

    fn messages(n: u8) -> Vec<Vec<u8>> {
        (0..n).map(|i| vec![i; 20]).collect()
    }

    #[test]
    fn chains_of_any_block_length_are_accepted_completely() {
        let key = SecretKey::new(BigUint::from(77_u8)).unwrap();
        for per_block in 1..=10 {
            let chain = Chain::generate(&messages(9), per_block, [7; 8], &key);
            let mut receiver = Receiver::new(key.public().clone(), 9, per_block);
            for packet in chain.packets() {
                assert_eq!(
                    receiver.receive(&packet),
                    std::slice::from_ref(&packet),
                    "each packet is broadcast again, once"
                );
                assert_eq!(receiver.receive(&packet).len(), 0);
            }
            assert_eq!(receiver.accepted, messages(9));
        }
    }

    #[test]
    fn figure_1_has_three_blocks_of_three() {
        let key = SecretKey::new(BigUint::from(77_u8)).unwrap();
        let chain = Chain::generate(&messages(9), 3, [7; 8], &key);
        let d3 = digest(&[&[6; 20][..], &[7; 20], &[8; 20], &[7; 8]].concat());
        let d2 = digest(&[&[3; 20][..], &[4; 20], &[5; 20], &d3].concat());
        let d1 = digest(&[&[0; 20][..], &[1; 20], &[2; 20], &d2].concat());
        assert_eq!(
            (chain.first, chain.blocks[0].next, chain.blocks[1].next, chain.blocks[2].next),
            (d1, d2, d3, [7; 8])
        );
        assert_eq!(chain.authenticator_bytes(), 44 + 4 * 8);
    }

    #[test]
    fn a_lost_fragment_is_requested_after_the_next_block_arrives_and_a_neighbour_sends_it() {
        let key = SecretKey::new(BigUint::from(77_u8)).unwrap();
        let chain = Chain::generate(&messages(6), 3, [7; 8], &key);
        let (mut near, mut far) =
            (Receiver::new(key.public().clone(), 6, 3), Receiver::new(key.public().clone(), 6, 3));
        for (at, packet) in chain.packets().iter().enumerate() {
            near.receive(packet);
            // Lose the second message of the first block.
            if at != 2 {
                for relayed in far.receive(packet) {
                    for answer in near.receive(&relayed) {
                        far.receive(&answer);
                    }
                }
            }
        }
        assert_eq!((near.accepted, far.accepted), (messages(6), messages(6)));
    }
}
