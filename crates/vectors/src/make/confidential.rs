//! Vectors of confidential readings (spec/confidential.md): keys, covers, key streams, and the schemas,
//! seals, streams and urgent events that state encrypted columns.

use moteseal_core::confidential::{
    ColumnId, EncryptedColumns, KeyCommitments, KeyStream, Nonce, SealKey, StreamSecret, Suite,
};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, Scheme, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, Signer};
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::parts::{ALL, ANSWERED, file_of_streams, group};
use super::schema_2::{field, record};
use super::{File, Files, cose, of};
use moteseal_fixtures::cbor_tree::{Value, array, bytes, encode_sequence, int, sequence};
use moteseal_fixtures::world::{
    self, Device, Epoch, GROUP, Pick, Sealed, device_secret, header, operator, roster, schema,
    sign1, stream,
};

const SECRET: [u8; 32] = [0x5e; 32];
const BASE: u64 = 3;
const EPOCH: u64 = 7;
const NONCE: Nonce = Nonce(*b"twelve bytes");
const COLUMN: [u8; 16] = [0xc0; 16];
/// Records of this schema have one size.
const CLOSED: [&str; 4] =
    ["temperature:Cel:i16/100?!", "open::bool", "mode::enum(off,on,auto)?!aes", "at::point?!"];
/// Records of this schema have different lengths.
const TEXTS: [&str; 5] = [
    "note::text254?!",
    "open::bool!aes",
    "place::text12",
    "seen::timestamp?~!#9",
    "name::text90?!aes",
];

pub fn make(files: &mut Files) {
    files.add(keys());
    files.add(covers());
    files.add(opened_keys());
    files.add(records());
    files.add(schemas());
    files.add(seals());
    files.add(streams());
    files.add(urgent());
}

fn of_seal(epoch: u64, index: u32, suite: u8) -> Json {
    json!({
        "secret": hex::encode(SECRET),
        "base": BASE,
        "epoch": epoch,
        "device": "0102030405060708",
        "index": index,
        "suite": suite,
        "nonce": hex::encode(NONCE.0),
    })
}

fn with(input: &Json, pairs: &[(&str, Json)]) -> Json {
    let mut input = input.clone();
    for (name, value) in pairs {
        input[*name] = value.clone();
    }
    input
}

fn keys() -> File {
    let mut file = File::new(
        "confidential/keys.json",
        "The keys of a column of a seal: confidential.md, sections 1 and 3.",
    );
    let name = "the keys of offset";
    let encoded = schema(&["a::u8!"])[3..].to_vec();
    for offset in [0, 1, 4, 0x5555_5555, 0x8000_0000, u64::from(u32::MAX)] {
        let input = with(&of_seal(BASE + offset, 9, 1), &[("field", json!(hex::encode(&encoded)))]);
        file.valid(format!("{name} {offset}"), "confidential.keys", input);
    }
    let input = with(&of_seal(EPOCH, 0, 2), &[("field", json!(hex::encode(&encoded)))]);
    file.valid("another suite and index", "confidential.keys", input.clone());
    for (name, field, value) in [
        ("another secret", "secret", json!("00".repeat(32))),
        ("another base epoch", "base", json!(BASE + 1)),
        ("another field", "field", json!("a0")),
        ("another device", "device", json!("0102030405060709")),
        ("another nonce", "nonce", json!("00".repeat(12))),
        ("the last index", "index", json!(u32::MAX)),
    ] {
        file.valid(name, "confidential.keys", with(&input, &[(field, value)]));
    }
    for (name, epoch) in [
        ("the epoch before the base epoch", BASE - 1),
        ("the epoch after the last offset", BASE + (1 << 32)),
        ("the last epoch", u64::MAX),
    ] {
        let input = with(&input, &[("epoch", json!(epoch))]);
        file.invalid(name, "confidential.keys", input, "EpochOutOfKeyRange");
    }
    file
}

fn cover_input(first: u64, last: u64) -> Json {
    json!({
        "secret": hex::encode(SECRET),
        "base": BASE,
        "column": hex::encode(COLUMN),
        "first": first,
        "last": last,
    })
}

