//! Tests that a verifier accepts a block if and only if it is what the sender signed. A simple
//! reference implementation, which hashes whole chains, gives the expected results.

use std::collections::BTreeSet;

use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainNumber, ContentChanged, DraftError, Head, HeadError,
    Incoming, KeyId, Kind, LeafError, MAX_HEAD, MAX_LEAF, MAX_MESSAGE, MAX_SNAPSHOT, OutgoingChain,
    Taken, Window,
};
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::cose::{Protected, Sign1, Typ, sig_structure};
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey, SignatureError, Signer};
use moteseal_core::{DeviceId, Digest};
use proptest::prelude::*;
use sha2::Digest as _;

const ID: ChainId = ChainId {
    network: NetworkId(*b"a harbor"),
    sender: DeviceId(*b"thecrane"),
    number: ChainNumber(7),
};

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[5; 32]).unwrap()
}

/// Returns the SHA-256 of a role's prefix and `data`.
fn hash(role: u8, data: &[u8]) -> Vec<u8> {
    let mut prefix = b"moteseal/cast/1".to_vec();
    prefix.resize(24, 0);
    prefix.extend(ID.network.0);
    prefix.extend(ID.sender.0);
    prefix.extend(
        &sha2::Sha256::digest([&b"moteseal/1/key\0"[..], &key().public().to_bytes()].concat())[..8],
    );
    prefix.extend(ID.number.0.to_be_bytes());
    prefix.push(role);
    prefix.resize(64, 0);
    sha2::Sha256::digest([&prefix, data].concat()).to_vec()
}

/// The reference implementation's chain: the digest and tags of the first block, as in the head,
/// and the leaves of all blocks.
struct Reference {
    first: Vec<u8>,
    tags: Vec<u8>,
    leaves: Vec<Vec<Vec<u8>>>,
}

fn reference(messages: &[Vec<u8>], per_block: usize) -> Reference {
    let (mut first, mut tags, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
    for block in messages.chunks(per_block).rev() {
        let mut block = block.to_vec();
        let last = block.last_mut().unwrap();
        *last = [&first[..], &tags[..], last].concat();
        let hashes: Vec<_> = block.iter().map(|leaf| hash(0, leaf)).collect();
        let (_, others) = hashes.split_last().unwrap();
        first = hash(1, &[block.last().unwrap().clone(), others.concat()].concat());
        tags = if block.len() == 1 {
            Vec::new()
        } else {
            hashes.iter().flat_map(|hash| hash[..8].to_vec()).collect()
        };
        leaves.insert(0, block);
    }
    Reference { first, tags, leaves }
}

/// Returns a signed head with the given fields.
fn head(messages: u32, per_block: u8, longest: u16, first: &[u8], tags: &[u8]) -> Vec<u8> {
    head_by(&key(), messages, per_block, longest, first, tags)
}

/// Returns a head with the given fields, signed with any key.
fn head_by(
    signer: &SecretKey,
    messages: u32,
    per_block: u8,
    longest: u16,
    first: &[u8],
    tags: &[u8],
) -> Vec<u8> {
    let (mut header, mut payload, mut scratch, mut out) =
        ([0; 40], [0; MAX_HEAD], [0; MAX_HEAD], [0; MAX_HEAD]);
    let mut writer = Writer::new(&mut payload);
    writer
        .array(16)
        .unwrap()
        .uint(1_u8)
        .unwrap()
        .bytes(&ID.network.0)
        .unwrap()
        .bytes(&ID.sender.0)
        .unwrap();
    writer.bytes(&KeyId::of(&key().public()).0).unwrap();
    writer
        .uint(ID.number.0)
        .unwrap()
        .uint(messages)
        .unwrap()
        .uint(per_block)
        .unwrap()
        .uint(longest)
        .unwrap();
    writer
        .uint(0_u8)
        .unwrap()
        .text("orders")
        .unwrap()
        .uint(0_u8)
        .unwrap()
        .uint(u64::MAX)
        .unwrap()
        .uint(0_u8)
        .unwrap()
        .int(-16)
        .unwrap()
        .bytes(first)
        .unwrap()
        .bytes(tags)
        .unwrap();
    let payload = writer.finish();
    let mut writer = Writer::new(&mut header);
    Protected::new(signer.algorithm(), Typ::Chain).encode(&mut writer).unwrap();
    let header = writer.finish();
    let signature =
        signer.signature(sig_structure(&mut scratch, header, payload).unwrap()).unwrap();
    let mut writer = Writer::new(&mut out);
    Sign1::encode(&mut writer, header, payload, &signature).unwrap();
    writer.finish().to_vec()
}

fn open(bytes: &[u8]) -> Result<Head<'_>, HeadError> {
    Head::open(bytes, ID.network, ID.sender, &key().public(), &mut [0; MAX_HEAD])
}

