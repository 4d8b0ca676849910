//! Vectors of column groups (spec/groups.md): schemas, and streams that show some of the groups.

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::Scheme;
use moteseal_core::schema::Groups;
use moteseal_seal::follow::Limits;
use moteseal_verify::redaction::redact;
use serde_json::Value as Json;

use super::parts::{ALL, ANSWERED, file_of_streams, group};
use super::schema_2::field;
use super::{File, Files, cose, of};
use moteseal_fixtures::cbor_tree::{Value, array, bytes, encode_sequence, int, sequence};
use moteseal_fixtures::world::{Device, Epoch, Pick, Sealed, schema, stream};
use moteseal_verify::write;

/// Records of this schema have one size. The groups 1 and 5 have cells of equal sizes.
const SIZES: [&str; 5] =
    ["temperature:Cel:i16/100!", "seen::u32", "fine::u16!@1", "place::point!@5", "mode::u16!aes@5"];
/// Records of this schema have different lengths.
const TEXTS: [&str; 5] =
    ["note::text30!@2", "open::bool", "name::text12?", "who::text20?!@1", "level::u8!@2"];

/// The entries of a protected header.
type Entries = Vec<(Value, Value)>;

/// The places of fields of a part with groups.
const KEYS: usize = ANSWERED + 1;
const GROUPS: usize = KEYS + 1;
const BLINDS: usize = GROUPS + 1;
const DIGESTS: usize = BLINDS + 2;
const EVENTS: usize = DIGESTS + 1;

pub fn make(files: &mut Files) {
    files.add(schemas());
    files.add(seals());
    files.add(streams());
}

fn schemas() -> File {
    let mut file =
        File::new("groups/schemas.json", "Schemas with column groups: groups.md, section 1.");
    for fields in [&SIZES[..], &TEXTS[..], &["a::u8", "b::u8!@7"]] {
        file.valid(fields.join(", "), "schema.open", of(&schema(fields)));
    }
    let schema = |fields: &[Vec<(u64, Value)>]| {
        let fields = fields.iter().zip(1..).map(|(pairs, id)| {
            let mut all = vec![(0, int(id)), (1, Value::Text(format!("c{id}")))];
            all.extend(pairs.iter().cloned());
            field(&all)
        });
        of(&array([int(2), Value::Array(fields.collect())]).encode())
    };
    let in_group = |group: u64| vec![(12, int(1)), (16, Value::Uint(group))];
    let plain = Vec::new;
    let plain_in_group = |group: Value| vec![(16, group)];
    for (name, input, error) in [
        ("group 0 that is encoded", schema(&[in_group(0)]), "NonCanonical"),
        ("group 8", schema(&[plain(), in_group(8)]), "InvalidGroup"),
        ("a group of 64 bits", schema(&[plain(), in_group(u64::MAX)]), "InvalidGroup"),
        (
            "a group that is a text",
            schema(&[plain_in_group(Value::Text("1".into()))]),
            "UnexpectedType",
        ),
        ("no column in group 0", schema(&[in_group(1), in_group(2)]), "NoFirstGroup"),
        ("a plain column in group 1", schema(&[plain(), plain_in_group(int(1))]), "PlainGroup"),
        (
            "a plain column and an encrypted one in group 1",
            schema(&[plain(), in_group(1), plain_in_group(int(1))]),
            "PlainGroup",
        ),
        ("neither a first group nor encrypted", schema(&[plain_in_group(int(1))]), "NoFirstGroup"),
        (
            "group 8 and an unknown suite",
            schema(&[vec![(12, int(3)), (16, int(8))]]),
            "UnknownSuite",
        ),
    ] {
        file.invalid(name, "schema.open", input, error);
    }
    file
}

/// Seals rows of a schema. Cells of encrypted columns are arbitrary bytes.
fn sealed(fields: &[&str], scheme: Scheme, count: u8) -> Sealed {
    let mut device = Device::new(&group(), "ed", &schema(fields));
    let mut epoch = Epoch::new(scheme, 7, 0);
    for seq in 0..count {
        let number = |salt: u8| seq.wrapping_mul(37).wrapping_add(salt);
        epoch.records.push(if fields.len() == SIZES.len() && fields[0] == SIZES[0] {
            (0..18).map(number).collect()
        } else {
            // A bool, a number, and then the texts.
            let mut record = vec![seq % 2, number(3)];
            record.extend([vec![seq % 31], vec![number(5); usize::from(seq % 31)]].concat());
            record.extend(if seq % 5 == 0 { vec![255] } else { b"\x03abc".to_vec() });
            record.extend(if seq % 3 == 0 { vec![255] } else { vec![1, number(7)] });
            record
        });
    }
    let encrypted = fields.iter().filter(|field| field.contains('!')).count();
    epoch.keys = KeyCommitments::decode(&vec![7; 12 + 16 * encrypted]);
    device.seal(&epoch)
}

fn shown(stream: &[u8], groups: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let roster = group();
    redact(&mut out, stream, (&roster, Limits::default()), &mut |_| Groups::from_bits(groups))
        .unwrap();
    out
}

