//! Vectors of schema version 2: schemas, records, and streams and urgent events with such records.

use moteseal_core::record::{DeviceId, GroupId, Scheme};
use moteseal_core::schema::{MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, Signer};
use serde_json::{Value as Json, json};

use super::parts::{ALL, EVENTS, file_of_streams, group};
use super::{File, Files, cose, of};
use moteseal_fixtures::cbor_tree::{
    FALSE, NULL, Value, array, bytes, encode_sequence, int, sequence, text,
};
use moteseal_fixtures::world::{
    self, Device, Epoch, GROUP, Pick, Sealed, device_secret, header, operator, roster, schema,
    sign1, stream,
};

/// A field of each type, with every key that a field can have.
const EVERY: [&str; 16] = [
    "a::u8?",
    "b::i8?",
    "c:Cel:u16/100-4000?#1000",
    "d::i16?~",
    "e::u32?",
    "f::i32?",
    "g::u64?",
    "h::i64?",
    "i::f32?",
    "j::f64?",
    "k::time?",
    "open::bool?",
    "state::enum(off,on,stand by)?#65535",
    "place::text32?",
    "seen::timestamp?",
    "position::point?~",
];
/// Records of this schema have one size.
const CLOSED: [&str; 4] =
    ["temperature:Cel:i16/100?", "open::bool", "mode::enum(off,on,auto)?", "at::point?"];
/// Records of this schema have different lengths.
const TEXTS: [&str; 4] = ["note::text40?", "open::bool", "place::text12", "seen::timestamp?~#9"];

pub fn make(files: &mut Files) {
    files.add(schemas());
    files.add(records());
    files.add(streams());
    files.add(urgent());
}

/// Returns the record of a schema with these values.
pub(super) fn record(schema: &[u8], values: &[&str]) -> Vec<u8> {
    let schema = Schema::decode(schema).unwrap();
    let mut record = vec![0; schema.longest_record()];
    for (field, value) in schema.fields().zip(values) {
        field.write(value, &mut record).unwrap();
    }
    record.truncate(schema.record_length(&record).unwrap());
    record
}

/// Returns a field with these pairs instead of, or in addition to, an id, a name and a type.
pub(super) fn field(pairs: &[(u64, Value)]) -> Value {
    let mut all = vec![(0, int(1)), (1, text("x")), (3, int(0))];
    for (key, value) in pairs {
        all.retain(|(known, _)| known != key);
        all.push((*key, value.clone()));
    }
    all.sort_by_key(|(key, _)| *key);
    Value::Map(all.into_iter().map(|(key, value)| (Value::Uint(key), value)).collect())
}

fn of_fields(fields: &[Value]) -> Json {
    of(&array([int(2), Value::Array(fields.to_vec())]).encode())
}

fn labels(labels: impl IntoIterator<Item = String>) -> Value {
    Value::Array(labels.into_iter().map(|label| text(&label)).collect())
}

