//! Estimates from uniform samples, with confidence intervals that use the signed event counts.
//!
//! If rows are selected by a rate, each event is sampled independently of the other events. The
//! events of all epochs and devices are then one sample without replacement from the `N` events
//! that the seals count. The interval of a mean uses Student's t distribution with the
//! finite-population correction (Cochran, Sampling Techniques, 3rd ed., sections 2.5 to 2.8).
//!
//! If rows are selected by a number of events per epoch (*at most*, *sample*), each epoch of a
//! device is a stratum with its own rate. The mean of each stratum is weighted by the stratum's
//! event count, and the degrees of freedom are Satterthwaite's (sections 5.3 and 5.4).
//!
//! Estimates accept only a [`UniformSample`](moteseal_seal::sample::UniformSample), because a party
//! that determines another selection chooses the result. Readings that a query names, and readings that a
//! redactor left in a proof, are refused (`NotUniform`).
//!
//! A reading whose value is null is a reading without a value. Means, quantiles and the bins of a
//! histogram are those of the readings that have a value; a sum adds them up. The number of readings
//! with a value is not signed, so it is estimated from the same sample: a mean is then a ratio of two
//! estimates, whose variance is that of its linear approximation (Cochran, sections 2.11 and 5A.14).
//! No condition holds for null.
//!
//! An encrypted column must be readable in every seal: there is no estimate from a part of its values,
//! which the owner of the column would have chosen, and none from ciphertext.
//!
//! An [`Estimator`] estimates means, sums, and the share of events that meet a [`Condition`], in
//! constant memory. [`Values`] keeps the sampled values, which quantiles and histograms need, and
//! [`bootstrap()`] resamples them. If a stratum has events but no sampled event, there is no
//! estimate; such a stratum is never counted as zero.

mod bootstrap;
mod condition;
mod exact_bounds;
mod sample;
mod strata;
mod values;

pub use bootstrap::{REPLICATES, Statistic, TooManyDraws, bootstrap};
pub use condition::{Condition, ConditionError};
pub use sample::{GroupSample, Method, Sample, Subject};
pub use values::{Bin, MAX_VALUES, Values};

use exact_bounds::{Draw, share_bounds};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::sample::Choice;
use strata::{Strata, Stratum};

use crate::decrypt::{Column, ColumnValues, Withheld};
use crate::error::OutputError;
use crate::rows::{Rows, Sink};

/// Estimates the mean and the sum of one field, or the share of events that meet a condition.
#[derive(Clone, Debug)]
pub struct Estimator {
    field: Field,
    condition: Option<Condition>,
    /// The current stratum: an epoch of a device, or `None` if rows are selected by a rate.
    at: Option<(DeviceId, EpochNumber)>,
    stratum: Stratum,
    closed: Strata,
    /// The number of sampled events without a value, if there is a condition.
    without: u64,
}

/// The name of a field.
#[derive(Clone, Debug)]
struct Field(String);

impl Field {
    fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Calls `take` with the value of the field in every row, which is `None` for null.
    fn each(&self, rows: &Rows<'_>, mut take: impl FnMut(Option<f64>)) -> Result<(), OutputError> {
        let device = rows.name();
        if rows.uniform().is_none() {
            return Err(OutputError::not_uniform(format_args!(
                "the readings of {device} in the epoch from {} are not a uniform sample: a query named \
                 them, or a redactor left them in the proof; estimate from a query to a cloud",
                rows.start_text()
            )));
        }
        let columns: Vec<Column<'_>> = rows.columns().collect();
        let column =
            columns.iter().find(|column| column.field().name == self.0).ok_or_else(|| {
                if rows.has_column(&self.0) {
                    return OutputError::column_hidden(format_args!(
                        "the query does not ask for the column {} of {device}; add it to the columns",
                        self.0
                    ));
                }
                let names: Vec<&str> = columns.iter().map(|column| column.field().name).collect();
                OutputError::unfit(format_args!(
                    "the readings of {device} have no field {}; their fields are {}",
                    self.0,
                    names.join(", ")
                ))
            })?;
        let kind = column.field().kind;
        if !kind.is_numeric() {
            return Err(OutputError::unfit(format_args!(
                "the values of {} are of type {kind}, which has no statistics",
                self.0
            )));
        }
        let readable = match column.values() {
            // The session has refused the values of sanitisers that the caller does not accept.
            ColumnValues::Device(values) | ColumnValues::Sanitised { values, .. } => values,
            ColumnValues::Withheld(_) if rows.statement().counters.total() == 0 => return Ok(()),
            ColumnValues::Withheld(Withheld::Hidden) => {
                return Err(OutputError::column_hidden(format_args!(
                    "the column {} of {device} is hidden in the epoch from {}; ask for data that \
                     shows it",
                    self.0,
                    rows.start_text()
                )));
            }
            ColumnValues::Withheld(withheld) => {
                return Err(OutputError::column_encrypted(format_args!(
                    "the column {} of {device} is not readable in the epoch from {}: {}: {withheld}",
                    self.0,
                    rows.start_text(),
                    withheld.name()
                )));
            }
        };
        let mut result = Ok(());
        rows.for_each(|_, _, record| match readable.read_f64(record) {
            Ok(value) => take(value),
            Err(error) => result = Err(OutputError::of(error)),
        });
        result
    }
}

