//! The groups and bins of a query, and the fields in which readings are counted (spec/queries.md,
//! section 4.2).
//!
//! A *field* is a number with a fixed number of bits: the number of readings of a group, the number
//! of readings in a bin or, in a query with noise, a rounded sum. Several fields share a slot.

use core::fmt;
use core::ops::Range;

use crate::noise::{MAX_EPSILON, Terms};
use crate::query::list::List;
use crate::query::{
    Aggregate, BINS, Column, FixedPoint, Item, MAX_GROUPS, MAX_SLOTS, Name, Plan, WHOLE_RANK,
};
use moteseal_core::schema::Decimal;

/// The notations of quantiles of certain ranks.
pub(super) const RANKS: [(&str, u16); 3] =
    [("MIN", 0), ("MAX", WHOLE_RANK), ("MEDIAN", WHOLE_RANK / 2)];
/// The number of digits after the point of a rank: [`WHOLE_RANK`] is 10 to this power.
pub(super) const RANK_PLACES: u32 = 4;
/// The numbers of bits that a counter may have. With more bits, a query can have more sources.
const COUNTER_BITS: [u8; 3] = [12, 16, MAX_COUNTER_BITS];
/// The number of bits of a counter that fits every number of sources.
pub(super) const MAX_COUNTER_BITS: u8 = 20;
/// The number of bits of a field of a query with noise.
pub(super) const NOISY_BITS: u8 = 48;
/// The number of bits of a slot for fields.
const SLOT_BITS: u8 = 96;
/// In a query with noise, the range of a summed column is divided into this number of steps, and
/// each value is rounded to a step.
pub(crate) const STEPS: u32 = 32;

/// The groups of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    /// The index of the column whose value determines the group of a reading.
    pub(super) column: u8,
    /// The numerators of the groups, in the order of the query's text.
    pub(super) values: List<i64, MAX_GROUPS>,
}

/// What a field counts or sums. It contains the index of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The number of readings.
    Count,
    /// The sum of the values of a column, in steps. Only in a query with noise.
    Steps(u8),
    /// The number of readings in a bin.
    Bin(u8, u8),
}

impl Field {
    /// Returns the highest number that a reading contributes, without noise.
    pub(super) const fn most(self) -> u32 {
        if let Self::Steps(_) = self { STEPS } else { 1 }
    }
}

impl<'a> Plan<'a> {
    /// Returns whether an aggregate of this kind is selected for a column.
    fn takes(&self, at: u8, kind: fn(Aggregate) -> bool) -> bool {
        self.items.iter().any(|item| item.column == Some(at) && kind(item.aggregate))
    }

    /// Returns whether the column's values are summed.
    pub(super) fn is_summed(&self, at: u8) -> bool {
        self.takes(at, Aggregate::takes_sum)
    }

    /// Returns whether the readings in each bin of the column are counted.
    pub(super) fn is_binned(&self, at: u8) -> bool {
        self.takes(at, Aggregate::takes_bins)
    }

    /// Returns the first binned column.
    pub(super) fn first_binned(&self) -> Option<u8> {
        self.places_of_columns().find(|at| self.is_binned(*at))
    }

    /// Returns the indexes of the columns.
    fn places_of_columns(&self) -> Range<u8> {
        0..u8::try_from(self.columns.len()).unwrap_or_default()
    }

    fn has(&self, kind: fn(Aggregate) -> bool) -> bool {
        self.items.iter().any(|item| kind(item.aggregate))
    }

    /// Returns the number of groups, which is 1 without a GROUP BY.
    pub(super) fn group_count(&self) -> usize {
        self.groups.map_or(1, |groups| groups.values.len())
    }

    /// Returns the number of bins of a binned column: that of the query, or the number of values in
    /// the column's range if it is lower.
    pub(super) fn bins_of(&self, at: u8) -> u8 {
        let range = self.column(at).range.map_or(0, |(low, high)| high.abs_diff(low));
        u64::from(self.bins).min(range.saturating_add(1)).try_into().unwrap_or(self.bins)
    }

    /// Returns the bin of a numerator. Numerators below the range are in the first bin, and those
    /// above the range in the last one.
    pub(super) fn bin_of(&self, at: u8, numerator: i128) -> u8 {
        let (low, high) = self.column(at).range.unwrap_or_default();
        let (low, high, bins) = (i128::from(low), i128::from(high), i128::from(self.bins_of(at)));
        // The range has at most 2^64 values, so the product has at most 71 bits.
        let bin = (numerator.clamp(low, high) - low) * bins / (high - low + 1);
        u8::try_from(bin).unwrap_or_default()
    }

