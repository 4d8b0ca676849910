//! Bootstrap intervals. Each replicate draws `n - 1` values with replacement from each stratum of
//! `n` values, and weights them so that the interval is corrected for the finite population (Rao
//! and Wu, J. Am. Stat. Assoc. 83, 1988; Rao, Wu and Yue, Survey Methodology 18, 1992).
//!
//! The interval is the percentile interval. Its coverage is approximately 95 % for large samples
//! and is not guaranteed, unlike the coverage of the exact intervals of the other modules. The
//! random numbers are from ChaCha12, keyed by the seed, so anyone who knows the seed can reproduce
//! the interval.

use chacha20::ChaCha12Rng;
use moteseal_api::ErrorKind;
use rand_core::{Rng, SeedableRng};

use super::values::{Values, Weighted, weighted_quantile};
use super::{Condition, Interval};

/// The permitted range of the number of replicates.
pub const REPLICATES: std::ops::RangeInclusive<u32> = 100..=100_000;
/// The maximum number of draws in total. This number of draws takes minutes.
const MAX_DRAWS: u64 = 1 << 35;

/// The statistic that is estimated from each replicate.
#[derive(Clone, Debug, PartialEq)]
pub enum Statistic {
    /// The mean over all events.
    Mean,
    /// The sum over all events.
    Sum,
    /// The smallest value such that this share of all events has a value less than or equal to it.
    Quantile(f64),
    /// The share of events that meet a condition.
    Share(Condition),
    /// The number of events that meet a condition.
    Count(Condition),
}

/// The bootstrap would take too long, because it needs more than 2^35 draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the number of replicates times the number of sampled readings exceeds 2^35; request fewer \
     replicates, or a lower rate"
)]
pub struct TooManyDraws;

impl TooManyDraws {
    /// Returns the stable name of the error, `TooManyEvents`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "TooManyEvents"
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(TooManyDraws);

/// Estimates a statistic. The interval is computed from replicates of the sample: `replicates` is
/// their number, which is clamped to [`REPLICATES`], and `seed` determines the replicates.
///
/// Returns `None` if no event was sampled, or if a stratum was not sampled completely and has fewer
/// than two sampled events.
///
/// # Errors
/// [`TooManyDraws`] if the replicates need more than 2^35 draws.
#[allow(clippy::cast_precision_loss)]
pub fn bootstrap(
    values: &Values,
    statistic: &Statistic,
    replicates: u32,
    seed: &[u8; 32],
) -> Result<Option<Interval>, TooManyDraws> {
    let replicates = replicates.clamp(*REPLICATES.start(), *REPLICATES.end());
    if values.sampled().saturating_mul(replicates.into()) > MAX_DRAWS {
        return Err(TooManyDraws);
    }
    let blind = |(population, sampled): (u64, u64)| sampled < 2 && sampled < population;
    if values.strata().any(blind) {
        return Ok(None);
    }
    let Some((mut weighted, count)) = values.sorted_with_nulls() else { return Ok(None) };
    let population = values.population() as f64;
    let value = evaluate(statistic, &weighted, count, population);
    let plain: Vec<f64> = weighted.iter().map(|found| found.weight).collect();
    // The positions of each stratum's events in `weighted`.
    let mut members: Vec<Vec<u32>> = values.strata().map(|_| Vec::new()).collect();
    for (place, found) in (0..).zip(&weighted) {
        if let Some(members) = members.get_mut(found.stratum as usize) {
            members.push(place);
        }
    }
    let populations: Vec<u64> = values.strata().map(|(population, _)| population).collect();
    let mut random = ChaCha12Rng::from_seed(*seed);
    let mut estimates: Vec<f64> = (0..replicates)
        .map(|_| {
            for (members, population) in members.iter().zip(&populations) {
                redraw(&mut weighted, &plain, members, *population, &mut random);
            }
            evaluate(statistic, &weighted, count, population)
        })
        .collect();
    estimates.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = (share * (estimates.len() - 1) as f64).round() as usize;
        estimates.get(place).copied()
    };
    let (low, high) = (at(0.025), at(0.975));
    Ok(Some(Interval {
        value,
        low,
        high,
        sampled: values.sampled(),
        population: values.population(),
    }))
}

