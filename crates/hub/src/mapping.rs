//! How a message becomes a row: which value of the message belongs into which column.
//!
//! Each column has an origin: a value of the message, the message's topic, or the time at which the
//! hub received the message. All other columns are marked as relayed, because the sensor proves
//! nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use moteseal_api::ErrorKind;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema, SchemaError, Value, ValueError};

use crate::json::{Payload, Pointer, Scalar};

/// The maximum number of characters of a value in an error message.
const SHOWN: usize = 40;
/// Numbers below this are seconds since 1970, other numbers are milliseconds. As seconds, it is in
/// the year 5138; as milliseconds, in 1973.
const LEAST_MS: f64 = 1e11;

/// The settings of a mapping, as the configuration has them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The columns in the form `NAME:UNIT:TYPE`.
    pub columns: Vec<String>,
    /// The origin of each column; empty if the origin of each is `/NAME`.
    pub from: Vec<String>,
    /// The values that a message must have, by their origin. Other messages are ignored.
    pub when: BTreeMap<String, String>,
    /// New texts for the values of an origin.
    pub map: BTreeMap<String, BTreeMap<String, String>>,
    /// The factor of the numbers of an origin, for example 0.001 for thousandths of a degree.
    pub scale: BTreeMap<String, f64>,
    /// Whether numbers are rounded to the scale of their column.
    pub rounds: bool,
    /// The offset from UTC of times that state none, such as `+01:00`.
    pub utc_offset: Option<String>,
}

/// Why a mapping is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A column is not valid.
    #[error("columns: {column:?}: {error}")]
    Column {
        /// The column.
        column: String,
        /// The cause.
        error: SchemaError,
    },
    /// There are no columns, or too many.
    #[error("columns: {0}")]
    Columns(SchemaError),
    /// The number of origins differs from the number of columns.
    #[error("from has {from} entries, but there are {columns} columns; write one for each column")]
    OriginCount {
        /// The number of origins.
        from: usize,
        /// The number of columns.
        columns: usize,
    },
    /// An origin is not valid.
    #[error(
        "{key}: {origin:?} is no origin of a value; write a JSON Pointer such as \"/temperature\", \
         \"TOPIC#/temperature\", \"topic\" or \"received_at\""
    )]
    Origin {
        /// The key of the configuration.
        key: &'static str,
        /// The origin.
        origin: String,
    },
    /// A renaming or a factor belongs to no column.
    #[error("{key}: {origin:?} is the origin of no column; use the same text as in `from`")]
    Unused {
        /// The key of the configuration.
        key: &'static str,
        /// The origin.
        origin: String,
    },
    /// A factor is 0 or not a number, or the column is not numeric.
    #[error("scale: the factor of {0:?} must be a number other than 0, for a column of numbers")]
    Factor(String),
    /// The offset from UTC is not valid.
    #[error("utc_offset: {0:?} is no offset from UTC; write it as +01:00")]
    UtcOffset(String),
}

impl MappingError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Column { error, .. } | Self::Columns(error) => error.name(),
            Self::OriginCount { .. } => "OriginCount",
            Self::Origin { .. } => "BadOrigin",
            Self::Unused { .. } => "UnusedOrigin",
            Self::Factor(_) => "BadFactor",
            Self::UtcOffset(_) => "BadUtcOffset",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(MappingError);

/// Why a message is no row.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The message is not text in UTF-8.
    #[error("the message is not text in UTF-8")]
    NotText,
    /// A column that must have a value has none.
    #[error(
        "column {column}: the message has no value at {origin}; if it may be missing, write ? after \
         the type of the column"
    )]
    NoValue {
        /// The name of the column.
        column: String,
        /// The origin of the column.
        origin: String,
    },
    /// A value is an object or an array.
    #[error("column {column}: the value at {origin} is an object or an array")]
    Nested {
        /// The name of the column.
        column: String,
        /// The origin of the column.
        origin: String,
    },
    /// A value does not fit its column.
    #[error("column {column}: {what}")]
    Value {
        /// The name of the column.
        column: String,
        /// The value, unless the column is encrypted; its origin, and what is wrong.
        what: String,
        /// The name of the error.
        name: &'static str,
    },
}