fn covers() -> File {
    let mut file = File::new(
        "confidential/covers.json",
        "The nodes that open exactly a range of epochs: confidential.md, section 1, rule 8.",
    );
    let last = BASE + u64::from(u32::MAX);
    for (name, first, last) in [
        ("one epoch", BASE + 5, BASE + 5),
        ("two epochs of one parent", BASE + 4, BASE + 5),
        ("two epochs of two parents", BASE + 5, BASE + 6),
        ("an aligned range", BASE + 8, BASE + 15),
        ("a range that is not aligned", BASE + 1, BASE + 14),
        ("720 epochs", BASE + 12_345, BASE + 12_345 + 719),
        ("all but the first and the last epoch", BASE + 1, last - 1),
        ("all epochs", BASE, last),
        ("the last epoch", last, last),
    ] {
        file.valid(name, "confidential.cover", cover_input(first, last));
    }
    file
}

fn seal_key(column: ColumnId, suite: Suite, device: DeviceId) -> SealKey {
    let root = StreamSecret::new(SECRET, EpochNumber(BASE)).column(column);
    let key = root.epoch_key(EpochNumber(EPOCH)).unwrap();
    key.seal_key(device, SealIndex(0), suite, &NONCE)
}

fn opened_keys() -> File {
    let mut file = File::new(
        "confidential/open.json",
        "The seal key that a reader derives from nodes, and its check: confidential.md, section 5.",
    );
    let column = ColumnId(COLUMN);
    let root = StreamSecret::new(SECRET, EpochNumber(BASE)).column(column);
    let nodes = |first, last| {
        let nodes = root.cover(EpochNumber(first)..=EpochNumber(last));
        json!(
            nodes
                .map(|node| json!([node.depth(), node.prefix(), hex::encode(node.expose())]))
                .collect::<Vec<_>>()
        )
    };
    let device = DeviceId([1, 2, 3, 4, 5, 6, 7, 8]);
    let key = seal_key(column, Suite::ChaCha20, device);
    let mut good = with(
        &of_seal(EPOCH, 0, 1),
        &[
            ("column", json!(hex::encode(COLUMN))),
            ("nodes", nodes(EPOCH - 2, EPOCH + 9)),
            ("commitment", json!(hex::encode(key.commitment().0))),
        ],
    );
    good.as_object_mut().unwrap().remove("secret");
    file.valid("a range", "confidential.open", good.clone());
    let whole = nodes(BASE, BASE + u64::from(u32::MAX));
    file.valid("the root", "confidential.open", with(&good, &[("nodes", whole)]));
    let leaf = with(&good, &[("nodes", nodes(EPOCH, EPOCH))]);
    file.valid("the epoch alone", "confidential.open", leaf.clone());
    for (name, nodes, error) in [
        ("no nodes", json!([]), "NotCovered"),
        ("the epoch before the range", nodes(EPOCH + 1, EPOCH + 9), "NotCovered"),
        ("the epoch after the range", nodes(BASE, EPOCH - 1), "NotCovered"),
        ("a node too deep", json!([[33, 0, "00".repeat(32)]]), "MalformedKey"),
        ("a prefix of another depth", json!([[2, 4, "00".repeat(32)]]), "MalformedKey"),
        ("another root", json!([[0, 0, "00".repeat(32)]]), "WrongKey"),
    ] {
        file.invalid(name, "confidential.open", with(&good, &[("nodes", nodes)]), error);
    }
    for (name, field, value, error) in [
        ("another base epoch", "base", json!(BASE + 1), "NotCovered"),
        ("another epoch", "epoch", json!(EPOCH + 1), "NotCovered"),
        ("an epoch before the base epoch", "epoch", json!(0), "EpochOutOfKeyRange"),
        ("another device", "device", json!("0102030405060709"), "WrongKey"),
        ("another index", "index", json!(1), "WrongKey"),
        ("another column", "column", json!("c1".repeat(16)), "WrongKey"),
        ("another suite", "suite", json!(2), "WrongKey"),
        ("another nonce", "nonce", json!("00".repeat(12)), "WrongKey"),
        ("another commitment", "commitment", json!("00".repeat(16)), "WrongKey"),
    ] {
        file.invalid(name, "confidential.open", with(&leaf, &[(field, value)]), error);
    }
    for at in [0, 15] {
        let mut commitment = key.commitment().0;
        commitment[at] ^= 0x80;
        let input = with(&leaf, &[("commitment", json!(hex::encode(commitment)))]);
        file.invalid(format!("a commitment, byte {at}"), "confidential.open", input, "WrongKey");
    }
    file
}

