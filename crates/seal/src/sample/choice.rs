//! What a response must contain. The query determines it, so that the cloud has no choice
//! (spec/answers.md, section 4).

use core::fmt;
use core::str::FromStr;
use moteseal_core::named_errors;

use crate::level::Counters;
use crate::sample::{Readings, Sample};
use crate::seal::{Authentic, Seal};
use crate::statement::Statement;
use crate::stream::Select;
use moteseal_core::record::{Level, MAX_LEVELS, Round};

/// A sampling rate `k / 2^d` in lowest terms, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The binary digits of the rate after the point, as an integer of `digits` bits. The first
    /// digit is the highest bit. For rate 1, both fields are 0.
    numerator: u64,
    digits: u8,
}

/// The text or number is not a valid rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateError;

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate is 1, a fraction like 1/8 or 3/16, or a decimal like 0.25, above 0 and at most 1")
    }
}

impl core::error::Error for RateError {}

impl Rate {
    /// Rate 1: all events.
    pub const ALL: Self = Self { numerator: 0, digits: 0 };

    /// Creates the rate `numerator / denominator`, rounded down to 31 binary digits.
    ///
    /// # Errors
    /// [`RateError`] unless the fraction is above 0 and at most 1, and does not round to 0.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, RateError> {
        if denominator == 0 || numerator > denominator {
            return Err(RateError);
        }
        if numerator == denominator {
            return Ok(Self::ALL);
        }
        let scaled = (u128::from(numerator) << 31) / u128::from(denominator);
        Self::binary(u64::try_from(scaled).map_err(|_| RateError)?, 31).ok_or(RateError)
    }

    /// Creates the rate `numerator / 2^digits` in lowest terms. Returns `None` if it is 0.
    fn binary(numerator: u64, digits: u8) -> Option<Self> {
        #[allow(clippy::cast_possible_truncation)]
        let shift = numerator.trailing_zeros() as u8;
        (numerator != 0).then(|| Self { numerator: numerator >> shift, digits: digits - shift })
    }

    /// Returns the levels that the rate selects in a group of `levels` levels. The rate is first
    /// rounded down to `levels - 1` binary digits. Returns `None` if the result is 0.
    #[must_use]
    pub fn levels(self, levels: u8) -> Option<u32> {
        let all = if levels >= 32 { u32::MAX } else { (1 << levels) - 1 };
        if self.digits == 0 {
            return Some(all);
        }
        let most = levels.saturating_sub(1);
        let rounded = if self.digits > most {
            Self::binary(self.numerator >> (self.digits - most), most)?
        } else {
            self
        };
        let last = rounded.digits;
        let mut mask = all & !((1 << last) - 1);
        for digit in 1..last {
            if rounded.numerator >> (last - digit) & 1 == 1 {
                mask |= 1 << (digit - 1);
            }
        }
        Some(mask)
    }

    /// Returns the rate as a float.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        if self.digits == 0 { 1.0 } else { self.numerator as f64 / (1u64 << self.digits) as f64 }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits == 0 {
            f.write_str("1")
        } else {
            write!(f, "{}/{}", self.numerator, 1u64 << self.digits)
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let digits = |text: &str| -> Result<u64, RateError> {
            if text.is_empty() || text.len() > 18 || !text.bytes().all(|byte| byte.is_ascii_digit())
            {
                return Err(RateError);
            }
            text.parse().map_err(|_| RateError)
        };
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Self::new(digits(numerator)?, digits(denominator)?);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let fraction_value = digits(fraction)?;
        let scale = 10u64.pow(u32::try_from(fraction.len()).map_err(|_| RateError)?);
        let whole = digits(whole)?.checked_mul(scale).ok_or(RateError)?;
        Self::new(whole.checked_add(fraction_value).ok_or(RateError)?, scale)
    }
}

/// The sample that an application requests from each epoch of each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The levels of a sampling rate.
    Rate(Rate),
    /// At most this many events per epoch: as many whole levels as fit, starting with the lowest
    /// level.
    AtMost(u64),
    /// A number of events, chosen by a seeded permutation. Only for trees.
    Sample {
        /// The number of events per epoch, at least 1.
        count: u32,
        /// The seed of the permutation.
        seed: [u8; 32],
    },
    /// Readings that the query names, of one device. Only for trees.
    Readings(Readings),
}

