//! Vectors of authenticated broadcast (spec/broadcast.md): certificates, chains, frames and
//! evidence. Signed objects are encoded field by field, so that a case can change any field.

mod addressed;
mod certificates;
mod receivers;

use std::convert::Infallible;

use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_LEAF, OutgoingChain, Window, sender_named,
};
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use serde_json::{Value as Json, json};

use super::{File, Files, public};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{header, secret, sign1};

const CHAIN: &str = "moteseal-chain+cose";
const REQUEST: &str = "moteseal-request+cose";
const CERTIFICATE: &str = "moteseal-sender+cose";
const REVOCATION: &str = "moteseal-revocation+cose";
const MAX: Value = Value::Uint(u64::MAX);

pub fn make(files: &mut Files) {
    certificates::make(files);
    files.add(chains());
    files.add(heads());
    files.add(windows());
    files.add(leaves());
    files.add(frames());
    receivers::make(files);
    addressed::make(files);
    files.add(singles());
    files.add(evidence());
}

fn ed(seed: u8) -> SecretKey {
    secret(Algorithm::Ed25519, seed)
}

fn base() -> SecretKey {
    ed(0x81)
}

fn ops() -> SecretKey {
    ed(0x82)
}

fn network() -> NetworkId {
    NetworkId::of(&base().public())
}

fn id_of(key: &SecretKey) -> Value {
    bytes(&KeyId::of(&key.public()).0)
}

fn signed(key: &SecretKey, typ: &str, payload: &Value) -> Vec<u8> {
    sign1(key, &header(key.algorithm(), typ, &[]), &payload.encode())
}

fn key_fields(key: &SecretKey) -> [Value; 2] {
    [int(key.algorithm().cose()), bytes(&key.public().to_bytes())]
}

/// Returns the payload of the certificate of the sender `ops`. It has the serial 7 and is valid
/// from 100 s to 200 s.
fn certificate() -> Value {
    let [suite, raw] = key_fields(&ops());
    let sender = bytes(&sender_named("ops").0);
    array([
        int(1),
        bytes(&network().0),
        id_of(&base()),
        int(7),
        sender,
        suite,
        raw,
        int(100),
        int(200),
    ])
}

/// Returns the input for opening a certificate or revocation. It has two accepted base stations;
/// the object is signed by the second one.
fn listening(bytes: &[u8]) -> Json {
    let bases = [public(&secret(Algorithm::Esp256, 0x84)), public(&base())];
    json!({ "bytes": hex::encode(bytes), "network": network().to_string(), "bases": bases })
}

fn with(input: &Json, field: &str, value: impl Into<Json>) -> Json {
    let mut input = input.clone();
    input[field] = value.into();
    input
}

fn some_messages(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| (0..number * 7 % 90).map(|byte| (byte * 5 + number) as u8).collect())
        .collect()
}

fn of_chain(messages: &[Vec<u8>], per_block: u64) -> Json {
    let messages: Vec<String> = messages.iter().map(hex::encode).collect();
    json!({
        "network": network().to_string(), "sender": sender_named("ops").to_string(), "number": 3,
        "key": KeyId::of(&ops().public()).to_string(), "per_block": per_block, "label": "orders", "messages": messages,
    })
}

fn chains() -> File {
    let mut file = File::new(
        "broadcast/chains.json",
        "What a sender makes of messages: broadcast.md, section 2.",
    );
    let op = "cast.chain";
    for (count, per_block) in
        [(1, 1), (1, 64), (5, 1), (2, 2), (5, 2), (6, 3), (7, 3), (9, 64), (70, 64), (23, 10)]
    {
        let what = format!("{count} messages, {per_block} a block");
        file.valid(what, op, of_chain(&some_messages(count), per_block));
    }
    file.valid("empty messages", op, of_chain(&vec![Vec::new(); 5], 2));
    file.valid("the longest message", op, of_chain(&[vec![7; 8192], Vec::new()], 2));
    for at in [54, 55, 56, 63, 64, 65] {
        // Cover the message lengths at which SHA-256's padding needs one more compression.
        file.valid(
            format!("a message of {at} bytes"),
            op,
            of_chain(&[vec![1; at], vec![2; at - 32]], 1),
        );
    }
    let other = |field: &str, value: Json| with(&of_chain(&some_messages(3), 2), field, value);
    file.valid("the last number", op, other("number", json!(u64::MAX)));
    file.valid("no label", op, other("label", json!("")));
    for (what, input, error) in [
        ("no messages", of_chain(&[], 1), "NoMessages"),
        ("no message a block", of_chain(&some_messages(3), 0), "BlockTooLarge"),
        ("65 messages a block", of_chain(&some_messages(3), 65), "BlockTooLarge"),
        ("a message of 8,193 bytes", of_chain(&[vec![7; 8193]], 1), "MessageTooLong"),
        ("a label of 65 bytes", other("label", json!("x".repeat(65))), "LabelTooLong"),
        ("a label that repaints terminals", other("label", json!("\u{1b}[2J")), "LabelNotPlain"),
    ] {
        file.invalid(what, op, input, error);
    }
    file
}

