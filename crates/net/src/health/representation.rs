//! The representations of a record of health: compact, SenML (RFC 8428) and JSON.

use std::time::Duration;

use bytes::Bytes;
use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::health::{Health, ITEMS, Item, MAX_ENCODED};
use serde_json::{Map, Value, json};

use crate::coap::{Code, Format, Response};

/// The labels of SenML in CBOR (RFC 8428, section 6).
const BASE_NAME: i64 = -2;
const BASE_TIME: i64 = -3;
const NAME: u8 = 0;
const UNIT: u8 = 1;
const VALUE: u8 = 2;

/// Returns the response with a record of this age. `name` is the name of the node, for SenML.
#[must_use]
pub fn content(name: &str, (health, age): (&Health, Duration), accept: Option<Format>) -> Response {
    let name = (name, age.as_secs());
    let format = accept.unwrap_or(Format::CBOR);
    let body = match format {
        Format::CBOR => encoded(health),
        Format::SENML_JSON => senml_json(name, health),
        Format::SENML_CBOR => senml_cbor(name, health),
        Format::JSON => json(health).to_string().into(),
        _ => return Response::error(Code::NOT_ACCEPTABLE, "the formats are 60, 110, 112 and 50"),
    };
    Response::content(format, body)
}

/// Returns the compact form.
pub(super) fn encoded(health: &Health) -> Bytes {
    let mut buffer = [0; MAX_ENCODED];
    let mut out = Writer::new(&mut buffer);
    let written = health.encode(&mut out);
    debug_assert!(written.is_ok(), "MAX_ENCODED bytes suffice");
    Bytes::copy_from_slice(out.written())
}

/// Returns a record as a JSON object: `boot`, `uptime_s`, and an object for each group.
#[must_use]
pub fn json(health: &Health) -> Value {
    let mut object = Map::new();
    object.insert("boot".to_owned(), health.boot.into());
    object.insert("uptime_s".to_owned(), health.uptime_s.into());
    for (item, value) in health.values() {
        let group = object.entry(item.group().name()).or_insert_with(|| json!({}));
        if let Some(group) = group.as_object_mut() {
            group.insert(item.name().to_owned(), number(item, value));
        }
    }
    Value::Object(object)
}

/// Returns a value in its unit.
#[allow(clippy::cast_precision_loss)]
fn number(item: Item, value: i64) -> Value {
    // At most 32 bits, so the division is as exact as the text.
    if item.divisor() == 1 {
        value.into()
    } else {
        (value as f64 / f64::from(item.divisor())).into()
    }
}

fn label(item: Item) -> String {
    format!("{}/{}", item.group().name(), item.name())
}

/// The values that a pack of SenML has in addition to the items, with their units.
fn totals(health: &Health) -> [(&'static str, u32, &'static str); 2] {
    [("boot", health.boot, ""), ("uptime", health.uptime_s, "s")]
}

fn senml_json((name, age_s): (&str, u64), health: &Health) -> Bytes {
    let record = |name: &str, value: Value, unit: &str| {
        let mut record = json!({ "n": name, "v": value });
        if !unit.is_empty() {
            record["u"] = unit.into();
        }
        record
    };
    let own = totals(health).map(|(name, value, unit)| record(name, value.into(), unit));
    let items = health.values();
    let items = items.map(|(item, value)| record(&label(item), number(item, value), item.unit()));
    let mut pack: Vec<Value> = own.into_iter().chain(items).collect();
    if let Some(first) = pack.first_mut() {
        first["bn"] = format!("{name}/").into();
        // A time below 2^28 is relative to now (RFC 8428, section 4.5.3).
        if age_s > 0 {
            first["bt"] = (-i64::try_from(age_s).unwrap_or(i64::MAX)).into();
        }
    }
    Value::Array(pack).to_string().into()
}

fn senml_cbor(name: (&str, u64), health: &Health) -> Bytes {
    // Each record has at most 64 bytes with its names.
    let mut buffer = vec![0; 64 * (ITEMS + 3) + name.0.len()];
    let mut out = Writer::new(&mut buffer);
    let written = write_senml(&mut out, name, health);
    debug_assert!(written.is_ok());
    Bytes::copy_from_slice(out.written())
}

fn write_senml(
    out: &mut Writer<'_>,
    (name, age_s): (&str, u64),
    health: &Health,
) -> Result<(), BufferTooSmall> {
    out.array(2 + health.values().count() as u64)?;
    for (place, (own, value, unit)) in totals(health).into_iter().enumerate() {
        let is_first = place == 0;
        let has_time = is_first && age_s > 0;
        out.map(2 + u64::from(is_first) + u64::from(has_time) + u64::from(!unit.is_empty()))?;
        out.uint(NAME)?.text(own)?;
        if !unit.is_empty() {
            out.uint(UNIT)?.text(unit)?;
        }
        out.uint(VALUE)?.uint(value)?;
        // Deterministic CBOR has negative keys after the others.
        if is_first {
            out.int(BASE_NAME)?.text(&format!("{name}/"))?;
        }
        if has_time {
            out.int(BASE_TIME)?.int(-i64::try_from(age_s).unwrap_or(i64::MAX))?;
        }
    }
    for (item, value) in health.values() {
        out.map(2 + u64::from(!item.unit().is_empty()))?.uint(NAME)?.text(&label(item))?;
        if !item.unit().is_empty() {
            out.uint(UNIT)?.text(item.unit())?;
        }
        out.uint(VALUE)?;
        match item.divisor() {
            1 => out.int(value)?,
            // A decimal fraction (RFC 8949, section 3.4.4).
            _ => out.tag(4)?.array(2)?.int(-1)?.int(value)?,
        };
    }
    Ok(())
}
