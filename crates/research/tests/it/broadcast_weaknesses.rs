//! Attacks on the paper's signature amortization. Each attack succeeds on the paper's scheme and
//! must fail on the product's. If a part of an attack also succeeds on the product, the test states
//! to what extent.

use std::collections::HashMap;
use std::convert::Infallible;

use moteseal_broadcast::recovery::{
    Event, Item, LinkSet, Meter, Node, Now, RefusedBroadcast, Relay, Settings, Store, Timing,
};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, ChainRef, Head, HeadError, Incoming, KeyId, Kind, LeafError,
    MAX_HEAD, MAX_LEAF, MAX_SENDER_CERTIFICATE, OutgoingChain, Revoked, SenderCertificateDraft,
    Taken, Window,
};
use moteseal_core::DeviceId;
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, SignatureError, Signer as _};
use moteseal_research::hmac_broadcast::SharedKey;
use moteseal_research::paper_broadcast::{self, Chain, ExtendedBlock, Packet};
use moteseal_research::secp160r1;
use num_bigint::BigUint;

const ID: ChainId =
    ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(3) };

/// Returns the key of the paper's sender.
fn paper_key() -> secp160r1::SecretKey {
    secp160r1::SecretKey::new(BigUint::from(0x5eed_u32)).unwrap()
}

fn paper_receiver(messages: usize, per_block: usize) -> paper_broadcast::Receiver {
    paper_broadcast::Receiver::new(paper_key().public().clone(), messages, per_block)
}

fn paper_chain(messages: &[Vec<u8>], per_block: usize) -> Chain {
    Chain::generate(messages, per_block, [0x11; 8], &paper_key())
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns the key of the product's sender.
fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[5; 32]).unwrap()
}

/// A chain of the product: the head, and the leaves of all blocks.
struct Ours {
    head: Vec<u8>,
    blocks: Vec<Vec<Vec<u8>>>,
}

