//! Runs the operations of the vectors of receivers that share a key with a sender (spec/broadcast.md,
//! section 7) with the product's code.

use moteseal_broadcast::receipt::{
    HeadRequest, ReceiverKey, ReceiverTag, Request, combine, is_tag, receivers,
};
use moteseal_broadcast::{ChainRef, KeyId};
use moteseal_core::participation::{Participation, ParticipationError};
use moteseal_core::record::{DeviceId, NetworkId};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_of, list, name, number, text};

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
