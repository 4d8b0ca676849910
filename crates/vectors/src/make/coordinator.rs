//! Vectors of the objects that a coordinator signs: announcements of rounds, and manifests
//! (spec/coordinator.md, section 3).

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, Round};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT, ManifestDraft};
use moteseal_verify::Roster;
use serde_json::json;

use super::cose::{parts_of, tagged};
use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{
    BUDGETED, FIRST_EPOCH, GROUP, LAST_EPOCH, LEVELS, budgeted_roster, coordinator, device_secret,
    header, operator, sign1, sign1_raw,
};

const ROUND: &str = "moteseal-round+cose";
const MANIFEST: &str = "moteseal-manifest+cose";
const ED: Algorithm = Algorithm::Ed25519;

pub fn make(files: &mut Files) {
    files.add(announcements());
    files.add(manifests());
    files.add(of_p256());
}

/// Creates a file of vectors for the group with a budget.
pub fn file_within(path: &'static str, about: &'static str, coordinator: Algorithm) -> File {
    File::new(path, about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(budgeted_roster(coordinator))))
}

pub fn group_within(coordinator: Algorithm) -> Roster {
    Roster::open(&budgeted_roster(coordinator), &operator().public()).unwrap()
}

pub fn id(name: &str) -> DeviceId {
    DeviceId::of(GROUP, name)
}

/// Returns a manifest of the group with a budget, signed by its coordinator.
pub fn manifest(epoch: u64, round: u8, listed: &[(DeviceId, Vec<Digest>)]) -> Vec<u8> {
    manifest_under(group_within(ED).digest(), epoch, round, listed)
}

pub fn manifest_under(
    roster: Digest,
    epoch: u64,
    round: u8,
    listed: &[(DeviceId, Vec<Digest>)],
) -> Vec<u8> {
    let mut listed = listed.to_vec();
    listed.sort();
    let devices: Vec<(DeviceId, &[Digest])> =
        listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
    let (group, epoch, round) = (GroupId::of(GROUP), EpochNumber(epoch), Round(round));
    let draft = ManifestDraft { group, roster, epoch, round, devices: &devices };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.issue(&coordinator(ED), &mut scratch, &mut out).unwrap().to_vec()
}

fn announced(epoch: u64, round: u8, coordinator: &SecretKey) -> Vec<u8> {
    let mut out = [0; MAX_ANNOUNCEMENT];
    Announcement::issue(GroupId::of(GROUP), EpochNumber(epoch), Round(round), coordinator, &mut out)
        .unwrap()
        .to_vec()
}

/// Adds cases with the faults that every signed object of a coordinator can have, here with a valid
/// payload.
fn objects(file: &mut File, op: &'static str, typ: &str, payload: &[u8]) {
    let key = coordinator(ED);
    let good = sign1(&key, &header(ED, typ, &[]), payload);
    let parts = parts_of(&good);
    let with = |at: usize, value: Value| {
        let mut changed = parts.clone();
        changed[at] = value;
        tagged(changed)
    };
    let other = if typ == ROUND { MANIFEST } else { ROUND };
    let Value::Bytes(signature) = parts[3].clone() else { panic!() };
    let longer = [&payload[..payload.len() - 1], &[payload[payload.len() - 1] ^ 1]].concat();
    for (name, object, error) in [
        ("nothing", Vec::new(), "Truncated"),
        ("cut short", good[..good.len() - 1].to_vec(), "Truncated"),
        ("bytes behind it", [good.clone(), vec![0]].concat(), "TrailingBytes"),
        ("no tag", Value::Array(parts.clone()).encode(), "UnexpectedType"),
        ("three elements", tagged(parts[..3].to_vec()), "UnexpectedType"),
        (
            "an unprotected header",
            with(1, Value::Map(vec![(int(4), bytes(b"c"))])),
            "UnexpectedHeader",
        ),
        ("a detached payload", with(2, NULL), "UnexpectedType"),
        (
            "the coordinator's other kind of word",
            sign1(&key, &header(ED, other, &[]), payload),
            "WrongType",
        ),
        (
            "said to be a certificate",
            sign1(&key, &header(ED, "moteseal-cert+cose", &[]), payload),
            "WrongType",
        ),
        ("no typ", sign1(&key, &Value::Map(vec![(int(1), int(-19))]), payload), "WrongType"),
        (
            "a statement",
            sign1(&key, &header(ED, typ, &[(-70_001, array([int(1)]))]), payload),
            "UnexpectedHeader",
        ),
        (
            "a tree's vds",
            sign1(&key, &header(ED, typ, &[(395, int(1))]), payload),
            "UnexpectedHeader",
        ),
        ("an unknown suite", sign1_raw(&key, &unknown_suite(typ), payload), "UnknownAlgorithm"),
        (
            "said to be of another suite",
            sign1(&key, &header(Algorithm::Esp256, typ, &[]), payload),
            "AlgorithmMismatch",
        ),
        ("a short signature", with(3, bytes(&signature[1..])), "MalformedSignature"),
        ("a signature of zeros", with(3, bytes(&[0; 64])), "NotAuthentic"),
        ("another payload under the signature", with(2, bytes(&longer)), "NotAuthentic"),
        (
            "signed by the operator",
            sign1(&operator(), &header(ED, typ, &[]), payload),
            "NotAuthentic",
        ),
        (
            "signed by a device",
            sign1(&device_secret("north", ED, 0), &header(ED, typ, &[]), payload),
            "NotAuthentic",
        ),
        (
            "a stranger's, of another group",
            sign1(&operator(), &header(ED, typ, &[]), &foreign(payload)),
            "NotAuthentic",
        ),
        (
            "a stranger's nonsense",
            sign1(&operator(), &header(ED, typ, &[]), b"\xff"),
            "NotAuthentic",
        ),
        ("a payload of nothing", sign1(&key, &header(ED, typ, &[]), b""), "Truncated"),
        (
            "a payload cut short",
            sign1(&key, &header(ED, typ, &[]), &payload[..payload.len() - 1]),
            "Truncated",
        ),
        (
            "bytes behind the payload",
            sign1(&key, &header(ED, typ, &[]), &[payload, &[0]].concat()),
            "TrailingBytes",
        ),
        (
            "a payload that is no array",
            sign1(&key, &header(ED, typ, &[]), &int(1).encode()),
            "UnexpectedType",
        ),
        ("another group's", sign1(&key, &header(ED, typ, &[]), &foreign(payload)), "WrongGroup"),
    ] {
        file.invalid(name, op, of(&object), error);
    }
    file.mutate("changed everywhere", op, of(&good), "bytes", &[0x01, 0x20, 0x80]);
}

