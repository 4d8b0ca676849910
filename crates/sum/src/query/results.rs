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
use moteseal_core::named_errors;

use crypto_bigint::{Limb, NonZero, U256, U512};

use crate::query::slot::CAPACITY;
use crate::query::{Aggregate, Column, Plan, Slot, SlotKind};
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
    pub(super) fn from_digits(digits: i128, places: u32) -> Self {
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

/// The sums of a column over the selected readings.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// The sum of the numerators. Its absolute value is below 2^96.
    sum: i128,
    /// `n * Q - S^2`, which is the variance times the square of the count.
    spread: u128,
}

/// The checked sums of a query.
#[derive(Clone, Copy)]
pub struct Answer<'p, 'a> {
    plan: &'p Plan<'a>,
    sums: [Sums; crate::query::MAX_COLUMNS],
    count: u32,
    outside: u32,
}

impl fmt::Debug for Answer<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("plan", self.plan).finish_non_exhaustive()
    }
}

impl<'a> Answer<'_, 'a> {
    /// Returns the number of readings in the results.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of readings that the query selects, but that are not in the results
    /// because a value is outside the range that the query declares for its column.
    #[must_use]
    pub const fn outside(&self) -> u32 {
        self.outside
    }

    /// Returns the result of each selected aggregate, in order. The mean, variance and standard
    /// deviation are `None` if there are no readings.
    pub fn values(&self) -> impl Iterator<Item = Option<FixedPoint>> + use<'_, 'a> {
        self.plan.items.iter().map(|item| {
            let count = u128::from(self.count);
            let Some(at) = item.column.filter(|_| item.aggregate != Aggregate::Count) else {
                return Some(FixedPoint::new(false, U256::from_u128(count), 0));
            };
            let sums = self.sums.get(usize::from(at)).copied().unwrap_or_default();
            result(item.aggregate, sums, count, self.plan.column(at).divisor)
        })
    }
}

impl<'a> Plan<'a> {
    /// Checks the sums of the slots over all participants, and computes the results from them.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn answer(
        &self,
        totals: &[u128],
        participants: u32,
    ) -> Result<Answer<'_, 'a>, AnswerError> {
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
        let (mut count, mut outside) = (0, 0);
        let mut sums = [Sums::default(); crate::query::MAX_COLUMNS];
        for (slot, &total) in self.slots().zip(totals) {
            let sums = sums.get_mut(usize::from(slot.at)).ok_or(AnswerError::WrongSlotCount)?;
            let total = slot.divided(total);
            if slot.has_counts {
                (count, outside) = (total.count, total.outside);
            }
            match slot.kind {
                SlotKind::Counts => {}
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
                    sums.spread = spread
                        .filter(|_| total.value <= slot.vmax * count)
                        .ok_or(AnswerError::Inconsistent)?;
                }
            }
        }
        let is_possible = |(sums, column): (&Sums, &Column<'_>)| {
            column.range.is_none_or(|(low, high)| {
                let count = count as i128;
                (i128::from(low) * count..=i128::from(high) * count).contains(&sums.sum)
            })
        };
        if !sums.iter().zip(self.columns.iter()).all(is_possible) {
            return Err(AnswerError::Inconsistent);
        }
        let counted = |count: u128| u32::try_from(count).unwrap_or(participants);
        Ok(Answer { plan: self, sums, count: counted(count), outside: counted(outside) })
    }
}

/// Returns the result of an aggregate of a column; `None` if the aggregate is undefined because no
/// readings were selected.
fn result(aggregate: Aggregate, sums: Sums, count: u128, divisor: u32) -> Option<FixedPoint> {
    let places = Decimal { numerator: 0, divisor }.places();
    let at = |exact: fn(u32) -> u32| places.map_or(INEXACT_PLACES, exact);
    let (negative, sum, divisor) = (sums.sum < 0, sums.sum.unsigned_abs(), u128::from(divisor));
    if aggregate == Aggregate::Sum {
        let places = at(|places| places);
        return Some(FixedPoint::new(negative, quotient(sum, divisor, places), places));
    }
    if count == 0 {
        return None;
    }
    // Count and divisor are below 2^32, so their product does not overflow.
    let scale = count * divisor;
    Some(match aggregate {
        Aggregate::Variance => {
            let places = at(|places| 2 * places + EXTRA_PLACES);
            FixedPoint::new(false, quotient(sums.spread, scale * scale, places), places)
        }
        Aggregate::Stddev => {
            let places = at(|places| places + EXTRA_PLACES);
            FixedPoint::new(false, root(sums.spread, scale * scale, places), places)
        }
        _ => {
            let places = at(|places| places + EXTRA_PLACES);
            FixedPoint::new(negative, quotient(sum, scale, places), places)
        }
    })
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
