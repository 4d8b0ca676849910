//! Vectors of certificates, rosters, urgent events and schemas.

mod rosters;

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use serde_json::json;

use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{NULL, TRUE, Value, array, bytes, int, text};
use moteseal_fixtures::world::{
    self, FIXED, GROUP, certificate, device_secret, header, operator, roster, schema, secret, sign1,
};

use super::cose::{CERT, EVENT, P256_ORDER, ROSTER, opened, parts_of, sum, tagged, two_seals};

pub fn make(files: &mut Files) {
    files.add(certificates());
    files.add(certificates_of_p256());
    files.add(rosters::rosters());
    files.add(rosters::later_rosters());
    files.add(rosters::succession());
    files.add(urgent());
    files.add(schemas());
}

fn cert_payload(changes: &[(usize, Value)]) -> Vec<u8> {
    let key = secret(Algorithm::Ed25519, 1).public();
    let mut fields = vec![
        int(1),
        bytes(&GroupId::of(GROUP).0),
        bytes(&DeviceId::of(GROUP, "ed").0),
        int(3),
        int(-19),
        bytes(&key.to_bytes()),
        int(100),
    ];
    for (at, value) in changes {
        fields[*at] = value.clone();
    }
    Value::Array(fields).encode()
}

fn certificates() -> File {
    let operator = operator();
    let mut file = File::new(
        "certificate/certificates.json",
        "Certificates by their operator: objects.md, section 3.",
    )
    .operator(&operator);
    let (ed, p256, pq) = (Algorithm::Ed25519, Algorithm::Esp256, Algorithm::MlDsa44);
    for algorithm in Algorithm::ALL {
        let bytes =
            certificate(&operator, GROUP, "ed", 7, &secret(algorithm, 2).public(), u32::MAX);
        file.valid(format!("of a key of {algorithm}"), "certificate.open", of(&bytes));
    }
    let good = certificate(&operator, GROUP, "ed", 3, &secret(ed, 1).public(), 100);
    assert_eq!(good, sign1(&operator, &header(ed, CERT, &[]), &cert_payload(&[(6, int(100))])));
    let signed = |changes: &[(usize, Value)]| {
        sign1(&operator, &header(ed, CERT, &[]), &cert_payload(changes))
    };
    let Value::Array(fields) = Value::decode(&cert_payload(&[])) else { panic!() };
    let of_fields = |fields: &[Value]| {
        sign1(&operator, &header(ed, CERT, &[]), &Value::Array(fields.to_vec()).encode())
    };
    let p256_key = bytes(&secret(p256, 2).public().to_bytes());
    for (name, bytes, error) in [
        ("six fields", of_fields(&fields[..6]), "UnexpectedType"),
        ("eight fields", of_fields(&[&fields[..], &fields[6..]].concat()), "UnexpectedType"),
        ("version 2", signed(&[(0, int(2))]), "UnsupportedVersion"),
        ("a group of 7 bytes", signed(&[(1, bytes(&[0; 7]))]), "UnexpectedType"),
        ("a device of 9 bytes", signed(&[(2, bytes(&[0; 9]))]), "UnexpectedType"),
        ("a negative serial", signed(&[(3, int(-1))]), "UnexpectedType"),
        ("an algorithm that is a text", signed(&[(4, text("ed25519"))]), "UnexpectedType"),
        ("an unknown algorithm", signed(&[(4, int(-8))]), "UnknownAlgorithm"),
        ("a key that is a text", signed(&[(5, text("key"))]), "UnexpectedType"),
        ("a first index of 2^32", signed(&[(6, Value::Uint(1 << 32))]), "FieldOutOfRange"),
        (
            "an unknown algorithm and a first index of null",
            signed(&[(4, int(-8)), (6, NULL)]),
            "UnexpectedType",
        ),
        ("a key of 31 bytes", signed(&[(5, bytes(&[1; 31]))]), "KeyLength"),
        ("a key of another suite", signed(&[(5, p256_key)]), "KeyLength"),
        ("an enormous key", signed(&[(5, bytes(&[1; 5000]))]), "KeyLength"),
        (
            "a key that is no point",
            signed(&[(5, bytes(&[&[2][..], &[0; 31]].concat()))]),
            "InvalidPublicKey",
        ),
        (
            "a key of small order",
            signed(&[(5, bytes(&[&[1][..], &[0; 31]].concat()))]),
            "InvalidPublicKey",
        ),
        ("no payload", sign1(&operator, &header(ed, CERT, &[]), b""), "Truncated"),
        (
            "a payload and more",
            sign1(&operator, &header(ed, CERT, &[]), &[cert_payload(&[]), vec![0]].concat()),
            "TrailingBytes",
        ),
        (
            "a payload that is not canonical",
            sign1(
                &operator,
                &header(ed, CERT, &[]),
                &[&[0x98, 0x07], &cert_payload(&[])[1..]].concat(),
            ),
            "NonCanonical",
        ),
        (
            "the typ of a roster",
            sign1(&operator, &header(ed, ROSTER, &[]), &cert_payload(&[])),
            "WrongType",
        ),
        (
            "signed by another operator",
            sign1(&secret(ed, 0x0b), &header(ed, CERT, &[]), &cert_payload(&[])),
            "NotAuthentic",
        ),
        (
            "signed with another suite",
            sign1(&secret(p256, 0x0b), &header(p256, CERT, &[]), &cert_payload(&[])),
            "AlgorithmMismatch",
        ),
        (
            "said to be of another suite",
            sign1(&operator, &header(pq, CERT, &[]), &cert_payload(&[])),
            "AlgorithmMismatch",
        ),
        (
            "signed by its own key",
            sign1(&secret(ed, 1), &header(ed, CERT, &[]), &cert_payload(&[])),
            "NotAuthentic",
        ),
        (
            "an invalid key under another operator",
            sign1(
                &secret(ed, 0x0b),
                &header(ed, CERT, &[]),
                &cert_payload(&[(5, bytes(&[0; 32]))]),
            ),
            "NotAuthentic",
        ),
        (
            "a key too short under another suite",
            sign1(
                &secret(p256, 0x0b),
                &header(p256, CERT, &[]),
                &cert_payload(&[(5, bytes(&[0; 3]))]),
            ),
            "KeyLength",
        ),
    ] {
        file.invalid(name, "certificate.open", of(&bytes), error);
    }
    let mut parts = parts_of(&good);
    parts[3] = bytes(&[1; 63]);
    file.invalid(
        "a signature of 63 bytes",
        "certificate.open",
        of(&tagged(parts)),
        "MalformedSignature",
    );
    file.mutate("every change", "certificate.open", of(&good), "bytes", &[0x01, 0x20, 0x80]);
    file
}