named_errors! {
    /// Why a sample is not the requested one or is not available.
    ChoiceError {
        /// The response contains other levels or events than were requested.
        NotAsAsked => "the response has other levels or events than requested",
        /// With the group's number of levels, the rate rounds to 0, or it needs a level that the
        /// device did not keep.
        RateUnavailable =>
            "the rate is below 2^-(levels-1), or needs a level that was not kept; \
             choose another rate",
        /// A sample by count and seed exists only for trees.
        SchemeMismatch =>
            "a sample by count and seed needs epochs sealed as trees; use a rate instead",
        /// The caller's memory is too small for the sample.
        ScratchTooSmall =>
            "the scratch memory is too small; provide an entry and two swaps for each chosen event",
    }
}

/// Returns the levels that a part must contain for a rate. They are the same for all parts of an
/// epoch, except for levels that have no events in a part.
///
/// # Errors
/// `RateUnavailable`.
pub fn rate_levels(rate: Rate, statement: &Statement) -> Result<u32, ChoiceError> {
    let mask = rate.levels(statement.counters.levels()).ok_or(ChoiceError::RateUnavailable)?;
    let surviving = statement.surviving();
    let empty =
        (0..statement.counters.levels()).filter(|&level| statement.counters.at(Level(level)) == 0);
    let empty = empty.fold(0, |mask, level| mask | 1 << level);
    if mask & !surviving & !empty != 0 {
        Err(ChoiceError::RateUnavailable)
    } else {
        Ok(mask & surviving)
    }
}

/// Sums the counters of the parts of one epoch, to determine the levels that [`Choice::AtMost`]
/// selects.
#[derive(Clone, Debug)]
pub struct EpochCounts {
    counts: [u64; MAX_LEVELS],
    available: u32,
    levels: u8,
}

impl EpochCounts {
    /// Creates counts without parts for a group of `levels` levels.
    #[must_use]
    pub const fn new(levels: u8) -> Self {
        Self { counts: [0; MAX_LEVELS], available: u32::MAX, levels }
    }

    /// Creates counts without parts for an epoch that ended at `round`. Levels below `round` are
    /// treated as missing, even if a device kept them.
    #[must_use]
    pub const fn at_round(levels: u8, round: Round) -> Self {
        let available = if round.0 as usize >= MAX_LEVELS { 0 } else { u32::MAX << round.0 };
        Self { available, ..Self::new(levels) }
    }

    /// Adds a part.
    pub fn add(&mut self, statement: &Statement) {
        for (total, &count) in self.counts.iter_mut().zip(statement.counters.as_slice()) {
            *total += u64::from(count);
        }
        for level in 0..self.levels {
            if statement.counters.at(Level(level)) > 0 && statement.is_null(Level(level)) {
                self.available &= !(1 << level);
            }
        }
    }

    /// Returns the levels that [`Choice::AtMost`]`(m)` selects. Goes through the existing levels
    /// from level 0 up, and selects each level whose events still fit.
    #[must_use]
    pub fn at_most(&self, m: u64) -> u32 {
        let mut left = m;
        (0..self.levels).filter(|level| self.available >> level & 1 == 1).fold(0, |mask, level| {
            let count = self.counts[usize::from(level)];
            if count > left {
                return mask;
            }
            left -= count;
            mask | 1 << level
        })
    }

    /// Returns the levels at or above the round that no part has dropped or lost.
    #[must_use]
    pub fn surviving(&self) -> u32 {
        (0..self.levels)
            .filter(|level| self.available >> level & 1 == 1)
            .fold(0, |mask, level| mask | 1 << level)
    }

    /// Returns the number of events at the levels that [`surviving`](Self::surviving) returns.
    #[must_use]
    pub fn existing(&self) -> u64 {
        (0..self.levels)
            .filter(|level| self.available >> level & 1 == 1)
            .map(|level| self.counts[usize::from(level)])
            .sum()
    }

    /// Returns the number of all events of the epoch.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of events of each level.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts[..usize::from(self.levels)]
    }
}