fn draft(messages: usize, per_block: u8) -> ChainDraft<'static> {
    ChainDraft {
        id: ID,
        key: KeyId::of(&key().public()),
        messages: u32::try_from(messages).unwrap(),
        per_block,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    }
}

/// Returns a sender's output for these messages: the head, and the leaves of all blocks.
fn outgoing(messages: &[Vec<u8>], per_block: u8) -> (Vec<u8>, Vec<Vec<Vec<u8>>>) {
    let mut digests = vec![Digest::NULL; messages.len()];
    let mut tags = vec![[0; 8]; if per_block == 1 { 0 } else { messages.len() }];
    let mut scratch = [0; MAX_LEAF];
    let mut reads = BTreeSet::new();
    let read = |number: u32, buffer: &mut [u8]| -> Result<usize, std::convert::Infallible> {
        assert!(reads.insert(number), "message {number} is read twice");
        let message = &messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok(message.len())
    };
    let chain = OutgoingChain::build(
        draft(messages.len(), per_block),
        &mut digests,
        &mut tags,
        &mut scratch,
        read,
    )
    .unwrap();
    let mut out = [0; MAX_HEAD];
    let head = chain.head(&key(), &mut [0; MAX_HEAD], &mut out).unwrap().to_vec();
    let leaf = |block, index, message: &Vec<u8>| {
        chain.leaf(block, index, message, &mut [0; MAX_LEAF]).unwrap().to_vec()
    };
    let blocks = (1..).zip(messages.chunks(per_block.into()));
    let leaves = blocks.map(|(block, messages)| {
        (0..).zip(messages).map(|(index, message)| leaf(block, index, message)).collect()
    });
    let leaves = leaves.collect();
    (head, leaves)
}

fn some_messages(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| (0..number * 7 % 23).map(|byte| (byte * 5 + number) as u8).collect())
        .collect()
}

fn orders(leaves: usize) -> Vec<Vec<usize>> {
    if leaves == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(leaves - 1);
    let with = |order: &Vec<usize>, at: usize| [&order[..at], &[leaves - 1], &order[at..]].concat();
    shorter.iter().flat_map(|order| (0..leaves).map(move |at| with(order, at))).collect()
}

/// Passes the leaves of a block to a verifier in this order.
fn take_block<const B: usize>(
    chain: &mut Incoming<B>,
    block: u32,
    order: &[usize],
    leaves: &[Vec<u8>],
    messages: &[Vec<u8>],
) {
    let is_last = block == chain.outline().blocks();
    for (so_far, &index) in (1..).zip(order) {
        let message = &messages[index][..];
        let expected = if so_far == order.len() {
            Taken::Verified { message, block, is_last }
        } else {
            Taken::Pending { message }
        };
        assert_eq!(chain.take(block, index as u8, &leaves[index]), Ok(expected));
    }
}

