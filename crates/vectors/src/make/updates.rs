//! Vectors of update files for motes (spec/update.md, section 1): manifests, and tags of images.

use moteseal_broadcast::KeyId;
use moteseal_broadcast::firmware::{UPDATE_PART, image_tag};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_fixtures::cbor_tree::{Value, array, bytes, int, text};
use moteseal_fixtures::world::{header, secret, sign1};
use serde_json::{Value as Json, json};

use super::{File, Files, public};

const FIRMWARE: &str = "moteseal-firmware+cose";

pub fn make(files: &mut Files) {
    files.add(manifests());
    files.add(tags());
}

fn base() -> SecretKey {
    secret(Algorithm::Ed25519, 0x91)
}

fn network() -> NetworkId {
    NetworkId::of(&base().public())
}

/// Returns the payload of a manifest.
fn manifest() -> Value {
    array([
        int(1),
        bytes(&network().0),
        bytes(&KeyId::of(&base().public()).0),
        text("mps2-an385"),
        int(7),
        int(70_000),
        bytes(&[5; 32]),
    ])
}

fn signed(key: &SecretKey, typ: &str, payload: &Value) -> Vec<u8> {
    sign1(key, &header(key.algorithm(), typ, &[]), &payload.encode())
}

/// Returns the first part of an update file: the stated length, the manifest, and zeros.
fn part(length: usize, manifest: &[u8]) -> Vec<u8> {
    let mut part = u16::try_from(length).unwrap().to_be_bytes().to_vec();
    part.extend_from_slice(manifest);
    part.resize(UPDATE_PART.max(part.len()), 0);
    part
}

fn opening(part: &[u8]) -> Json {
    let bases = [public(&base())];
    json!({ "bytes": hex::encode(part), "network": network().to_string(), "bases": bases })
}

