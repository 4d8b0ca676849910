//! The slots of a query (spec/queries.md, section 4). Each source contributes a small non-negative
//! integer to each slot, and aggregators add the encrypted integers of a slot.

use core::fmt;

use moteseal_core::error::Named;

use crate::query::partition::Field;
use crate::query::{MAX_SLOTS, Name, Plan};

/// Sums must stay below this limit. The modulus is just below 2^256 and a share has 160 bits, which
/// leaves 96 bits for the sum.
pub(super) const CAPACITY: u128 = 1 << 96;

/// The highest number of sources of a query. It is the highest number that fits in a count.
pub const MAX_SOURCES: u32 = (1 << 20) - 1;
/// A value must be below this limit to be in a slot together with the counts: the sum of
/// [`MAX_SOURCES`] such values is below `2^COUNT_AT`.
const PACKED: u128 = 1 << 36;
/// The lowest bit of the number of selected readings, in the slot with the counts.
const COUNT_AT: u32 = 56;
/// The lowest bit of the number of readings outside the declared ranges, in the slot with the
/// counts.
const OUTSIDE_AT: u32 = 76;

/// The kind of value that a slot sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// No value: the slot has only the counts.
    Counts,
    /// Each selected reading contributes the numerator of a column, minus the slot's shift.
    Sum,
    /// Each selected reading contributes the square of the numerator of a column.
    SumOfSquares,
    /// Each selected reading adds one to some of several counters.
    Counters,
}

/// One slot of a query. The first slot of a group that has sums contains the counts of the group, in
/// addition to its value: the number of selected readings, and the number of readings that would be
/// selected but have a value outside the range that the query declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The kind of value that is summed.
    pub kind: SlotKind,
    /// The column; `None` if the slot has only counts or counters.
    pub column: Option<&'a str>,
    /// The highest value, without the counts.
    pub vmax: u128,
    /// Whether the slot has the counts.
    pub has_counts: bool,
    /// The number that is subtracted from each numerator, so that no contribution is negative. It
    /// is 0 or negative.
    pub shift: i64,
    /// The column's index in the plan.
    pub(super) at: u8,
    /// The group of a sum.
    pub(super) group: usize,
    /// The number of the first counter, among all counters of the query.
    pub(super) first: usize,
}

/// The total of the slot with the counts, divided into its parts.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub value: u128,
    pub count: u128,
    pub outside: u128,
}

impl Slot<'_> {
    /// Returns the highest number that a source can contribute, with the counts.
    #[must_use]
    pub const fn most(&self) -> u128 {
        self.vmax + if self.has_counts { 1 << OUTSIDE_AT } else { 0 }
    }

    /// Returns the number that a source contributes: the value and, if the slot has them, the
    /// counts.
    pub(super) fn joined(&self, value: u128, is_counted: bool, is_outside: bool) -> u128 {
        if !self.has_counts {
            return value;
        }
        value + (u128::from(is_counted) << COUNT_AT) + (u128::from(is_outside) << OUTSIDE_AT)
    }

    /// Divides a total. A slot without counts has no readings in its counts.
    pub(super) const fn divided(&self, total: u128) -> Counted {
        if !self.has_counts {
            return Counted { value: total, count: 0, outside: 0 };
        }
        let (value, counts) = (total & ((1 << COUNT_AT) - 1), total >> COUNT_AT);
        let count = counts & ((1 << (OUTSIDE_AT - COUNT_AT)) - 1);
        Counted { value, count, outside: total >> OUTSIDE_AT }
    }
}

impl fmt::Display for Slot<'_> {
    /// Writes `the counts`, `the sum of temperature` or `the sum of squares of temperature`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SlotKind::Counts => return f.write_str("the counts"),
            SlotKind::Counters => return f.write_str("the counters"),
            SlotKind::Sum => "the sum of",
            SlotKind::SumOfSquares => "the sum of squares of",
        };
        write!(f, "{what} {}", Name(self.column.unwrap_or_default()))
    }
}

/// An error: the sum of a slot could exceed its bits, or the query has too many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow<'a> {
    /// The slot.
    pub slot: Slot<'a>,
    /// The number of sources.
    pub sources: u32,
    /// The number of slots of the query.
    pub slots: usize,
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
        if self.sources > MAX_SOURCES {
            return write!(f, "a query has at most {MAX_SOURCES} sources, not {}", self.sources);
        }
        if self.slots > MAX_SLOTS {
            return write!(
                f,
                "the query needs {} slots and has at most {MAX_SLOTS}; use fewer aggregates, groups or bins",
                self.slots
            );
        }
        if self.slot.kind == SlotKind::Counters {
            return write!(
                f,
                "{} sources are more than this query's counters can count",
                self.sources
            );
        }
        write!(
            f,
            "{} over {} sources can exceed its 96 bits; declare the range of the column's values",
            self.slot, self.sources
        )
    }
}

