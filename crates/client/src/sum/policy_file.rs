//! The policy of a group: reads `policy.toml`, signs the policy, and reads signed policies
//! (`docs/sums.md`, *Policy*; spec/policy.md).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_api::ErrorKind;
use moteseal_broadcast::KeyId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_sum::policy::{
    ColumnTerms, MAX_COLUMNS, MAX_POLICY, MAX_QUERIERS, Policy, PolicyDraft, QuerierTerms,
};
use moteseal_sum::query::Plan;
use moteseal_verify::Roster;
use serde::Deserialize;

use super::config::{DOCS, duration};
use super::querier::{MIN_COUNT, MIN_COUNT_SQUARES};
use crate::input::{self, InputError};

/// The contents of `policy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    version: u32,
    #[serde(default = "default_min_count")]
    min_count: u32,
    #[serde(default = "default_min_count_squares")]
    min_count_squares: u32,
    #[serde(default)]
    querier: Vec<QuerierText>,
}

/// A table `[[querier]]` of `policy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuerierText {
    key: PathBuf,
    #[serde(default)]
    trusted: bool,
    #[serde(deserialize_with = "duration")]
    epoch: Duration,
    /// The sum of the epsilons of a device's answers in a day.
    #[serde(default)]
    budget: f64,
    /// The range of each column, or an empty text for every range.
    #[serde(default)]
    columns: BTreeMap<String, String>,
}

const fn default_min_count() -> u32 {
    MIN_COUNT
}

const fn default_min_count_squares() -> u32 {
    MIN_COUNT_SQUARES
}

/// A policy whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    bytes: Vec<u8>,
    payload: Vec<u8>,
    version: u32,
}

impl PolicyFile {
    /// Reads a policy, and verifies that the operator signed it for the group of a roster.
    ///
    /// # Errors
    /// [`InputError`] if a file cannot be read, or if it is not such a policy.
    pub fn read(path: &Path, roster: &Roster, operator: &Path) -> Result<Self, InputError> {
        let bytes = input::read(path)?.to_vec();
        let key = input::public_key(operator)?;
        let mut scratch = vec![0; MAX_POLICY + 64];
        let of = (roster.group(), &roster.first_digest());
        let policy = Policy::open(&bytes, of, &key, &mut scratch).map_err(|error| {
            let what = format_args!("{error}; `moteseal sum policy sign` makes one");
            InputError::new(error.name(), ErrorKind::Refused, what).in_file(path)
        })?;
        let (payload, version) = (policy.payload().to_vec(), policy.version);
        Ok(Self { bytes, payload, version })
    }

    /// Returns the signed policy, as in its file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the version of the policy.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the policy.
    ///
    /// # Errors
    /// None that can occur: the payload was checked when the file was read.
    pub fn policy(&self) -> Result<Policy<'_>, InputError> {
        Policy::decode(&self.payload).map_err(InputError::internal)
    }

    /// Declares the ranges of the policy for the columns of a querier's query, because devices refuse
    /// all others.
    pub(super) fn declare_ranges(&self, querier: &PublicKey, plan: &mut Plan<'_>) {
        let Ok(policy) = self.policy() else { return };
        policy.for_each_querier(|terms| {
            for column in terms.columns.iter().filter(|_| terms.key == KeyId::of(querier)) {
                if let Some((low, high)) = column.range {
                    plan.declare(column.name, low, high);
                }
            }
        });
    }
}