fn unknown_suite(typ: &str) -> Vec<u8> {
    Value::Map(vec![(int(1), int(-7)), (int(16), text(typ))]).encode()
}

/// Returns the payload with the id of another group.
fn foreign(payload: &[u8]) -> Vec<u8> {
    Value::decode(payload).with(1, bytes(&GroupId::of("others").0)).encode()
}

fn announcements() -> File {
    let mut file = file_within(
        "word/announcements.json",
        "Rounds that a coordinator announces: coordinator.md, section 2.",
        ED,
    );
    let key = coordinator(ED);
    for (epoch, round) in [(FIRST_EPOCH, 0), (30, 7), (70_000, 31), (u64::MAX, 24)] {
        let name = format!("round {round} of epoch {epoch}");
        file.valid(name, "word.announcement", of(&announced(epoch, round, &key)));
    }
    let fields = [int(1), bytes(&GroupId::of(GROUP).0), int(30), int(3)];
    let payload = array(fields.clone()).encode();
    assert_eq!(sign1(&key, &header(ED, ROUND, &[]), &payload), announced(30, 3, &key));
    objects(&mut file, "word.announcement", ROUND, &payload);
    let signed = |payload: &[u8]| of(&sign1(&key, &header(ED, ROUND, &[]), payload));
    for (name, at, value, error) in [
        ("version 2", 0, int(2), "UnsupportedVersion"),
        ("a group of 9 bytes", 1, bytes(&[0; 9]), "UnexpectedType"),
        ("a negative epoch", 2, int(-1), "UnexpectedType"),
        ("an epoch of null", 2, NULL, "UnexpectedType"),
        ("round 32", 3, int(32), "FieldOutOfRange"),
        ("round 256", 3, int(256), "FieldOutOfRange"),
        ("a round of false", 3, FALSE, "UnexpectedType"),
    ] {
        file.invalid(
            name,
            "word.announcement",
            signed(&array(fields.clone()).with(at, value).encode()),
            error,
        );
    }
    let foreign = Value::decode(&foreign(&payload));
    file.invalid(
        "round 32 of another group",
        "word.announcement",
        signed(&foreign.with(3, int(32)).encode()),
        "FieldOutOfRange",
    );
    let version = foreign.with(0, int(2)).encode();
    file.invalid(
        "version 2 of another group",
        "word.announcement",
        signed(&version),
        "UnsupportedVersion",
    );
    file.invalid(
        "three fields",
        "word.announcement",
        signed(&Value::Array(fields[..3].to_vec()).encode()),
        "UnexpectedType",
    );
    let five = Value::Array([&fields[..], &[int(0)]].concat()).encode();
    file.invalid("five fields", "word.announcement", signed(&five), "UnexpectedType");
    let mut wide = payload.clone();
    wide.splice(payload.len() - 1.., [0x18, 3]);
    file.invalid("a round in too many bytes", "word.announcement", signed(&wide), "NonCanonical");
    // A mote reads announcements into memory of fixed size, so longer ones are rejected before
    // their signature is checked.
    let long = |length: usize| array([bytes(&vec![0; length])]).encode();
    file.invalid("a payload of 32 bytes", "word.announcement", signed(&long(29)), "UnexpectedType");
    file.invalid(
        "a payload of 33 bytes",
        "word.announcement",
        signed(&long(30)),
        "FieldOutOfRange",
    );
    file.invalid(
        "a payload of 500 bytes",
        "word.announcement",
        signed(&long(500)),
        "FieldOutOfRange",
    );
    let stranger = of(&sign1(&operator(), &header(ED, ROUND, &[]), &long(30)));
    file.invalid(
        "a stranger's payload of 33 bytes",
        "word.announcement",
        stranger,
        "FieldOutOfRange",
    );
    let suite = of(&sign1(&key, &header(Algorithm::Esp256, ROUND, &[]), &long(30)));
    file.invalid(
        "a payload of 33 bytes under another suite",
        "word.announcement",
        suite,
        "FieldOutOfRange",
    );
    file
}

