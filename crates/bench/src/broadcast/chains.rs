//! The product's chains, prepared for measurements at the sender and at a receiver.

use std::convert::Infallible;
use std::hint::black_box;

use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, Head, Incoming, KeyId, Kind, MAX_HEAD, MAX_LEAF,
    OutgoingChain, Tag, Taken, Window,
};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::{DeviceId, Digest};

use super::Message;
use crate::measure::Contender;

const ID: ChainId = ChainId {
    network: NetworkId(*b"a harbor"),
    sender: DeviceId(*b"thecrane"),
    number: ChainNumber(7),
};

pub(super) fn key(algorithm: Algorithm) -> SecretKey {
    SecretKey::from_seed(algorithm, &[5; 32]).expect("every suite is built in")
}

/// The memory of a sender.
struct Room {
    digests: Vec<Digest>,
    tags: Vec<Tag>,
    scratch: Vec<u8>,
}

impl Room {
    fn new(messages: usize) -> Self {
        Self {
            digests: vec![Digest::NULL; messages],
            tags: vec![[0; 8]; messages],
            scratch: vec![0; MAX_LEAF],
        }
    }

    fn build(
        &mut self,
        key: KeyId,
        number: ChainNumber,
        messages: &[Message],
        per_block: u8,
    ) -> OutgoingChain<'_> {
        let count = u32::try_from(messages.len()).expect("few messages");
        let id = ChainId { number, ..ID };
        let draft = ChainDraft {
            id,
            key,
            messages: count,
            per_block,
            kind: Kind::Announcement,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            is_addressed: false,
        };
        let read = |number: u32, buffer: &mut [u8]| {
            let message = &messages[number as usize];
            buffer[..message.len()].copy_from_slice(message);
            Ok::<_, Infallible>(message.len())
        };
        OutgoingChain::build(draft, &mut self.digests, &mut self.tags, &mut self.scratch, read)
            .expect("a valid chain")
    }
}

/// Returns a contender that does a sender's complete work, from messages to leaves. Each chain has
/// a different number, because the time of an ML-DSA-44 signature varies with the signed data.
pub(super) fn sealing<'a>(
    messages: &'a [Message],
    per_block: u8,
    key: &'a SecretKey,
) -> Contender<'a> {
    let mut room = Room::new(messages.len());
    let (mut signed, mut head, mut leaf) =
        (vec![0; MAX_HEAD], vec![0; MAX_HEAD], vec![0; MAX_LEAF]);
    let (mut number, id) = (ID.number, KeyId::of(&key.public()));
    Contender::new(messages.len(), move || {
        number.0 += 1;
        let chain = room.build(id, number, black_box(messages), per_block);
        black_box(chain.head(key, &mut signed, &mut head).expect("the key signs"));
        let mut left = messages.iter();
        for block in 1..=chain.blocks() {
            for (index, message) in (0..chain.in_block(block)).zip(&mut left) {
                black_box(
                    chain
                        .leaf(block, index, message, &mut leaf)
                        .expect("the message has not changed"),
                );
            }
        }
    })
}

/// The frames that a sender has sent.
pub(super) struct Sent {
    per_block: u8,
    key: PublicKey,
    head: Vec<u8>,
    leaves: Vec<(u32, u8, Vec<u8>)>,
}

impl Sent {
    pub(super) fn new(messages: &[Message], per_block: u8, key: &SecretKey) -> Self {
        let mut room = Room::new(messages.len());
        let chain = room.build(KeyId::of(&key.public()), ID.number, messages, per_block);
        let (mut signed, mut head, mut out) =
            (vec![0; MAX_HEAD], vec![0; MAX_HEAD], vec![0; MAX_LEAF]);
        let head = chain.head(key, &mut signed, &mut head).expect("the key signs").to_vec();
        let places = (1..=chain.blocks())
            .flat_map(|block| (0..chain.in_block(block)).map(move |index| (block, index)));
        let leaf = |((block, index), message): ((u32, u8), &Message)| {
            (
                block,
                index,
                chain
                    .leaf(block, index, message, &mut out)
                    .expect("the message has not changed")
                    .to_vec(),
            )
        };
        let leaves = places.zip(messages).map(leaf).collect();
        Self { per_block, key: key.public(), head, leaves }
    }

    /// Returns these frames with the last leaf of each block first. The receiver must then also
    /// check the leaf's tag.
    pub(super) fn backwards(&self) -> Self {
        let mut leaves = self.leaves.clone();
        leaves.sort_by_key(|(block, index, _)| (*block, std::cmp::Reverse(*index)));
        Self { per_block: self.per_block, key: self.key.clone(), head: self.head.clone(), leaves }
    }

    pub(super) const fn per_block(&self) -> u8 {
        self.per_block
    }

    fn open(&self, scratch: &mut [u8]) -> Head<'_> {
        Head::open(black_box(&self.head), ID.network, ID.sender, &self.key, scratch)
            .expect("an authentic head")
    }

    fn take_all<const B: usize>(&self, head: &Head<'_>) {
        let mut incoming =
            Incoming::<B>::new(black_box(head)).expect("there is room for the block");
        for (block, index, leaf) in &self.leaves {
            match incoming.take(*block, *index, black_box(leaf)) {
                Ok(Taken::Pending { message } | Taken::Verified { message, .. }) => {
                    black_box(message);
                }
                refused => panic!("{refused:?}"),
            }
        }
        assert!(incoming.is_complete());
    }

    /// Verifies the frames with a receiver that has room for blocks of this size.
    fn take(&self, head: &Head<'_>) {
        match self.per_block {
            1 => self.take_all::<1>(head),
            2 => self.take_all::<2>(head),
            3..=5 => self.take_all::<5>(head),
            _ => self.take_all::<10>(head),
        }
    }

    /// Returns a contender that does a receiver's work after it has opened the head, from the first
    /// leaf to the last, `times` times.
    pub(super) fn following(&self, times: usize) -> Contender<'_> {
        let mut scratch = vec![0; MAX_HEAD];
        let head = self.open(&mut scratch);
        Contender::new(times * self.leaves.len(), move || (0..times).for_each(|_| self.take(&head)))
    }

    /// Returns a contender that does a receiver's complete work: it opens the head and verifies all
    /// messages.
    pub(super) fn verifying(&self, times: usize) -> Contender<'_> {
        let mut scratch = vec![0; MAX_HEAD];
        Contender::new(times * self.leaves.len(), move || {
            for _ in 0..times {
                let head = self.open(&mut scratch);
                self.take(&head);
            }
        })
    }
}
