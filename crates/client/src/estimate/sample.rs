//! A sample for one subject: the sample of a group and, optionally, of each of its devices.

use std::collections::BTreeMap;

use moteseal_core::record::DeviceId;

use super::{Bin, Condition, Estimator, Interval, Statistic, TooManyDraws, Values, bootstrap};
use crate::error::OutputError;
use crate::rows::{Rows, Sink};

/// The quantity that is estimated.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The values of a field.
    Field(String),
    /// The share and the number of readings that meet a condition.
    Condition(Condition),
}

impl Subject {
    /// Parses a condition such as `temperature>=25`. Any other text is the name of a field.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Field(text.to_owned()), Self::Condition)
    }

    /// Returns the field whose values are collected.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Field(field) => field,
            Self::Condition(condition) => condition.field(),
        }
    }

    /// Returns the statistic for the share of readings that meet the condition, or `None` for a
    /// field.
    #[must_use]
    pub fn share(&self) -> Option<Statistic> {
        self.condition().cloned().map(Statistic::Share)
    }

    /// Returns the statistic for the number of readings that meet the condition, or `None` for a
    /// field.
    #[must_use]
    pub fn count(&self) -> Option<Statistic> {
        self.condition().cloned().map(Statistic::Count)
    }

    const fn condition(&self) -> Option<&Condition> {
        match self {
            Self::Field(_) => None,
            Self::Condition(condition) => Some(condition),
        }
    }
}

/// The method by which an interval is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// From the sampling distribution of the statistic.
    #[default]
    Analytic,
    /// By the bootstrap, from replicates that the seed determines. This method needs the sampled
    /// values.
    Bootstrap {
        /// The number of replicates, within [`REPLICATES`](super::REPLICATES).
        replicates: u32,
        /// The seed.
        seed: [u8; 32],
    },
}

/// The sample of a group or a device.
#[derive(Clone, Debug)]
pub struct Sample {
    subject: Subject,
    estimator: Estimator,
    values: Option<Values>,
}

impl Sample {
    /// Creates an empty sample. Without `keep_values`, the sample needs only constant memory, but
    /// it has no quantiles, histograms or bootstrap intervals.
    #[must_use]
    pub fn new(subject: Subject, keep_values: bool) -> Self {
        let estimator = match &subject {
            Subject::Field(field) => Estimator::new(field),
            Subject::Condition(condition) => Estimator::of_share(condition.clone()),
        };
        let values = keep_values.then(|| Values::new(subject.field()));
        Self { subject, estimator, values }
    }

    /// Returns the number of readings in the sample.
    #[must_use]
    pub const fn sampled(&self) -> u64 {
        self.estimator.sampled()
    }

    /// Returns the number of sampled events without a value.
    #[must_use]
    pub const fn nulls(&self) -> u64 {
        self.estimator.nulls()
    }

    /// Returns the number of readings that the seals count.
    #[must_use]
    pub const fn population(&self) -> u64 {
        self.estimator.count()
    }

    /// Returns the size of the population as an interval of width zero, because it is signed and
    /// not estimated.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn exact_count(&self) -> Interval {
        let (sampled, population) = (self.sampled(), self.population());
        let value = population as f64;
        Interval { value, low: Some(value), high: Some(value), sampled, population }
    }

    /// Estimates a statistic. Returns `None` if the sample is too small, if the statistic needs
    /// values that were not kept, or if the statistic has a condition other than the condition of
    /// the sample.
    ///
    /// # Errors
    /// [`TooManyDraws`] if the bootstrap would take too long.
    pub fn estimate(
        &self,
        statistic: &Statistic,
        method: Method,
    ) -> Result<Option<Interval>, TooManyDraws> {
        let Some(values) = &self.values else { return Ok(self.analytic(statistic)) };
        match method {
            Method::Analytic => Ok(self.analytic(statistic)),
            Method::Bootstrap { replicates, seed } => {
                bootstrap(values, statistic, replicates, &seed)
            }
        }
    }

    fn analytic(&self, statistic: &Statistic) -> Option<Interval> {
        let is_own = |condition: &Condition| self.subject.condition() == Some(condition);
        match statistic {
            Statistic::Mean => self.estimator.mean().map(Interval::from),
            Statistic::Sum => self.estimator.sum().map(Interval::from),
            Statistic::Quantile(share) => self.quantiles(&[*share]).pop().flatten(),
            Statistic::Share(condition) if is_own(condition) => self.estimator.share(),
            Statistic::Count(condition) if is_own(condition) => self.estimator.hits(),
            Statistic::Share(_) | Statistic::Count(_) => None,
        }
    }

    /// Estimates several quantiles in one pass over the values. A quantile is `None` if the sample
    /// is too small or has no values.
    #[must_use]
    pub fn quantiles(&self, shares: &[f64]) -> Vec<Option<Interval>> {
        match &self.values {
            Some(values) => values.quantiles(shares),
            None => vec![None; shares.len()],
        }
    }

    /// Returns the edges of `bins` bins of equal width, from the smallest to the greatest sampled
    /// value. Returns `None` if no finite value was kept.
    #[must_use]
    pub fn edges(&self, bins: u16) -> Option<Vec<f64>> {
        self.values.as_ref()?.edges(bins)
    }

    /// Estimates the number of readings in each bin between two consecutive edges. `edges` must be
    /// ascending.
    #[must_use]
    pub fn histogram(&self, edges: &[f64]) -> Option<Vec<Bin>> {
        self.values.as_ref()?.histogram(edges)
    }
}

impl Sink for Sample {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.estimator.rows(rows)?;
        self.values.as_mut().map_or(Ok(()), |values| values.rows(rows))
    }
}

/// The sample of a group and, optionally, of each device.
#[derive(Clone, Debug)]
pub struct GroupSample {
    empty: Sample,
    group: Sample,
    each: bool,
    devices: BTreeMap<DeviceId, Sample>,
}

impl GroupSample {
    /// Creates an empty sample. If `each` is true, the sample of each device is also kept
    /// separately. `keep_values` is explained at [`Sample::new`].
    #[must_use]
    pub fn new(subject: Subject, keep_values: bool, each: bool) -> Self {
        let empty = Sample::new(subject, keep_values);
        Self { group: empty.clone(), empty, each, devices: BTreeMap::new() }
    }

    /// Returns the sample of the whole group.
    #[must_use]
    pub const fn group(&self) -> &Sample {
        &self.group
    }

    /// Returns the sample of a device. Returns `None` if the device sealed nothing in the range, or
    /// if devices are not kept separately.
    #[must_use]
    pub fn device(&self, device: DeviceId) -> Option<&Sample> {
        self.devices.get(&device)
    }

    /// Returns the sample of the group and the samples of its devices.
    #[must_use]
    pub fn into_parts(self) -> (Sample, BTreeMap<DeviceId, Sample>) {
        (self.group, self.devices)
    }
}

impl Sink for GroupSample {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.group.rows(rows)?;
        if self.each {
            let device = self.devices.entry(rows.device());
            device.or_insert_with(|| self.empty.clone()).rows(rows)?;
        }
        Ok(())
    }
}
