//! Vectors of receivers that share a key with the sender (spec/broadcast.md, section 7).

use moteseal_broadcast::receipt::{ReceiverKey, ReceiverTag, combine};
use moteseal_broadcast::sender_named;
use moteseal_core::participation::{Participation, max_size};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int};
use serde_json::{Value as Json, json};

use super::{MAX, network};
use crate::make::{File, Files};

const SECRET: [u8; 32] = [0x5e; 32];
const HEAD: &[u8] = b"the bytes of a head";
const NAMES: [&str; 12] =
    ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11"];

pub fn make(files: &mut Files) {
    files.add(tags());
    files.add(receipts());
    files.add(frames());
}

fn key(position: u32, name: &str) -> ReceiverKey {
    ReceiverKey::derive(&SECRET, network(), sender_named("ops"), position, name)
}

fn shared(more: &Json) -> Json {
    let mut input = json!({
        "secret": hex::encode(SECRET),
        "network": network().to_string(),
        "sender": sender_named("ops").to_string(),
        "head": hex::encode(HEAD),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    input
}

fn tags() -> File {
    let mut file = File::new(
        "broadcast/receiver-tags.json",
        "The key of a receiver, and its tags: broadcast.md, section 7.1.",
    );
    for (what, position, name, number) in [
        ("the first receiver", 0, "valve 1", 1_u64),
        ("the last position", 32_767, "Ventil Süd", u64::from(u32::MAX)),
        ("the longest name", 300, &*"n".repeat(64), 0),
    ] {
        let more = json!({
            "position": position, "name": name, "chain": "0102030405060708", "block": number,
            "wanted": number * 3, "attempt": number, "key_id": "1112131415161718", "above": number * 5,
        });
        file.valid(what, "cast.receiver", shared(&more));
    }
    file
}

/// Returns the encoded set of positions, and the combined receipts of these receivers.
fn combined(of: &[u32]) -> (Vec<u8>, ReceiverTag) {
    let mut words = [0_u64; 2];
    of.iter().for_each(|at| words[*at as usize / 64] |= 1 << (at % 64));
    let mut set = vec![0; max_size(128)];
    let length = Participation::encode(&words, &mut set).expect("the set fits");
    set.truncate(length);
    let name = |at: &u32| NAMES.get(*at as usize).copied().unwrap_or("none");
    let tags = of.iter().map(|at| key(*at, name(at)).receipt(HEAD));
    (set, tags.fold(ReceiverTag::default(), combine))
}

fn receipts() -> File {
    let mut file = File::new(
        "broadcast/receipts.json",
        "Combined receipts of receivers: broadcast.md, section 7.2.",
    );
    let op = "cast.receipts";
    let of = |set: &[u8], tag: &[u8]| {
        shared(&json!({ "names": NAMES, "receivers": hex::encode(set), "tag": hex::encode(tag) }))
    };
    let all: Vec<u32> = (0..12).collect();
    for (what, positions) in [
        ("a receipt of one receiver", &[3][..]),
        ("receipts of three receivers, not in a row", &[0, 4, 11]),
        ("receipts of all receivers", &all),
    ] {
        let (set, tag) = combined(positions);
        file.valid(what, op, of(&set, &tag));
    }
    let (set, tag) = combined(&[0, 4, 11]);
    let mut wrong = tag;
    wrong[15] ^= 1;
    file.invalid("another tag", op, of(&set, &wrong), "NotAuthentic");
    let (more, _) = combined(&[0, 4, 5, 11]);
    file.invalid("one receiver too many", op, of(&more, &tag), "NotAuthentic");
    let (fewer, _) = combined(&[0, 4]);
    file.invalid("one receiver too few", op, of(&fewer, &tag), "NotAuthentic");
    let mut input = of(&set, &tag);
    input["head"] = json!(hex::encode(b"another head"));
    file.invalid("receipts for another chain", op, input, "NotAuthentic");
    let (none, _) = combined(&[]);
    file.invalid("no receiver", op, of(&none, &[0; 16]), "MalformedParticipation");
    let (after, tag) = combined(&[0, 12]);
    file.invalid("a position after the list", op, of(&after, &tag), "UnknownPosition");
    file.invalid(
        "a set with an overlong integer",
        op,
        of(&[0x80, 0, 0], &tag),
        "MalformedParticipation",
    );
    file
}

fn frames() -> File {
    let mut file = File::new(
        "broadcast/receiver-frames.json",
        "Frames between receivers and a sender that share keys: broadcast.md, sections 5 and 7.",
    );
    let op = "cast.frame";
    let (id, set) = (bytes(&[1, 2, 3, 4, 5, 6, 7, 8]), bytes(&[0, 2]));
    let (tag, head) = (bytes(&[9; 16]), bytes(b"head"));
    let last = || Value::Uint(u32::MAX.into());
    let receipts = array([int(42), id.clone(), set.clone(), tag.clone()]);
    let wanted = array([int(43), id.clone(), int(1), set.clone()]);
    let head_wanted = array([int(44), id.clone(), MAX, int(32_767), tag.clone()]);
    let head_for = array([int(45), int(0), tag.clone(), head]);
    let request = array([int(46), id, last(), MAX, last(), int(32_767), tag]);
    for (what, item) in [
        ("receipts", &receipts),
        ("receipts of nobody, which is checked later", &receipts.with(2, bytes(&[]))),
        ("receipts are wanted, one in a frame", &wanted),
        ("receipts are wanted, many in a frame", &wanted.with(2, last())),
        ("the newest head is wanted", &head_wanted),
        ("the first head is wanted", &head_wanted.with(2, int(0))),
        ("a head for one receiver", &head_for),
        ("a receiver's request", &request),
    ] {
        file.valid(what, op, crate::make::of(&item.encode()));
    }
    for (what, item, error) in [
        ("a tag of 8 bytes", receipts.with(3, bytes(&[9; 8])), "UnexpectedType"),
        ("receivers that are an integer", receipts.with(2, int(3)), "UnexpectedType"),
        ("a reference of seven bytes", receipts.with(1, bytes(&[1; 7])), "UnexpectedType"),
        ("no receipt in a frame", wanted.with(2, int(0)), "FieldOutOfRange"),
        ("a limit of more than 32 bits", wanted.with(2, Value::Uint(1 << 32)), "FieldOutOfRange"),
        ("position 32768 wants a head", head_wanted.with(3, int(32_768)), "FieldOutOfRange"),
        ("a head for position 32768", head_for.with(1, int(32_768)), "FieldOutOfRange"),
        ("a head that is null", head_for.with(3, NULL), "UnexpectedType"),
        ("a request of position 32768", request.with(5, int(32_768)), "FieldOutOfRange"),
        (
            "an attempt of more than 32 bits",
            request.with(4, Value::Uint(1 << 32)),
            "FieldOutOfRange",
        ),
        ("a request without a tag", request.with(6, NULL), "UnexpectedType"),
    ] {
        file.invalid(what, op, crate::make::of(&item.encode()), error);
    }
    file
}
