//! Vectors of streams: runs of stars and trees, and parts whose events differ from the sealed ones.

use moteseal_core::record::Scheme;
use moteseal_core::record::SealIndex;
use moteseal_core::signature::Algorithm;
use moteseal_seal::Answered;
use moteseal_verify::{Roster, write};
use serde_json::{Value as Json, json};

use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{Value, bytes, encode_sequence, head, int, sequence};
use moteseal_fixtures::world::{
    DEVICES, Device, Epoch, FIXED, LATTICE, Pick, Sealed, operator, roster, schema, stream,
};

// The indices of the fields in a part's array.
pub const FLAGS: usize = 1;
pub const SKIPPED: usize = 2;
pub const ADVANCE: usize = 3;
pub const SALT: usize = 4;
pub const N: usize = 5;
pub const ROUND: usize = 6;
pub const OWN_ROUND: usize = 7;
pub const LOST: usize = 8;
pub const ANSWERED: usize = 9;
pub const SELECT: usize = 10;
pub const DIGESTS: usize = 11;
pub const EVENTS: usize = 12;
pub const SIGNATURE: usize = 13;

pub const ALL: Pick = Pick::Levels(0xff);

pub fn make(files: &mut Files) {
    files.add(runs());
    files.add(lattice());
    files.add(levels());
    files.add(stars());
    files.add(trees());
    files.add(mutations());
}

/// Creates a file of vectors with streams of the group.
pub fn file_of_streams(path: &'static str, about: &'static str) -> File {
    File::new(path, about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(roster(DEVICES))))
        .shared("max_events", json!(4096))
}

pub fn group() -> Roster {
    Roster::open(&roster(DEVICES), &operator().public()).unwrap()
}

/// Returns three consecutive seals of a device with 4-byte records.
pub fn three(name: &'static str, scheme: Scheme) -> Vec<Sealed> {
    let mut device = Device::new(&group(), name, &schema(FIXED));
    [(7, 24), (8, 0), (11, 17)]
        .map(|(epoch, count)| device.seal(&Epoch::new(scheme, epoch, count)))
        .to_vec()
}

pub fn opaque(scheme: Scheme) -> Sealed {
    let mut epoch = Epoch::new(scheme, 6, 0);
    epoch.records = (0..20usize).map(|i| vec![i as u8; i * i % 23]).collect();
    Device::new(&group(), "p256", &schema(&[])).seal(&epoch)
}