/// Returns the stratum of a part: the device and its epoch, or `None` if rows are selected by a
/// rate.
const fn stratum_of(rows: &Rows<'_>) -> Option<(DeviceId, EpochNumber)> {
    match rows.uniform() {
        Some((_, Choice::AtMost(_) | Choice::Sample { .. })) => {
            Some((rows.device(), rows.statement().epoch))
        }
        _ => None,
    }
}

/// An estimate with a symmetric 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Half the width of the 95 % confidence interval.
    pub half_width: f64,
    /// The number of events in the sample.
    pub sampled: u64,
    /// The number of events that the seals count.
    pub population: u64,
}

/// An estimate with the bounds of a 95 % confidence interval, which may be asymmetric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower bound; `None` if the sample is too small to give one.
    pub low: Option<f64>,
    /// The upper bound; `None` if the sample is too small to give one.
    pub high: Option<f64>,
    /// The number of events in the sample.
    pub sampled: u64,
    /// The number of events that the seals count.
    pub population: u64,
}

impl Interval {
    /// Estimates the number of events in the population that have a property, if `hits` sampled
    /// events have it.
    #[allow(clippy::cast_precision_loss)]
    fn of_hits(draw: Draw, hits: u64) -> Self {
        let bounds = draw.hits(hits);
        let Draw { population, sampled } = draw;
        let value = hits as f64 * population as f64 / sampled as f64;
        Self {
            value,
            low: Some(*bounds.start() as f64),
            high: Some(*bounds.end() as f64),
            sampled,
            population,
        }
    }

    /// Multiplies the estimate and both bounds by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let times = |bound: Option<f64>| bound.map(|bound| bound * factor);
        Self { value: self.value * factor, low: times(self.low), high: times(self.high), ..self }
    }
}

impl From<Estimate> for Interval {
    fn from(Estimate { value, half_width, sampled, population }: Estimate) -> Self {
        Self {
            value,
            low: Some(value - half_width),
            high: Some(value + half_width),
            sampled,
            population,
        }
    }
}

impl Estimator {
    /// Creates an estimator of the mean and the sum of the field called `field`.
    #[must_use]
    pub fn new(field: &str) -> Self {
        let (field, stratum, closed) = (Field::new(field), Stratum::default(), Strata::default());
        Self { field, condition: None, at: None, stratum, closed, without: 0 }
    }

    /// Creates an estimator of the share of events that meet a condition.
    #[must_use]
    pub fn of_share(condition: Condition) -> Self {
        Self { condition: Some(condition.clone()), ..Self::new(condition.field()) }
    }