fn manifests() -> File {
    let mut file = File::new(
        "update/manifests.json",
        "The first part of an update file, with the manifest of an image: update.md, section 1.",
    );
    let op = "update.part";
    let by = |key: &SecretKey, payload: &Value| {
        let manifest = signed(key, FIRMWARE, payload);
        opening(&part(manifest.len(), &manifest))
    };
    let of = |payload: &Value| by(&base(), payload);
    let good = manifest();
    file.valid("a manifest", op, of(&good));
    file.valid("the longest name of a board", op, of(&good.with(3, text(&"b".repeat(32)))));
    file.valid("every sign of a name", op, of(&good.with(3, text("!~09AZaz"))));
    let most = Value::Uint(u64::from(u32::MAX));
    file.valid("the highest numbers", op, of(&good.with(4, most.clone()).with(5, most)));
    file.valid("the lowest numbers", op, of(&good.with(4, int(1)).with(5, int(1))));
    let p256 = secret(Algorithm::Esp256, 0x94);
    let mut of_p256 = by(&p256, &good.with(2, bytes(&KeyId::of(&p256.public()).0)));
    of_p256["bases"] = json!([public(&p256)]);
    file.valid("a base station with P-256", op, of_p256);
    let above = Value::Uint(1 << 32);
    for (what, payload, error) in [
        ("version 2 of the format", good.with(0, int(2)), "UnsupportedVersion"),
        ("another network", good.with(1, bytes(&[0; 8])), "WrongNetwork"),
        ("another base station", good.with(2, bytes(&[0; 8])), "UnknownBaseStation"),
        ("a board as bytes", good.with(3, bytes(b"board")), "UnexpectedType"),
        ("a board without a name", good.with(3, text("")), "FieldOutOfRange"),
        ("a name of 33 bytes", good.with(3, text(&"b".repeat(33))), "FieldOutOfRange"),
        ("a name with a space", good.with(3, text("two words")), "FieldOutOfRange"),
        ("a name with a delete character", good.with(3, text("b\u{7f}")), "FieldOutOfRange"),
        ("a name that is not ASCII", good.with(3, text("gr\u{fc}n")), "FieldOutOfRange"),
        ("version 0", good.with(4, int(0)), "FieldOutOfRange"),
        ("a version above 32 bits", good.with(4, above.clone()), "FieldOutOfRange"),
        ("a negative version", good.with(4, int(-1)), "UnexpectedType"),
        ("an empty image", good.with(5, int(0)), "FieldOutOfRange"),
        ("a length above 32 bits", good.with(5, above), "FieldOutOfRange"),
        ("a digest of 31 bytes", good.with(6, bytes(&[5; 31])), "UnexpectedType"),
        ("a field more", array([int(1), int(1)]), "UnexpectedType"),
    ] {
        file.invalid(what, op, of(&payload), error);
    }
    let other = secret(Algorithm::Ed25519, 0x95);
    file.invalid("in a base station's name", op, by(&other, &good), "NotAuthentic");
    file.invalid("with another suite", op, by(&p256, &good), "AlgorithmMismatch");
    let revocation = signed(&base(), "moteseal-revocation+cose", &good);
    let revocation = opening(&part(revocation.len(), &revocation));
    file.invalid("another type of object", op, revocation, "WrongType");
    let object = signed(&base(), FIRMWARE, &good);
    let length = object.len();
    let mut spoilt = part(length, &object);
    spoilt[UPDATE_PART - 1] = 1;
    for (what, part) in [
        ("a part of 255 bytes", part(length, &object)[..UPDATE_PART - 1].to_vec()),
        ("a part of 257 bytes", [&part(length, &object)[..], &[0]].concat()),
        ("an empty part", Vec::new()),
        ("one byte", vec![0]),
        ("a length beyond the part", part(UPDATE_PART - 1, &object)),
        ("a length that ends within the manifest", part(length - 1, &object)),
        ("a last byte that is not zero", spoilt),
    ] {
        file.invalid(what, op, opening(&part), "FieldOutOfRange");
    }
    file.invalid(
        "zeros as a part of the manifest",
        op,
        opening(&part(length + 1, &object)),
        "TrailingBytes",
    );
    file.invalid("no manifest", op, opening(&[0; UPDATE_PART]), "Truncated");
    file.mutate("changed everywhere", op, of(&good), "bytes", &[0x01]);
    file
}

fn tags() -> File {
    let mut file = File::new(
        "update/tags.json",
        "The board and the version that an image states: update.md, section 1.3.",
    );
    let op = "update.tag";
    let of = |image: &[u8]| json!({ "bytes": hex::encode(image) });
    let tag = image_tag("mps2-an385", 7);
    let with = |at: usize, byte: u8| {
        let mut tag = tag;
        tag[at] = byte;
        of(&tag)
    };
    file.valid("nothing else", op, of(&tag));
    file.valid("within an image", op, of(&[&[1; 37][..], &tag, &[2; 50]].concat()));
    file.valid("the longest name", op, of(&image_tag(&"b".repeat(32), u32::MAX)));
    let start = &tag[..12];
    file.valid("the start of a tag near the end", op, of(&[&tag[..], start].concat()));
    let bad = "BadImageTag";
    file.invalid("two tags", op, of(&[tag, tag].concat()), bad);
    file.invalid("a tag within another one", op, of(&[start, &tag[..]].concat()), bad);
    file.invalid("version 0", op, of(&image_tag("b", 0)), bad);
    file.invalid("no board", op, of(&image_tag("", 7)), bad);
    file.invalid("a space in the name", op, with(20, b' '), bad);
    file.invalid("a byte that is not ASCII", op, with(20, 0xc3), bad);
    file.invalid("a name with a zero", op, with(20, 0), bad);
    file.invalid("a byte after the name", op, with(47, 1), bad);
    let none = "NoImageTag";
    file.invalid("an empty image", op, of(&[]), none);
    file.invalid("a tag that is cut", op, of(&tag[..47]), none);
    file.invalid("another start", op, with(11, 2), none);
    file
}