fn runs() -> File {
    let mut file =
        file_of_streams("stream/runs.json", "Streams that verify: answers.md, section 1.");
    let fixed = schema(FIXED);
    for scheme in [Scheme::Star, Scheme::Tree] {
        let sealed = three("ed", scheme);
        for mask in [0xff, 0xfe, 0x09, 0x80, 0] {
            let name = format!("a run of three {}s, levels {mask:#04x}", scheme.as_str());
            file.valid(name, "stream.read", of(&stream(&fixed, &sealed, &Pick::Levels(mask))));
        }
        let one = opaque(scheme);
        let name = format!("opaque records in a {}", scheme.as_str());
        file.valid(
            name,
            "stream.read",
            of(&stream(&schema(&[]), std::slice::from_ref(&one), &ALL)),
        );
    }
    let tree = three("ed", Scheme::Tree);
    for events in [vec![0], vec![23], vec![0, 1, 2, 3], vec![5, 6, 17, 22], (0..24).collect()] {
        let name = format!("events {events:?} of a tree");
        file.valid(name, "stream.read", of(&stream(&fixed, &tree[..1], &Pick::Events(events))));
    }
    file.valid("nothing at all", "stream.read", of(b""));
    let mut end = Vec::new();
    write::end(&mut end);
    file.valid("an end alone", "stream.read", of(&end));
    let mut proof = Vec::new();
    write::proof(&mut proof, "{}");
    proof.extend(stream(&fixed, &tree[..1], &ALL));
    write::problem(&mut proof, "Overloaded", "try again later");
    proof.extend(tree[0].explain(true));
    proof.extend(&end);
    file.valid("every kind of item", "stream.read", of(&proof));

    let signed: Vec<u8> = tree.iter().flat_map(|one| one.part(&ALL, true)).collect();
    let mut each = Vec::new();
    write::schema(&mut each, &fixed);
    each.extend(tree[0].open(true));
    each.extend(&signed);
    file.valid("every part signed", "stream.read", of(&each));
    let mut anew = Vec::new();
    write::schema(&mut anew, &fixed);
    for one in &tree {
        anew.extend(one.open(true));
        anew.extend(one.part(&ALL, true));
    }
    file.valid("an open item for each part", "stream.read", of(&anew));
    let mut first = Vec::new();
    write::schema(&mut first, &fixed);
    first.extend(tree[0].open(false));
    first.extend(tree[0].part(&ALL, true));
    file.valid("the first seal's prev is the certificate", "stream.read", of(&first));
    let mut later = Vec::new();
    write::schema(&mut later, &fixed);
    later.extend(tree[2].open(false));
    later.extend(tree[2].part(&ALL, true));
    let known = tree[1].seal.statement();
    let entry = json!({ "device": known.device.to_string(), "index": known.index.0, "digest": tree[1].seal.digest().to_string() });
    file.valid(
        "the receiver knows the seal before",
        "stream.read",
        json!({ "bytes": hex::encode(&later), "known": [entry] }),
    );
    file.invalid(
        "the receiver does not know the seal before",
        "stream.read",
        of(&later),
        "PrevUnknown",
    );
    let wrong = json!({ "device": known.device.to_string(), "index": known.index.0, "digest": "00".repeat(32) });
    file.invalid(
        "the receiver knows another seal before",
        "stream.read",
        json!({ "bytes": hex::encode(&later), "known": [wrong] }),
        "NotAuthentic",
    );

    // These seals have a restart, rounds, lost events, answered queries, several parts in one
    // epoch, and a change to the next key.
    let mut device = Device::new(&group(), "ed", &fixed);
    let mut open_part = Epoch::new(Scheme::Star, 20, 30);
    open_part.last_in_epoch = false;
    open_part.answered = (1..=8)
        .map(|i| Answered { query: [i; 16], first: u64::MAX - 1000, count: 125 * u32::from(i) })
        .collect();
    let mut rounds = Epoch::new(Scheme::Star, 20, 40);
    (rounds.round, rounds.own_round) = (1, 3);
    let mut restart = Epoch::new(Scheme::Star, 999, 40);
    (restart.restart, restart.skipped) = (true, 97);
    let mut lost = Epoch::new(Scheme::Star, 1000, 60);
    lost.lost = Some(vec![2, 0, 1, 0, 0, 0, 0, 0]);
    let sealed: Vec<Sealed> =
        [open_part, rounds, restart, lost].iter().map(|epoch| device.seal(epoch)).collect();
    assert_eq!(sealed[2].seal.statement().index, SealIndex(99));
    assert_eq!(sealed[3].seal.algorithm(), Algorithm::Esp256);
    for mask in [0xff, 0xf8, 0x18, 0] {
        let name = format!("parts, rounds, a restart, losses and the next key, levels {mask:#04x}");
        file.valid(name, "stream.read", of(&stream(&fixed, &sealed, &Pick::Levels(mask))));
    }
    let late = {
        let mut device = Device::new(&group(), "late", &fixed);
        let mut epoch = Epoch::new(Scheme::Star, 5, 3);
        (epoch.restart, epoch.skipped) = (true, 3);
        device.seal(&epoch)
    };
    file.valid("the first seal is not index 0", "stream.read", of(&stream(&fixed, &[late], &ALL)));
    let mut long = Device::new(&group(), "ed", &fixed);
    let quiet: Vec<Sealed> =
        (0..256).map(|i| long.seal(&Epoch::new(Scheme::Star, 50 + i, 0))).collect();
    file.valid("a run of 256 parts", "stream.read", of(&stream(&fixed, &quiet, &ALL)));
    let one_more = long.seal(&Epoch::new(Scheme::Star, 400, 0));
    let too_long = [quiet, vec![one_more]].concat();
    file.invalid(
        "a run of 257 parts",
        "stream.read",
        of(&stream(&fixed, &too_long, &ALL)),
        "RunTooLong",
    );
    file
}

