//! Estimates from uniform samples, with intervals conditional on the signed counts.
//!
//! At a rate every event is in the sample or not, independently of all others, so that all epochs and devices together are one
//! sample without replacement of the `N` events that the seals count: a mean's interval is Student's t with finite-population
//! correction (Cochran, Sampling Techniques, 3rd ed., sections 2.5 to 2.8). A number an epoch (*at most*, *sample*) makes each
//! device's epoch a stratum with a rate of its own; their means are weighted by the counts, and the degrees of freedom are
//! Satterthwaite's (sections 5.3 and 5.4). Nothing but a [`UniformSample`](moteseal_core::sample::UniformSample) is taken, for
//! anything else would be an estimate of what the cloud chose.

use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::sample::Choice;
use moteseal_core::schema::Schema;

use crate::output::OutputError;
use crate::rows::{Rows, Sink};

/// Collects one field of a sample.
#[derive(Clone, Debug)]
pub struct Estimator {
    field: String,
    /// The stratum that rows go to: of a device's epoch, or the one of all where a rate was asked for.
    at: Option<(DeviceId, EpochNumber)>,
    stratum: Stratum,
    closed: Strata,
}

/// A part of the population that is sampled at one rate.
#[derive(Clone, Copy, Debug, Default)]
struct Stratum {
    population: u64,
    sampled: u64,
    /// Welford's running mean and sum of squared deviations.
    mean: f64,
    squares: f64,
}

impl Stratum {
    fn take(&mut self, value: f64) {
        self.sampled += 1;
        let before = value - self.mean;
        #[allow(clippy::cast_precision_loss)]
        let count = self.sampled as f64;
        self.mean += before / count;
        self.squares += before * (value - self.mean);
    }

    /// The variance of the estimated total; `None` if the sample is too small to tell.
    #[allow(clippy::cast_precision_loss)]
    fn variance(&self) -> Option<f64> {
        if self.sampled >= self.population {
            return Some(0.0);
        }
        let (n, population) = (self.sampled as f64, self.population as f64);
        (self.sampled >= 2).then(|| population * (population - n) * self.squares / (n - 1.0) / n)
    }
}

/// Strata whose rows are all there.
#[derive(Clone, Copy, Debug, Default)]
struct Strata {
    population: u64,
    sampled: u64,
    /// The estimated total of the field, and its variance.
    total: f64,
    variance: f64,
    /// The sum of squared variances, each by its degrees of freedom.
    by_freedom: f64,
    /// Some stratum is sampled too thinly to say anything of it.
    blind: bool,
}

impl Strata {
    #[allow(clippy::cast_precision_loss)]
    fn close(mut self, stratum: &Stratum) -> Self {
        self.population += stratum.population;
        self.sampled += stratum.sampled;
        self.total += stratum.mean * stratum.population as f64;
        match stratum.variance() {
            Some(variance) if variance > 0.0 => {
                self.variance += variance;
                self.by_freedom += variance * variance / (stratum.sampled - 1) as f64;
            }
            Some(_) => {}
            None => self.blind = true,
        }
        self
    }
}

/// An estimate with a 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Half the width of its 95 % confidence interval.
    pub half_width: f64,
    /// Events in the sample.
    pub sampled: u64,
    /// Events that the seals count.
    pub population: u64,
}

impl Estimator {
    /// An estimator of the field called `field`.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Self { field: field.to_owned(), at: None, stratum: Stratum::default(), closed: Strata::default() }
    }

    /// The mean over all counted events; `None` where a stratum has fewer than two sampled events and more that are not: nothing
    /// can be said of it, and leaving it out would be an estimate of something else.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn mean(&self) -> Option<Estimate> {
        let all = self.closed.close(&self.stratum);
        if all.blind || all.population == 0 {
            return None;
        }
        let population = all.population as f64;
        let half_width = if all.variance > 0.0 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let freedom = (all.variance * all.variance / all.by_freedom + 1e-6) as u64;
            student_t_975(freedom.max(1)) * all.variance.sqrt() / population
        } else {
            0.0
        };
        Some(Estimate { value: all.total / population, half_width, sampled: all.sampled, population: all.population })
    }

    /// The sum over all counted events; `None` as of [`mean`](Self::mean).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn sum(&self) -> Option<Estimate> {
        let mean = self.mean()?;
        let population = mean.population as f64;
        Some(Estimate { value: mean.value * population, half_width: mean.half_width * population, ..mean })
    }

    /// The number of events: not an estimate, the devices have signed it.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.closed.population + self.stratum.population
    }

    /// Goes to the stratum of rows, which come epoch by epoch.
    fn go_to(&mut self, at: Option<(DeviceId, EpochNumber)>) {
        if at != self.at {
            self.closed = self.closed.close(&std::mem::take(&mut self.stratum));
            self.at = at;
        }
    }
}

