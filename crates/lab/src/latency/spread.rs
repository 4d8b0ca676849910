//! Percentiles and histograms of times.

use serde::{Deserialize, Serialize};

/// The mean and percentiles of some times, in milliseconds. A percentile is one of the times, by the
/// nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of times.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest time.
    pub max: f64,
}

impl Spread {
    /// Computes the percentiles. All values are 0 if there are no times.
    #[must_use]
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_unstable_by(f64::total_cmp);
        let Some(&max) = times.last() else { return Self::default() };
        let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        #[allow(clippy::cast_precision_loss)]
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Self { count: times.len() as u64, mean, p50: rank(50), p90: rank(90), p99: rank(99), max }
    }
}

/// The bins of a decade.
const PER_DECADE: i32 = 10;
/// The start of the first bin, in milliseconds; shorter times are in the first bin.
const SHORTEST_MS: f64 = 1e-3;
/// The number of bins: eight decades, up to 100 s. Longer times are in the last bin.
const BINS: usize = 80;

/// The number of times in bins whose width grows with the time: ten bins a decade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    /// Counts the times, which are in milliseconds.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn of(times: &[f64]) -> Self {
        let mut bins = vec![0; BINS];
        for time in times {
            let place = (time.max(SHORTEST_MS) / SHORTEST_MS).log10() * f64::from(PER_DECADE);
            bins[(place as usize).min(BINS - 1)] += 1;
        }
        Self(bins)
    }

    /// Returns the start of each bin in milliseconds, and the number of times in it, from the first bin to
    /// the last one that are not empty.
    pub fn bins(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let first = self.0.iter().position(|&count| count > 0).unwrap_or(0);
        let last = self.0.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let start = |place: usize| {
            #[allow(clippy::cast_precision_loss)]
            let decades = place as f64 / f64::from(PER_DECADE);
            SHORTEST_MS * 10_f64.powf(decades)
        };
        self.0[first..last].iter().enumerate().map(move |(at, &count)| (start(first + at), count))
    }

    /// Returns the number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_time_of_the_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p90, spread.p99, spread.max), (100.0, 180.0, 198.0, 200.0));
        assert_eq!((spread.count, spread.mean), (200, 100.5));
        let one = Spread::of(vec![7.0]);
        assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(Vec::new()).count, 0);
    }

    #[test]
    fn each_time_is_in_the_bin_that_contains_it() {
        let histogram = Histogram::of(&[0.0, 1.01, 1.02, 9.99, 1e9]);
        assert_eq!(histogram.count(), 5);
        let bins: Vec<_> = histogram.bins().filter(|(_, count)| *count > 0).collect();
        assert_eq!(bins.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2, 1, 1]);
        assert!((bins[1].0 - 1.0).abs() < 1e-9 && bins[2].0 <= 9.99 && bins[2].0 > 7.9, "{bins:?}");
    }
}