    /// Returns the lowest and the highest numerator of a bin. The first bin has no lowest numerator,
    /// and the last one has no highest numerator, unless the query does not count readings outside
    /// the column's range.
    pub(super) fn bounds_of(&self, at: u8, bin: u8) -> (Option<i128>, Option<i128>) {
        let (low, high) = self.column(at).range.unwrap_or_default();
        let (low, values) = (i128::from(low), i128::from(high) - i128::from(low) + 1);
        let bins = self.bins_of(at);
        // The lowest numerator of a bin is the first one that `bin_of` assigns to it.
        let first =
            |bin: u8| low + (i128::from(bin) * values + i128::from(bins) - 1) / i128::from(bins);
        let is_closed = self.is_summed(at);
        let lowest = (bin > 0 || is_closed).then(|| first(bin));
        let highest = (bin + 1 < bins || is_closed).then(|| first(bin + 1) - 1);
        (lowest, highest)
    }

    /// Returns whether the plan has fields.
    pub(super) fn has_counters(&self) -> bool {
        self.has_noise() || self.has(Aggregate::takes_bins) || !self.has(Aggregate::takes_sum)
    }

    /// Returns whether each group has a field for the number of its readings.
    pub(super) fn has_count_field(&self) -> bool {
        let (sums, bins) = (self.has(Aggregate::takes_sum), self.has(Aggregate::takes_bins));
        if self.has_noise() { sums || !bins } else { !sums && !bins }
    }

    /// Returns the fields of a group in order: the number of its readings, the sums, and the bins of
    /// each column.
    pub(super) fn group_fields(&self) -> impl Iterator<Item = Field> + Clone + use<'_, 'a> {
        let columns = self.places_of_columns();
        let count = self.has_count_field().then_some(Field::Count);
        let sums = columns.clone().filter(|at| self.has_noise() && self.is_summed(*at));
        let bins = columns.filter(|at| self.is_binned(*at));
        let bins = bins.flat_map(|at| (0..self.bins_of(at)).map(move |bin| Field::Bin(at, bin)));
        count.into_iter().chain(sums.map(Field::Steps)).chain(bins)
    }

