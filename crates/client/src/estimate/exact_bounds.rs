//! Exact bounds for proportions and quantiles of a finite population, from a sample without
//! replacement.
//!
//! For fixed sizes of the population and of the sample, the number of hits in the sample has a
//! hypergeometric distribution. Inverting both tails of this distribution gives bounds for the
//! number of hits in the population (Cochran, Sampling Techniques, 3rd ed., section 3.6), and for
//! the two ranks that enclose a quantile. The coverage is at least 95 % for any data.
//!
//! For strata with different rates, no exact distribution is available. [`share_bounds`] then uses
//! the beta bounds of Clopper and Pearson at an effective sample size (Korn and Graubard, Survey
//! Methodology 24, 1998).

use std::ops::RangeInclusive;

/// The probability of each tail of a 95 % interval.
const TAIL: f64 = 0.025;

/// A sample of `sampled` events, drawn uniformly without replacement from `population` events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) population: u64,
    pub(super) sampled: u64,
}

impl Draw {
    /// Returns the 95 % interval of the number of events in the population that have a property, if
    /// `hits` events of the sample have it.
    pub(super) fn hits(self, hits: u64) -> RangeInclusive<u64> {
        let most = self.population - (self.sampled - hits);
        let low = if hits == 0 {
            0
        } else {
            // The smallest number of hits in the population for which the probability of `hits` or
            // more hits in the sample is greater than `TAIL`.
            first(hits, most, |marked| 1.0 - self.at_most(marked, hits - 1) > TAIL)
        };
        // One less than the smallest number of hits in the population for which the probability of
        // `hits` or fewer hits in the sample is at most `TAIL`.
        let high =
            first(low, most + 1, |marked| marked > most || self.at_most(marked, hits) <= TAIL) - 1;
        low..=high.max(low)
    }

    /// Returns the 95 % interval of the value that has rank `rank` in the sorted population, as two
    /// ranks of the sorted sample. Ranks count from 1. A bound is `None` if the sample is too small
    /// for it.
    pub(super) fn ranks(self, rank: u64) -> (Option<u64>, Option<u64>) {
        // Let v be the value of rank `rank` in the population. The sample's value of rank l is
        // greater than v if fewer than l of the population's lowest `rank` events are in the
        // sample.
        let too_high =
            first(1, self.sampled + 1, |l| l > self.sampled || self.at_most(rank, l - 1) > TAIL);
        // The sample's value of rank u is less than v if at least u of the events below v are in
        // the sample.
        let high = first(1, self.sampled + 1, |u| {
            u > self.sampled || 1.0 - self.at_most(rank - 1, u - 1) <= TAIL
        });
        (Some(too_high - 1).filter(|&low| low > 0), Some(high).filter(|&high| high <= self.sampled))
    }

    /// Returns the probability that at most `hits` of `marked` events of the population are in the
    /// sample.
    #[allow(clippy::cast_precision_loss)]
    fn at_most(self, marked: u64, hits: u64) -> f64 {
        let Self { population, sampled } = self;
        let (fewest, most) = ((sampled + marked).saturating_sub(population), sampled.min(marked));
        if hits < fewest {
            return 0.0;
        }
        if hits >= most {
            return 1.0;
        }
        let rest = population - marked;
        let probability = |hits: u64| {
            (ln_choose(marked, hits) + ln_choose(rest, sampled - hits)
                - ln_choose(population, sampled))
            .exp()
        };
        // Sum the terms from `hits` in the direction in which they decrease, until they are
        // negligible.
        let below = (u128::from(hits) + 1) * (u128::from(population) + 2)
            <= (u128::from(sampled) + 1) * (u128::from(marked) + 1);
        if below {
            let (mut at, mut term, mut sum) = (hits, probability(hits), 0.0);
            loop {
                sum += term;
                if at == fewest || term < sum * 1e-17 {
                    return sum.min(1.0);
                }
                term *= at as f64 / (marked - at + 1) as f64
                    * ((rest + at - sampled) as f64 / (sampled - at + 1) as f64);
                at -= 1;
            }
        }
        let (mut at, mut term, mut sum) = (hits + 1, probability(hits + 1), 0.0);
        loop {
            sum += term;
            if at == most || term < sum * 1e-17 {
                return (1.0 - sum).max(0.0);
            }
            term *= (marked - at) as f64 / (at + 1) as f64
                * ((sampled - at) as f64 / (rest + at + 1 - sampled) as f64);
            at += 1;
        }
    }
}

