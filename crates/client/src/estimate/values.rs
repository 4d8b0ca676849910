//! The sampled values, grouped by stratum. Quantiles, histograms and the bootstrap need all of
//! them.
//!
//! A value occupies eight bytes, and at most [`MAX_VALUES`] values are kept. A query with more
//! values fails with an error that recommends a lower rate. The bounds of a quantile are order
//! statistics. They are exact if all events were sampled at one rate. Otherwise they are the bounds
//! of Woodruff (J. Am. Stat. Assoc. 47, 1952) at an effective sample size.

use moteseal_core::record::{DeviceId, EpochNumber};

use super::exact_bounds::{Draw, share_bounds};
use super::{Field, Interval, stratum_of};
use crate::error::OutputError;
use crate::rows::{Rows, Sink};

/// The maximum number of values that are kept; they occupy 256 MiB.
pub const MAX_VALUES: usize = 1 << 25;

/// The sampled values of one field.
#[derive(Clone, Debug)]
pub struct Values {
    field: Field,
    at: Option<Option<(DeviceId, EpochNumber)>>,
    strata: Vec<Part>,
    values: Vec<f64>,
    most: usize,
}

/// A stratum: the number of its events, the number of sampled events without a value, and the end of
/// its values in `Values::values`.
#[derive(Clone, Copy, Debug)]
struct Part {
    population: u64,
    nulls: u64,
    end: usize,
}

impl Part {
    /// Returns the numbers of events and of sampled events.
    const fn of_all(self, values: &[f64]) -> (u64, u64) {
        (self.population, self.sampled(values))
    }

    /// Returns the numbers of events and of sampled events that have a value.
    const fn of_values(self, values: &[f64]) -> (u64, u64) {
        (self.with_values(values), values.len() as u64)
    }

    /// Returns the number of sampled events, of which `values` have a value.
    const fn sampled(self, values: &[f64]) -> u64 {
        values.len() as u64 + self.nulls
    }

    /// Returns the number of events that have a value. It is an estimate if the sample has nulls.
    #[allow(clippy::cast_possible_truncation)]
    const fn with_values(self, values: &[f64]) -> u64 {
        if self.nulls == 0 {
            return self.population;
        }
        let (population, sampled) = (self.population as u128, self.sampled(values) as u128);
        let product = population * values.len() as u128 + sampled / 2;
        // At most `population`, because there are at most as many values as sampled events.
        (product / sampled) as u64
    }
}

/// One bin of a histogram: the values from `low` up to, but not including, `high`. The last bin
/// includes `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// The lower edge.
    pub low: f64,
    /// The upper edge.
    pub high: f64,
    /// The estimated number of events of the population in the bin.
    pub events: Interval,
}

/// A sampled value, its stratum, and the number of events that it represents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighted {
    pub(super) value: f64,
    pub(super) stratum: u32,
    pub(super) weight: f64,
}

