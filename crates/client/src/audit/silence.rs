//! Finds devices that were reported as silent in a private sum although they had answered
//! (`docs/design.md`, *Sums*).
//!
//! A sum is exact over the participants that it names, but a dishonest aggregator can claim that a
//! source that answered was silent. For each epoch, the querier records the devices that were
//! reported as silent. The devices' seals state which epochs they answered. This module compares
//! these records with the seals.
//!
//! A contradiction proves that a device gave an answer and that the answer did not arrive. It does
//! not show which aggregator or link dropped the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

use moteseal_api::ErrorKind;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::{Answers, Statement};
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Finding;

/// The maximum number of claims in memory. A thousand devices that are silent for eleven days, with
/// epochs of one minute, make about this many claims.
const MAX_CLAIMS: usize = 1 << 24;
/// The maximum length of a line in bytes, which is enough if every device of a large roster is
/// silent.
const MAX_LINE: u64 = 64 << 20;

/// The devices that were reported as silent, by query and by epoch of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    silent: BTreeMap<(DeviceId, QueryId), BTreeSet<u64>>,
    /// The duration of each query's epochs in milliseconds.
    duration_ms: BTreeMap<QueryId, u64>,
    count: usize,
}

/// Why a querier's record of its epochs cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimsError {
    /// The record could not be read.
    #[error("{0}")]
    Io(io::Error),
    /// A line does not have the format of a querier's record.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        what: String,
    },
    /// The record has more claims than are kept in memory.
    #[error(
        "the record has more than {MAX_CLAIMS} pairs of a silent device and an epoch; split the \
         record and audit each part"
    )]
    TooMany,
}

impl ClaimsError {
    /// Returns the stable name of the error, `BadFile`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "BadFile"
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(ClaimsError);

/// The keys of a line that are read. Other keys are ignored.
#[derive(Deserialize)]
struct Line {
    query: String,
    epoch: u64,
    duration_ms: u64,
    silent: Vec<String>,
    error: Option<Error>,
}

/// The error of an epoch that has no answer.
#[derive(Deserialize)]
struct Error {
    name: String,
}

impl Claims {
    /// Reads a querier's record: lines of JSON, one for each epoch, with `query` (32 hexadecimal
    /// digits), `epoch`, `duration_ms` and the names in `silent`.
    ///
    /// If an answer was rejected (`error.name` exists and is not `BelowFloor`), the querier does
    /// not know which devices were silent. The names in such a line are not claims.
    ///
    /// # Errors
    /// [`ClaimsError`] if the record cannot be read, if a line is malformed, or if there are too
    /// many claims.
    pub fn read(roster: &Roster, mut text: impl BufRead) -> Result<Self, ClaimsError> {
        let mut claims = Self::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let length = io::Read::take(&mut text, MAX_LINE)
                .read_until(b'\n', &mut line)
                .map_err(ClaimsError::Io)?;
            if length == 0 {
                break;
            }
            if !line.trim_ascii().is_empty() {
                claims
                    .add_line(roster, &line)
                    .map_err(|what| ClaimsError::Line { line: number, what })?;
            }
            if claims.count > MAX_CLAIMS {
                return Err(ClaimsError::TooMany);
            }
        }
        Ok(claims)
    }

    fn add_line(&mut self, roster: &Roster, line: &[u8]) -> Result<(), String> {
        let Line { query, epoch, duration_ms, silent, error } = serde_json::from_slice(line)
            .map_err(|error| format!("not a line of a querier's record: {error}"))?;
        let query = query_id(&query)
            .ok_or_else(|| format!("the query {query:?} is not 32 hexadecimal digits"))?;
        let known = *self.duration_ms.entry(query).or_insert(duration_ms);
        if known != duration_ms || duration_ms == 0 {
            return Err(format!("query {query} cannot have epochs of {duration_ms} ms"));
        }
        let is_refused = error.is_some_and(|error| error.name != "BelowFloor");
        for name in silent {
            let device =
                roster.id(&name).ok_or_else(|| format!("the roster has no device {name:?}"))?;
            if is_refused {
                continue;
            }
            self.count +=
                usize::from(self.silent.entry((device, query)).or_default().insert(epoch));
        }
        Ok(())
    }

    /// Returns the number of claims. A claim is a pair of a device and an epoch of a query.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the claims that an authentic seal contradicts. Removes these claims, so that each
    /// contradiction is reported once.
    pub(super) fn contradicted_by(&mut self, statement: &Statement) -> Vec<Finding> {
        let mut found = Vec::new();
        for (query, epoch) in self.matching(statement.device, &statement.answered) {
            if let Some(epochs) = self.silent.get_mut(&(statement.device, query)) {
                epochs.remove(&epoch);
            }
            let start_ms =
                self.duration_ms.get(&query).and_then(|duration_ms| duration_ms.checked_mul(epoch));
            found.push(Finding::ClaimedSilent {
                device: statement.device,
                query,
                epoch,
                start_ms,
                index: statement.index,
            });
        }
        found
    }