/// Signs the policy that a `policy.toml` describes for the group of a roster. Paths in the file are
/// relative to its folder. Returns the signed policy.
///
/// # Errors
/// [`InputError`], which names the wrong key of the file.
pub fn sign_policy(
    path: &Path,
    roster: &Roster,
    operator: &dyn Signer,
) -> Result<Vec<u8>, InputError> {
    let text: PolicyText = input::toml(path, DOCS)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    if text.querier.len() > MAX_QUERIERS {
        let what = format_args!("a policy has at most {MAX_QUERIERS} queriers");
        return Err(InputError::argument(what).in_file(path));
    }
    let mut buffers = Vec::new();
    for querier in &text.querier {
        buffers.push((Columns::new(querier).map_err(|error| error.in_file(path))?, querier));
    }
    let terms = buffers.iter().map(|(columns, querier)| {
        let key = input::public_half(&folder.join(&querier.key))?;
        let epoch_ms = u32::try_from(querier.epoch.as_millis())
            .map_err(|_| InputError::argument("an epoch has at most 7 days").at("epoch"))?;
        let budget = budget(querier.budget).map_err(|error| error.in_file(path).at("budget"))?;
        Ok((KeyId::of(&key), querier.trusted, (epoch_ms, budget), columns.terms()?))
    });
    let terms = terms.collect::<Result<Vec<_>, InputError>>()?;
    let queriers: Vec<QuerierTerms<'_>> = terms
        .iter()
        .map(|(key, is_trusted, (epoch_ms, budget), columns)| QuerierTerms {
            key: *key,
            is_trusted: *is_trusted,
            epoch_ms: *epoch_ms,
            budget: *budget,
            columns,
        })
        .collect();
    let draft = PolicyDraft {
        group: roster.group(),
        roster: roster.first_digest(),
        version: text.version,
        min_count: text.min_count,
        min_count_squares: text.min_count_squares,
        queriers: &queriers,
    };
    let (mut scratch, mut out) = (vec![0; MAX_POLICY], vec![0; MAX_POLICY]);
    let signed = draft.issue(operator, &mut scratch, &mut out).map_err(|error| {
        let what = format_args!(
            "{error}: min_count is at least 2 and at most min_count_squares, an epoch is 1 second to 7 \
             days, each querier has one table, all queriers are trusted or none is, and a trusted one has \
             no budget"
        );
        InputError::usage(error.name(), what).in_file(path)
    })?;
    Ok(signed.to_vec())
}

/// Converts a budget to thousandths.
fn budget(budget: f64) -> Result<u32, InputError> {
    let thousandths = (budget * 1000.0).round();
    if !(0.0..=4_000_000.0).contains(&thousandths) || (thousandths / 1000.0 - budget).abs() > 1e-9 {
        return Err(InputError::argument(
            "a budget is from 0 to 4000 with at most three digits after the point, such as 2.5",
        ));
    }
    // The number is an integer from 0 to 4,000,000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(thousandths as u32)
}

/// The columns of a querier.
struct Columns {
    schema: Vec<u8>,
    /// The range of each column as text; empty for every range.
    ranges: Vec<String>,
}

impl Columns {
    fn new(querier: &QuerierText) -> Result<Self, InputError> {
        let at = |column: &str| format!("querier.columns.{column:?}");
        let mut fields = Vec::new();
        for (column, range) in &querier.columns {
            let field = Field::parse(column)
                .map_err(|error| InputError::usage(error.name(), error).at(at(column)))?;
            if range.is_empty() && !querier.trusted {
                let what = "give the range of the column's values, for example \"-40..125\"";
                return Err(InputError::argument(what).at(at(column)));
            }
            fields.push(field);
        }
        let mut buffer = [0; MAX_SCHEMA];
        let schema = if fields.is_empty() {
            Vec::new()
        } else if fields.len() > MAX_COLUMNS {
            let what = format_args!("a querier has at most {MAX_COLUMNS} columns");
            return Err(InputError::argument(what).at("querier.columns"));
        } else {
            let schema = Schema::encode(&fields, &mut buffer);
            schema.map_err(|error| InputError::usage(error.name(), error))?.as_bytes().to_vec()
        };
        Ok(Self { schema, ranges: querier.columns.values().cloned().collect() })
    }

    fn terms(&self) -> Result<Vec<ColumnTerms<'_>>, InputError> {
        if self.schema.is_empty() {
            return Ok(Vec::new());
        }
        let schema = Schema::decode(&self.schema).map_err(InputError::internal)?;
        let terms = schema.fields().zip(&self.ranges).map(|(field, range)| {
            let at = |error: InputError| error.at(format_args!("querier.columns {}", field.name));
            let range = match range.as_str() {
                "" => None,
                range => Some(numerators(&field, range, &schema).map_err(at)?),
            };
            Ok(ColumnTerms { name: field.name, divisor: field.divisor, range })
        });
        terms.collect()
    }
}

/// Returns the lowest and the highest numerator of a column in a range such as `-40..125`.
fn numerators(
    field: &Field<'_>,
    range: &str,
    schema: &Schema<'_>,
) -> Result<(i64, i64), InputError> {
    let text = format!(
        "SELECT SUM(\"{}\") FROM sensors EPOCH DURATION 1s",
        field.name.replace('"', "\"\"")
    );
    let mut plan =
        Plan::parse(&text, schema).map_err(|error| InputError::usage(error.name(), error))?;
    super::config::narrow(&mut plan, field.name, range)?;
    let range = plan.columns().next().and_then(|column| column.range);
    range.ok_or_else(|| InputError::internal("a summed column has a range"))
}