fn ours_as(id: ChainId, messages: &[Vec<u8>], per_block: u8) -> Ours {
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let (mut scratch, mut out) = (vec![0; MAX_LEAF], vec![0; MAX_LEAF]);
    let draft = ChainDraft {
        id,
        key: KeyId::of(&key().public()),
        messages: messages.len().try_into().unwrap(),
        per_block,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
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
    Head::open(head, ID.network, ID.sender, &key().public(), &mut [0; MAX_HEAD])
        .map(|head| Incoming::new(&head).unwrap())
}

fn is_verified(taken: Result<Taken<'_>, LeafError>) -> bool {
    matches!(taken, Ok(Taken::Verified { .. }))
}

#[test]
fn one_forged_fragment_costs_the_paper_a_block_and_spreads() {
    let messages = texts(&["valve 1 open", "valve 2 open", "valve 3 open"]);
    let forged =
        Packet::Fragment { block: 1, index: 1, message: b"valve 2 SHUT".to_vec(), next: None };
    let chain = paper_chain(&messages, 3);
    let mut receiver = paper_receiver(3, 3);
    receiver.receive(&chain.packets()[0]);
    for round in 1..=100 {
        assert_eq!(
            receiver.receive(&forged),
            std::slice::from_ref(&forged),
            "the receiver forwards the fragment before it can check it"
        );
        chain.packets().iter().skip(1).for_each(|packet| drop(receiver.receive(packet)));
        assert_eq!(
            (receiver.failed_blocks, receiver.accepted.len()),
            (round, 0),
            "the receiver drops the whole block with its genuine fragments"
        );
    }
    // The paper: a receiver keeps fragments of later blocks without a limit, and answers each of
    // them.
    for block in 2..1002 {
        let forged = Packet::Fragment { block, index: 0, message: vec![0; 20], next: None };
        assert!(matches!(receiver.receive(&forged)[..], [Packet::Acknowledgement { .. }]));
    }
    assert!(receiver.buffered() >= 1000);

    // The product: the tag rejects the forged leaf at once, the genuine leaf is still accepted, and
    // no leaf of a later block is kept.
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
fn the_paper_accepts_bytes_moved_between_messages_and_we_reject_them() {
    // The paper: CON is a plain concatenation, so the boundaries of messages are not signed.
    let genuine = texts(&["disarm ", "all but gate 1", "7 is open"]);
    let shifted = texts(&["disarm all", " but gate ", "17 is open"]);
    let chain = paper_chain(&genuine, 3);
    assert_eq!(paper_broadcast::block_digest(&shifted, &[0x11; 8]), chain.first);
    let mut receiver = paper_receiver(3, 3);
    receiver.receive(&chain.packets()[0]);
    let forged = Chain {
        blocks: vec![ExtendedBlock { messages: shifted.clone(), next: [0x11; 8] }],
        ..chain.clone()
    };
    forged.packets().iter().for_each(|packet| drop(receiver.receive(packet)));
    assert_eq!(receiver.accepted, shifted);
    // The number of messages in a block is not signed either. A receiver that is configured for one
    // message per block accepts all three messages as a single one.
    let joined = Chain {
        blocks: vec![ExtendedBlock { messages: vec![genuine.concat()], next: [0x11; 8] }],
        ..chain
    };
    let mut receiver = paper_receiver(1, 1);
    joined.packets().iter().for_each(|packet| drop(receiver.receive(packet)));
    assert_eq!(receiver.accepted, [genuine.concat()]);

    // The product: each message is hashed separately, and the number of messages is signed.
    let chain = ours(&genuine, 3);
    for forged in [&shifted, &vec![genuine.concat()]] {
        let mut incoming = opened(&chain.head).unwrap();
        for (index, message) in (0..).zip(forged) {
            let refused = incoming.take(1, index, message).unwrap_err();
            assert!(matches!(refused, LeafError::ForgedLeaf | LeafError::LeafTooLong), "{refused}");
        }
    }
    // A block's digest covers the last leaf, followed by the digests of the other leaves. Bytes
    // that are moved across this boundary must also be rejected.
    let leaf = &chain.blocks[0][2];
    let mut incoming = opened(&chain.head).unwrap();
    assert!(
        !is_verified(incoming.take(1, 0, &chain.blocks[0][0]))
            && !is_verified(incoming.take(1, 1, &chain.blocks[0][1]))
    );
    for cut in 0..leaf.len() {
        assert_eq!(incoming.take(1, 2, &leaf[..cut]), Err(LeafError::ForgedLeaf));
    }
    let longer = [&leaf[..], &Digest::NULL.0].concat();
    assert_eq!(incoming.take(1, 2, &longer), Err(LeafError::LeafTooLong));
    assert!(is_verified(incoming.take(1, 2, leaf)));
}

#[test]
fn the_paper_accepts_a_chain_of_another_network_and_we_reject_it() {
    // The paper: a head consists of a digest and a signature. It is valid in every network, for
    // every role of the sender and for every purpose.
    let messages = texts(&["pumps off", "doors open"]);
    let test_site = paper_chain(&messages, 1);
    let mut plant = paper_receiver(2, 1);
    test_site.packets().iter().for_each(|packet| drop(plant.receive(packet)));
    assert_eq!(plant.accepted, messages);
    // Any eight bytes that were signed with the key for another purpose are a valid head.
    let (inner, next) = (paper_broadcast::digest(b"not a chain"), paper_key());
    assert!(
        plant.receive(&Packet::First { digest: inner, signature: next.sign(&inner) }).len() == 1
    );

    // The product: network, sender and number are signed and are part of every hash.
    let elsewhere =
        |network, sender, number| ours_as(ChainId { network, sender, number }, &messages, 1);
    let other_network = elsewhere(NetworkId([9; 8]), ID.sender, ID.number);
    let other_sender = elsewhere(ID.network, DeviceId([9; 8]), ID.number);
    assert_eq!(opened(&other_network.head).unwrap_err(), HeadError::WrongNetwork);
    assert_eq!(opened(&other_sender.head).unwrap_err(), HeadError::WrongSender);
    // Send the same messages in the next chain of the same sender. The digests of blocks are valid
    // in one chain only.
    let (here, next) = (ours(&messages, 1), elsewhere(ID.network, ID.sender, ChainNumber(4)));
    let mut incoming = opened(&here.head).unwrap();
    for other in [&next, &other_network, &other_sender] {
        assert_eq!(incoming.take(1, 0, &other.blocks[0][0]), Err(LeafError::ForgedLeaf));
    }
    assert!(is_verified(incoming.take(1, 0, &here.blocks[0][0])));
    assert!(is_verified(incoming.take(2, 0, &here.blocks[1][0])));
}

#[test]
fn a_compromised_node_can_forge_with_a_shared_key_but_not_with_our_receivers_state() {
    // HMAC: every receiver has the key, because it needs the key to verify a message.
    let compromised = SharedKey::new(b"the key of all nodes");
    let other = SharedKey::new(b"the key of all nodes");
    assert_eq!(other.open(&compromised.seal(b"pumps off")), Some(&b"pumps off"[..]));

    // The product: a receiver has public keys, heads and leaves. A head that is signed with another
    // key must be rejected.
    let chain = ours(&texts(&["pumps on"]), 1);
    let forger = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    let (mut digests, mut scratch, mut out) = ([Digest::NULL], vec![0; MAX_LEAF], [0; MAX_HEAD]);
    let draft = ChainDraft {
        id: ID,
        key: KeyId::of(&key().public()),
        messages: 1,
        per_block: 1,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let read = |_, buffer: &mut [u8]| {
        buffer[..9].copy_from_slice(b"pumps off");
        Ok::<_, Infallible>(9)
    };
    let forged = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read).unwrap();
    let signature =
        forger.signature(forged.message(Algorithm::Ed25519, &mut [0; MAX_HEAD]).unwrap()).unwrap();
    let head = forged.attach(Algorithm::Ed25519, &signature, &mut out).unwrap();
    assert_eq!(opened(head).unwrap_err(), HeadError::Signature(SignatureError::NotAuthentic));
    // Changing any byte of a genuine head must make it invalid.
    for at in 0..chain.head.len() {
        let mut changed = chain.head.clone();
        changed[at] ^= 1;
        assert!(opened(&changed).is_err(), "byte {at}");
    }
}

/// Two contradicting messages of twenty bytes. When each is followed by the eight bytes that end a
/// chain, they have the same first 64 bits of SHA-1. They were found by a search of 5.8 * 10^9
/// hashes, which took eight minutes on half a core.
const COLLISION: [(&[u8; 12], u64); 2] =
    [(b"valve 3 open", 0xb9c6_5687_5a82_4e30), (b"valve 3 shut", 0xad5a_9fc4_f38f_060d)];

fn colliding([text, salt]: [&[u8]; 2]) -> Vec<u8> {
    [text, salt].concat()
}

#[test]
fn a_sender_can_sign_two_messages_at_once_with_64_bit_digests_and_not_with_ours() {
    let [open, shut] = COLLISION.map(|(text, salt)| colliding([text, &salt.to_be_bytes()]));
    // The paper: the sender signs one of the two messages and can send the other to some receivers.
    // Lemma 5 claims that the sender cannot deny either message.
    let chain = paper_chain(std::slice::from_ref(&open), 1);
    for sent in [&open, &shut] {
        let mut receiver = paper_receiver(1, 1);
        receiver.receive(&chain.packets()[0]);
        receiver.receive(&Packet::Fragment {
            block: 1,
            index: 0,
            message: sent.clone(),
            next: Some([0x11; 8]),
        });
        assert_eq!(receiver.accepted, std::slice::from_ref(sent));
    }

    // The product: the digest of a block has 256 bits. A search for a collision takes 2^128 hashes.
    let chain = ours(std::slice::from_ref(&open), 1);
    let mut incoming = opened(&chain.head).unwrap();
    assert_eq!(incoming.take(1, 0, &shut), Err(LeafError::ForgedLeaf));
    assert!(is_verified(incoming.take(1, 0, &open)));
}

/// The store of a node. It keeps its content when the node reboots.
#[derive(Default)]
struct Flash {
    items: HashMap<Item, Vec<u8>>,
    floors: HashMap<KeyId, ChainNumber>,
    revoked: HashMap<u8, Revoked>,
}

impl Store for Flash {
    type Error = Infallible;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Infallible> {
        self.items.insert(item, bytes.to_vec());
        Ok(())
    }

    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8]) -> Result<Option<&'b [u8]>, Infallible> {
        let Some(bytes) = self.items.get(&item).filter(|bytes| bytes.len() <= out.len()) else {
            return Ok(None);
        };
        out[..bytes.len()].copy_from_slice(bytes);
        Ok(Some(&out[..bytes.len()]))
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Infallible> {
        Ok(self.items.get(&item).is_some_and(|kept| kept == bytes))
    }

    fn forget_block(&mut self, of: ChainRef, number: u32) -> Result<(), Infallible> {
        self.items.retain(|item, _| !matches!(item, Item::Leaf { chain, block, .. } if *chain == of && *block == number));
        Ok(())
    }

    fn forget(&mut self, of: ChainRef) -> Result<(), Infallible> {
        self.items.retain(|item, _| {
            !matches!(item, Item::Leaf { chain, .. } | Item::Head(chain) | Item::ChainCertificate(chain) if *chain == of)
        });
        Ok(())
    }

    fn retire(&mut self, _: ChainRef) -> Result<(), Infallible> {
        Ok(())
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Infallible> {
        self.floors.insert(key, number);
        Ok(())
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Infallible> {
        Ok(self.floors.get(&key).copied())
    }

    fn revoke(&mut self, base: u8, revoked: &Revoked) -> Result<(), Infallible> {
        self.revoked.insert(base, *revoked);
        Ok(())
    }

    fn revoked(&mut self, base: u8) -> Result<Revoked, Infallible> {
        Ok(self.revoked.get(&base).copied().unwrap_or_default())
    }
}

fn base() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[4; 32]).unwrap()
}

