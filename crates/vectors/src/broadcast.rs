//! Runs the operations of the broadcast vectors (spec/broadcast.md) with the product's code.

use std::convert::Infallible;

use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainNumber, EvidenceCheck, Head, Incoming, KeyId, Kind,
    LeafError, MAX_HEAD, MAX_LEAF, MAX_SINGLE, OutgoingChain, Revocation, Revoked,
    SenderCertificate, SenderRequest, Shown, Taken, Window, open_single,
};
use moteseal_core::Digest;
use moteseal_core::cbor::item_length;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_list, hex_of, list, name, number, text};

fn key(value: &Value) -> PublicKey {
    PublicKey::from_bytes(Algorithm::from_name(text(value, "alg")).unwrap(), &bytes(value, "key"))
        .unwrap()
}

fn bases(input: &Value) -> Vec<PublicKey> {
    list(input, "bases").iter().map(key).collect()
}

fn network(input: &Value) -> NetworkId {
    NetworkId(fixed(input, "network"))
}

/// Returns the id of the sender with a given name, and the key id and the network id of a given
/// key.
pub fn ids(input: &Value) -> Value {
    let key = key(input);
    json!({
        "sender": moteseal_broadcast::sender_named(text(input, "sender")).to_string(),
        "key": KeyId::of(&key).to_string(),
        "network": NetworkId::of(&key).to_string(),
    })
}

pub fn request(input: &Value) -> Verdict {
    let request = SenderRequest::open(&bytes(input, "bytes")).map_err(name)?;
    Ok(json!({
        "sender": request.sender.to_string(), "alg": request.key.algorithm().name(), "key": hex_of(request.key.to_bytes()),
    }))
}

/// Opens a certificate and checks whether it is currently valid.
pub fn certificate(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let (certificate, base) =
        SenderCertificate::open_any(&bytes, network(input), &bases(input)).map_err(name)?;
    let now = (!input["now"].is_null()).then(|| number(input, "now"));
    certificate.check(now, &revoked(input)).map_err(name)?;
    Ok(json!({
        "base": base, "serial": certificate.serial, "sender": certificate.sender.to_string(),
        "alg": certificate.algorithm.name(), "key": hex_of(certificate.key_bytes),
        "not_before": certificate.not_before, "not_after": certificate.not_after,
    }))
}

pub fn revocation(input: &Value) -> Verdict {
    let (revocation, base) =
        Revocation::open(&bytes(input, "bytes"), network(input), &bases(input)).map_err(name)?;
    let revoked_now = revocation.revoked();
    if !revoked_now.covers(&revoked(&input["known"])) {
        return Err("Superseded".to_owned());
    }
    Ok(json!({
        "base": base, "minimum": revoked_now.minimum(), "serials": revoked_now.serials(),
    }))
}

/// Returns what a base station has revoked, from the fields `minimum` and `serials`.
fn revoked(input: &Value) -> Revoked {
    let serials = input["serials"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    let below = Revoked::below(number(input, "minimum"));
    serials.fold(below, |revoked, serial| revoked.and(serial).unwrap_or(revoked))
}

/// Builds a chain from messages, as a sender does.
pub fn chain(input: &Value) -> Verdict {
    let messages = hex_list(input, "messages");
    let id = ChainId {
        network: network(input),
        sender: DeviceId(fixed(input, "sender")),
        number: ChainNumber(number(input, "number")),
    };
    let draft = ChainDraft {
        id,
        key: KeyId(fixed(input, "key")),
        messages: messages.len() as u32,
        per_block: number(input, "per_block"),
        kind: Kind::Announcement,
        label: text(input, "label"),
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let read = |number: u32, buffer: &mut [u8]| {
        let message = &messages[number as usize];
        if let Some(place) = buffer.get_mut(..message.len()) {
            place.copy_from_slice(message);
        }
        Ok::<_, Infallible>(message.len())
    };
    let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut vec![0; MAX_LEAF], read)
        .map_err(|error| match error {
            BuildError::Draft(error) => name(error),
            BuildError::Read(never) => match never {},
        })?;
    let outline = *chain.outline();
    let mut leaves = Vec::new();
    for block in 1..=outline.blocks() {
        for index in 0..outline.in_block(block) {
            let mut out = vec![0; MAX_LEAF];
            leaves.push(hex_of(
                chain
                    .leaf(block, index, &messages[outline.message(block, index) as usize], &mut out)
                    .unwrap(),
            ));
        }
    }
    let first =
        if outline.in_block(1) > 1 { &tags[..usize::from(outline.in_block(1))] } else { &[] };
    Ok(json!({
        "reference": outline.reference().to_string(), "longest": outline.longest, "leaves": leaves,
        "first": digests[0].to_string(), "tags": hex_of(first.as_flattened()),
    }))
}

fn open<'a>(bytes: &'a [u8], input: &Value) -> Result<Head<'a>, String> {
    let sender = DeviceId(fixed(input, "sender"));
    Head::open(bytes, network(input), sender, &key(input), &mut vec![0; MAX_HEAD]).map_err(name)
}

pub fn head(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let head = open(&bytes, input)?;
    let outline = head.outline();
    Ok(json!({
        "reference": head.reference().to_string(), "number": head.id().number.0, "messages": outline.messages,
        "per_block": outline.per_block, "longest": outline.longest, "kind": outline.kind_number(), "label": head.label(),
        "not_before": head.window().not_before, "not_after": head.window().not_after,
        "previous": head.previous().map(|previous| previous.0), "first": head.first().to_string(),
    }))
}

