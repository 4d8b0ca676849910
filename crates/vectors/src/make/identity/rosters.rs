//! Vectors of rosters, the signed lists of a group's devices.

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{
    self, GROUP, LATTICE, certificate, device_secret, header, operator, roster, secret, sign1,
    sign1_raw,
};

use moteseal_verify::issue::{NextRoster, PeriodChange};
use serde_json::json;

use super::cert_payload;
use crate::make::cose::{CERT, ROSTER, parts_of};
use crate::make::{File, of};

/// Returns the payload of a signed roster.
fn payload_of(roster: &[u8]) -> Value {
    let Value::Bytes(payload) = parts_of(roster)[2].clone() else { panic!() };
    Value::decode(&payload)
}

fn elements(value: &Value) -> &[Value] {
    let Value::Array(elements) = value else { panic!("not an array") };
    elements
}

/// Returns the payload of a later version with one period as the payload of version 0.
fn first_form(later: &Value) -> Value {
    let fields = elements(later);
    let period = elements(&elements(&fields[5])[0]);
    let devices = elements(&fields[8]).iter().map(|device| {
        let device = elements(device);
        let certificates = elements(&device[3]).iter().map(|term| elements(term)[0].clone());
        array([device[0].clone(), device[1].clone(), Value::Array(certificates.collect())])
    });
    let mut first = fields[..3].to_vec();
    first.extend([int(0), array([])]);
    first.extend([&period[3..6], &period[1..2]].concat().iter().cloned());
    first.extend([fields[6].clone(), period[6].clone(), Value::Array(devices.collect())]);
    Value::Array(first)
}

