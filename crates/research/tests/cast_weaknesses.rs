//! What the paper's signature amortization leaves open, tried on the paper's scheme and on `core`'s: the same attack, which works there and
//! must fail here.
//!
//! Where a part of it still works here, the test says so, and where its limit is.

#![allow(clippy::unwrap_used, missing_docs)]

use std::convert::Infallible;

use moteseal_core::DeviceId;
use moteseal_core::cast::{
    ChainDraft, ChainId, ChainNumber, Head, HeadError, Incoming, Kind, LeafError, MAX_HEAD, MAX_LEAF, NetworkId, OutgoingChain,
    Taken,
};
use moteseal_core::digest::Digest;
use moteseal_core::signature::{Algorithm, SecretKey, SignatureError};
use moteseal_research::hmac_broadcast::SharedKey;
use moteseal_research::paper_cast::{self, Chain, ExtendedBlock, Packet};
use moteseal_research::secp160r1;
use num_bigint::BigUint;

const ID: ChainId = ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(3) };

/// The paper's sender.
fn paper_key() -> secp160r1::SecretKey {
    secp160r1::SecretKey::new(BigUint::from(0x5eed_u32)).unwrap()
}

fn paper_receiver(messages: usize, per_block: usize) -> paper_cast::Receiver {
    paper_cast::Receiver::new(paper_key().public().clone(), messages, per_block)
}

fn paper_chain(messages: &[Vec<u8>], per_block: usize) -> Chain {
    Chain::generate(messages, per_block, [0x11; 8], &paper_key())
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Our sender.
fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[5; 32]).unwrap()
}

/// Ours: the head, and the leaves of all blocks.
struct Ours {
    head: Vec<u8>,
    blocks: Vec<Vec<Vec<u8>>>,
}

fn ours_as(id: ChainId, messages: &[Vec<u8>], per_block: u8) -> Ours {
    let (mut digests, mut tags) = (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let (mut scratch, mut out) = (vec![0; MAX_LEAF], vec![0; MAX_LEAF]);
    let draft = ChainDraft { id, messages: messages.len().try_into().unwrap(), per_block, kind: Kind::Messages, label: "orders" };
    let read = |number: u32, buffer: &mut [u8]| {
        let message = &messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, Infallible>(message.len())
    };
    let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, read).unwrap();
    let mut head = [0; MAX_HEAD];
    let head = chain.head(&key(), &mut [0; MAX_HEAD], &mut head).unwrap().to_vec();
    let mut left = messages.iter();
    let mut block = |block| {
        (0..chain.in_block(block))
            .map(|index| chain.leaf(block, index, left.next().unwrap(), &mut out).unwrap().to_vec())
            .collect()
    };
    Ours { head, blocks: (1..=chain.blocks()).map(&mut block).collect() }
}

fn ours(messages: &[Vec<u8>], per_block: u8) -> Ours {
    ours_as(ID, messages, per_block)
}

fn opened(head: &[u8]) -> Result<Incoming<16>, HeadError> {
    Head::open(head, ID.network, ID.sender, &key().public(), &mut [0; MAX_HEAD]).map(|head| Incoming::new(&head).unwrap())
}

fn is_verified(taken: Result<Taken<'_>, LeafError>) -> bool {
    matches!(taken, Ok(Taken::Verified { .. }))
}

#[test]
fn one_forged_fragment_costs_the_paper_a_block_each_time_and_travels_through_the_network() {
    let messages = texts(&["valve 1 open", "valve 2 open", "valve 3 open"]);
    let forged = Packet::Fragment { block: 1, index: 1, message: b"valve 2 SHUT".to_vec(), next: None };
    let chain = paper_chain(&messages, 3);
    let mut receiver = paper_receiver(3, 3);
    receiver.hear(&chain.packets()[0]);
    for round in 1..=100 {
        assert_eq!(receiver.hear(&forged), std::slice::from_ref(&forged), "it forwards what it could not check");
        chain.packets().iter().skip(1).for_each(|packet| drop(receiver.hear(packet)));
        assert_eq!((receiver.failed_blocks, receiver.accepted.len()), (round, 0), "and loses the whole block, genuine or not");
    }
    // Fragments of later blocks are kept without a bound, and each makes it say something.
    for block in 2..1002 {
        let forged = Packet::Fragment { block, index: 0, message: vec![0; 20], next: None };
        assert!(matches!(receiver.hear(&forged)[..], [Packet::Acknowledgement { .. }]));
    }
    assert!(receiver.buffered() >= 1000);

    // Ours: a tag tells at once, the genuine leaf still fits, and nothing later is kept.
    let chain = ours(&messages, 3);
    let mut incoming = opened(&chain.head).unwrap();
    for (index, leaf) in (0..).zip(&chain.blocks[0]) {
        for forged in [&b"valve 2 SHUT"[..], b"", leaf.split_last().unwrap().1] {
            assert_eq!(incoming.take(1, index, forged), Err(LeafError::ForgedLeaf));
        }
        assert_eq!(incoming.take(2, 0, b"later"), Err(LeafError::NotThisBlock));
        assert_eq!(is_verified(incoming.take(1, index, leaf)), index == 2);
    }
}

