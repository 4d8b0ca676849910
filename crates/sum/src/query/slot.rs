//! The slots of a query (spec/queries.md, section 4). Each source contributes a small non-negative
//! integer to each slot, and aggregators add the encrypted integers of a slot.

use core::fmt;

use moteseal_core::error::Named;

use crate::query::{Aggregate, Name, Plan};

/// Sums must stay below this limit. The modulus is just below 2^256 and a share has 160 bits, which
/// leaves 96 bits for the sum.
pub(super) const CAPACITY: u128 = 1 << 96;

/// The kind of value that a slot sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// Each selected reading contributes 1.
    Count,
    /// Each selected reading contributes the numerator of a column, minus the slot's shift.
    Sum,
    /// Each selected reading contributes the square of the numerator of a column.
    SumOfSquares,
}

/// One slot of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The kind of value that is summed.
    pub kind: SlotKind,
    /// The column; `None` for a count.
    pub column: Option<&'a str>,
    /// The highest value that a source can contribute.
    pub vmax: u128,
    /// The number that is subtracted from each numerator, so that no contribution is negative. It
    /// is 0 or negative.
    pub shift: i64,
    /// The column's index in the plan.
    pub(super) at: u8,
}

impl fmt::Display for Slot<'_> {
    /// Writes `the count`, `the sum of temperature` or `the sum of squares of temperature`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SlotKind::Count => return f.write_str("the count"),
            SlotKind::Sum => "the sum of",
            SlotKind::SumOfSquares => "the sum of squares of",
        };
        write!(f, "{what} {}", Name(self.column.unwrap_or_default()))
    }
}

/// An error: the sum of a slot could exceed 96 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow<'a> {
    /// The slot.
    pub slot: Slot<'a>,
    /// The number of sources.
    pub sources: u32,
}

impl Overflow<'_> {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "Overflow"
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl fmt::Display for Overflow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} over {} sources can exceed its 96 bits; declare the range of the column's values",
            self.slot, self.sources
        )
    }
}

impl core::error::Error for Overflow<'_> {}

impl<'a> Plan<'a> {
    /// Returns the slots in order. If the query selects any aggregate other than a sum, the first
    /// slot is the count. The slots of each column follow, in the order in which the query first
    /// mentions the columns: the column's sum if it is summed, and its sum of squares if its
    /// variance or standard deviation is selected.
    pub fn slots(&self) -> impl Iterator<Item = Slot<'a>> + Clone {
        let counts = self.items.iter().any(|item| item.aggregate != Aggregate::Sum);
        let count = counts.then_some(Slot {
            kind: SlotKind::Count,
            column: None,
            vmax: 1,
            shift: 0,
            at: 0,
        });
        count.into_iter().chain((0..).zip(self.columns.iter()).flat_map(|(at, column)| {
            let slots = column.range.map(|(low, high)| {
                let shift = low.min(0);
                let squares = self
                    .items
                    .iter()
                    .any(|item| item.column == Some(at) && item.aggregate.takes_squares());
                let slot =
                    |kind, vmax, shift| Slot { kind, column: Some(column.name), vmax, shift, at };
                let sum = slot(SlotKind::Sum, u128::from(high.max(0).abs_diff(shift)), shift);
                let greatest = u128::from(low.unsigned_abs().max(high.unsigned_abs()));
                (sum, squares.then(|| slot(SlotKind::SumOfSquares, greatest * greatest, 0)))
            });
            slots.into_iter().flat_map(|(sum, squares)| [Some(sum), squares].into_iter().flatten())
        }))
    }

    /// Checks that the sum of each slot fits for this number of sources: `sources * (vmax + 1) <
    /// 2^96`.
    ///
    /// # Errors
    /// [`Overflow`] for the first slot that does not fit.
    pub fn check_capacity(&self, sources: u32) -> Result<(), Overflow<'a>> {
        let fits = |slot: &Slot<'_>| {
            (slot.vmax + 1).checked_mul(sources.into()).is_some_and(|most| most < CAPACITY)
        };
        match self.slots().find(|slot| !fits(slot)) {
            Some(slot) => Err(Overflow { slot, sources }),
            None => Ok(()),
        }
    }
}