    fn matching(&self, device: DeviceId, answers: &Answers) -> Vec<(QueryId, u64)> {
        let mut found = Vec::new();
        for run in answers.runs() {
            let query = QueryId(run.query);
            let Some(epochs) = self.silent.get(&(device, query)) else { continue };
            let until = run.first.saturating_add(u64::from(run.count));
            found.extend(epochs.range(run.first..until).map(|epoch| (query, *epoch)));
        }
        found
    }
}

fn query_id(text: &str) -> Option<QueryId> {
    let mut id = [0; 16];
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(is_hex.then(|| text.get(2 * at..2 * at + 2))??, 16).ok()?;
    }
    Some(QueryId(id))
}

/// The result of checking the claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silences {
    /// The number of claims.
    pub claims: usize,
    /// The claims that the devices' seals contradict, each with the epoch of the seal.
    pub findings: Vec<(EpochNumber, Finding)>,
}

impl Silences {
    pub(super) fn to_json(&self, roster: &Roster) -> Value {
        let findings: Vec<Value> =
            self.findings.iter().map(|(_, finding)| finding.to_json(roster)).collect();
        json!({"claims": self.claims, "contradicted": findings.len(), "findings": findings})
    }
}

/// Returns the message of a finding. It states the device, the epoch that the device answered, and
/// the seal that states the answer.
pub(super) fn describe(who: &str, query: QueryId, epoch: u64, index: SealIndex) -> String {
    format!(
        "ClaimedSilent: {who} answered epoch {epoch} of query {query}, as its seal {index} states, \
         but was reported to the querier as silent: an aggregator or a link dropped its answer"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::record::GroupId;
    use moteseal_core::record::Scheme;
    use moteseal_core::signature::{Algorithm, SecretKey};
    use moteseal_seal::Answered;
    use moteseal_verify::issue::FirstRoster;

    use super::*;

    fn roster() -> Roster {
        let secret = |byte| SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap();
        let devices = [("mote1", secret(1).public()), ("mote2", secret(2).public())];
        let first = FirstRoster {
            group: "home",
            epoch_ms: 1000,
            levels: 8,
            budget: None,
            devices: &devices,
        };
        Roster::open(&first.issue(&secret(9)).unwrap(), &secret(9).public()).unwrap()
    }

    fn line(query: u8, epoch: u64, silent: &[&str]) -> String {
        let query = QueryId([query; 16]).to_string();
        let line = json!({
            "query": query,
            "epoch": epoch,
            "duration_ms": 5000,
            "silent": silent,
            "rows": [{"any": 1}],
        });
        line.to_string() + "\n"
    }

    #[test]
    fn a_seal_contradicts_only_claims_of_its_device_query_and_epoch_and_each_once() {
        let roster = roster();
        let text = [
            line(1, 9, &["mote1"]),
            line(1, 10, &["mote1", "mote2"]),
            "\n".into(),
            line(2, 11, &["mote1"]),
        ]
        .concat();
        let mut claims = Claims::read(&roster, text.as_bytes()).unwrap();
        assert_eq!(claims.count(), 4);
        let device = roster.id("mote1").unwrap();
        let mut statement =
            Statement::new(Scheme::Star, GroupId([0; 8]), roster.digest(), device, 8);
        statement.index = SealIndex(17);
        assert!(statement.answered.push(Answered { query: [1; 16], first: 10, count: 5 }));
        assert!(statement.answered.push(Answered { query: [2; 16], first: 0, count: 11 }));
        let found = claims.contradicted_by(&statement);
        let query = QueryId([1; 16]);
        assert_eq!(
            found,
            [Finding::ClaimedSilent {
                device,
                query,
                epoch: 10,
                start_ms: Some(50_000),
                index: SealIndex(17)
            }]
        );
        assert!(
            claims.contradicted_by(&statement).is_empty(),
            "a second seal that states the same answer adds no finding"
        );
    }

    #[test]
    fn the_line_of_a_rejected_answer_contains_no_claims() {
        let with = |error: Value| {
            line(1, 9, &["mote1"]).replace("\"rows\"", &format!("\"error\":{error},\"rows\""))
        };
        let count = |error: Value| Claims::read(&roster(), with(error).as_bytes()).unwrap().count();
        assert_eq!(count(json!({"name": "SharesMismatch", "edge": "gw-a -> root"})), 0);
        assert_eq!((count(json!({"name": "BelowFloor"})), count(Value::Null)), (1, 1));
    }

    #[test]
    fn an_error_names_the_number_of_the_line() {
        let roster = roster();
        let good = line(1, 9, &["mote1"]);
        for (wrong, expected) in [
            ("{\"query\": 5}".to_owned(), "line 2: not a line of a querier's record"),
            (good.replace("\"silent\"", "\"silence\""), "missing field `silent`"),
            (line(1, 9, &["mote3"]), "line 2: the roster has no device \"mote3\""),
            (good.replace("0101", "01"), "is not 32 hexadecimal digits"),
            (good.replace("0101", "0é1"), "is not 32 hexadecimal digits"),
            (good.replace("5000", "0"), "cannot have epochs of 0 ms"),
            (good.replace("5000", "6000"), "cannot have epochs of 6000 ms"),
        ] {
            let error =
                Claims::read(&roster, (good.clone() + &wrong).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