fn schemas() -> File {
    let mut file =
        File::new("schema/version-2.json", "Schemas of version 2: objects.md, section 5.2.");
    file.valid("every type and every key", "schema.open", of(&schema(&EVERY)));
    for (name, fields) in [
        ("a fixed size", &CLOSED[..]),
        ("texts", &TEXTS),
        ("an id that is not the position", &["a::u8", "b::u8#7"]),
        ("ids in another order", &["a::u8#2", "b::u8#1"]),
        ("a relayed field", &["a::u8~"]),
        ("labels with marks and colons", &["a::enum(x:y?~#1,b#2, c)"]),
        ("the shortest and the longest text", &["a::text1", "b::text254"]),
    ] {
        file.valid(name, "schema.open", of(&schema(fields)));
    }
    let many: Vec<_> = (0..64).map(|number| format!("{number}::text254?")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    file.valid("64 texts", "schema.open", of(&schema(&many)));
    let numbered = |count: usize, length: usize| {
        labels((0..count).map(move |label| format!("{label:0length$}")))
    };
    for (name, pairs) in [
        ("what version 1 can express", vec![]),
        ("unknown odd keys", vec![(11, NULL), (13, array([int(1), Value::Map(vec![])]))]),
        ("a large unknown odd key", vec![(u64::MAX, text("y"))]),
        ("the largest id", vec![(0, int(65_535))]),
        ("254 labels", vec![(3, int(12)), (7, numbered(254, 3))]),
        ("a label of 64 bytes", vec![(3, int(12)), (7, numbered(1, 64))]),
    ] {
        file.valid(name, "schema.open", of_fields(&[field(&pairs)]));
    }
    // The name makes the schema as long as it may be.
    let filled = |length: usize| {
        let labels = numbered(92, 64);
        let fields = |name: usize| {
            [
                field(&[(1, text(&"n".repeat(name))), (3, int(12)), (7, labels.clone())]),
                field(&[(0, int(2)), (1, text("y"))]),
            ]
        };
        let short = array([int(2), Value::Array(fields(24).to_vec())]).encode().len();
        of_fields(&fields(24 + length - short))
    };
    file.valid("6,152 bytes", "schema.open", filled(MAX_SCHEMA));
    file.invalid("6,153 bytes", "schema.open", filled(MAX_SCHEMA + 1), "SchemaTooLong");

    let enumeration = |labels: Value| vec![(3, int(12)), (7, labels)];
    let named = |label: &str| enumeration(labels([label.to_owned()]));
    for (name, pairs, error) in [
        ("key 10", vec![(10, int(1))], "UnsupportedField"),
        ("suite 0", vec![(12, int(0))], "NonCanonical"),
        ("an unknown suite", vec![(12, int(3))], "UnknownSuite"),
        ("a suite that is a text", vec![(12, text("x"))], "UnexpectedType"),
        ("key 14", vec![(14, int(1))], "UnsupportedField"),
        ("a large unknown even key", vec![(u64::MAX - 1, NULL)], "UnsupportedField"),
        (
            "an unknown even key and an unknown type",
            vec![(3, int(99)), (14, NULL)],
            "UnsupportedField",
        ),
        ("an unknown even key and an odd id", vec![(0, text("a")), (14, NULL)], "UnexpectedType"),
        ("an id of 0", vec![(0, int(0))], "InvalidFieldId"),
        ("an id of 65,536", vec![(0, int(65_536))], "InvalidFieldId"),
        ("a negative id", vec![(0, int(-1))], "UnexpectedType"),
        ("an empty name", vec![(1, text(""))], "InvalidFieldName"),
        ("a name with a control character", vec![(1, text("a\u{9b}b"))], "InvalidFieldName"),
        ("an id of 0 and an empty name", vec![(0, int(0)), (1, text(""))], "InvalidFieldId"),
        ("an unknown unit", vec![(2, text("parsec"))], "UnknownUnit"),
        ("an empty unit", vec![(2, text(""))], "NonCanonical"),
        ("type 16", vec![(3, int(16))], "UnknownFieldType"),
        ("a type of 2^64-1", vec![(3, Value::Uint(u64::MAX))], "UnknownFieldType"),
        ("a divisor of 1", vec![(4, int(1))], "NonCanonical"),
        ("a divisor of 0", vec![(4, int(0))], "ScaleOutOfRange"),
        ("a divisor of 2^32", vec![(4, Value::Uint(1 << 32))], "ScaleOutOfRange"),
        ("an offset of 0", vec![(5, int(0))], "NonCanonical"),
        ("an offset of 2^63", vec![(5, Value::Uint(1 << 63))], "FieldOutOfRange"),
        ("a scaled bool", vec![(3, int(11)), (4, int(2))], "ScaleOutOfRange"),
        ("a timestamp with an offset", vec![(3, int(14)), (5, int(2))], "ScaleOutOfRange"),
        ("a scaled point", vec![(3, int(15)), (4, int(10))], "ScaleOutOfRange"),
        ("not nullable", vec![(6, FALSE)], "NonCanonical"),
        ("nullable by a number", vec![(6, int(1))], "UnexpectedType"),
        ("not relayed", vec![(9, FALSE)], "NonCanonical"),
        ("an enum without labels", vec![(3, int(12))], "InvalidLabels"),
        ("an enum with no label", enumeration(array([])), "InvalidLabels"),
        ("labels of a bool", vec![(3, int(11)), (7, numbered(1, 1))], "InvalidLabels"),
        ("no labels of a bool", vec![(3, int(11)), (7, array([]))], "InvalidLabels"),
        ("255 labels", enumeration(numbered(255, 3)), "InvalidLabels"),
        ("an empty label", named(""), "InvalidLabels"),
        ("a label of 65 bytes", enumeration(numbered(1, 65)), "InvalidLabels"),
        ("a label with a comma", named("a,b"), "InvalidLabels"),
        ("a label with a bracket", named("a)"), "InvalidLabels"),
        ("a label with a control character", named("a\u{85}"), "InvalidLabels"),
        ("a label twice", enumeration(array([text("a"), text("b"), text("a")])), "InvalidLabels"),
        ("a label that is a number", enumeration(array([int(1)])), "UnexpectedType"),
        ("labels in one text", enumeration(text("a,b")), "UnexpectedType"),
        ("a text without a length", vec![(3, int(13))], "InvalidTextLength"),
        ("a text of 0 bytes", vec![(3, int(13)), (8, int(0))], "NonCanonical"),
        ("a text of 255 bytes", vec![(3, int(13)), (8, int(255))], "InvalidTextLength"),
        ("a text of 256 bytes", vec![(3, int(13)), (8, int(256))], "InvalidTextLength"),
        ("a number with a longest text", vec![(8, int(9))], "InvalidTextLength"),
        (
            "an enum with an offset and no labels",
            vec![(3, int(12)), (5, int(1))],
            "ScaleOutOfRange",
        ),
        (
            "a bool with labels and a longest text",
            vec![(3, int(11)), (7, numbered(1, 1)), (8, int(9))],
            "InvalidLabels",
        ),
    ] {
        file.invalid(name, "schema.open", of_fields(&[field(&pairs)]), error);
    }
    let pair = |key: Value, value: Value| (key, value);
    let (id, name, kind) = (pair(int(0), int(1)), pair(int(1), text("x")), pair(int(3), int(0)));
    for (about, pairs, error) in [
        ("keys in the wrong order", vec![name.clone(), id.clone(), kind.clone()], "NonCanonical"),
        ("a key twice", vec![id.clone(), name.clone(), name.clone(), kind.clone()], "NonCanonical"),
        ("no id", vec![name.clone(), kind.clone()], "UnexpectedType"),
        ("no name", vec![id.clone(), kind.clone()], "UnexpectedType"),
        ("no type", vec![id.clone(), name.clone()], "UnexpectedType"),
        (
            "a negative key",
            vec![id.clone(), name.clone(), kind.clone(), pair(int(-1), NULL)],
            "UnexpectedType",
        ),
        (
            "a key that is a text",
            vec![id.clone(), name.clone(), kind.clone(), pair(text("y"), NULL)],
            "UnexpectedType",
        ),
    ] {
        file.invalid(about, "schema.open", of_fields(&[Value::Map(pairs)]), error);
    }
    let other = |id: i64, name: &str| field(&[(0, int(id)), (1, text(name))]);
    for (about, fields, error) in [
        ("no fields", vec![], "UnsupportedVersion"),
        ("a name twice", vec![other(1, "x"), other(2, "x")], "DuplicateField"),
        ("an id twice", vec![other(7, "x"), other(1, "y"), other(7, "z")], "DuplicateFieldId"),
        ("a name and an id twice", vec![other(1, "x"), other(1, "x")], "DuplicateField"),
        (
            "a field of version 1",
            vec![array([text("x"), text(""), int(0), int(1), int(0)])],
            "UnexpectedType",
        ),
        ("65 fields", (1..=65).map(|id| other(id, &id.to_string())).collect(), "TooManyFields"),
        (
            "65 fields, the last of which is none",
            (1..=64).map(|id| other(id, &id.to_string())).chain([NULL]).collect(),
            "UnexpectedType",
        ),
    ] {
        file.invalid(about, "schema.open", of_fields(&fields), error);
    }
    for (about, schema, error) in [
        ("a field of version 2 in version 1", [int(1), array([field(&[])])], "UnexpectedType"),
        ("version 3", [int(3), array([field(&[])])], "UnsupportedVersion"),
        ("fields that are a map", [int(2), Value::Map(vec![])], "UnexpectedType"),
        (
            "type 11 in version 1",
            {
                let fields = [text("x"), text(""), int(11), int(1), int(0)];
                [int(1), array([array(fields)])]
            },
            "UnknownFieldType",
        ),
    ] {
        file.invalid(about, "schema.open", of(&array(schema).encode()), error);
    }
    file
}

fn records() -> File {
    let mut file = File::new(
        "schema/records-2.json",
        "Records of schemas of version 2, their nulls and their checks: objects.md, section 5.3.",
    );
    let every = schema(&EVERY);
    let of_record = |schema: &[u8], record: &[u8]| json!({ "schema": hex::encode(schema), "record": hex::encode(record) });
    let values = [
        "254",
        "-127",
        "27.97",
        "-1",
        "7",
        "-7",
        "8",
        "-8",
        "2.5",
        "-0.125",
        "899999",
        "true",
        "stand by",
        "Åre",
        "2026-03-01T07:00:00.25Z",
        "59.3293,-18.0686",
    ];
    file.valid(
        "a value of every type",
        "schema.record",
        of_record(&every, &record(&every, &values)),
    );
    file.valid(
        "nulls of every type",
        "schema.record",
        of_record(&every, &record(&every, &[""; 16])),
    );
    for (name, field, value) in [
        ("the other NaN of a float", "a::f32?", "7fc00000"),
        ("null's bits in a float that is not nullable", "a::f32", "ffffffff"),
        ("null's value in a number that is not nullable", "a::i16", "8000"),
        ("null's value in a timestamp that is not nullable", "a::timestamp", "8000000000000000"),
        ("the north pole", "a::point", "35a4e90094b62e00"),
        ("the last label", "a::enum(x,y)", "01"),
        ("an empty text", "a::text3?", "00"),
        ("a text of the longest length", "a::text3?", "03616263"),
        ("a time before 1970", "a::timestamp", "ffffffffffffffff"),
    ] {
        file.valid(
            name,
            "schema.record",
            of_record(&schema(&[field]), &hex::decode(value).unwrap()),
        );
    }
    for (name, field, value, error) in [
        ("an empty record", "a::bool", "", "RecordLength"),
        ("a byte too many", "a::bool", "0101", "RecordLength"),
        ("a bool of 2", "a::bool?", "02", "RecordValue"),
        ("a bool that is null", "a::bool", "ff", "RecordValue"),
        ("a label that does not exist", "a::enum(x,y)?", "02", "RecordValue"),
        ("a label that is null", "a::enum(x,y)", "ff", "RecordValue"),
        ("a latitude above 90 degrees", "a::point", "35a4e90100000000", "RecordValue"),
        ("a longitude below -180 degrees", "a::point", "0000000094b62dff", "RecordValue"),
        ("a latitude that is null", "a::point?", "8000000000000000", "RecordValue"),
        ("a longitude that is null", "a::point?", "0000000080000000", "RecordValue"),
        ("a point that is null", "a::point", "8000000080000000", "RecordValue"),
        ("a text without its length", "a::text3", "", "RecordLength"),
        ("a text that ends early", "a::text3", "036162", "RecordLength"),
        ("a text and more", "a::text3", "0161ff", "RecordLength"),
        ("a text that is too long", "a::text3", "0461626364", "RecordValue"),
        ("a text that is null", "a::text3", "ff", "RecordValue"),
        ("a text that is null, and more", "a::text3?", "ff00", "RecordLength"),
        ("a text that is not UTF-8", "a::text3", "02c328", "RecordValue"),
        ("a text that ends within a character", "a::text3", "01c3", "RecordValue"),
        ("a text with a surrogate", "a::text3", "03eda080", "RecordValue"),
        ("a text with a line feed", "a::text3", "01 0a", "RecordValue"),
        ("a text with U+0085", "a::text3", "02c285", "RecordValue"),
    ] {
        let bytes = hex::decode(value.replace(' ', "")).unwrap();
        file.invalid(name, "schema.record", of_record(&schema(&[field]), &bytes), error);
    }
    let texts = schema(&TEXTS);
    let good = record(&texts, &["a note", "true", "Åre", "1970-01-01T00:00:01Z"]);
    file.valid("texts after the other cells", "schema.record", of_record(&texts, &good));
    for (name, change, error) in [
        ("a text's length that takes the next cell", (9, 6 + 5), "RecordLength"),
        ("a text's length that takes a byte of the next cell", (9, 7), "RecordLength"),
        ("a text's length that leaves a byte", (9, 5), "RecordLength"),
        ("a text's length that is null", (9, 255), "RecordLength"),
        ("a bool of 9", (0, 9), "RecordValue"),
    ] {
        let mut changed = good.clone();
        changed[change.0] = change.1;
        file.invalid(name, "schema.record", of_record(&texts, &changed), error);
    }
    file.invalid(
        "cells that end early",
        "schema.record",
        of_record(&texts, &good[..8]),
        "RecordLength",
    );
    file
}

/// Returns a seal of records with these schema's fields: some values are null.
fn sealed(fields: &[&str], scheme: Scheme, rows: &[Vec<u8>]) -> Sealed {
    let mut epoch = Epoch::new(scheme, 7, 0);
    epoch.records = rows.to_vec();
    Device::new(&group(), "ed", &schema(fields)).seal(&epoch)
}

fn rows_of_texts() -> Vec<Vec<u8>> {
    let texts = schema(&TEXTS);
    let mut rows = Vec::new();
    for row in 0..20usize {
        let note = if row % 3 == 0 { String::new() } else { "n".repeat(row * 2) };
        let place = ["Åre", "Kista", "", "Abisko"][row % 4];
        let seen = if row % 5 == 0 { String::new() } else { (row * 999).to_string() };
        rows.push(record(&texts, &[&note, ["false", "true"][row % 2], place, &seen]));
    }
    rows
}

fn rows_of_closed() -> Vec<Vec<u8>> {
    let closed = schema(&CLOSED);
    let mut rows = Vec::new();
    for row in 0..20usize {
        let temperature = if row % 4 == 0 { String::new() } else { format!("-{row}.5") };
        let mode = ["off", "on", "auto", ""][row % 4];
        let at = if row % 3 == 0 { String::new() } else { format!("{row},-1.{row}") };
        rows.push(record(&closed, &[&temperature, ["false", "true"][row % 2], mode, &at]));
    }
    rows
}

fn streams() -> File {
    let mut file = file_of_streams(
        "stream/version-2.json",
        "Streams with schemas of version 2: answers.md, section 2.",
    );
    for scheme in [Scheme::Star, Scheme::Tree] {
        for (kind, fields, rows) in
            [("one size", &CLOSED[..], rows_of_closed()), ("texts", &TEXTS[..], rows_of_texts())]
        {
            let one = sealed(fields, scheme, &rows);
            for mask in [0xff, 0xfc] {
                let name =
                    format!("records of {kind} in a {}, levels {mask:#04x}", scheme.as_str());
                let bytes =
                    stream(&schema(fields), std::slice::from_ref(&one), &Pick::Levels(mask));
                file.valid(name, "stream.read", of(&bytes));
            }
        }
        let scheme = scheme.as_str();
        // The device signs records that are not of the schema.
        let of_scheme = if scheme == "star" { Scheme::Star } else { Scheme::Tree };
        for (name, at, value, error) in [
            ("a bool of 2", 2, 2, "RecordValue"),
            ("a bool that is null", 2, 0xff, "RecordValue"),
            ("a label that does not exist", 3, 3, "RecordValue"),
            ("a latitude out of range", 4, 0x7f, "RecordValue"),
        ] {
            let mut rows = rows_of_closed();
            rows[7][at] = value;
            let one = sealed(&CLOSED, of_scheme, &rows);
            let bytes = stream(&schema(&CLOSED), std::slice::from_ref(&one), &ALL);
            file.invalid(format!("{name}, signed in a {scheme}"), "stream.read", of(&bytes), error);
        }
        for (name, at, value, error) in [
            ("a text's length that takes the next cell", 9, 60, "RecordLength"),
            ("a text that is not UTF-8", 10, 0xff, "RecordValue"),
            ("a text with a control character", 10, 7, "RecordValue"),
        ] {
            let mut rows = rows_of_texts();
            rows[7][at] = value;
            let one = sealed(&TEXTS, of_scheme, &rows);
            let bytes = stream(&schema(&TEXTS), std::slice::from_ref(&one), &ALL);
            file.invalid(format!("{name}, signed in a {scheme}"), "stream.read", of(&bytes), error);
        }
    }
    // The cloud changes cells of a star that the device signed.
    let one = sealed(&CLOSED, Scheme::Star, &rows_of_closed());
    let good = sequence(&stream(&schema(&CLOSED), std::slice::from_ref(&one), &ALL));
    let Value::Array(part) = &good[2] else { panic!() };
    let Value::Bytes(events) = &part[EVENTS] else { panic!() };
    for (name, cell, value, error) in [
        ("a value that becomes null", 0..2, &[0x80, 0][..], "NotAuthentic"),
        ("a label that becomes null", 3..4, &[0xff], "NotAuthentic"),
        ("a label that becomes another", 3..4, &[1], "NotAuthentic"),
        ("a label that does not exist", 3..4, &[9], "RecordValue"),
    ] {
        let mut changed = events.clone();
        let record = changed.chunks_mut(12).find(|record| record[cell.clone()] != *value).unwrap();
        record[cell].copy_from_slice(value);
        let mut items = good.clone();
        items[2] = good[2].with(EVENTS, bytes(&changed));
        file.invalid(name, "stream.read", of(&encode_sequence(&items)), error);
    }
    // Records of different lengths, under a schema of another size.
    let mut items = good.clone();
    items[0] = array([int(0), bytes(&schema(&["a::u32", "b::u32", "c::u32"]))]);
    file.invalid("another schema", "stream.read", of(&encode_sequence(&items)), "NotAuthentic");
    let unknown = array([int(2), array([field(&[(10, int(1))])])]).encode();
    items[0] = array([int(0), bytes(&unknown)]);
    file.invalid(
        "a schema with a key that must be understood",
        "stream.read",
        of(&encode_sequence(&items)),
        "UnsupportedField",
    );
    let texts = sealed(&TEXTS, Scheme::Tree, &rows_of_texts()[..3]);
    let good = of(&stream(&schema(&TEXTS), std::slice::from_ref(&texts), &ALL));
    file.mutate("every change", "stream.read", good, "bytes", &[0x01, 0x80]);
    file
}

fn urgent() -> File {
    let (operator, opened) = (operator(), cose::opened(world::DEVICES));
    let mut file = File::new(
        "urgent/version-2.json",
        "Urgent events with their schemas: objects.md, section 7.",
    )
    .operator(&operator)
    .shared("roster", json!(hex::encode(roster(world::DEVICES))));
    let ed = device_secret("ed", Algorithm::Ed25519, 0);
    let event = |schema: &[u8], record: &[u8]| {
        let statement = array([
            int(1),
            bytes(&GroupId::of(GROUP).0),
            bytes(&opened.digest().0),
            bytes(&DeviceId::of(GROUP, "ed").0),
            int(0),
            int(7),
            int(42),
            bytes(&Schema::decode(schema).unwrap().digest().0),
        ]);
        let protected = header(ed.algorithm(), cose::EVENT, &[(-70_001, statement)]);
        hex::encode(sign1(&ed, &protected, record))
    };
    let of_event = |schema: &[u8], record: &[u8]| json!({ "bytes": event(schema, record), "schema": hex::encode(schema) });
    let (closed, texts) = (schema(&CLOSED), schema(&TEXTS));
    let (of_closed, of_texts) = (&rows_of_closed()[8], &rows_of_texts()[7]);
    file.valid("of one size", "urgent.open", of_event(&closed, of_closed));
    file.valid("of texts", "urgent.open", of_event(&texts, of_texts));
    file.valid("of version 1", "urgent.open", of_event(&schema(world::FIXED), &[1; 4]));
    file.valid("opaque", "urgent.open", of_event(&schema(&[]), &[1; 4]));
    let with = |record: &[u8], at: usize, value: u8| {
        let mut record = record.to_vec();
        record[at] = value;
        record
    };
    for (name, input, error) in [
        ("a byte too many", of_event(&closed, &[of_closed, &[0][..]].concat()), "RecordLength"),
        ("a byte too many of version 1", of_event(&schema(world::FIXED), &[0; 5]), "RecordLength"),
        ("a bool of 2", of_event(&closed, &with(of_closed, 2, 2)), "RecordValue"),
        ("a text's length", of_event(&texts, &with(of_texts, 9, 200)), "RecordLength"),
        ("a text's letter", of_event(&texts, &with(of_texts, 10, 0x1b)), "RecordValue"),
        (
            "another schema",
            json!({ "bytes": event(&closed, of_closed), "schema": hex::encode(&texts) }),
            "SchemaUnknown",
        ),
    ] {
        file.invalid(name, "urgent.open", input, error);
    }
    file
}