#[test]
fn bytes_moved_from_one_message_to_the_next_pass_with_the_paper_and_not_with_us() {
    // CON is plain concatenation: where a message ends, nobody has signed.
    let genuine = texts(&["disarm ", "all but gate 1", "7 is open"]);
    let shifted = texts(&["disarm all", " but gate ", "17 is open"]);
    let chain = paper_chain(&genuine, 3);
    assert_eq!(paper_cast::block_digest(&shifted, &[0x11; 8]), chain.first);
    let mut receiver = paper_receiver(3, 3);
    receiver.hear(&chain.packets()[0]);
    let forged = Chain { blocks: vec![ExtendedBlock { messages: shifted.clone(), next: [0x11; 8] }], ..chain.clone() };
    forged.packets().iter().for_each(|packet| drop(receiver.hear(packet)));
    assert_eq!(receiver.accepted, shifted);
    // Nor how many messages a block has: at a receiver set up for one, all three arrive as a single one.
    let joined = Chain { blocks: vec![ExtendedBlock { messages: vec![genuine.concat()], next: [0x11; 8] }], ..chain };
    let mut receiver = paper_receiver(1, 1);
    joined.packets().iter().for_each(|packet| drop(receiver.hear(packet)));
    assert_eq!(receiver.accepted, [genuine.concat()]);

    // Ours: each message is hashed by itself, and how many there are is signed.
    let chain = ours(&genuine, 3);
    for forged in [&shifted, &vec![genuine.concat()]] {
        let mut incoming = opened(&chain.head).unwrap();
        for (index, message) in (0..).zip(forged) {
            let refused = incoming.take(1, index, message).unwrap_err();
            assert!(matches!(refused, LeafError::ForgedLeaf | LeafError::LeafTooLong), "{refused}");
        }
    }
    // Also in the order in which a block is hashed: the last leaf and then the others' digests. Bytes moved over that seam are refused.
    let leaf = &chain.blocks[0][2];
    let mut incoming = opened(&chain.head).unwrap();
    assert!(!is_verified(incoming.take(1, 0, &chain.blocks[0][0])) && !is_verified(incoming.take(1, 1, &chain.blocks[0][1])));
    for cut in 0..leaf.len() {
        assert_eq!(incoming.take(1, 2, &leaf[..cut]), Err(LeafError::ForgedLeaf));
    }
    let longer = [&leaf[..], &Digest::NULL.0].concat();
    assert_eq!(incoming.take(1, 2, &longer), Err(LeafError::LeafTooLong));
    assert!(is_verified(incoming.take(1, 2, leaf)));
}

