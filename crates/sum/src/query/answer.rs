//! The querier's results from the sums: exact quotients and square roots, as fixed-point numbers
//! (spec/queries.md, section 5).
//!
//! Nothing overflows. Let `N` be the number of participants, `S` the sum of numerators, `Q` that of
//! squares and `n` the count. Set-up has checked `N * (vmax + 1) < 2^96`, so that `|S| < 2^96`, `Q
//! < 2^96`, `n < 2^32`, and `n * Q < 2^128`. A divisor is below 2^32 and needs at most 31 places.
//! The largest intermediate number is that of a standard deviation: `4 * (n * Q - S^2) * 10^70` has
//! 363 bits. The largest result is a variance: `Q * 10^66 / 2^62` has 254. [`U512`] holds all
//! intermediate numbers, and [`U256`] all results.

use core::cmp::Ordering;
use core::fmt;
use moteseal_core::named_errors;

use crypto_bigint::{Limb, NonZero, U256, U512};

use crate::query::slot::CAPACITY;
use crate::query::{Aggregate, Column, Plan, SlotKind};
use moteseal_core::schema::Decimal;

named_errors! {
    /// Why sums give no answer. Honest sources and an honest querier never cause this.
    AnswerError {
        /// The number of sums differs from the number of slots.
        WrongSlotCount => "the number of sums differs from the number of the query's slots",
        /// A sum is more than the participants can contribute, or the set-up was not checked.
        SumOutOfRange => "a sum is more than the participants can contribute",
        /// No readings have these sums: a source contributed values that it cannot have read.
        Inconsistent => "no readings within the declared ranges have these sums: a source contributed values that it cannot have read",
    }
}

/// The number of digits after the point that a mean or standard deviation has in addition to those
/// of its column. A variance has as many in addition to twice those.
const EXTRA_PLACES: u32 = 4;
/// The number of digits after the point if no number of digits is exact.
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

    /// `digits / 10^places`.
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
    /// Shows all digits after the point, [`places`](Self::places) of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 2^256 has 78 digits.
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
    /// The sum of numerators: below 2^96 in absolute value.
    sum: i128,
    /// `n * Q - S^2`: the variance times the square of the count.
    spread: u128,
}

impl<'a> Plan<'a> {
    /// Returns the result of each selected aggregate, in order, over the participants' selected
    /// readings; `None` for the mean, variance and standard deviation of no readings. `totals` are
    /// the sums of the slots over all participants.
    ///
    /// # Errors
    /// [`AnswerError`]. There is no result.
    pub fn answer<'p>(
        &'p self,
        totals: &[u128],
        participants: u32,
    ) -> Result<impl Iterator<Item = Option<FixedPoint>> + use<'p, 'a>, AnswerError> {
        let (mut count, mut slots) = (0, 0);
        let mut sums = [Sums::default(); crate::query::MAX_COLUMNS];
        for (slot, &total) in self.slots().zip(totals) {
            slots += 1;
            let most = slot.vmax.checked_mul(participants.into()).filter(|&most| most < CAPACITY);
            if most.is_none_or(|most| total > most) {
                return Err(AnswerError::SumOutOfRange);
            }
            let sums = sums.get_mut(usize::from(slot.at)).ok_or(AnswerError::WrongSlotCount)?;
            match slot.kind {
                SlotKind::Count => count = total,
                // Both terms are below 2^96.
                SlotKind::Sum => {
                    sums.sum = total as i128 + i128::from(slot.shift) * i128::from(participants);
                }
                SlotKind::SumOfSquares => {
                    // If the square of the sum does not fit 128 bits, it is above count * total,
                    // which fits.
                    let square = sums.sum.unsigned_abs().checked_pow(2);
                    let spread = square.and_then(|square| (count * total).checked_sub(square));
                    sums.spread = spread
                        .filter(|_| total <= slot.vmax * count)
                        .ok_or(AnswerError::Inconsistent)?;
                }
            }
        }
        if slots != totals.len() || slots != self.slots().count() {
            return Err(AnswerError::WrongSlotCount);
        }
        // Without a count, any sum up to that of all participants is possible.
        if self.slots().any(|slot| slot.kind == SlotKind::Count) {
            let possible = |(sums, column): (&Sums, &Column<'_>)| {
                column.range.is_none_or(|(low, high)| {
                    let count = count as i128;
                    (i128::from(low) * count..=i128::from(high) * count).contains(&sums.sum)
                })
            };
            if !sums.iter().zip(self.columns.iter()).all(possible) {
                return Err(AnswerError::Inconsistent);
            }
        }
        Ok(self.items.iter().map(move |item| {
            let Some(at) = item.column.filter(|_| item.aggregate != Aggregate::Count) else {
                return Some(FixedPoint::new(false, U256::from_u128(count), 0));
            };
            result(item.aggregate, sums[usize::from(at)], count, self.column(at).divisor)
        }))
    }
}

/// Returns the result of an aggregate of a column; `None` if it is undefined for no readings.
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
    // Count and divisor are below 2^32.
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

/// `numerator * 10^places / denominator`, to the nearest integer, half to even.
fn quotient(numerator: u128, denominator: u128, places: u32) -> U256 {
    let scaled = U512::from_u128(numerator).wrapping_mul(&power_of_ten(places));
    let (down, rest) = divided(&scaled, denominator);
    rounded(&down, rest.shl_vartime(1).cmp_vartime(&U512::from_u128(denominator)))
}

/// `10^places * sqrt(numerator / denominator)`, to the nearest integer, half to even.
fn root(numerator: u128, denominator: u128, places: u32) -> U256 {
    let scaled = U512::from_u128(numerator).wrapping_mul(&power_of_ten(2 * places));
    // The root of the rounded-down quotient equals the rounded-down root of the quotient.
    let down = divided(&scaled, denominator).0.floor_sqrt_vartime();
    // Compare with the middle between it and the next one: scaled / denominator > (down + 1/2)^2.
    let odd = down.shl_vartime(1).wrapping_add(&U512::ONE);
    let middle = odd.wrapping_mul(&odd).wrapping_mul(&U512::from_u128(denominator));
    rounded(&down, scaled.shl_vartime(2).cmp_vartime(&middle))
}

/// `down`, or the next one if the remainder is more than a half, or a half and `down` is odd.
fn rounded(down: &U512, cut_off: Ordering) -> U256 {
    let up = cut_off == Ordering::Greater || (cut_off == Ordering::Equal && down.bit_vartime(0));
    down.wrapping_add(&U512::from_u8(up.into())).resize()
}

/// Quotient and remainder. A denominator of 0 does not occur; it is treated as 1.
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
