//! Runs the operations of the vectors for the link between devices and coordinator
//! (spec/coordinator.md, section 4) with the product's code.

use std::ops::Range;

use moteseal_core::Digest;
use moteseal_core::link::{FrameError, LinkKey, MAX_FRAME, claimed_device};
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, Round, SealIndex, Sequence,
};
use moteseal_seal::sample::{Followed, FrameOutcome};
use moteseal_seal::wire::{
    Acknowledgement, EventAnswer, EventFrame, Forward, Refusal, StoredSeal, Uplink,
};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, list};

pub(crate) fn key_of(input: &Value, device: DeviceId) -> LinkKey {
    LinkKey::new(&LinkKey::secret_of(
        &fixed(input, "group_secret"),
        GroupId(fixed(input, "group")),
        device,
    ))
}

fn name(error: FrameError) -> String {
    error.name().to_owned()
}

/// Returns the keys that a device and its coordinator share.
pub fn secret(input: &Value) -> Value {
    let device = DeviceId(fixed(input, "device"));
    let secret =
        LinkKey::secret_of(&fixed(input, "group_secret"), GroupId(fixed(input, "group")), device);
    let dtls_psk = hex::encode(*LinkKey::dtls_psk(&secret));
    json!({ "dtls_psk": dtls_psk, "secret": hex::encode(*secret) })
}

/// Opens a frame of a device, like a coordinator that knows every device of the group.
pub fn up(input: &Value) -> Verdict {
    let frame = bytes(input, "frame");
    let device = claimed_device(&frame)
        .filter(|_| frame.len() <= MAX_FRAME)
        .ok_or(FrameError::Malformed)
        .map_err(name)?;
    let opened = Uplink::open(&frame, &key_of(input, device)).map_err(name)?;
    Ok(match opened {
        Uplink::Forward(forward) => {
            let size = match forward.framing {
                Framing::Fixed(size) => size.get(),
                Framing::Prefixed => 0,
            };
            let event = |(seq, level, record): (Sequence, Level, &[u8])| {
                json!([seq.0, level.0, hex::encode(record)])
            };
            let mut read = json!({
                "frame": "forward",
                "device": device.to_string(),
                "index": forward.index.0,
                "epoch": forward.epoch.0,
                "own_round": forward.own_round.0,
                "from": forward.from.0,
                "until": forward.until.0,
                "size": size,
                "events": forward.events().map(event).collect::<Vec<_>>(),
            });
            if forward.digests.is_some() {
                let subtree = |(leaves, root): (Range<u64>, Digest)| {
                    json!([leaves.start, leaves.end, root.to_string()])
                };
                read["subtrees"] = forward.subtrees().map(subtree).collect();
            }
            read
        }
        Uplink::Close { schema, open, part } => json!({
            "frame": "close",
            "device": device.to_string(),
            "schema": schema.to_string(),
            "open": hex::encode(open),
            "part": hex::encode(part),
        }),
        Uplink::Schema(schema) => {
            json!({ "frame": "schema", "device": device.to_string(), "schema": hex::encode(schema) })
        }
        Uplink::Challenge(challenge) => json!({
            "frame": "challenge",
            "device": device.to_string(),
            "challenge": challenge,
        }),
    })
}

/// Opens a frame of the coordinator, as a device does.
pub fn down(input: &Value) -> Verdict {
    let (frame, device) = (bytes(input, "frame"), DeviceId(fixed(input, "device")));
    let opened = Acknowledgement::open(&frame, device, &key_of(input, device)).map_err(name)?;
    let sealed = |sealed: StoredSeal| {
        json!({
            "index": sealed.index.0,
            "epoch": sealed.epoch.0,
            "last": u8::from(sealed.last_in_epoch),
            "digest": sealed.digest.to_string(),
        })
    };
    Ok(json!({
        "index": opened.index.0,
        "next": opened.next.0,
        "sealed": opened.sealed.map(sealed),
        "wants": u8::from(opened.wants_schema),
        "challenge": opened.challenge,
    }))
}

/// Opens a refusal of the coordinator, as a device does.
pub fn refusal(input: &Value) -> Verdict {
    let (frame, device) = (bytes(input, "frame"), DeviceId(fixed(input, "device")));
    let key = key_of(input, device);
    let opened = Refusal::open(&frame, device, &key).map_err(name)?;
    Ok(json!({ "index": opened.index.0, "final": u8::from(opened.is_final), "name": opened.name }))
}

/// Opens a frame with an urgent event, like a coordinator that knows every device of the group.
pub fn event(input: &Value) -> Verdict {
    let frame = bytes(input, "frame");
    let device = claimed_device(&frame)
        .filter(|_| frame.len() <= MAX_FRAME)
        .ok_or(FrameError::Malformed)
        .map_err(name)?;
    let EventFrame { schema, event } =
        EventFrame::open(&frame, &key_of(input, device)).map_err(name)?;
    Ok(json!({
        "device": device.to_string(),
        "schema": hex::encode(schema),
        "event": hex::encode(event),
    }))
}

/// Opens the coordinator's answer to an urgent event, as a device does.
pub fn event_answer(input: &Value) -> Verdict {
    let (frame, device) = (bytes(input, "frame"), DeviceId(fixed(input, "device")));
    let answer = EventAnswer::open(&frame, device, &key_of(input, device)).map_err(name)?;
    let digest = answer.digest().to_string();
    Ok(match answer {
        EventAnswer::Stored { .. } => json!({ "digest": digest }),
        EventAnswer::Refused { is_final, name, .. } => {
            json!({ "digest": digest, "final": u8::from(is_final), "name": name })
        }
    })
}

/// Passes forward frames to a verifier that follows the device from the first frame on, and returns
/// the results.
pub fn follow(input: &Value) -> Value {
    let mut at: Option<Followed> = None;
    let mut results = Vec::new();
    for frame in list(input, "frames") {
        let field = |place: usize| frame[place].as_u64().unwrap();
        let forward = Forward {
            index: SealIndex(u32::try_from(field(0)).unwrap()),
            epoch: EpochNumber(field(1)),
            own_round: Round(u8::try_from(field(2)).unwrap()),
            from: Sequence(field(3)),
            until: Sequence(field(4)),
            framing: Framing::Prefixed,
            events: &[],
            digests: None,
        };
        let followed = at.get_or_insert(Followed::start(&forward));
        let before = *followed;
        let (what, first) = match followed.receive(&forward) {
            FrameOutcome::New(first) => ("news", Some(first.0)),
            FrameOutcome::Old => ("old", None),
            FrameOutcome::Gap => ("gap", None),
            FrameOutcome::Next(next) => {
                *followed = next;
                assert_eq!(followed.receive(&forward), FrameOutcome::New(Sequence(0)));
                ("next", Some(0))
            }
        };
        assert!(first.is_some() || *followed == before);
        results.push(json!([
            what,
            first,
            followed.index.0,
            followed.epoch.0,
            followed.next.0,
            followed.confirmed.0
        ]));
    }
    json!({ "heard": results })
}