impl RowError {
    /// Returns the error's name, which is also the reason in the metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotText => "NotText",
            Self::NoValue { .. } => "NoValue",
            Self::Nested { .. } => "NestedValue",
            Self::Value { name, .. } => name,
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(RowError);

/// A message of a sensor.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The topic, for a message of a broker.
    pub topic: Option<&'a str>,
    /// The message.
    pub payload: &'a [u8],
    /// When the hub received it, in milliseconds since 1970.
    pub received_ms: u64,
}

/// A row of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The record.
    pub record: Vec<u8>,
    /// The texts of the cells in the order of the columns; `None` for null.
    pub cells: Vec<Option<String>>,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
enum Origin {
    /// A value of the message. If there is a topic, only messages of this topic have the value.
    Message { topic: Option<String>, pointer: Pointer },
    /// The topic of the message.
    Topic,
    /// When the hub received the message.
    ReceivedAt,
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "received_at" => return Some(Self::ReceivedAt),
            "topic" => return Some(Self::Topic),
            _ => {}
        }
        let (topic, pointer) = match text.split_once('#') {
            // A pointer may contain the character, a topic cannot.
            Some((topic, pointer)) if !topic.starts_with('/') => {
                (Some(topic).filter(|topic| !topic.is_empty()).map(str::to_owned), pointer)
            }
            _ => (None, text),
        };
        Some(Self::Message { topic, pointer: Pointer::parse(pointer)? })
    }

    /// Returns the value, or `None` if the message has none.
    fn value<'a>(&self, input: &Input<'a>, payload: &Payload<'a>) -> Option<Scalar<'a>> {
        match self {
            Self::Message { topic, pointer } => {
                let is_here = topic.as_deref().is_none_or(|wanted| {
                    input
                        .topic
                        .and_then(|topic| topic.strip_suffix(wanted))
                        .is_some_and(|before| before.is_empty() || before.ends_with('/'))
                });
                if is_here { payload.value(pointer) } else { None }
            }
            Self::Topic => input.topic.map(|topic| Scalar::Text(Cow::Borrowed(topic))),
            Self::ReceivedAt => Some(Scalar::Text(Cow::Owned(input.received_ms.to_string()))),
        }
    }
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    origin: Origin,
    /// The origin as the configuration has it.
    shown: String,
    renamed: BTreeMap<String, String>,
    factor: Option<f64>,
}

/// A checked mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    schema: Vec<u8>,
    columns: Vec<Column>,
    when: Vec<(Origin, String)>,
    rounds: bool,
    offset: Option<Offset>,
}

