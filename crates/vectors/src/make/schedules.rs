//! Vectors of query schedules (spec/sums.md, section 3). A query schedule is sent as a chain of one
//! message. The chains are built field by field from the formulas of spec/broadcast.md, so that a
//! case can change any field.

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use serde_json::{Value as Json, json};

use super::{File, Files};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{GROUP, header, secret, sign1};

const CHAIN: &str = "moteseal-chain+cose";
const ROSTER: [u8; 32] = [0x2d; 32];
const NUMBER: u64 = 1_780_000_000_000;
/// The encoded plan of `SELECT COUNT(*) FROM sensors EPOCH DURATION 1s`.
const PLAN: &str = "8501818201f680801903e8";
/// Two nonces for which, with this roster and plan, the ids of the queries begin with the same four
/// bytes.
const ALIKE: [u128; 2] = [1966, 90456];
/// The numbers that encode two kinds of chains.
const MESSAGES: i64 = 0;
const QUERY_SCHEDULE: i64 = 2;

pub fn make(files: &mut Files) {
    files.add(schedules());
}

fn posed(nonce: u128, first: u64, until: u64) -> Value {
    let plan = bytes(&hex::decode(PLAN).unwrap());
    array([bytes(&nonce.to_be_bytes()), Value::Uint(first), Value::Uint(until), plan])
}

fn schedule(queries: &[Value]) -> Value {
    array([int(1), bytes(&ROSTER), int(500), int(16), Value::Array(queries.to_vec())])
}

/// Returns the id of a key.
fn key_id(key: &SecretKey) -> [u8; 8] {
    let digest = Digest::of(&[b"moteseal/1/key\0", &key.public().to_bytes()]).0;
    digest[..8].try_into().unwrap()
}

/// The fields of a chain of one message.
#[derive(Clone, Copy)]
struct ScheduleChain {
    network: GroupId,
    sender: DeviceId,
    key: [u8; 8],
    number: u64,
    kind: i64,
}

impl ScheduleChain {
    fn usual() -> Self {
        let id = Digest::of(&[b"moteseal/1/sender\0querier"]).0;
        let (sender, key) =
            (DeviceId(id[..8].try_into().unwrap()), key_id(&secret(Algorithm::Ed25519, 0x71)));
        Self { network: GroupId::of(GROUP), sender, key, number: NUMBER, kind: QUERY_SCHEDULE }
    }

    /// Returns the digest of the chain's only block, which has one leaf.
    fn digest(&self, leaf: &[u8]) -> Digest {
        let mut prefix = [0; 64];
        prefix[..15].copy_from_slice(b"moteseal/cast/1");
        prefix[24..32].copy_from_slice(&self.network.0);
        prefix[32..40].copy_from_slice(&self.sender.0);
        prefix[40..48].copy_from_slice(&self.key);
        prefix[48..56].copy_from_slice(&self.number.to_be_bytes());
        prefix[56] = 1;
        Digest::of(&[&prefix, leaf])
    }

    fn head(&self, leaf: &[u8]) -> Value {
        let [network, sender, key] = [self.network.0, self.sender.0, self.key].map(|id| bytes(&id));
        let window = [int(0), Value::Uint(u64::MAX)];
        let shape = [int(1), int(1), Value::Uint(leaf.len() as u64), int(self.kind), text("")];
        let shape = shape.into_iter().chain(window).chain([int(0), int(-16)]);
        let facts = [int(1), network, sender, key, Value::Uint(self.number)];
        let digests = [bytes(&self.digest(leaf).0), bytes(&[])];
        Value::Array(facts.into_iter().chain(shape).chain(digests).collect())
    }

    fn issue(&self, querier: &SecretKey, leaf: &[u8]) -> Vec<u8> {
        single(&signed(querier, &self.head(leaf)), leaf)
    }
}

fn signed(querier: &SecretKey, head: &Value) -> Vec<u8> {
    sign1(querier, &header(querier.algorithm(), CHAIN, &[]), &head.encode())
}

fn single(head: &[u8], leaf: &[u8]) -> Vec<u8> {
    array([int(38), bytes(head), bytes(leaf)]).encode()
}

