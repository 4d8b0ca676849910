//! Queries: devices, a range of epochs, and a choice of events (`spec/answers.md`, section 3).

use moteseal_core::record::SealIndex;
use moteseal_core::schema::{Groups, MAX_FIELDS, MAX_NAME, Schema};
use moteseal_core::{DeviceId, EpochNumber};
use moteseal_seal::sample::readings::MAX_RUNS;
use moteseal_seal::sample::{Choice, Rate, ReadingRun, Readings};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;

use crate::{ErrorKind, strict_json};

/// A query. This is its JSON form:
///
/// ```json
/// {"devices": ["0123456789abcdef"], "since": 480000, "until": 480024, "rate": "1/8"}
/// ```
///
/// It has exactly one of `"rate": "k/2^d"`, `"at_most": N` (events per epoch),
/// `"sample": {"count": N, "seed": "64 hexadecimal digits"}` and
/// `"readings": [[seal, first, count]]`. `until` is the epoch after the last
/// requested epoch; null requests all epochs so far. `"columns": ["temperature"]` requests only the
/// column groups that have these columns; without it, all are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The devices, in the order in which the response contains them: at least one, without
    /// repetitions.
    pub devices: Vec<DeviceId>,
    /// The first requested epoch.
    pub since: EpochNumber,
    /// The epoch after the last requested epoch, greater than `since`. `None` requests all epochs
    /// so far.
    pub until: Option<EpochNumber>,
    /// Which events to select from each epoch of each device.
    pub choice: Choice,
    /// The names of the requested columns, without repetitions; empty to request all. If a schema has
    /// column groups, the response shows group 0 and the groups of these columns. For any other schema,
    /// it shows all columns.
    pub columns: Vec<String>,
}

/// The maximum number of columns that a query may name, which is that of a schema.
pub const MAX_QUERY_COLUMNS: usize = MAX_FIELDS;

/// Why a query is invalid. The message states what is wrong and what is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(String);

impl QueryError {
    /// Returns the stable name (`spec/errors.md`), which is always `BadQuery`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        crate::ProblemType::BAD_QUERY.name()
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

crate::named_error!(QueryError);

impl Query {
    /// Parses a query from JSON and checks it.
    ///
    /// # Errors
    /// [`QueryError`] if the text is not a query, if it names no device or repeats a device, if its
    /// range of epochs is empty, or if it requests a sample of 0 events.
    pub fn from_json(text: &[u8]) -> Result<Self, QueryError> {
        let value = strict_json::parse(text).map_err(|error| QueryError(error.to_string()))?;
        Self::from_value(value)
    }

    /// Reads a query from a JSON value and checks it.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_value(value: Value) -> Result<Self, QueryError> {
        // The derived decoders also accept the values of an object as an array, without their
        // names.
        if !value.is_object() || value.get("sample").is_some_and(Value::is_array) {
            return Err(QueryError("the query, or the sample in it, is not an object".into()));
        }
        serde_json::from_value(value).map_err(|error| QueryError(error.to_string()))
    }

    /// Returns the query as one line of JSON. Equal queries have the same text. Clients send this
    /// text, and proof files contain it.
    #[must_use]
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always encode")
    }

    /// Checks a query that was built from its fields, and returns it.
    ///
    /// # Errors
    /// [`QueryError`] if the query names no device or repeats a device, if its range of epochs is
    /// empty, if it requests a sample of 0 events, if it names readings of several devices, or if it
    /// names a column twice, too many columns or an invalid name.
    pub fn check(self) -> Result<Self, QueryError> {
        let refuse = |text: String| Err(QueryError(text));
        if self.devices.is_empty() {
            return refuse("the query has no devices; name at least one".into());
        }
        let mut sorted = self.devices.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("device {} is named twice", pair[0]));
        }
        if self.until.is_some_and(|until| until <= self.since) {
            return refuse("the range of epochs is empty; until must be above since".into());
        }
        if matches!(self.choice, Choice::Readings(_)) && self.devices.len() > 1 {
            return refuse("readings are named of one device; name only one".into());
        }
        if let Choice::Sample { count: 0, .. } = self.choice {
            return refuse("the sample has 0 events; request at least 1".into());
        }
        if self.columns.len() > MAX_QUERY_COLUMNS {
            return refuse(format!("a query may name at most {MAX_QUERY_COLUMNS} columns"));
        }
        let is_name = |name: &&String| (1..=MAX_NAME).contains(&name.len());
        if !self.columns.iter().all(|name| is_name(&name)) {
            return refuse(format!("the name of a column has 1 to {MAX_NAME} bytes"));
        }
        let mut names: Vec<&String> = self.columns.iter().collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("the column {:?} is named twice", pair[0]));
        }
        Ok(self)
    }
}

