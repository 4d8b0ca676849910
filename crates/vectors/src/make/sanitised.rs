//! Vectors of sanitised column groups (spec/sanitised.md): streams with sanitised items, and rosters with
//! sanitisers.

use moteseal_core::Digest;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, EpochNumber, Scheme, SealIndex};
use moteseal_core::roster::{Directory as _, sanitiser_id};
use moteseal_core::schema::Groups;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_fixtures::cbor_tree::{Value, array, bytes, int, sequence};
use moteseal_fixtures::world::{
    Device, Epoch, GROUP, Pick, Sealed, header, operator, schema, secret, sign1, stream,
};
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::Item;
use moteseal_verify::issue::NextRoster;
use moteseal_verify::redaction::redact;
use moteseal_verify::sanitised::{Statement, block_digests};
use moteseal_verify::{Event, ReadError, Roster, SanitiserRight, SchemaEntry, StreamReader, write};
use serde_json::json;

use super::parts::{ALL, group};
use super::{File, Files, of};

/// Group 1 is one column, group 2 is two columns with a text.
const COLUMNS: [&str; 4] =
    ["seen::u32", "temperature:Cel:i16/100!@1", "place::text12!@2", "power:W:u8!@2"];
/// The epoch of the seals.
const EPOCH: u64 = 7;

pub fn make(files: &mut Files) {
    files.add(rosters());
    files.add(streams());
    let refused = Some("SanitiserNotPermitted");
    let (ed, epoch) = (DeviceId::of(GROUP, "ed"), EpochNumber);
    let (group, end) = (|bits| Groups::from_bits(bits), |end| Some(EpochNumber(end)));
    for (path, right, error) in [
        ("sanitised/device.json", SanitiserRight { devices: Some(vec![ed]), ..right() }, None),
        (
            "sanitised/other-device.json",
            SanitiserRight { devices: Some(vec![DeviceId([1; 8])]), ..right() },
            refused,
        ),
        ("sanitised/group.json", SanitiserRight { groups: group(2), ..right() }, None),
        ("sanitised/other-group.json", SanitiserRight { groups: group(4), ..right() }, refused),
        (
            "sanitised/epoch.json",
            SanitiserRight { first_epoch: epoch(EPOCH), end_epoch: end(EPOCH + 1), ..right() },
            None,
        ),
        (
            "sanitised/later-epoch.json",
            SanitiserRight { first_epoch: epoch(EPOCH + 1), ..right() },
            refused,
        ),
        ("sanitised/ended.json", SanitiserRight { end_epoch: end(EPOCH), ..right() }, refused),
    ] {
        files.add(rights(path, &right, error));
    }
}

fn key(algorithm: Algorithm) -> SecretKey {
    secret(algorithm, 0x51)
}

fn right() -> SanitiserRight {
    SanitiserRight {
        devices: None,
        groups: Groups::from_bits(0b110),
        first_epoch: EpochNumber(0),
        end_epoch: None,
    }
}