proptest! {
    #[test]
    fn a_sender_produces_the_reference_chain(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 1..90),
        per_block in 1_u8..=64,
    ) {
        let (bytes, leaves) = outgoing(&messages, per_block);
        let expected = reference(&messages, per_block.into());
        let longest = messages.iter().map(Vec::len).max().unwrap();
        prop_assert_eq!(&bytes, &head(messages.len() as u32, per_block, longest as u16, &expected.first, &expected.tags));
        prop_assert_eq!(leaves, expected.leaves);
    }

    #[test]
    fn accepts_leaves_in_any_order_with_repetitions(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 1..90),
        per_block in 1_u8..=64,
        seed: u64,
    ) {
        let (bytes, leaves) = outgoing(&messages, per_block);
        let mut chain = Incoming::<64>::new(&open(&bytes).unwrap()).unwrap();
        let mut state = seed | 1;
        for (block, leaves) in (1..).zip(&leaves) {
            let mut seen = BTreeSet::new();
            while chain.current() == block {
                // A linear congruential generator (Knuth's MMIX).
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = (state >> 33) as usize % leaves.len();
                let missing = chain.missing();
                prop_assert_eq!(missing >> index & 1 == 0, seen.contains(&index));
                let message = &messages[(block as usize - 1) * usize::from(per_block) + index][..];
                let expected = match (seen.insert(index), seen.len() == leaves.len()) {
                    (false, _) => Taken::Repeated,
                    (true, false) => Taken::Pending { message },
                    (true, true) => Taken::Verified { message, block, is_last: block as usize == messages.chunks(per_block.into()).len() },
                };
                prop_assert_eq!(chain.take(block, index as u8, &leaves[index]), Ok(expected));
            }
        }
        prop_assert!(chain.is_complete());
        prop_assert_eq!(chain.missing(), 0);
    }
}

