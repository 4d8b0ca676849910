//! The strata of a sample: the values of one, and the totals over all of them. A mean over events of
//! which some have no value is a ratio of two totals.

/// A part of the population whose events are all sampled at the same rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stratum {
    pub(super) population: u64,
    pub(super) sampled: u64,
    /// The number of sampled events without a value.
    pub(super) nulls: u64,
    /// The number of sampled events that meet the condition.
    pub(super) hits: u64,
    /// The mean of the sampled values, and the sum of their squared deviations from it, both
    /// updated by Welford's method.
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Stratum {
    pub(super) fn take(&mut self, value: f64) {
        self.sampled += 1;
        let before = value - self.mean;
        #[allow(clippy::cast_precision_loss)]
        let count = self.values() as f64;
        self.mean += before / count;
        self.squares += before * (value - self.mean);
    }

    pub(super) fn take_null(&mut self) {
        self.sampled += 1;
        self.nulls += 1;
    }

    /// Returns the number of sampled values.
    pub(super) const fn values(&self) -> u64 {
        self.sampled - self.nulls
    }

    /// Returns the factor by which a sum of squared deviations becomes the variance of an estimated
    /// total, or `None` if the sample is too small to estimate it.
    #[allow(clippy::cast_precision_loss)]
    fn variance_factor(&self) -> Option<f64> {
        if self.sampled >= self.population {
            return Some(0.0);
        }
        let (n, population) = (self.sampled as f64, self.population as f64);
        (self.sampled >= 2).then(|| population * (population - n) / (n - 1.0) / n)
    }
}

/// The totals over the strata that have been read completely.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strata {
    pub(super) population: u64,
    pub(super) sampled: u64,
    pub(super) nulls: u64,
    /// The estimated total of the field.
    pub(super) total: f64,
    /// The estimated number of events that have a value.
    pub(super) values: f64,
    /// The variance of the estimated total that the differences of the values cause.
    pub(super) variance: f64,
    /// The variance that nulls cause: `sum w (mean - r)^2` over the strata, where `r` is the value in
    /// the place of nulls. Stored as the sum of `w`, the weighted mean of the means, and the sum of
    /// the weighted squared deviations from it.
    pub(super) null_weights: f64,
    pub(super) null_mean: f64,
    pub(super) null_squares: f64,
    /// The sum of the squared variances of the strata, each divided by the degrees of freedom of
    /// its stratum.
    pub(super) by_freedom: f64,
    /// The sum of the squared weights of the sampled events.
    pub(super) weights: f64,
    /// Whether a stratum has too few sampled events for an estimate.
    pub(super) blind: bool,
}

impl Strata {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn close(mut self, stratum: &Stratum) -> Self {
        self.population += stratum.population;
        self.sampled += stratum.sampled;
        self.nulls += stratum.nulls;
        let population = stratum.population as f64;
        if stratum.nulls == 0 {
            self.total += stratum.mean * population;
            self.values += population;
        } else {
            let values = population * stratum.values() as f64 / stratum.sampled as f64;
            self.total += stratum.mean * values;
            self.values += values;
        }
        if stratum.sampled > 0 {
            self.weights += population.powi(2) / stratum.sampled as f64;
        }
        match stratum.variance_factor() {
            Some(factor) if factor > 0.0 => {
                let variance = factor * stratum.squares;
                self.variance += variance;
                self.by_freedom += variance * variance / (stratum.sampled - 1) as f64;
                let (values, nulls) = (stratum.values() as f64, stratum.nulls as f64);
                self.add_nulls(factor * values * nulls / stratum.sampled as f64, stratum.mean);
            }
            Some(_) => {}
            None => self.blind = true,
        }
        self
    }

    fn add_nulls(&mut self, weight: f64, mean: f64) {
        if weight > 0.0 {
            self.null_weights += weight;
            let before = mean - self.null_mean;
            self.null_mean += before * weight / self.null_weights;
            self.null_squares += weight * before * (mean - self.null_mean);
        }
    }

    /// Returns the variance of the estimated total of `value - instead`, where nulls count as zero.
    pub(super) fn variance_around(&self, instead: f64) -> f64 {
        self.variance + self.null_squares + self.null_weights * (self.null_mean - instead).powi(2)
    }

    /// Returns Satterthwaite's approximation of the degrees of freedom.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn freedom(&self) -> u64 {
        if self.by_freedom > 0.0 {
            ((self.variance * self.variance / self.by_freedom + 1e-6) as u64).max(1)
        } else {
            // All sampled values are equal, so that only nulls contribute to the variance.
            self.sampled.saturating_sub(1).max(1)
        }
    }
}