/// The roster's next version with the sanitisers `gateway` and `other`.
fn roster_with(right: &SanitiserRight) -> Roster {
    let operator = operator();
    let mut next = NextRoster::after(group().bytes(), &operator, &operator.public()).unwrap();
    for (name, algorithm) in [("gateway", Algorithm::Ed25519), ("other", Algorithm::Esp256)] {
        next.set_sanitiser(name, Some(&key(algorithm).public()), right.clone()).unwrap();
    }
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

fn rosters() -> File {
    let mut file = File::new(
        "sanitised/rosters.json",
        "Rosters with sanitisers: sanitised.md, section 1, and objects.md, section 4.",
    )
    .operator(&operator());
    let mut devices: Vec<DeviceId> = group().devices().map(|device| device.id).collect();
    devices.sort_unstable();
    let limited = SanitiserRight {
        devices: Some(devices[..2].to_vec()),
        groups: Groups::from_bits(0x80),
        first_epoch: EpochNumber(9),
        end_epoch: Some(EpochNumber(9)),
    };
    let good = roster_with(&limited);
    file.valid("sanitisers with limited rights", "roster.open", of(good.bytes()));
    file.valid("sanitisers of all devices", "roster.open", of(roster_with(&right()).bytes()));
    let Value::Tag(_, object) = Value::decode(good.bytes()) else { panic!() };
    let Value::Array(parts) = *object else { panic!() };
    let Value::Bytes(payload) = &parts[2] else { panic!() };
    let Value::Array(fields) = Value::decode(payload) else { panic!() };
    let signed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut fields = fields.clone();
        change(&mut fields);
        let header = header(Algorithm::Ed25519, "moteseal-roster+cose", &[]);
        of(&sign1(&operator(), &header, &Value::Array(fields).encode()))
    };
    // A change of the first right of the first sanitiser.
    let right = |place: usize, value: Value| {
        signed(&move |fields| {
            let Value::Array(sanitisers) = &mut fields[10] else { panic!() };
            let Value::Array(sanitiser) = &mut sanitisers[0] else { panic!() };
            let Value::Array(rights) = &mut sanitiser[2] else { panic!() };
            rights[0] = rights[0].with(place, value.clone());
        })
    };
    let sanitiser = |place: usize, value: Value| {
        signed(&move |fields| {
            let Value::Array(sanitisers) = &mut fields[10] else { panic!() };
            sanitisers[0] = sanitisers[0].with(place, value.clone());
        })
    };
    let none = || array([]);
    let ids = |ids: &[DeviceId]| Value::Array(ids.iter().map(|id| bytes(&id.0)).collect());
    for (name, input, error) in [
        ("no sanitisers", signed(&|fields| fields[10] = none()), "UnexpectedType"),
        ("a field more", signed(&|fields| fields.push(none())), "UnexpectedType"),
        ("no owners and no sanitisers", signed(&|fields| drop(fields.pop())), "UnexpectedType"),
        ("no rights", sanitiser(2, none()), "UnexpectedType"),
        ("an empty name", sanitiser(0, Value::Text(String::new())), "InvalidName"),
        ("another name", sanitiser(0, Value::Text("x".into())), "CertificateMismatch"),
        ("no devices", right(0, none()), "UnexpectedType"),
        ("a device of 7 bytes", right(0, array([bytes(&[1; 7])])), "UnexpectedType"),
        ("a device twice", right(0, ids(&[devices[0], devices[0]])), "UnsortedDevices"),
        ("devices that descend", right(0, ids(&[devices[1], devices[0]])), "UnsortedDevices"),
        ("no groups", right(1, int(0)), "FieldOutOfRange"),
        ("group 0", right(1, int(3)), "FieldOutOfRange"),
        ("a group 8", right(1, int(256)), "FieldOutOfRange"),
        ("an end before the start", right(3, int(8)), "TermRangeEmpty"),
        (
            "sanitisers that descend",
            signed(&|fields| {
                let Value::Array(sanitisers) = &mut fields[10] else { panic!() };
                sanitisers.swap(0, 1);
            }),
            "UnsortedSanitisers",
        ),
    ] {
        file.invalid(name, "roster.open", input, error);
    }
    file
}

fn sealed(scheme: Scheme) -> Sealed {
    let mut device = Device::new(&group(), "ed", &schema(&COLUMNS));
    let mut epoch = Epoch::new(scheme, EPOCH, 0);
    for seq in 0..20_u8 {
        let number = |salt: u8| seq.wrapping_mul(37).wrapping_add(salt);
        // A number of 4 bytes, one of 2 bytes, one of 1 byte, and a text.
        let mut record: Vec<u8> = (0..7).map(number).collect();
        record.extend([vec![seq % 13], vec![number(9); usize::from(seq % 13)]].concat());
        epoch.records.push(record);
    }
    epoch.keys = KeyCommitments::decode(&[7; 12 + 48]);
    device.seal(&epoch)
}

/// The new fields of a group.
fn fields(group: u8) -> Vec<u8> {
    match group {
        1 => schema(&["temperature:Cel:i8#2"]),
        _ => schema(&["place::text4?#3", "power:W:u8/2#4"]),
    }
}

/// A new record.
fn record(group: u8, seq: u64) -> Vec<u8> {
    let seq = seq as u8;
    match group {
        1 => vec![seq / 4],
        _ if seq.is_multiple_of(3) => vec![0, 2, seq, 255],
        _ => vec![0, 4, seq, 2, b'a', b'b'],
    }
}

/// The stream of a seal that shows some groups.
fn shown(one: Sealed, pick: &Pick, groups: u8) -> Vec<u8> {
    let whole = stream(&schema(&COLUMNS), &[one], pick);
    let (mut out, roster) = (Vec::new(), group());
    let groups = Groups::from_bits(groups);
    redact(&mut out, &whole, (&roster, Limits::default()), &mut |_| groups).unwrap();
    out
}

/// A statement, and its cells.
#[derive(Clone)]
struct Made {
    statement: Statement,
    cells: Vec<u8>,
}

impl Made {
    fn item(&self, by: Algorithm) -> (Vec<u8>, Vec<u8>) {
        (self.statement.sign(&key(by)).unwrap(), self.cells.clone())
    }
}

