//! Sketches of the number of distinct items: Alon, Matias and Szegedy, "The space complexity of
//! approximating the frequency moments" (JCSS 58, 1999), section 2.3. Every item is hashed. The
//! sketch is the largest number of leading zeros of a hash. A value `v` is `v` items of its source,
//! so the sketch of all sources is about the logarithm of the sum.
//!
//! One instance has a large error. SECOA averages `J` instances with different hash functions.

/// The difference between the expected largest number of leading zeros of `n` hashes and `log2 n`:
/// `gamma / ln 2 - 1/2`, except for less than 10^-5 that oscillates with `n` and a term that
/// vanishes with `n` (Flajolet and Martin 1985 analyse the same sums).
const EXCESS: f64 = 0.577_215_664_901_532_9 / std::f64::consts::LN_2 - 0.5;

/// `J` instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Sketch {
    /// Returns the empty sketch.
    #[must_use]
    pub fn empty(instances: u32) -> Self {
        Self(vec![0; instances as usize])
    }

    /// Returns the sketch of a source's value: `J * v` insertions. Items of different epochs
    /// differ, so their errors are independent.
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

    /// Creates a sketch with the distribution of a value's sketch, without the insertions: by
    /// inversion, from draws that are uniform in (0, 1]. It is for experiments with very many
    /// sources. A source of SECOA must not use it, because the querier must be able to repeat a
    /// sketch.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn drawn(instances: u32, value: u64, uniform: &mut dyn FnMut() -> f64) -> Self {
        // No hash has more than k zeros with probability (1 - 2^-(k+1))^v. In a double, 64 zeros
        // have probability 0.
        let within: Vec<f64> =
            (1..=64).map(|k| (value as f64) * (-0.5_f64.powi(k)).ln_1p()).collect();
        #[allow(clippy::cast_possible_truncation)]
        let instance = |chance: f64| within.partition_point(|&most| most < chance.ln()) as u8;
        Self((0..instances).map(|_| instance(uniform())).collect())
    }

    /// Returns the instances' values.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.0
    }

    /// The union of two sketches: the larger value of each instance.
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

    /// `2^mean`, as in section II.D. It is a quarter too large: the mean of the maxima exceeds the
    /// logarithm of the sum by a third.
    #[must_use]
    pub fn by_the_letter(self) -> f64 {
        self.mean.exp2()
    }

    /// Returns the estimate of [`by_the_letter`](Self::by_the_letter), corrected for the expected
    /// excess.
    #[must_use]
    pub fn corrected(self) -> f64 {
        (self.mean - EXCESS).exp2()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the finalizer of `SplitMix64` (Steele, Lea and Flood 2014): a permutation with
/// random-looking outputs. Two multiplications are the minimum for an insertion.
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[allow(clippy::cast_possible_truncation)]
const fn zeros(hash: u64) -> u8 {
    // At most 64.
    hash.leading_zeros() as u8
}