    /// Estimates the number of events that meet the condition given to
    /// [`of_share`](Self::of_share). The bounds are exact if all events were sampled at one rate;
    /// otherwise they are the bounds of Korn and Graubard.
    ///
    /// Returns `None` if the estimator has no condition, if no event was sampled, or in the cases
    /// in which [`mean`](Self::mean) returns `None`. If all events were sampled at one rate, one
    /// sampled event is enough.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn hits(&self) -> Option<Interval> {
        self.condition.as_ref()?;
        if self.at.is_none() {
            let Stratum { population, sampled, hits, .. } = self.stratum;
            return (sampled > 0).then(|| Interval::of_hits(Draw { population, sampled }, hits));
        }
        let all = self.closed.close(&self.stratum);
        if all.blind || all.population == 0 {
            return None;
        }
        let population = all.population as f64;
        let share = (all.total / population).clamp(0.0, 1.0);
        let (low, high) = if all.sampled == all.population {
            (share, share)
        } else {
            let most = population * population / all.weights;
            let size = if all.variance > 0.0 {
                let wider =
                    student_t_975(all.sampled.saturating_sub(1)) / student_t_975(all.freedom());
                share * (1.0 - share) * population * population / all.variance
                    * wider.min(1.0).powi(2)
            } else {
                most
            };
            share_bounds(share, size.min(most))
        };
        let share = Interval {
            value: share,
            low: Some(low),
            high: Some(high),
            sampled: all.sampled,
            population: all.population,
        };
        Some(share.times(population))
    }

    /// Estimates the share of events that meet the condition. Returns `None` in the same cases as
    /// [`hits`](Self::hits).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn share(&self) -> Option<Interval> {
        self.hits().map(|hits| hits.times(1.0 / hits.population as f64))
    }

    /// Returns the number of events in the sample.
    #[must_use]
    pub const fn sampled(&self) -> u64 {
        self.closed.sampled + self.stratum.sampled
    }

    /// Estimates the mean over all events that have a value.
    ///
    /// Returns `None` if no value was sampled. Also returns `None` if a stratum was not sampled
    /// completely and has fewer than two sampled events: the variance of such a stratum is unknown,
    /// and leaving the stratum out would estimate the mean of a different population.
    #[must_use]
    pub fn mean(&self) -> Option<Estimate> {
        let all = self.whole()?;
        let mean = all.total / all.values;
        Some(Self::estimate(&all, mean, all.variance_around(mean).sqrt() / all.values))
    }

    /// Estimates the sum over all events that have a value. Returns `None` in the same cases as
    /// [`mean`](Self::mean).
    #[must_use]
    pub fn sum(&self) -> Option<Estimate> {
        let all = self.whole()?;
        Some(Self::estimate(&all, all.total, all.variance_around(0.0).sqrt()))
    }

    /// Returns the totals over all strata, if they suffice for an estimate.
    fn whole(&self) -> Option<Strata> {
        let all = self.closed.close(&self.stratum);
        (!all.blind && all.values > 0.0).then_some(all)
    }

    fn estimate(all: &Strata, value: f64, deviation: f64) -> Estimate {
        let half_width =
            if deviation > 0.0 { student_t_975(all.freedom()) * deviation } else { 0.0 };
        Estimate { value, half_width, sampled: all.sampled, population: all.population }
    }

    /// Returns the number of sampled events without a value.
    #[must_use]
    pub const fn nulls(&self) -> u64 {
        self.closed.nulls + self.stratum.nulls + self.without
    }

    /// Returns the number of events that the seals count. This number is signed by the devices, not
    /// estimated.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.closed.population + self.stratum.population
    }

    /// Switches to the stratum `at`. The rows of a stratum must arrive consecutively.
    fn go_to(&mut self, at: Option<(DeviceId, EpochNumber)>) {
        if at != self.at {
            self.closed = self.closed.close(&std::mem::take(&mut self.stratum));
            self.at = at;
        }
    }
}

impl Sink for Estimator {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.go_to(stratum_of(rows));
        let Self { field, condition, stratum, without, .. } = self;
        stratum.population += rows.statement().counters.total();
        field.each(rows, |value| match (condition.as_ref(), value) {
            (None, Some(value)) => stratum.take(value),
            (None, None) => stratum.take_null(),
            (Some(condition), value) => {
                let holds = value.is_some_and(|value| condition.holds(value));
                stratum.hits += u64::from(holds);
                stratum.take(f64::from(u8::from(holds)));
                *without += u64::from(value.is_none());
            }
        })
    }
}