fn keys_of(schema: &[u8], device: DeviceId) -> Vec<SealKey> {
    let schema = Schema::decode(schema).unwrap();
    let columns = schema.encrypted_columns();
    columns.map(|(field, column)| seal_key(column, field.suite.unwrap(), device)).collect()
}

/// Encrypts a record as the event `seq`.
fn encrypted(schema: &[u8], keys: &[SealKey], seq: u64, plain: &[u8]) -> Vec<u8> {
    let columns = EncryptedColumns::of(&Schema::decode(schema).unwrap());
    let mut streams: Vec<_> = keys.iter().cloned().map(KeyStream::new).collect();
    let mut record = plain.to_vec();
    columns.encrypt(Sequence(seq), &mut record, &mut streams).unwrap();
    record
}

fn records() -> File {
    let mut file = File::new(
        "confidential/records.json",
        "Decryption of records: confidential.md, section 4. Keys are those of the encrypted columns in order.",
    );
    let device = DeviceId([1; 8]);
    let long = "n".repeat(200);
    for (kind, fields, rows) in [
        (
            "one size",
            &CLOSED[..],
            [&["27.97", "true", "auto", "59.33,18.07"][..], &["", "false", "", ""]],
        ),
        (
            "texts",
            &TEXTS[..],
            [
                &[&long, "true", "Åre", "2026-03-01T07:00:00Z", "a name"][..],
                &["", "false", "", "", ""],
            ],
        ),
    ] {
        let schema = schema(fields);
        let keys = keys_of(&schema, device);
        for (row, values) in rows.iter().enumerate() {
            let plain = record(&schema, values);
            for seq in [0, 1, 31, 32, 70_000] {
                let sealed = encrypted(&schema, &keys, seq, &plain);
                let shown: Vec<_> =
                    keys.iter().map(|key| json!(hex::encode(key.expose()))).collect();
                let input = |keys: &[Json]| {
                    json!({
                        "schema": hex::encode(&schema),
                        "record": hex::encode(&sealed),
                        "seq": seq,
                        "keys": keys,
                    })
                };
                let name = format!("row {row} of {kind}, event {seq}");
                file.valid(name, "confidential.decrypt", input(&shown));
                if seq == 1 {
                    let none = vec![Json::Null; keys.len()];
                    let name = format!("row {row} of {kind} without keys");
                    file.valid(name, "confidential.decrypt", input(&none));
                    for at in 0..keys.len() {
                        let mut one = none.clone();
                        one[at] = shown[at].clone();
                        let name = format!("row {row} of {kind}, only key {at}");
                        file.valid(name, "confidential.decrypt", input(&one));
                    }
                }
            }
        }
    }
    let one = |field: &str, record: &str, seq: u64| {
        json!({
            "schema": hex::encode(schema(&[field])),
            "record": record,
            "seq": seq,
            "keys": ["5e".repeat(32)],
        })
    };
    let decrypt = "confidential.decrypt";
    file.valid(
        "a seal of 2^32 events of 8 bytes",
        decrypt,
        one("a::u64!", &"00".repeat(8), 0xffff_ffff),
    );
    file.valid(
        "the last block of AES-128-CTR",
        decrypt,
        one("a::u64!aes", &"00".repeat(8), (1 << 33) - 1),
    );
    file.invalid(
        "the block after it",
        decrypt,
        one("a::u64!aes", &"00".repeat(8), 1 << 33),
        "KeyStreamEnd",
    );
    file.invalid(
        "a text after the last block",
        decrypt,
        one("a::text4!aes", "0100", 1 << 28),
        "KeyStreamEnd",
    );
    file.invalid(
        "a value that is not of its column",
        decrypt,
        one("a::bool!", "00", 0),
        "RecordValue",
    );
    file.invalid("a record that ends early", decrypt, one("a::u16!", "00", 0), "RecordLength");
    file.invalid(
        "a text that is too long",
        decrypt,
        one("a::text2!", "03000000", 0),
        "RecordValue",
    );
    file.invalid("a text that is null", decrypt, one("a::text2!", "ff", 0), "RecordValue");
    file
}

