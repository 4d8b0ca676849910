//! Who was said to be silent in a private sum, and had answered (`docs/design.md`, *Sums*).
//!
//! A sum is exact over the participants that it names, and an aggregator can claim that a live source is not among them. The querier notes
//! whom it was told to be silent, epoch by epoch; the device's own seals state which epochs it answered. This sets one beside the other.
//! It says that an answer was given and did not arrive, never who on its way dropped it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead};

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::{Answers, Statement};
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Finding;

/// More claims than these are not held in mind: a thousand devices silent for ten days of epochs of a minute.
const MAX_CLAIMS: usize = 1 << 24;
/// No line is longer: every device of a large roster silent.
const MAX_LINE: u64 = 64 << 20;

/// Devices that were said to be silent, by query and epoch of that query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    silent: BTreeMap<(DeviceId, QueryId), BTreeSet<u64>>,
    /// The length of each query's epochs in milliseconds.
    duration_ms: BTreeMap<QueryId, u64>,
    count: usize,
}

/// Why a querier's record of its epochs cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimsError {
    /// It could not be read.
    Io(io::Error),
    /// A line is not one of a querier's.
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// More than can be held in mind at once.
    TooMany,
}

impl fmt::Display for ClaimsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Line { line, what } => write!(f, "line {line}: {what}"),
            Self::TooMany => {
                write!(f, "more than {MAX_CLAIMS} silent devices and epochs; audit it in parts")
            }
        }
    }
}

impl std::error::Error for ClaimsError {}

/// What is read of a line; other keys are the querier's business.
#[derive(Deserialize)]
struct Line {
    query: String,
    epoch: u64,
    duration_ms: u64,
    silent: Vec<String>,
    error: Option<Error>,
}

/// Why an epoch has no answer.
#[derive(Deserialize)]
struct Error {
    name: String,
}

impl Claims {
    /// Reads what a querier wrote: lines of JSON, one an epoch, with `query` (32 hexadecimal digits), `epoch`, `duration_ms` and the names in
    /// `silent`. Of an answer that was refused (`error.name` is there, and another than `BelowFloor`) nobody was told who was silent: its names
    /// are no claims.
    ///
    /// # Errors
    /// [`ClaimsError`].
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
            .map_err(|error| format!("no line of a querier's epochs: {error}"))?;
        let query = query_id(&query)
            .ok_or_else(|| format!("the query {query:?} is not 32 hexadecimal digits"))?;
        let known = *self.duration_ms.entry(query).or_insert(duration_ms);
        if known != duration_ms || duration_ms == 0 {
            return Err(format!("the query {query} cannot have epochs of {duration_ms} ms"));
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

    /// How many there are: a device and an epoch of a query each.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The claims that an authentic seal contradicts. They are taken out: each is reported once.
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

/// What became of the claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silences {
    /// How many claims there were.
    pub claims: usize,
    /// Those that the devices' seals contradict, each with the epoch of the seal.
    pub findings: Vec<(EpochNumber, Finding)>,
}

impl Silences {
    pub(super) fn to_json(&self, roster: &Roster) -> Value {
        let findings: Vec<Value> =
            self.findings.iter().map(|(_, finding)| finding.to_json(roster)).collect();
        json!({"claims": self.claims, "contradicted": findings.len(), "findings": findings})
    }
}

/// A finding's words: who answered what, by which seal.
pub(super) fn describe(who: &str, query: QueryId, epoch: u64, index: SealIndex) -> String {
    format!(
        "ClaimedSilent: {who} answered epoch {epoch} of query {query}, as its seal {index} states, but the querier was told that it was \
         silent: an aggregator, or a link on the way, dropped its answer"
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
        json!({"query": query, "epoch": epoch, "duration_ms": 5000, "silent": silent, "rows": [{"any": 1}]}).to_string() + "\n"
    }

    #[test]
    fn only_what_that_device_answered_of_that_query_and_epoch_is_contradicted_and_once() {
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
            "a seal that states it again adds nothing"
        );
    }

    #[test]
    fn of_an_answer_that_was_refused_nobody_was_claimed_to_be_silent() {
        let with = |error: Value| {
            line(1, 9, &["mote1"]).replace("\"rows\"", &format!("\"error\":{error},\"rows\""))
        };
        let count = |error: Value| Claims::read(&roster(), with(error).as_bytes()).unwrap().count();
        assert_eq!(count(json!({"name": "SharesMismatch", "edge": "gw-a -> root"})), 0);
        assert_eq!((count(json!({"name": "BelowFloor"})), count(Value::Null)), (1, 1));
    }

    #[test]
    fn a_line_that_is_not_a_queriers_is_named_by_its_number() {
        let roster = roster();
        let good = line(1, 9, &["mote1"]);
        for (wrong, says) in [
            ("{\"query\": 5}".to_owned(), "line 2: no line of a querier's epochs"),
            (good.replace("\"silent\"", "\"silence\""), "missing field `silent`"),
            (line(1, 9, &["mote3"]), "line 2: the roster has no device \"mote3\""),
            (good.replace("0101", "01"), "is not 32 hexadecimal digits"),
            (good.replace("0101", "0é1"), "is not 32 hexadecimal digits"),
            (good.replace("5000", "0"), "cannot have epochs of 0 ms"),
            (good.replace("5000", "6000"), "cannot have epochs of 6000 ms"),
        ] {
            let error =
                Claims::read(&roster, (good.clone() + &wrong).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
