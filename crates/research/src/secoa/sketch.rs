//! Sketches of how many distinct items there are: Alon, Matias and Szegedy, "The space complexity of approximating the frequency moments"
//! (JCSS 58, 1999), section 2.3. Every item is hashed; the sketch is the largest number of zeros that a hash begins with. A value `v` is
//! `v` items of its source, so that the sketch of all sources is about the logarithm of the sum.
//!
//! One instance is far off. SECOA averages `J` of them, over hashes of their own.

/// What the expected largest number of leading zeros of `n` hashes exceeds `log2 n` by: `gamma / ln 2 - 1/2`, but for less than 10^-5 that
/// oscillates with `n` and for what vanishes with it (Flajolet and Martin 1985 analyse the same sums).
const EXCESS: f64 = 0.577_215_664_901_532_9 / std::f64::consts::LN_2 - 0.5;

/// `J` instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Sketch {
    /// The sketch of nothing.
    #[must_use]
    pub fn empty(instances: u32) -> Self {
        Self(vec![0; instances as usize])
    }

    /// The sketch of a source's value: `J * v` insertions. Other epochs are other items, so that their errors are independent.
    #[must_use]
    pub fn of(instances: u32, source: u32, epoch: u64, value: u64) -> Self {
        let items = mix(mix(epoch) ^ u64::from(source));
        let instance = |instance: u32| {
            let seed = mix(items ^ u64::from(instance));
            // The most leading zeros are the smallest hash's.
            let smallest =
                (0..value).map(|unit| mix(seed.wrapping_add(unit.wrapping_mul(GOLDEN)))).min();
            smallest.map_or(0, zeros)
        };
        Self((0..instances).map(instance).collect())
    }

    /// A sketch of the same distribution as that of a value, without its insertions: by inversion, from draws that are uniform in (0, 1].
    /// For experiments that need very many sources; no source of SECOA may do this, for others must be able to repeat it.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn drawn(instances: u32, value: u64, uniform: &mut dyn FnMut() -> f64) -> Self {
        // No hash has more than k zeros with probability (1 - 2^-(k+1))^v; 64 zeros have probability 0 in a double anyhow.
        let within: Vec<f64> =
            (1..=64).map(|k| (value as f64) * (-0.5_f64.powi(k)).ln_1p()).collect();
        #[allow(clippy::cast_possible_truncation)]
        let instance = |chance: f64| within.partition_point(|&most| most < chance.ln()) as u8;
        Self((0..instances).map(|_| instance(uniform())).collect())
    }

    /// The instances' values.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.0
    }

    /// The sketch of both: the larger value of each instance.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, &other)| *mine = other.max(*mine));
    }

    /// What it says of the sum.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        Estimate::of(&self.0)
    }
}

/// What `J` maxima say of a sum.
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

    /// `2^mean`, as section II.D has it. A quarter too large: the mean of the maxima exceeds the logarithm of the sum by a third.
    #[must_use]
    pub fn by_the_letter(self) -> f64 {
        self.mean.exp2()
    }

    /// The same without the excess that is expected.
    #[must_use]
    pub fn corrected(self) -> f64 {
        (self.mean - EXCESS).exp2()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of `SplitMix64` (Steele, Lea and Flood 2014): a permutation whose outputs pass for random. Two multiplications, as cheap
/// as an insertion can be.
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
