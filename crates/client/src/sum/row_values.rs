//! The contents of a row that every output format writes: the names of its columns and sources, and
//! either its values or an error.

use moteseal_core::schema::Schema;
use moteseal_sum::noise::DELTA;
use moteseal_sum::query::{Aggregate, FixedPoint, Plan, Selected};

use super::group_result::{GroupResult, ResultValue, Results};
use super::localise::Finding;
use super::open_epochs::{Outcome, Row};

/// The names of the selected items, and the columns in which their values are written.
#[derive(Clone, Debug)]
pub struct RowNames {
    /// The column of a GROUP BY.
    pub(super) group: Option<String>,
    /// The selected items, such as `AVG(temperature)`.
    pub(super) items: Vec<String>,
    /// The unit of each item, such as `Cel`; empty for a count.
    pub(super) units: Vec<String>,
    /// The columns of CSV and Arrow, in the order of the items.
    pub(super) cells: Vec<Cell>,
    /// The epsilon of an answer; `None` if answers are exact.
    pub(super) epsilon: Option<FixedPoint>,
}

/// The upper bound of the delta of an answer with noise (spec/sums.md, section 2.4).
pub(super) const MOST_DELTA: f64 = 1.0 / (1_u64 << DELTA) as f64;

/// A column of CSV or Arrow with a part of an item's value.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The item's index.
    pub(super) item: usize,
    pub(super) part: Part,
    /// The column's name.
    pub(super) head: String,
    /// The number of decimal places.
    #[cfg_attr(
        not(feature = "columnar"),
        expect(dead_code, reason = "only Arrow fixes the number")
    )]
    pub(super) places: i8,
}

/// The part of a value that a column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The number.
    Number,
    /// The distance within which the exact number is.
    Within,
    /// The lower bound of a bin.
    Low,
    /// The upper bound of a bin.
    High,
    /// The numbers of a histogram.
    Counts,
}

impl Part {
    /// Returns the parts of an aggregate's value.
    const fn of(aggregate: Aggregate, has_noise: bool) -> &'static [Self] {
        match (aggregate, has_noise) {
            (Aggregate::Quantile, _) => &[Self::Low, Self::High],
            (Aggregate::Histogram, false) => &[Self::Counts],
            (Aggregate::Histogram, true) => &[Self::Counts, Self::Within],
            (_, false) => &[Self::Number],
            (_, true) => &[Self::Number, Self::Within],
        }
    }

    /// Returns the name of a column for this part of an item.
    fn head(self, item: &str) -> String {
        match self {
            Self::Number | Self::Counts => item.to_owned(),
            Self::Within => format!("{item} within"),
            Self::Low => format!("{item} low"),
            Self::High => format!("{item} high"),
        }
    }

    /// Returns this part of a value, if it is a number that the value has.
    pub(super) fn number(self, value: &ResultValue) -> Option<FixedPoint> {
        match (self, value) {
            (Self::Number, value) => value.number(),
            (Self::Within, ResultValue::Noisy(_, within)) => Some(*within),
            (Self::Within, ResultValue::Histogram(bins)) => {
                Some(FixedPoint::from_digits(bins.within.into(), 0))
            }
            (Self::Low, ResultValue::Bin(bin)) => bin.low,
            (Self::High, ResultValue::Bin(bin)) => bin.high,
            _ => None,
        }
    }

    /// Returns this part of a value as text; empty if the value does not have it.
    pub(super) fn text(self, value: &ResultValue) -> String {
        match (self, value) {
            (Self::Counts, ResultValue::Histogram(bins)) => bins.counts(),
            _ => self.number(value).map(|number| number.to_string()).unwrap_or_default(),
        }
    }
}

