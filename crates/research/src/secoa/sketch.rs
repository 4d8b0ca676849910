//! Sketches of the number of distinct items: Alon, Matias and Szegedy, "The space complexity of
//! approximating the frequency moments" (JCSS 58, 1999), section 2.3. Every item is hashed, and the
//! sketch is the largest number of leading zeros of a hash. A value `v` of a source counts as `v`
//! items. The sketch of all sources is therefore about the logarithm of the sum.
//!
//! One instance has a large error. SECOA averages `J` instances with different hash functions.

/// The difference between the expected largest number of leading zeros of `n` hashes and `log2 n`.
/// It is `gamma / ln 2 - 1/2`, except for a term that vanishes for large `n` and an oscillation of
/// less than 10^-5 (Flajolet and Martin 1985 analyse the same sums).
const EXCESS: f64 = 0.577_215_664_901_532_9 / std::f64::consts::LN_2 - 0.5;

/// The values of `J` instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Sketch {
    /// Creates the sketch of no items.
    #[must_use]
    pub fn empty(instances: u32) -> Self {
        Self(vec![0; instances as usize])
    }

    /// Creates the sketch of a source's value by `J * v` insertions. The items of different epochs
    /// differ, so the errors of different epochs are independent.
    #[must_use]
    pub fn of(instances: u32, source: u32, epoch: u64, value: u64) -> Self {
        let items = mix(mix(epoch) ^ u64::from(source));
        let instance = |instance: u32| {
            let seed = mix(items ^ u64::from(instance));
            // The smallest hash has the most leading zeros.
            let smallest =
                (0..value).map(|unit| mix(seed.wrapping_add(unit.wrapping_mul(GOLDEN)))).min();
            smallest.map_or(0, zeros)
        };
        Self((0..instances).map(instance).collect())
    }

    /// Draws a sketch from the distribution of the sketches of a value, without insertions. Uses
    /// inversion of draws that are uniform in (0, 1]. This function is for experiments with very
    /// many sources. A source of SECOA must not use it, because the querier must be able to repeat
    /// a sketch.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn drawn(instances: u32, value: u64, uniform: &mut dyn FnMut() -> f64) -> Self {
        // The probability that no hash has more than k zeros is (1 - 2^-(k+1))^v. In double
        // precision, the probability of 64 zeros is 0.
        let within: Vec<f64> =
            (1..=64).map(|k| (value as f64) * (-0.5_f64.powi(k)).ln_1p()).collect();
        #[allow(clippy::cast_possible_truncation)]
        let instance = |chance: f64| within.partition_point(|&most| most < chance.ln()) as u8;
        Self((0..instances).map(|_| instance(uniform())).collect())
    }

    /// Returns the values of the instances.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.0
    }

    /// Merges another sketch into this one: takes the larger value of each instance.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, &other)| *mine = other.max(*mine));
    }

    /// Returns the estimate of the sum.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        Estimate::of(&self.0)
    }
}

/// The estimate of a sum from `J` maxima.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    mean: f64,
}

impl Estimate {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(maxima: &[u8]) -> Self {
        Self {
            mean: maxima.iter().map(|&value| f64::from(value)).sum::<f64>()
                / maxima.len().max(1) as f64,
        }
    }

    /// Returns `2^mean`, as in section II.D. On average it is a quarter too large, because the mean
    /// of the maxima exceeds the logarithm of the sum by a third.
    #[must_use]
    pub fn by_the_letter(self) -> f64 {
        self.mean.exp2()
    }

    /// Returns the estimate without the expected excess of [`by_the_letter`](Self::by_the_letter).
    #[must_use]
    pub fn corrected(self) -> f64 {
        (self.mean - EXCESS).exp2()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Applies the finalizer of `SplitMix64` (Steele, Lea and Flood 2014), a permutation with
/// random-looking outputs. Its two multiplications are the minimum cost of an insertion.
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[allow(clippy::cast_possible_truncation)]
const fn zeros(hash: u64) -> u8 {
    // The number is at most 64.
    hash.leading_zeros() as u8
}