fn of_schedule(querier: &SecretKey, bytes: &[u8]) -> Json {
    let public = super::public(querier);
    json!({
        "bytes": hex::encode(bytes), "group": GroupId::of(GROUP).to_string(), "roster": hex::encode(ROSTER),
        "alg": public["alg"], "key": public["key"],
    })
}

fn schedules() -> File {
    let mut file = File::new(
        "sum/agendas.json",
        "What is asked at present, as a chain of one message: sums.md, section 3, and broadcast.md; ids of queries: queries.md, section 3.",
    );
    let op = "sum.agenda";
    let (querier, usual) = (secret(Algorithm::Ed25519, 0x71), ScheduleChain::usual());
    let issued = |message: &Value| usual.issue(&querier, &message.encode());
    let four: Vec<Value> = (1..5).map(|nonce| posed(nonce, 0, u64::MAX)).collect();
    let good = schedule(&[posed(7, 10, 20)]);
    let query = |place: usize, value: Value| schedule(&[posed(7, 10, 20).with(place, value)]);
    for (what, message) in [
        ("nothing is asked", schedule(&[])),
        ("one query", good.clone()),
        ("one epoch", schedule(&[posed(7, 10, 11)])),
        ("four queries, of the same plan", schedule(&four)),
        ("one of two whose ids begin alike", schedule(&[posed(ALIKE[0], 0, 9)])),
        ("the other", schedule(&[posed(ALIKE[1], 0, 9)])),
        (
            "a plan that is none, as long as any: who answers it looks at it",
            query(3, bytes(&[0; 1840])),
        ),
        ("one source", good.with(2, int(1))),
        ("key groups larger than the roster", good.with(3, Value::Uint(u32::MAX.into()))),
    ] {
        file.valid(what, op, of_schedule(&querier, &issued(&message)));
    }
    let leaf = good.encode();
    for (what, number) in [("a number of 0", 0), ("the last number", u64::MAX)] {
        file.valid(
            what,
            op,
            of_schedule(&querier, &ScheduleChain { number, ..usual }.issue(&querier, &leaf)),
        );
    }
    let p256 = secret(Algorithm::Esp256, 0x72);
    file.valid(
        "signed with ESP256",
        op,
        of_schedule(&p256, &ScheduleChain { key: key_id(&p256), ..usual }.issue(&p256, &leaf)),
    );
    refused_chains(&mut file, op, &querier, &good);

    let five: Vec<Value> = (1..6).map(|nonce| posed(nonce, 0, 9)).collect();
    let mut elsewhere = of_schedule(&querier, &issued(&good));
    elsewhere["roster"] = json!(hex::encode([0x2e; 32]));
    file.invalid("opened with another roster", op, elsewhere, "WrongRoster");
    for (what, message, error) in [
        ("for another roster", good.with(1, bytes(&[0x2e; 32])), "WrongRoster"),
        ("a query twice", schedule(&[posed(7, 10, 20), posed(7, 10, 20)]), "AmbiguousQuery"),
        (
            "a query twice, for other epochs",
            schedule(&[posed(7, 10, 20), posed(7, 30, 40)]),
            "AmbiguousQuery",
        ),
        (
            "two whose ids begin alike",
            schedule(&[posed(ALIKE[0], 0, 9), posed(1, 0, 9), posed(ALIKE[1], 0, 9)]),
            "AmbiguousQuery",
        ),
        ("five queries", schedule(&five), "FieldOutOfRange"),
        ("no epoch at all", schedule(&[posed(7, 10, 10)]), "FieldOutOfRange"),
        ("epochs that end before they begin", schedule(&[posed(7, 10, 9)]), "FieldOutOfRange"),
        ("a plan of 1,841 bytes", query(3, bytes(&[0; 1841])), "FieldOutOfRange"),
        ("no sources", good.with(2, int(0)), "FieldOutOfRange"),
        ("2^32 sources", good.with(2, Value::Uint(1 << 32)), "FieldOutOfRange"),
        ("key groups of nobody", good.with(3, int(0)), "FieldOutOfRange"),
        ("version 2", good.with(0, int(2)), "UnsupportedVersion"),
        ("a roster's digest of 31 bytes", good.with(1, bytes(&[0; 31])), "UnexpectedType"),
        ("sources of -1", good.with(2, int(-1)), "UnexpectedType"),
        ("queries of null", good.with(4, NULL), "UnexpectedType"),
        ("a nonce of 15 bytes", query(0, bytes(&[0; 15])), "UnexpectedType"),
        ("an epoch of -1", query(1, int(-1)), "UnexpectedType"),
        (
            "a plan that is not wrapped",
            query(3, Value::decode(&hex::decode(PLAN).unwrap())),
            "UnexpectedType",
        ),
        ("four fields", Value::Array(good.clone().elements()[..4].to_vec()), "UnexpectedType"),
        (
            "six fields",
            Value::Array([&good.clone().elements()[..], &[NULL]].concat()),
            "UnexpectedType",
        ),
    ] {
        file.invalid(what, op, of_schedule(&querier, &issued(&message)), error);
    }
    let with_trailing_byte = usual.issue(&querier, &[leaf, vec![0]].concat());
    file.invalid(
        "a byte behind the agenda",
        op,
        of_schedule(&querier, &with_trailing_byte),
        "TrailingBytes",
    );
    file.invalid(
        "a message of nothing",
        op,
        of_schedule(&querier, &usual.issue(&querier, &[])),
        "Truncated",
    );
    file.mutate("changed everywhere", op, of_schedule(&querier, &issued(&good)), "bytes", &[0x01]);
    file
}

