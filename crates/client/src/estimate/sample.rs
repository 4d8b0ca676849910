//! A sample for one subject: of a group and, optionally, of each device.

use std::collections::BTreeMap;

use moteseal_core::record::DeviceId;

use super::{Bin, Condition, Estimator, Interval, Statistic, TooManyDraws, Values, bootstrap};
use crate::error::OutputError;
use crate::rows::{Rows, Sink};

/// The subject of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The values of a field.
    Field(String),
    /// The readings that meet a condition.
    Condition(Condition),
}

impl Subject {
    /// Parses a condition such as `temperature>=25`; any other text is the name of a field.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Field(text.to_owned()), Self::Condition)
    }

    /// The field whose values are collected.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Field(field) => field,
            Self::Condition(condition) => condition.field(),
        }
    }

    /// The share of readings that meet the condition; `None` for a field.
    #[must_use]
    pub fn share(&self) -> Option<Statistic> {
        self.condition().cloned().map(Statistic::Share)
    }

    /// The number of readings that meet the condition; `None` for a field.
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

/// How an interval is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// From the sampling distribution.
    #[default]
    Analytic,
    /// By the bootstrap, from replicates that the seed determines. Needs the values.
    Bootstrap {
        /// Number of replicates, within [`REPLICATES`](super::REPLICATES).
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
    /// An empty sample. Without `keep_values` it needs constant memory, but has no quantiles,
    /// histograms or bootstrap intervals.
    #[must_use]
    pub fn new(subject: Subject, keep_values: bool) -> Self {
        let estimator = match &subject {
            Subject::Field(field) => Estimator::new(field),
            Subject::Condition(condition) => Estimator::of_share(condition.clone()),
        };
        let values = keep_values.then(|| Values::new(subject.field()));
        Self { subject, estimator, values }
    }

    /// Number of readings in the sample.
    #[must_use]
    pub const fn sampled(&self) -> u64 {
        self.estimator.sampled()
    }

    /// Number of readings that the devices signed.
    #[must_use]
    pub const fn population(&self) -> u64 {
        self.estimator.count()
    }

    /// The population as an interval of width zero: it is signed, not estimated.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn exact_count(&self) -> Interval {
        let (sampled, population) = (self.sampled(), self.population());
        let value = population as f64;
        Interval { value, low: Some(value), high: Some(value), sampled, population }
    }

    /// Estimates a statistic. `None` if the sample is too small; if the statistic is of a condition
    /// other than the sample's; or if it needs values that were not kept.
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

    /// Several quantiles from one pass over the values; each is `None` if the sample is too small.
    #[must_use]
    pub fn quantiles(&self, shares: &[f64]) -> Vec<Option<Interval>> {
        match &self.values {
            Some(values) => values.quantiles(shares),
            None => vec![None; shares.len()],
        }
    }

    /// The edges of `bins` bins of equal width, from the smallest sampled value to the greatest;
    /// `None` if no finite value was kept.
    #[must_use]
    pub fn edges(&self, bins: u16) -> Option<Vec<f64>> {
        self.values.as_ref()?.edges(bins)
    }

    /// The number of readings in each bin between two of these ascending edges.
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
    /// An empty sample. With `each`, each device's sample is also kept separately; see
    /// [`Sample::new`] for `keep_values`.
    #[must_use]
    pub fn new(subject: Subject, keep_values: bool, each: bool) -> Self {
        let empty = Sample::new(subject, keep_values);
        Self { group: empty.clone(), empty, each, devices: BTreeMap::new() }
    }

    /// The sample of the whole group.
    #[must_use]
    pub const fn group(&self) -> &Sample {
        &self.group
    }

    /// The sample of a device, if it sealed something in the range and devices are kept separately.
    #[must_use]
    pub fn device(&self, device: DeviceId) -> Option<&Sample> {
        self.devices.get(&device)
    }

    /// Returns the group's sample and the samples of the devices.
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