/// Rosters of later versions: periods, terms and the querier.
pub(super) fn later_rosters() -> File {
    let (operator, ed) = (operator(), Algorithm::Ed25519);
    let mut file =
        File::new("roster/later.json", "Later versions of rosters: objects.md, section 4.")
            .operator(&operator);
    let payload = payload_of(&roster(world::DEVICES));
    let sign = |payload: &Value| of(&sign1(&operator, &header(ed, ROSTER, &[]), &payload.encode()));
    let fields = elements(&payload);
    let cert_of = |name: &str, byte: u8, first: u32| {
        bytes(&certificate(&operator, GROUP, name, 0, &secret(ed, byte).public(), first))
    };
    let first = elements(&fields[5])[0].clone();
    let Value::Uint(start) = elements(&first)[2] else { panic!() };
    let Value::Uint(epoch) = elements(&first)[1] else { panic!() };
    let Value::Uint(length) = elements(&first)[3] else { panic!() };
    // The version is 1, so one more period can follow.
    let period = |version: u64, at: u64, start_ms: u64, rest: [Value; 4]| {
        let [length, levels, budget, coordinator] = rest;
        let (version, at) = (Value::Uint(version), Value::Uint(at));
        array([version, at, Value::Uint(start_ms), length, levels, budget, coordinator])
    };
    let second = |at: u64| {
        let rest = [int(60_000), int(5), int(7), cert_of("coordinator", 3, 0)];
        period(1, at, start + (at - epoch) * length, rest)
    };
    let periods = |list: &[Value]| payload.with(5, Value::Array(list.to_vec()));
    let changed = |field: usize, value: Value| {
        periods(&[first.clone(), second(epoch + 9).with(field, value)])
    };
    let devices = elements(&fields[8]);
    let device = |field: usize, value: Value| {
        let mut list = devices.to_vec();
        list[0] = list[0].with(field, value);
        payload.with(8, Value::Array(list))
    };
    let Value::Text(name) = elements(&devices[0])[1].clone() else { panic!() };
    let term = |byte: u8, first_index: u32, first_epoch: u64, ends: [Value; 2]| {
        let [index, epoch] = ends;
        array([cert_of(&name, byte, first_index), Value::Uint(first_epoch), index, epoch])
    };
    let terms = |list: &[Value]| device(3, Value::Array(list.to_vec()));
    let open = [NULL, NULL];
    for (name, payload) in [
        ("two periods", periods(&[first.clone(), second(epoch + 9)])),
        ("the second period in the next epoch", periods(&[first.clone(), second(epoch + 1)])),
        ("a querier", payload.with(7, cert_of("querier", 5, 0))),
        ("no last epoch", payload.with(6, NULL)),
        ("a device since version 1", device(2, int(1))),
        ("a device that joins", terms(&[term(1, 0, epoch + 3, open.clone())])),
        ("a device that leaves", terms(&[term(1, 0, 0, [NULL, Value::Uint(epoch + 4)])])),
        ("a key revoked from an index on", terms(&[term(1, 0, 0, [int(9), NULL])])),
        ("a key that was never valid", terms(&[term(1, 4, 8, [int(4), int(8)])])),
        (
            "a key that changes by epoch",
            terms(&[term(1, 0, 0, open.clone()), term(2, 0, epoch + 2, open.clone())]),
        ),
        (
            "a key that changes by index",
            terms(&[term(1, 0, 0, open.clone()), term(2, 70, 0, open.clone())]),
        ),
        (
            "a device that leaves and joins again",
            terms(&[
                term(1, 0, 0, [NULL, Value::Uint(epoch + 4)]),
                term(2, 0, epoch + 6, open.clone()),
            ]),
        ),
    ] {
        file.valid(name, "roster.open", sign(&payload));
    }
    for (name, payload, error) in [
        ("version 0 in the form of later versions", payload.with(3, int(0)), "UnexpectedType"),
        ("another version than the history", payload.with(3, int(2)), "HistoryLength"),
        ("no history", payload.with(4, array([])), "HistoryLength"),
        ("eight fields", Value::Array(fields[..8].to_vec()), "UnexpectedType"),
        ("no period", periods(&[]), "UnsortedPeriods"),
        (
            "a period of six fields",
            periods(&[Value::Array(elements(&first)[..6].to_vec())]),
            "UnexpectedType",
        ),
        ("a first period of version 1", periods(&[first.with(0, int(1))]), "UnsortedPeriods"),
        ("a period of a version above the roster's", changed(0, int(2)), "UnsortedPeriods"),
        ("two periods of one version", changed(0, int(0)), "UnsortedPeriods"),
        (
            "a period that begins where the first one does",
            changed(1, Value::Uint(epoch)),
            "UnsortedPeriods",
        ),
        (
            "a period that begins late",
            changed(2, Value::Uint(start + 9 * length + 1)),
            "EpochStartMismatch",
        ),
        (
            "a first period that begins late",
            periods(&[first.with(2, Value::Uint(start + 1))]),
            "EpochStartMismatch",
        ),
        ("a start of null", changed(2, NULL), "UnexpectedType"),
        ("epochs of no time", changed(3, int(0)), "EpochLengthOutOfRange"),
        (
            "epochs of no time and a wrong order",
            changed(3, int(0)).with(4, array([])),
            "HistoryLength",
        ),
        ("33 levels", changed(4, int(33)), "LevelsOutOfRange"),
        ("2^40 levels", changed(4, int(1 << 40)), "LevelsOutOfRange"),
        ("a budget of 0", changed(5, int(0)), "BudgetOutOfRange"),
        ("a coordinator that is no certificate", changed(6, bytes(&[0])), "UnexpectedType"),
        (
            "a later coordinator that is a device",
            changed(6, cert_of(&name, 3, 0)),
            "DuplicateDevice",
        ),
        (
            "a coordinator of another group",
            changed(6, bytes(&certificate(&operator, "other", "c", 0, &secret(ed, 3).public(), 0))),
            "CertificateMismatch",
        ),
        (
            "a last epoch before the second period",
            periods(&[first.clone(), second(epoch + 9)]).with(6, Value::Uint(epoch + 8)),
            "EpochRangeEmpty",
        ),
        (
            "a querier of another name",
            payload.with(7, cert_of("reader", 5, 0)),
            "CertificateMismatch",
        ),
        ("a querier that is no string", payload.with(7, int(1)), "UnexpectedType"),
        (
            "a querier by another operator",
            payload.with(
                7,
                bytes(&certificate(
                    &secret(ed, 0x0b),
                    GROUP,
                    "querier",
                    0,
                    &secret(ed, 5).public(),
                    0,
                )),
            ),
            "CertificateNotAuthentic",
        ),
        ("a device since a later version", device(2, int(2)), "SinceOutOfRange"),
        ("a device since version 2^32", device(2, Value::Uint(1 << 32)), "FieldOutOfRange"),
        (
            "a term of three fields",
            terms(&[array([cert_of(&name, 1, 0), int(0), NULL])]),
            "UnexpectedType",
        ),
        (
            "an end index of 2^32",
            terms(&[term(1, 0, 0, [Value::Uint(1 << 32), NULL])]),
            "FieldOutOfRange",
        ),
        ("no term", terms(&[]), "CertificateMissing"),
        (
            "a term that ends before its first index",
            terms(&[term(1, 4, 0, [int(3), NULL])]),
            "TermRangeEmpty",
        ),
        (
            "a term that ends before its first epoch",
            terms(&[term(1, 0, 8, [NULL, int(7)])]),
            "TermRangeEmpty",
        ),
        (
            "a term twice",
            terms(&[term(1, 0, 0, open.clone()), term(1, 0, 0, open.clone())]),
            "UnsortedCertificates",
        ),
        (
            "terms whose epochs fall",
            terms(&[term(1, 0, 9, open.clone()), term(2, 5, 8, open.clone())]),
            "UnsortedCertificates",
        ),
        (
            "terms whose indices fall",
            terms(&[term(1, 5, 8, open.clone()), term(2, 4, 9, open.clone())]),
            "UnsortedCertificates",
        ),
        (
            "an unsorted term that ends before it begins",
            terms(&[term(1, 5, 9, open.clone()), term(2, 5, 8, [NULL, int(7)])]),
            "UnsortedCertificates",
        ),
    ] {
        file.invalid(name, "roster.open", sign(&payload), error);
    }
    file
}