fn schemas() -> File {
    let mut file = File::new(
        "schema/encrypted.json",
        "Schemas with encrypted columns, and their records without keys: objects.md, section 5.",
    );
    for fields in [&CLOSED[..], &TEXTS[..], &["a::u8!"], &["a::u8!aes"]] {
        file.valid(fields.join(", "), "schema.open", of(&schema(fields)));
    }
    let numbered: Vec<_> = (0..17).map(|at| format!("c{at}::u8!")).collect();
    let numbered: Vec<_> = numbered.iter().map(String::as_str).collect();
    file.valid("16 encrypted columns", "schema.open", of(&schema(&numbered[..16])));
    let fields = (0..17)
        .map(|at| field(&[(0, int(at + 1)), (1, Value::Text(format!("c{at}"))), (12, int(1))]));
    let seventeen = array([int(2), Value::Array(fields.collect())]).encode();
    file.invalid("17 encrypted columns", "schema.open", of(&seventeen), "TooManyEncryptedFields");
    for (name, pairs, error) in [
        ("an unknown suite and a scale", vec![(4, int(0)), (12, int(3))], "ScaleOutOfRange"),
        ("an unknown suite and a length", vec![(8, int(3)), (12, int(3))], "InvalidTextLength"),
        ("a suite above 64 bits", vec![(12, Value::Uint(u64::MAX))], "UnknownSuite"),
    ] {
        file.invalid(
            name,
            "schema.open",
            of(&array([int(2), array([field(&pairs)])]).encode()),
            error,
        );
    }
    let read = |fields: &[&str], record: &str| json!({ "schema": hex::encode(schema(fields)), "record": record });
    file.invalid("no value without a key", "schema.record", read(&["a::u8!"], "00"), "Encrypted");
    file.invalid(
        "nor of another column",
        "schema.record",
        read(&["b::u8", "a::u8!"], "0000"),
        "Encrypted",
    );
    file.invalid(
        "a record that ends early",
        "schema.record",
        read(&["a::u16!"], "00"),
        "RecordLength",
    );
    file.invalid(
        "a text that is too long",
        "schema.record",
        read(&["a::text2!"], "03000000"),
        "RecordValue",
    );
    file.invalid("a null of a text", "schema.record", read(&["a::text2!"], "ff"), "RecordValue");
    file.invalid("a bool that is no bool", "schema.record", read(&["a::bool!"], "07"), "Encrypted");
    file
}

/// Seals rows of a schema.
fn sealed(fields: &[&str], scheme: Scheme, keys: Option<KeyCommitments>) -> Sealed {
    let schema = schema(fields);
    let mut device = Device::new(&group(), "ed", &schema);
    let seal_keys = keys_of(&schema, device.id);
    let mut epoch = Epoch::new(scheme, EPOCH, 0);
    for seq in 0..20_u64 {
        let number = seq.to_string();
        let open = ["false", "true"][seq as usize % 2];
        let place = format!("{seq},-{seq}.5");
        let plain = if fields.len() == CLOSED.len() {
            record(&schema, &[&number, open, "on", &place])
        } else {
            record(&schema, &["n".repeat(seq as usize).as_str(), open, "Kista", &number, ""])
        };
        epoch.records.push(encrypted(&schema, &seal_keys, seq, &plain));
    }
    epoch.keys = keys;
    device.seal(&epoch)
}

fn commitments(fields: &[&str]) -> Option<KeyCommitments> {
    KeyCommitments::new(NONCE, &keys_of(&schema(fields), DeviceId::of(GROUP, "ed")))
}

fn arbitrary(count: usize) -> Option<KeyCommitments> {
    KeyCommitments::decode(&vec![7; 12 + 16 * count])
}