/// Returns the column groups of a schema that show these columns: group 0 and the groups of the columns
/// that the schema has. Returns all groups if `columns` is empty, and the empty set if the schema has no
/// groups.
#[must_use]
pub fn groups_of(schema: &Schema<'_>, columns: &[String]) -> Groups {
    let all = schema.groups();
    if columns.is_empty() || all.is_empty() {
        return all;
    }
    let asked = schema.fields().filter(|field| columns.iter().any(|name| name == field.name));
    asked.fold(Groups::FIRST, |groups, field| groups.with(field.group))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    devices: Vec<String>,
    since: u64,
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample: Option<SampleText>,
    /// The seal's index, the first reading and the number of readings of each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    readings: Option<Vec<(u32, u32, u32)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleText {
    count: u32,
    seed: String,
}

impl Serialize for Query {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.devices.is_empty() {
            return Err(ser::Error::custom("a query must name at least one device"));
        }
        let mut text = Text {
            devices: self.devices.iter().map(ToString::to_string).collect(),
            since: self.since.0,
            until: self.until.map(|until| until.0),
            rate: None,
            at_most: None,
            sample: None,
            readings: None,
            columns: (!self.columns.is_empty()).then(|| self.columns.clone()),
        };
        match self.choice {
            Choice::Rate(rate) => text.rate = Some(rate.to_string()),
            Choice::AtMost(most) => text.at_most = Some(most),
            Choice::Sample { count, seed } => {
                text.sample = Some(SampleText { count, seed: hex::encode(seed) });
            }
            Choice::Readings(readings) => {
                let run = |run: &ReadingRun| (run.index.0, run.first, run.count);
                text.readings = Some(readings.runs().iter().map(run).collect());
            }
        }
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Query {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer)?
            .read()
            .map_err(QueryError)
            .and_then(Self::check)
            .map_err(de::Error::custom)
    }
}