impl Mapping {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`MappingError`]: the first mistake.
    pub fn new(settings: &Settings) -> Result<Self, MappingError> {
        let mut fields = Vec::new();
        for column in &settings.columns {
            let field = Field::parse(column);
            fields.push(
                field.map_err(|error| MappingError::Column { column: column.clone(), error })?,
            );
        }
        if !settings.from.is_empty() && settings.from.len() != fields.len() {
            let (from, columns) = (settings.from.len(), fields.len());
            return Err(MappingError::OriginCount { from, columns });
        }
        let origin = |key, text: &str| {
            Origin::parse(text).ok_or_else(|| MappingError::Origin { key, origin: text.to_owned() })
        };
        let mut columns = Vec::new();
        for (place, field) in fields.iter_mut().enumerate() {
            let shown = match settings.from.get(place) {
                Some(from) => from.clone(),
                None => format!("/{}", field.name.replace('~', "~0").replace('/', "~1")),
            };
            let renamed = settings.map.get(&shown).cloned().unwrap_or_default();
            let factor = settings.scale.get(&shown).copied();
            if factor.is_some_and(|factor| {
                factor == 0.0 || !factor.is_finite() || !field.kind.is_numeric()
            }) {
                return Err(MappingError::Factor(shown));
            }
            let (name, origin) = (field.name.to_owned(), origin("from", &shown)?);
            let column = Column { name, origin, shown, renamed, factor };
            *field = relayed(*field, &column.origin);
            columns.push(column);
        }
        let keys = settings.map.keys().map(|key| ("map", key));
        let mut keys = keys.chain(settings.scale.keys().map(|key| ("scale", key)));
        if let Some((key, unused)) =
            keys.find(|(_, key)| columns.iter().all(|column| column.shown != **key))
        {
            return Err(MappingError::Unused { key, origin: unused.clone() });
        }
        let when =
            settings.when.iter().map(|(key, value)| Ok((origin("when", key)?, value.clone())));
        let when = when.collect::<Result<_, _>>()?;
        let offset = settings
            .utc_offset
            .as_ref()
            .map(|text| utc_offset(text).ok_or_else(|| MappingError::UtcOffset(text.clone())));
        let mut buffer = vec![0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer).map_err(MappingError::Columns)?;
        if columns.is_empty() {
            let error = SchemaError::MalformedField;
            return Err(MappingError::Columns(error));
        }
        Ok(Self {
            schema: schema.as_bytes().to_vec(),
            columns,
            when,
            rounds: settings.rounds,
            offset: offset.transpose()?,
        })
    }

    /// Returns the encoded schema of the rows.
    #[must_use]
    pub fn schema(&self) -> &[u8] {
        &self.schema
    }

    /// Turns a message into a row. Returns `None` for a message without a row: `when` does not match,
    /// or no column with a value of the message has one.
    ///
    /// # Errors
    /// [`RowError`]: the first value that is wrong.
    pub fn row(&self, input: &Input<'_>) -> Result<Option<Row>, RowError> {
        let payload = Payload::read(input.payload).ok_or(RowError::NotText)?;
        for (origin, wanted) in &self.when {
            let value = origin.value(input, &payload);
            if value.is_none_or(|value| text(&value).as_deref() != Some(wanted)) {
                return Ok(None);
            }
        }
        // The schema was encoded by `new`.
        let schema = Schema::decode(&self.schema).unwrap_or(Schema::OPAQUE);
        let mut record = vec![0; schema.longest_record()];
        let mut cells = Vec::with_capacity(self.columns.len());
        let mut has_value = false;
        for (field, column) in schema.fields().zip(&self.columns) {
            let found = column.origin.value(input, &payload);
            has_value |= matches!(column.origin, Origin::Message { .. })
                && found.as_ref().is_some_and(|value| *value != Scalar::Null);
            let cell = match &found {
                None | Some(Scalar::Null) => None,
                Some(Scalar::Nested) => {
                    let (column, origin) = (column.name.clone(), column.shown.clone());
                    return Err(RowError::Nested { column, origin });
                }
                Some(value) => text(value).map(|text| column.renamed(text)),
            };
            cells.push(self.write(&field, column, cell, &mut record)?);
        }
        if !has_value {
            return Ok(None);
        }
        record.truncate(schema.record_length(&record).unwrap_or(record.len()));
        Ok(Some(Row { record, cells }))
    }

    /// Writes a cell. Returns its text.
    fn write(
        &self,
        field: &Field<'_>,
        column: &Column,
        cell: Option<Cow<'_, str>>,
        record: &mut [u8],
    ) -> Result<Option<String>, RowError> {
        let Some(cell) = cell else {
            return match field.write_null(record) {
                Ok(()) => Ok(None),
                Err(_) => Err(RowError::NoValue {
                    column: column.name.clone(),
                    origin: column.shown.clone(),
                }),
            };
        };
        let wrong = |why: &dyn fmt::Display, name| RowError::Value {
            column: column.name.clone(),
            what: format!(
                "{} at {} does not fit {field}: {why}",
                // The value of an encrypted column must not appear in a log.
                if field.suite.is_some() {
                    "the value".into()
                } else {
                    format!("{:?}", cut(&cell))
                },
                if column.shown.is_empty() { "the top" } else { &column.shown }
            ),
            name,
        };
        // The hub's clock is in milliseconds, also if it is wrong.
        let is_clock = matches!(column.origin, Origin::ReceivedAt);
        let text = if field.kind == FieldType::Timestamp && !is_clock {
            let ms = self.timestamp(&cell).map_err(|why| wrong(&why, "NotATimestamp"))?;
            Cow::Owned(ms.to_string())
        } else {
            Cow::Borrowed(&*cell)
        };
        let number = column.factor.and_then(|factor| Some((text.parse::<f64>().ok()?, factor)));
        let written = match (field.kind, number) {
            (_, Some((number, factor))) => field.write_f64(number * factor, record),
            // An empty text is a value. For other types it stands for null, as in a table.
            (FieldType::Text, None) => field.write_value(Value::Text(&text), record),
            _ => field.write(&text, record),
        };
        let written = match written {
            Err(ValueError::NotRepresentable) if self.rounds => {
                let number = number.map(|(number, factor)| number * factor);
                round(field, number.or_else(|| text.parse().ok()), record)
            }
            written => written,
        };
        match written {
            Ok(()) => Ok(Some(match field.in_plaintext().read(record) {
                Ok(Value::Null) => return Ok(None),
                Ok(value) => value.to_string(),
                Err(_) => text.into_owned(),
            })),
            Err(error @ ValueError::NotRepresentable) => {
                let why = format!("{}, or set round = true", error.named());
                Err(wrong(&why, error.name()))
            }
            Err(error) => Err(wrong(&error.named(), error.name())),
        }
    }

    /// Returns the milliseconds since 1970 of a time: a number of seconds or milliseconds, or
    /// RFC 3339, also without an offset from UTC if the settings have one. Digits below a
    /// millisecond are dropped.
    fn timestamp(&self, text: &str) -> Result<i64, &'static str> {
        if let Ok(number) = text.parse::<f64>() {
            let ms = if number.abs() < LEAST_MS { number * 1000.0 } else { number };
            let is_valid = ms.abs() < 2.6e14;
            #[allow(clippy::cast_possible_truncation)]
            return if is_valid { Ok(ms.round() as i64) } else { Err("the time is out of range") };
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(time.as_millisecond());
        }
        match (text.parse::<DateTime>(), self.offset) {
            (Ok(time), Some(offset)) => offset
                .to_timestamp(time)
                .map(Timestamp::as_millisecond)
                .map_err(|_| "the time is out of range"),
            (Ok(_), None) => {
                Err("the time has no offset from UTC; set utc_offset = \"+00:00\" or the sensor's")
            }
            (Err(_), _) => Err("it is no time"),
        }
    }
}

