//! Predicates, which determine the readings that a query selects. Their steps are in postfix order,
//! so a mote can evaluate them with a stack that fits in the bits of one word.
//!
//! A comparison is stored as a closed interval of the column's *numerators* (raw value plus
//! offset), which is the exact meaning of the decimal literal on the column's scale. An AND or OR
//! of any number of operands is a single step, so redundant parentheses do not change the encoding.

use core::fmt;

use crate::query::list::List;
use crate::query::partition::{decimal, exact_places};
use crate::query::{Column, MAX_DEPTH, MAX_STEPS, Name};

/// A closed interval of numerators; `None` means no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) low: Option<i64>,
    pub(super) high: Option<i64>,
}

impl Interval {
    /// The canonical form of the empty interval.
    pub(super) const EMPTY: Self = Self { low: Some(1), high: Some(0) };

    /// Returns the closed interval between two bounds, in canonical form.
    pub(super) fn between(low: i64, high: i64) -> Self {
        if low <= high { Self { low: Some(low), high: Some(high) } } else { Self::EMPTY }
    }

    /// Returns whether the interval has the form that the parser creates.
    pub(super) fn is_canonical(self) -> bool {
        match (self.low, self.high) {
            (None, None) => false,
            (Some(low), Some(high)) => low <= high || self == Self::EMPTY,
            _ => true,
        }
    }

    fn contains(self, numerator: i128) -> bool {
        self.low.is_none_or(|low| numerator >= low.into())
            && self.high.is_none_or(|high| numerator <= high.into())
    }
}

/// A step of a predicate. It works on a stack of truth values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// Pushes whether the numerator of the column with this index is in the interval.
    Compare(u8, Interval),
    /// Negates the top value.
    #[default]
    Not,
    /// Replaces the top `n` values, at least two, by their AND or OR.
    Join(Join, u8),
}

/// The operator that joins operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    And,
    Or,
}

/// The steps of a predicate; an empty list selects every reading.
pub(super) type Steps = List<Step, MAX_STEPS>;

/// Returns whether the steps leave one truth value and have the form that the parser creates.
pub(super) fn is_canonical(steps: &[Step]) -> bool {
    // For each operand on the stack: the operator that joined it, and its nesting depth.
    let mut waiting = [(None, 0); MAX_STEPS];
    let mut count = 0;
    for &step in steps {
        let (taken, join) = match step {
            Step::Compare(_, interval) if interval.is_canonical() => (0, None),
            Step::Not => (1, None),
            Step::Join(join, operands @ 2..) => (operands.into(), Some(join)),
            _ => return false,
        };
        let Some(left) = usize::checked_sub(count, taken) else { return false };
        let operands = &waiting[left..count];
        let depth = operands.iter().map(|&(_, depth)| depth + 1).max().unwrap_or(0);
        if depth > MAX_DEPTH || (join.is_some() && operands.iter().any(|&(inner, _)| inner == join))
        {
            return false;
        }
        waiting[left] = (join, depth);
        count = left + 1;
    }
    count == usize::from(!steps.is_empty())
}

/// Returns whether a reading, given by the numerators of its columns, is selected.
pub(super) fn holds<E>(
    steps: &[Step],
    mut numerator: impl FnMut(u8) -> Result<i128, E>,
) -> Result<bool, E> {
    // The stack has one truth value per bit, with the top in the lowest bit. It has at most
    // MAX_STEPS (32) values, so the 64-bit word never overflows.
    let mut truths = 1u64;
    for &step in steps {
        match step {
            Step::Compare(column, interval) => {
                truths = truths << 1 | u64::from(interval.contains(numerator(column)?));
            }
            Step::Not => truths ^= 1,
            Step::Join(join, operands) => {
                let mask = (1 << operands) - 1;
                let truth =
                    if join == Join::And { truths & mask == mask } else { truths & mask != 0 };
                truths = truths >> operands << 1 | u64::from(truth);
            }
        }
    }
    Ok(truths & 1 == 1)
}

/// Displays a predicate as text that parses to the same steps.
pub(super) struct Shown<'p, 'a> {
    pub(super) steps: &'p [Step],
    pub(super) columns: &'p [Column<'a>],
}

impl fmt::Display for Shown<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps.split_last() {
            None => Ok(()),
            Some((Step::Compare(column, interval), _)) => {
                match self.columns.get(usize::from(*column)) {
                    Some(column) => show_comparison(f, column, *interval),
                    None => Err(fmt::Error),
                }
            }
            Some((Step::Not, operand)) => {
                f.write_str("NOT ")?;
                self.operand(f, operand, true)
            }
            Some((Step::Join(join, operands), mut rest)) => {
                let mut starts = [0; MAX_STEPS];
                let starts = starts.get_mut(..usize::from(*operands)).ok_or(fmt::Error)?;
                let all = rest;
                for start in starts.iter_mut().rev() {
                    *start = start_of_last(rest);
                    rest = &rest[..*start];
                }
                for (at, &start) in starts.iter().enumerate() {
                    let end = starts.get(at + 1).copied().unwrap_or(all.len());
                    if at > 0 {
                        f.write_str(if *join == Join::And { " AND " } else { " OR " })?;
                    }
                    self.operand(f, &all[start..end], *join == Join::And)?;
                }
                Ok(())
            }
        }
    }
}

impl Shown<'_, '_> {
    /// Writes an operand. Parentheses are necessary around an OR within an AND, and around an AND
    /// or OR within a NOT.
    fn operand(
        &self,
        f: &mut fmt::Formatter<'_>,
        steps: &[Step],
        binds_tighter: bool,
    ) -> fmt::Result {
        let operand = Shown { steps, columns: self.columns };
        match steps.last() {
            Some(Step::Join(..)) if binds_tighter => write!(f, "({operand})"),
            _ => fmt::Display::fmt(&operand, f),
        }
    }
}

/// Returns the index of the step at which the last operand starts.
fn start_of_last(steps: &[Step]) -> usize {
    let mut wanted = 1;
    for (at, step) in steps.iter().enumerate().rev() {
        wanted += match step {
            Step::Compare(..) => 0,
            Step::Not => 1,
            Step::Join(_, operands) => usize::from(*operands),
        };
        wanted -= 1;
        if wanted == 0 {
            return at;
        }
    }
    0
}

fn show_comparison(
    f: &mut fmt::Formatter<'_>,
    column: &Column<'_>,
    interval: Interval,
) -> fmt::Result {
    let name = Name(column.name);
    let has_exact_form = exact_places(column.divisor).is_some();
    // If a bound has no exact decimal form, the low bound is rounded down and the high bound is
    // rounded up, each by less than the distance of two numerators. The text then parses to the
    // same interval.
    let low = |numerator: i64| decimal(numerator.into(), column.divisor, false);
    let high = |numerator: i64| decimal(numerator.into(), column.divisor, true);
    match (interval.low, interval.high) {
        (None, None) => Err(fmt::Error),
        (Some(least), None) => write!(f, "{name} >= {}", low(least)),
        (None, Some(most)) => write!(f, "{name} <= {}", high(most)),
        (Some(_), Some(_)) if interval == Interval::EMPTY => write!(f, "{name} BETWEEN 1 AND 0"),
        (Some(least), Some(most)) if least == most && has_exact_form => {
            write!(f, "{name} = {}", low(least))
        }
        (Some(least), Some(most)) => write!(f, "{name} BETWEEN {} AND {}", low(least), high(most)),
    }
}