    /// Returns all fields with the number of their group, in order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (usize, Field)> + Clone + use<'_, 'a> {
        let groups = if self.has_counters() { self.group_count() } else { 0 };
        (0..groups).flat_map(|group| self.group_fields().map(move |field| (group, field)))
    }

    /// Returns the number of fields in a slot; 1 for a plan without fields.
    pub(super) fn fields_in_slot(&self) -> usize {
        SLOT_BITS.checked_div(self.counter_bits).unwrap_or(1).into()
    }

    /// Returns the highest number that a source contributes to a field, with noise.
    pub(super) fn field_most(&self, field: Field) -> u64 {
        u64::from(field.most()) + 2 * u64::from(self.noise_bound(field))
    }

    /// Returns whether the plan's groups, bins, counters and noise are those that the parser and
    /// [`fit`](Self::fit) create.
    pub(super) fn has_valid_partition(&self) -> bool {
        let is_unique = |groups: &Groups| {
            let values = &groups.values;
            let is_new = |(at, value)| !values.iter().take(at).any(|before| before == value);
            !values.is_empty() && values.iter().enumerate().all(is_new)
        };
        let has_bins = if self.has(Aggregate::takes_bins) {
            BINS.contains(&self.bins)
        } else {
            self.bins == 0
        };
        let has_bits = match (self.has_counters(), self.has_noise()) {
            (false, _) => self.counter_bits == 0,
            (true, false) => COUNTER_BITS.contains(&self.counter_bits),
            (true, true) => self.counter_bits == NOISY_BITS,
        };
        let has_noise = !self.has_noise() || self.has_noisy_form();
        let is_exact = |groups: &Groups| exact_places(self.column(groups.column).divisor).is_some();
        self.groups.as_ref().is_none_or(|groups| is_unique(groups) && is_exact(groups))
            && has_bins
            && has_bits
            && has_noise
            && self.slots().count() <= MAX_SLOTS
    }

    /// Chooses the number of bits of the plan's counters for a number of sources: with fewer bits, a
    /// query has fewer slots.
    pub fn fit(&mut self, sources: u32) {
        if !self.has_counters() || self.has_noise() {
            return;
        }
        for bits in COUNTER_BITS {
            self.counter_bits = bits;
            if self.check_capacity(sources).is_ok() {
                return;
            }
        }
    }

    /// Returns whether noise is added to the sums.
    #[must_use]
    pub const fn has_noise(&self) -> bool {
        self.epsilon > 0
    }

    /// Returns the epsilon of an answer in thousandths; 0 for exact answers.
    #[must_use]
    pub const fn epsilon(&self) -> u32 {
        self.epsilon
    }

    /// Returns whether all selected aggregates, and the epsilon, are possible with noise.
    pub(super) fn has_noisy_form(&self) -> bool {
        self.items.iter().all(Item::has_noisy_form)
            && self.epsilon <= MAX_EPSILON
            && Terms::bound(self.epsilon, self.parts(), STEPS).is_some()
    }

    /// Returns the number of fields that change if one reading is replaced by another, or by none.
    /// If a reading moves to another group, the fields of two groups change.
    pub(super) fn parts(&self) -> u32 {
        let columns = |is_used: fn(&Self, u8) -> bool| {
            let used = self.places_of_columns().filter(|at| is_used(self, *at)).count();
            u32::try_from(used).unwrap_or_default()
        };
        let groups = if self.groups.is_some() { 2 } else { 1 };
        let counts = u32::from(self.has_count_field()) + columns(Self::is_summed);
        groups * counts + 2 * columns(Self::is_binned)
    }

    /// Returns the maximum absolute value of the noise of a source in a field; 0 without noise.
    pub(super) fn noise_bound(&self, field: Field) -> u32 {
        if !self.has_noise() {
            return 0;
        }
        Terms::bound(self.epsilon, self.parts(), field.most()).unwrap_or_default()
    }

    /// Returns the number of steps in which a source computes its noise of an epoch; 0 without noise. A
    /// step takes a microcontroller some hundred cycles.
    #[must_use]
    pub fn noise_steps(&self) -> u64 {
        self.fields().map(|(_, field)| u64::from(self.noise_bound(field))).sum()
    }

    /// Returns the distribution of the noise of a source in a field, if the source's key group has
    /// `ring` sources.
    pub(super) fn noise_terms(&self, field: Field, ring: u32) -> Terms {
        Terms::new(self.epsilon, self.parts(), field.most(), ring)
    }
}

impl Item {
    /// Returns whether the aggregate has a form with noise. A variance needs much more noise than
    /// its value, and the minimum and maximum are single readings.
    pub(super) fn has_noisy_form(&self) -> bool {
        let is_extreme =
            self.aggregate == Aggregate::Quantile && matches!(self.rank, 0 | WHOLE_RANK);
        !self.aggregate.takes_squares() && !is_extreme
    }
}

/// The number of digits after the point that suffices to distinguish two adjacent numerators on
/// every scale, because a divisor is below 2^32.
pub(super) const ENOUGH_PLACES: u32 = 10;

/// The value of a numerator with its exact digits after the point. If it has none, or more than ten,
/// it is rounded to ten digits: down, or up.
pub(super) fn decimal(numerator: i128, divisor: u32, is_up: bool) -> FixedPoint {
    let exact = exact_places(divisor);
    let places = exact.unwrap_or(ENOUGH_PLACES);
    let scaled = numerator * 10i128.pow(places);
    let divisor = i128::from(divisor.max(1));
    let digits = if is_up { -(-scaled).div_euclid(divisor) } else { scaled.div_euclid(divisor) };
    FixedPoint::from_digits(digits, places)
}

/// Returns the number of digits after the point with which all values of a column are exact, if it
/// is at most ten.
pub(super) fn exact_places(divisor: u32) -> Option<u32> {
    Decimal { numerator: 0, divisor }.places().filter(|&places| places <= ENOUGH_PLACES)
}

/// Writes ` GROUP BY column (value, ...)`.
pub(super) fn show(
    f: &mut fmt::Formatter<'_>,
    groups: &Groups,
    column: &Column<'_>,
) -> fmt::Result {
    write!(f, " GROUP BY {} (", Name(column.name))?;
    for (at, value) in groups.values.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        write!(f, "{}", decimal((*value).into(), column.divisor, false))?;
    }
    f.write_str(")")
}
