//! Noise that makes answers differentially private (spec/sums.md, section 2.4).
//!
//! Each source adds to each field of a query the difference of two numbers with a negative binomial
//! distribution. Their sum over half of a key group has the two-sided geometric distribution: `z` has
//! a probability proportional to `alpha^|z|`. It is the discrete form of the Laplace distribution. If
//! `alpha = exp(-epsilon / (parts * s))`, if a reading changes at most `parts` fields, and each by at
//! most `s`, an answer is `(epsilon, delta)`-differentially private although the other half of the
//! key group adds no noise, or reveals it. Sums of shares of the same kind: Goryczka and Xiong, "A
//! Comprehensive Comparison of Multiparty Secure Additions with Differential Privacy" (IEEE TDSC
//! 2017), section 4.
//!
//! All computations use integers and take the same number of steps whatever the noise is. The
//! deviation from the exact distribution is part of [`DELTA`].

use zeroize::Zeroizing;

use crate::chacha::block;
use moteseal_core::chacha::BLOCK_WORDS;

/// The maximum epsilon of an answer, in thousandths.
pub const MAX_EPSILON: u32 = 4000;
/// The delta of an answer is below 2 to the power of minus this number, for key groups of at most
/// 1,024 sources and queries with at most 16 parts.
pub const DELTA: u32 = 36;
/// The maximum absolute value of the noise of a source in a field.
const MAX_BOUND: u32 = 1 << 16;
/// A number above the bound has a probability below `exp(-TAIL)`.
const TAIL: u64 = 40;
/// The number of bits after the point of a probability.
const PROBABILITY_BITS: u32 = 88;
/// The number of bits after the point of `alpha`.
const ALPHA_BITS: u32 = 32;
/// The number of bits after the point in the computation of a root.
const ROOT_BITS: u32 = 62;
/// The number of bits after the point in the computation of an exponential.
const EXP_BITS: u32 = 60;

/// The noise of a source in one epoch of a query.
#[derive(Clone, Copy)]
pub struct Noise<'k> {
    key: &'k [u8; 32],
    epoch: u64,
    /// The number of sources in the source's key group.
    pub(crate) ring: u32,
}

impl core::fmt::Debug for Noise<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Noise(secret)")
    }
}

/// The random numbers of a source for one field, epoch and query.
pub(crate) struct Random(Zeroizing<[u32; BLOCK_WORDS]>);

/// The distribution of the noise of a source in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// `alpha`, with [`ALPHA_BITS`] after the point, rounded up.
    alpha: u64,
    /// The probability of 0 of one of the two numbers, with [`PROBABILITY_BITS`] after the point.
    zero: u128,
    /// The highest value of each of the two numbers.
    bound: u32,
    /// The number of sources whose noise suffices.
    shares: u32,
}

impl<'k> Noise<'k> {
    /// Creates the noise from the source's key of the noise for a query, which no other party than
    /// the set-up knows. `ring` is the number of sources in the source's key group.
    #[must_use]
    pub const fn new(key: &'k [u8; 32], epoch: u64, ring: u32) -> Self {
        Self { key, epoch, ring }
    }

    /// Returns the random numbers for a field.
    pub(crate) fn random(&self, field: u32) -> Random {
        Random(block(self.key, field, self.epoch))
    }
}

impl Random {
    fn word(&self, at: usize) -> u128 {
        self.0.get(at).copied().unwrap_or_default().into()
    }

    /// Returns a number of [`PROBABILITY_BITS`] bits: the lower bits of three words, from `at` on.
    fn uniform(&self, at: usize) -> u128 {
        let whole = self.word(at) | self.word(at + 1) << 32 | self.word(at + 2) << 64;
        whole & ((1 << PROBABILITY_BITS) - 1)
    }

    /// Divides a range into [`STEPS`](crate::query::Plan) steps and rounds a distance from its start
    /// to one of the two nearest steps, at random, so that the mean is exact.
    pub(crate) fn rounded(&self, distance: i128, range: u64) -> u64 {
        let distance = u128::try_from(distance).unwrap_or_default().min(range.into());
        let range = u128::from(range.max(1));
        let random = ((self.word(6) | self.word(7) << 32) * range) >> 64;
        let steps = (distance * u128::from(crate::query::STEPS) + random) / range;
        u64::try_from(steps).unwrap_or_default()
    }
}

impl Terms {
    /// Returns the maximum absolute value of the noise of a source in a field that a reading changes
    /// by at most `most`. `None` if the noise is too large.
    pub(crate) fn bound(epsilon: u32, parts: u32, most: u32) -> Option<u32> {
        let scale = 1000 * u64::from(parts) * u64::from(most);
        let bound = (TAIL * scale).div_ceil(epsilon.max(1).into());
        u32::try_from(bound).ok().filter(|bound| *bound <= MAX_BOUND)
    }