/// A chain: its head, and its leaves with their blocks and indices.
struct BuiltChain {
    head: Value,
    leaves: Vec<(u32, u8, Vec<u8>)>,
    reference: [u8; 8],
}

fn build_chain(messages: &[Vec<u8>], per_block: u8) -> BuiltChain {
    let id = ChainId { network: network(), sender: sender_named("ops"), number: ChainNumber(3) };
    let count = messages.len() as u32;
    let key = KeyId::of(&ops().public());
    let draft = ChainDraft {
        id,
        key,
        messages: count,
        per_block,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let read = |number: u32, buffer: &mut [u8]| {
        let message = &messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, Infallible>(message.len())
    };
    let chain =
        OutgoingChain::build(draft, &mut digests, &mut tags, &mut vec![0; MAX_LEAF], read).unwrap();
    let outline = *chain.outline();
    let mut leaves = Vec::new();
    for block in 1..=outline.blocks() {
        for index in 0..outline.in_block(block) {
            let message = &messages[outline.message(block, index) as usize];
            leaves.push((
                block,
                index,
                chain.leaf(block, index, message, &mut vec![0; MAX_LEAF]).unwrap().to_vec(),
            ));
        }
    }
    let first =
        if outline.in_block(1) > 1 { &tags[..usize::from(outline.in_block(1))] } else { &[] };
    let id = [bytes(&id.network.0), bytes(&id.sender.0), bytes(&key.0), int(3)];
    let shape = [
        int(count.into()),
        int(per_block.into()),
        int(outline.longest.into()),
        int(0),
        text("orders"),
        int(0),
        MAX,
        int(0),
        int(-16),
    ];
    let digests = [bytes(&digests[0].0), bytes(first.as_flattened())];
    let head = Value::Array([int(1)].into_iter().chain(id).chain(shape).chain(digests).collect());
    BuiltChain { head, leaves, reference: outline.reference().0 }
}

/// Returns the input for opening a head or a chain of one message.
fn by_ops(bytes: &[u8]) -> Json {
    let key = public(&ops());
    json!({
        "bytes": hex::encode(bytes), "network": network().to_string(), "sender": sender_named("ops").to_string(),
        "alg": key["alg"], "key": key["key"],
    })
}

fn heads() -> File {
    let mut file = File::new("broadcast/heads.json", "Heads of chains: broadcast.md, section 3.");
    let op = "cast.head";
    let head = |payload: &Value| by_ops(&signed(&ops(), CHAIN, payload));
    let (one, many) =
        (build_chain(&some_messages(1), 1).head, build_chain(&some_messages(9), 4).head);
    for (what, payload) in [
        ("one message", one.clone()),
        ("nine messages, four a block", many.clone()),
        ("two messages where four would fit", build_chain(&some_messages(2), 4).head),
        ("as many messages as there can be", one.with(5, int(1 << 24))),
        ("a file", one.with(8, int(1))),
        ("a query schedule", one.with(8, int(2))),
        ("a command for a second", within(&one.with(8, int(3)), 7, 8)),
        ("a command for the longest time", within(&one.with(8, int(3)), 0, 604_800)),
        ("for named receivers", one.with(8, int(8)).with(9, text(""))),
        ("a file for named receivers", one.with(8, int(9)).with(9, text(""))),
        ("a command for named receivers", within(&one.with(8, int(11)).with(9, text("")), 7, 8)),
        ("a begin", within(&one, 1_700_000_000, u64::MAX)),
        ("an end", within(&one, 0, 1)),
        ("the previous number", one.with(12, int(1))),
        ("the number 0 before", one.with(12, int(3))),
        ("no label", one.with(9, text(""))),
        ("a label of 64 bytes", one.with(9, text(&"\u{e9}".repeat(32)))),
        ("the longest messages", one.with(7, int(8192))),
        ("number 0 without a previous one", one.with(4, int(0))),
        ("the last number", one.with(4, MAX)),
    ] {
        file.valid(what, op, head(&payload));
    }
    for algorithm in [Algorithm::Esp256, Algorithm::MlDsa44] {
        let key = secret(algorithm, 0x82);
        let mut input = by_ops(&signed(&key, CHAIN, &one.with(3, id_of(&key))));
        let public = public(&key);
        (input["alg"], input["key"]) = (public["alg"].clone(), public["key"].clone());
        file.valid(algorithm.name(), op, input);
    }
    for (what, payload, error) in [
        ("version 2", one.with(0, int(2)), "UnsupportedVersion"),
        ("another network", one.with(1, bytes(&[0; 8])), "WrongNetwork"),
        ("another sender", one.with(2, bytes(&[0; 8])), "WrongSender"),
        ("another key of the sender", one.with(3, bytes(&[0; 8])), "WrongKey"),
        ("a negative number", one.with(4, int(-1)), "UnexpectedType"),
        ("no messages", one.with(5, int(0)), "FieldOutOfRange"),
        ("more messages than there can be", one.with(5, int((1 << 24) + 1)), "FieldOutOfRange"),
        ("no message a block", one.with(6, int(0)), "FieldOutOfRange"),
        ("65 messages a block", one.with(6, int(65)), "FieldOutOfRange"),
        ("longer messages than there can be", one.with(7, int(8193)), "FieldOutOfRange"),
        ("an unknown kind", one.with(8, int(4)), "FieldOutOfRange"),
        (
            "a query schedule for named receivers",
            one.with(8, int(10)).with(9, text("")),
            "FieldOutOfRange",
        ),
        (
            "an unknown kind for named receivers",
            one.with(8, int(12)).with(9, text("")),
            "FieldOutOfRange",
        ),
        ("a kind above 255", one.with(8, int(256)), "FieldOutOfRange"),
        ("a label in clear for named receivers", one.with(8, int(8)), "FieldOutOfRange"),
        (
            "a command without an end for named receivers",
            one.with(8, int(11)).with(9, text("")),
            "FieldOutOfRange",
        ),
        ("a label of 65 bytes", one.with(9, text(&"x".repeat(65))), "FieldOutOfRange"),
        ("a label with a control character", one.with(9, text("\u{9b}2J")), "FieldOutOfRange"),
        ("a label of bytes", one.with(9, bytes(b"orders")), "UnexpectedType"),
        ("a window that ends as it begins", within(&one, 5, 5), "FieldOutOfRange"),
        ("a window that ends before it begins", within(&one, 5, 4), "FieldOutOfRange"),
        ("a negative begin", one.with(10, int(-1)), "UnexpectedType"),
        ("an end as text", one.with(11, text("5")), "UnexpectedType"),
        ("a command without an end", one.with(8, int(3)), "FieldOutOfRange"),
        (
            "a command for a second too long",
            within(&one.with(8, int(3)), 0, 604_801),
            "FieldOutOfRange",
        ),
        ("a previous number below 0", one.with(12, int(4)), "FieldOutOfRange"),
        ("a negative step", one.with(12, int(-1)), "UnexpectedType"),
        ("another hash", one.with(13, int(-43)), "UnknownAlgorithm"),
        (
            "another hash and a bad window",
            within(&one, 5, 5).with(13, int(-43)),
            "UnknownAlgorithm",
        ),
        ("a digest of 31 bytes", one.with(14, bytes(&[1; 31])), "UnexpectedType"),
        ("a tag of a block of one", one.with(15, bytes(&[1; 8])), "FieldOutOfRange"),
        ("no tags of a block of four", many.with(15, bytes(&[])), "FieldOutOfRange"),
        ("a tag too many", many.with(15, bytes(&[1; 40])), "FieldOutOfRange"),
        ("half a tag", many.with(15, bytes(&[1; 28])), "FieldOutOfRange"),
        ("fifteen fields", Value::Array(one.clone().elements()[..15].to_vec()), "UnexpectedType"),
    ] {
        file.invalid(what, op, head(&payload), error);
    }
    file.invalid(
        "in the sender's name",
        op,
        by_ops(&signed(&ed(0x83), CHAIN, &one)),
        "NotAuthentic",
    );
    file.invalid(
        "with another suite",
        op,
        by_ops(&signed(&secret(Algorithm::Esp256, 0x82), CHAIN, &one)),
        "AlgorithmMismatch",
    );
    file.invalid("another type of object", op, by_ops(&signed(&ops(), REQUEST, &one)), "WrongType");
    file.mutate("changed everywhere", op, head(&many), "bytes", &[0x01]);
    file
}

/// Returns a head with another window.
fn within(head: &Value, not_before: u64, not_after: u64) -> Value {
    head.with(10, Value::Uint(not_before)).with(11, Value::Uint(not_after))
}

fn windows() -> File {
    let mut file = File::new(
        "broadcast/windows.json",
        "Whether chains may be delivered at a time: broadcast.md, section 3.5.",
    );
    let op = "cast.timely";
    let plain = build_chain(&some_messages(1), 1).head;
    let command = within(&plain.with(8, int(3)), 1_000, 1_600);
    let at = |head: &Value, now: Json, offset: u64| {
        let mut input = by_ops(&signed(&ops(), CHAIN, head));
        (input["now"], input["offset"]) = (now, offset.into());
        input
    };
    for (what, head, now, offset) in [
        ("the first second", &command, 1_000, 0),
        ("the last second", &command, 1_599, 10),
        ("the allowed offset before the begin", &command, 990, 10),
        ("a begin without an end", &within(&plain, 1_000, u64::MAX), u64::MAX, 0),
        ("an end without a begin", &within(&plain, 0, 1_600), 0, 0),
    ] {
        file.valid(what, op, at(head, now.into(), offset));
    }
    file.valid("no begin and no end, without a clock", op, at(&plain, Json::Null, 0));
    for (what, head, now, offset, error) in [
        ("a second before the begin", &command, json!(999), 0, "Early"),
        ("more than the offset before the begin", &command, json!(989), 10, "Early"),
        ("the end", &command, json!(1_600), 10, "Late"),
        ("a year after the end", &command, json!(31_536_000), 10, "Late"),
        ("a command without a clock", &command, Json::Null, 10, "NoTrustedTime"),
        ("a begin without a clock", &within(&plain, 1, u64::MAX), Json::Null, 10, "NoTrustedTime"),
        ("an end without a clock", &within(&plain, 0, 9), Json::Null, 10, "NoTrustedTime"),
    ] {
        file.invalid(what, op, at(head, now, offset), error);
    }
    file
}

fn leaves() -> File {
    let mut file = File::new(
        "broadcast/leaves.json",
        "What becomes of leaves, in the order they come: broadcast.md, section 3.",
    );
    let op = "cast.take";
    let taking = |head: &Value, leaves: &[(u32, u8, Vec<u8>)]| {
        let leaves: Vec<Json> = leaves
            .iter()
            .map(|(block, index, leaf)| json!([block, index, hex::encode(leaf)]))
            .collect();
        with(&by_ops(&signed(&ops(), CHAIN, head)), "leaves", leaves)
    };
    for (count, per_block) in [(1, 1), (5, 1), (4, 2), (9, 4), (65, 64)] {
        let BuiltChain { head, leaves, .. } = build_chain(&some_messages(count), per_block);
        file.valid(
            format!("{count} messages, {per_block} a block, in order"),
            op,
            taking(&head, &leaves),
        );
        let mut backwards = leaves.clone();
        backwards.sort_by_key(|(block, index, _)| (*block, u8::MAX - index));
        file.valid(
            format!("{count} messages, {per_block} a block, blocks backwards"),
            op,
            taking(&head, &backwards),
        );
    }
    let BuiltChain { head, leaves, .. } = build_chain(&some_messages(7), 3);
    let changed = |at: usize, change: fn(&mut Vec<u8>)| {
        let mut leaf = leaves[at].clone();
        change(&mut leaf.2);
        leaf
    };
    let [a, b, last, next] = [0, 1, 2, 3].map(|at| leaves[at].clone());
    let flipped = |at: usize| changed(at, |leaf| *leaf.last_mut().unwrap() ^= 1);
    for (what, order) in [
        ("repeated", vec![a.clone(), a.clone(), last.clone(), last.clone(), b.clone(), b.clone()]),
        (
            "of a later block, and of an earlier one",
            vec![next.clone(), a.clone(), b.clone(), last.clone(), next.clone(), a.clone()],
        ),
        (
            "forged, then genuine",
            vec![flipped(1), a.clone(), flipped(2), b.clone(), flipped(2), last.clone()],
        ),
        (
            "a repetition that is forged",
            vec![b.clone(), flipped(1), last.clone(), flipped(2), a.clone()],
        ),
        (
            "another one's place",
            vec![
                (1, 1, a.2.clone()),
                (1, 0, b.2.clone()),
                (1, 3, a.2.clone()),
                (0, 0, a.2.clone()),
            ],
        ),
        (
            "too long",
            vec![changed(0, |leaf| leaf.resize(43, 0)), changed(2, |leaf| leaf.resize(56 + 43, 0))],
        ),
        (
            "too short",
            vec![changed(2, |leaf| leaf.truncate(55)), changed(2, |leaf| leaf.truncate(0))],
        ),
        (
            "a trailer of another digest",
            vec![
                a.clone(),
                b.clone(),
                changed(2, |leaf| leaf[0] ^= 1),
                changed(2, |leaf| leaf[32] ^= 1),
            ],
        ),
        ("nothing", Vec::new()),
    ] {
        file.valid(what, op, taking(&head, &order));
    }
    // The tags of this dishonest sender match the leaves, but its digest does not.
    let mut other = build_chain(&some_messages(3), 3);
    other.head = other.head.with(14, bytes(&[1; 32]));
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let twice: Vec<_> =
            order.iter().chain(&order).map(|&at| other.leaves[at].clone()).collect();
        file.valid(
            format!("tags that fit and a digest that does not, in the order {order:?}"),
            op,
            taking(&other.head, &twice),
        );
    }
    file
}