impl Values {
    /// Creates an empty collection for the field called `field`.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Self {
            field: Field::new(field),
            at: None,
            strata: Vec::new(),
            values: Vec::new(),
            most: MAX_VALUES,
        }
    }

    /// Returns the number of events in the sample.
    #[must_use]
    pub fn sampled(&self) -> u64 {
        self.parts().map(|(part, values)| part.sampled(values)).sum()
    }

    /// Returns the number of events that the seals count.
    #[must_use]
    pub fn population(&self) -> u64 {
        self.strata.iter().map(|part| part.population).sum()
    }

    /// Estimates the smallest value such that a share `q` (0 to 1) of all events has a value less
    /// than or equal to it. Returns `None` if no event was sampled, or if a stratum has events but
    /// no sampled event.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Interval> {
        self.quantiles(&[q]).into_iter().next().flatten()
    }

    /// Estimates several quantiles. The values are sorted only once.
    #[must_use]
    pub fn quantiles(&self, shares: &[f64]) -> Vec<Option<Interval>> {
        let Some(sorted) = self.sorted() else { return vec![None; shares.len()] };
        shares.iter().map(|&q| self.quantile_of(&sorted, q)).collect()
    }

    #[allow(clippy::cast_precision_loss)]
    fn quantile_of(&self, sorted: &[Weighted], q: f64) -> Option<Interval> {
        // Only events with a value count.
        let (sampled, population) = (self.values.len() as u64, self.with_values());
        let at = |rank: u64| {
            sorted.get(usize::try_from(rank.checked_sub(1)?).ok()?).map(|found| found.value)
        };
        let value = weighted_quantile(sorted, q * population as f64)?;
        let (low, high) = if self.strata.len() == 1 {
            let (low, high) = Draw { population, sampled }.ranks(rank_of(q, population));
            (low.and_then(at), high.and_then(at))
        } else if sampled == population {
            (Some(value), Some(value))
        } else {
            let (low, high) =
                share_bounds(q, self.effective_size(q, Part::of_values, |found| found <= value));
            self.between(sorted, low, high)
        };
        Some(Interval { value, low, high, sampled: self.sampled(), population: self.population() })
    }

    /// Returns the number of events that have a value. It is an estimate if the sample has nulls.
    fn with_values(&self) -> u64 {
        self.parts().map(|(part, values)| part.with_values(values)).sum()
    }

    /// Returns the bounds of a quantile whose share of the population is between `low` and `high`.
    /// The lower bound is the greatest value such that at most a share `low` of all events has
    /// values up to and including it. The upper bound is the smallest value such that at least a
    /// share `high` of all events is before it.
    #[allow(clippy::cast_precision_loss)]
    fn between(&self, sorted: &[Weighted], low: f64, high: f64) -> (Option<f64>, Option<f64>) {
        let population = self.with_values() as f64;
        let (mut below, mut bounds) = (0.0, (None, None));
        for found in sorted {
            if below >= high * population {
                bounds.1 = Some(found.value);
                break;
            }
            below += found.weight;
            if below <= low * population {
                bounds.0 = Some(found.value);
            }
        }
        bounds
    }

    /// Returns the effective sample size: the number of independent draws that would estimate the
    /// share with the same variance. It is at most the effective size by Kish's formula. `of` returns
    /// the numbers of events and of sampled events of a stratum.
    #[allow(clippy::cast_precision_loss)]
    fn effective_size(
        &self,
        share: f64,
        of: fn(Part, &[f64]) -> (u64, u64),
        holds: impl Fn(f64) -> bool,
    ) -> f64 {
        let (mut variance, mut total, mut squares) = (0.0, 0.0, 0.0);
        for (part, values) in self.parts() {
            let (population, sampled) = of(part, values);
            let (population, n) = (population as f64, sampled as f64);
            total += population;
            if sampled > 0 {
                squares += population.powi(2) / n;
            }
            let hits = values.iter().filter(|value| holds(**value)).count() as f64 / n;
            if sampled > 1 {
                variance += population * (population - n) * hits * (1.0 - hits) / (n - 1.0);
            }
        }
        variance /= total.powi(2);
        let by_weights = total.powi(2) / squares;
        by_weights.min(if variance > 0.0 {
            share * (1.0 - share) / variance
        } else {
            f64::INFINITY
        })
    }

    /// Estimates the number of events in each bin between two consecutive edges, which must be
    /// ascending. Values outside the edges are in no bin. Returns `None` if no event was sampled,
    /// or if a stratum has events but no sampled event.
    #[must_use]
    pub fn histogram(&self, edges: &[f64]) -> Option<Vec<Bin>> {
        let last = edges.len().saturating_sub(1);
        let bin = |(at, pair): (usize, &[f64])| {
            let (low, high) = (pair[0], pair[1]);
            let holds =
                |value: f64| value >= low && (value < high || (at + 1 == last && value <= high));
            Some(Bin { low, high, events: self.events(holds)? })
        };
        edges.windows(2).enumerate().map(bin).collect()
    }

    /// Returns the edges of `bins` bins of equal width, from the smallest to the greatest sampled
    /// value. Events that were not sampled may have values outside this range. Returns `None` if no
    /// finite value was sampled.
    #[must_use]
    pub fn edges(&self, bins: u16) -> Option<Vec<f64>> {
        let finite = || self.values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
        let high = if high > low { high } else { low + 1.0 };
        let width = (high - low) / f64::from(bins.max(1));
        let mut edges: Vec<f64> =
            (0..bins.max(1)).map(|bin| low + width * f64::from(bin)).collect();
        edges.push(high);
        Some(edges)
    }

    /// Estimates the number of events whose value meets the condition `holds`.
    #[allow(clippy::cast_precision_loss)]
    fn events(&self, holds: impl Fn(f64) -> bool) -> Option<Interval> {
        let (sampled, population) = (self.sampled(), self.population());
        self.is_complete().then_some(())?;
        if self.strata.len() == 1 {
            let hits = self.values.iter().filter(|value| holds(**value)).count() as u64;
            return Some(Interval::of_hits(Draw { population, sampled }, hits));
        }
        let of = |(part, values): (Part, &[f64])| {
            let hits = values.iter().filter(|value| holds(**value)).count() as f64;
            if values.is_empty() {
                0.0
            } else {
                hits * part.population as f64 / part.sampled(values) as f64
            }
        };
        let value: f64 = self.parts().map(of).sum();
        let total = population as f64;
        let (low, high) = if sampled == population {
            (value / total, value / total)
        } else {
            share_bounds(value / total, self.effective_size(value / total, Part::of_all, &holds))
        };
        Some(Interval {
            value,
            low: Some(low * total),
            high: Some(high * total),
            sampled,
            population,
        })
    }

    /// Returns the numbers of events and of sampled events of each stratum.
    pub(super) fn strata(&self) -> impl Iterator<Item = (u64, u64)> {
        self.parts().map(|(part, values)| part.of_all(values))
    }

    fn parts(&self) -> impl Iterator<Item = (Part, &[f64])> {
        let mut start = 0;
        self.strata.iter().map(move |&part| {
            let values = &self.values[start..part.end];
            start = part.end;
            (part, values)
        })
    }

    /// Returns whether the sample is not empty and has at least one event of every stratum that has
    /// events.
    fn is_complete(&self) -> bool {
        !self.values.is_empty()
            && self.strata().all(|(population, sampled)| population == 0 || sampled > 0)
    }

    /// Returns the values in ascending order with their weights, or `None` if a stratum has events
    /// but no sampled event.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn sorted(&self) -> Option<Vec<Weighted>> {
        self.is_complete().then_some(())?;
        let mut all = Vec::with_capacity(self.values.len());
        for (stratum, (part, values)) in (0..).zip(self.parts()) {
            let weight = part.with_values(values) as f64 / values.len() as f64;
            all.extend(values.iter().map(|&value| Weighted { value, stratum, weight }));
        }
        all.sort_by(|one, other| one.value.total_cmp(&other.value));
        Some(all)
    }

    /// Returns the [`sorted`](Self::sorted) values, followed by an entry for each sampled event
    /// without a value. The weights are those of all events. Also returns the number of the values.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn sorted_with_nulls(&self) -> Option<(Vec<Weighted>, usize)> {
        let mut all = self.sorted()?;
        let count = all.len();
        if self.strata.iter().any(|part| part.nulls > 0) {
            let weights: Vec<f64> = self
                .strata()
                .map(|(population, sampled)| population as f64 / sampled as f64)
                .collect();
            for found in &mut all {
                found.weight = weights.get(found.stratum as usize).copied().unwrap_or(0.0);
            }
            for ((stratum, part), weight) in (0..).zip(&self.strata).zip(weights) {
                let null = Weighted { value: f64::NAN, stratum, weight };
                all.extend((0..part.nulls).map(|_| null));
            }
        }
        Some((all, count))
    }
}