fn some_seals(name: &str, count: usize) -> Vec<Digest> {
    (0..count).map(|at| Digest::of(&[name.as_bytes(), &[u8::try_from(at).unwrap()]])).collect()
}

fn manifests() -> File {
    let mut file = file_within(
        "word/manifests.json",
        "Manifests of epochs that are over: coordinator.md, section 3.",
        ED,
    );
    let key = coordinator(ED);
    let roster = group_within(ED).digest();
    let all: Vec<(DeviceId, Vec<Digest>)> =
        BUDGETED.iter().map(|(name, _)| (id(name), some_seals(name, 1))).collect();
    let parts = vec![(id("north"), some_seals("north", 3)), (id("west"), some_seals("west", 30))];
    let phantom = vec![(DeviceId(*b"phantom!"), some_seals("x", 1))];
    let twice = vec![(id("north"), [some_seals("north", 1), some_seals("north", 1)].concat())];
    for (name, manifest) in [
        ("all devices", manifest(30, 2, &all)),
        ("devices with several seals", manifest(30, 2, &parts)),
        ("nobody", manifest(FIRST_EPOCH, 0, &[])),
        ("nothing was kept", manifest(LAST_EPOCH, LEVELS, &all)),
        ("a device that the roster does not have is for the audit", manifest(30, 0, &phantom)),
        ("a seal twice is for the audit", manifest(30, 0, &twice)),
        ("under the roster before", manifest_under(Digest::of(&[b"version 0"]), 30, 1, &all)),
    ] {
        file.valid(name, "word.manifest", of(&manifest));
    }
    let mut sorted = all.clone();
    sorted.sort();
    let entry = |(device, seals): &(DeviceId, Vec<Digest>)| {
        array([bytes(&device.0), Value::Array(seals.iter().map(|seal| bytes(&seal.0)).collect())])
    };
    let listed: Vec<Value> = sorted.iter().map(entry).collect();
    let group = bytes(&GroupId::of(GROUP).0);
    let fields = [int(1), group, bytes(&roster.0), int(30), int(2), Value::Array(listed.clone())];
    let payload = array(fields.clone()).encode();
    assert_eq!(sign1(&key, &header(ED, MANIFEST, &[]), &payload), manifest(30, 2, &all));
    objects(&mut file, "word.manifest", MANIFEST, &payload);
    let signed = |payload: &Value| of(&sign1(&key, &header(ED, MANIFEST, &[]), &payload.encode()));
    let good = array(fields.clone());
    let one = |device: Value, seals: Value| Value::Array(vec![array([device, seals])]);
    let north = bytes(&id("north").0);
    for (name, at, value, error) in [
        ("version 0", 0, int(0), "UnsupportedVersion"),
        ("a group of null", 1, NULL, "UnexpectedType"),
        ("a roster of 31 bytes", 2, bytes(&[0; 31]), "UnexpectedType"),
        ("an unknown roster", 2, bytes(&[7; 32]), "UnknownRoster"),
        ("a negative epoch", 3, int(-1), "UnexpectedType"),
        ("before the first epoch", 3, int(4), "EpochOutOfRange"),
        ("behind the last epoch", 3, int(1001), "EpochOutOfRange"),
        ("an epoch of 2^64-1", 3, Value::Uint(u64::MAX), "EpochOutOfRange"),
        ("a round above the levels", 4, int(9), "RoundOutOfRange"),
        ("round 32", 4, int(32), "RoundOutOfRange"),
        ("round 33", 4, int(33), "FieldOutOfRange"),
        ("round 256", 4, int(256), "FieldOutOfRange"),
        ("a round of null", 4, NULL, "UnexpectedType"),
        ("devices of null", 5, NULL, "UnexpectedType"),
        ("devices as a map", 5, Value::Map(vec![]), "UnexpectedType"),
        ("a device that is no array", 5, Value::Array(vec![int(1)]), "UnexpectedType"),
        (
            "a device of one element",
            5,
            Value::Array(vec![array([north.clone()])]),
            "UnexpectedType",
        ),
        (
            "a device id of 9 bytes",
            5,
            one(bytes(&[0; 9]), array([bytes(&[0; 32])])),
            "UnexpectedType",
        ),
        ("seals that are no array", 5, one(north.clone(), bytes(&[0; 32])), "UnexpectedType"),
        (
            "a seal's digest of 31 bytes",
            5,
            one(north.clone(), array([bytes(&[0; 31])])),
            "UnexpectedType",
        ),
        ("a device without seals", 5, one(north, array([])), "UnsortedDevices"),
        (
            "a device twice",
            5,
            Value::Array(vec![listed[0].clone(), listed[0].clone()]),
            "UnsortedDevices",
        ),
        (
            "devices out of order",
            5,
            Value::Array(vec![listed[1].clone(), listed[0].clone()]),
            "UnsortedDevices",
        ),
    ] {
        file.invalid(name, "word.manifest", signed(&good.with(at, value)), error);
    }
    file.invalid(
        "five fields",
        "word.manifest",
        signed(&Value::Array(fields[..5].to_vec())),
        "UnexpectedType",
    );
    file.invalid(
        "seven fields",
        "word.manifest",
        signed(&Value::Array([&fields[..], &[int(0)]].concat())),
        "UnexpectedType",
    );
    // Each of these cases has two faults, to determine which error is reported.
    let other = bytes(&GroupId::of("others").0);
    let swapped = Value::Array(vec![listed[1].clone(), listed[0].clone()]);
    for (name, changes, error) in [
        ("round 33 and devices of null", vec![(4, int(33)), (5, NULL)], "UnexpectedType"),
        ("round 256 and devices of null", vec![(4, int(256)), (5, NULL)], "FieldOutOfRange"),
        ("round 33 of another group", vec![(4, int(33)), (1, other.clone())], "FieldOutOfRange"),
        (
            "devices out of order, of another group",
            vec![(5, swapped.clone()), (1, other)],
            "WrongGroup",
        ),
        (
            "devices out of order, under an unknown roster",
            vec![(5, swapped), (2, bytes(&[7; 32]))],
            "UnsortedDevices",
        ),
        (
            "an unknown roster before the first epoch",
            vec![(2, bytes(&[7; 32])), (3, int(4))],
            "UnknownRoster",
        ),
        (
            "before the first epoch, a round above the levels",
            vec![(3, int(4)), (4, int(9))],
            "EpochOutOfRange",
        ),
    ] {
        let changed =
            changes.into_iter().fold(good.clone(), |changed, (at, value)| changed.with(at, value));
        file.invalid(name, "word.manifest", signed(&changed), error);
    }
    file
}