/// A sample that the query alone has determined, so that the holder of the data could not have
/// chosen another one. Estimators accept only this type.
///
/// For a rate, each part is checked individually ([`by_rate`](Self::by_rate)). For the other
/// choices, all parts of an epoch are checked together
/// ([`ForcedPart::check`](crate::sample::epoch::ForcedPart::check)). Readings that the query names
/// ([`Sample::check_named`]) and readings that a redactor left in a proof are not uniform, and remain
/// a [`Sample`]. There is no other way to create a `UniformSample`, and an unverified seal does not
/// suffice:
///
/// ```compile_fail
/// # use moteseal_seal::sample::{Sample, UniformSample};
/// fn forge(sample: Sample<'_, moteseal_seal::Authentic>) -> UniformSample<'_> {
///     UniformSample { sample }
/// }
/// ```
///
/// ```compile_fail
/// # use moteseal_seal::sample::{Rate, Sample, UniformSample};
/// # use moteseal_seal::{Authentic, Seal, Unverified};
/// fn forge<'a>(sample: Sample<'a, Authentic>, seal: &Seal<Unverified>) {
///     let _ = UniformSample::by_rate(sample, seal, Rate::ALL);
/// }
/// ```
#[derive(Debug)]
pub struct UniformSample<'a> {
    sample: Sample<'a, Authentic>,
}

impl<'a> UniformSample<'a> {
    /// Checks a part against a rate. `seal` is the part's seal.
    ///
    /// # Errors
    /// `NotAsAsked` if the sample belongs to another seal or contains other levels; otherwise the
    /// errors of [`rate_levels`].
    pub fn by_rate(
        sample: Sample<'a, Authentic>,
        seal: &Seal<Authentic>,
        rate: Rate,
    ) -> Result<Self, ChoiceError> {
        let mask = rate_levels(rate, seal.statement())?;
        let forced = matches!(sample.select, Select::Levels(selected) if selected == mask);
        if forced && sample.seal == seal.digest() {
            Ok(Self { sample })
        } else {
            Err(ChoiceError::NotAsAsked)
        }
    }

    /// Creates a uniform sample. The caller must have checked that the sample is exactly what its
    /// part must contain.
    pub(super) const fn forced(sample: Sample<'a, Authentic>) -> Self {
        Self { sample }
    }

    /// Returns the events.
    #[must_use]
    pub const fn sample(&self) -> &Sample<'a, Authentic> {
        &self.sample
    }
}

/// Returns the number of events of a part at the levels of a mask.
#[must_use]
pub fn selected_count(counters: &Counters, mask: u32) -> u32 {
    counters.masked(mask)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_rate_selects_the_levels_of_its_binary_digits() {
        let mask = |text: &str| text.parse::<Rate>().unwrap().levels(16);
        assert_eq!(mask("1"), Some(0xffff));
        assert_eq!(mask("1/2"), Some(0xfffe));
        assert_eq!(mask("1/8"), Some(0xfff8));
        // 5/8 is 0.101 in binary: the levels from 3 on have the share 1/8, and level 0 has 1/2.
        assert_eq!(mask("5/8"), Some(0xfff9));
        assert_eq!(mask("0.75"), Some(0xfffd));
        assert_eq!(mask("1/32768"), Some(0x8000));
        assert_eq!(mask("1/65536"), None);
        // 1/3 is 0.0101... in binary. Rounded down to 15 digits, the last digit that is 1 is digit
        // 14.
        assert_eq!(mask("1/3"), Some(0xcaaa));
    }

    #[test]
    fn selected_levels_add_up_to_the_rate() {
        for levels in 1..=32u8 {
            for k in 1..=64u64 {
                let rate = Rate::new(k, 64).unwrap();
                let Some(mask) = rate.levels(levels) else { continue };
                let share = |level: u8| {
                    0.5f64.powi(i32::from(if level + 1 == levels { level } else { level + 1 }))
                };
                let sum: f64 = (0..levels).filter(|level| mask >> level & 1 == 1).map(share).sum();
                let steps = f64::from(1u32 << levels.saturating_sub(1).min(31));
                assert_eq!(
                    sum,
                    (rate.as_f64() * steps).floor() / steps,
                    "{rate} with {levels} levels"
                );
            }
        }
    }

    #[test]
    fn rejects_invalid_rates() {
        for text in [
            "",
            "0",
            "0/8",
            "9/8",
            "1.5",
            "-1",
            "1/0",
            "x",
            "1/",
            "/2",
            "0.",
            "1e-3",
            "99999999999999999999",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }
}