fn lattice() -> File {
    let mut file = File::new("stream/ml-dsa-44.json", "A run signed with ML-DSA-44.")
        .operator(&operator())
        .shared("roster", json!(hex::encode(roster(LATTICE))));
    let group = Roster::open(&roster(LATTICE), &operator().public()).unwrap();
    let mut device = Device::new(&group, "pq", &schema(FIXED));
    let sealed = [7, 8].map(|epoch| device.seal(&Epoch::new(Scheme::Star, epoch, 12)));
    let good = stream(&schema(FIXED), &sealed, &ALL);
    file.valid("a run of two", "stream.read", of(&good));
    let mut items = sequence(&good);
    items[3] = items[3].with(SIGNATURE, bytes(&[0; 64]));
    file.invalid(
        "a short signature",
        "stream.read",
        of(&encode_sequence(&items)),
        "MalformedSignature",
    );
    items[3] = items[3].with(SIGNATURE, bytes(&[0; 2420]));
    file.invalid(
        "a signature of zeros",
        "stream.read",
        of(&encode_sequence(&items)),
        "NotAuthentic",
    );
    file
}

/// Returns the items of a valid run of one star: schema, open item and part.
pub fn one_star() -> Vec<Value> {
    sequence(&stream(&schema(FIXED), &three("ed", Scheme::Star)[..1], &ALL))
}

pub fn changed(items: &[Value], at: usize, field: usize, value: Value) -> Json {
    let mut items = items.to_vec();
    items[at] = items[at].with(field, value);
    of(&encode_sequence(&items))
}

fn levels() -> File {
    let mut file = file_of_streams(
        "level/streams.json",
        "Salts and numbers of events that a device did not seal: counters follow from them.",
    );
    let good = one_star();
    file.valid(
        "the stream that the others are made of",
        "stream.read",
        of(&encode_sequence(&good)),
    );
    file.invalid(
        "another salt",
        "stream.read",
        changed(&good, 2, SALT, bytes(&[7; 16])),
        "SelectOutOfRange",
    );
    // Another salt changes the counters, so the check of the selection fails first. If no events
    // are selected, the signature check fails instead.
    let nothing =
        sequence(&stream(&schema(FIXED), &three("ed", Scheme::Star)[..1], &Pick::Levels(0)));
    file.invalid(
        "another salt, nothing selected",
        "stream.read",
        changed(&nothing, 2, SALT, bytes(&[7; 16])),
        "NotAuthentic",
    );
    file.invalid(
        "an event less, nothing selected",
        "stream.read",
        changed(&nothing, 2, N, int(23)),
        "NotAuthentic",
    );
    file.invalid(
        "an event more, nothing selected",
        "stream.read",
        changed(&nothing, 2, N, int(25)),
        "NotAuthentic",
    );
    file.invalid(
        "no events, nothing selected",
        "stream.read",
        changed(&nothing, 2, N, int(0)),
        "DigestCount",
    );
    file.invalid("an event less", "stream.read", changed(&good, 2, N, int(23)), "EventsLength");
    file
}