/// Pairs of rosters, of which the second one may succeed the first.
pub(super) fn succession() -> File {
    let operator = operator();
    let mut file =
        File::new("roster/succession.json", "Succession of rosters: objects.md, section 4.")
            .operator(&operator);
    let before = world::budgeted_roster(Algorithm::Ed25519);
    let public = operator.public();
    let key = |byte: u8| secret(Algorithm::Ed25519, byte).public();
    let next = |before: &[u8], change: &dyn Fn(&mut NextRoster<'_>)| {
        let mut next = NextRoster::after(before, &operator, &public).expect("the roster is valid");
        change(&mut next);
        next.issue().expect("the change is valid")
    };
    let device = world::BUDGETED[0].0;
    let add =
        |byte: u8| next(&before, &|next| next.add("added", &key(byte), EpochNumber(0)).unwrap());
    let pair = |before: &[u8], later: &[u8]| json!({ "before": hex::encode(before), "later": hex::encode(later) });
    let (second, fork) = (add(50), add(51));
    let ended = next(&before, &|next| next.end(device, None, Some(EpochNumber(1 << 20))).unwrap());
    let shorter = PeriodChange { epoch_ms: Some(60_000), ..PeriodChange::default() };
    let period = next(&before, &|next| next.begin_period(EpochNumber(40), &shorter).unwrap());
    for (name, earlier, later) in [
        ("an added device", &before, &second),
        ("an ended key", &before, &ended),
        ("a new period", &before, &period),
        (
            "two versions later",
            &before,
            &next(&second, &|next| next.end("added", None, Some(EpochNumber(9))).unwrap()),
        ),
        (
            "a changed key",
            &second,
            &next(&second, &|next| {
                next.rotate("added", &key(52), EpochNumber(7), SealIndex(3)).unwrap();
            }),
        ),
        (
            "an end that moves back",
            &ended,
            &next(&ended, &|next| next.end(device, None, Some(EpochNumber(1 << 19))).unwrap()),
        ),
    ] {
        file.valid(name, "roster.succeed", pair(earlier, later));
    }
    let signed = |payload: &Value| {
        sign1(&operator, &header(Algorithm::Ed25519, ROSTER, &[]), &payload.encode())
    };
    // Changes that no command makes, signed by the operator.
    let with = |later: &[u8], change: &dyn Fn(&Value) -> Value| signed(&change(&payload_of(later)));
    let later_device = |later: &[u8], at: usize, change: &dyn Fn(&Value) -> Value| {
        with(later, &|payload| {
            let mut devices = elements(&elements(payload)[8]).to_vec();
            devices[at] = change(&devices[at]);
            payload.with(8, Value::Array(devices))
        })
    };
    let first_period = |later: &[u8], field: usize, value: Value| {
        with(later, &|payload| {
            let mut periods = elements(&elements(payload)[5]).to_vec();
            periods[0] = periods[0].with(field, value.clone());
            payload.with(5, Value::Array(periods))
        })
    };
    let place = |roster: &[u8], name: &str| {
        let payload = payload_of(roster);
        let devices = elements(&elements(&payload)[8]);
        devices.iter().position(|entry| elements(entry)[1] == text(name)).unwrap()
    };
    for (name, earlier, later, error) in [
        ("the same roster", &before, before.clone(), "NotLater"),
        ("an earlier version", &second, before.clone(), "NotLater"),
        ("another second version", &second, fork.clone(), "NotLater"),
        (
            "a successor of another second version",
            &second,
            next(&fork, &|next| next.end(device, None, Some(EpochNumber(9))).unwrap()),
            "NotLater",
        ),
        ("other levels", &before, first_period(&second, 4, int(3)), "PeriodsChanged"),
        ("another budget", &before, first_period(&second, 5, int(3)), "PeriodsChanged"),
        (
            "a device that is missing",
            &before,
            with(&second, &|payload| {
                let mut devices = elements(&elements(payload)[8]).to_vec();
                devices.remove(place(&second, device));
                payload.with(8, Value::Array(devices))
            }),
            "DeviceChanged",
        ),
        (
            "a device since another version",
            &before,
            later_device(&second, place(&second, device), &|entry| entry.with(2, int(1))),
            "DeviceChanged",
        ),
        (
            "a new device since an earlier version",
            &before,
            later_device(&second, place(&second, "added"), &|entry| entry.with(2, int(1))),
            "DeviceChanged",
        ),
        (
            "an end that is removed",
            &ended,
            later_device(
                &next(&ended, &|next| next.add("added", &key(50), EpochNumber(0)).unwrap()),
                place(&second, device),
                &|entry| {
                    let terms = elements(&elements(entry)[3]).iter().map(|term| term.with(3, NULL));
                    entry.with(3, Value::Array(terms.collect()))
                },
            ),
            "DeviceChanged",
        ),
    ] {
        file.invalid(name, "roster.succeed", pair(earlier, &later), error);
    }
    file
}