/// Adds cases with chains that are rejected whatever their message is, because the querier did not
/// send them to this group.
fn refused_chains(file: &mut File, op: &'static str, querier: &SecretKey, good: &Value) {
    let (usual, leaf) = (ScheduleChain::usual(), good.encode());
    let by = |key: &SecretKey, chain: ScheduleChain| of_schedule(querier, &chain.issue(key, &leaf));
    file.invalid(
        "another suite than the querier's",
        op,
        by(&secret(Algorithm::Esp256, 0x72), usual),
        "AlgorithmMismatch",
    );
    file.invalid(
        "signed by somebody else",
        op,
        by(&secret(Algorithm::Ed25519, 0x73), usual),
        "NotAuthentic",
    );
    let other = secret(Algorithm::Ed25519, 0x73);
    file.invalid(
        "under another key",
        op,
        by(&other, ScheduleChain { key: key_id(&other), ..usual }),
        "WrongKey",
    );
    file.invalid(
        "under another key's name",
        op,
        by(querier, ScheduleChain { key: key_id(&other), ..usual }),
        "WrongKey",
    );
    file.invalid(
        "for another network",
        op,
        by(querier, ScheduleChain { network: GroupId::of("others"), ..usual }),
        "WrongNetwork",
    );
    file.invalid(
        "by another sender of the network",
        op,
        by(querier, ScheduleChain { sender: DeviceId(*b"mote0001"), ..usual }),
        "WrongSender",
    );
    file.invalid(
        "said as plain messages",
        op,
        by(querier, ScheduleChain { kind: MESSAGES, ..usual }),
        "WrongKind",
    );
    let under = |typ: &str| {
        let head =
            sign1(querier, &header(Algorithm::Ed25519, typ, &[]), &usual.head(&leaf).encode());
        of_schedule(querier, &single(&head, &leaf))
    };
    file.invalid("another type of object", op, under("moteseal-round+cose"), "WrongType");
    let head = usual.head(&leaf);
    let other = schedule(&[]).encode();
    let combined =
        |head: &Value, leaf: &[u8]| of_schedule(querier, &single(&signed(querier, head), leaf));
    file.invalid(
        "another agenda under the head of this one",
        op,
        combined(&head, &other),
        "ForgedLeaf",
    );
    // The digest depends on the chain number, so the leaf of one chain is not valid in another.
    let renumbered = ScheduleChain { number: NUMBER + 1, ..usual }
        .head(&leaf)
        .with(14, bytes(&usual.digest(&leaf).0));
    file.invalid("the digest under another number", op, combined(&renumbered, &leaf), "ForgedLeaf");
    let item =
        |kind: i64| array([int(kind), bytes(&signed(querier, &head)), bytes(&leaf)]).encode();
    file.invalid("a frame of another kind", op, of_schedule(querier, &item(34)), "UnexpectedType");
}
