//! Estimates from uniform samples, with intervals conditional on the signed counts.
//!
//! A mean's interval is Student's t with finite-population correction (Cochran, Sampling Techniques, 3rd ed., sections 2.5 to
//! 2.8): the sample is one without replacement of the `N` events that the seals count. Nothing but a
//! [`UniformSample`](moteseal_core::sample::UniformSample) is taken, for anything else would be an estimate of what the cloud chose.

use moteseal_core::schema::Schema;

use crate::output::OutputError;
use crate::rows::{Rows, Sink};

/// Collects one field of a sample.
#[derive(Clone, Debug)]
pub struct Estimator {
    field: String,
    population: u64,
    sampled: u64,
    /// Welford's running mean and sum of squared deviations.
    mean: f64,
    squares: f64,
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
        Self { field: field.to_owned(), population: 0, sampled: 0, mean: 0.0, squares: 0.0 }
    }

    /// Takes a sampled value.
    fn take(&mut self, value: f64) {
        self.sampled += 1;
        let before = value - self.mean;
        #[allow(clippy::cast_precision_loss)]
        let count = self.sampled as f64;
        self.mean += before / count;
        self.squares += before * (value - self.mean);
    }

    /// The mean over all counted events; `None` of fewer than two sampled ones, of which nothing can be said.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn mean(&self) -> Option<Estimate> {
        if self.sampled < 2 {
            return None;
        }
        let (n, population) = (self.sampled as f64, self.population as f64);
        let variance = self.squares / (n - 1.0);
        let correction = ((population - n) / population).max(0.0);
        let half_width = student_t_975(self.sampled - 1) * (variance / n * correction).sqrt();
        Some(Estimate { value: self.mean, half_width, sampled: self.sampled, population: self.population })
    }

    /// The sum over all counted events.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn sum(&self) -> Option<Estimate> {
        let population = self.population as f64;
        let mean = self.mean()?;
        Some(Estimate { value: mean.value * population, half_width: mean.half_width * population, ..mean })
    }

    /// The number of events: not an estimate, the device has signed it.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.population
    }
}

impl Sink for Estimator {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let schema = Schema::decode(&rows.schema().bytes).map_err(OutputError::of)?;
        let field = schema.field(&self.field).ok_or_else(|| {
            let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
            OutputError::of(format_args!("there is no field {}; there are {}", self.field, names.join(", ")))
        })?;
        self.population += rows.statement().counters.total();
        let mut result = Ok(());
        rows.for_each(|_, _, record| match field.read_f64(record) {
            Ok(value) => self.take(value),
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

    #[test]
    fn a_sample_of_everything_leaves_no_doubt() {
        let mut estimator = Estimator::new("x");
        [1.0, 2.0, 6.0].into_iter().for_each(|value| estimator.take(value));
        estimator.population = 3;
        let mean = estimator.mean().unwrap();
        assert_eq!((mean.value, mean.half_width), (3.0, 0.0));
        assert_eq!(estimator.sum().unwrap().value, 9.0);
        assert_eq!(estimator.count(), 3);
    }

    #[test]
    fn nothing_is_said_of_fewer_than_two() {
        let mut estimator = Estimator::new("x");
        estimator.take(1.0);
        assert_eq!(estimator.mean(), None);
    }
}