fn frames() -> File {
    let mut file = File::new(
        "broadcast/frames.json",
        "Frames on a medium that everybody hears: broadcast.md, section 5.",
    );
    let op = "cast.frame";
    let (chain, leaf) = (bytes(&[1, 2, 3, 4, 5, 6, 7, 8]), bytes(b"leaf"));
    let (last, every) = (Value::Uint(u32::MAX.into()), MAX);
    for (what, item) in [
        ("a certificate", array([int(32), leaf.clone()])),
        ("a revocation", array([int(33), leaf.clone()])),
        ("a head", array([int(34), leaf.clone()])),
        ("a head of nothing", array([int(34), bytes(&[])])),
        ("a fragment", array([int(35), chain.clone(), int(1), int(0), leaf.clone()])),
        (
            "the last fragment there can be",
            array([int(35), chain.clone(), last.clone(), int(63), leaf.clone()]),
        ),
        ("what is wanted", array([int(36), chain.clone(), int(2), every.clone()])),
        ("head and certificate are wanted", array([int(36), chain.clone(), int(0), int(3)])),
        ("what is held", array([int(37), chain.clone(), int(2), int(63)])),
        ("a chain of one", array([int(38), leaf.clone(), leaf.clone()])),
        ("a repair", array([int(39), chain.clone(), int(2), int(5), int(0xffff), leaf.clone()])),
    ] {
        file.valid(what, op, super::of(&item.encode()));
    }
    let fragment = array([int(35), chain.clone(), int(1), int(0), leaf.clone()]);
    for (what, item, error) in [
        ("an unknown kind", array([int(31), leaf.clone()]), "UnknownItem"),
        ("a negative kind", array([int(-1), leaf.clone()]), "UnexpectedType"),
        ("no kind", Value::Array(Vec::new()), "UnexpectedType"),
        ("no array", leaf.clone(), "UnexpectedType"),
        ("a certificate and more", array([int(32), leaf.clone(), leaf.clone()]), "UnexpectedType"),
        ("a certificate that is no byte string", array([int(32), text("leaf")]), "UnexpectedType"),
        ("a reference of four bytes", fragment.with(1, bytes(&[1; 4])), "UnexpectedType"),
        ("a block of more than 32 bits", fragment.with(2, Value::Uint(1 << 32)), "FieldOutOfRange"),
        ("place 64", fragment.with(3, int(64)), "FieldOutOfRange"),
        ("a leaf that is null", fragment.with(4, NULL), "UnexpectedType"),
        (
            "held up to place 64",
            array([int(37), chain.clone(), int(2), int(64)]),
            "FieldOutOfRange",
        ),
        (
            "a repair of nothing",
            array([int(39), chain.clone(), int(2), int(0), int(1), leaf.clone()]),
            "FieldOutOfRange",
        ),
        (
            "lengths of more than 16 bits",
            array([int(39), chain, int(2), int(5), int(1 << 16), leaf]),
            "FieldOutOfRange",
        ),
        ("an integer below -24", int(-25), "UnexpectedType"),
        ("a kind below -24", array([int(-25)]), "UnexpectedType"),
        ("a head that is an integer below -24", array([int(34), int(-25)]), "UnexpectedType"),
    ] {
        file.invalid(what, op, super::of(&item.encode()), error);
    }
    file.invalid(
        "a byte behind a frame",
        op,
        super::of(&[&fragment.encode()[..], &[0]].concat()),
        "TrailingBytes",
    );
    file
}