/// Sanitises a group of the last part of a stream.
fn made(stream: &[u8], group: u8) -> Made {
    let roster = roster_with(&right());
    let (mut reader, mut made) = (StreamReader::new(&roster, Limits::default()), None);
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(part) = event {
            let entry = SchemaEntry::decode(&fields(group)).unwrap();
            let mut cells = Vec::new();
            part.sample.for_each(&moteseal_seal::engine::Scalar, |seq, _, _| {
                cells.extend(record(group, seq.0));
            });
            let moteseal_seal::stream::Select::Levels(mask) = part.part.select else { panic!() };
            let seal = part.seal.statement();
            let statement = Statement {
                group: roster.group(),
                roster: roster.digest(),
                sanitiser: sanitiser_id(GROUP, "gateway"),
                device: seal.device,
                index: seal.index,
                seal: part.seal.digest(),
                schema: seal.schema,
                column_group: group,
                mask,
                fields: fields(group),
                policy: "rounded".to_owned(),
                blocks: block_digests(&part, group, &entry, &cells).unwrap(),
            };
            made = Some(Made { statement, cells });
        }
        Ok::<_, ReadError>(())
    };
    reader.feed(stream, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    made.unwrap()
}

/// The stream with items before its last part.
fn with_items(stream: &[u8], items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let parts = sequence(stream).len();
    let (mut out, mut rest) = (Vec::new(), stream);
    for place in 0..parts {
        let (_, length) = Item::decode(rest).unwrap();
        if place + 1 == parts {
            for (signed, cells) in items {
                write::sanitised(&mut out, signed, cells);
            }
        }
        out.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

fn file_of(path: &'static str, about: &'static str, right: &SanitiserRight) -> File {
    File::new(path, about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(roster_with(right).bytes())))
        .shared("max_events", json!(4096))
}

fn streams() -> File {
    let mut file = file_of(
        "sanitised/streams.json",
        "Streams with sanitised items: sanitised.md, sections 2 to 4.",
        &right(),
    );
    for scheme in [Scheme::Star, Scheme::Tree] {
        let of_scheme = scheme.as_str();
        for mask in [0xff, 0xfc, 0x05] {
            let stream = shown(sealed(scheme), &Pick::Levels(mask), 0b001);
            let (one, two) = (made(&stream, 1), made(&stream, 2));
            let by_other = Made {
                statement: Statement {
                    sanitiser: sanitiser_id(GROUP, "other"),
                    ..two.statement.clone()
                },
                ..two.clone()
            };
            for (what, items) in [
                ("group 1", vec![one.item(Algorithm::Ed25519)]),
                (
                    "both groups, in another order, by two sanitisers",
                    vec![by_other.item(Algorithm::Esp256), one.item(Algorithm::Ed25519)],
                ),
                ("no group", vec![]),
            ] {
                let name = format!("{what} of a {of_scheme}, levels {mask:#04x}");
                file.valid(name, "sanitised.read", of(&with_items(&stream, &items)));
            }
        }
    }
    let stream = shown(sealed(Scheme::Star), &ALL, 0b001);
    let item = made(&stream, 2).item(Algorithm::Ed25519);
    file.valid("not checked", "stream.read", of(&with_items(&stream, &[item])));
    refused(&mut file, &stream);
    let item = made(&stream, 1).item(Algorithm::Ed25519);
    let good = with_items(&stream, &[item]);
    file.mutate("every change", "sanitised.read", of(&good), "bytes", &[0x01]);
    file
}

fn refused(file: &mut File, stream: &[u8]) {
    let (one, two) = (made(stream, 1), made(stream, 2));
    let with = |items: &[(Vec<u8>, Vec<u8>)]| of(&with_items(stream, items));
    let changed = |change: &dyn Fn(&mut Statement)| {
        let mut made = one.clone();
        change(&mut made.statement);
        with(&[made.item(Algorithm::Ed25519)])
    };
    let wrong = Digest([8; 32]);
    let fields = |columns: &[&str]| {
        let fields = schema(columns);
        changed(&move |of| of.fields.clone_from(&fields))
    };
    for (name, input, error) in [
        ("another group of devices", changed(&|of| of.group.0[0] ^= 1), "WrongGroup"),
        ("an unknown roster", changed(&|of| of.roster = wrong), "UnknownRoster"),
        (
            "an unknown sanitiser",
            changed(&|of| of.sanitiser = sanitiser_id(GROUP, "x")),
            "UnknownSanitiser",
        ),
        (
            "the key of another sanitiser",
            changed(&|of| of.sanitiser = sanitiser_id(GROUP, "other")),
            "AlgorithmMismatch",
        ),
        ("another device", changed(&|of| of.device.0[0] ^= 1), "SealMismatch"),
        ("another index", changed(&|of| of.index = SealIndex(1)), "SealMismatch"),
        ("another seal", changed(&|of| of.seal = wrong), "SealMismatch"),
        ("another schema", changed(&|of| of.schema = wrong), "SchemaMismatch"),
        ("group 0", changed(&|of| of.column_group = 0), "GroupsOutOfRange"),
        ("group 3", changed(&|of| of.column_group = 3), "GroupsOutOfRange"),
        ("group 8", changed(&|of| of.column_group = 8), "FieldOutOfRange"),
        ("no level", changed(&|of| of.mask = 0), "FieldOutOfRange"),
        ("fewer levels", changed(&|of| of.mask &= of.mask - 1), "MaskMismatch"),
        ("a column of another group", changed(&|of| of.column_group = 2), "FieldMismatch"),
        ("another id", fields(&["temperature:Cel:i8#9"]), "FieldMismatch"),
        ("another name", fields(&["temp:Cel:i8#2"]), "FieldMismatch"),
        ("another unit", fields(&["temperature:K:i8#2"]), "FieldMismatch"),
        ("an encrypted column", fields(&["temperature:Cel:i8!#2"]), "FieldMismatch"),
        ("a column more", fields(&["temperature:Cel:i8#2", "x::u8#3"]), "FieldMismatch"),
        ("longer cells", fields(&["temperature:Cel:i16#2"]), "EventsLength"),
        ("cells that are no values", fields(&["temperature:Cel:bool#2"]), "RecordValue"),
        ("a digest less", changed(&|of| _ = of.blocks.pop()), "DigestCount"),
        ("digests in another order", changed(&|of| of.blocks.swap(0, 1)), "CellsMismatch"),
        ("another digest", changed(&|of| of.blocks[1] = wrong), "CellsMismatch"),
        ("an empty policy", changed(&|of| of.policy.clear()), "InvalidPolicy"),
        ("a long policy", changed(&|of| of.policy = "x".repeat(257)), "InvalidPolicy"),
        ("a policy of two lines", changed(&|of| of.policy = "x\ny".to_owned()), "InvalidPolicy"),
    ] {
        file.invalid(name, "sanitised.read", input, error);
    }
    let item = one.item(Algorithm::Ed25519);
    let mut cells = item.1.clone();
    cells.swap(0, 19);
    let other = Statement { policy: "other".to_owned(), ..one.statement.clone() };
    let other = Made { statement: other, ..one.clone() }.item(Algorithm::Ed25519);
    let before = shown(sealed(Scheme::Star), &ALL, 0b011);
    let none = shown(sealed(Scheme::Star), &Pick::Levels(0), 0b001);
    let after = [stream, &with_items(&[0x81, 3], std::slice::from_ref(&item))].concat();
    for (name, input, error) in [
        ("cells in another order", with(&[(item.0.clone(), cells)]), "CellsMismatch"),
        ("a cell less", with(&[(item.0.clone(), item.1[1..].to_vec())]), "EventsLength"),
        ("a statement twice", with(&[item.clone(), item.clone()]), "DuplicateSanitised"),
        ("two statements of one scope", with(&[item.clone(), other]), "SanitiserEquivocation"),
        (
            "a group that is shown",
            of(&with_items(&before, std::slice::from_ref(&item))),
            "GroupShown",
        ),
        ("no events", of(&with_items(&none, std::slice::from_ref(&item))), "MaskMismatch"),
        ("an item after its part", of(&after), "SanitisedWithoutPart"),
    ] {
        file.invalid(name, "sanitised.read", input, error);
    }
    let payload = |place: usize, value: Value| {
        let fields = Value::decode(&two.statement.encode().unwrap()).with(place, value);
        let header = header(Algorithm::Ed25519, "moteseal-sanitised+cose", &[]);
        let signed = sign1(&key(Algorithm::Ed25519), &header, &fields.encode());
        with(&[(signed, two.cells.clone())])
    };
    for (name, input, error) in [
        ("version 2", payload(0, int(2)), "UnsupportedVersion"),
        ("a nonce", payload(10, bytes(&[1; 12])), "FieldOutOfRange"),
        ("a nonce of 11 bytes", payload(10, bytes(&[1; 11])), "UnexpectedType"),
        ("a commitment", payload(11, bytes(&[1; 16])), "FieldOutOfRange"),
        ("a policy that is null", payload(13, Value::decode(&[0xf6])), "UnexpectedType"),
    ] {
        file.invalid(name, "sanitised.read", input, error);
    }
}

/// A file of streams of a sanitiser whose right does not cover the part, or just does.
fn rights(path: &'static str, right: &SanitiserRight, error: Option<&'static str>) -> File {
    let about =
        "A sanitiser with one right: sanitised.md, section 1, rule 4, and section 4, step 11.";
    let mut file = file_of(path, about, right);
    let stream = shown(sealed(Scheme::Star), &ALL, 0b001);
    file.valid("nothing is sanitised", "sanitised.read", of(&stream));
    let mut made = made(&stream, 1);
    made.statement.roster = roster_with(right).digest();
    let input = of(&with_items(&stream, &[made.item(Algorithm::Ed25519)]));
    match error {
        Some(error) => file.invalid("a right that does not cover", "sanitised.read", input, error),
        None => file.valid("a right that covers", "sanitised.read", input),
    };
    file
}
