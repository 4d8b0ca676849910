//! Computes a query's results from the sums, as correctly rounded fixed-point numbers
//! (spec/queries.md, section 5).
//!
//! No computation overflows, for the following reasons. Let `N` be the number of participants, `S`
//! the sum of the numerators, `Q` the sum of their squares, and `n` the count.
//! [`Plan::check_capacity`] has checked `N * (vmax + 1) < 2^96` and `N < 2^20`, so `|S| < 2^96`, `Q <
//! 2^96`, `n < 2^20` and `n * Q < 2^128`. A divisor is below 2^32, and its quotients have at most 31 digits
//! after the point.
//!
//! The largest intermediate number occurs in a standard deviation: `4 * (n * Q - S^2) * 10^70` has
//! 363 bits. The largest result is a variance: `Q * 10^66 / 2^62` has 254 bits. [`U512`] holds all
//! intermediate numbers, and [`U256`] holds all results.

use core::cmp::Ordering;
use core::fmt;
use core::ops::RangeInclusive;
use moteseal_core::named_errors;

use crypto_bigint::{Limb, NonZero, U256, U512};

use crate::query::partition::{ENOUGH_PLACES, Field, STEPS, decimal, exact_places};
use crate::query::slot::CAPACITY;
use crate::query::{Aggregate, Item, Plan, Slot, SlotKind, WHOLE_RANK};
use moteseal_core::schema::Decimal;

named_errors! {
    /// Why a query has no answer for these sums. Honest sources and an honest querier never cause
    /// these errors.
    AnswerError {
        /// The number of sums differs from the number of slots.
        WrongSlotCount => "the number of sums differs from the number of the query's slots",
        /// A sum is more than the participants can contribute, or the caller did not call
        /// [`Plan::check_capacity`].
        SumOutOfRange => "a sum is more than the participants can contribute",
        /// No possible readings have these sums, so a source contributed values that it cannot have
        /// read.
        Inconsistent => "no readings within the declared ranges have these sums: a source contributed values that it cannot have read",
    }
}

/// The number of additional digits after the point. If a column has `d` digits after the point, its
/// mean and standard deviation have `d + EXTRA_PLACES` digits, and its variance has `2 * d +
/// EXTRA_PLACES` digits.
const EXTRA_PLACES: u32 = 4;
/// The number of digits after the point for a column whose values have no exact decimal form.
const INEXACT_PLACES: u32 = 9;

/// A decimal number with a fixed number of digits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPoint {
    negative: bool,
    digits: U256,
    places: u32,
}

impl FixedPoint {
    fn new(negative: bool, digits: U256, places: u32) -> Self {
        Self { negative: negative && digits != U256::ZERO, digits, places }
    }

    /// Returns the number `digits / 10^places`.
    #[must_use]
    pub fn from_digits(digits: i128, places: u32) -> Self {
        Self::new(digits < 0, U256::from_u128(digits.unsigned_abs()), places)
    }

    /// Returns all digits as one integer: the number times `10^places`. `None` if it needs more
    /// than 128 bits.
    #[must_use]
    pub fn digits(&self) -> Option<i128> {
        let words = self.digits.to_be_bytes();
        let (high, low) = words.as_ref().split_first_chunk::<16>()?;
        let low = low.first_chunk::<16>().map(|low| u128::from_be_bytes(*low))?;
        let digits = i128::try_from(low).ok().filter(|_| *high == [0; 16])?;
        Some(if self.negative { -digits } else { digits })
    }

    /// Returns the number of digits after the point.
    #[must_use]
    pub const fn places(&self) -> u32 {
        self.places
    }
}

impl fmt::Display for FixedPoint {
    /// Writes the number with exactly [`places`](Self::places) digits after the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digits are below 2^256, which has 78 digits.
        let mut text = [b'0'; 80];
        let (mut rest, mut first) = (self.digits, text.len());
        let ten = NonZero::<Limb>::new_unwrap(Limb(10));
        let places = usize::try_from(self.places).unwrap_or(usize::MAX);
        while rest != U256::ZERO || text.len() - first <= places {
            let (quotient, digit) = rest.div_rem_limb(ten);
            first = first.checked_sub(1).ok_or(fmt::Error)?;
            text[first] += u8::try_from(digit.0).unwrap_or(0);
            rest = quotient;
        }
        let digits = core::str::from_utf8(&text[first..]).map_err(|_| fmt::Error)?;
        let (whole, fraction) = digits.split_at(digits.len() - places);
        f.write_str(if self.negative { "-" } else { "" })?;
        f.write_str(whole)?;
        f.write_str(if places > 0 { "." } else { "" })?;
        f.write_str(fraction)
    }
}