fn seals() -> File {
    let mut file = File::new(
        "cose/encrypted.json",
        "Seals whose statements have keys: objects.md, section 6. No signature is verified.",
    );
    let star = sealed(&CLOSED, Scheme::Star, commitments(&CLOSED));
    let tree = sealed(&CLOSED, Scheme::Tree, commitments(&CLOSED));
    let (star, tree) =
        (write::sign1(&star.seal, &star.signature), write::sign1(&tree.seal, &tree.signature));
    file.valid("a star", "cose.seal", of(&star));
    file.valid("a tree", "cose.seal", of(&tree));
    let parts = cose::parts_of(&star);
    let Value::Bytes(protected) = &parts[0] else { panic!() };
    let Value::Map(entries) = Value::decode(protected) else { panic!() };
    let changed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut entries = entries.clone();
        let Value::Array(statement) = &mut entries.last_mut().unwrap().1 else { panic!() };
        change(statement);
        let mut parts = parts.clone();
        parts[0] = bytes(&Value::Map(entries).encode());
        of(&cose::tagged(parts))
    };
    let keys = |length: usize| move |fields: &mut Vec<Value>| fields[19] = bytes(&vec![1; length]);
    for count in [1, 16] {
        let name = format!("{count} commitments");
        file.valid(name, "cose.seal", changed(&keys(12 + 16 * count)));
    }
    for length in [0, 12, 27, 29, 12 + 17 * 16] {
        let name = format!("keys of {length} bytes");
        file.invalid(name, "cose.seal", changed(&keys(length)), "FieldOutOfRange");
    }
    let version = |version| move |fields: &mut Vec<Value>| fields[0] = int(version);
    for (name, input, error) in [
        ("version 1 with keys", changed(&version(1)), "UnexpectedType"),
        ("version 3 with keys", changed(&version(3)), "UnexpectedType"),
        ("version 2 without keys", changed(&|fields| drop(fields.pop())), "UnsupportedVersion"),
        ("a field after the keys", changed(&|fields| fields.push(int(0))), "UnexpectedType"),
        (
            "keys that are null",
            changed(&|fields| fields[19] = Value::decode(&[0xf6])),
            "UnexpectedType",
        ),
    ] {
        file.invalid(name, "cose.seal", input, error);
    }
    file
}

fn streams() -> File {
    let mut file = file_of_streams(
        "stream/encrypted.json",
        "Streams with encrypted columns, verified without a key: answers.md, section 2.",
    );
    let part_of = |fields: &[&str], one: &Sealed, pick: &Pick| {
        of(&stream(&schema(fields), std::slice::from_ref(one), pick))
    };
    for scheme in [Scheme::Star, Scheme::Tree] {
        for (kind, fields) in [("one size", &CLOSED[..]), ("texts", &TEXTS[..])] {
            let one = sealed(fields, scheme, commitments(fields));
            for mask in [0xff, 0xfc, 0] {
                let name =
                    format!("records of {kind} in a {}, levels {mask:#04x}", scheme.as_str());
                file.valid(name, "stream.read", part_of(fields, &one, &Pick::Levels(mask)));
            }
            for (name, keys) in [
                ("no keys", None),
                ("a key too few", arbitrary(commitments(fields).unwrap().commitments().len() - 1)),
                ("a key too many", arbitrary(commitments(fields).unwrap().commitments().len() + 1)),
            ] {
                let one = sealed(fields, scheme, keys);
                let name = format!("{name}, {kind}, signed in a {}", scheme.as_str());
                file.invalid(
                    name,
                    "stream.read",
                    part_of(fields, &one, &ALL),
                    "KeyCommitmentCount",
                );
            }
        }
    }
    // Keys of a schema without encrypted columns.
    let mut device = Device::new(&group(), "ed", &schema(world::FIXED));
    let mut epoch = Epoch::new(Scheme::Tree, EPOCH, 3);
    epoch.keys = arbitrary(1);
    let one = device.seal(&epoch);
    let input = part_of(world::FIXED, &one, &ALL);
    file.invalid("keys of a plain schema", "stream.read", input, "KeyCommitmentCount");
    // Parts that are modified in transit.
    let one = sealed(&CLOSED, Scheme::Star, commitments(&CLOSED));
    let good = sequence(&stream(&schema(&CLOSED), std::slice::from_ref(&one), &ALL));
    let changed = |at: usize, value: Value| {
        let mut items = good.clone();
        items[2] = good[2].with(at, value);
        of(&encode_sequence(&items))
    };
    let keys = ANSWERED + 1;
    let other = arbitrary(3).unwrap();
    let mut buffer = [0; moteseal_core::confidential::MAX_KEY_COMMITMENTS];
    let other = bytes(other.encode(&mut buffer));
    file.invalid("other keys", "stream.read", changed(keys, other), "NotAuthentic");
    file.invalid(
        "keys of 43 bytes",
        "stream.read",
        changed(keys, bytes(&[7; 43])),
        "FieldOutOfRange",
    );
    file.invalid("keys that are a number", "stream.read", changed(keys, int(0)), "UnexpectedType");
    let mut items = good.clone();
    let Value::Array(fields) = &mut items[2] else { panic!() };
    fields.push(int(0));
    file.invalid("a field more", "stream.read", of(&encode_sequence(&items)), "UnexpectedType");
    let good =
        part_of(&CLOSED, &sealed(&CLOSED, Scheme::Tree, commitments(&CLOSED)), &Pick::Levels(0xf8));
    file.mutate("every change", "stream.read", good, "bytes", &[0x01, 0x80]);
    file
}