fn single(head: &[u8], leaf: &[u8]) -> Vec<u8> {
    array([int(38), bytes(head), bytes(leaf)]).encode()
}

fn singles() -> File {
    let mut file = File::new(
        "broadcast/singles.json",
        "Chains of one message, whole in a frame: broadcast.md, section 4.",
    );
    let op = "cast.single";
    for message in [&b""[..], b"close valve 3", &[7; 8192]] {
        let BuiltChain { head, leaves, .. } = build_chain(&[message.to_vec()], 1);
        let frame = single(&signed(&ops(), CHAIN, &head), &leaves[0].2);
        file.valid(format!("a message of {} bytes", message.len()), op, by_ops(&frame));
    }
    let BuiltChain { head, leaves, .. } = build_chain(&[b"close valve 3".to_vec()], 1);
    let leaf = &leaves[0].2;
    file.valid(
        "whose block could have 64",
        op,
        by_ops(&single(&signed(&ops(), CHAIN, &head.with(6, int(64))), leaf)),
    );
    let addressed = within(&head.with(8, int(11)).with(9, text("")), 7, 8);
    file.valid(
        "a command for named receivers, which is encrypted",
        op,
        by_ops(&single(&signed(&ops(), CHAIN, &addressed), leaf)),
    );
    let opened = |head: &Value, leaf: &[u8]| by_ops(&single(&signed(&ops(), CHAIN, head), leaf));
    let two = build_chain(&some_messages(2), 1);
    file.invalid("the first of two messages", op, opened(&two.head, &two.leaves[0].2), "NotSingle");
    file.invalid("another message", op, opened(&head, b"close valve 4"), "ForgedLeaf");
    file.invalid("a shorter one", op, opened(&head, b"close"), "ForgedLeaf");
    file.invalid("a longer one", op, opened(&head, b"close valve 33"), "LeafTooLong");
    file.invalid("under another number", op, opened(&head.with(4, int(4)), leaf), "ForgedLeaf");
    file.invalid(
        "another network",
        op,
        opened(&head.with(1, bytes(&[0; 8])), leaf),
        "WrongNetwork",
    );
    file.invalid("another sender", op, opened(&head.with(2, bytes(&[0; 8])), leaf), "WrongSender");
    file.invalid(
        "in the sender's name",
        op,
        by_ops(&single(&signed(&ed(0x83), CHAIN, &head), leaf)),
        "NotAuthentic",
    );
    let signed_head = signed(&ops(), CHAIN, &head);
    file.invalid(
        "a head alone",
        op,
        by_ops(&array([int(34), bytes(&signed_head)]).encode()),
        "NotSingle",
    );
    file.invalid(
        "a fragment",
        op,
        by_ops(&array([int(35), bytes(&[0; 8]), int(1), int(0), bytes(leaf)]).encode()),
        "NotSingle",
    );
    file.invalid(
        "an unknown frame",
        op,
        by_ops(&array([int(30), bytes(&signed_head)]).encode()),
        "UnknownItem",
    );
    file.mutate("changed everywhere", op, by_ops(&single(&signed_head, leaf)), "bytes", &[0x01]);
    file
}

