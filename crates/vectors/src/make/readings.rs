//! Vectors of signed readings.

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{self, GROUP, device_secret, operator, roster, schema};
use moteseal_seal::ReadingFormat::{self, Json, SenmlCbor, SenmlJson};
use moteseal_verify::reading::{MULTIPART, Pack, join, multipart};
use serde_json::{Value as JsonValue, json};

use super::cose::{EVENT, opened, two_seals};
use super::schema_2::record;
use super::{File, Files};

const OP: &str = "reading.open";
const READING: &str = "moteseal-reading+cose";
const UNIX_MS: u64 = 1_700_000_000_250;

pub fn make(files: &mut Files) {
    files.add(responses());
    files.add(representations());
}

fn of(format: u16, bytes: &[u8]) -> JsonValue {
    json!({ "format": format, "bytes": hex::encode(bytes) })
}

/// What a vector changes in a signed object.
#[derive(Default)]
struct Changes {
    header: Vec<(i64, Value)>,
    statement: Vec<(usize, Value)>,
    payload: Option<Value>,
}

/// Returns the signed object of a representation.
fn object(
    key: &SecretKey,
    index: u32,
    (format, payload): (u16, &[u8]),
    changes: Changes,
) -> Vec<u8> {
    let mut statement = vec![
        int(1),
        bytes(&GroupId::of(GROUP).0),
        bytes(&opened(world::DEVICES).digest().0),
        bytes(&DeviceId::of(GROUP, "ed").0),
        int(i64::from(index)),
        int(7),
        int(42),
    ];
    for (at, value) in changes.statement {
        statement[at] = value;
    }
    let mut pairs = vec![
        (1, int(key.algorithm().cose())),
        (3, int(format.into())),
        (16, text(READING)),
        (-70_001, Value::Array(statement)),
    ];
    for (label, value) in changes.header {
        pairs.retain(|(known, _)| *known != label);
        if value != NULL {
            pairs.push((label, value));
        }
    }
    pairs.sort_by_key(|(label, _)| (*label < 0, *label));
    let pairs = pairs.into_iter().map(|(label, value)| (int(label), value)).collect();
    let protected = bytes(&Value::Map(pairs).encode());
    let message =
        array([text("Signature1"), protected.clone(), bytes(b""), bytes(payload)]).encode();
    let signature = bytes(&key.signature(&message).unwrap());
    let payload = changes.payload.unwrap_or(NULL);
    Value::Tag(18, Box::new(array([protected, Value::Map(vec![]), payload, signature]))).encode()
}

/// Returns the response with a signed representation.
fn response(key: &SecretKey, format: ReadingFormat, payload: &[u8]) -> JsonValue {
    let object = object(key, 0, (format.number(), payload), Changes::default());
    match format {
        Json => of(50, &join(payload, &object).unwrap()),
        format => of(MULTIPART, &multipart(format, payload, &object)),
    }
}

fn pack(fields: &[&str], record: &[u8]) -> Pack {
    let schema = schema(fields);
    let schema = Schema::decode(&schema).unwrap();
    Pack::new(DeviceId::of(GROUP, "ed"), UNIX_MS, (&schema, record), None).unwrap()
}

fn key() -> SecretKey {
    device_secret("ed", Algorithm::Ed25519, 0)
}

fn file(path: &'static str, about: &'static str) -> File {
    File::new(path, about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(roster(world::DEVICES))))
}

