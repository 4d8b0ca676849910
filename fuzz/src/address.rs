//! Fuzzes the address of a chain for named receivers. The bytes are used as its first message, and
//! as several messages, each after its length in 2 bytes. A start that decodes must have exactly one
//! encoding. A receiver must find only the sender's key, and nodes without a key must agree with it
//! about what is malformed.

use moteseal_broadcast::address::{
    ADDRESS_ENTRY, AddressError, AddressRead, AddressReader, AddressStart, ContentKey,
};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::{ChainId, ChainNumber, KeyId, Kind, MAX_LABEL, MAX_MESSAGE, Outline};
use moteseal_core::cbor::Writer;
use moteseal_core::record::{DeviceId, NetworkId};

const ID: ChainId =
    ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(3) };
const KEY: KeyId = KeyId([4; 8]);
const SECRET: [u8; 16] = [5; 16];
const CONTENT: [&[u8]; 2] = [b"open valve 3", b""];
/// The numbers of messages that a chain is assumed to have.
const COUNTS: [u32; 3] = [1, 3, 5];

fn receiver(position: u32) -> ReceiverKey {
    ReceiverKey::new(ID.network, ID.sender, position, &[position as u8; 32])
}

fn outline(messages: u32) -> Outline {
    Outline {
        id: ID,
        key: KEY,
        messages,
        per_block: 1,
        longest: MAX_MESSAGE as u16,
        kind: Kind::Command,
        is_addressed: true,
    }
}

fn encoded(start: &AddressStart<'_>) -> Vec<u8> {
    let content = start.content.map_or(0, <[u8]>::len);
    let mut out = vec![0; 64 + start.label.len() + start.first.len() + content];
    let mut writer = Writer::new(&mut out);
    start.encode(&mut writer).expect("it fits");
    writer.finish().to_vec()
}

/// Processes the bytes as messages of a chain.
pub fn run(bytes: &[u8]) {
    for count in COUNTS {
        if let Ok(start) = AddressStart::decode(bytes, count) {
            assert_eq!(encoded(&start), bytes, "two encodings of one start");
        }
        read(&[bytes], count);
        read(&split(bytes), count);
    }
}

/// Cuts the bytes into messages.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        messages.push(message);
        bytes = rest;
    }
    messages
}

fn read(messages: &[&[u8]], count: u32) {
    let key = receiver(1);
    let (mut own, mut other) =
        (AddressReader::new(&outline(count)), AddressReader::new(&outline(count)));
    for message in messages {
        let read = own.take(Some(&key), message);
        assert_eq!(read, other.take(None, message), "the key decides what is malformed");
        match read {
            Ok(AddressRead::More) => {}
            Ok(AddressRead::Complete) => break,
            Err(_) => return,
        }
    }
    let refused = other.open().expect_err("there is no key");
    assert!(matches!(refused, AddressError::NoReceiverKey | AddressError::AddressIncomplete));
    let Ok(opened) = own.open() else { return };
    assert_eq!(opened.key.secret(), &SECRET, "a key that the sender never used");
    let start = AddressStart::decode(messages[0], count).expect("it was read");
    let _ = opened.cipher.label(&start, &mut [0; MAX_LABEL]);
    for (number, message) in (0..count).zip(messages) {
        let content = opened.content(number, message).expect("it was read");
        let is_content = number >= opened.address;
        assert_eq!(content.is_some(), is_content, "address and content overlap");
    }
}

/// Returns a chain of one message, and chains whose address has one message and several.
pub fn seeds() -> Vec<Vec<u8>> {
    let key = ContentKey::new(&SECRET);
    let mut entries: Vec<[u8; ADDRESS_ENTRY]> =
        (0..4).map(|position| key.entry(&ID, KEY, &receiver(position))).collect();
    entries.sort_unstable();
    let cipher = key.cipher(&ID, KEY);
    let mut label = b"valve 3".to_vec();
    cipher.apply_to_label(&mut label);
    let content: Vec<Vec<u8>> = (0..)
        .zip(CONTENT)
        .map(|(number, message)| {
            let mut message = message.to_vec();
            cipher.apply(number, &mut message);
            message
        })
        .collect();
    let start = AddressStart {
        commitment: key.commitment(&ID, KEY),
        entries: 4,
        label: &label,
        first: entries.as_flattened(),
        content: None,
    };
    let divided = AddressStart { first: entries[..2].as_flattened(), ..start };
    let joined = |messages: &[&[u8]]| -> Vec<u8> {
        let part = |message: &&[u8]| [&(message.len() as u16).to_be_bytes(), *message].concat();
        messages.iter().flat_map(part).collect()
    };
    vec![
        encoded(&AddressStart { content: Some(&content[0]), ..start }),
        joined(&[&encoded(&start), &content[0], &content[1]]),
        joined(&[
            &encoded(&divided),
            entries[2..3].as_flattened(),
            entries[3..].as_flattened(),
            &content[0],
            &content[1],
        ]),
    ]
}