fn of_p256() -> File {
    let p256 = Algorithm::Esp256;
    let mut file = file_within(
        "word/esp256.json",
        "Words of a coordinator with a P-256 key: coordinator.md, section 3.",
        p256,
    );
    let key = coordinator(p256);
    let good = announced(30, 3, &key);
    file.valid("a round", "word.announcement", of(&good));
    let roster = group_within(p256).digest();
    let payload = array([
        int(1),
        bytes(&GroupId::of(GROUP).0),
        bytes(&roster.0),
        int(30),
        int(2),
        Value::Array(vec![array([bytes(&id("north").0), array([bytes(&[5; 32])])])]),
    ]);
    let manifest = sign1(&key, &header(p256, MANIFEST, &[]), &payload.encode());
    file.valid("a manifest", "word.manifest", of(&manifest));
    for (op, object) in [("word.announcement", good), ("word.manifest", manifest)] {
        let mut parts = parts_of(&object);
        let Value::Bytes(signature) = &mut parts[3] else { panic!() };
        let negated = super::parts::negated(&signature[32..]);
        signature[32..].copy_from_slice(&negated);
        file.invalid("a signature with s in the upper half", op, of(&tagged(parts)), "HighS");
    }
    let ours = announced(30, 3, &coordinator(ED));
    file.invalid("a round of an Ed25519 key", "word.announcement", of(&ours), "AlgorithmMismatch");
    file
}