/// The sums of a column over the readings of a group.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// The sum of the numerators. Its absolute value is below 2^96.
    sum: i128,
    /// `n * Q - S^2`, which is the variance times the square of the count.
    spread: u128,
}

/// The result of an aggregate. `H` is the type of a histogram: [`Histogram`], or a type that owns its
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<H> {
    /// An exact number.
    Number(FixedPoint),
    /// A number with noise, and the distance from it within which the exact number is with a
    /// probability of about 95 %.
    Noisy(FixedPoint, FixedPoint),
    /// The bin of a quantile; with noise, a range of bins that contains it with a probability of about
    /// 95 %.
    Bin(Bin),
    /// The number of readings in each bin.
    Histogram(H),
}

impl<H> Value<H> {
    /// Returns the number, exact or with noise; `None` for a bin or a histogram.
    pub fn number(&self) -> Option<FixedPoint> {
        match self {
            Self::Number(number) | Self::Noisy(number, _) => Some(*number),
            Self::Bin(_) | Self::Histogram(_) => None,
        }
    }

    /// Returns the value with another type of histogram.
    pub fn with_histogram<T>(self, convert: impl FnOnce(H) -> T) -> Value<T> {
        match self {
            Self::Number(number) => Value::Number(number),
            Self::Noisy(number, within) => Value::Noisy(number, within),
            Self::Bin(bin) => Value::Bin(bin),
            Self::Histogram(histogram) => Value::Histogram(convert(histogram)),
        }
    }
}

impl<H: fmt::Display> fmt::Display for Value<H> {
    /// Writes a number, `number ± distance`, `lower..upper`, or the histogram.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Noisy(number, within) => write!(f, "{number} ± {within}"),
            Self::Bin(bin) => bin.fmt(f),
            Self::Histogram(histogram) => histogram.fmt(f),
        }
    }
}

impl fmt::Display for Bin {
    /// Writes `lower..upper`. A bound that does not exist is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(low) = self.low {
            low.fmt(f)?;
        }
        f.write_str("..")?;
        self.high.map_or(Ok(()), |high| high.fmt(f))
    }
}

/// The bounds of a bin. The value is between them, or equal to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The lower bound. `None` for the first bin, which also has the values below the range.
    pub low: Option<FixedPoint>,
    /// The upper bound. `None` for the last bin, which also has the values above the range.
    pub high: Option<FixedPoint>,
}

/// The number of readings in each bin of a column.
#[derive(Clone, Copy)]
pub struct Histogram<'p> {
    plan: &'p Plan<'p>,
    totals: &'p [u128],
    participants: u32,
    rings: u32,
    group: usize,
    at: u8,
}

impl fmt::Debug for Histogram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.bins().map(|(_, count)| count)).finish()
    }
}

impl<'p> Histogram<'p> {
    /// Returns each bin and the number of its readings, from the lowest bin to the highest. With
    /// noise, a number may be negative.
    pub fn bins(&self) -> impl Iterator<Item = (Bin, i64)> + use<'p> {
        let Self { plan, totals, participants, group, at, .. } = *self;
        (0..plan.bins_of(at)).map(move |bin| {
            let count = plan.total(totals, participants, group, Field::Bin(at, bin));
            (plan.bin(at, bin..=bin), i64::try_from(count).unwrap_or_default())
        })
    }

    /// Returns the distance within which each number is from the exact one with a probability of
    /// about 95 %; 0 without noise.
    #[must_use]
    pub fn within(&self) -> u64 {
        let within = self.plan.within(Field::Bin(self.at, 0), self.rings);
        u64::try_from(within).unwrap_or(u64::MAX)
    }
}

/// The answer to a query: the results for each group, and the numbers of readings.
pub struct Answer<'p> {
    plan: &'p Plan<'p>,
    totals: &'p [u128],
    participants: u32,
    /// The number of sources in a key group.
    rings: u32,
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("plan", self.plan).finish_non_exhaustive()
    }
}

/// The results for a group. A query without GROUP BY has one group.
#[derive(Clone, Copy)]
pub struct GroupAnswer<'p> {
    plan: &'p Plan<'p>,
    totals: &'p [u128],
    participants: u32,
    rings: u32,
    group: usize,
}

impl fmt::Debug for GroupAnswer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupAnswer").field("group", &self.group).finish_non_exhaustive()
    }
}

