//! Vectors of invalid items, of parts that cannot belong to any seal, and of streams with several
//! errors, which determine which error is reported.

use moteseal_core::record::Scheme;

use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{
    FALSE, NULL, Value, array, bytes, encode_sequence, int, sequence, text,
};
use moteseal_fixtures::world::{Device, FIXED, schema, stream};

use super::parts::*;

pub fn make(files: &mut Files) {
    files.add(items());
    files.add(places());
}

fn items() -> File {
    let mut file = file_of_streams(
        "stream/items.json",
        "What is no item, or none of its fields: objects.md, section 1, and answers.md, section 2, step 1.",
    );
    let good = one_star();
    file.valid(
        "the stream that the others are made of",
        "stream.read",
        of(&encode_sequence(&good)),
    );
    let whole = encode_sequence(&good);
    let wide = Value::Uint(1 << 32);
    let answer = |query: usize| array([bytes(&vec![0; query]), int(1), int(1)]);
    let zeros = |count: usize| Value::Array(vec![int(0); count]);
    for (name, item, error) in [
        ("an integer", int(3), "UnexpectedType"),
        ("a map", Value::Map(vec![]), "UnexpectedType"),
        ("an array of nothing", array([]), "UnexpectedType"),
        ("a kind that is a text", array([text("end")]), "UnexpectedType"),
        ("a negative kind", array([int(-1)]), "UnexpectedType"),
        ("kind 8", array([int(8)]), "UnknownItem"),
        (
            "a kind of 2^64-1 with too many fields",
            array([Value::Uint(u64::MAX), int(0)]),
            "UnknownItem",
        ),
        ("an end of two elements", array([int(3), int(0)]), "UnexpectedType"),
        ("a schema of one element", array([int(0)]), "UnexpectedType"),
        (
            "a schema that is no string",
            array([int(0), array([int(1), array([])])]),
            "UnexpectedType",
        ),
        ("a schema of nothing", array([int(0), bytes(b"")]), "Truncated"),
        ("a schema that is none", array([int(0), bytes(&[0x80])]), "UnexpectedType"),
        ("a schema of version 2", array([int(0), bytes(&[0x82, 2, 0x80])]), "UnsupportedVersion"),
        ("a schema and more", array([int(0), bytes(&[0x82, 1, 0x80, 0])]), "TrailingBytes"),
        ("a problem of two elements", array([int(4), text("X")]), "UnexpectedType"),
        ("a problem without a text", array([int(4), text("X"), NULL]), "UnexpectedType"),
        ("a proof of version 2", array([int(5), int(2), text("{}")]), "UnsupportedVersion"),
        ("a proof without a query", array([int(5), int(1), bytes(b"{}")]), "UnexpectedType"),
        ("an explanation without digests", array([int(6), bytes(b"")]), "UnexpectedType"),
        (
            "an explanation with an array of digests",
            array([int(6), bytes(b""), array([])]),
            "UnexpectedType",
        ),
        ("a tag", Value::Tag(18, Box::new(array([int(3)]))), "UnexpectedType"),
        ("an integer below -24", int(-25), "UnexpectedType"),
        ("a kind below -24", array([int(-25)]), "UnexpectedType"),
        ("a manifest that is an integer below -24", array([int(7), int(-33)]), "UnexpectedType"),
        ("a proof of an integer below -24", array([int(5), int(1), int(-25)]), "UnexpectedType"),
    ] {
        file.invalid(format!("an item: {name}"), "stream.read", of(&item.encode()), error);
        file.invalid(
            format!("behind a good run: {name}"),
            "stream.read",
            of(&[whole.clone(), item.encode()].concat()),
            error,
        );
    }
    for (name, at, value, error) in [
        ("version 2", 1, int(2), "UnsupportedVersion"),
        ("a device of 7 bytes", 2, bytes(&[0; 7]), "UnexpectedType"),
        ("a roster version of 2^32", 3, wide.clone(), "FieldOutOfRange"),
        ("a prev of 31 bytes", 4, bytes(&[0; 31]), "UnexpectedType"),
        ("a prev of false", 4, FALSE, "UnexpectedType"),
        ("prev_index without prev_epoch", 5, int(0), "FieldOutOfRange"),
        ("prev_epoch without prev_index", 6, int(0), "FieldOutOfRange"),
        ("a prev_index of 2^32", 5, wide.clone(), "FieldOutOfRange"),
    ] {
        file.invalid(
            format!("an open: {name}"),
            "stream.read",
            changed(&good, 1, at, value),
            error,
        );
    }
    for (name, at, value, error) in [
        ("a flag that is not there", FLAGS, int(8), "FieldOutOfRange"),
        ("flags of 256", FLAGS, int(256), "FieldOutOfRange"),
        ("flags of null", FLAGS, NULL, "UnexpectedType"),
        ("2^32 skipped", SKIPPED, wide.clone(), "FieldOutOfRange"),
        ("a negative advance", ADVANCE, int(-1), "UnexpectedType"),
        ("a salt of 17 bytes", SALT, bytes(&[0; 17]), "UnexpectedType"),
        ("2^32 events", N, wide.clone(), "FieldOutOfRange"),
        ("a round of 256", ROUND, int(256), "FieldOutOfRange"),
        ("a device's round of null", OWN_ROUND, NULL, "UnexpectedType"),
        ("33 lost counters", LOST, zeros(33), "FieldOutOfRange"),
        ("256 lost counters", LOST, zeros(256), "FieldOutOfRange"),
        ("2^32 lost", LOST, array([wide.clone()]), "FieldOutOfRange"),
        ("lost counters of null", LOST, NULL, "UnexpectedType"),
        ("nine answers", ANSWERED, Value::Array(vec![answer(16); 9]), "FieldOutOfRange"),
        ("a query of 17 bytes", ANSWERED, array([answer(17)]), "UnexpectedType"),
        ("an answer that is a number", ANSWERED, array([int(1)]), "UnexpectedType"),
        (
            "a run of no answers",
            ANSWERED,
            array([array([bytes(&[0; 16]), int(1), int(0)])]),
            "FieldOutOfRange",
        ),
        ("an answer twice", ANSWERED, Value::Array(vec![answer(16); 2]), "FieldOutOfRange"),
        ("a mask of 2^32", SELECT, wide, "FieldOutOfRange"),
        ("a negative mask", SELECT, int(-1), "UnexpectedType"),
        ("a selection of null", SELECT, NULL, "UnexpectedType"),
        ("no gaps", SELECT, array([]), "FieldOutOfRange"),
        ("a gap that is a text", SELECT, array([text("0")]), "UnexpectedType"),
        ("a negative gap", SELECT, array([int(0), int(-1)]), "UnexpectedType"),
        ("an array of digests", DIGESTS, array([]), "UnexpectedType"),
        ("events that are a text", EVENTS, text(""), "UnexpectedType"),
        ("a signature of false", SIGNATURE, FALSE, "UnexpectedType"),
    ] {
        file.invalid(format!("a part: {name}"), "stream.read", changed(&good, 2, at, value), error);
    }
    let Value::Array(fields) = &good[2] else { panic!() };
    let part =
        |fields: &[Value]| of(&[whole.clone(), Value::Array(fields.to_vec()).encode()].concat());
    file.invalid("a part of 13 elements", "stream.read", part(&fields[..13]), "UnexpectedType");
    file.invalid(
        "a part of 15 elements",
        "stream.read",
        part(&[&fields[..], &[NULL]].concat()),
        "UnexpectedType",
    );
    let canonical = |bytes: &[u8]| of(&[whole.clone(), bytes.to_vec()].concat());
    for (name, tail, error) in [
        ("a kind in too many bytes", &[0x81, 0x18, 0x03][..], "NonCanonical"),
        ("an indefinite array", &[0x9f, 0x03, 0xff], "NonCanonical"),
        ("a break", &[0xff], "NonCanonical"),
        ("an item cut short", &[0x81], "Truncated"),
        (
            "a string longer than any item could be, cut short",
            &[0x82, 0x00, 0x5a, 0x00, 0x10, 0x00, 0x00],
            "Truncated",
        ),
    ] {
        file.invalid(format!("behind a good run: {name}"), "stream.read", canonical(tail), error);
    }
    file
}

