//! Runs the operations of the vectors for health (spec/health.md) with the product's code.

use moteseal_core::health::{Columns, Group, Health, MAX_ROW};
use moteseal_core::link::{FrameError, MAX_FRAME, claimed_device};
use moteseal_core::record::DeviceId;
use moteseal_core::schema::Schema;
use moteseal_seal::wire::{HealthFrame, HealthSession};
use serde_json::{Value, json};

use crate::link::key_of;
use crate::ops::{Verdict, bytes, fixed, hex_of, name, text};

/// Returns the values of all groups, with null for what is unknown.
fn shown(health: &Health) -> Value {
    let group = |group: &Group| group.items().map(|item| health.get(item)).collect::<Vec<_>>();
    json!({
        "boot": health.boot,
        "uptime_s": health.uptime_s,
        "groups": Group::ALL.iter().map(group).collect::<Vec<_>>(),
    })
}

/// Reads a record.
pub fn record(input: &Value) -> Verdict {
    Health::decode(&bytes(input, "record")).map(|health| shown(&health)).map_err(name)
}

/// Writes the row of a stream of health with this schema.
pub fn row(input: &Value) -> Verdict {
    let schema = bytes(input, "schema");
    let schema = Schema::decode(&schema).map_err(name)?;
    let health = Health::decode(&bytes(input, "record")).map_err(name)?;
    let mut row = [0; MAX_ROW];
    let place = (input["at"].as_u64().unwrap(), text(input, "node"));
    let length = Columns::row(&schema, place, &health, &mut row).map_err(name)?;
    Ok(json!({ "row": hex_of(&row[..length]) }))
}

/// Opens a device's report, like a coordinator that knows every device of the group.
pub fn report(input: &Value) -> Verdict {
    let frame = bytes(input, "frame");
    let device = claimed_device(&frame)
        .filter(|_| frame.len() <= MAX_FRAME)
        .ok_or(FrameError::Malformed)
        .map_err(name)?;
    let opened = HealthFrame::open(&frame, &key_of(input, device)).map_err(name)?;
    Ok(json!({
        "device": device.to_string(),
        "session": opened.session,
        "interval": opened.interval_s,
        "health": shown(&opened.health),
    }))
}

/// Opens the coordinator's offer of a session, as a device does.
pub fn session(input: &Value) -> Verdict {
    let (frame, device) = (bytes(input, "frame"), DeviceId(fixed(input, "device")));
    let HealthSession { session, unix_ms, answers: (boot, uptime_s) } =
        HealthSession::open(&frame, device, &key_of(input, device)).map_err(name)?;
    Ok(json!({ "session": session, "time": unix_ms, "boot": boot, "uptime_s": uptime_s }))
}
