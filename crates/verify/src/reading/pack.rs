//! What a reading contains, independent of its format.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::record::DeviceId;
use moteseal_core::schema::{Decimal, Field, MAX_FIELDS, Schema, Value};
use moteseal_seal::{MAX_REPRESENTATION, ReadingFormat};

use super::{Number, ReadingError, json, senml};

/// The name of a reading of a stream without columns.
pub const OPAQUE: &str = "record";
/// What precedes the device's id in the base name of a SenML pack. A colon follows the id.
const BASE_NAME: &str = "urn:moteseal:device:";
/// The maximum number of values of a reading. A point has two.
pub(super) const MAX_VALUES: usize = 2 * MAX_FIELDS;
/// SenML times below this number of milliseconds are relative (RFC 8428, section 4.5.3).
const LEAST_TIME_MS: u64 = (1 << 28) * 1000;

/// The values of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The device.
    pub device: DeviceId,
    /// When the reading was taken, in milliseconds since 1970, if the device knows the time.
    pub unix_ms: Option<u64>,
    /// The values, in the order of the columns. Null is left out. A point has two values, its latitude
    /// and its longitude.
    pub values: Vec<Measurement>,
}

/// The value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The column's name ([`column_name`]).
    pub name: String,
    /// The unit, or empty. A JSON object has no units.
    pub unit: String,
    /// The value.
    pub value: Measured,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// A number.
    Number(Number),
    /// A boolean.
    Boolean(bool),
    /// A text, without control characters: that of a text, a label or a timestamp; `NaN`, `inf` or
    /// `-inf`; in a JSON object, also bytes in base64url.
    Text(String),
    /// The bytes of a reading without columns.
    Data(Vec<u8>),
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Data(data) => f.write_str(&URL_SAFE_NO_PAD.encode(data)),
        }
    }
}

/// Returns the name of a column in URIs and representations: the field's name if it begins with a
/// letter or digit, has only the characters that SenML allows in names, and is not `signature`;
/// otherwise `-` and the field's position.
#[must_use]
pub fn column_name(field: &Field<'_>, position: usize) -> String {
    if is_name(field.name) && field.name.starts_with(|first: char| first != '-') {
        field.name.to_owned()
    } else {
        format!("-{position}")
    }
}

/// Returns the first part of the names of a point's values. It is the column's name, unless another
/// column has one of the resulting names.
fn point_name(name: String, position: usize, schema: &Schema<'_>) -> String {
    let is_used = |part: &str| schema.field(&format!("{name}/{part}")).is_some();
    if is_used("lat") || is_used("lon") { format!("-{position}") } else { name }
}

/// Returns whether a text can be a column's name.
fn is_name(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or(text);
    let is_other = |byte: u8| byte.is_ascii_alphanumeric() || b"-:./_".contains(&byte);
    rest.starts_with(|first: char| first.is_ascii_alphanumeric())
        && rest.bytes().all(is_other)
        && text != "signature"
}

/// Returns whether a text has only characters that JSON does not escape.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

impl Pack {
    /// Creates the values of a record. With `column`, only that column. Encrypted columns are left out,
    /// because a signed reading is not encrypted. Returns `None` if there is no such column or it is
    /// encrypted, if the record does not fit the schema, or if every value is null.
    #[must_use]
    pub fn new(
        device: DeviceId,
        unix_ms: u64,
        (schema, record): (&Schema<'_>, &[u8]),
        column: Option<&str>,
    ) -> Option<Self> {
        let mut values = Vec::new();
        for (position, field) in schema.fields().enumerate() {
            let name = column_name(&field, position);
            if field.suite.is_some() || column.is_some_and(|column| column != name) {
                continue;
            }
            let number =
                |text: String| Number::parse(&text).map_or(Measured::Text(text), Measured::Number);
            let (value, unit) = match field.read(record).ok()? {
                Value::Null => continue,
                Value::TimeMs(ms) => {
                    let seconds = Decimal { numerator: ms.into(), divisor: 1000 };
                    (number(seconds.to_string()), "s")
                }
                Value::Point { latitude, longitude } => {
                    let name = point_name(name, position, schema);
                    for (part, degrees) in [("lat", latitude), ("lon", longitude)] {
                        values.push(Measurement {
                            name: format!("{name}/{part}"),
                            unit: part.to_owned(),
                            value: number(degrees.to_string()),
                        });
                    }
                    continue;
                }
                Value::Bool(value) => (Measured::Boolean(value), field.unit),
                value @ (Value::Integer(_) | Value::Float(_)) => {
                    (number(value.to_string()), field.unit)
                }
                value => (Measured::Text(value.to_string()), field.unit),
            };
            values.push(Measurement { name, unit: unit.to_owned(), value });
        }
        if schema.fields().next().is_none() && column.is_none_or(|column| column == OPAQUE) {
            let value = Measured::Data(record.to_vec());
            values.push(Measurement { name: OPAQUE.to_owned(), unit: String::new(), value });
        }
        let unix_ms = Some(unix_ms).filter(|ms| *ms >= LEAST_TIME_MS);
        (!values.is_empty()).then_some(Self { device, unix_ms, values })
    }

    /// Returns the base name of the SenML pack.
    pub(super) fn base_name(&self) -> String {
        format!("{BASE_NAME}{}:", self.device)
    }

    /// Returns the representation in a format.
    #[must_use]
    pub fn encode(&self, format: ReadingFormat) -> Vec<u8> {
        match format {
            ReadingFormat::Json => json::object(self).into_bytes(),
            ReadingFormat::SenmlJson => json::pack(self).into_bytes(),
            ReadingFormat::SenmlCbor => senml::pack(self),
        }
    }

    /// Reads a representation. Accepts only the bytes that [`encode`](Self::encode) returns.
    ///
    /// # Errors
    /// `MalformedReading`.
    pub fn decode(
        format: ReadingFormat,
        bytes: &[u8],
        device: DeviceId,
    ) -> Result<Self, ReadingError> {
        let read = || {
            if bytes.len() > MAX_REPRESENTATION {
                return None;
            }
            let text = || str::from_utf8(bytes).ok();
            let pack = match format {
                ReadingFormat::Json => json::read_object(text()?, device)?,
                ReadingFormat::SenmlJson => json::read_pack(text()?, device)?,
                ReadingFormat::SenmlCbor => senml::read_pack(bytes, device).ok()?,
            };
            (pack.is_valid() && pack.encode(format) == bytes).then_some(pack)
        };
        read().ok_or(ReadingError::MalformedReading)
    }

    /// Returns whether the values could be those of a reading.
    fn is_valid(&self) -> bool {
        let mut names: Vec<&str> = self.values.iter().map(|value| value.name.as_str()).collect();
        names.sort_unstable();
        (1..=MAX_VALUES).contains(&names.len())
            && names.windows(2).all(|pair| pair[0] != pair[1])
            && self.unix_ms.is_none_or(|ms| ms >= LEAST_TIME_MS)
            && self.values.iter().all(|Measurement { name, unit, value }| {
                let text = if let Measured::Text(text) = value { text } else { "" };
                is_name(name) && is_plain(unit) && !text.contains(char::is_control)
            })
    }
}