fn seals() -> File {
    let mut file = File::new(
        "groups/seals.json",
        "Seals of schemas with column groups: groups.md, sections 3 and 4. No signature is verified.",
    );
    let star = sealed(&SIZES, Scheme::Star, 9);
    let tree = sealed(&SIZES, Scheme::Tree, 9);
    let (star, tree) =
        (write::sign1(&star.seal, &star.signature), write::sign1(&tree.seal, &tree.signature));
    file.valid("a star", "cose.seal", of(&star));
    file.valid("a tree", "cose.seal", of(&tree));
    let parts = cose::parts_of(&tree);
    let Value::Bytes(protected) = &parts[0] else { panic!() };
    let Value::Map(entries) = Value::decode(protected) else { panic!() };
    let changed = |change: &dyn Fn(&mut Entries)| {
        let mut entries = entries.clone();
        change(&mut entries);
        let mut parts = parts.clone();
        parts[0] = bytes(&Value::Map(entries).encode());
        of(&cose::tagged(parts))
    };
    let statement = |change: &dyn Fn(&mut Vec<Value>)| {
        changed(&|entries| {
            let Value::Array(statement) = &mut entries.last_mut().unwrap().1 else { panic!() };
            change(statement);
        })
    };
    let null = || Value::decode(&[0xf6]);
    file.valid("no keys", "cose.seal", statement(&|fields| fields[19] = null()));
    for (name, input, error) in [
        ("no group 0", statement(&|fields| fields[20] = int(2)), "FieldOutOfRange"),
        ("only group 0", statement(&|fields| fields[20] = int(1)), "FieldOutOfRange"),
        ("no groups", statement(&|fields| fields[20] = int(0)), "FieldOutOfRange"),
        ("a group 8", statement(&|fields| fields[20] = int(257)), "FieldOutOfRange"),
        ("groups that are null", statement(&|fields| fields[20] = null()), "UnexpectedType"),
        ("version 2 with groups", statement(&|fields| fields[0] = int(2)), "UnexpectedType"),
        ("version 3 without groups", statement(&|fields| drop(fields.pop())), "UnexpectedType"),
        ("a field more", statement(&|fields| fields.push(int(0))), "UnexpectedType"),
        (
            "a tree with the header of RFC 9162",
            changed(&|entries| entries.insert(2, (int(395), int(1)))),
            "UnexpectedHeader",
        ),
    ] {
        file.invalid(name, "cose.seal", input, error);
    }
    file
}

fn streams() -> File {
    let mut file = file_of_streams(
        "groups/streams.json",
        "Streams whose parts show some of the column groups: groups.md, section 5.",
    );
    for scheme in [Scheme::Star, Scheme::Tree] {
        for (kind, fields, sets) in
            [("one size", &SIZES[..], [0x23, 0x03, 0x21, 1]), ("texts", &TEXTS[..], [7, 3, 5, 1])]
        {
            for (count, mask) in [(20, 0xff), (20, 0xfc), (20, 0x05), (20, 0), (0, 0)] {
                let one = sealed(fields, scheme, count);
                let whole = stream(&schema(fields), &[one], &Pick::Levels(mask));
                for groups in sets {
                    let name = format!(
                        "{count} records of {kind} in a {}, levels {mask:#04x}, groups {groups:#04x}",
                        scheme.as_str()
                    );
                    file.valid(name, "stream.read", of(&shown(&whole, groups)));
                }
            }
        }
        lies(&mut file, scheme);
    }
    let one = sealed(&TEXTS, Scheme::Tree, 20);
    let whole = stream(&schema(&TEXTS), &[one], &Pick::Events(vec![2, 3, 11]));
    for groups in [7, 3, 1] {
        let name = format!("single events of a tree, groups {groups:#04x}");
        file.valid(name, "stream.read", of(&shown(&whole, groups)));
    }
    // Groups of a schema without groups.
    let plain = ["a::u8!", "b::u8"];
    let mut device = Device::new(&group(), "ed", &schema(&plain));
    let mut epoch = Epoch::new(Scheme::Star, 7, 0);
    epoch.records = vec![vec![1, 2]; 3];
    epoch.keys = KeyCommitments::decode(&[7; 28]);
    let one = device.seal(&epoch);
    let mut items = sequence(&stream(&schema(&plain), &[one], &ALL));
    let Value::Array(part) = &mut items[2] else { panic!() };
    part.splice(GROUPS..GROUPS, [int(1), bytes(&[])]);
    let input = of(&encode_sequence(&items));
    file.invalid("groups of a schema without groups", "stream.read", input, "GroupsOutOfRange");
    let good = shown(&stream(&schema(&SIZES), &[sealed(&SIZES, Scheme::Star, 9)], &ALL), 0x03);
    file.mutate("every change of a star", "stream.read", of(&good), "bytes", &[0x01, 0x80]);
    let good = shown(&stream(&schema(&TEXTS), &[sealed(&TEXTS, Scheme::Tree, 5)], &ALL), 0x05);
    file.mutate("every change of a tree", "stream.read", of(&good), "bytes", &[0x01]);
    file
}