impl RowNames {
    /// Takes the names and units of the items from a plan and a schema.
    #[must_use]
    pub fn new(plan: &Plan<'_>, schema: &Schema<'_>) -> Self {
        let unit = |item: Selected<'_>| match (
            item.aggregate,
            item.column.and_then(|column| schema.field(column)),
        ) {
            (Aggregate::Count | Aggregate::Histogram, _) | (_, None) => String::new(),
            (_, Some(field)) if field.unit.is_empty() => String::new(),
            // UCUM writes an exponent after the unit. A unit that does not consist of letters only
            // must be in parentheses.
            (Aggregate::Variance, Some(field)) if field.unit.chars().all(char::is_alphabetic) => {
                format!("{}2", field.unit)
            }
            (Aggregate::Variance, Some(field)) => format!("({})2", field.unit),
            (_, Some(field)) => field.unit.to_owned(),
        };
        let mut cells = Vec::new();
        for ((item, selected), places) in plan.items().enumerate().zip(plan.places()) {
            for part in Part::of(selected.aggregate, plan.has_noise()) {
                let head = part.head(&selected.to_string());
                let places = i8::try_from(places).unwrap_or(i8::MAX);
                cells.push(Cell { item, part: *part, head, places });
            }
        }
        Self {
            group: plan.group_column().map(str::to_owned),
            items: plan.items().map(|item| item.to_string()).collect(),
            units: plan.items().map(unit).collect(),
            cells,
            epsilon: plan.has_noise().then(|| FixedPoint::from_digits(plan.epsilon().into(), 3)),
        }
    }
}

/// Returns the names of the sources that were reported as silent.
pub(super) fn silent(row: &Row) -> impl Iterator<Item = &str> {
    row.silent().map(|position| row.name(position))
}

/// Returns the reasons that sources have stated for not answering, with the names of the sources.
pub(super) fn reasons(row: &Row) -> impl Iterator<Item = (&str, &str)> {
    row.reasons.iter().map(|(position, reason)| (row.name(*position), reason.as_str()))
}

/// Returns the names of the sources that have answered, but are in a key group of which another
/// source has not.
pub(super) fn masked(row: &Row) -> impl Iterator<Item = &str> {
    row.masked.iter().map(|position| row.name(position))
}

/// Returns the names of the sources that were reported neither as participants nor as silent.
pub(super) fn unheard(row: &Row) -> impl Iterator<Item = &str> {
    row.unheard_positions().map(|position| row.name(position))
}

/// The error of a row that has no values.
#[derive(Default)]
pub(super) struct Error<'a> {
    /// The stable name of the error.
    pub(super) name: &'static str,
    /// The name and the message of the error.
    pub(super) message: String,
    /// The edges that the fault localisation found.
    pub(super) edges: Vec<String>,
    /// The aggregators that no longer have the epoch.
    pub(super) forgotten: Vec<&'a str>,
}

/// Returns the error of a row, or `None` if its answer is accepted.
pub(super) fn failure(row: &Row) -> Option<Error<'_>> {
    let (refusal, findings) = match &row.outcome {
        Outcome::Accepted(_) => return None,
        Outcome::Missing(refusal) | Outcome::Withheld(refusal) => (refusal, &[][..]),
        Outcome::Rejected { refusal, findings } => (refusal, &findings[..]),
    };
    let edges = findings
        .iter()
        .filter(|finding| finding.forgotten().is_none())
        .map(ToString::to_string)
        .collect();
    let forgotten = findings.iter().filter_map(Finding::forgotten).collect();
    let name = refusal.name();
    Some(Error { name, message: format!("{name}: {refusal}"), edges, forgotten })
}

/// Returns the number of readings in the results of a row, and the number of readings outside the
/// declared ranges. `None` if the answer is not accepted.
pub(super) fn counts(row: &Row) -> Option<(u32, u32)> {
    let Outcome::Accepted(accepted) = &row.outcome else { return None };
    Some((accepted.count(), accepted.outside()))
}

/// Returns the groups of a row. A row without an accepted answer has one group without results.
pub(super) fn groups(row: &Row) -> Vec<Option<&GroupResult>> {
    match &row.outcome {
        Outcome::Accepted(accepted) => accepted.groups().iter().map(Some).collect(),
        _ => vec![None],
    }
}

/// Returns the results of a group, if it has any.
pub(super) fn results(group: Option<&GroupResult>) -> Option<&Results> {
    group?.results.as_ref()
}

/// Returns the value of an item of a group.
pub(super) fn value(group: Option<&GroupResult>, item: usize) -> Option<&ResultValue> {
    results(group)?.values.get(item)?.as_ref()
}