/// Returns the 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom (at
/// least 1). The value is exact for 1 and 2 degrees of freedom. For more, it is the expansion of
/// Abramowitz and Stegun, 26.7.5, which is accurate to 0.1 %.
#[must_use]
pub fn student_t_975(freedom: u64) -> f64 {
    const Z: f64 = 1.959_963_984_540_054;
    match freedom {
        0 => f64::INFINITY,
        1 => 12.706_204_736_432_095,
        2 => 4.302_652_729_696_142,
        #[allow(clippy::cast_precision_loss)]
        _ => {
            let v = freedom as f64;
            let (z2, z3) = (Z * Z, Z * Z * Z);
            let (z5, z7) = (z3 * z2, z3 * z2 * z2);
            let z9 = z7 * z2;
            let g1 = (z3 + Z) / 4.0;
            let g2 = (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / 96.0;
            let g3 = (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / 384.0;
            let g4 = (79.0 * z9 + 776.0 * z7 + 1482.0 * z5 - 1920.0 * z3 - 945.0 * Z) / 92_160.0;
            Z + g1 / v + g2 / v.powi(2) + g3 / v.powi(3) + g4 / v.powi(4)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_t_quantile_agrees_with_published_tables() {
        for (freedom, expected) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (10, 2.228),
            (30, 2.042),
            (120, 1.980),
        ] {
            let relative = (student_t_975(freedom) / expected - 1.0).abs();
            assert!(
                relative < 0.002,
                "{freedom}: {} instead of {expected}",
                student_t_975(freedom)
            );
        }
    }

    fn stratum(population: u64, values: &[f64]) -> Stratum {
        let mut stratum = Stratum { population, ..Stratum::default() };
        values.iter().for_each(|&value| stratum.take(value));
        stratum
    }

    fn estimator(strata: &[Stratum]) -> Estimator {
        let mut estimator = Estimator::new("x");
        for (epoch, stratum) in strata.iter().enumerate() {
            estimator.go_to(Some((DeviceId([0; 8]), EpochNumber(epoch as u64))));
            estimator.stratum = *stratum;
        }
        estimator
    }

    #[test]
    fn a_complete_sample_has_an_interval_of_width_zero() {
        let estimator = estimator(&[stratum(3, &[1.0, 2.0, 6.0]), stratum(1, &[7.0])]);
        let mean = estimator.mean().unwrap();
        assert_eq!((mean.value, mean.half_width), (4.0, 0.0));
        assert_eq!(estimator.sum().unwrap().value, 16.0);
        assert_eq!(estimator.count(), 4);
    }

    /// The expected interval is the textbook formula, 2.5 +- t(3) * sqrt(s^2 / n * (1 - n / N)),
    /// with s^2 = 5/3.
    #[test]
    fn one_stratum_has_the_interval_of_a_simple_random_sample() {
        let mean = estimator(&[stratum(10, &[1.0, 2.0, 3.0, 4.0])]).mean().unwrap();
        let expected = student_t_975(3) * (5.0 / 3.0 / 4.0 * 0.6f64).sqrt();
        assert!(
            (mean.value - 2.5).abs() < 1e-12 && (mean.half_width - expected).abs() < 1e-9,
            "{mean:?}"
        );
    }

    #[test]
    fn epochs_of_different_sizes_are_weighted_by_their_counts() {
        // Two of 100 events have values around 10, and two of 10 events have values around 20. The
        // unweighted mean of the four values would be 15.
        let mean =
            estimator(&[stratum(100, &[9.0, 11.0]), stratum(10, &[19.0, 21.0])]).mean().unwrap();
        assert!((mean.value - 1200.0 / 110.0).abs() < 1e-12, "{mean:?}");
        // The variance of each stratum's total is V = N (N - n) s^2 / n with s^2 = 2, which is 9800
        // and 80. The degrees of freedom are (V1 + V2)^2 / (V1^2 + V2^2) = 1.02, rounded down to 1.
        assert!(
            (mean.half_width - student_t_975(1) * 9880f64.sqrt() / 110.0).abs() < 1e-9,
            "{mean:?}"
        );
    }

    #[test]
    fn a_mean_is_that_of_the_events_with_a_value() {
        // Everything is sampled: two of five events have a value.
        let whole = estimator(&[Stratum { sampled: 5, nulls: 3, ..stratum(5, &[1.0, 2.0]) }]);
        let (mean, sum) = (whole.mean().unwrap(), whole.sum().unwrap());
        assert_eq!((mean.value, mean.half_width, mean.sampled, mean.population), (1.5, 0.0, 5, 5));
        assert_eq!((sum.value, sum.half_width, whole.nulls()), (3.0, 0.0, 3));
        // Four of eight sampled events have a value. The variance of the mean of a subpopulation is
        // s^2 / m * (1 - n / N) * (m - 1) / m * n / (n - 1).
        let values = [1.0, 2.0, 3.0, 4.0];
        let half = estimator(&[Stratum { sampled: 8, nulls: 4, ..stratum(80, &values) }]);
        let (mean, sum) = (half.mean().unwrap(), half.sum().unwrap());
        let expected = student_t_975(7) * (5.0 / 3.0 / 4.0 * 0.9 * 0.75 * 8.0 / 7.0_f64).sqrt();
        assert!((mean.value - 2.5).abs() < 1e-12 && (mean.half_width - expected).abs() < 1e-9);
        // The sum has the interval of the sum of a sample in which nulls are zeros.
        let zeros = estimator(&[stratum(80, &[1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0])]);
        let zeros = zeros.sum().unwrap();
        assert!((sum.value - 100.0).abs() < 1e-9 && (zeros.value - sum.value).abs() < 1e-9);
        assert!((zeros.half_width - sum.half_width).abs() < 1e-9, "{sum:?} {zeros:?}");
        assert_eq!(estimator(&[Stratum { sampled: 3, nulls: 3, ..stratum(9, &[]) }]).mean(), None);
    }

    /// Returns a generator of numbers below a bound (xorshift64*), the same ones in each run.
    fn random() -> impl FnMut(u64) -> u64 {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        move |bound| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
        }
    }

    /// Estimates means of epochs that differ in size, in their values and in the share of nulls.
    #[test]
    fn intervals_of_a_mean_over_nulls_contain_the_true_value_in_95_of_100_samples() {
        let mut next = random();
        let sizes = [(300u64, 10u64), (500, 50), (200, 80), (400, 30)];
        let mut strata: Vec<Vec<Option<f64>>> = Vec::new();
        for ((size, nulls), at) in sizes.into_iter().zip(0u32..) {
            let mut event = || {
                let value = f64::from(at) * 10.0 + next(100) as f64 / 10.0;
                (next(100) >= nulls).then_some(value)
            };
            strata.push((0..size).map(|_| event()).collect());
        }
        let all: Vec<f64> = strata.iter().flatten().flatten().copied().collect();
        let sum: f64 = all.iter().sum();
        let (mut means, mut sums) = (0u32, 0u32);
        for _ in 0..2000 {
            let mut found = Estimator::new("x");
            for (epoch, population) in (0..).zip(&strata) {
                let (mut drawn, length) = (population.clone(), population.len());
                (0..40).for_each(|at| drawn.swap(at, at + next((length - at) as u64) as usize));
                found.go_to(Some((DeviceId([0; 8]), EpochNumber(epoch))));
                found.stratum.population = length as u64;
                for value in &drawn[..40] {
                    match value {
                        Some(value) => found.stratum.take(*value),
                        None => found.stratum.take_null(),
                    }
                }
            }
            let holds = |found: Estimate, truth: f64| {
                u32::from((found.value - truth).abs() <= found.half_width)
            };
            means += holds(found.mean().unwrap(), sum / all.len() as f64);
            sums += holds(found.sum().unwrap(), sum);
        }
        println!("of 2,000: means {means}, sums {sums}");
        assert!((1860..=1940).contains(&means) && (1860..=1940).contains(&sums), "{means} {sums}");
    }

    #[test]
    fn a_share_at_one_rate_has_exact_bounds() {
        let mut estimator = Estimator::of_share("x<0".parse().unwrap());
        estimator.stratum =
            Stratum { hits: 3, ..stratum(40, &[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]) };
        // The tests of the module `exact_bounds` compare these bounds with a search through every
        // number of hits.
        let hits = estimator.hits().unwrap();
        assert_eq!(hits.value, 12.0);
        let draw = Draw { population: 40, sampled: 10 };
        assert_eq!(
            (hits.low, hits.high),
            (Some(*draw.hits(3).start() as f64), Some(*draw.hits(3).end() as f64))
        );
        assert!((estimator.share().unwrap().value - 0.3).abs() < 1e-12);
        assert_eq!(Estimator::of_share("x<0".parse().unwrap()).hits(), None);
    }

    #[test]
    fn a_share_over_strata_is_weighted_and_its_interval_is_wider_than_that_of_one_stratum() {
        let half: Vec<f64> = (0..50).map(|i| f64::from(i % 2)).collect();
        let mut strata = estimator(&[stratum(5000, &half), stratum(50, &[0.0; 50])]);
        strata.condition = Some("x>0".parse().unwrap());
        let share = strata.share().unwrap();
        assert!((share.value - 2500.0 / 5050.0).abs() < 1e-9, "{share:?}");
        let (low, high) = share_bounds(0.5, 50.0);
        assert!(
            share.low.unwrap() < low + 0.01 && share.high.unwrap() > high - 0.02,
            "{share:?} {low} {high}"
        );
    }

    /// Repeats an estimate 2,000 times. Each estimate uses a few values from each of several
    /// epochs, as a query with *at most* returns them. The epochs differ in size and in their
    /// values.
    #[test]
    fn intervals_over_strata_contain_the_true_value_in_95_of_100_samples() {
        let mut next = random();
        let strata: Vec<Vec<f64>> = [60u64, 400, 150, 90, 700, 250, 120, 310]
            .iter()
            .zip(0u32..)
            .map(|(&size, at)| {
                (0..size)
                    .map(|_| f64::from(at % 3) * 40.0 + (next(100) as f64).sqrt() * 9.0)
                    .collect()
            })
            .collect();
        let mut all = strata.concat();
        all.sort_by(f64::total_cmp);
        let shares = [0.1, 0.5, 0.9];
        let quantile = |q: f64| all[((q * all.len() as f64).ceil() as usize).max(1) - 1];
        let condition: Condition = "x<60".parse().unwrap();
        let hits = all.iter().filter(|value| condition.holds(**value)).count() as f64;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let (mut means, mut proportions, mut quantiles) = (0u32, 0u32, [0u32; 3]);
        let holds = |found: &Interval, truth: f64| {
            u32::from(
                found.low.is_none_or(|low| low <= truth)
                    && found.high.is_none_or(|high| truth <= high),
            )
        };
        for _ in 0..2000 {
            let drawn: Vec<Vec<f64>> = strata
                .iter()
                .map(|values| {
                    let mut values = values.clone();
                    let length = values.len();
                    (0..25)
                        .for_each(|at| values.swap(at, at + next((length - at) as u64) as usize));
                    values.truncate(25);
                    values
                })
                .collect();
            let (mut field, mut share) =
                (Estimator::new("x"), Estimator::of_share(condition.clone()));
            for (epoch, (values, population)) in (0..).zip(drawn.iter().zip(&strata)) {
                let population = population.len() as u64;
                let at = Some((DeviceId([0; 8]), EpochNumber(epoch)));
                field.go_to(at);
                field.stratum = stratum(population, values);
                share.go_to(at);
                let marks: Vec<f64> = values
                    .iter()
                    .map(|value| f64::from(u8::from(condition.holds(*value))))
                    .collect();
                share.stratum = stratum(population, &marks);
            }
            let parts: Vec<(u64, &[f64])> = strata
                .iter()
                .zip(&drawn)
                .map(|(population, values)| (population.len() as u64, &values[..]))
                .collect();
            let found = values::tests::values(&parts).quantiles(&shares);
            means += holds(&field.mean().unwrap().into(), mean);
            proportions += holds(&share.hits().unwrap(), hits);
            for ((covered, q), found) in quantiles.iter_mut().zip(shares).zip(found) {
                *covered += holds(&found.unwrap(), quantile(q));
            }
        }
        println!("of 2,000: means {means}, proportions {proportions}, quantiles {quantiles:?}");
        assert!((1870..=1930).contains(&means), "{means}");
        assert!(
            proportions >= 1870 && quantiles.iter().all(|covered| *covered >= 1870),
            "{proportions} {quantiles:?}"
        );
    }

    #[test]
    fn a_stratum_with_fewer_than_two_samples_has_no_estimate() {
        assert_eq!(estimator(&[stratum(9, &[1.0])]).mean(), None);
        assert_eq!(estimator(&[stratum(9, &[1.0, 2.0]), stratum(5, &[])]).mean(), None);
        assert_eq!(estimator(&[]).mean(), None);
        assert!(estimator(&[stratum(9, &[1.0, 2.0]), stratum(0, &[])]).mean().is_some());
    }
}