impl<'p> Answer<'p> {
    /// Returns the results for each group, in the order of the query.
    pub fn groups(&self) -> impl Iterator<Item = GroupAnswer<'p>> + use<'p> {
        let Self { plan, totals, participants, rings } = *self;
        (0..plan.group_count()).map(move |group| GroupAnswer {
            plan,
            totals,
            participants,
            rings,
            group,
        })
    }

    /// Returns the number of readings in the results of all groups. With noise, it is not exact.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.groups().fold(0, |total, group| total.saturating_add(group.count()))
    }

    /// Returns the number of readings that the query selects, but that are not in the results
    /// because a value is outside the range that the query declares for a summed column. A query with
    /// noise does not count them.
    #[must_use]
    pub fn outside(&self) -> u32 {
        self.groups().fold(0, |total, group| total.saturating_add(group.outside()))
    }

    /// Returns the result of each selected aggregate, in order, for each group.
    pub fn values(&self) -> impl Iterator<Item = Option<Value<Histogram<'p>>>> + use<'p> {
        self.groups().flat_map(|group| group.values())
    }
}

impl<'p> GroupAnswer<'p> {
    /// Returns the value of the group's column; `None` without a GROUP BY.
    #[must_use]
    pub fn name(&self) -> Option<FixedPoint> {
        let groups = self.plan.groups.as_ref()?;
        let value = groups.values.get(self.group)?;
        Some(decimal((*value).into(), self.plan.column(groups.column).divisor, false))
    }

    /// Returns the number of readings in the results. With noise, it is not exact.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.plan.group_counts(self.totals, self.participants, self.group).0
    }

    /// Returns the number of readings outside the declared ranges.
    #[must_use]
    pub fn outside(&self) -> u32 {
        self.plan.group_counts(self.totals, self.participants, self.group).1
    }

    /// Returns the result of each selected aggregate, in order. All results but sums, counts and
    /// histograms are `None` if there are no readings. With noise, they are also `None` if the
    /// readings are too few for a result.
    pub fn values(&self) -> impl Iterator<Item = Option<Value<Histogram<'p>>>> + use<'p> {
        let group = *self;
        group.plan.items.iter().map(move |item| group.value(item))
    }

    fn value(&self, item: &Item) -> Option<Value<Histogram<'p>>> {
        let Self { plan, totals, participants, rings, group } = *self;
        if item.aggregate == Aggregate::Count {
            return Some(if plan.has_noise() {
                let (count, within) = self.noisy_count();
                let number = |number: i128| FixedPoint::from_digits(number, 0);
                Value::Noisy(number(count), number(within))
            } else {
                Value::Number(FixedPoint::from_digits(self.count().into(), 0))
            });
        }
        let at = item.column?;
        match item.aggregate {
            Aggregate::Histogram => {
                Some(Value::Histogram(Histogram { plan, totals, participants, rings, group, at }))
            }
            Aggregate::Quantile => self.quantile(at, item.rank).map(Value::Bin),
            _ if plan.has_noise() => self.noisy_sum(item, at),
            aggregate => {
                let sums = plan.sums(totals, participants, group, at)?;
                let count = u128::from(self.count());
                let (divisor, places) = (plan.column(at).divisor, plan.places_of(item));
                result(aggregate, sums, count, divisor, places).map(Value::Number)
            }
        }
    }

    /// Returns the bins that contain the value at a rank.
    fn quantile(&self, at: u8, rank: u16) -> Option<Bin> {
        let Self { plan, totals, participants, group, .. } = *self;
        let bins = plan.bins_of(at);
        let count = |bin| plan.total(totals, participants, group, Field::Bin(at, bin));
        let total: i128 = (0..bins).map(count).sum();
        let within = self.bins_within(at);
        if total <= within {
            return None;
        }
        let wanted = (total * i128::from(rank)).div_euclid(WHOLE_RANK.into());
        let is_between = (total * i128::from(rank)) % i128::from(WHOLE_RANK) != 0;
        let wanted = (wanted + i128::from(is_between)).max(1);
        // The first bin up to whose end at least this number of readings are.
        let first = |wanted: i128| {
            let mut before = 0;
            let found = (0..bins).find(|bin| {
                before += count(*bin);
                before >= wanted
            });
            found.unwrap_or(bins.saturating_sub(1))
        };
        let lowest = first((wanted - within).max(1));
        Some(plan.bin(at, lowest..=first(wanted + within).max(lowest)))
    }

    /// Returns the number of readings with noise, and the distance of 95 %.
    fn noisy_count(&self) -> (i128, i128) {
        let Self { plan, totals, participants, rings, group } = *self;
        if plan.has_count_field() {
            let within = plan.within(Field::Count, rings);
            return (plan.total(totals, participants, group, Field::Count), within);
        }
        let at = plan.first_binned().unwrap_or_default();
        let bins = plan.bins_of(at);
        let count =
            (0..bins).map(|bin| plan.total(totals, participants, group, Field::Bin(at, bin)));
        (count.sum(), self.bins_within(at))
    }

    /// Returns the distance from the exact number of readings in several bins of a column within which
    /// their number is with a probability of about 95 %. The noise of the bins is independent.
    fn bins_within(&self, at: u8) -> i128 {
        let within = self.plan.within(Field::Bin(at, 0), self.rings);
        let within = within.unsigned_abs().pow(2) * u128::from(self.plan.bins_of(at));
        i128::try_from(within.isqrt()).unwrap_or(i128::MAX)
    }

    fn noisy_sum(&self, item: &Item, at: u8) -> Option<Value<Histogram<'p>>> {
        let Self { plan, totals, participants, rings, group } = *self;
        let column = plan.column(at);
        let (low, high) = column.range.unwrap_or_default();
        let (low, steps) = (i128::from(low), i128::from(STEPS));
        let range = i128::from(high) - low;
        let (count, count_within) = self.noisy_count();
        // The sum of the distances from the start of the range, in numerators times STEPS.
        let above = plan.total(totals, participants, group, Field::Steps(at)) * range;
        let above_within = plan.within(Field::Steps(at), rings) * range;
        let (sum, within, scale) = if item.aggregate == Aggregate::Sum {
            let within = above_within + low.abs() * steps * count_within;
            (above + low * steps * count, within, steps)
        } else {
            if count <= count_within {
                return None;
            }
            let within = above_within + above.abs() / count * count_within;
            (above + low * steps * count, within, steps * count)
        };
        let places = plan.places_of(item);
        let scale = scale.unsigned_abs() * u128::from(column.divisor);
        let number = |digits: i128| {
            let quotient = quotient(digits.unsigned_abs(), scale, places);
            FixedPoint::new(digits < 0, quotient, places)
        };
        Some(Value::Noisy(number(sum), number(within)))
    }
}