/// Resamples one stratum: sets the weight of each value according to how many times it is drawn.
#[allow(clippy::cast_precision_loss)]
fn redraw(
    weighted: &mut [Weighted],
    plain: &[f64],
    members: &[u32],
    population: u64,
    random: &mut ChaCha12Rng,
) {
    let n = members.len() as u64;
    if n < 2 || n >= population {
        return;
    }
    let corrected = (1.0 - n as f64 / population as f64).sqrt();
    let each = corrected * n as f64 / (n - 1) as f64;
    for &place in members {
        weighted[place as usize].weight = plain[place as usize] * (1.0 - corrected);
    }
    for _ in 1..n {
        let place = members[below(n, random)] as usize;
        weighted[place].weight += plain[place] * each;
    }
}

/// Returns a uniformly distributed number below `bound` (1 to 2^32), by Lemire's method: it takes
/// the high half of a product, and draws again in the cases that would bias the result.
fn below(bound: u64, random: &mut ChaCha12Rng) -> usize {
    let excess = (1u64 << 32) % bound;
    loop {
        let product = u64::from(random.next_u32()) * bound;
        if product & 0xffff_ffff >= excess {
            // The result is below `bound`, which is the length of a slice, so the conversion cannot
            // fail.
            return usize::try_from(product >> 32).unwrap_or(0);
        }
    }
}

/// Evaluates a statistic. The first `count` entries have a value.
fn evaluate(statistic: &Statistic, weighted: &[Weighted], count: usize, population: f64) -> f64 {
    let (values, nulls) = weighted.split_at(count.min(weighted.len()));
    let total = |of: &dyn Fn(f64) -> f64| {
        values.iter().map(|found| found.weight * of(found.value)).sum::<f64>()
    };
    let with_values = || if nulls.is_empty() { population } else { total(&|_| 1.0) };
    match statistic {
        Statistic::Mean => total(&|value| value) / with_values(),
        Statistic::Sum => total(&|value| value),
        Statistic::Quantile(q) => weighted_quantile(values, q * with_values()).unwrap_or(f64::NAN),
        Statistic::Share(condition) => {
            total(&|value| f64::from(u8::from(condition.holds(value)))) / population
        }
        Statistic::Count(condition) => total(&|value| f64::from(u8::from(condition.holds(value)))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::values::tests::values;
    use super::*;

    /// Returns `n` pseudo-random numbers between 0 and 1.
    fn sample(n: u32) -> Vec<f64> {
        (0..n).map(|i| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65536.0).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_a_different_seed_a_different_one() {
        let values = values(&[(1000, &sample(100))]);
        let of =
            |seed: u8| bootstrap(&values, &Statistic::Mean, 500, &[seed; 32]).unwrap().unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!((of(1).low, of(1).high), (of(2).low, of(2).high));
    }

    #[test]
    fn the_interval_of_a_mean_is_close_to_the_analytic_one() {
        let sampled = sample(400);
        let values = values(&[(800, &sampled)]);
        let found = bootstrap(&values, &Statistic::Mean, 4000, &[7; 32]).unwrap().unwrap();
        let mean = sampled.iter().sum::<f64>() / 400.0;
        let variance = sampled.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 399.0;
        let half = 1.96 * (variance / 400.0 * 0.5).sqrt();
        assert!((found.value - mean).abs() < 1e-9, "{found:?}");
        assert!(
            ((found.high.unwrap() - found.low.unwrap()) / (2.0 * half) - 1.0).abs() < 0.08,
            "{found:?}, theory {half}"
        );
    }

    #[test]
    fn a_complete_sample_has_an_interval_of_width_zero() {
        let all = values(&[(3, &[1.0, 2.0, 6.0])]);
        for (statistic, expected) in [
            (Statistic::Mean, 3.0),
            (Statistic::Sum, 9.0),
            (Statistic::Quantile(0.5), 2.0),
            (Statistic::Share("x<3".parse().unwrap()), 2.0 / 3.0),
            (Statistic::Count("x<3".parse().unwrap()), 2.0),
        ] {
            let found = bootstrap(&all, &statistic, 100, &[0; 32]).unwrap().unwrap();
            assert_eq!(
                (found.value, found.low, found.high),
                (expected, Some(expected), Some(expected)),
                "{statistic:?}"
            );
        }
    }

    #[test]
    fn a_stratum_with_fewer_than_two_samples_has_no_interval() {
        assert_eq!(bootstrap(&values(&[(9, &[1.0])]), &Statistic::Mean, 100, &[0; 32]), Ok(None));
        assert_eq!(bootstrap(&values(&[]), &Statistic::Mean, 100, &[0; 32]), Ok(None));
    }

    #[test]
    fn draws_are_uniform() {
        let mut random = ChaCha12Rng::from_seed([3; 32]);
        let mut counts = [0u32; 7];
        (0..70_000).for_each(|_| counts[below(7, &mut random)] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
    }
}