impl Text {
    fn read(self) -> Result<Query, String> {
        let choice = match (self.rate, self.at_most, self.sample, self.readings) {
            (Some(rate), None, None, None) => {
                Choice::Rate(rate.parse::<Rate>().map_err(|error| error.to_string())?)
            }
            (None, Some(most), None, None) => Choice::AtMost(most),
            (None, None, Some(sample), None) => {
                let mut seed = [0; 32];
                hex::decode_to_slice(&sample.seed, &mut seed)
                    .map_err(|_| "the seed must have 64 hexadecimal digits")?;
                Choice::Sample { count: sample.count, seed }
            }
            (None, None, None, Some(runs)) => {
                let run = |(index, first, count): &(u32, u32, u32)| ReadingRun {
                    index: SealIndex(*index),
                    first: *first,
                    count: *count,
                };
                let runs: Vec<ReadingRun> = runs.iter().map(run).collect();
                let readings = Readings::new(&runs).ok_or_else(|| {
                    format!("readings must be 1 to {MAX_RUNS} runs [seal, first, count] in ascending order, without overlaps")
                })?;
                Choice::Readings(readings)
            }
            _ => return Err("give exactly one of rate, at_most, sample and readings".into()),
        };
        let device = |text: &String| {
            crate::parse_device(text).ok_or_else(|| {
                format!("\"{text}\" is not a device id; an id has 16 hexadecimal digits")
            })
        };
        if self.columns.as_ref().is_some_and(Vec::is_empty) {
            return Err("columns is empty; name at least one column, or leave it out".into());
        }
        Ok(Query {
            devices: self.devices.iter().map(device).collect::<Result<_, _>>()?,
            since: EpochNumber(self.since),
            until: self.until.map(EpochNumber),
            choice,
            columns: self.columns.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn choice() -> impl Strategy<Value = Choice> {
        prop_oneof![
            (1..=1u64 << 31, 0..=31u32)
                .prop_filter_map("a rate", |(k, d)| Rate::new(k, 1 << d).ok())
                .prop_map(Choice::Rate),
            any::<u64>().prop_map(Choice::AtMost),
            (1..=u32::MAX, any::<[u8; 32]>())
                .prop_map(|(count, seed)| Choice::Sample { count, seed }),
            (any::<u32>(), 0..1u32 << 31, 1..1u32 << 31).prop_map(|(index, first, count)| {
                let run = ReadingRun { index: SealIndex(index), first, count };
                Choice::Readings(Readings::new(&[run]).unwrap())
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_query_round_trips(
            devices in prop::collection::btree_set(any::<[u8; 8]>(), 1..6),
            since in 0..1u64 << 60,
            length in prop::option::of(1..1u64 << 30),
            choice in choice(),
            columns in prop::collection::btree_set("[a-z.]{1,9}", 0..4),
        ) {
            let query = Query {
                devices: match choice {
                    Choice::Readings(_) => devices.into_iter().take(1).map(DeviceId).collect(),
                    _ => devices.into_iter().map(DeviceId).collect(),
                },
                since: EpochNumber(since),
                until: length.map(|length| EpochNumber(since + length)),
                choice,
                columns: columns.into_iter().collect(),
            };
            prop_assert_eq!(Query::from_json(query.to_json().as_bytes()), Ok(query));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Query::from_json(&bytes);
        }
    }

    #[test]
    fn a_query_without_devices_has_no_encoding() {
        let query = Query {
            devices: Vec::new(),
            since: EpochNumber(0),
            until: None,
            choice: Choice::AtMost(1),
            columns: Vec::new(),
        };
        let error = serde_json::to_string(&query).unwrap_err().to_string();
        assert!(error.contains("at least one device"), "{error}");
    }

    #[test]
    fn errors_state_what_is_wrong_with_a_query() {
        let cases = [
            (r#"{"devices":[],"since":0,"until":1,"rate":"1"}"#, "no devices"),
            (
                r#"{"devices":["0011223344556677","0011223344556677"],"since":0,"until":1,"rate":"1"}"#,
                "named twice",
            ),
            (r#"{"devices":["dev1"],"since":0,"until":1,"rate":"1"}"#, "not a device id"),
            (
                r#"{"devices":["0011223344556677"],"since":4,"until":4,"rate":"1"}"#,
                "until must be above since",
            ),
            (r#"{"devices":["0011223344556677"],"since":0,"until":1,"rate":"9/8"}"#, "a rate is"),
            (r#"{"devices":["0011223344556677"],"since":0,"until":1}"#, "exactly one"),
            (
                r#"{"devices":["0011223344556677"],"since":0,"until":1,"rate":"1","at_most":3}"#,
                "exactly one",
            ),
            (
                r#"{"devices":["0011223344556677"],"since":0,"until":1,"sample":{"count":0,"seed":""}}"#,
                "64 hex",
            ),
            (
                r#"{"devices":["0011223344556677"],"since":0,"until":1,"sample":{"count":0,"seed":"0000000000000000000000000000000000000000000000000000000000000000"}}"#,
                "the sample has 0 events",
            ),
            (
                r#"{"devices":["0011223344556677"],"since":0,"rate":"1","columns":[]}"#,
                "columns is empty",
            ),
            (
                r#"{"devices":["0011223344556677"],"since":0,"rate":"1","columns":["a","b","a"]}"#,
                "the column \"a\" is named twice",
            ),
            (
                r#"{"devices":["0011223344556677"],"since":0,"rate":"1","columns":["a",""]}"#,
                "1 to 64 bytes",
            ),
            (r#"{"devices":["0011223344556677"],"since":0,"until":1,"rat":"1"}"#, "unknown field"),
            (
                r#"{"devices":["0011223344556677"],"since":-1,"until":1,"rate":"1"}"#,
                "invalid value",
            ),
        ];
        for (text, expected) in cases {
            let error = Query::from_json(text.as_bytes()).unwrap_err();
            assert_eq!((error.name(), error.kind()), ("BadQuery", ErrorKind::Usage));
            let error = error.to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
