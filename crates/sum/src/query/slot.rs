//! Slots: the small non-negative integers that each source contributes and that are added in
//! encrypted form (spec/queries.md, section 4).

use core::fmt;

use moteseal_core::error::Named;

use crate::query::{Aggregate, Name, Plan};

/// Sums must stay below this: the space that a modulus just below 2^256 leaves above shares of 160
/// bits.
pub(super) const CAPACITY: u128 = 1 << 96;

/// What a slot sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// 1 for each selected reading.
    Count,
    /// The numerator of a column, minus the slot's shift.
    Sum,
    /// The square of the numerator of a column.
    SumOfSquares,
}

/// One integer that each source contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// What is summed.
    pub kind: SlotKind,
    /// The column; `None` for a count.
    pub column: Option<&'a str>,
    /// The maximum that a source contributes.
    pub vmax: u128,
    /// What is subtracted from each numerator so that none is negative: 0 or less.
    pub shift: i64,
    /// The column's index in the plan.
    pub(super) at: u8,
}

impl fmt::Display for Slot<'_> {
    /// `the count`, `the sum of temperature` or `the sum of squares of temperature`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SlotKind::Count => return f.write_str("the count"),
            SlotKind::Sum => "the sum of",
            SlotKind::SumOfSquares => "the sum of squares of",
        };
        write!(f, "{what} {}", Name(self.column.unwrap_or_default()))
    }
}

/// A sum that could exceed its 96 bits.
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
            "{} over {} sources can outgrow its 96 bits; declare the range of the column's values",
            self.slot, self.sources
        )
    }
}

impl core::error::Error for Overflow<'_> {}

impl<'a> Plan<'a> {
    /// Returns the slots in order: the count, if anything but sums is selected; then for each
    /// column, by first mention, its sum if the column is summed, and its sum of squares if a
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

    /// Checks that the sums of `sources` sources fit: `sources * (vmax + 1) < 2^96` in each slot.
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