/// Returns the smallest number in `from ..= until` for which `is` returns true, by bisection. `is`
/// must return true for `until`, and for every number after the first number for which it returns
/// true.
fn first(from: u64, until: u64, is: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut until) = (from, until);
    while from < until {
        let middle = from + (until - from) / 2;
        if is(middle) { until = middle } else { from = middle + 1 }
    }
    from
}

/// Returns the 95 % interval of Clopper and Pearson for a share, if the fraction `share` of `size`
/// independent draws are hits. `size` is a number above 0 and need not be an integer.
pub(super) fn share_bounds(share: f64, size: f64) -> (f64, f64) {
    let hits = (share * size).clamp(0.0, size);
    let low = if hits <= 0.0 { 0.0 } else { beta_quantile(TAIL, hits, size - hits + 1.0) };
    let high = if hits >= size { 1.0 } else { beta_quantile(1.0 - TAIL, hits + 1.0, size - hits) };
    (low, high)
}

/// Returns the quantile of the beta distribution with the parameters `a` and `b` at `probability`.
fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if beta(middle, a, b) < probability { low = middle } else { high = middle }
    }
    high
}

/// Computes the regularized incomplete beta function from its continued fraction (DLMF 8.17.22),
/// which is evaluated by Lentz's method.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The continued fraction converges fast for `x` below this point, which is close to the mean.
    // For larger `x`, use the symmetry of the function.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    // The number of terms that are needed is about the square root of the larger parameter.
    for m in 1..100_000u32 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

#[allow(clippy::cast_precision_loss)]
fn ln_choose(n: u64, k: u64) -> f64 {
    let ln_factorial = |n: u64| ln_gamma(n as f64 + 1.0);
    if k == 0 || k >= n { 0.0 } else { ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k) }
}