fn urgent() -> File {
    let (operator, opened) = (operator(), cose::opened(world::DEVICES));
    let mut file = File::new(
        "urgent/encrypted.json",
        "Urgent events of encrypted columns: objects.md, section 7.",
    )
    .operator(&operator)
    .shared("roster", json!(hex::encode(roster(world::DEVICES))));
    let ed = device_secret("ed", Algorithm::Ed25519, 0);
    let event = |fields: &[&str], version: u64, keys: Option<Vec<u8>>, record: &[u8]| {
        let encoded = schema(fields);
        let mut statement = vec![
            Value::Uint(version),
            bytes(&GroupId::of(GROUP).0),
            bytes(&opened.digest().0),
            bytes(&DeviceId::of(GROUP, "ed").0),
            int(0),
            int(7),
            int(42),
            bytes(&Schema::decode(&encoded).unwrap().digest().0),
        ];
        statement.extend(keys.map(|keys| bytes(&keys)));
        let protected = header(ed.algorithm(), cose::EVENT, &[(-70_001, Value::Array(statement))]);
        let signed = hex::encode(sign1(&ed, &protected, record));
        json!({ "bytes": signed, "schema": hex::encode(encoded) })
    };
    let keys = |count: usize| Some(vec![9; 12 + 16 * count]);
    let mut record = [7; 12];
    record[2] = 1;
    file.valid("three keys", "urgent.open", event(&CLOSED, 2, keys(3), &record));
    let mut unknown = event(&CLOSED, 2, keys(5), &record);
    unknown.as_object_mut().unwrap().remove("schema");
    file.valid("keys without the schema", "urgent.open", unknown);
    for (name, input, error) in [
        ("no keys", event(&CLOSED, 1, None, &record), "KeyCommitmentCount"),
        ("two keys", event(&CLOSED, 2, keys(2), &record), "KeyCommitmentCount"),
        ("keys of a plain schema", event(&["a::u8"], 2, keys(1), &[7]), "KeyCommitmentCount"),
        ("two keys and a byte too few", event(&CLOSED, 2, keys(2), &[7; 11]), "KeyCommitmentCount"),
        ("a byte too few", event(&CLOSED, 2, keys(3), &record[..11]), "RecordLength"),
        ("version 1 with keys", event(&CLOSED, 1, keys(3), &record), "UnexpectedType"),
        ("version 2 without keys", event(&CLOSED, 2, None, &record), "UnsupportedVersion"),
        ("keys of 12 bytes", event(&CLOSED, 2, keys(0), &record), "FieldOutOfRange"),
        ("17 keys", event(&CLOSED, 2, keys(17), &record), "FieldOutOfRange"),
    ] {
        file.invalid(name, "urgent.open", input, error);
    }
    file
}