#[test]
fn rejects_a_damaged_snapshot_unless_it_is_valid() {
    let (bytes, _) = outgoing(&some_messages(13), 4);
    let chain = Incoming::<5>::new(&open(&bytes).unwrap()).unwrap();
    let mut out = [0; MAX_SNAPSHOT];
    let snapshot = chain.save(&mut out).unwrap().to_vec();
    let (mut others, mut refused) = (0, 0);
    for place in 0..snapshot.len() {
        for byte in 0..=255 {
            let mut damaged = snapshot.clone();
            damaged[place] = byte;
            match Incoming::<5>::restore(&damaged) {
                Ok(chain) => {
                    assert_eq!(chain.save(&mut out).unwrap(), &damaged[..], "{place} {byte}");
                    assert!(chain.current() <= chain.outline().blocks() + 1);
                    others += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(others > 1000 && refused > 1000, "{others} {refused}");
}

#[test]
fn accepts_the_leaves_of_small_chains_in_every_order() {
    let mut taken = 0;
    for count in 1..=7 {
        for per_block in 1..=5 {
            let messages = some_messages(count);
            let (bytes, leaves) = outgoing(&messages, per_block);
            let whole = Incoming::<5>::new(&open(&bytes).unwrap()).unwrap();
            // Try every order of the leaves of one block, with all other blocks in order.
            for (chosen, chosen_leaves) in leaves.iter().enumerate() {
                for order in orders(chosen_leaves.len()) {
                    let mut chain = whole;
                    for (at, (block, messages)) in
                        leaves.iter().zip(messages.chunks(per_block.into())).enumerate()
                    {
                        let in_order: Vec<_> = (0..block.len()).collect();
                        let order = if at == chosen { &order } else { &in_order };
                        take_block(&mut chain, at as u32 + 1, order, block, messages);
                    }
                    assert!(chain.is_complete());
                    taken += 1;
                }
            }
        }
    }
    assert!(taken > 500, "only {taken} orders");
}

#[test]
fn a_leaf_with_a_flipped_bit_is_rejected_and_changes_nothing() {
    for per_block in [1, 2, 3] {
        let messages = some_messages(5);
        let (bytes, leaves) = outgoing(&messages, per_block);
        let mut whole = Incoming::<3>::new(&open(&bytes).unwrap()).unwrap();
        for (at, (block, messages)) in
            leaves.iter().zip(messages.chunks(per_block.into())).enumerate()
        {
            let number = at as u32 + 1;
            for order in orders(block.len()) {
                let mut chain = whole;
                for (&index, so_far) in order.iter().zip(1..) {
                    for bit in 0..block[index].len() * 8 {
                        let mut forged = block[index].clone();
                        forged[bit / 8] ^= 1 << (bit % 8);
                        assert_eq!(
                            chain.take(number, index as u8, &forged),
                            Err(LeafError::ForgedLeaf),
                            "{order:?} bit {bit}"
                        );
                    }
                    assert_eq!(chain.missing().count_ones() as usize, block.len() - so_far + 1);
                    chain.take(number, index as u8, &block[index]).unwrap();
                    // A forged copy of a received leaf must be rejected, not reported as
                    // `Repeated`, because nodes withhold answers when they receive copies.
                    if so_far < block.len() && !block[index].is_empty() {
                        let mut forged = block[index].clone();
                        forged[0] ^= 1;
                        assert_eq!(
                            chain.take(number, index as u8, &forged),
                            Err(LeafError::ForgedLeaf)
                        );
                    }
                }
                assert_eq!(chain.current(), number + 1);
            }
            take_block(&mut whole, number, &(0..block.len()).collect::<Vec<_>>(), block, messages);
        }
    }
}

#[test]
fn rejects_every_flipped_bit_of_a_head() {
    let (bytes, _) = outgoing(&some_messages(4), 2);
    assert!(open(&bytes).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&forged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(
            matches!(open(&bytes[..length]), Err(HeadError::Decode(DecodeError::Truncated))),
            "{length} bytes"
        );
    }
}

#[test]
fn rejects_a_leaf_in_the_wrong_place() {
    let messages = some_messages(9);
    let (bytes, leaves) = outgoing(&messages, 3);
    let mut chain = Incoming::<3>::new(&open(&bytes).unwrap()).unwrap();
    for block in 0..4 {
        for index in 0..4_u8 {
            let expected = match (block, index) {
                (1, 3) => LeafError::IndexOutOfRange,
                // The block is right, but the leaf belongs to another index.
                (1, _) => LeafError::ForgedLeaf,
                _ => LeafError::NotThisBlock,
            };
            let found = chain.take(block, index, &leaves[0][usize::from(index + 1) % 3]);
            let expected = match (block, index) {
                // The leaf has no trailer, but the last leaf of a block needs one.
                (1, 2) => LeafError::LeafTooShort,
                // The last leaf has a trailer, but the leaf at this index must not have one.
                (1, 1) => LeafError::LeafTooLong,
                _ => expected,
            };
            assert_eq!(found, Err(expected), "{block} {index}");
        }
    }
    for (block, (leaves, messages)) in (1..).zip(leaves.iter().zip(messages.chunks(3))) {
        take_block(&mut chain, block, &[0, 1, 2], leaves, messages);
    }
    assert_eq!(chain.take(4, 0, &[]), Err(LeafError::NotThisBlock));
    assert_eq!(chain.take(3, 0, &leaves[2][0]), Err(LeafError::NotThisBlock));
}

#[test]
fn rejects_a_leaf_longer_than_the_head_allows() {
    let messages = vec![vec![1; 40], vec![2; 60]];
    let (bytes, leaves) = outgoing(&messages, 1);
    let mut chain = Incoming::<1>::new(&open(&bytes).unwrap()).unwrap();
    assert_eq!(chain.take(1, 0, &[0; 32 + 61]), Err(LeafError::LeafTooLong));
    assert_eq!(chain.take(1, 0, &[0; 32 + 60]), Err(LeafError::ForgedLeaf));
    assert_eq!(chain.take(1, 0, &[0; 31]), Err(LeafError::LeafTooShort));
    assert!(chain.take(1, 0, &leaves[0][0]).is_ok());
    assert_eq!(chain.take(2, 0, &[0; 61]), Err(LeafError::LeafTooLong));
}

/// The sender signs tags and a digest that do not match.
#[test]
fn restarts_a_block_that_matches_its_tags_but_not_its_digest() {
    let messages = some_messages(3);
    let honest = reference(&messages, 3);
    let mut wrong = honest.first.clone();
    wrong[31] ^= 1;
    let bytes = head(3, 3, 40, &wrong, &honest.tags);
    let whole = Incoming::<3>::new(&open(&bytes).unwrap()).unwrap();
    for order in orders(3) {
        let mut chain = whole;
        for (so_far, &index) in (1..).zip(&order) {
            let leaf = &honest.leaves[0][index];
            let taken = chain.take(1, index as u8, leaf);
            let expected = if so_far < 3 {
                Ok(Taken::Pending { message: &messages[index] })
            } else {
                Err(LeafError::BlockMismatch)
            };
            assert_eq!(taken, expected, "{order:?}");
        }
        assert_eq!((chain.current(), chain.missing()), (1, 0b111));
    }
}

#[test]
fn rejects_blocks_larger_than_the_receiver() {
    let (bytes, _) = outgoing(&some_messages(9), 3);
    assert!(Incoming::<3>::new(&open(&bytes).unwrap()).is_ok());
    assert_eq!(Incoming::<2>::new(&open(&bytes).unwrap()).unwrap_err().name(), "BlockTooLarge");
    // The chain has fewer messages than a block may have, so a receiver with less room suffices.
    let (bytes, _) = outgoing(&some_messages(2), 64);
    assert!(Incoming::<2>::new(&open(&bytes).unwrap()).is_ok());
}

#[test]
fn continues_from_a_snapshot_at_every_block() {
    for per_block in [1, 2, 4, 5] {
        let messages = some_messages(13);
        let (bytes, leaves) = outgoing(&messages, per_block);
        let mut chain = Incoming::<5>::new(&open(&bytes).unwrap()).unwrap();
        for (at, (block, messages)) in
            leaves.iter().zip(messages.chunks(per_block.into())).enumerate()
        {
            let mut snapshot = [0; MAX_SNAPSHOT];
            let snapshot = chain.save(&mut snapshot).unwrap();
            let restored = Incoming::<5>::restore(snapshot).unwrap();
            assert_eq!(restored.save(&mut [0; MAX_SNAPSHOT]).unwrap(), snapshot);
            assert_eq!(
                (restored.current(), restored.missing(), restored.outline()),
                (chain.current(), chain.missing(), chain.outline())
            );
            if per_block > 1 {
                assert_eq!(
                    Incoming::<1>::restore(snapshot).unwrap_err(),
                    DecodeError::FieldOutOfRange
                );
            }
            for length in 0..snapshot.len() {
                assert_eq!(
                    Incoming::<5>::restore(&snapshot[..length]).unwrap_err(),
                    DecodeError::Truncated
                );
            }
            // A leaf that was received before the snapshot is accepted again.
            if block.len() > 1 {
                chain.take(at as u32 + 1, 0, &block[0]).unwrap();
                assert_eq!(chain.save(&mut [0; MAX_SNAPSHOT]).unwrap(), snapshot);
            }
            chain = restored;
            take_block(
                &mut chain,
                at as u32 + 1,
                &(0..block.len()).collect::<Vec<_>>(),
                block,
                messages,
            );
        }
        let mut snapshot = [0; MAX_SNAPSHOT];
        assert!(Incoming::<5>::restore(chain.save(&mut snapshot).unwrap()).unwrap().is_complete());
    }
}

#[test]
fn does_not_send_a_message_that_changed_since_it_was_hashed() {
    for per_block in [1, 2, 3] {
        let messages = some_messages(7);
        let (mut digests, mut tags) = (vec![Digest::NULL; 7], vec![[0; 8]; 7]);
        let read = |number: u32, buffer: &mut [u8]| -> Result<usize, std::convert::Infallible> {
            let message = &messages[number as usize];
            buffer[..message.len()].copy_from_slice(message);
            Ok(message.len())
        };
        let chain = OutgoingChain::build(
            draft(7, per_block),
            &mut digests,
            &mut tags,
            &mut [0; MAX_LEAF],
            read,
        )
        .unwrap();
        let mut out = [0; MAX_LEAF];
        for number in 0..7_u32 {
            let (block, index) =
                (number / u32::from(per_block) + 1, (number % u32::from(per_block)) as u8);
            let message = &messages[number as usize];
            assert!(chain.leaf(block, index, message, &mut out).is_ok());
            for bit in 0..message.len() * 8 {
                let mut changed = message.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    chain.leaf(block, index, &changed, &mut out),
                    Err(ContentChanged::ContentChanged)
                );
            }
            let longer = [&message[..], &[0]].concat();
            assert_eq!(
                chain.leaf(block, index, &longer, &mut out),
                Err(ContentChanged::ContentChanged)
            );
            let whole = chain.leaf(block, index, message, &mut out).unwrap().len();
            if whole > 0 {
                assert_eq!(
                    chain.leaf(block, index, message, &mut out[..whole - 1]),
                    Err(ContentChanged::BufferTooSmall)
                );
            }
        }
        assert_eq!(chain.leaf(1, per_block, &[], &mut out), Err(ContentChanged::NoSuchLeaf));
        assert_eq!(chain.leaf(0, 0, &[], &mut out), Err(ContentChanged::NoSuchLeaf));
        assert_eq!(chain.leaf(8, 0, &[], &mut out), Err(ContentChanged::NoSuchLeaf));
    }
}

#[test]
fn rejects_invalid_drafts() {
    let build = |draft, digests: usize, tags: usize, scratch: usize, length: usize| {
        let (mut digests, mut tags) = (vec![Digest::NULL; digests], vec![[0; 8]; tags]);
        let read =
            |_: u32, _: &mut [u8]| if length == 77 { Err("read failed") } else { Ok(length) };
        OutgoingChain::build(draft, &mut digests, &mut tags, &mut vec![0; scratch], read)
            .map(|chain| chain.outline().longest)
    };
    let refused = |error| Err(BuildError::Draft(error));
    let long = "x".repeat(65);
    let good = draft(3, 2);
    assert_eq!(build(good, 2, 3, MAX_LEAF, 20), Ok(20));
    assert_eq!(build(good, 2, 3, MAX_LEAF, MAX_MESSAGE), Ok(8192));
    assert_eq!(build(good, 2, 3, MAX_LEAF, MAX_MESSAGE + 1), refused(DraftError::MessageTooLong));
    assert_eq!(build(good, 2, 3, MAX_LEAF, 77), Err(BuildError::Read("read failed")));
    assert_eq!(build(good, 1, 3, MAX_LEAF, 20), refused(DraftError::BufferTooSmall));
    assert_eq!(build(good, 2, 2, MAX_LEAF, 20), refused(DraftError::BufferTooSmall));
    assert_eq!(build(good, 2, 3, 31, 20), refused(DraftError::BufferTooSmall));
    assert_eq!(build(ChainDraft { per_block: 1, ..good }, 3, 0, MAX_LEAF, 20), Ok(20));
    assert_eq!(
        build(ChainDraft { messages: 0, ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::NoMessages)
    );
    assert_eq!(
        build(ChainDraft { messages: (1 << 24) + 1, ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::TooManyMessages)
    );
    assert_eq!(
        build(ChainDraft { per_block: 0, ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::BlockTooLarge)
    );
    assert_eq!(
        build(ChainDraft { per_block: 65, ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::BlockTooLarge)
    );
    assert_eq!(
        build(ChainDraft { label: &long, ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::LabelTooLong)
    );
    assert_eq!(
        build(ChainDraft { label: "\u{1b}[2J", ..good }, 3, 3, MAX_LEAF, 20),
        refused(DraftError::LabelNotPlain)
    );
}

#[test]
fn rejects_a_head_that_no_draft_produces() {
    let out_of_range = Some(HeadError::Decode(DecodeError::FieldOutOfRange));
    let refusal = |bytes: Vec<u8>| open(&bytes).err();
    let first = &[1; 32];
    assert_eq!(refusal(head(1, 1, 20, first, &[])), None);
    assert_eq!(refusal(head(1 << 24, 1, 8192, first, &[])), None);
    assert_eq!(refusal(head(0, 1, 20, first, &[])), out_of_range);
    assert_eq!(refusal(head((1 << 24) + 1, 1, 20, first, &[])), out_of_range);
    assert_eq!(refusal(head(1, 0, 20, first, &[])), out_of_range);
    assert_eq!(refusal(head(65, 65, 20, first, &[0; 65 * 8])), out_of_range);
    assert_eq!(refusal(head(1, 1, 8193, first, &[])), out_of_range);
    assert_eq!(refusal(head(2, 2, 20, first, &[])), out_of_range);
    assert_eq!(refusal(head(2, 2, 20, first, &[0; 15])), out_of_range);
    assert_eq!(refusal(head(2, 2, 20, first, &[0; 24])), out_of_range);
    assert_eq!(refusal(head(1, 2, 20, first, &[0; 8])), out_of_range);
    assert_eq!(
        refusal(head(1, 1, 20, &[1; 31], &[])),
        Some(HeadError::Decode(DecodeError::UnexpectedType))
    );
}

#[test]
fn a_head_is_valid_for_one_network_sender_and_key() {
    let (bytes, _) = outgoing(&some_messages(1), 1);
    let (scratch, public) = (&mut [0; MAX_HEAD], key().public());
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap().public();
    let esp = SecretKey::from_seed(Algorithm::Esp256, &[6; 32]).unwrap().public();
    let mut refusal =
        |network, sender, key| Head::open(&bytes, network, sender, key, scratch).err();
    assert_eq!(refusal(ID.network, ID.sender, &public), None);
    assert_eq!(refusal(NetworkId([0; 8]), ID.sender, &public), Some(HeadError::WrongNetwork));
    assert_eq!(refusal(ID.network, DeviceId([0; 8]), &public), Some(HeadError::WrongSender));
    assert_eq!(refusal(ID.network, ID.sender, &esp), Some(HeadError::WrongKey));
    assert_eq!(refusal(ID.network, ID.sender, &other), Some(HeadError::WrongKey));
    // An outsider signs the head but states the sender's key.
    let forged = |signer: &SecretKey| head_by(signer, 1, 1, 20, &[1; 32], &[]);
    let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    assert_eq!(open(&forged(&key())).err(), None);
    assert_eq!(
        open(&forged(&stranger)).err(),
        Some(HeadError::Signature(SignatureError::NotAuthentic))
    );
    let stranger = SecretKey::from_seed(Algorithm::Esp256, &[6; 32]).unwrap();
    assert_eq!(open(&forged(&stranger)).err(), Some(HeadError::AlgorithmMismatch));
    let claim = Head::peek(&bytes).unwrap();
    assert_eq!(
        (claim.id(), claim.messages(), claim.largest_block(), claim.kind()),
        (ID, 1, 1, Kind::Announcement)
    );
}

#[test]
fn chains_under_different_keys_have_different_references() {
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    assert_ne!(ID.reference(KeyId::of(&key().public())), ID.reference(KeyId::of(&other.public())));
    let messages = some_messages(3);
    let read = |number: u32, buffer: &mut [u8]| {
        buffer[..messages[number as usize].len()].copy_from_slice(&messages[number as usize]);
        Ok::<_, std::convert::Infallible>(messages[number as usize].len())
    };
    let (mut digests, scratch, out) = ([Digest::NULL; 3], &mut [0; MAX_HEAD], &mut [0; MAX_HEAD]);
    let chain =
        OutgoingChain::build(draft(3, 1), &mut digests, &mut [], &mut [0; MAX_LEAF], read).unwrap();
    assert_eq!(chain.head(&other, scratch, out), Err(IssueError::WrongKey));
}

/// Checks the sizes that spec/broadcast.md, section 3, states.
#[test]
fn a_receiver_has_the_documented_size() {
    assert!(size_of::<Incoming<1>>() <= 48 + 408, "{}", size_of::<Incoming<1>>());
    assert!(size_of::<Incoming<10>>() <= 480 + 408, "{}", size_of::<Incoming<10>>());
    assert!(size_of::<Incoming<64>>() <= 3072 + 408, "{}", size_of::<Incoming<64>>());
}