fn evidence() -> File {
    let mut file = File::new(
        "broadcast/evidence.json",
        "What a sender said, proven to third parties: broadcast.md, section 6.",
    );
    let op = "cast.evidence";
    let BuiltChain { head, leaves, reference } = build_chain(&some_messages(5), 2);
    let mut frames = vec![
        array([int(32), bytes(&signed(&base(), CERTIFICATE, &certificate()))]).encode(),
        array([int(34), bytes(&signed(&ops(), CHAIN, &head))]).encode(),
    ];
    let of_chain = |reference: &[u8], (block, index, leaf): &(u32, u8, Vec<u8>)| {
        array([int(35), bytes(reference), int((*block).into()), int((*index).into()), bytes(leaf)])
            .encode()
    };
    frames.extend(leaves.iter().map(|leaf| of_chain(&reference, leaf)));
    let given = |frames: &[Vec<u8>]| listening(&frames.concat());
    for (what, count) in [
        ("nothing", 0),
        ("a certificate", 1),
        ("a head", 2),
        ("half a block", 3),
        ("a block", 4),
        ("two blocks", 6),
        ("the whole chain", 7),
    ] {
        file.valid(what, op, given(&frames[..count]));
    }
    let changed = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut changed = frames.clone();
        change(&mut changed);
        given(&changed)
    };
    for (what, input, error) in [
        ("without a certificate", given(&frames[1..]), "OutOfOrder"),
        ("without a head", changed(&|frames| drop(frames.remove(1))), "OutOfOrder"),
        ("a leaf left out", changed(&|frames| drop(frames.remove(2))), "OutOfOrder"),
        ("two leaves exchanged", changed(&|frames| frames.swap(2, 3)), "OutOfOrder"),
        ("a leaf twice", changed(&|frames| frames.insert(3, frames[2].clone())), "OutOfOrder"),
        ("a leaf behind the last", changed(&|frames| frames.push(frames[6].clone())), "OutOfOrder"),
        (
            "another chain's leaf",
            changed(&|frames| frames[2] = of_chain(&[0; 8], &leaves[0])),
            "OutOfOrder",
        ),
        (
            "another frame between",
            changed(&|frames| frames.insert(2, array([int(33), bytes(&[])]).encode())),
            "OutOfOrder",
        ),
        ("a forged leaf", changed(&|frames| *frames[4].last_mut().unwrap() ^= 1), "ForgedLeaf"),
        (
            "another key's head",
            changed(&|frames| {
                frames[1] =
                    array([int(34), bytes(&signed(&ops(), CHAIN, &head.with(3, bytes(&[0; 8]))))])
                        .encode();
            }),
            "WrongKey",
        ),
        (
            "another sender's head",
            changed(&|frames| {
                frames[1] =
                    array([int(34), bytes(&signed(&ops(), CHAIN, &head.with(2, bytes(&[0; 8]))))])
                        .encode();
            }),
            "WrongSender",
        ),
        ("cut within a frame", listening(&frames.concat()[..300]), "Truncated"),
    ] {
        file.invalid(what, op, input, error);
    }
    let elsewhere = with(&given(&frames), "network", "0000000000000000");
    file.invalid("in another network", op, elsewhere, "WrongNetwork");
    let strangers = with(&given(&frames), "bases", json!([public(&ed(0x85))]));
    file.invalid("of base stations that are not known", op, strangers, "UnknownBaseStation");
    file
}