fn places() -> File {
    let mut file = file_of_streams(
        "stream/order.json",
        "What cannot be a part of any seal, and which failure counts: answers.md, section 2.",
    );
    let fixed = schema(FIXED);
    let sealed = three("ed", Scheme::Star);
    let good = sequence(&stream(&fixed, &sealed, &ALL));
    let read = |items: &[Value]| of(&encode_sequence(items));
    file.valid("the stream that the others are made of", "stream.read", read(&good));
    let (schema_item, open, parts) = (good[0].clone(), good[1].clone(), &good[2..]);
    let end = array([int(3)]);
    let unsigned = |part: &Value| part.with(SIGNATURE, NULL);
    let signed = |part: &Value| part.with(SIGNATURE, bytes(&[1; 64]));
    for (name, items, error) in [
        ("a part first", vec![signed(&parts[0])], "NoOpen"),
        ("a part behind a schema", vec![schema_item.clone(), signed(&parts[0])], "NoOpen"),
        ("a part behind an open", vec![open.clone(), signed(&parts[0])], "SchemaUnknown"),
        ("an unsigned part first", vec![unsigned(&parts[0])], "NoOpen"),
        (
            "a run without a signature",
            vec![schema_item.clone(), open.clone(), unsigned(&parts[0])],
            "Unsigned",
        ),
        (
            "an end within a run",
            vec![schema_item.clone(), open.clone(), unsigned(&parts[0]), end.clone()],
            "Unsigned",
        ),
        (
            "an open within a run",
            vec![
                schema_item.clone(),
                open.clone(),
                unsigned(&parts[0]),
                open.clone(),
                signed(&parts[0]),
            ],
            "Unsigned",
        ),
        (
            "an open of an unknown device within a run",
            vec![
                schema_item.clone(),
                open.clone(),
                unsigned(&parts[0]),
                open.with(2, bytes(&[0; 8])),
            ],
            "Unsigned",
        ),
        (
            "an open that fails leaves none",
            vec![schema_item.clone(), open.with(2, bytes(&[0; 8])), signed(&parts[0])],
            "UnknownDevice",
        ),
        ("an unknown device", vec![open.with(2, bytes(&[0; 8]))], "UnknownDevice"),
        (
            "an unknown device and roster",
            vec![open.with(2, bytes(&[0; 8])).with(3, int(9))],
            "UnknownDevice",
        ),
        ("a roster to come", vec![open.with(3, int(2))], "UnknownRoster"),
        (
            "a roster to come, and another prev",
            vec![open.with(3, int(2)).with(4, bytes(&[0; 32]))],
            "UnknownRoster",
        ),
        ("a first seal with another prev", vec![open.with(4, bytes(&[0; 32]))], "PrevMismatch"),
        (
            "a later seal without prev",
            vec![open.with(4, NULL).with(5, int(0)).with(6, int(6))],
            "PrevUnknown",
        ),
        (
            "an unsigned part that cannot be, then one that is no item",
            vec![
                schema_item.clone(),
                open.clone(),
                unsigned(&parts[0]).with(EVENTS, bytes(&[7; 16])),
                array([int(9)]),
            ],
            "EventsLength",
        ),
        (
            "an unsigned part that cannot be, then a schema that is none",
            vec![
                schema_item.clone(),
                open.clone(),
                unsigned(&parts[0]).with(DIGESTS, bytes(&[7; 32])),
                array([int(0), bytes(b"")]),
            ],
            "DigestCount",
        ),
        (
            "an unsigned part that cannot be, then an end",
            vec![
                schema_item.clone(),
                open.clone(),
                unsigned(&parts[0]).with(N, int(5000)),
                end.clone(),
            ],
            "TooManyEvents",
        ),
        (
            "an unsigned part that cannot be, then nothing",
            vec![schema_item.clone(), open.clone(), unsigned(&parts[0]).with(OWN_ROUND, int(8))],
            "RoundOutOfRange",
        ),
        (
            "a good run, then an unsigned part",
            vec![
                schema_item.clone(),
                open.clone(),
                parts[0].clone(),
                parts[1].clone(),
                parts[2].clone(),
                unsigned(&parts[1]),
            ],
            "Unsigned",
        ),
    ] {
        file.invalid(name, "stream.read", read(&items), error);
    }
    let after = |index: u64, epoch: u64, part: &Value| {
        let open =
            open.with(4, bytes(&[9; 32])).with(5, Value::Uint(index)).with(6, Value::Uint(epoch));
        read(&[schema_item.clone(), open, signed(part)])
    };
    let part = parts[0].clone();
    for (name, index, epoch, part, error) in [
        ("behind the last index", u64::from(u32::MAX), 6, part.clone(), "IndexOutOfRange"),
        (
            "skipped past the last index",
            5,
            6,
            part.with(SKIPPED, Value::Uint(u64::from(u32::MAX))).with(FLAGS, int(4)),
            "IndexOutOfRange",
        ),
        (
            "past the last index without a restart",
            5,
            6,
            part.with(SKIPPED, Value::Uint(u64::from(u32::MAX))),
            "IndexOutOfRange",
        ),
        (
            "past the last epoch that there is",
            0,
            900,
            part.with(ADVANCE, Value::Uint(u64::MAX)),
            "EpochOutOfRange",
        ),
        ("past the roster's last epoch", 0, 1000, part.with(ADVANCE, int(1)), "EpochOutOfRange"),
        ("before the roster's first epoch", 0, 3, part.with(ADVANCE, int(1)), "EpochOutOfRange"),
        ("skipped without a restart", 0, 6, part.with(SKIPPED, int(1)), "GapWithoutRestart"),
        (
            "skipped and past the last epoch",
            0,
            999,
            part.with(SKIPPED, int(1)).with(ADVANCE, int(2)),
            "EpochOutOfRange",
        ),
        ("a device's round below the announced", 0, 6, part.with(ROUND, int(1)), "RoundOutOfRange"),
        ("a device's round of all levels", 0, 6, part.with(OWN_ROUND, int(8)), "RoundOutOfRange"),
        (
            "a tree's round below the announced",
            0,
            6,
            part.with(FLAGS, int(1)).with(ROUND, int(1)),
            "RoundOutOfRange",
        ),
        (
            "a level below a tree's round",
            0,
            6,
            part.with(FLAGS, int(1)).with(OWN_ROUND, int(1)),
            "SelectOutOfRange",
        ),
        (
            "more events than the limit, and a bad round",
            0,
            6,
            part.with(N, int(5000)).with(ROUND, int(1)),
            "RoundOutOfRange",
        ),
        ("more events than the limit", 0, 6, part.with(N, int(4097)), "TooManyEvents"),
        (
            "more events than any limit",
            0,
            6,
            part.with(N, Value::Uint(u64::from(u32::MAX))),
            "TooManyEvents",
        ),
        (
            "lost counters of another number",
            0,
            6,
            part.with(LOST, array([int(1)])),
            "LostOutOfRange",
        ),
        (
            "lost counters of zeros",
            0,
            6,
            part.with(LOST, Value::Array(vec![int(0); 8])),
            "LostOutOfRange",
        ),
        (
            "more lost than there were",
            0,
            6,
            part.with(LOST, Value::Array(vec![int(24); 8])),
            "LostOutOfRange",
        ),
        (
            "lost events in a tree",
            0,
            6,
            part.with(FLAGS, int(1))
                .with(LOST, Value::Array([vec![int(1)], vec![int(0); 7]].concat())),
            "LostOutOfRange",
        ),
        ("a level that is not there", 0, 6, part.with(SELECT, int(0x1ff)), "SelectOutOfRange"),
        (
            "a level that is not there, and half a digest",
            0,
            6,
            part.with(SELECT, int(0x1ff)).with(DIGESTS, bytes(&[0; 16])),
            "DigestCount",
        ),
        (
            "a level that is not there, and a digest too many",
            0,
            6,
            part.with(SELECT, int(0x1ff)).with(DIGESTS, bytes(&[0; 32])),
            "SelectOutOfRange",
        ),
        (
            "a level below the device's round",
            0,
            6,
            part.with(OWN_ROUND, int(1)),
            "SelectOutOfRange",
        ),
        ("gaps in a star", 0, 6, part.with(SELECT, array([int(0)])), "SelectOutOfRange"),
        ("a digest too many", 0, 6, part.with(DIGESTS, bytes(&[0; 32])), "DigestCount"),
        (
            "a digest too many, and no events",
            0,
            6,
            part.with(DIGESTS, bytes(&[0; 32])).with(EVENTS, bytes(b"")),
            "DigestCount",
        ),
        ("no events", 0, 6, part.with(EVENTS, bytes(b"")), "EventsLength"),
        ("an event too many", 0, 6, part.with(EVENTS, bytes(&[0; 100])), "EventsLength"),
        ("half an event", 0, 6, part.with(EVENTS, bytes(&[0; 94])), "EventsLength"),
        (
            "no events, and a short signature",
            0,
            6,
            part.with(EVENTS, bytes(b"")).with(SIGNATURE, bytes(b"x")),
            "EventsLength",
        ),
        ("a signature of ones", 0, 6, part.clone(), "NotAuthentic"),
    ] {
        file.invalid(name, "stream.read", after(index, epoch, &part), error);
    }
    for (name, signature) in [("no", 0), ("a short", 63), ("a long", 65), ("ML-DSA-44's", 2420)] {
        let items = [&good[..2], &[part.with(SIGNATURE, bytes(&vec![1; signature]))]].concat();
        file.invalid(
            format!("{name} signature"),
            "stream.read",
            read(&items),
            "MalformedSignature",
        );
    }
    // The first certificate of this device starts at index 3, so its index 0 is invalid.
    let late = Device::new(&group(), "late", &fixed);
    let open_late = open.with(2, bytes(&late.id.0)).with(4, NULL);
    file.invalid(
        "an index before the first key",
        "stream.read",
        read(&[schema_item.clone(), open_late.clone(), signed(&part)]),
        "IndexOutOfRange",
    );
    let early = part.with(ADVANCE, int(1));
    file.invalid(
        "an index before the first key, and an epoch before the first",
        "stream.read",
        read(&[schema_item.clone(), open_late, signed(&early)]),
        "EpochOutOfRange",
    );

    // In each of these runs, every part is possible by itself, but the run as a whole is invalid.
    let run = |parts: &[Value]| read(&[&good[..2], parts].concat());
    let twice = |part: &Value| part.with(FLAGS, int(0));
    for (name, parts, error) in [
        (
            "another signature",
            vec![parts[0].clone(), parts[1].clone(), signed(&parts[2])],
            "NotAuthentic",
        ),
        ("the first part missing", parts[1..].to_vec(), "EpochOutOfRange"),
        ("the middle part missing", vec![parts[0].clone(), parts[2].clone()], "NotAuthentic"),
        (
            "two parts swapped",
            vec![parts[1].clone(), parts[0].clone(), parts[2].clone()],
            "EpochOutOfRange",
        ),
        (
            "a part twice",
            vec![parts[0].clone(), parts[1].clone(), parts[1].clone(), parts[2].clone()],
            "NotAuthentic",
        ),
        (
            "the epoch is closed",
            vec![parts[0].clone(), parts[1].with(ADVANCE, int(0)), parts[2].clone()],
            "EpochClosed",
        ),
        (
            "an epoch left open",
            vec![twice(&parts[0]), parts[1].clone(), parts[2].clone()],
            "NotAuthentic",
        ),
        (
            "a restart invented",
            vec![parts[0].with(FLAGS, int(6)), parts[1].clone(), parts[2].clone()],
            "NotAuthentic",
        ),
        (
            "a silence made longer",
            vec![parts[0].clone(), parts[1].with(ADVANCE, int(2)), parts[2].clone()],
            "NotAuthentic",
        ),
        (
            "an answer invented",
            vec![
                parts[0].with(ANSWERED, array([array([bytes(&[1; 16]), int(1), int(1)])])),
                parts[1].clone(),
                parts[2].clone(),
            ],
            "NotAuthentic",
        ),
    ] {
        file.invalid(format!("a run: {name}"), "stream.read", run(&parts), error);
    }
    let other = three("late", Scheme::Star).len();
    assert_eq!(other, 3);
    let theirs = open.with(2, bytes(&Device::new(&group(), "p256", &fixed).id.0)).with(4, NULL);
    file.invalid(
        "a run: of another device with another suite",
        "stream.read",
        read(&[&[schema_item.clone(), theirs], parts].concat()),
        "NotAuthentic",
    );
    let older = open.with(3, int(0));
    file.invalid(
        "a run: under an older roster",
        "stream.read",
        read(&[&[schema_item, older], parts].concat()),
        "NotAuthentic",
    );
    let scaled =
        array([int(0), bytes(&schema(&["temperature:Cel:i16/10", "humidity:%RH:u16/100"]))]);
    file.invalid(
        "a run: under another schema of the same size",
        "stream.read",
        read(&[&[scaled], &good[1..]].concat()),
        "NotAuthentic",
    );
    file
}
