//! The operation on signed readings.

use moteseal_core::roster::Directory;
use moteseal_verify::reading::Reading;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, name, number};

/// Verifies a response (spec/objects.md, section 7.2).
pub fn open(directory: &impl Directory, input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let reading = Reading::open(number(input, "format"), &bytes, directory).map_err(name)?;
    let values = reading.pack.values.iter();
    let values: Vec<Value> =
        values.map(|value| json!([value.name, value.unit, value.value.to_string()])).collect();
    Ok(json!({
        "device": reading.device.to_string(),
        "index": reading.index.0,
        "epoch": reading.epoch.0,
        "seq": reading.seq.0,
        "format": reading.format.number(),
        "time": reading.pack.unix_ms,
        "values": values,
    }))
}