fn stars() -> File {
    let mut file = file_of_streams(
        "star/parts.json",
        "Parts of stars whose events or digests are not those that were sealed.",
    );
    let fixed = schema(FIXED);
    let sealed = &three("ed", Scheme::Star)[..1];
    let part_of = |mask: u32| sequence(&stream(&fixed, sealed, &Pick::Levels(mask)));
    let read = |mask: u32, field: usize, value: Value| changed(&part_of(mask), 2, field, value);
    let field_of = |mask: u32, field: usize| {
        let Value::Array(fields) = part_of(mask)[2].clone() else { panic!() };
        let Value::Bytes(bytes) = fields[field].clone() else { panic!() };
        bytes
    };
    for mask in [0xff, 0x0e, 0x05, 0x02, 0] {
        file.valid(
            format!("levels {mask:#04x}"),
            "stream.read",
            of(&encode_sequence(&part_of(mask))),
        );
    }
    let events = field_of(0xff, EVENTS);
    for at in [0, events.len() / 2, events.len() - 1] {
        let mut other = events.clone();
        other[at] ^= 0x80;
        file.invalid(
            format!("byte {at} of the events"),
            "stream.read",
            read(0xff, EVENTS, bytes(&other)),
            "NotAuthentic",
        );
    }
    let mut swapped = events.clone();
    swapped.rotate_left(4);
    file.invalid(
        "the events in another order",
        "stream.read",
        read(0xff, EVENTS, bytes(&swapped)),
        "NotAuthentic",
    );
    let mut coarse = events.clone();
    let at = coarse.len() - 8;
    coarse[at..].rotate_left(4);
    file.invalid(
        "two events of the coarsest level swapped",
        "stream.read",
        read(0xff, EVENTS, bytes(&coarse)),
        "NotAuthentic",
    );
    let digests = field_of(0x05, DIGESTS);
    assert!(digests.len() >= 64);
    for at in [0, digests.len() - 1] {
        let mut other = digests.clone();
        other[at] ^= 1;
        file.invalid(
            format!("byte {at} of the digests"),
            "stream.read",
            read(0x05, DIGESTS, bytes(&other)),
            "NotAuthentic",
        );
    }
    let mut order = digests.clone();
    order.rotate_left(32);
    file.invalid(
        "the digests in another order",
        "stream.read",
        read(0x05, DIGESTS, bytes(&order)),
        "NotAuthentic",
    );
    file.invalid(
        "a digest less",
        "stream.read",
        read(0x05, DIGESTS, bytes(&digests[32..])),
        "DigestCount",
    );
    file.invalid(
        "a byte less",
        "stream.read",
        read(0x05, DIGESTS, bytes(&digests[1..])),
        "DigestCount",
    );
    file.invalid(
        "a digest of nothing",
        "stream.read",
        read(0, DIGESTS, bytes(&[0; 32])),
        "NotAuthentic",
    );
    file.invalid(
        "no digests where nothing is selected",
        "stream.read",
        read(0, DIGESTS, bytes(b"")),
        "DigestCount",
    );
    file.invalid(
        "fewer levels said to be there",
        "stream.read",
        read(0xff, SELECT, int(0x01)),
        "DigestCount",
    );
    file.invalid("said to be a tree", "stream.read", read(0xff, FLAGS, int(3)), "NotAuthentic");
    file.invalid(
        "losses invented",
        "stream.read",
        read(0, LOST, Value::Array([vec![int(1)], vec![int(0); 7]].concat())),
        "NotAuthentic",
    );
    file.invalid("a round invented", "stream.read", read(0, OWN_ROUND, int(1)), "NotAuthentic");

    let one = opaque(Scheme::Star);
    let items = sequence(&stream(&schema(&[]), &[one], &ALL));
    let Value::Array(fields) = &items[2] else { panic!() };
    let Value::Bytes(events) = &fields[EVENTS] else { panic!() };
    file.invalid(
        "an opaque record cut short",
        "stream.read",
        changed(&items, 2, EVENTS, bytes(&events[..events.len() - 1])),
        "EventsLength",
    );
    file.invalid(
        "a byte behind opaque records",
        "stream.read",
        changed(&items, 2, EVENTS, bytes(&[&events[..], &[0]].concat())),
        "EventsLength",
    );
    file.invalid(
        "an empty record behind opaque records",
        "stream.read",
        changed(&items, 2, EVENTS, bytes(&[&events[..], &[0, 0]].concat())),
        "EventsLength",
    );
    let mut longer = events.clone();
    longer[0] = 0xff;
    file.invalid(
        "a record longer than the events",
        "stream.read",
        changed(&items, 2, EVENTS, bytes(&longer)),
        "EventsLength",
    );
    let Value::Bytes(signature) = &fields[SIGNATURE] else { panic!() };
    let mut high = signature.clone();
    high[32..].copy_from_slice(&negated(&signature[32..]));
    file.invalid(
        "a signature with s in the upper half",
        "stream.read",
        changed(&items, 2, SIGNATURE, bytes(&high)),
        "HighS",
    );
    file
}

