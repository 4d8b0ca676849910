//! Vectors of rosters, the signed lists of a group's devices.

use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{
    self, GROUP, LATTICE, certificate, device_secret, header, operator, roster, secret, sign1,
    sign1_raw,
};

use super::cert_payload;
use crate::make::cose::{CERT, ROSTER, parts_of};
use crate::make::{File, of};

pub(super) fn rosters() -> File {
    let operator = operator();
    let ed = Algorithm::Ed25519;
    let mut file = File::new("roster/rosters.json", "Rosters: section 2.2.").operator(&operator);
    let good = roster(world::DEVICES);
    file.valid("three devices", "roster.open", of(&good));
    file.valid("a device with an ML-DSA-44 key", "roster.open", of(&roster(LATTICE)));
    file.valid("no devices", "roster.open", of(&roster(&[])));
    let Value::Bytes(payload) = parts_of(&good)[2].clone() else { panic!() };
    let payload = Value::decode(&payload);
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
        ("another version than the history", 3, int(2), "HistoryLength"),
        ("version 0 with a history", 3, int(0), "HistoryLength"),
        ("version 2^32", 3, Value::Uint(1 << 32), "FieldOutOfRange"),
        ("no history", 4, array([]), "HistoryLength"),
        ("a longer history", 4, array([digest.clone(), digest.clone()]), "HistoryLength"),
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
