//! SenML packs in CBOR (RFC 8428, section 6). Numbers are integers and decimal fractions, which are
//! exact, and never floats.

use moteseal_core::cbor::{DecodeError, Reader};
use moteseal_core::record::DeviceId;
use moteseal_core::schema::is_secondary_unit;

use super::json::SECONDARY_UNITS;
use super::number::add_head;
use super::pack::MAX_VALUES;
use super::{Measured, Measurement, Number, Pack};

// The labels of RFC 8428, section 6, table 4.
const VERSION: i64 = -1;
const BASE_NAME: i64 = -2;
const BASE_TIME: i64 = -3;
const NAME: i64 = 0;
const UNIT: i64 = 1;
const VALUE: i64 = 2;
const TEXT: i64 = 3;
const BOOLEAN: i64 = 4;
const DATA: i64 = 8;

fn add_text(out: &mut Vec<u8>, text: &str) {
    add_head(out, 3, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Returns a SenML pack.
pub(super) fn pack(pack: &Pack) -> Vec<u8> {
    let mut out = Vec::new();
    let has_version = pack.values.iter().any(|value| is_secondary_unit(&value.unit));
    add_head(&mut out, 4, pack.values.len() as u64);
    for (at, Measurement { name, unit, value }) in pack.values.iter().enumerate() {
        let mut entries: Vec<(i64, Vec<u8>)> = Vec::new();
        let mut add = |label: i64, write: &dyn Fn(&mut Vec<u8>)| {
            let mut item = Vec::new();
            write(&mut item);
            entries.push((label, item));
        };
        add(NAME, &|out| add_text(out, name));
        if !unit.is_empty() {
            add(UNIT, &|out| add_text(out, unit));
        }
        match value {
            Measured::Number(number) => add(VALUE, &|out| out.extend(number.to_cbor())),
            Measured::Text(text) => add(TEXT, &|out| add_text(out, text)),
            Measured::Boolean(value) => {
                // The simple values of CBOR (RFC 8949, section 3.3).
                add(BOOLEAN, &|out| out.push(if *value { 0xf5 } else { 0xf4 }));
            }
            Measured::Data(data) => add(DATA, &|out| {
                add_head(out, 2, data.len() as u64);
                out.extend_from_slice(data);
            }),
        }
        if at == 0 {
            if has_version {
                add(VERSION, &|out| add_head(out, 0, SECONDARY_UNITS.into()));
            }
            add(BASE_NAME, &|out| add_text(out, &pack.base_name()));
            if let Some(ms) = pack.unix_ms {
                add(BASE_TIME, &|out| out.extend(Number::seconds(ms).to_cbor()));
            }
        }
        add_head(&mut out, 5, entries.len() as u64);
        for (label, item) in entries {
            let (major, argument) = if label < 0 { (1, -1 - label) } else { (0, label) };
            add_head(&mut out, major, argument.unsigned_abs());
            out.extend(item);
        }
    }
    out
}

/// Reads a SenML pack.
pub(super) fn read_pack(bytes: &[u8], device: DeviceId) -> Result<Pack, DecodeError> {
    let mut reader = Reader::new(bytes)?;
    let mut pack = Pack { device, unix_ms: None, values: Vec::new() };
    let records = reader.array_any()?;
    if records > MAX_VALUES as u64 {
        return Err(DecodeError::FieldOutOfRange);
    }
    for _ in 0..records {
        let (mut name, mut unit, mut value) = (None, "", None);
        for _ in 0..reader.map()? {
            match reader.i64()? {
                // The caller compares the base name and the version.
                VERSION | BASE_NAME => drop(reader.raw()?),
                BASE_TIME => {
                    let time = Number::from_cbor(&mut reader)?;
                    pack.unix_ms = Some(time.to_ms().ok_or(DecodeError::FieldOutOfRange)?);
                }
                NAME => name = Some(reader.text()?),
                UNIT => unit = reader.text()?,
                VALUE => value = Some(Measured::Number(Number::from_cbor(&mut reader)?)),
                TEXT => value = Some(Measured::Text(reader.text()?.to_owned())),
                BOOLEAN => value = Some(Measured::Boolean(reader.bool()?)),
                DATA => value = Some(Measured::Data(reader.bytes()?.to_vec())),
                _ => return Err(DecodeError::FieldOutOfRange),
            }
        }
        let (Some(name), Some(value)) = (name, value) else {
            return Err(DecodeError::FieldOutOfRange);
        };
        pack.values.push(Measurement { name: name.to_owned(), unit: unit.to_owned(), value });
    }
    Ok(pack)
}