type Mote<'a> = Node<'a, 2, 2, 16>;

fn settings(bases: &[PublicKey]) -> Settings<'_> {
    let (relay, timing, meter) = (Relay::Flood { copies: 255 }, Timing::RADIO, Meter::MOTE);
    Settings { network: ID.network, bases, links: LinkSet::one(0), relay, timing, meter }
}

const fn at(ms: u64) -> Now {
    Now { ms, unix: None }
}

fn framed(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).unwrap();
    out.finish().to_vec()
}

fn certificate() -> Vec<u8> {
    let (base, sender) = (base(), key().public());
    let draft = SenderCertificateDraft {
        network: ID.network,
        base: KeyId::of(&base.public()),
        serial: 1,
        sender: ID.sender,
        key: &sender,
        not_before: 0,
        not_after: u64::MAX,
    };
    let mut out = [0; MAX_SENDER_CERTIFICATE];
    draft.issue(&base, &mut out).unwrap().to_vec()
}

/// Returns the frames of a chain: its head and its leaves.
fn frames(number: u64, messages: &[Vec<u8>], per_block: u8) -> Vec<Vec<u8>> {
    let id = ChainId { number: ChainNumber(number), ..ID };
    let chain = ours_as(id, messages, per_block);
    let mut frames = vec![framed(&BroadcastFrame::Head(&chain.head))];
    for (block, leaves) in (1..).zip(&chain.blocks) {
        for (index, leaf) in (0..).zip(leaves) {
            frames.push(framed(&BroadcastFrame::Fragment {
                chain: id.reference(KeyId::of(&key().public())),
                block,
                index,
                leaf,
            }));
        }
    }
    frames
}