#[test]
fn a_chain_said_elsewhere_passes_with_the_paper_and_not_with_us() {
    // The paper: a head is a digest and a signature. Whatever network, sender's role or purpose it was for, it is good everywhere.
    let messages = texts(&["pumps off", "doors open"]);
    let test_site = paper_chain(&messages, 1);
    let mut plant = paper_receiver(2, 1);
    test_site.packets().iter().for_each(|packet| drop(plant.hear(packet)));
    assert_eq!(plant.accepted, messages);
    // Anything of eight bytes that the key ever signed for another purpose is the head of a chain.
    let (inner, next) = (paper_cast::digest(b"not a chain"), paper_key());
    assert!(plant.hear(&Packet::First { digest: inner, signature: next.sign(&inner) }).len() == 1);

    // Ours: network, sender and number are signed, and in every hash.
    let elsewhere = |network, sender, number| ours_as(ChainId { network, sender, number }, &messages, 1);
    let other_network = elsewhere(NetworkId([9; 8]), ID.sender, ID.number);
    let other_sender = elsewhere(ID.network, DeviceId([9; 8]), ID.number);
    assert_eq!(opened(&other_network.head).unwrap_err(), HeadError::WrongNetwork);
    assert_eq!(opened(&other_sender.head).unwrap_err(), HeadError::WrongSender);
    // The same messages in the next chain of the same sender: what announces the block behind is of one chain only.
    let (here, next) = (ours(&messages, 1), elsewhere(ID.network, ID.sender, ChainNumber(4)));
    let mut incoming = opened(&here.head).unwrap();
    for other in [&next, &other_network, &other_sender] {
        assert_eq!(incoming.take(1, 0, &other.blocks[0][0]), Err(LeafError::ForgedLeaf));
    }
    assert!(is_verified(incoming.take(1, 0, &here.blocks[0][0])));
    assert!(is_verified(incoming.take(2, 0, &here.blocks[1][0])));
}

#[test]
fn a_shared_key_of_one_opened_node_speaks_to_all_and_what_our_receivers_hold_speaks_to_none() {
    // HMAC: every receiver has the key, or it could not check.
    let opened_node = SharedKey::new(b"the key of all nodes");
    let everybody_else = SharedKey::new(b"the key of all nodes");
    assert_eq!(everybody_else.open(&opened_node.seal(b"pumps off")), Some(&b"pumps off"[..]));

    // Ours: a receiver holds public keys, heads and leaves. A head signed by anybody else's key is refused.
    let chain = ours(&texts(&["pumps on"]), 1);
    let forger = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    let (mut digests, mut scratch, mut out) = ([Digest::NULL], vec![0; MAX_LEAF], [0; MAX_HEAD]);
    let draft = ChainDraft { id: ID, messages: 1, per_block: 1, kind: Kind::Messages, label: "orders" };
    let read = |_, buffer: &mut [u8]| {
        buffer[..9].copy_from_slice(b"pumps off");
        Ok::<_, Infallible>(9)
    };
    let forged = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read).unwrap();
    let head = forged.head(&forger, &mut [0; MAX_HEAD], &mut out).unwrap();
    assert_eq!(opened(head).unwrap_err(), HeadError::Signature(SignatureError::NotAuthentic));
    // And no byte of a genuine head can be changed.
    for at in 0..chain.head.len() {
        let mut changed = chain.head.clone();
        changed[at] ^= 1;
        assert!(opened(&changed).is_err(), "byte {at}");
    }
}

/// Two messages of twenty bytes each, contradicting each other, with the same 64 bits of SHA-1 in front of the eight bytes that end a chain.
/// Found by a search of 5.8 * 10^9 hashes, in eight minutes of half a core.
const COLLISION: [(&[u8; 12], u64); 2] = [(b"valve 3 open", 0xb9c6_5687_5a82_4e30), (b"valve 3 shut", 0xad5a_9fc4_f38f_060d)];

fn colliding([text, salt]: [&[u8]; 2]) -> Vec<u8> {
    [text, salt].concat()
}

#[test]
fn sixty_four_bits_let_a_sender_say_two_things_under_one_signature_and_our_digests_do_not() {
    let [open, shut] = COLLISION.map(|(text, salt)| colliding([text, &salt.to_be_bytes()]));
    // The paper: the sender signs one of them and shows the other to whom it likes. Lemma 5 says that it could not deny either.
    let chain = paper_chain(std::slice::from_ref(&open), 1);
    for said in [&open, &shut] {
        let mut receiver = paper_receiver(1, 1);
        receiver.hear(&chain.packets()[0]);
        receiver.hear(&Packet::Fragment { block: 1, index: 0, message: said.clone(), next: Some([0x11; 8]) });
        assert_eq!(receiver.accepted, std::slice::from_ref(said));
    }

    // Ours: a block has 256 bits, and a search for two such blocks takes 2^128 hashes.
    let chain = ours(std::slice::from_ref(&open), 1);
    let mut incoming = opened(&chain.head).unwrap();
    assert_eq!(incoming.take(1, 0, &shut), Err(LeafError::ForgedLeaf));
    assert!(is_verified(incoming.take(1, 0, &open)));
}