fn certificates_of_p256() -> File {
    let operator = secret(Algorithm::Esp256, 0x0a);
    let mut file =
        File::new("certificate/esp256.json", "Certificates by an operator with an ECDSA key.")
            .operator(&operator);
    let good = certificate(&operator, GROUP, "ed", 3, &secret(Algorithm::Ed25519, 1).public(), 0);
    file.valid("signed with ESP256", "certificate.open", of(&good));
    let mut parts = parts_of(&good);
    let Value::Bytes(signature) = parts[3].clone() else { panic!() };
    let high = sum(&hex::decode(P256_ORDER).unwrap(), &signature[32..], false);
    parts[3] = bytes(&[&signature[..32], &high].concat());
    file.invalid("s in the upper half", "certificate.open", of(&tagged(parts.clone())), "HighS");
    parts[2] = bytes(&cert_payload(&[(3, int(4))]));
    file.invalid(
        "s in the upper half of a signature that does not hold",
        "certificate.open",
        of(&tagged(parts)),
        "NotAuthentic",
    );
    file
}

fn urgent() -> File {
    let (operator, bytes_of_roster) = (operator(), roster(world::DEVICES));
    let opened = opened(world::DEVICES);
    let mut file = File::new("urgent/events.json", "Urgent events: objects.md, section 7.")
        .operator(&operator)
        .shared("roster", json!(hex::encode(&bytes_of_roster)));
    let statement = |device: &str, index: u32, changes: &[(usize, Value)]| {
        let mut fields = vec![
            int(1),
            bytes(&GroupId::of(GROUP).0),
            bytes(&opened.digest().0),
            bytes(&DeviceId::of(GROUP, device).0),
            int(i64::from(index)),
            int(7),
            int(42),
            bytes(&[3; 32]),
        ];
        for (at, value) in changes {
            fields[*at] = value.clone();
        }
        Value::Array(fields)
    };
    let signed = |secret: &SecretKey, statement: Value, record: &[u8]| {
        of(&sign1(secret, &header(secret.algorithm(), EVENT, &[(-70_001, statement)]), record))
    };
    let (ed, p256) =
        (device_secret("ed", Algorithm::Ed25519, 0), device_secret("ed", Algorithm::Esp256, 100));
    let good = signed(&ed, statement("ed", 0, &[]), b"fire");
    file.valid("an event", "urgent.open", good.clone());
    file.valid("an event of no bytes", "urgent.open", signed(&ed, statement("ed", 99, &[]), b""));
    file.valid(
        "under the next key",
        "urgent.open",
        signed(&p256, statement("ed", 100, &[]), b"fire"),
    );
    file.valid(
        "the longest event",
        "urgent.open",
        signed(&ed, statement("ed", 1, &[]), &vec![9; 65_535]),
    );
    let wide = Value::Uint(1 << 32);
    for (name, at, value, error) in [
        ("version 2", 0, int(2), "UnsupportedVersion"),
        ("another group", 1, bytes(&[0; 8]), "WrongGroup"),
        ("a group of 9 bytes", 1, bytes(&[0; 9]), "UnexpectedType"),
        ("a roster digest of 0 bytes", 2, bytes(b""), "UnexpectedType"),
        ("an unknown device", 3, bytes(&[0; 8]), "UnknownDevice"),
        ("an index of 2^32", 4, wide, "FieldOutOfRange"),
        ("an epoch of null", 5, NULL, "UnexpectedType"),
        ("a negative seq", 6, int(-1), "UnexpectedType"),
        ("a schema digest of 33 bytes", 7, bytes(&[0; 33]), "UnexpectedType"),
    ] {
        file.invalid(
            name,
            "urgent.open",
            signed(&ed, statement("ed", 0, &[(at, value)]), b"fire"),
            error,
        );
    }
    for (name, input, error) in [
        (
            "an index before the device's first",
            signed(
                &device_secret("late", Algorithm::Ed25519, 3),
                statement("late", 2, &[]),
                b"fire",
            ),
            "UnknownDevice",
        ),
        (
            "another device's key",
            signed(&device_secret("late", Algorithm::Ed25519, 3), statement("ed", 0, &[]), b"fire"),
            "NotAuthentic",
        ),
        ("the key before", signed(&ed, statement("ed", 100, &[]), b"fire"), "AlgorithmMismatch"),
        (
            "the next key too early",
            signed(&p256, statement("ed", 99, &[]), b"fire"),
            "AlgorithmMismatch",
        ),
        (
            "a record of 65,536 bytes",
            signed(&ed, statement("ed", 0, &[]), &vec![9; 65_536]),
            "FieldOutOfRange",
        ),
        ("seven fields", signed(&ed, Value::Array(vec![int(1); 7]), b"fire"), "UnexpectedType"),
        ("a seal", of(&two_seals()[0]), "WrongType"),
    ] {
        file.invalid(name, "urgent.open", input, error);
    }
    let mut parts = parts_of(&hex::decode(good["bytes"].as_str().unwrap()).unwrap());
    parts[2] = bytes(b"fine");
    file.invalid("another record", "urgent.open", of(&tagged(parts)), "NotAuthentic");
    file.mutate("every change", "urgent.open", good, "bytes", &[0x01, 0x20, 0x80]);
    file
}

