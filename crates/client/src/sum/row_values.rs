//! The contents of a row that every output format writes: the names of its columns and sources, and
//! either its values or an error.

use moteseal_core::schema::Schema;
use moteseal_sum::query::{Aggregate, FixedPoint, Plan, Selected};

use super::localise::Finding;
use super::open_epochs::{Outcome, Row};

/// `EXTRA_PLACES` is the number of decimal places that a mean and a standard deviation have in
/// addition to those of their column. `INEXACT_PLACES` is their number of decimal places if the
/// column's values are not exact decimals (spec/queries.md, section 5).
const EXTRA_PLACES: i8 = 4;
const INEXACT_PLACES: i8 = 9;

/// The names of the selected items.
#[derive(Clone, Debug)]
pub struct RowNames {
    /// The selected items, such as `AVG(temperature)`.
    pub(super) items: Vec<String>,
    /// The unit of each item, such as `Cel`; empty for a count.
    pub(super) units: Vec<String>,
    /// The number of decimal places of each item.
    #[cfg_attr(
        not(feature = "columnar"),
        expect(dead_code, reason = "only Arrow fixes the number")
    )]
    pub(super) places: Vec<i8>,
}

impl RowNames {
    /// Takes the names and units of the items from a plan and a schema.
    #[must_use]
    pub fn new(plan: &Plan<'_>, schema: &Schema<'_>) -> Self {
        let items =
            || plan.items().map(|item| (item, item.column.and_then(|column| schema.field(column))));
        let unit = |(item, field): (Selected<'_>, Option<moteseal_core::schema::Field<'_>>)| match (
            item.aggregate,
            field,
        ) {
            (Aggregate::Count, _) | (_, None) => String::new(),
            (_, Some(field)) if field.unit.is_empty() => String::new(),
            // UCUM writes an exponent after the unit. A unit that does not consist of letters only
            // must be in parentheses.
            (Aggregate::Variance, Some(field)) if field.unit.chars().all(char::is_alphabetic) => {
                format!("{}2", field.unit)
            }
            (Aggregate::Variance, Some(field)) => format!("({})2", field.unit),
            (_, Some(field)) => field.unit.to_owned(),
        };
        let places = |(item, field): (Selected<'_>, Option<moteseal_core::schema::Field<'_>>)| {
            let exact = field.map_or(Some(0), |field| places_of(field.divisor));
            match (item.aggregate, exact) {
                (Aggregate::Count, _) => 0,
                (_, None) => INEXACT_PLACES,
                (Aggregate::Sum, Some(places)) => places,
                (Aggregate::Variance, Some(places)) => 2 * places + EXTRA_PLACES,
                (_, Some(places)) => places + EXTRA_PLACES,
            }
        };
        Self {
            items: plan.items().map(|item| item.to_string()).collect(),
            units: items().map(unit).collect(),
            places: items().map(places).collect(),
        }
    }
}

/// Returns the names of the sources that were reported as silent.
pub(super) fn silent(row: &Row) -> impl Iterator<Item = &str> {
    row.silent().map(|position| row.name(position))
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

/// Returns the smallest number of decimal places that represents every multiple of `1 / divisor`
/// exactly, or `None` if no number of decimal places does.
fn places_of(divisor: u32) -> Option<i8> {
    let mut rest = 1 % u64::from(divisor.max(1));
    // A divisor has at most 31 factors of two, so no larger number needs to be tried.
    (0..=31).find(|_| {
        let is_whole = rest == 0;
        rest = rest * 10 % u64::from(divisor.max(1));
        is_whole
    })
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

/// Returns the number of readings in the answer of a row, and the number of readings outside the
/// declared ranges. `None` if the answer is not accepted.
pub(super) fn counts(row: &Row) -> Option<(u32, u32)> {
    let Outcome::Accepted(accepted) = &row.outcome else { return None };
    Some((accepted.count(), accepted.outside()))
}

/// Returns the values of a row, by item, or an empty slice if its answer is not accepted.
pub(super) fn values(row: &Row) -> &[Option<FixedPoint>] {
    if let Outcome::Accepted(accepted) = &row.outcome { accepted.values() } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_of_a_divisor_show_every_multiple_exactly() {
        let expected = [
            (1, Some(0)),
            (2, Some(1)),
            (8, Some(3)),
            (10, Some(1)),
            (100, Some(2)),
            (250, Some(3)),
            (3, None),
            (60, None),
        ];
        for (divisor, places) in expected {
            assert_eq!(places_of(divisor), places, "{divisor}");
        }
        assert_eq!(places_of(1 << 31), Some(31));
        assert_eq!(places_of(u32::MAX), None);
    }
}