    /// Returns the distribution for an epsilon in thousandths, which is shared by `parts` fields that
    /// a reading changes, each by at most `most`. `ring` is the number of sources in the key group.
    pub(crate) fn new(epsilon: u32, parts: u32, most: u32, ring: u32) -> Self {
        let bound = Self::bound(epsilon, parts, most).unwrap_or(MAX_BOUND);
        // With fewer shares, a source adds more noise. `divided` needs this limit.
        let shares = ring.div_ceil(2).clamp(1, 1 << 15);
        let scale = 1000 * u128::from(parts.max(1)) * u128::from(most.max(1));
        let alpha = exponential((u128::from(epsilon) << EXP_BITS) / scale);
        let rest = u128::from((1 << ALPHA_BITS) - alpha) << (ROOT_BITS - ALPHA_BITS);
        let zero = root(rest, shares) << (PROBABILITY_BITS - ROOT_BITS);
        Self { alpha, zero, bound, shares }
    }

    /// Returns the noise plus the bound, which is not negative.
    pub(crate) fn draw(&self, random: &Random) -> u64 {
        let [added, subtracted] = self.numbers([random.uniform(0), random.uniform(3)]);
        u64::from(self.bound) + added - subtracted
    }

    /// Returns the numbers with a negative binomial distribution that belong to uniform numbers: the
    /// number of values whose cumulative probability is not above it. The probability of `x + 1` is
    /// that of `x` times `alpha * (x + 1/shares) / (x + 1)`.
    fn numbers(&self, uniform: [u128; 2]) -> [u64; 2] {
        let (mut probability, mut cumulative, mut numbers) = (self.zero, 0, [0; 2]);
        for x in 0..self.bound {
            cumulative += probability;
            for (number, uniform) in numbers.iter_mut().zip(uniform) {
                *number += u64::from(uniform >= cumulative);
            }
            probability = (probability * u128::from(self.alpha)) >> ALPHA_BITS;
            let factor = u128::from(x) * u128::from(self.shares) + 1;
            probability = divided(probability * factor, u64::from(x + 1) * u64::from(self.shares));
        }
        numbers
    }

    /// Returns a distance from the mean that the noise of `key_groups` key groups exceeds with a
    /// probability of at most 5 %: 2.24 standard deviations, which is exact for the Laplace
    /// distribution and more than enough for a sum of more shares. A key group has at most twice the
    /// shares that suffice.
    pub(crate) fn within(&self, key_groups: u32) -> u128 {
        let (alpha, one) = (u128::from(self.alpha), 1_u128 << ALPHA_BITS);
        let variance = 4 * u128::from(key_groups) * alpha * one * (224 * 224);
        (variance / ((one - alpha) * (one - alpha) * 10_000)).isqrt() + 1
    }
}

/// Divides by a number below 2^32, digit by digit: microcontrollers take very long to divide by a
/// number of 128 bits.
fn divided(value: u128, by: u64) -> u128 {
    let (mut quotient, mut rest) = (0, 0);
    for shift in [96, 64, 32, 0] {
        let part = rest << 32 | (value >> shift) as u64 & 0xffff_ffff;
        quotient |= u128::from(part / by) << shift;
        rest = part % by;
    }
    quotient
}

/// Returns `exp(-y)` with [`ALPHA_BITS`] after the point, rounded up, below 1. `y` has [`EXP_BITS`]
/// after the point and is at most 4.
fn exponential(y: u128) -> u64 {
    // The terms are at most 11, so the products have at most 126 bits. The sum of the rounding errors
    // is below 64.
    let (mut sum, mut term) = (0_i128, 1_u128 << EXP_BITS);
    for k in 1..64_u32 {
        sum += if k % 2 == 1 { term as i128 } else { -(term as i128) };
        term = divided((term * y) >> EXP_BITS, k.into());
    }
    let up = (u128::try_from(sum).unwrap_or_default() + 64) >> (EXP_BITS - ALPHA_BITS);
    u64::try_from(up + 1).unwrap_or(u64::MAX).min((1 << ALPHA_BITS) - 1)
}

/// Returns the highest `y` with `y^degree <= x`. Both have [`ROOT_BITS`] after the point and are below
/// 1.
fn root(x: u128, degree: u32) -> u128 {
    let power = |base: u128| {
        let (mut base, mut rest, mut power) = (base, degree, 1_u128 << ROOT_BITS);
        while rest > 0 {
            if rest % 2 == 1 {
                power = (power * base) >> ROOT_BITS;
            }
            base = (base * base) >> ROOT_BITS;
            rest /= 2;
        }
        power
    };
    (0..ROOT_BITS).rev().fold(0, |found, bit| {
        let candidate = found | 1 << bit;
        if power(candidate) <= x { candidate } else { found }
    })
}