fn schemas() -> File {
    let mut file = File::new(
        "schema/schemas.json",
        "Stream schemas, and reading records by them: objects.md, section 5.",
    );
    let every = [
        "a::u8", "b::i8", "c::u16", "d::i16", "e::u32", "f::i32", "g::u64", "h::i64", "i::f32",
        "j::f64", "k::time",
    ];
    let all = schema(&every);
    let scaled = schema(&[
        "t:Cel:i16/100",
        "h:%RH:u16/3",
        "p:Pa:u32/10+95000",
        "w::i64/7-9223372036854775808",
    ]);
    file.valid("opaque records", "schema.open", of(&schema(&[])));
    file.valid("one field", "schema.open", of(&schema(&["temperature:Cel:i16/100"])));
    file.valid("every type", "schema.open", of(&all));
    file.valid("scales", "schema.open", of(&scaled));
    file.valid(
        "names in other letters",
        "schema.open",
        of(&schema(&["\u{6e29}\u{5ea6}:Cel:i16/100", "a b\u{a0}c::u8"])),
    );
    let many: Vec<String> = (0..64).map(|i| format!("field{i}:lx:f64")).collect();
    file.valid(
        "64 fields",
        "schema.open",
        of(&schema(&many.iter().map(String::as_str).collect::<Vec<_>>())),
    );
    for unit in ["m", "S/m", "B", "deg", "ms", "km/h", "/", "%", "/1000", "%RH"] {
        file.valid(
            format!("the unit {unit}"),
            "schema.open",
            of(&schema(&[&format!("x:{unit}:u8")])),
        );
    }
    let record = |schema: &[u8], record: &[u8]| json!({ "schema": hex::encode(schema), "record": hex::encode(record) });
    let ascending: Vec<u8> = (0..46).map(|i| (i * 37 + 0xc1) as u8).collect();
    file.valid("a record of every type", "schema.record", record(&all, &ascending));
    file.valid("a record of zeros", "schema.record", record(&all, &[0; 46]));
    file.valid(
        "a record of scaled values",
        "schema.record",
        record(&scaled, &[0xff, 0x38, 0, 200, 0, 0, 19, 136, 0x80, 0, 0, 0, 0, 0, 0, 0]),
    );
    file.valid(
        "a record of the largest scaled values",
        "schema.record",
        record(
            &scaled,
            &[
                0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff,
                0xff, 0xff,
            ],
        ),
    );
    file.invalid(
        "a record that ends early",
        "schema.record",
        record(&all, &ascending[..45]),
        "RecordTooShort",
    );
    file.invalid("an empty record", "schema.record", record(&scaled, b""), "RecordTooShort");

    let field = |changes: &[(usize, Value)]| {
        let mut field = array([text("x"), text("Cel"), int(3), int(100), int(0)]);
        for (at, value) in changes {
            field = field.with(*at, value.clone());
        }
        field
    };
    let of_fields = |fields: &[Value]| of(&array([int(1), Value::Array(fields.to_vec())]).encode());
    for (name, changes, error) in [
        ("an empty name", vec![(0, text(""))], "InvalidFieldName"),
        ("a name of 65 bytes", vec![(0, text(&"n".repeat(65)))], "InvalidFieldName"),
        ("a name with a line feed", vec![(0, text("a\nb"))], "InvalidFieldName"),
        ("a name that colours a terminal", vec![(0, text("\u{1b}[31mred"))], "InvalidFieldName"),
        ("a name with U+007F", vec![(0, text("a\u{7f}"))], "InvalidFieldName"),
        ("a name with U+009B", vec![(0, text("\u{9b}0m"))], "InvalidFieldName"),
        ("a name that is bytes", vec![(0, bytes(b"x"))], "UnexpectedType"),
        ("an unknown unit", vec![(1, text("parsec"))], "UnknownUnit"),
        ("a unit in other letters", vec![(1, text("cel"))], "UnknownUnit"),
        ("a unit of null", vec![(1, NULL)], "UnexpectedType"),
        ("type 11", vec![(2, int(11)), (3, int(1))], "UnknownFieldType"),
        ("a type of 2^64-1", vec![(2, Value::Uint(u64::MAX))], "UnknownFieldType"),
        ("a negative type", vec![(2, int(-1))], "UnexpectedType"),
        ("a type by name", vec![(2, text("i16"))], "UnexpectedType"),
        ("a divisor of 0", vec![(3, int(0))], "ScaleOutOfRange"),
        ("a divisor of 2^32", vec![(3, Value::Uint(1 << 32))], "ScaleOutOfRange"),
        ("a negative divisor", vec![(3, int(-1))], "UnexpectedType"),
        ("an offset of 2^63", vec![(4, Value::Uint(1 << 63))], "FieldOutOfRange"),
        ("an offset below -2^63", vec![(4, Value::Negative(1 << 63))], "FieldOutOfRange"),
        ("an offset of null", vec![(4, NULL)], "UnexpectedType"),
        ("a scaled f32", vec![(2, int(8))], "ScaleOutOfRange"),
        ("an f64 with an offset", vec![(2, int(9)), (3, int(1)), (4, int(1))], "ScaleOutOfRange"),
        ("a scaled time", vec![(2, int(10)), (3, int(1000))], "ScaleOutOfRange"),
        (
            "an empty name and an unknown unit",
            vec![(0, text("")), (1, text("?"))],
            "InvalidFieldName",
        ),
        ("an unknown unit and an unknown type", vec![(1, text("?")), (2, int(99))], "UnknownUnit"),
        ("an unknown type and no divisor", vec![(2, int(99)), (3, int(0))], "UnknownFieldType"),
        (
            "an unknown unit and an offset of true",
            vec![(1, text("?")), (4, TRUE)],
            "UnexpectedType",
        ),
    ] {
        file.invalid(name, "schema.open", of_fields(&[field(&changes)]), error);
    }
    let named = |name: &str| field(&[(0, text(name))]);
    file.invalid(
        "a name twice",
        "schema.open",
        of_fields(&[named("a"), named("b"), named("a")]),
        "DuplicateField",
    );
    let many: Vec<Value> = (0..65).map(|i| named(&i.to_string())).collect();
    file.invalid("65 fields", "schema.open", of_fields(&many), "TooManyFields");
    file.invalid(
        "65 fields, the last of which is none",
        "schema.open",
        of_fields(&[&many[..64], &[NULL]].concat()),
        "UnexpectedType",
    );
    let good = schema(FIXED);
    for (name, bytes, error) in [
        ("version 2", array([int(2), array([])]).encode(), "UnsupportedVersion"),
        ("three elements", array([int(1), array([]), array([])]).encode(), "UnexpectedType"),
        ("fields of null", array([int(1), NULL]).encode(), "UnexpectedType"),
        (
            "a field of four elements",
            array([int(1), array([array([text("x"), text(""), int(0), int(1)])])]).encode(),
            "UnexpectedType",
        ),
        ("a map", Value::Map(vec![]).encode(), "UnexpectedType"),
        ("nothing", Vec::new(), "Truncated"),
        ("a schema and more", [good.clone(), vec![0]].concat(), "TrailingBytes"),
        (
            "a divisor in too many bytes",
            [&good[..good.len() - 3], &[0x19, 0x00, 0x64, 0x00]].concat(),
            "NonCanonical",
        ),
    ] {
        file.invalid(name, "schema.open", of(&bytes), error);
    }
    file
}