/// The relative rounding error that is tolerated in a sum or a product. Decimal shares are not
/// exact in binary; without this tolerance, a quantile could be one value too high.
const ROUNDING: f64 = 1e-12;

/// Returns the rank, from 1, of the quantile `q` among `population` sorted values.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rank_of(q: f64, population: u64) -> u64 {
    ((q * population as f64 * (1.0 - ROUNDING)).ceil() as u64).clamp(1, population.max(1))
}

/// Returns the first value at which the cumulative weight reaches `weight`.
pub(super) fn weighted_quantile(sorted: &[Weighted], weight: f64) -> Option<f64> {
    let mut sum = 0.0;
    let enough = weight * (1.0 - ROUNDING);
    let reached = sorted.iter().find(|found| {
        sum += found.weight;
        sum >= enough
    });
    reached.or(sorted.last()).map(|found| found.value)
}

impl Sink for Values {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let stratum = stratum_of(rows);
        if self.at != Some(stratum) {
            self.at = Some(stratum);
            self.strata.push(Part { population: 0, nulls: 0, end: self.values.len() });
        }
        if self.sampled().saturating_add(rows.len().into()) > self.most as u64 {
            return Err(OutputError::unfit(format_args!(
                "TooManyEvents: there are more than {} sampled readings, and all of them must be \
                 held in memory; request a lower rate, or fewer epochs",
                self.most
            )));
        }
        let (values, mut nulls) = (&mut self.values, 0);
        self.field.each(rows, |value| match value {
            Some(value) => values.push(value),
            None => nulls += 1,
        })?;
        if let Some(part) = self.strata.last_mut() {
            part.nulls += nulls;
            part.population += rows.statement().counters.total();
            part.end = self.values.len();
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns values of strata that are given by their populations and their sampled values.
    pub(in crate::estimate) fn values(strata: &[(u64, &[f64])]) -> Values {
        let mut all = Values::new("x");
        for (population, values) in strata {
            all.values.extend_from_slice(values);
            all.strata.push(Part { population: *population, nulls: 0, end: all.values.len() });
        }
        all
    }

    #[test]
    fn a_complete_sample_gives_exact_quantiles() {
        let all = values(&[(5, &[5.0, 1.0, 4.0, 2.0, 3.0])]);
        for (q, expected) in [(0.0, 1.0), (0.2, 1.0), (0.21, 2.0), (0.5, 3.0), (1.0, 5.0)] {
            let found = all.quantile(q).unwrap();
            assert_eq!(
                (found.value, found.low, found.high),
                (expected, Some(expected), Some(expected)),
                "{q}"
            );
        }
    }

    /// Decimal shares are not exact in binary: 0.07 times 100 is 7.000000000000001, but the result
    /// must be the 7th value.
    #[test]
    fn a_complete_sample_gives_exact_percentiles() {
        for population in 1..400u32 {
            let ranks: Vec<f64> = (1..=population).map(f64::from).collect();
            let all = values(&[(u64::from(population), &ranks)]);
            let shares: Vec<f64> = (0..=100).map(|percent| f64::from(percent) / 100.0).collect();
            for (percent, found) in (0..=100).zip(all.quantiles(&shares)) {
                let expected = f64::from((percent * population).div_ceil(100).max(1));
                let found = found.map(|found| (found.value, found.low, found.high));
                assert_eq!(
                    found,
                    Some((expected, Some(expected), Some(expected))),
                    "{percent} % of {population}"
                );
            }
        }
    }

    /// According to published tables of order statistics, the median of a large population is
    /// between the 40th and the 61st of 100 sampled values with 95 % confidence.
    #[test]
    fn the_bounds_of_a_median_have_the_ranks_of_published_tables() {
        let ranks: Vec<f64> = (1..=100).map(f64::from).collect();
        let median = values(&[(1_000_000_000, &ranks)]).quantile(0.5).unwrap();
        assert_eq!((median.value, median.low, median.high), (50.0, Some(40.0), Some(61.0)));
    }

    #[test]
    fn a_small_sample_has_no_bound_on_an_extreme_quantile() {
        let few = values(&[(1000, &[1.0, 2.0, 3.0, 4.0])]).quantile(0.5).unwrap();
        assert_eq!((few.low, few.high), (None, None));
        let tail = values(&[(1000, &[7.0; 50])]).quantile(0.99).unwrap();
        assert_eq!((tail.value, tail.low, tail.high), (7.0, Some(7.0), None));
    }

    #[test]
    fn strata_are_weighted_by_their_populations() {
        // Nine tenths of all events have low values, but half of the sampled events have high
        // values.
        let low: Vec<f64> = (0..50).map(f64::from).collect();
        let high: Vec<f64> = (100..150).map(f64::from).collect();
        let all = values(&[(9000, &low), (1000, &high)]);
        assert_eq!(all.quantile(0.45).unwrap().value, 24.0);
        let ninth = all.quantile(0.9).unwrap();
        assert!(ninth.value < 100.0 && ninth.low.unwrap() < ninth.value, "{ninth:?}");
        let bins = all.histogram(&[0.0, 100.0, 200.0]).unwrap();
        assert!(
            (bins[0].events.value - 9000.0).abs() < 1e-6
                && (bins[1].events.value - 1000.0).abs() < 1e-6,
            "{bins:?}"
        );
    }

    #[test]
    fn quantiles_are_those_of_the_events_with_a_value_and_bins_do_not_count_nulls() {
        let mut all = values(&[(8, &[1.0, 2.0, 3.0, 4.0])]);
        all.strata[0].nulls = 4;
        let median = all.quantile(0.5).unwrap();
        assert_eq!((median.value, median.low, median.high), (2.0, Some(2.0), Some(2.0)));
        assert_eq!((median.sampled, median.population), (8, 8));
        let bins = all.histogram(&[0.0, 2.5, 5.0]).unwrap();
        assert!(bins.iter().all(|bin| bin.events.value == 2.0), "{bins:?}");
        // The second of two strata has only nulls.
        let mut all = values(&[(1000, &[1.0, 2.0]), (500, &[])]);
        (all.strata[0].nulls, all.strata[1].nulls) = (2, 5);
        assert_eq!(all.with_values(), 500);
        let median = all.quantile(0.5).unwrap();
        assert_eq!((median.value, median.sampled, median.population), (1.0, 9, 1500));
        let bins = all.histogram(&[0.0, 1.5, 5.0]).unwrap();
        assert!(bins.iter().all(|bin| (bin.events.value - 250.0).abs() < 1e-9), "{bins:?}");
    }

    #[test]
    fn every_value_is_in_exactly_one_bin_and_the_greatest_in_the_last() {
        let all = values(&[(4, &[0.0, 1.0, 2.0, 4.0])]);
        let bins = all.histogram(&all.edges(4).unwrap()).unwrap();
        let counts: Vec<f64> = bins.iter().map(|bin| bin.events.value).collect();
        assert_eq!(counts, [1.0, 1.0, 1.0, 1.0]);
        assert_eq!((bins[3].low, bins[3].high, bins[3].events.low), (3.0, 4.0, Some(1.0)));
    }

    #[test]
    fn a_stratum_without_sampled_values_has_no_quantile() {
        assert_eq!(values(&[(9, &[])]).quantile(0.5), None);
        assert_eq!(values(&[(9, &[1.0]), (3, &[])]).quantile(0.5), None);
        assert!(values(&[(9, &[1.0]), (0, &[])]).quantile(0.5).is_some());
        assert_eq!(values(&[]).edges(3), None);
    }
}