fn receive(node: &mut Mote<'_>, ms: u64, frame: &[u8], flash: &mut Flash) -> Event {
    node.receive(at(ms), 0, frame, flash).unwrap()
}

/// Returns all frames that the node sends within a range of time. Polls the node whenever it is
/// due.
fn sent(node: &mut Mote<'_>, from: u64, until: u64, flash: &mut Flash) -> Vec<Vec<u8>> {
    let (mut sent, mut out, mut ms) = (Vec::new(), vec![0; 4096], from);
    loop {
        while let Some(transmit) = node.poll(at(ms), flash, &mut out).unwrap() {
            sent.push(out[..transmit.length].to_vec());
        }
        match node.next_due() {
            Some(due) if due < until => ms = due.max(ms + 1),
            _ => return sent,
        }
    }
}

#[test]
fn the_paper_accepts_a_replayed_chain_and_we_reject_it_even_after_a_reboot() {
    let (old, new) = (texts(&["pumps off"]), texts(&["pumps on"]));
    let (first, second) = (paper_chain(&old, 1), paper_chain(&new, 1));
    let mut receiver = paper_receiver(1, 1);
    for chain in [&first, &second, &first] {
        chain.packets().iter().for_each(|packet| drop(receiver.receive(packet)));
    }
    assert_eq!(
        receiver.accepted,
        [old.concat(), new.concat(), old.concat()],
        "the replayed chain is accepted again"
    );

    // The product: a chain is accepted once, and never after a later chain.
    let bases = [base().public()];
    let mut flash = Flash::default();
    let mut node = Mote::new(settings(&bases), 1, at(0));
    assert!(matches!(
        receive(&mut node, 0, &framed(&BroadcastFrame::Certificate(&certificate())), &mut flash),
        Event::Certified { .. }
    ));
    let (first, second) = (frames(1, &old, 1), frames(2, &new, 1));
    for chain in [&first, &second] {
        assert!(matches!(receive(&mut node, 5_000, &chain[0], &mut flash), Event::Accepted { .. }));
        assert!(matches!(
            receive(&mut node, 5_000, &chain[1], &mut flash),
            Event::Verified { is_last: true, .. }
        ));
    }
    let replayed = |node: &mut Mote<'_>, ms, flash: &mut Flash| {
        for chain in [&first, &second] {
            for frame in chain {
                let event = receive(node, ms, frame, flash);
                assert!(matches!(event, Event::Nothing | Event::Refused(_)), "{event:?}");
            }
        }
    };
    replayed(&mut node, 10_000, &mut flash);
    // Reboot the node: it loses its memory. Also remove everything except the floors from its
    // store.
    flash.items.clear();
    let mut node = Mote::new(settings(&bases), 2, at(0));
    receive(&mut node, 0, &framed(&BroadcastFrame::Certificate(&certificate())), &mut flash);
    assert_eq!(
        receive(&mut node, 10_000, &first[0], &mut flash),
        Event::Refused(RefusedBroadcast::ChainGoesBack)
    );
    replayed(&mut node, 20_000, &mut flash);
}