pub(super) fn rosters() -> File {
    let operator = operator();
    let ed = Algorithm::Ed25519;
    let mut file =
        File::new("roster/rosters.json", "Rosters: objects.md, section 4.").operator(&operator);
    let good = roster(world::DEVICES);
    file.valid("three devices", "roster.open", of(&good));
    file.valid("a device with an ML-DSA-44 key", "roster.open", of(&roster(LATTICE)));
    file.valid("no devices", "roster.open", of(&roster(&[])));
    let payload = first_form(&payload_of(&good));
    let signed =
        |payload: &Value| of(&sign1(&operator, &header(ed, ROSTER, &[]), &payload.encode()));
    let cert_of = |name: &str, first: u32| {
        certificate(&operator, GROUP, name, 0, &device_secret(name, ed, first).public(), first)
    };
    let coordinator = |group: &str, name: &str| {
        bytes(&certificate(&operator, group, name, 0, &secret(ed, 3).public(), 0))
    };
    for (name, at, value) in [
        ("a budget", 7, int(1)),
        ("no last epoch", 9, NULL),
        ("one epoch", 9, int(5)),
        ("a coordinator", 10, coordinator(GROUP, "coordinator")),
        ("the longest epoch", 5, int(1 << 53)),
        ("one level", 6, int(1)),
        ("32 levels", 6, int(32)),
    ] {
        file.valid(name, "roster.open", signed(&payload.with(at, value)));
    }
    let Value::Array(fields) = &payload else { panic!() };
    let Value::Array(devices) = &fields[11] else { panic!() };
    let listed = |devices: &[Value]| Value::Array(devices.to_vec());
    let device = |at: usize, field: usize, value: Value| {
        let mut changed = devices.clone();
        changed[at] = changed[at].with(field, value);
        listed(&changed)
    };
    // `two` is the index of the device with two certificates.
    let two = devices
        .iter()
        .position(|entry| matches!(entry, Value::Array(f) if f[1] == text("ed")))
        .unwrap();
    let Value::Array(entry) = &devices[two] else { panic!() };
    let Value::Array(certificates) = &entry[2] else { panic!() };
    let other = (two + 1) % devices.len();
    let Value::Array(foreign) = &devices[other] else { panic!() };
    let by = |secret: &SecretKey, payload: &[u8]| {
        bytes(&sign1(secret, &header(secret.algorithm(), CERT, &[]), payload))
    };
    let own = |changes: &[(usize, Value)]| cert_payload(&[&[(6, int(0))], changes].concat());
    let digest = bytes(&[1; 32]);
    let none = Vec::<Value>::new();
    for (name, at, value, error) in [
        ("version 2", 0, int(2), "UnsupportedVersion"),
        ("a group name that is bytes", 1, bytes(b"vectors"), "UnexpectedType"),
        ("an empty group name", 1, text(""), "InvalidName"),
        ("a group name of 65 bytes", 1, text(&"g".repeat(65)), "InvalidName"),
        ("a group name with a zero byte", 1, text("vec\0tors"), "InvalidName"),
        ("a group name with a line end", 1, text("vectors\n"), "InvalidName"),
        (
            "a group name with a control character of Latin 1",
            1,
            text("vectors\u{85}"),
            "InvalidName",
        ),
        ("another group name", 1, text("vector"), "GroupMismatch"),
        ("another group id", 2, bytes(&[0; 8]), "GroupMismatch"),
        ("a group id of 7 bytes", 2, bytes(&[0; 7]), "UnexpectedType"),
        ("version 1 in the form of version 0", 3, int(1), "UnexpectedType"),
        ("version 2^32", 3, Value::Uint(1 << 32), "FieldOutOfRange"),
        ("version 0 with a history", 4, array([digest]), "HistoryLength"),
        ("a history of null", 4, NULL, "UnexpectedType"),
        ("a past digest of 31 bytes", 4, array([bytes(&[1; 31])]), "UnexpectedType"),
        ("epochs of no time", 5, int(0), "EpochLengthOutOfRange"),
        ("epochs above 2^53", 5, int((1 << 53) + 1), "EpochLengthOutOfRange"),
        ("no levels", 6, int(0), "LevelsOutOfRange"),
        ("33 levels", 6, int(33), "LevelsOutOfRange"),
        ("2^40 levels", 6, int(1 << 40), "LevelsOutOfRange"),
        ("negative levels", 6, int(-8), "UnexpectedType"),
        ("a budget of 0", 7, int(0), "BudgetOutOfRange"),
        ("a budget of false", 7, FALSE, "UnexpectedType"),
        ("a first epoch of null", 8, NULL, "UnexpectedType"),
        ("a last epoch before the first", 9, int(4), "EpochRangeEmpty"),
        (
            "a coordinator of another group",
            10,
            coordinator("other", "coordinator"),
            "CertificateMismatch",
        ),
        ("a coordinator that is a device", 10, coordinator(GROUP, "ed"), "DuplicateDevice"),
        ("a coordinator that is no certificate", 10, bytes(&good), "WrongType"),
        ("a coordinator of nothing", 10, bytes(b""), "Truncated"),
        (
            "a coordinator by another operator",
            10,
            bytes(&certificate(
                &secret(ed, 0x0b),
                GROUP,
                "coordinator",
                0,
                &secret(ed, 3).public(),
                0,
            )),
            "CertificateNotAuthentic",
        ),
        ("devices of null", 11, NULL, "UnexpectedType"),
        ("a device that is no array", 11, array([NULL]), "UnexpectedType"),
        (
            "a device of two fields",
            11,
            array([Value::Array(entry[..2].to_vec())]),
            "UnexpectedType",
        ),
        ("a device's name that is empty", 11, device(two, 1, text("")), "InvalidName"),
        ("another device's name", 11, device(two, 1, text("dev")), "DeviceMismatch"),
        ("another device's id", 11, device(two, 0, bytes(&[0; 8])), "DeviceMismatch"),
        ("a certificate that is no string", 11, device(two, 2, array([NULL])), "UnexpectedType"),
        ("a certificate of nothing", 11, device(two, 2, array([bytes(b"")])), "Truncated"),
        ("no certificate", 11, device(two, 2, Value::Array(none)), "CertificateMissing"),
        (
            "another device's certificate",
            11,
            device(two, 2, foreign[2].clone()),
            "CertificateMismatch",
        ),
        (
            "a certificate of another group",
            11,
            device(two, 2, array([coordinator("other", "ed")])),
            "CertificateMismatch",
        ),
        (
            "certificates out of order",
            11,
            device(two, 2, array([certificates[1].clone(), certificates[0].clone()])),
            "UnsortedCertificates",
        ),
        (
            "a certificate twice",
            11,
            device(two, 2, array([certificates[0].clone(), certificates[0].clone()])),
            "UnsortedCertificates",
        ),
        (
            "a device twice",
            11,
            listed(&[devices[0].clone(), devices[0].clone()]),
            "DuplicateDevice",
        ),
        (
            "devices out of order",
            11,
            listed(&[devices[1].clone(), devices[0].clone()]),
            "UnsortedDevices",
        ),
        (
            "a certificate by another operator",
            11,
            device(two, 2, array([by(&secret(ed, 0x0b), &own(&[]))])),
            "CertificateNotAuthentic",
        ),
        (
            "a certificate of another suite",
            11,
            device(two, 2, array([by(&secret(Algorithm::Esp256, 0x0b), &own(&[]))])),
            "CertificateNotAuthentic",
        ),
        (
            "a certificate of a key of small order",
            11,
            device(two, 2, array([by(&operator, &own(&[(5, bytes(&[0; 32]))]))])),
            "InvalidPublicKey",
        ),
        (
            "a certificate of a short key",
            11,
            device(two, 2, array([by(&operator, &own(&[(5, bytes(&[0; 31]))]))])),
            "KeyLength",
        ),
        (
            "a certificate of version 2",
            11,
            device(two, 2, array([by(&operator, &own(&[(0, int(2))]))])),
            "UnsupportedVersion",
        ),
        (
            "a certificate with a critical header",
            11,
            device(
                two,
                2,
                array([bytes(&sign1(
                    &operator,
                    &Value::Map(vec![
                        (int(1), int(-19)),
                        (int(2), array([int(1)])),
                        (int(16), text(CERT)),
                    ]),
                    &own(&[]),
                ))]),
            ),
            "UnknownCritical",
        ),
    ] {
        file.invalid(name, "roster.open", signed(&payload.with(at, value)), error);
    }
    file.valid(
        "a device's certificate anew",
        "roster.open",
        signed(&payload.with(11, device(two, 2, array([bytes(&cert_of("ed", 0))])))),
    );
    file.invalid(
        "eleven fields",
        "roster.open",
        signed(&Value::Array(fields[..11].to_vec())),
        "UnexpectedType",
    );
    file.invalid(
        "by another operator",
        "roster.open",
        of(&sign1(&secret(ed, 0x0b), &header(ed, ROSTER, &[]), &payload.encode())),
        "NotAuthentic",
    );
    let p256 = secret(Algorithm::Esp256, 0x0b);
    file.invalid(
        "with another suite",
        "roster.open",
        of(&sign1(&p256, &header(Algorithm::Esp256, ROSTER, &[]), &payload.encode())),
        "AlgorithmMismatch",
    );
    file.invalid(
        "the typ of a certificate",
        "roster.open",
        of(&sign1(&operator, &header(ed, CERT, &[]), &payload.encode())),
        "WrongType",
    );
    file.invalid(
        "a payload and more",
        "roster.open",
        of(&sign1(&operator, &header(ed, ROSTER, &[]), &[payload.encode(), vec![0]].concat())),
        "TrailingBytes",
    );
    file.invalid(
        "a payload that is not canonical, by another operator",
        "roster.open",
        of(&sign1(&secret(ed, 0x0b), &header(ed, ROSTER, &[]), &[0x18, 0x01])),
        "NotAuthentic",
    );
    let header = Value::decode(&header(ed, ROSTER, &[]).encode());
    file.invalid(
        "a header that is not canonical",
        "roster.open",
        of(&sign1_raw(
            &operator,
            &[&[0xb8, 0x02], &header.encode()[1..]].concat(),
            &payload.encode(),
        )),
        "NonCanonical",
    );
    file.invalid("an integer below -24", "roster.open", of(&int(-25).encode()), "UnexpectedType");
    file.mutate(
        "every change of a small one",
        "roster.open",
        of(&roster(&[])),
        "bytes",
        &[0x01, 0x20, 0x80],
    );
    file
}