impl Column {
    fn renamed<'a>(&'a self, text: Cow<'a, str>) -> Cow<'a, str> {
        match self.renamed.get(&*text) {
            Some(renamed) => Cow::Borrowed(renamed),
            None => text,
        }
    }
}

/// Returns the text of a value, or `None` for null, an object or an array.
fn text<'a>(value: &'a Scalar<'_>) -> Option<Cow<'a, str>> {
    match value {
        Scalar::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Scalar::Number(digits) => Some(Cow::Borrowed(digits)),
        Scalar::Text(text) => Some(Cow::Borrowed(text)),
        Scalar::Null | Scalar::Nested => None,
    }
}

/// Marks a field as relayed, unless the hub measures its values itself.
fn relayed<'a>(field: Field<'a>, origin: &Origin) -> Field<'a> {
    match origin {
        Origin::ReceivedAt => field,
        Origin::Message { .. } | Origin::Topic => field.relayed(),
    }
}

/// Writes the number of the field's scale that is nearest to a number.
fn round(field: &Field<'_>, number: Option<f64>, record: &mut [u8]) -> Result<(), ValueError> {
    let number = number.ok_or(ValueError::NotANumber)?;
    let divisor = f64::from(field.divisor);
    field.write_f64((number * divisor).round() / divisor, record)
}