/// Checks whether a chain may be delivered at a time.
pub fn timely(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let now = input["now"].as_u64();
    open(&bytes, input)?.window().check(now, number(input, "offset")).map_err(name)?;
    Ok(json!({}))
}

/// Passes leaves to a verifier in the order of arrival and returns the outcome of each.
pub fn take(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let mut chain = Incoming::<64>::new(&open(&bytes, input)?).map_err(name)?;
    let mut taken = Vec::new();
    for entry in list(input, "leaves") {
        let leaf = hex::decode(entry[2].as_str().unwrap()).unwrap();
        let (block, index) = (entry[0].as_u64().unwrap(), entry[1].as_u64().unwrap());
        taken.push(
            match chain.take(u32::try_from(block).unwrap(), u8::try_from(index).unwrap(), &leaf) {
                Ok(Taken::Repeated) => json!("repeated"),
                Ok(Taken::Pending { message }) => json!(["pending", hex_of(message)]),
                Ok(Taken::Verified { message, block, is_last }) => {
                    json!(["verified", hex_of(message), block, is_last])
                }
                Err(error) => json!(LeafError::name(error)),
            },
        );
    }
    Ok(json!({ "taken": taken, "block": chain.current(), "missing": chain.missing() }))
}

pub fn frame(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    Ok(match BroadcastFrame::decode(&bytes).map_err(name)? {
        BroadcastFrame::Certificate(bytes) => {
            json!({ "frame": "certificate", "bytes": hex_of(bytes) })
        }
        BroadcastFrame::Revocation(bytes) => {
            json!({ "frame": "revocation", "bytes": hex_of(bytes) })
        }
        BroadcastFrame::Head(bytes) => json!({ "frame": "head", "bytes": hex_of(bytes) }),
        BroadcastFrame::Single { head, leaf } => {
            json!({ "frame": "single", "head": hex_of(head), "leaf": hex_of(leaf) })
        }
        BroadcastFrame::Fragment { chain, block, index, leaf } => {
            json!({ "frame": "fragment", "chain": chain.to_string(), "block": block, "index": index, "leaf": hex_of(leaf) })
        }
        BroadcastFrame::Wanted { chain, block, wanted } => {
            json!({ "frame": "wanted", "chain": chain.to_string(), "block": block, "wanted": wanted })
        }
        BroadcastFrame::Holds { chain, block, index } => {
            json!({ "frame": "holds", "chain": chain.to_string(), "block": block, "index": index })
        }
        BroadcastFrame::Repair { chain, block, mask, lengths, bytes } => json!({
            "frame": "repair", "chain": chain.to_string(), "block": block, "mask": mask, "lengths": lengths, "bytes": hex_of(bytes),
        }),
        BroadcastFrame::Receipts { chain, receivers, tag } => json!({
            "frame": "receipts", "chain": chain.to_string(), "receivers": hex_of(receivers), "tag": hex_of(tag),
        }),
        BroadcastFrame::ReceiptsWanted { chain, most, receivers } => json!({
            "frame": "receipts wanted", "chain": chain.to_string(), "most": most, "receivers": hex_of(receivers),
        }),
        BroadcastFrame::HeadWanted { key, above, receiver, tag } => json!({
            "frame": "head wanted", "key": key.to_string(), "above": above, "receiver": receiver, "tag": hex_of(tag),
        }),
        BroadcastFrame::HeadFor { receiver, tag, head } => json!({
            "frame": "head for", "receiver": receiver, "tag": hex_of(tag), "head": hex_of(head),
        }),
        BroadcastFrame::ReceiverWanted { chain, block, wanted, attempt, receiver, tag } => json!({
            "frame": "receiver wanted", "chain": chain.to_string(), "block": block, "wanted": wanted,
            "attempt": attempt, "receiver": receiver, "tag": hex_of(tag),
        }),
    })
}

pub fn single(input: &Value) -> Verdict {
    let (bytes, sender) = (bytes(input, "bytes"), DeviceId(fixed(input, "sender")));
    let opened = open_single(&bytes, network(input), sender, &key(input), &mut vec![0; MAX_SINGLE])
        .map_err(name)?;
    Ok(json!({
        "number": opened.id().number.0, "kind": opened.outline().kind_number(), "label": opened.label(), "message": hex_of(opened.message()),
        "digest": opened.digest().to_string(),
    }))
}

/// Checks evidence and returns the messages that it proves.
pub fn evidence(input: &Value) -> Verdict {
    let (bytes, bases) = (bytes(input, "bytes"), bases(input));
    let mut check = EvidenceCheck::new(network(input), &bases);
    let (mut sender, mut proven, mut pending, mut rest) =
        (Value::Null, Vec::new(), Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let (frame, after) = rest.split_at(item_length(rest).map_err(name)?);
        rest = after;
        match check.take(frame).map_err(name)? {
            Shown::Certificate { certificate, .. } => {
                sender = json!(certificate.sender.to_string());
            }
            Shown::Head(_) => {}
            Shown::Message { message, is_proven, .. } => {
                pending.push(hex_of(message));
                if is_proven {
                    proven.append(&mut pending);
                }
            }
        }
    }
    Ok(
        json!({ "sender": sender, "proven": proven, "messages": check.proven().map(|(_, messages)| messages) }),
    )
}