impl Sink for Estimator {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let schema = Schema::decode(&rows.schema().bytes).map_err(OutputError::of)?;
        let field = schema.field(&self.field).ok_or_else(|| {
            let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
            OutputError::of(format_args!("there is no field {}; there are {}", self.field, names.join(", ")))
        })?;
        self.go_to(match rows.choice() {
            Choice::Rate(_) => None,
            Choice::AtMost(_) | Choice::Sample { .. } => Some((rows.device(), rows.statement().epoch)),
        });
        self.stratum.population += rows.statement().counters.total();
        let mut result = Ok(());
        rows.for_each(|_, _, record| match field.read_f64(record) {
            Ok(value) => self.stratum.take(value),
            Err(error) => result = Err(OutputError::of(error)),
        });
        result
    }
}

/// The 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom (at least 1): exact for 1 and 2, elsewhere the
/// expansion of Abramowitz and Stegun, 26.7.5, to within 0.1 % from 3 on.
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
        for (freedom, expected) in
            [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)]
        {
            let relative = (student_t_975(freedom) / expected - 1.0).abs();
            assert!(relative < 0.002, "{freedom}: {} instead of {expected}", student_t_975(freedom));
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
    fn a_sample_of_everything_leaves_no_doubt() {
        let estimator = estimator(&[stratum(3, &[1.0, 2.0, 6.0]), stratum(1, &[7.0])]);
        let mean = estimator.mean().unwrap();
        assert_eq!((mean.value, mean.half_width), (4.0, 0.0));
        assert_eq!(estimator.sum().unwrap().value, 16.0);
        assert_eq!(estimator.count(), 4);
    }

    /// A textbook interval: 2.5 +- t(3) * sqrt(s^2 / n * (1 - n / N)) with s^2 = 5/3.
    #[test]
    fn one_stratum_is_a_simple_random_sample() {
        let mean = estimator(&[stratum(10, &[1.0, 2.0, 3.0, 4.0])]).mean().unwrap();
        let expected = student_t_975(3) * (5.0 / 3.0 / 4.0 * 0.6f64).sqrt();
        assert!((mean.value - 2.5).abs() < 1e-12 && (mean.half_width - expected).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn epochs_of_other_sizes_are_weighted_by_their_counts() {
        // Two of 100 around 10, two of 10 around 20: the plain mean of the rows would be 15.
        let mean = estimator(&[stratum(100, &[9.0, 11.0]), stratum(10, &[19.0, 21.0])]).mean().unwrap();
        assert!((mean.value - 1200.0 / 110.0).abs() < 1e-12, "{mean:?}");
        // V = N (N - n) s^2 / n with s^2 = 2: 9800 and 80; the degrees of freedom are (V1 + V2)^2 / (V1^2 + V2^2) = 1.02.
        assert!((mean.half_width - student_t_975(1) * 9880f64.sqrt() / 110.0).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn nothing_is_said_of_a_stratum_without_two_samples() {
        assert_eq!(estimator(&[stratum(9, &[1.0])]).mean(), None);
        assert_eq!(estimator(&[stratum(9, &[1.0, 2.0]), stratum(5, &[])]).mean(), None);
        assert_eq!(estimator(&[]).mean(), None);
        assert!(estimator(&[stratum(9, &[1.0, 2.0]), stratum(0, &[])]).mean().is_some());
    }
}