fn utc_offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| {
        (text.len() == 2).then(|| text.parse::<i32>().ok()).flatten().filter(|number| *number < 60)
    };
    Offset::from_seconds(sign * (number(hours)? * 3600 + number(minutes)? * 60)).ok()
}

/// Returns the beginning of a text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Row {
    /// Writes the cells, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, cell) in self.cells.iter().enumerate() {
            let before = if place == 0 { "" } else { "," };
            write!(f, "{before}{}", cell.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings(columns: &[&str]) -> Settings {
        Settings {
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            ..Settings::default()
        }
    }

    fn table<T>(entries: Vec<(&str, T)>) -> BTreeMap<String, T> {
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        table(entries.iter().map(|(key, value)| (*key, (*value).to_owned())).collect())
    }

    /// Returns the cells of a message, separated by commas, or the error.
    fn shown(mapping: &Mapping, topic: Option<&str>, message: &str) -> String {
        match mapping.row(&Input { topic, payload: message.as_bytes(), received_ms: 1_000 }) {
            Ok(row) => row.map_or_else(|| "ignored".to_owned(), |row| row.to_string()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_have_no_value_of_an_encrypted_column() {
        for rounds in [false, true] {
            for column in ["a::u64!", "a::enum(off,on)!aes", "a::timestamp!", "a::i16/100!"] {
                let mapping = Mapping::new(&Settings { rounds, ..settings(&[column]) }).unwrap();
                let shown = shown(&mapping, None, r#"{"a": "-4711.1234hidden"}"#);
                assert!(shown.starts_with("column a: the value at /a does not fit"), "{shown}");
                assert!(!shown.contains("4711") && !shown.contains("hidden"), "{shown}");
            }
        }
    }

    #[test]
    fn values_of_every_type_reach_their_columns_exactly() {
        let mapping = Mapping::new(&settings(&[
            "temperature:Cel:i16/100?",
            "contact::bool?",
            "state::enum(off,on)?",
            "note::text16?",
            "seen::timestamp?",
        ]))
        .unwrap();
        for (message, row) in [
            (
                r#"{"temperature": 21.30, "contact": true, "state": "on", "note": "ok, so", "seen": 1654511972.12}"#,
                "21.30,true,on,ok, so,2022-06-06T10:39:32.12Z",
            ),
            (
                r#"{"temperature": "-3.5", "contact": null, "seen": "2024-01-01T00:00:00.123456+01:00"}"#,
                "-3.50,,,,2023-12-31T23:00:00.123Z",
            ),
            (r#"{"temperature": 1e1, "seen": 1704067200000}"#, "10.00,,,,2024-01-01T00:00:00Z"),
            (r#"{"other": 1}"#, "ignored"),
        ] {
            assert_eq!(shown(&mapping, None, message), row, "{message}");
        }
    }

    #[test]
    fn an_empty_text_is_a_value_and_no_null() {
        let mapping = Mapping::new(&settings(&["note::text4?", "n::u8?"])).unwrap();
        let message = Input { topic: None, payload: br#"{"note": "", "n": ""}"#, received_ms: 0 };
        let row = mapping.row(&message).unwrap().unwrap();
        assert_eq!(row.cells, [Some(String::new()), None]);
    }

    #[test]
    fn an_error_names_the_column_the_origin_and_the_value() {
        let mapping = Mapping::new(&Settings {
            from: vec!["/a/b".to_owned(), "/t".to_owned()],
            ..settings(&["power:W:u8/10", "time::timestamp?"])
        })
        .unwrap();
        for (message, parts) in [
            (r#"{"a": {}}"#, &["power", "no value at /a/b", "?"][..]),
            (r#"{"a": {"b": 1.25}}"#, &["power", "\"1.25\" at /a/b", "round = true"]),
            (r#"{"a": {"b": 99}}"#, &["power", "\"99\" at /a/b", "outside the range"]),
            (r#"{"a": {"b": {}}}"#, &["power", "/a/b is an object or an array"]),
            (r#"{"a": {"b": 1}, "t": "2024-01-01T00:00:00"}"#, &["time", "utc_offset"]),
        ] {
            let shown = shown(&mapping, None, message);
            assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
        }
        assert_eq!(
            mapping.row(&Input { topic: None, payload: b"\xff", received_ms: 0 }),
            Err(RowError::NotText)
        );
    }

    #[test]
    fn values_are_renamed_scaled_rounded_and_filtered_as_the_settings_say() {
        let mapping = Mapping::new(&Settings {
            from: ["/s", "/milli", "/f", "/time"].map(str::to_owned).to_vec(),
            when: texts(&[("/id", "7")]),
            map: table(vec![("/s", texts(&[("ON", "on"), ("gone", "")]))]),
            scale: table(vec![("/milli", 0.001)]),
            rounds: true,
            utc_offset: Some("-01:30".to_owned()),
            ..settings(&["s::enum(off,on)?", "t:Cel:i32/1000?", "f::u8/4?", "time::timestamp?"])
        })
        .unwrap();
        for (message, row) in [
            (
                r#"{"id": 7, "s": "ON", "milli": 21312, "f": 1.3, "time": "2024-01-01T00:00:00"}"#,
                "on,21.312,1.25,2024-01-01T01:30:00Z",
            ),
            (r#"{"id": "7", "s": "gone", "milli": "-62"}"#, ",-0.062,,"),
            (r#"{"id": 8, "s": "on"}"#, "ignored"),
            (r#"{"s": "on"}"#, "ignored"),
        ] {
            assert_eq!(shown(&mapping, None, message), row, "{message}");
        }
    }

    #[test]
    fn a_column_can_belong_to_one_of_several_topics() {
        let mapping = Mapping::new(&Settings {
            from: ["relay/0#", "relay/0/power#", "status#/v", "topic", "received_at"]
                .map(str::to_owned)
                .to_vec(),
            ..settings(&["on::bool?", "power:W:u16/10?", "v:V:u8?", "of::text32", "at::timestamp"])
        })
        .unwrap();
        for (topic, message, row) in [
            ("x/relay/0", "true", "true,,,x/relay/0,1970-01-01T00:00:01Z"),
            ("x/relay/0/power", "2.5", ",2.5,,x/relay/0/power,1970-01-01T00:00:01Z"),
            ("status", r#"{"v": 5}"#, ",,5,status,1970-01-01T00:00:01Z"),
            ("xstatus", r#"{"v": 5}"#, "ignored"),
            ("x/relay/0/energy", "12", "ignored"),
        ] {
            assert_eq!(shown(&mapping, Some(topic), message), row, "{topic}");
        }
        // The hub measures only the time of arrival itself.
        let schema = Schema::decode(mapping.schema()).unwrap();
        let relayed: Vec<bool> = schema.fields().map(|field| field.relayed).collect();
        assert_eq!(relayed, [true, true, true, true, false]);
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let with = |change: &dyn Fn(&mut Settings)| {
            let mut settings = settings(&["a::u8", "b::u8"]);
            change(&mut settings);
            Mapping::new(&settings).unwrap_err().name()
        };
        assert_eq!(with(&|settings| settings.columns.clear()), "MalformedField");
        assert_eq!(with(&|settings| settings.columns.push("c".to_owned())), "MalformedField");
        assert_eq!(with(&|settings| settings.from.push("/a".to_owned())), "OriginCount");
        assert_eq!(with(&|settings| settings.from = vec!["a".to_owned(); 2]), "BadOrigin");
        assert_eq!(with(&|settings| settings.when = texts(&[("a", "1")])), "BadOrigin");
        assert_eq!(with(&|settings| settings.scale = table(vec![("/a", 0.0)])), "BadFactor");
        assert_eq!(with(&|settings| settings.scale = table(vec![("/c", 2.0)])), "UnusedOrigin");
        assert_eq!(with(&|settings| settings.utc_offset = Some("1".to_owned())), "BadUtcOffset");
    }
}