#[test]
fn a_flood_of_forged_heads_costs_the_paper_a_check_each_and_us_at_most_the_rate_limit() {
    let forger = secp160r1::SecretKey::new(BigUint::from(666_u32)).unwrap();
    let mut receiver = paper_receiver(1, 1);
    for forged in 0..50_u64 {
        let digest = forged.to_be_bytes();
        assert_eq!(
            receiver.receive(&Packet::First { digest, signature: forger.sign(&digest) }),
            []
        );
    }
    assert_eq!(
        receiver.signature_checks, 50,
        "one check for each forged head, four seconds on the paper's motes"
    );

    let bases = [base().public()];
    let mut flash = Flash::default();
    let mut node = Mote::new(settings(&bases), 1, at(0));
    receive(&mut node, 0, &framed(&BroadcastFrame::Certificate(&certificate())), &mut flash);
    // For ten minutes, send a hundred different forged heads per second, and in each second the
    // genuine head once.
    let messages = texts(&["pumps off"]);
    let genuine = frames(3, &messages, 1);
    let mut head = ours(&messages, 1).head;
    let (mut accepted, mut out) = (None, vec![0; 4096]);
    for ms in (0..600_000_u64).step_by(10) {
        // When its rate limit permits a check, the node selects one of the waiting heads.
        while node.poll(at(ms), &mut flash, &mut out).unwrap().is_some() {}
        let last = head.len() - 8;
        head[last..].copy_from_slice(&ms.to_be_bytes());
        let forged = receive(&mut node, ms, &framed(&BroadcastFrame::Head(&head)), &mut flash);
        assert!(!matches!(forged, Event::Accepted { .. }));
        if ms % 1_000 == 500 {
            receive(&mut node, ms, &genuine[0], &mut flash);
        }
        if accepted.is_none() && node.chains().count() > 0 {
            accepted = Some(ms);
        }
    }
    // The rate limit is four checks at once and one check per second.
    assert!(
        node.checks().heads <= 4 + 600,
        "{} checks of 60,000 forged heads",
        node.checks().heads
    );
    // The node selects a waiting head at random. In each second the genuine head has a chance of 1
    // in 101, even if it arrives last.
    assert!(accepted.is_some(), "the genuine head is accepted");
}

#[test]
fn forged_acknowledgements_make_the_papers_nodes_send_without_limit_and_ours_within_a_limit() {
    let messages = texts(&["one", "two", "three", "four", "five"]);
    let chain = paper_chain(&messages, 5);
    let mut receiver = paper_receiver(5, 5);
    chain.packets().iter().for_each(|packet| drop(receiver.receive(packet)));
    let request = Packet::Acknowledgement { block: 1, missing: u64::MAX };
    let answers: usize = (0..1_000).map(|_| receiver.receive(&request).len()).sum();
    assert_eq!(
        answers, 5_000,
        "every node in range sends five messages for each forged acknowledgement of a few bytes"
    );

    let bases = [base().public()];
    let mut flash = Flash::default();
    let mut node = Mote::new(settings(&bases), 1, at(0));
    receive(&mut node, 0, &framed(&BroadcastFrame::Certificate(&certificate())), &mut flash);
    for frame in frames(3, &messages, 5) {
        receive(&mut node, 0, &frame, &mut flash);
    }
    // Wait until the node has relayed the chain.
    sent(&mut node, 0, 60_000, &mut flash);
    let wanted = framed(&BroadcastFrame::Wanted {
        chain: ID.reference(KeyId::of(&key().public())),
        block: 1,
        wanted: u64::MAX,
    });
    let mut answers = 0;
    for ms in (60_000..70_000).step_by(10) {
        receive(&mut node, ms, &wanted, &mut flash);
        answers += sent(&mut node, ms, ms + 10, &mut flash).len();
    }
    // The node sends each of the five fragments at once, and again after at least four seconds. It
    // also sends one or two advertisements.
    assert!((5..=5 * 3 + 2).contains(&answers), "{answers} frames for 1,000 forged requests");
}
