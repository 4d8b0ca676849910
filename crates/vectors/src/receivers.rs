//! Runs the operations of the vectors of receivers that share a key with a sender (spec/broadcast.md,
//! section 7) with the product's code.

use moteseal_broadcast::address::{AddressRead, AddressReader, AddressStart};
use moteseal_broadcast::receipt::{
    HeadRequest, ReceiverKey, ReceiverTag, Request, combine, is_tag, receivers,
};
use moteseal_broadcast::{ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_LABEL, Outline};
use moteseal_core::participation::{Participation, ParticipationError};
use moteseal_core::record::{DeviceId, NetworkId};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_list, hex_of, list, name, number, text};

fn key(input: &Value, position: u32, name: &str) -> ReceiverKey {
    let (network, sender) = (NetworkId(fixed(input, "network")), DeviceId(fixed(input, "sender")));
    ReceiverKey::derive(&fixed(input, "secret"), network, sender, position, name)
}

/// Returns the key of a receiver, and its tags.
pub fn tags(input: &Value) -> Value {
    let key = key(input, number(input, "position"), text(input, "name"));
    let mut file = String::new();
    key.write(text(input, "name"), &mut file).unwrap();
    let secret = file.lines().find_map(|line| line.strip_prefix("key ")).unwrap();
    let request = Request {
        chain: ChainRef(fixed(input, "chain")),
        block: number(input, "block"),
        wanted: number(input, "wanted"),
        attempt: number(input, "attempt"),
    };
    let of_head = HeadRequest { key: KeyId(fixed(input, "key_id")), above: number(input, "above") };
    let head = bytes(input, "head");
    json!({
        "key": secret,
        "receipt": hex_of(key.receipt(&head)),
        "request": hex_of(key.request(&request)),
        "head_request": hex_of(key.head_request(&of_head)),
        "head": hex_of(key.head(&head)),
    })
}

/// Checks the combined receipts of a frame, and returns the number of receivers.
pub fn receipts(input: &Value) -> Verdict {
    let (set, head) = (bytes(input, "receivers"), bytes(input, "head"));
    let tag: ReceiverTag = fixed(input, "tag");
    let names = list(input, "names");
    let set: Participation<'_> = receivers(&set).map_err(name)?;
    if set.count() == 0 {
        return Err(name(ParticipationError::MalformedParticipation));
    }
    let mut expected = ReceiverTag::default();
    for position in set.runs().flatten() {
        let found = names.get(position as usize).and_then(Value::as_str);
        let Some(of) = found else { return Err(name(ParticipationError::UnknownPosition)) };
        expected = combine(expected, key(input, position, of).receipt(&head));
    }
    if is_tag(&expected, &tag) {
        Ok(json!({ "count": set.count() }))
    } else {
        Err("NotAuthentic".to_owned())
    }
}

/// Reads a chain for named receivers, and returns its label and content.
pub fn address(input: &Value) -> Verdict {
    let messages = hex_list(input, "messages");
    let receiver = (!input["position"].is_null())
        .then(|| key(input, number(input, "position"), text(input, "name")));
    let outline = Outline {
        id: ChainId {
            network: NetworkId(fixed(input, "network")),
            sender: DeviceId(fixed(input, "sender")),
            number: ChainNumber(number(input, "number")),
        },
        key: KeyId(fixed(input, "key_id")),
        messages: number(input, "total"),
        per_block: 1,
        longest: 8192,
        kind: Kind::Announcement,
        is_addressed: true,
    };
    let mut reader = AddressReader::new(&outline);
    for message in &messages {
        if reader.take(receiver.as_ref(), message).map_err(name)? == AddressRead::Complete {
            break;
        }
    }
    let opened = reader.open().map_err(name)?;
    let first = messages.first().map_or(&[][..], Vec::as_slice);
    let start = AddressStart::decode(first, outline.messages).map_err(name)?;
    let mut label = [0; MAX_LABEL];
    let label = opened.cipher.label(&start, &mut label).map_err(name)?;
    let mut content = Vec::new();
    for (number, message) in (0..).zip(&messages) {
        if let Some((number, message)) = opened.content(number, message).map_err(name)? {
            let mut message = message.to_vec();
            opened.cipher.apply(number, &mut message);
            content.push(message);
        }
    }
    let content: Vec<String> = content.iter().map(hex::encode).collect();
    Ok(json!({ "label": label, "content": content }))
}