fn responses() -> File {
    let mut file = file(
        "reading/responses.json",
        "Signed readings, their signatures and responses: objects.md, section 7.2.",
    );
    let ed = key();
    let p256 = device_secret("ed", Algorithm::Esp256, 100);
    let late = device_secret("late", Algorithm::Ed25519, 3);
    let pack = pack(&["temperature:Cel:i16/100", "humidity:%RH:u16/100"], &[10, 237, 16, 54]);
    for format in ReadingFormat::ALL {
        let name = format!("of format {}", format.number());
        file.valid(name, OP, response(&ed, format, &pack.encode(format)));
    }
    let senml = pack.encode(SenmlJson);
    let signed = |key: &SecretKey, index, changes| {
        let object = object(key, index, (110, &senml), changes);
        of(MULTIPART, &multipart(SenmlJson, &senml, &object))
    };
    file.valid("under the next key", OP, signed(&p256, 100, Changes::default()));
    let statement = |at, value| Changes { statement: vec![(at, value)], ..Changes::default() };
    for (name, at, value, error) in [
        ("version 2", 0, int(2), "UnsupportedVersion"),
        ("another group", 1, bytes(&[0; 8]), "WrongGroup"),
        ("a group of 9 bytes", 1, bytes(&[0; 9]), "UnexpectedType"),
        ("a roster digest of 0 bytes", 2, bytes(b""), "UnexpectedType"),
        ("an unknown device", 3, bytes(&[0; 8]), "UnknownDevice"),
        ("an index of 2^32", 4, Value::Uint(1 << 32), "FieldOutOfRange"),
        ("an epoch of null", 5, NULL, "UnexpectedType"),
        ("a negative seq", 6, int(-1), "UnexpectedType"),
    ] {
        file.invalid(name, OP, signed(&ed, 0, statement(at, value)), error);
    }
    let header = |label, value| Changes { header: vec![(label, value)], ..Changes::default() };
    for (name, label, value, error) in [
        ("no content format", 3, NULL, "UnexpectedHeader"),
        ("a text for a content format", 3, text("110"), "UnexpectedType"),
        ("a content format of 65,536", 3, int(65_536), "FieldOutOfRange"),
        ("the content format of the other pack", 3, int(112), "WrongFormat"),
        ("another content format", 3, int(60), "WrongFormat"),
        ("no statement", -70_001, NULL, "UnexpectedHeader"),
        ("an urgent event", 16, text(EVENT), "WrongType"),
        ("a statement of eight fields", -70_001, Value::Array(vec![int(1); 8]), "UnexpectedType"),
        ("a critical header", 2, array([int(3)]), "UnknownCritical"),
        ("a vds", 395, int(1), "UnexpectedHeader"),
    ] {
        file.invalid(name, OP, signed(&ed, 0, header(label, value)), error);
    }
    let attached = |value| Changes { payload: Some(value), ..Changes::default() };
    let multi = |elements: Vec<Value>| of(MULTIPART, &Value::Array(elements).encode());
    let good = object(&ed, 0, (110, &senml), Changes::default());
    let parts = |format, representation: &[u8], inner, object: &[u8]| {
        vec![int(format), bytes(representation), int(inner), bytes(object)]
    };
    let changed = [&senml[..10], b"x", &senml[11..]].concat();
    let whole = multipart(SenmlJson, &senml, &good);
    for (name, input, error) in [
        ("an attached payload", signed(&ed, 0, attached(bytes(&senml))), "UnexpectedType"),
        ("an empty payload", signed(&ed, 0, attached(bytes(b""))), "UnexpectedType"),
        ("another device's key", signed(&late, 0, Changes::default()), "NotAuthentic"),
        ("the key before", signed(&ed, 100, Changes::default()), "AlgorithmMismatch"),
        ("another representation", multi(parts(110, &changed, 18, &good)), "NotAuthentic"),
        ("the signature of the other format", multi(parts(112, &senml, 18, &good)), "WrongFormat"),
        (
            "a seal for a signature",
            multi(parts(110, &senml, 18, &two_seals()[0])),
            "UnexpectedType",
        ),
        (
            "a JSON object in a multipart message",
            multi(parts(50, &senml, 18, &good)),
            "FieldOutOfRange",
        ),
        (
            "another format of the signature",
            multi(parts(110, &senml, 17, &good)),
            "FieldOutOfRange",
        ),
        (
            "a text for a representation",
            multi(vec![int(110), text("[]"), int(18), bytes(&good)]),
            "UnexpectedType",
        ),
        ("two elements", multi(vec![int(110), bytes(&senml)]), "UnexpectedType"),
        (
            "bytes after the message",
            of(MULTIPART, &[whole.clone(), vec![0]].concat()),
            "TrailingBytes",
        ),
        (
            "a longer head than needed",
            of(MULTIPART, &[&[0x98, 4], &whole[1..]].concat()),
            "NonCanonical",
        ),
        ("nothing", of(MULTIPART, b""), "Truncated"),
        ("a pack without a signature", of(110, &senml), "NoSignature"),
        ("another content format of the response", of(60, &whole), "UnknownFormat"),
    ] {
        file.invalid(name, OP, input, error);
    }
    texts(&mut file, &pack.encode(Json));
    file.mutate("every change", OP, of(MULTIPART, &whole), "bytes", &[0x01, 0x20, 0x80]);
    file
}