impl core::error::Error for Overflow<'_> {}

impl<'a> Plan<'a> {
    /// Returns the slots in order: those of the sums of each group, and those of the counters.
    pub fn slots(&self) -> impl Iterator<Item = Slot<'a>> + Clone + use<'_, 'a> {
        let groups = if self.has_noise() { 0 } else { self.group_count() };
        let sums = (0..groups).flat_map(|group| self.sum_slots(group));
        sums.chain(self.counter_slots())
    }

    /// Returns the slots of the sums of a group, column by column. For each column they are its sum,
    /// and its sum of squares if its variance or standard deviation is selected. The first slot has
    /// the counts. If the first sum is too large to share its slot with them, a slot that has only
    /// the counts precedes.
    fn sum_slots(&self, group: usize) -> impl Iterator<Item = Slot<'a>> + Clone + use<'_, 'a> {
        let summed = (0..).zip(self.columns.iter()).filter(|(at, _)| self.is_summed(*at));
        let slots = summed.flat_map(move |(at, column)| {
            let (low, high) = column.range.unwrap_or_default();
            let shift = low.min(0);
            let squares = self
                .items
                .iter()
                .any(|item| item.column == Some(at) && item.aggregate.takes_squares());
            let slot = |kind, vmax, shift| Slot {
                kind,
                column: Some(column.name),
                vmax,
                has_counts: false,
                shift,
                at,
                group,
                first: 0,
            };
            let sum = slot(SlotKind::Sum, u128::from(high.max(0).abs_diff(shift)), shift);
            let greatest = u128::from(low.unsigned_abs().max(high.unsigned_abs()));
            let squares = squares.then(|| slot(SlotKind::SumOfSquares, greatest * greatest, 0));
            [Some(sum), squares].into_iter().flatten()
        });
        let is_separate = slots.clone().next().is_some_and(|first| first.vmax >= PACKED);
        let counts = is_separate.then_some(Slot {
            kind: SlotKind::Counts,
            column: None,
            vmax: 0,
            has_counts: false,
            shift: 0,
            at: 0,
            group,
            first: 0,
        });
        counts
            .into_iter()
            .chain(slots)
            .enumerate()
            .map(|(number, slot)| Slot { has_counts: number == 0, ..slot })
    }

    /// Returns the slots of the counters.
    fn counter_slots(&self) -> impl Iterator<Item = Slot<'a>> + Clone + use<'_, 'a> {
        let in_slot = self.fields_in_slot();
        let count = self.fields().count();
        (0..count.div_ceil(in_slot)).map(move |number| {
            let first = number * in_slot;
            let most = |total: u128, (place, (_, field)): (u32, (usize, Field))| {
                total
                    + (u128::from(self.field_most(field)) << (place * u32::from(self.counter_bits)))
            };
            let fields = (0..).zip(self.fields().skip(first).take(in_slot));
            Slot {
                kind: SlotKind::Counters,
                column: None,
                vmax: fields.fold(0, most),
                has_counts: false,
                shift: 0,
                at: 0,
                group: 0,
                first,
            }
        })
    }

    /// Checks that the sum of each slot fits for this number of sources: `sources * (most + 1) <
    /// 2^96`, at most [`MAX_SOURCES`] sources, and fewer sources than a counter can count. A query
    /// has at most [`MAX_SLOTS`] slots.
    ///
    /// # Errors
    /// [`Overflow`] for the first slot that does not fit.
    pub fn check_capacity(&self, sources: u32) -> Result<(), Overflow<'a>> {
        let fits = |slot: &Slot<'_>| {
            sources <= MAX_SOURCES
                && (slot.kind != SlotKind::Counters
                    || sources.checked_shr(self.counter_bits.into()).unwrap_or(0) == 0)
                && (slot.most() + 1).checked_mul(sources.into()).is_some_and(|most| most < CAPACITY)
        };
        let (mut slots, mut failed) = (0, None);
        for slot in self.slots() {
            slots += 1;
            if failed.is_none() && !fits(&slot) {
                failed = Some(slot);
            }
        }
        let failed = failed.or_else(|| (slots > MAX_SLOTS).then(|| self.slots().next()).flatten());
        failed.map_or(Ok(()), |slot| Err(Overflow { slot, sources, slots }))
    }
}