impl<'a> Plan<'a> {
    /// Returns the number of digits after the point of each selected item: of its value, or of the
    /// bounds of its bin.
    pub fn places(&self) -> impl Iterator<Item = u32> + use<'_, 'a> {
        self.items.iter().map(|item| self.places_of(item))
    }

    fn places_of(&self, item: &Item) -> u32 {
        let divisor = item.column.map_or(1, |at| self.column(at).divisor);
        let exact = if self.has_noise() || item.aggregate.takes_bins() {
            exact_places(divisor)
        } else {
            Decimal { numerator: 0, divisor }.places()
        };
        match (item.aggregate, exact) {
            (Aggregate::Count | Aggregate::Histogram, _) => 0,
            (Aggregate::Quantile, exact) => exact.unwrap_or(ENOUGH_PLACES),
            (Aggregate::Avg, None) if self.has_noise() => INEXACT_PLACES + EXTRA_PLACES,
            (_, None) => INEXACT_PLACES,
            (Aggregate::Sum, Some(places)) => places,
            (Aggregate::Variance, Some(places)) => 2 * places + EXTRA_PLACES,
            (_, Some(places)) => places + EXTRA_PLACES,
        }
    }

    /// Checks the sums of the slots over all participants, and computes the results from them.
    /// `rings` is the number of key groups with a participant, on which the noise depends.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn answer<'p>(
        &'p self,
        totals: &'p [u128],
        participants: u32,
        rings: u32,
    ) -> Result<Answer<'p>, AnswerError> {
        if totals.len() != self.slots().count() {
            return Err(AnswerError::WrongSlotCount);
        }
        let is_possible = |(slot, &total): (Slot<'_>, &u128)| {
            let (most, parts) = (slot.most().checked_mul(participants.into()), slot.divided(total));
            most.is_some_and(|most| most < CAPACITY)
                && parts.value <= slot.vmax * u128::from(participants)
                && parts.count + parts.outside <= participants.into()
        };
        if !self.slots().zip(totals).all(is_possible) {
            return Err(AnswerError::SumOutOfRange);
        }
        let field_fits = |(group, field)| {
            let most = i128::from(self.field_most(field)) * i128::from(participants);
            let bound = i128::from(self.noise_bound(field)) * i128::from(participants);
            (-bound..=most - bound).contains(&self.total(totals, participants, group, field))
        };
        if !self.fields().all(field_fits) {
            return Err(AnswerError::SumOutOfRange);
        }
        if self.has_noise() {
            return Ok(Answer { plan: self, totals, participants, rings });
        }
        let counted = (0..self.group_count())
            .map(|group| self.group_counts(totals, participants, group))
            .map(|(count, outside)| u64::from(count) + u64::from(outside));
        if counted.clone().any(|counted| counted > participants.into()) {
            return Err(AnswerError::SumOutOfRange);
        }
        let are_consistent = |group| self.is_consistent_group(totals, participants, group);
        if counted.sum::<u64>() > participants.into()
            || !(0..self.group_count()).all(are_consistent)
        {
            return Err(AnswerError::Inconsistent);
        }
        Ok(Answer { plan: self, totals, participants, rings })
    }

    /// Returns whether there are readings of a group that have these sums.
    fn is_consistent_group(&self, totals: &[u128], participants: u32, group: usize) -> bool {
        let (count, _) = self.group_counts(totals, participants, group);
        let count = i128::from(count);
        (0..).zip(self.columns.iter()).all(|(at, column)| {
            let (low, high) = column.range.unwrap_or_default();
            let sum_fits = !self.is_summed(at)
                || self.sums(totals, participants, group, at).is_some_and(|sums| {
                    (i128::from(low) * count..=i128::from(high) * count).contains(&sums.sum)
                });
            let bins = (0..self.bins_of(at))
                .map(|bin| self.total(totals, participants, group, Field::Bin(at, bin)));
            sum_fits && (!self.is_binned(at) || bins.sum::<i128>() == count)
        })
    }

    /// Returns the total of a field without the mean of the noise.
    fn total(&self, totals: &[u128], participants: u32, group: usize, field: Field) -> i128 {
        let place = self.fields().position(|found| found == (group, field)).unwrap_or(usize::MAX);
        let sums = self.slots().take_while(|slot| slot.kind != SlotKind::Counters).count();
        let in_slot = self.fields_in_slot();
        let total = totals.get(sums.saturating_add(place / in_slot)).copied().unwrap_or_default();
        let bits = u32::from(self.counter_bits);
        let total = total >> (u32::try_from(place % in_slot).unwrap_or_default() * bits);
        // A field has at most 48 bits.
        let total = (total & ((1 << bits) - 1)) as i128;
        total - i128::from(self.noise_bound(field)) * i128::from(participants)
    }

    /// Returns the distance from the exact total of a field within which the total is with a
    /// probability of about 95 %; 0 without noise.
    fn within(&self, field: Field, rings: u32) -> i128 {
        if !self.has_noise() {
            return 0;
        }
        // The distance does not depend on the number of sources in a ring.
        i128::try_from(self.noise_terms(field, 2).within(rings)).unwrap_or(i128::MAX)
    }

    /// Returns the number of readings of a group in the results, and outside the ranges.
    fn group_counts(&self, totals: &[u128], participants: u32, group: usize) -> (u32, u32) {
        let counted = |count: u128| u32::try_from(count).unwrap_or(participants);
        let first = self
            .slots()
            .zip(totals)
            .find(|(slot, _)| slot.has_counts && slot.group == group)
            .map(|(slot, total)| slot.divided(*total));
        if let Some(first) = first {
            return (counted(first.count), counted(first.outside));
        }
        let fields = self.group_fields();
        let first_column = self.first_binned();
        let is_counted = |field: &Field| match field {
            Field::Count => true,
            Field::Steps(_) => false,
            Field::Bin(at, _) => !self.has_count_field() && Some(*at) == first_column,
        };
        let count: i128 = fields
            .filter(is_counted)
            .map(|field| self.total(totals, participants, group, field))
            .sum();
        (counted(count.max(0).unsigned_abs()), 0)
    }

    /// Returns the sums of a column over the readings of a group; `None` if no readings have them.
    fn sums(&self, totals: &[u128], participants: u32, group: usize, at: u8) -> Option<Sums> {
        let count = u128::from(self.group_counts(totals, participants, group).0);
        let mut sums = Sums::default();
        for (slot, total) in self.slots().zip(totals) {
            if slot.group != group || slot.at != at {
                continue;
            }
            let total = slot.divided(*total);
            match slot.kind {
                SlotKind::Counts | SlotKind::Counters => {}
                // The absolute value of both terms is below 2^96.
                SlotKind::Sum => {
                    sums.sum =
                        total.value as i128 + i128::from(slot.shift) * i128::from(participants);
                }
                SlotKind::SumOfSquares => {
                    // If the square of the sum does not fit in 128 bits, it is larger than count *
                    // total, which does fit.
                    let square = sums.sum.unsigned_abs().checked_pow(2);
                    let spread =
                        square.and_then(|square| (count * total.value).checked_sub(square));
                    sums.spread = spread.filter(|_| total.value <= slot.vmax * count)?;
                }
            }
        }
        Some(sums)
    }

    /// Returns the bounds of a range of bins.
    fn bin(&self, at: u8, bins: RangeInclusive<u8>) -> Bin {
        let divisor = self.column(at).divisor;
        let (low, high) = (self.bounds_of(at, *bins.start()).0, self.bounds_of(at, *bins.end()).1);
        Bin {
            low: low.map(|low| decimal(low, divisor, false)),
            high: high.map(|high| decimal(high, divisor, true)),
        }
    }
}

