//! Vectors of chains for named receivers (spec/broadcast.md, section 8).

use moteseal_broadcast::address::{ADDRESS_ENTRY, ContentKey};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::{ChainId, ChainNumber, KeyId, sender_named};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int};
use serde_json::{Value as Json, json};

use super::{network, ops};
use crate::make::{File, Files};

const SECRET: [u8; 32] = [0x5e; 32];
const NUMBER: u64 = 7;
const OP: &str = "cast.address";

fn id() -> (ChainId, KeyId) {
    let (network, sender) = (network(), sender_named("ops"));
    (ChainId { network, sender, number: ChainNumber(NUMBER) }, KeyId::of(&ops().public()))
}

fn content_key() -> ContentKey {
    ContentKey::new(&[0xc0; 16])
}

fn name(position: u32) -> String {
    format!("valve {position}")
}

/// Returns the entries of the receivers at these positions, in the right order.
fn entries(of: impl IntoIterator<Item = u32>) -> Vec<[u8; ADDRESS_ENTRY]> {
    let (id, key) = id();
    let entry = |at: u32| {
        let receiver = ReceiverKey::derive(&SECRET, id.network, id.sender, at, &name(at));
        content_key().entry(&id, key, &receiver)
    };
    let mut entries: Vec<_> = of.into_iter().map(entry).collect();
    entries.sort_unstable();
    entries
}

fn encrypted(number: u32, message: &[u8]) -> Vec<u8> {
    let (id, key) = id();
    let mut message = message.to_vec();
    content_key().cipher(&id, key).apply(number, &mut message);
    message
}

/// Returns the first message of an address.
fn start(count: usize, label: &[u8], first: &[[u8; ADDRESS_ENTRY]]) -> Value {
    let (id, key) = id();
    let commitment = content_key().commitment(&id, key);
    let label = encrypted(u32::MAX, label);
    let first = bytes(first.as_flattened());
    array([int(1), bytes(&commitment.0), int(count as i64), bytes(&label), first])
}

fn input(total: u64, position: Option<u32>, messages: &[Vec<u8>]) -> Json {
    let (id, key) = id();
    let messages: Vec<String> = messages.iter().map(hex::encode).collect();
    json!({
        "secret": hex::encode(SECRET),
        "network": id.network.to_string(),
        "sender": id.sender.to_string(),
        "key_id": key.to_string(),
        "number": NUMBER,
        "total": total,
        "position": position,
        "name": name(position.unwrap_or_default()),
        "messages": messages,
    })
}

