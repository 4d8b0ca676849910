//! Reproducible randomness: a seeded generator, the random draws that simulations need, and
//! averages with their standard errors.

use std::fmt;
use std::str::FromStr;

use chacha20::ChaCha12Rng;
use moteseal_core::{Digest, Level};
use rand_core::{Rng, SeedableRng};

/// The seed of all random draws of a simulation. The default is all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl fmt::Display for Seed {
    /// Writes hexadecimal digits without zero bytes at the end; `00` if all bytes are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
        self.0[..length].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Seed {
    type Err = &'static str;

    /// Reads up to 64 hexadecimal digits; missing digits are zeros.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "enter an even number of hexadecimal digits, at most 64";
        let bytes = hex::decode(text).map_err(|_| WRONG)?;
        let mut seed = Self::default();
        seed.0.get_mut(..bytes.len()).ok_or(WRONG)?.copy_from_slice(&bytes);
        Ok(seed)
    }
}

impl Seed {
    /// Returns the seed of one component of a simulation.
    #[must_use]
    pub fn derive(self, part: &str, number: u64) -> Self {
        Self(Digest::of(&[b"moteseal/lab\0", &self.0, &number.to_be_bytes(), part.as_bytes()]).0)
    }

    /// Returns the generator with this seed.
    #[must_use]
    pub fn draws(self) -> Draws {
        Draws(ChaCha12Rng::from_seed(self.0))
    }
}

/// A source of random draws.
#[derive(Debug)]
pub struct Draws(ChaCha12Rng);

impl Draws {
    /// Returns 64 uniformly distributed bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number that is uniformly distributed in (0, 1], in steps of 2^-53.
    #[allow(clippy::cast_precision_loss)]
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an integer that is uniformly distributed in `0 .. bound`, with a bias of at most
    /// `bound / 2^64`.
    #[allow(clippy::cast_possible_truncation)]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws the level of an event, given that this level is at least `least`. Each higher level
    /// has half the probability of the level before it. The highest of the `levels` levels has the
    /// remaining probability.
    #[allow(clippy::cast_possible_truncation)]
    pub fn level_from(&mut self, least: u8, levels: u8) -> Level {
        let last = levels.saturating_sub(1);
        // The number of leading zeros is at most 64, so it fits into a byte.
        Level(least.saturating_add(self.word().leading_zeros() as u8).min(last))
    }

    /// Draws the number of events up to and including the first success, if each event succeeds
    /// with `probability` in (0, 1]. This is the geometric distribution, computed by inversion.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn gap(&mut self, probability: f64) -> u64 {
        if probability >= 1.0 {
            return 1;
        }
        // The cast from a floating-point number saturates.
        ((self.unit().ln() / (-probability).ln_1p()) as u64).saturating_add(1)
    }
}

/// The average of the values that were added, and its standard error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean (Welford's algorithm).
    squares: f64,
}

impl Average {
    /// Adds a value.
    #[allow(clippy::cast_precision_loss)]
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    /// Returns the number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean; 0 if there are no values.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the standard deviation of the values; 0 if there are fewer than two.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn deviation(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }

    /// Returns the standard error of the mean.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn error(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.deviation() / (self.count as f64).sqrt() }
    }
}

impl FromIterator<f64> for Average {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut average = Self::default();
        values.into_iter().for_each(|value| average.add(value));
        average
    }
}

impl fmt::Display for Average {
    /// Writes `mean ± standard error` with the formatter's precision.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(2);
        write!(f, "{:.precision$} ± {:.precision$}", self.mean, self.error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed: Seed| {
            let mut draws = seed.draws();
            [draws.word(), draws.word(), draws.gap(0.01)]
        };
        assert_eq!(draw(Seed([7; 32])), draw(Seed([7; 32])));
        assert_ne!(draw(Seed([7; 32])), draw(Seed([8; 32])));
        assert_ne!(Seed([7; 32]).derive("a", 1), Seed([7; 32]).derive("a", 2));
    }

    /// A geometric distribution with probability `p` has the mean `1 / p` and the standard
    /// deviation `sqrt(1 - p) / p`.
    #[test]
    fn gaps_have_the_mean_and_deviation_of_the_geometric_distribution() {
        let mut draws = Seed([1; 32]).draws();
        for round in [0, 1, 3, 10, 20] {
            let probability = 0.5_f64.powi(round);
            #[allow(clippy::cast_precision_loss)]
            let gaps: Average = (0..20_000).map(|_| draws.gap(probability) as f64).collect();
            let spread = (1.0 - probability).sqrt() / probability;
            assert!(
                (gaps.mean() - 1.0 / probability).abs() <= 4.0 * spread / 20_000_f64.sqrt(),
                "{round}: {gaps}"
            );
            assert!(
                (gaps.deviation() / spread.max(1e-9) - 1.0).abs() < 0.05 || round == 0,
                "{round}: {}",
                gaps.deviation()
            );
        }
    }

    #[test]
    fn levels_are_between_the_round_and_the_last_level() {
        let mut draws = Seed([2; 32]).draws();
        let mut counts = [0_u32; 8];
        for _ in 0..16_000 {
            counts[usize::from(draws.level_from(4, 8).0)] += 1;
        }
        assert_eq!(counts[..4], [0; 4]);
        for (count, expected) in counts[4..].iter().zip([8000.0, 4000.0, 2000.0, 2000.0_f64]) {
            assert!((f64::from(*count) - expected).abs() < 5.0 * expected.sqrt(), "{counts:?}");
        }
        assert_eq!(draws.level_from(9, 8), Level(7));
    }

    #[test]
    fn an_average_has_a_standard_error() {
        let average: Average = [1.0, 2.0, 3.0, 4.0].into_iter().collect();
        assert_eq!((average.count(), average.mean()), (4, 2.5));
        assert!((average.deviation() - (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(format!("{average:.1}"), "2.5 ± 0.6");
    }

    #[test]
    fn a_seed_is_shown_without_its_last_zeros() {
        assert_eq!(Seed::default().to_string(), "00");
        let mut seed = Seed::default();
        (seed.0[0], seed.0[1]) = (0xca, 0xfe);
        assert_eq!(seed.to_string(), "cafe");
    }
}