/// Returns the result of an aggregate of a column; `None` if the aggregate is undefined because no
/// readings were selected.
fn result(
    aggregate: Aggregate,
    sums: Sums,
    count: u128,
    divisor: u32,
    places: u32,
) -> Option<FixedPoint> {
    let (negative, sum, divisor) = (sums.sum < 0, sums.sum.unsigned_abs(), u128::from(divisor));
    if aggregate == Aggregate::Sum {
        return Some(FixedPoint::new(negative, quotient(sum, divisor, places), places));
    }
    if count == 0 {
        return None;
    }
    // Count and divisor are below 2^32, so their product does not overflow.
    let scale = count * divisor;
    let (negative, digits) = match aggregate {
        Aggregate::Variance => (false, quotient(sums.spread, scale * scale, places)),
        Aggregate::Stddev => (false, root(sums.spread, scale * scale, places)),
        _ => (negative, quotient(sum, scale, places)),
    };
    Some(FixedPoint::new(negative, digits, places))
}

/// Returns `numerator * 10^places / denominator`, rounded to the nearest integer, and to the even
/// one if two are equally near.
fn quotient(numerator: u128, denominator: u128, places: u32) -> U256 {
    let scaled = U512::from_u128(numerator).wrapping_mul(&power_of_ten(places));
    let (down, rest) = divided(&scaled, denominator);
    rounded(&down, rest.shl_vartime(1).cmp_vartime(&U512::from_u128(denominator)))
}