/// Returns the order of the P-256 group minus `s`.
pub fn negated(s: &[u8]) -> Vec<u8> {
    let order =
        hex::decode("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551").unwrap();
    let (mut out, mut borrow) = (vec![0; 32], 0i32);
    for at in (0..32).rev() {
        let digit = i32::from(order[at]) - i32::from(s[at]) - borrow;
        out[at] = digit.rem_euclid(256) as u8;
        borrow = i32::from(digit < 0);
    }
    out
}

fn trees() -> File {
    let mut file = file_of_streams(
        "tree/parts.json",
        "Parts of trees whose events or digests are not those that were sealed.",
    );
    let fixed = schema(FIXED);
    let sealed = &three("ed", Scheme::Tree)[..1];
    let part_of = |pick: &Pick| sequence(&stream(&fixed, sealed, pick));
    let some = Pick::Events(vec![3, 4, 20]);
    let good = part_of(&some);
    let Value::Array(fields) = good[2].clone() else { panic!() };
    let (Value::Bytes(digests), Value::Bytes(events)) =
        (fields[DIGESTS].clone(), fields[EVENTS].clone())
    else {
        panic!()
    };
    let read = |field: usize, value: Value| changed(&good, 2, field, value);
    file.valid("three events", "stream.read", of(&encode_sequence(&good)));
    file.valid(
        "all events one by one",
        "stream.read",
        of(&encode_sequence(&part_of(&Pick::Events((0..24).collect())))),
    );
    for (name, gaps, error) in [
        ("another event with as many digests", vec![3, 0, 16], "NotAuthentic"),
        ("other events", vec![2, 0, 16], "DigestCount"),
        ("the neighbours", vec![4, 0, 14], "DigestCount"),
        ("an event that is not there", vec![3, 0, 19], "SelectOutOfRange"),
        ("an event far away", vec![3, u64::MAX], "SelectOutOfRange"),
        ("an event beyond all numbers", vec![u64::MAX, u64::MAX], "SelectOutOfRange"),
        ("an event less", vec![3, 0], "DigestCount"),
        ("an event more", vec![3, 0, 15, 0], "DigestCount"),
    ] {
        file.invalid(
            name,
            "stream.read",
            read(SELECT, Value::Array(gaps.into_iter().map(Value::Uint).collect())),
            error,
        );
    }
    for at in [0, digests.len() - 1] {
        let mut other = digests.clone();
        other[at] ^= 1;
        file.invalid(
            format!("byte {at} of the digests"),
            "stream.read",
            read(DIGESTS, bytes(&other)),
            "NotAuthentic",
        );
    }
    let mut order = digests.clone();
    order.rotate_left(32);
    file.invalid(
        "the digests in another order",
        "stream.read",
        read(DIGESTS, bytes(&order)),
        "NotAuthentic",
    );
    file.invalid(
        "a digest less",
        "stream.read",
        read(DIGESTS, bytes(&digests[32..])),
        "DigestCount",
    );
    file.invalid(
        "a digest more",
        "stream.read",
        read(DIGESTS, bytes(&[&digests[..], &[0; 32]].concat())),
        "DigestCount",
    );
    for at in [0, events.len() - 1] {
        let mut other = events.clone();
        other[at] ^= 0x40;
        file.invalid(
            format!("byte {at} of the events"),
            "stream.read",
            read(EVENTS, bytes(&other)),
            "NotAuthentic",
        );
    }
    let mut order = events.clone();
    order.rotate_left(4);
    file.invalid(
        "the events in another order",
        "stream.read",
        read(EVENTS, bytes(&order)),
        "NotAuthentic",
    );
    file.invalid(
        "an event missing",
        "stream.read",
        read(EVENTS, bytes(&events[4..])),
        "EventsLength",
    );
    file.invalid("said to be a star", "stream.read", read(FLAGS, int(2)), "SelectOutOfRange");
    let all = part_of(&ALL);
    file.invalid(
        "all events, said to be a star",
        "stream.read",
        changed(&all, 2, FLAGS, int(2)),
        "NotAuthentic",
    );
    file.invalid(
        "all events, but fewer said to be there",
        "stream.read",
        changed(&all, 2, N, int(23)),
        "EventsLength",
    );
    let nothing = part_of(&Pick::Levels(0));
    file.invalid(
        "nothing selected, another root",
        "stream.read",
        changed(&nothing, 2, DIGESTS, bytes(&[5; 32])),
        "NotAuthentic",
    );
    file.invalid(
        "nothing selected, no root",
        "stream.read",
        changed(&nothing, 2, DIGESTS, bytes(b"")),
        "DigestCount",
    );
    // The hash of an inner node must not be accepted as the hash of a leaf. The two kinds of hash
    // inputs start with different bytes.
    let pair = [sealed[0].leaves()[0].0, sealed[0].leaves()[1].0].concat();
    let items = sequence(&stream(&schema(&[]), &[opaque(Scheme::Tree)], &Pick::Events(vec![0])));
    let forged = [&head(0, 0)[..0], &64u16.to_be_bytes(), &pair].concat();
    file.invalid(
        "an inner node for an event",
        "stream.read",
        changed(&items, 2, EVENTS, bytes(&forged)),
        "NotAuthentic",
    );
    raised(&mut file);
    file
}