/// Adds the texts whose signature is not where it must be.
fn texts(file: &mut File, text: &[u8]) {
    let ed = key();
    let good = object(&ed, 0, (50, text), Changes::default());
    let joined = String::from_utf8(join(text, &good).unwrap()).unwrap();
    let (start, signature) = joined.split_once(",\"signature\":\"").unwrap();
    let signature = signature.trim_end_matches("\"}");
    let inside = start.trim_start_matches('{');
    let standard = signature.replace('-', "+").replace('_', "/");
    let mut longer = signature.to_owned();
    let last = longer.pop().unwrap();
    longer.push(char::from_u32(u32::from(last) + 1).unwrap());
    assert!(signature != standard, "the signature has a character that differs in base64");
    for (name, text, error) in [
        ("a text without a signature", format!("{start}}}"), "NoSignature"),
        (
            "the signature first",
            format!("{{\"signature\":\"{signature}\",{inside}}}"),
            "NoSignature",
        ),
        (
            "another member after it",
            format!("{joined},\"a\":1}}").replace("},", ","),
            "NoSignature",
        ),
        ("a space before it", joined.replace(",\"signature\"", ", \"signature\""), "NoSignature"),
        (
            "a space after its colon",
            joined.replace("\"signature\":", "\"signature\": "),
            "NoSignature",
        ),
        ("a line feed at the end", format!("{joined}\n"), "NoSignature"),
        (
            "its name in another spelling",
            joined.replace("\"signature\"", "\"\\u0073ignature\""),
            "NoSignature",
        ),
        ("base64 with padding", joined.replace("\"}", "=\"}"), "NoSignature"),
        ("base64 instead of base64url", joined.replace(signature, &standard), "NoSignature"),
        ("an unused bit that is one", joined.replace(signature, &longer), "NoSignature"),
        ("an empty signature", format!("{start},\"signature\":\"\"}}"), "Truncated"),
        (
            "two signatures",
            joined.replace("\"}", &format!("\",\"signature\":\"{signature}\"}}")),
            "NotAuthentic",
        ),
        ("a space in what is signed", joined.replacen(':', ": ", 1), "NotAuthentic"),
        ("a number in another spelling", joined.replacen("27.97", "27.970", 1), "NotAuthentic"),
        ("a member that is not signed", joined.replacen('{', "{\"a\":1,", 1), "NotAuthentic"),
    ] {
        file.invalid(name, OP, of(50, text.as_bytes()), error);
    }
}

