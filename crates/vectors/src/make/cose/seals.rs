//! Vectors of seals as signed objects, and of their statements.

use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{self, Device, Epoch, FIXED, header, schema, sign1};
use moteseal_verify::write;

use super::{SEAL, opened, parts_of, two_seals};
use crate::make::{File, of};

pub(super) fn seals() -> File {
    let mut file = File::new(
        "cose/seals.json",
        "Seals as signed objects, and their statements: objects.md, section 2.1, steps 1 to 4. Nothing is verified.",
    );
    let [star, tree] = two_seals();
    let roster = opened(world::DEVICES);
    let mut device = Device::new(&roster, "ed", &schema(FIXED));
    let mut epoch = Epoch::new(Scheme::Star, 9, 40);
    epoch.last_in_epoch = false;
    epoch.restart = true;
    epoch.skipped = 2;
    let mut lost = vec![0; 8];
    lost[0] = 3;
    epoch.lost = Some(lost);
    let lossy = device.seal(&epoch);
    let empty = device.seal(&Epoch::new(Scheme::Tree, 9, 0));
    let mut raised = Epoch::new(Scheme::Tree, 9, 40);
    (raised.round, raised.own_round) = (1, 2);
    let raised = device.seal(&raised);
    for (name, bytes) in [
        ("a star", star.clone()),
        ("a tree", tree.clone()),
        ("a tree from level 2 on", write::sign1(&raised.seal, &raised.signature)),
        ("lost events, after a restart", write::sign1(&lossy.seal, &lossy.signature)),
        ("an empty tree", write::sign1(&empty.seal, &empty.signature)),
    ] {
        file.valid(name, "cose.seal", of(&bytes));
    }
    let key = device.secret(0);
    let statement_of = |signed: &[u8]| {
        let Value::Bytes(protected) = &parts_of(signed)[0] else { panic!() };
        let Value::Map(pairs) = Value::decode(protected) else { panic!() };
        pairs.last().unwrap().1.clone()
    };
    let (star, tree) = (statement_of(&star), statement_of(&tree));
    let seal_of = |statement: &Value, vds: bool, root: &[u8]| {
        let mut rest = vec![(-70_001, statement.clone())];
        if vds {
            rest.insert(0, (395, int(1)));
        }
        of(&sign1(&key, &header(Algorithm::Ed25519, SEAL, &rest), root))
    };
    let (unit, wide) = (|count: u64| Value::Uint(count), Value::Uint(1 << 32));
    let counts =
        |counts: &[u64]| Value::Array(counts.iter().map(|&count| Value::Uint(count)).collect());
    let answer = |length: usize| array([bytes(&vec![1; length]), unit(5), unit(1)]);
    let runs = |runs: &[(u8, u64, u64)]| {
        Value::Array(
            runs.iter()
                .map(|&(query, first, count)| {
                    array([bytes(&[query; 16]), unit(first), unit(count)])
                })
                .collect(),
        )
    };
    let second = {
        // The tree is the device's second seal, so it has a predecessor.
        let Value::Array(fields) = &tree else { panic!() };
        assert_eq!(
            (&fields[5], &fields[7], &fields[8], &fields[9]),
            (&unit(1), &unit(0), &unit(8), &unit(7))
        );
        tree.clone()
    };
    for (name, value) in [
        ("no answers", runs(&[])),
        ("the last epoch that a run holds", runs(&[(1, u64::MAX - 1, 1)])),
        ("the longest run", runs(&[(1, 0, 0xffff_ffff)])),
        ("runs of one query with an epoch between", runs(&[(1, 5, 2), (1, 8, 1)])),
        (
            "runs in the order in which they were begun",
            runs(&[(2, 7, 1), (1, 5, 720), (2, 9, 3), (1, 726, 1)]),
        ),
        (
            "eight queries",
            Value::Array(
                (0..8).map(|query| array([bytes(&[query; 16]), unit(5), unit(1)])).collect(),
            ),
        ),
    ] {
        file.valid(
            format!("a star: {name}"),
            "cose.seal",
            seal_of(&star.with(18, value), false, &[7; 32]),
        );
    }
    for (name, at, value, error) in [
        ("version 2", 0, unit(2), "UnsupportedVersion"),
        ("version 0", 0, unit(0), "UnsupportedVersion"),
        ("a version that is a text", 0, text("1"), "UnexpectedType"),
        ("scheme 2", 1, unit(2), "FieldOutOfRange"),
        ("a group of 7 bytes", 2, bytes(&[0; 7]), "UnexpectedType"),
        ("a roster digest of 31 bytes", 3, bytes(&[0; 31]), "UnexpectedType"),
        ("a device of 9 bytes", 4, bytes(&[0; 9]), "UnexpectedType"),
        ("an index of 2^32", 5, wide.clone(), "FieldOutOfRange"),
        ("a negative index", 5, int(-1), "UnexpectedType"),
        ("a prev of null", 6, NULL, "UnexpectedType"),
        ("a prev of 33 bytes", 6, bytes(&[0; 33]), "UnexpectedType"),
        ("prev_index without prev_epoch", 7, unit(0), "FieldOutOfRange"),
        ("prev_epoch without prev_index", 9, unit(0), "FieldOutOfRange"),
        ("an epoch of null", 8, NULL, "UnexpectedType"),
        ("last_in_epoch of 1", 10, unit(1), "UnexpectedType"),
        ("restart of null", 11, NULL, "UnexpectedType"),
        ("a schema digest of 0 bytes", 12, bytes(b""), "UnexpectedType"),
        ("a salt of 15 bytes", 13, bytes(&[0; 15]), "UnexpectedType"),
        ("a round above the device's", 14, unit(2), "FieldOutOfRange"),
        ("a round of 256", 14, unit(256), "FieldOutOfRange"),
        ("a device's round of all levels", 15, unit(8), "FieldOutOfRange"),
        ("no counters", 16, counts(&[]), "FieldOutOfRange"),
        ("33 counters", 16, counts(&[0; 33]), "FieldOutOfRange"),
        ("a counter of 2^32", 16, counts(&[1 << 32, 0, 0]), "FieldOutOfRange"),
        ("counters that add up to 2^32", 16, counts(&[0xffff_ffff, 1, 0]), "FieldOutOfRange"),
        ("a counter that is a text", 16, array([text("1")]), "UnexpectedType"),
        ("lost counters of other levels", 17, counts(&[1]), "FieldOutOfRange"),
        ("33 lost counters", 17, counts(&[0; 33]), "FieldOutOfRange"),
        ("lost counters of zeros", 17, counts(&[0; 8]), "FieldOutOfRange"),
        ("more lost than there were", 17, counts(&[0, 0, 0, 0, 0, 0, 0, 99]), "FieldOutOfRange"),
        ("nine answers", 18, Value::Array(vec![answer(16); 9]), "FieldOutOfRange"),
        ("an answer with a query of 15 bytes", 18, array([answer(15)]), "UnexpectedType"),
        ("an answer of one field", 18, array([array([bytes(&[1; 16])])]), "UnexpectedType"),
        ("an answer as a pair", 18, array([array([bytes(&[1; 16]), unit(5)])]), "UnexpectedType"),
        (
            "an answer of four fields",
            18,
            array([array([bytes(&[1; 16]), unit(5), unit(1), unit(1)])]),
            "UnexpectedType",
        ),
        (
            "an answer without an epoch",
            18,
            array([array([bytes(&[1; 16]), NULL, unit(1)])]),
            "UnexpectedType",
        ),
        (
            "an answer without a count",
            18,
            array([array([bytes(&[1; 16]), unit(5), NULL])]),
            "UnexpectedType",
        ),
        ("a run of no answers", 18, runs(&[(1, 5, 0)]), "FieldOutOfRange"),
        ("a run of 2^32 answers", 18, runs(&[(1, 5, 1 << 32)]), "FieldOutOfRange"),
        ("a run past 64 bits", 18, runs(&[(1, u64::MAX - 1, 2)]), "FieldOutOfRange"),
        ("runs of one query that touch", 18, runs(&[(1, 5, 2), (1, 7, 1)]), "FieldOutOfRange"),
        (
            "runs that touch, another query's between",
            18,
            runs(&[(1, 5, 2), (2, 7, 1), (1, 7, 1)]),
            "FieldOutOfRange",
        ),
        ("runs of one query that overlap", 18, runs(&[(1, 5, 3), (1, 7, 3)]), "FieldOutOfRange"),
        ("a run twice", 18, runs(&[(1, 5, 3), (1, 5, 3)]), "FieldOutOfRange"),
        ("runs of one query that descend", 18, runs(&[(1, 50, 3), (1, 5, 3)]), "FieldOutOfRange"),
        (
            "a run below the one before the last",
            18,
            runs(&[(1, 50, 3), (2, 5, 3), (1, 20, 3)]),
            "FieldOutOfRange",
        ),
        ("answers of null", 18, NULL, "UnexpectedType"),
    ] {
        file.invalid(
            format!("a star: {name}"),
            "cose.seal",
            seal_of(&star.with(at, value), false, &[7; 32]),
            error,
        );
    }
    for (name, at, value) in [
        ("the index of the seal before", 7, unit(1)),
        ("an index below the seal before", 7, unit(9)),
        ("an epoch before the seal before", 9, unit(9)),
        ("a device's round of all levels", 15, unit(8)),
        ("lost events", 17, counts(&[1, 0, 0, 0, 0, 0, 0, 0])),
        ("scheme star", 1, unit(0)),
    ] {
        let error = if at == 1 { "UnexpectedHeader" } else { "FieldOutOfRange" };
        file.invalid(
            format!("a tree: {name}"),
            "cose.seal",
            seal_of(&second.with(at, value), true, &[7; 32]),
            error,
        );
    }
    file.invalid(
        "a tree without vds",
        "cose.seal",
        seal_of(&tree, false, &[7; 32]),
        "UnexpectedHeader",
    );
    file.invalid(
        "a star with vds",
        "cose.seal",
        seal_of(&star, true, &[7; 32]),
        "UnexpectedHeader",
    );
    file.invalid(
        "a root of 31 bytes",
        "cose.seal",
        seal_of(&star, false, &[7; 31]),
        "UnexpectedType",
    );
    file.invalid("a root of no bytes", "cose.seal", seal_of(&tree, true, b""), "UnexpectedType");
    let Value::Array(mut fields) = star.clone() else { panic!() };
    fields.pop();
    file.invalid(
        "18 fields",
        "cose.seal",
        seal_of(&Value::Array(fields.clone()), false, &[7; 32]),
        "UnexpectedType",
    );
    fields.extend([array([]), int(0)]);
    file.invalid(
        "20 fields",
        "cose.seal",
        seal_of(&Value::Array(fields), false, &[7; 32]),
        "UnexpectedType",
    );
    file.invalid(
        "a statement in a string",
        "cose.seal",
        seal_of(&bytes(&star.encode()), false, &[7; 32]),
        "UnexpectedType",
    );
    file.invalid(
        "a statement of false",
        "cose.seal",
        seal_of(&FALSE, false, &[7; 32]),
        "UnexpectedType",
    );
    file
}