/// Computes the logarithm of the gamma function for `x` above 0. Stirling's series (DLMF 5.11.1) is
/// used if `x` is at least 10. A smaller `x` is first increased by the recurrence of the gamma
/// function.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series =
        (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.918_938_533_204_672_8 + series - product.ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the binomial coefficient as a product. The result is exact while it fits into the
    /// 53 bits of a float.
    fn choose(n: u64, k: u64) -> f64 {
        if k > n {
            return 0.0;
        }
        (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
    }

    fn at_most_exact(draw: Draw, marked: u64, hits: u64) -> f64 {
        let terms = (0..=hits.min(draw.sampled)).map(|hits| {
            choose(marked, hits) * choose(draw.population - marked, draw.sampled - hits)
        });
        terms.sum::<f64>() / choose(draw.population, draw.sampled)
    }

    proptest! {
        #[test]
        fn tails_are_those_of_the_hypergeometric_distribution(
            (population, sampled, marked) in (1..60u64)
                .prop_flat_map(|n| (Just(n), 0..=n, 0..=n)),
            hits in 0..60u64,
        ) {
            let draw = Draw { population, sampled };
            let found = draw.at_most(marked, hits);
            let expected = at_most_exact(draw, marked, hits);
            prop_assert!((found - expected).abs() < 1e-9, "{} instead of {}", found, expected);
        }

        /// Compares the bounds with a search through every number of hits.
        #[test]
        fn bounds_enclose_exactly_the_numbers_that_neither_tail_excludes(
            (population, sampled, hits) in (1..40u64)
                .prop_flat_map(|n| (Just(n), 1..=n))
                .prop_flat_map(|(n, s)| (Just(n), Just(s), 0..=s)),
        ) {
            let draw = Draw { population, sampled };
            let likely = |marked: &u64| {
                let at_least = if hits == 0 {
                    1.0
                } else {
                    1.0 - at_most_exact(draw, *marked, hits - 1)
                };
                at_least > TAIL + 1e-9 && at_most_exact(draw, *marked, hits) > TAIL + 1e-9
            };
            let expected: Vec<u64> =
                (hits..=population - (sampled - hits)).filter(likely).collect();
            let bounds = draw.hits(hits);
            prop_assert!(
                expected.iter().all(|marked| bounds.contains(marked)),
                "{:?} {:?}", bounds, expected
            );
            prop_assert!(
                bounds.end() - bounds.start() < expected.len() as u64 + 2,
                "{:?} {:?}", bounds, expected
            );
        }

        /// In at least 95 % of all possible samples, the value is between the two ranks. The test
        /// counts the samples and does not use the formula that it checks.
        #[test]
        fn ranks_enclose_the_value_in_95_of_100_samples(
            (population, sampled, rank) in (2..30u64).prop_flat_map(|n| (Just(n), 1..=n, 1..=n)),
        ) {
            let (low, high) = Draw { population, sampled }.ranks(rank);
            let mut covered = 0.0;
            // The sample contains `below` of the events before the value. It either contains the
            // event with the value itself (`with`) or not (`without`).
            for below in 0..=sampled.min(rank - 1) {
                let after = population - rank;
                let without = choose(rank - 1, below) * choose(after, sampled - below);
                let with = if below < sampled {
                    choose(rank - 1, below) * choose(after, sampled - below - 1)
                } else {
                    0.0
                };
                let low_holds = |at_or_below: u64| low.is_none_or(|low| low <= at_or_below);
                let high_holds = high.is_none_or(|high| high > below);
                covered += if low_holds(below) && high_holds { without } else { 0.0 };
                covered += if low_holds(below + 1) && high_holds { with } else { 0.0 };
            }
            prop_assert!(covered / choose(population, sampled) >= 0.95 - 1e-9);
        }
    }

    #[test]
    fn bounds_of_shares_agree_with_published_values() {
        // The first three are published by Clopper and Pearson; the last is the result of R's
        // `binom.test(81, 263)`.
        for (hits, size, low, high) in [
            (5.0, 10.0, 0.1871, 0.8129),
            (0.0, 20.0, 0.0, 0.1684),
            (20.0, 20.0, 0.8316, 1.0),
            (81.0, 263.0, 0.2527, 0.3676),
        ] {
            let bounds = share_bounds(hits / size, size);
            assert!(
                (bounds.0 - low).abs() < 1e-4 && (bounds.1 - high).abs() < 1e-4,
                "{hits} of {size}: {bounds:?}"
            );
        }
    }

    #[test]
    fn bounds_are_accurate_for_a_large_population() {
        let draw = Draw { population: 4_000_000_000, sampled: 10_000_000 };
        let bounds = draw.hits(2_500_000);
        // The normal approximation is accurate at this size.
        let spread = 1.96 * (0.25f64 * 0.75 / 1e7 * (1.0 - 1e7 / 4e9)).sqrt() * 4e9;
        assert!((*bounds.start() as f64 - (1e9 - spread)).abs() < spread / 500.0, "{bounds:?}");
        assert!((*bounds.end() as f64 - (1e9 + spread)).abs() < spread / 500.0, "{bounds:?}");
    }

    #[test]
    fn a_complete_sample_has_an_interval_of_width_zero() {
        let draw = Draw { population: 9, sampled: 9 };
        assert_eq!((draw.hits(4), draw.hits(0), draw.hits(9)), (4..=4, 0..=0, 9..=9));
        assert_eq!(draw.ranks(5), (Some(5), Some(5)));
        assert_eq!(Draw { population: 9, sampled: 1 }.ranks(5), (None, None));
    }
}