/// Adds cases with a tree whose device did not forward the events below level 2.
fn raised(file: &mut File) {
    let fixed = schema(FIXED);
    let mut epoch = Epoch::new(Scheme::Tree, 7, 24);
    (epoch.round, epoch.own_round) = (1, 2);
    let sealed = Device::new(&group(), "ed", &fixed).seal(&epoch);
    let part_of = |pick: &Pick| sequence(&stream(&fixed, std::slice::from_ref(&sealed), pick));
    let at = |wanted: fn(u8) -> bool| -> Vec<u64> {
        (0..24).filter(|&seq| wanted(sealed.level(seq as usize))).collect()
    };
    let (there, gone) = (at(|level| level >= 2), at(|level| level < 2));
    for mask in [0xff, 0xf8, 0x04, 0] {
        let name = format!("a tree from level 2 on, levels {mask:#04x}");
        file.valid(name, "stream.read", of(&encode_sequence(&part_of(&Pick::Levels(mask)))));
    }
    let events = |events: &[u64]| of(&encode_sequence(&part_of(&Pick::Events(events.to_vec()))));
    file.valid("a tree from level 2 on, its events one by one", "stream.read", events(&there));
    file.valid("a tree from level 2 on, one event", "stream.read", events(&there[1..2]));
    file.invalid(
        "an event that the device did not keep",
        "stream.read",
        events(&gone[..1]),
        "SelectOutOfRange",
    );
    let mut both = [&there[..], &gone[..1]].concat();
    both.sort_unstable();
    file.invalid(
        "one that the device did not keep among others",
        "stream.read",
        events(&both),
        "SelectOutOfRange",
    );
    let good = part_of(&Pick::Levels(0xff));
    file.invalid(
        "the device's round lowered",
        "stream.read",
        changed(&good, 2, OWN_ROUND, int(1)),
        "NotAuthentic",
    );
    file.invalid(
        "the device's round raised",
        "stream.read",
        changed(&good, 2, OWN_ROUND, int(3)),
        "SelectOutOfRange",
    );
    file.invalid(
        "a level selected that the device did not keep",
        "stream.read",
        changed(&good, 2, SELECT, int(0xfe)),
        "SelectOutOfRange",
    );
}

fn mutations() -> File {
    let mut file = file_of_streams(
        "stream/mutations.json",
        "Streams of one seal, changed everywhere: no change yields a row.",
    );
    let fixed = schema(FIXED);
    let small = |scheme| Device::new(&group(), "ed", &fixed).seal(&Epoch::new(scheme, 7, 6));
    for (name, bytes) in [
        ("a star", stream(&fixed, &[small(Scheme::Star)], &Pick::Levels(0xfe))),
        ("a tree", stream(&fixed, &[small(Scheme::Tree)], &Pick::Levels(0xfe))),
        ("events of a tree", stream(&fixed, &[small(Scheme::Tree)], &Pick::Events(vec![1, 4]))),
        (
            "a star of opaque records",
            stream(&schema(&[]), &[opaque(Scheme::Star)], &Pick::Levels(0x0c)),
        ),
    ] {
        file.valid(name, "stream.read", of(&bytes));
        file.mutate(name, "stream.read", of(&bytes), "bytes", &[0x01, 0x02, 0x20, 0x80]);
    }
    file
}