fn representations() -> File {
    let mut file = file(
        "reading/representations.json",
        "Representations of readings: objects.md, section 7.2, rules 6 to 14.",
    );
    let ed = key();
    let every = [
        "a::u8",
        "b::i8",
        "c:mV:u16/3",
        "d:Cel:i16/100",
        "e::u32",
        "f::i32/4294967295",
        "g::u64/2147483648",
        "h::i64",
        "i::f32",
        "j::f64",
        "time::time",
        "signature::u8",
        "chip temp::u8",
        "_x::u8",
        "a/b::u8",
    ];
    let mut smallest = vec![0; 50];
    let mut largest = vec![0xff; 50];
    // The floats are the smallest and the largest that are finite.
    (smallest[33], smallest[41]) = (1, 1);
    largest[30..34].copy_from_slice(&f32::MIN.to_be_bytes());
    largest[34..42].copy_from_slice(&f64::MAX.to_be_bytes());
    let mut odd = vec![0x80; 50];
    odd[30..34].copy_from_slice(&f32::NAN.to_be_bytes());
    odd[34..42].copy_from_slice(&f64::NEG_INFINITY.to_be_bytes());
    for (name, record) in [("the smallest", smallest), ("the largest", largest), ("odd", odd)] {
        let pack = pack(&every, &record);
        for format in ReadingFormat::ALL {
            let name = format!("{name} values of all types in format {}", format.number());
            file.valid(name, OP, response(&ed, format, &pack.encode(format)));
        }
    }
    let opaque = Schema::OPAQUE;
    let opaque = Pack::new(DeviceId::of(GROUP, "ed"), 0, (&opaque, b"\xff\xfe\0"), None).unwrap();
    for format in ReadingFormat::ALL {
        let name = format!("bytes without a time in format {}", format.number());
        file.valid(name, OP, response(&ed, format, &opaque.encode(format)));
    }
    typed(&mut file);
    let bn = format!("urn:moteseal:device:{}:", DeviceId::of(GROUP, "ed"));
    let record = |members: &str| format!("[{{\"bn\":\"{bn}\",{members}}}]");
    for (name, text) in [
        ("no record", "[]".to_owned()),
        ("another base name", record("\"n\":\"a\",\"v\":1").replace("device:", "device:0")),
        ("a repeated member", record("\"n\":\"a\",\"v\":1,\"v\":1")),
        ("a repeated name", record("\"n\":\"a\",\"v\":1},{\"n\":\"a\",\"v\":2")),
        ("members in another order", record("\"v\":1,\"n\":\"a\"")),
        ("an unknown member", record("\"n\":\"a\",\"v\":1,\"x\":1")),
        ("two values", record("\"n\":\"a\",\"v\":1,\"vs\":\"b\"")),
        ("no value", record("\"n\":\"a\"")),
        ("no name", record("\"v\":1")),
        ("an empty unit", record("\"n\":\"a\",\"u\":\"\",\"v\":1")),
        (
            "a version that is not needed",
            format!("[{{\"bver\":26,{}", &record("\"n\":\"a\",\"v\":1")[2..]),
        ),
        ("a secondary unit without a version", record("\"n\":\"a\",\"u\":\"mV\",\"v\":1")),
        ("a leading zero", record("\"n\":\"a\",\"v\":01")),
        ("an exponent", record("\"n\":\"a\",\"v\":1e3")),
        ("a plus sign", record("\"n\":\"a\",\"v\":+1")),
        ("no digit after the point", record("\"n\":\"a\",\"v\":1.")),
        ("no digit", record("\"n\":\"a\",\"v\":-")),
        ("an escape", record("\"n\":\"\\u0061\",\"v\":1")),
        ("a name with a space", record("\"n\":\"a b\",\"v\":1")),
        ("the name signature", record("\"n\":\"signature\",\"v\":1")),
        ("a name that begins with an underscore", record("\"n\":\"_a\",\"v\":1")),
        ("a unit with a space", record("\"n\":\"a\",\"u\":\"a b\",\"v\":1")),
        ("a relative time", record("\"bt\":5,\"n\":\"a\",\"v\":1")),
        ("a time with a trailing zero", record("\"bt\":1700000000.50,\"n\":\"a\",\"v\":1")),
        ("a time in microseconds", record("\"bt\":1700000000.000001,\"n\":\"a\",\"v\":1")),
        ("a time that is a text", record("\"bt\":\"1700000000\",\"n\":\"a\",\"v\":1")),
        ("white space", record("\"n\":\"a\", \"v\":1")),
        ("a text after the pack", format!("{}x", record("\"n\":\"a\",\"v\":1"))),
        ("data with padding", record("\"n\":\"a\",\"vd\":\"AA==\"")),
        ("data with an unused bit", record("\"n\":\"a\",\"vd\":\"AB\"")),
        ("a number for a boolean", record("\"n\":\"a\",\"vb\":1")),
        ("a boolean in another spelling", record("\"n\":\"a\",\"vb\":True")),
        ("a boolean for a number", record("\"n\":\"a\",\"v\":true")),
        ("a boolean for a text", record("\"n\":\"a\",\"vs\":true")),
        ("a text for a boolean", record("\"n\":\"a\",\"vb\":\"true\"")),
        ("a null", record("\"n\":\"a\",\"v\":null")),
        ("a line feed in a text", record("\"n\":\"a\",\"vs\":\"\n\"")),
        ("a control character of two bytes", record("\"n\":\"a\",\"vs\":\"\u{85}\"")),
        ("an escape that is not needed", record("\"n\":\"a\",\"vs\":\"\\/\"")),
        ("an escaped line feed", record("\"n\":\"a\",\"vs\":\"\\n\"")),
        ("a backslash without an escape", record("\"n\":\"a\",\"vs\":\"\\\"")),
        ("no text", "\u{e4}".to_owned()),
    ] {
        file.invalid(name, OP, response(&ed, SenmlJson, text.as_bytes()), "MalformedReading");
    }
    for (name, text) in [
        ("an object with a repeated member", "{\"a\":1,\"a\":1}"),
        ("an object with a member signature", "{\"signature\":1}"),
        ("an object with a time only", "{\"_time\":1700000000}"),
        ("an object whose time is last", "{\"a\":1,\"_time\":1700000000}"),
        ("an object whose time is a text", "{\"_time\":\"1700000000\",\"a\":1}"),
        ("an object in an object", "{\"a\":{\"b\":1}}"),
        ("an object with a null", "{\"a\":null}"),
        ("an object and a text after it", "{\"a\":1}}"),
    ] {
        file.invalid(name, OP, response(&ed, Json, text.as_bytes()), "MalformedReading");
    }
    let entry =
        |value: Value| Value::Map(vec![(int(0), text("a")), (int(2), value), (int(-2), text(&bn))]);
    let fraction =
        |exponent, mantissa| Value::Tag(4, Box::new(array([int(exponent), int(mantissa)])));
    for (name, pack) in [
        ("a pack that is a map", entry(int(1))),
        ("a pack of no record", array([])),
        ("a decimal fraction that is an integer", array([entry(fraction(0, 5))])),
        ("a decimal fraction with a positive exponent", array([entry(fraction(3, 5))])),
        ("a decimal fraction with a large exponent", array([entry(fraction(401, 5))])),
        ("a decimal fraction of a number that overflows", array([entry(fraction(350, 5))])),
        (
            "a decimal fraction with a mantissa below -2^63",
            array([entry(Value::Tag(4, Box::new(array([int(-1), Value::Negative(1 << 63)]))))]),
        ),
        ("another tag", array([entry(Value::Tag(5, Box::new(array([int(-1), int(1)]))))])),
        ("a text for a number", array([entry(text("1"))])),
        (
            "an unknown label",
            array([Value::Map(vec![
                (int(0), text("a")),
                (int(2), int(1)),
                (int(9), int(1)),
                (int(-2), text(&bn)),
            ])]),
        ),
        ("no base name", array([Value::Map(vec![(int(0), text("a")), (int(2), int(1))])])),
    ] {
        file.invalid(name, OP, response(&ed, SenmlCbor, &pack.encode()), "MalformedReading");
    }
    let good = array([entry(fraction(-2, 2797))]).encode();
    file.valid("a decimal fraction", OP, response(&ed, SenmlCbor, &good));
    let float =
        [&good[..1], &[0xa3, 0x00, 0x61, 0x61, 0x02, 0xf9, 0x3c, 0x00, 0x21], &good[11..]].concat();
    file.invalid("a float", OP, response(&ed, SenmlCbor, &float), "MalformedReading");
    file
}

/// Adds readings of the types that only schema version 2 has.
fn typed(file: &mut File) {
    let ed = key();
    let fields = [
        "temperature:Cel:i16/100?",
        "door::bool?",
        "mode::enum(off,\"on\",12)?",
        "note::text40?",
        "seen::timestamp?",
        "place::point?",
        "at::point",
        "at/lat::u8",
    ];
    let schema = schema(&fields);
    let note = "a \"b\" \\ \u{e4}\u{1f321} ,\"signature\":\"AA\"}";
    let full = ["21.3", "true", "12", note, "2026-03-01T07:00:00.25Z", "59.33,-18.07", "0,0", "1"];
    let nulls = ["", "false", "", "", "", "", "-90,180", "0"];
    let numbers = ["-0.05", "", "\"on\"", "-7", "1969-12-31T23:59:59Z", "", "0.0000001,0", "255"];
    for (name, values) in
        [("every value", full), ("some nulls", nulls), ("texts that are numbers", numbers)]
    {
        let pack = pack(&fields, &record(&schema, &values));
        for format in ReadingFormat::ALL {
            let name = format!("{name} of the types of version 2 in format {}", format.number());
            file.valid(name, OP, response(&ed, format, &pack.encode(format)));
        }
    }
}