pub fn make(files: &mut Files) {
    let mut file = File::new(
        "broadcast/addressed.json",
        "Chains for named receivers: broadcast.md, section 8. The messages are those that were verified so far.",
    );
    let three = entries([0, 4, 32_767]);
    let first = start(3, "Ventil S\u{fc}d".as_bytes(), &three);
    let content = [b"open".to_vec(), Vec::new(), vec![0x61; 100]];
    let sealed: Vec<Vec<u8>> =
        (0..).zip(&content).map(|(number, message)| encrypted(number, message)).collect();
    let of = |first: &Value| [&[first.encode()], &sealed[..]].concat();
    let single = |label: &[u8]| {
        let Value::Array(mut fields) = start(3, label, &three) else { unreachable!("an array") };
        fields.push(bytes(&sealed[0]));
        Value::Array(fields)
    };
    let mut many = vec![start(40, b"", &entries(0..40)[..2]).encode()];
    many.extend(entries(0..40)[2..].chunks(10).map(|part| part.as_flattened().to_vec()));
    let address = many.len() as u64;
    many.extend_from_slice(&sealed);
    for position in [0, 4, 32_767] {
        let what = format!("three receivers, and three messages, as the receiver {position}");
        file.valid(&what, OP, input(4, Some(position), &of(&first)));
    }
    file.valid("the content is not there yet", OP, input(4, Some(4), &of(&first)[..1]));
    file.valid("a chain of one message", OP, input(1, Some(4), &[single(b"topic").encode()]));
    file.valid("no label", OP, input(1, Some(4), &[single(b"").encode()]));
    let longest = "\u{e9}".repeat(32);
    let of_longest = single(longest.as_bytes()).encode();
    file.valid("a label of 64 bytes", OP, input(1, Some(4), &[of_longest]));
    for position in [0, 21, 39] {
        let what = format!("forty receivers in five messages, as the receiver {position}");
        file.valid(&what, OP, input(address + 3, Some(position), &many));
    }

    let flipped = |at: usize| {
        let mut entries = three.clone();
        entries.iter_mut().for_each(|entry| entry[at] ^= 1);
        first.with(4, bytes(entries.as_flattened()))
    };
    let mut swapped = three.clone();
    swapped.swap(0, 1);
    let twice = [three[0], three[0], three[1]];
    let all = three.as_flattened();
    for (what, total, message, error) in [
        ("version 2", 4, first.with(0, int(2)), "UnsupportedVersion"),
        ("a commitment of 31 bytes", 4, first.with(1, bytes(&[1; 31])), "UnexpectedType"),
        ("no entries", 4, first.with(2, int(0)).with(4, bytes(&[])), "FieldOutOfRange"),
        ("more entries than a list has", 4, first.with(2, int(32_769)), "FieldOutOfRange"),
        ("more entries than are stated", 4, first.with(2, int(2)), "FieldOutOfRange"),
        (
            "more entries than 32 bits can state",
            4,
            first.with(2, int(1 << 32)).with(3, NULL),
            "FieldOutOfRange",
        ),
        ("a negative number of entries", 4, first.with(2, int(-1)), "UnexpectedType"),
        ("a label of 65 bytes", 4, first.with(3, bytes(&[1; 65])), "FieldOutOfRange"),
        ("a label that is null", 4, first.with(3, NULL), "UnexpectedType"),
        ("a label with a control character", 4, start(3, b"\x1b[2J", &three), "FieldOutOfRange"),
        ("a label that is not UTF-8", 4, start(3, b"\xff", &three), "FieldOutOfRange"),
        ("no entry in the first message", 4, first.with(4, bytes(&[])), "FieldOutOfRange"),
        ("a part of an entry", 4, first.with(4, bytes(&all[..71])), "FieldOutOfRange"),
        (
            "entries in another order",
            4,
            first.with(4, bytes(swapped.as_flattened())),
            "FieldOutOfRange",
        ),
        ("one entry twice", 4, first.with(4, bytes(twice.as_flattened())), "FieldOutOfRange"),
        ("another masked key", 4, flipped(23), "WrongContentKey"),
        ("another commitment", 4, first.with(1, bytes(&[1; 32])), "NotAddressed"),
        ("content in the address of several messages", 4, single(b""), "UnexpectedType"),
        ("one message without content", 1, first.clone(), "UnexpectedType"),
        ("one message without all entries", 1, single(b"").with(2, int(4)), "FieldOutOfRange"),
    ] {
        file.invalid(what, OP, input(total, Some(4), &of(&message)), error);
    }
    let mut cut = many.clone();
    cut[1].pop();
    file.invalid(
        "a part of an entry later",
        OP,
        input(address + 3, Some(4), &cut),
        "FieldOutOfRange",
    );
    let mut order = many.clone();
    order.swap(1, 2);
    file.invalid(
        "messages in another order",
        OP,
        input(address + 3, Some(4), &order),
        "FieldOutOfRange",
    );
    let incomplete = "AddressIncomplete";
    file.invalid(
        "the address is not complete yet",
        OP,
        input(address + 3, Some(4), &many[..3]),
        incomplete,
    );
    file.invalid("no content can follow", OP, input(address, Some(4), &many), incomplete);
    file.invalid("the chain ends in the address", OP, input(3, Some(4), &many), incomplete);
    file.invalid("another receiver", OP, input(4, Some(5), &of(&first)), "NotAddressed");
    file.invalid("no key", OP, input(4, None, &of(&first)), "NoReceiverKey");
    let mut later = input(4, Some(4), &of(&first));
    later["number"] = json!(NUMBER + 1);
    file.invalid("another number of the chain", OP, later, "NotAddressed");
    let mut changed = input(4, Some(4), &of(&first));
    changed["secret"] = json!(hex::encode([0x5f; 32]));
    file.invalid("another list of receivers", OP, changed, "NotAddressed");
    files.add(file);
}