/// Parts that are modified in transit.
fn lies(file: &mut File, scheme: Scheme) {
    // Two groups with cells of equal sizes, which fit each other's place.
    let fields = ["a::u16", "b::u16!@1", "c::u16!@2", "d::u16!@3"];
    let seal = |first: u8| {
        let mut device = Device::new(&group(), "ed", &schema(&fields));
        let mut epoch = Epoch::new(scheme, 7, 0);
        epoch.records =
            (0..12).map(|seq| (0..8).map(|at| first + seq * 8 + at).collect()).collect();
        epoch.keys = KeyCommitments::decode(&[7; 12 + 48]);
        device.seal(&epoch)
    };
    let whole = stream(&schema(&fields), &[seal(0)], &ALL);
    let good = shown(&whole, 0b11);
    let items = sequence(&good);
    let part = |items: &[Value], at: usize| -> Value {
        let Value::Array(fields) = &items[2] else { panic!() };
        fields[at].clone()
    };
    let raw = |at: usize| -> Vec<u8> {
        let Value::Bytes(bytes) = part(&items, at) else { panic!() };
        bytes
    };
    let changed = |changes: &[(usize, Value)]| -> Json {
        let mut items = items.clone();
        for (at, value) in changes {
            items[2] = items[2].with(*at, value.clone());
        }
        of(&encode_sequence(&items))
    };
    let other = sequence(&shown(&stream(&schema(&fields), &[seal(100)], &ALL), 0b11));
    let mut swapped_cells = raw(EVENTS);
    swapped_cells.chunks_exact_mut(4).for_each(|record| record.rotate_left(2));
    let mut swapped_digests = raw(DIGESTS);
    let last = swapped_digests.len() - 64;
    swapped_digests[last..].rotate_left(32);
    let fewer = raw(DIGESTS)[32..].to_vec();
    let more = [raw(DIGESTS), vec![0; 32]].concat();
    let of_scheme = scheme.as_str();
    for (name, input, error) in [
        (
            "the cells of two groups swapped",
            changed(&[(EVENTS, bytes(&swapped_cells))]),
            "NotAuthentic",
        ),
        (
            "the digests of two hidden groups swapped",
            changed(&[(DIGESTS, bytes(&swapped_digests))]),
            "NotAuthentic",
        ),
        ("digests of another seal", changed(&[(DIGESTS, part(&other, DIGESTS))]), "NotAuthentic"),
        ("cells of another seal", changed(&[(EVENTS, part(&other, EVENTS))]), "NotAuthentic"),
        ("another group is said to be shown", changed(&[(GROUPS, int(0b101))]), "NotAuthentic"),
        ("more groups are said to be shown", changed(&[(GROUPS, int(0b111))]), "DigestCount"),
        ("fewer groups are said to be shown", changed(&[(GROUPS, int(1))]), "DigestCount"),
        (
            "a group that the schema does not have",
            changed(&[(GROUPS, int(0x83))]),
            "GroupsOutOfRange",
        ),
        ("group 0 is hidden", changed(&[(GROUPS, int(0b10))]), "FieldOutOfRange"),
        ("a group 8", changed(&[(GROUPS, int(0x103))]), "FieldOutOfRange"),
        ("a blinding secret", changed(&[(BLINDS, bytes(&[0; 32]))]), "BlindCount"),
        (
            "blinding secrets that are null",
            changed(&[(BLINDS, Value::decode(&[0xf6]))]),
            "UnexpectedType",
        ),
        ("no keys", changed(&[(KEYS, Value::decode(&[0xf6]))]), "KeyCommitmentCount"),
        ("a digest too few", changed(&[(DIGESTS, bytes(&fewer))]), "DigestCount"),
        ("a digest too many", changed(&[(DIGESTS, bytes(&more))]), "DigestCount"),
        (
            "cells of all groups",
            changed(&[(EVENTS, part(&sequence(&whole), EVENTS))]),
            "EventsLength",
        ),
    ] {
        file.invalid(format!("{name}, in a {of_scheme}"), "stream.read", input, error);
    }
    // A hidden group that is restored from a guess.
    let mut guessed = raw(EVENTS).chunks_exact(4).fold(Vec::new(), |mut out, record| {
        out.extend_from_slice(record);
        out.extend_from_slice(&[0, 0]);
        out
    });
    guessed[4] = 4;
    let hidden = sequence(&shown(&whole, 0b111));
    let input = changed(&[
        (GROUPS, int(0b111)),
        (DIGESTS, part(&hidden, DIGESTS)),
        (EVENTS, bytes(&guessed)),
    ]);
    file.invalid(
        format!("a hidden group that is guessed, in a {of_scheme}"),
        "stream.read",
        input,
        "NotAuthentic",
    );
    // A part without groups, as if the schema had none.
    let mut items = sequence(&whole);
    let Value::Array(fields) = &mut items[2] else { panic!() };
    fields.drain(GROUPS..=BLINDS);
    file.invalid(
        format!("no groups, in a {of_scheme}"),
        "stream.read",
        of(&encode_sequence(&items)),
        "GroupsOutOfRange",
    );
}