/// Returns `10^places * sqrt(numerator / denominator)`, rounded to the nearest integer, and to the
/// even one if two are equally near.
fn root(numerator: u128, denominator: u128, places: u32) -> U256 {
    let scaled = U512::from_u128(numerator).wrapping_mul(&power_of_ten(2 * places));
    // Rounding down the quotient first does not change the result, because floor(sqrt(floor(x))) =
    // floor(sqrt(x)).
    let down = divided(&scaled, denominator).0.floor_sqrt_vartime();
    // To round, compare scaled / denominator with (down + 1/2)^2, the square of the middle between
    // `down` and the next integer.
    let odd = down.shl_vartime(1).wrapping_add(&U512::ONE);
    let middle = odd.wrapping_mul(&odd).wrapping_mul(&U512::from_u128(denominator));
    rounded(&down, scaled.shl_vartime(2).cmp_vartime(&middle))
}

/// Returns `down` or the next integer. `cut_off` compares the cut-off fraction with one half; if
/// they are equal, the even integer is returned.
fn rounded(down: &U512, cut_off: Ordering) -> U256 {
    let up = cut_off == Ordering::Greater || (cut_off == Ordering::Equal && down.bit_vartime(0));
    down.wrapping_add(&U512::from_u8(up.into())).resize()
}

/// Returns the quotient and the remainder. A denominator of 0 does not occur; it is treated as 1.
fn divided(numerator: &U512, denominator: u128) -> (U512, U512) {
    let denominator = U512::from_u128(denominator.max(1));
    match Option::<NonZero<U512>>::from(NonZero::new(denominator)) {
        Some(denominator) => numerator.div_rem_vartime(&denominator),
        None => (*numerator, U512::ZERO),
    }
}

fn power_of_ten(power: u32) -> U512 {
    (0..power).fold(U512::ONE, |value, _| value.wrapping_mul(&U512::from_u8(10)))
}
