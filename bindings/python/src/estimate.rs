//! Estimates about all readings, computed from a verified sample, with 95 % confidence intervals.

use std::collections::BTreeMap;
use std::sync::Arc;

use moteseal_api::{ErrorKind, Query};
use moteseal_client::estimate::{
    Condition, GroupSample, Method, REPLICATES, Sample, Statistic, Subject,
};
use moteseal_core::record::DeviceId;
use moteseal_seal::sample::Choice;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Problem;
use crate::query::{number, seed};
use crate::verification_report::{Report, incomplete, loads};
use crate::work;

/// The maximum number of bins of a histogram.
const MOST_BINS: u16 = 1000;

/// An estimate with a 95 % confidence interval. A bound is None if the sample is too small for it.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Interval {
    /// The estimate.
    value: f64,
    /// The lower bound of the interval.
    low: Option<f64>,
    /// The upper bound of the interval.
    high: Option<f64>,
    /// The number of readings in the sample.
    sampled: u64,
    /// The number of all readings in the range, as the devices' signed seals state it.
    population: u64,
}

impl From<moteseal_client::estimate::Interval> for Interval {
    fn from(found: moteseal_client::estimate::Interval) -> Self {
        Self {
            value: found.value,
            low: found.low,
            high: found.high,
            sampled: found.sampled,
            population: found.population,
        }
    }
}

#[pymethods]
impl Interval {
    /// The distance from the estimate to the bound that is farther away; None if a bound is None.
    #[getter]
    fn half_width(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        Some((self.value - low).max(high - self.value))
    }

    fn __contains__(&self, value: f64) -> bool {
        self.low.is_none_or(|low| low <= value) && self.high.is_none_or(|high| value <= high)
    }

    fn __float__(&self) -> f64 {
        self.value
    }

    fn __repr__(&self) -> String {
        let bound = |bound: Option<f64>| {
            bound.map_or_else(|| "unknown".to_owned(), |bound| format!("{bound:.6}"))
        };
        let Self { value, low, high, sampled, population } = self;
        let (low, high) = (bound(*low), bound(*high));
        format!(
            "<moteseal.Interval {value:.6} (95 %: {low} to {high}), from {sampled} of {population} readings>"
        )
    }
}

/// One bin of a histogram: the values from low (inclusive) to high (exclusive). The last bin also
/// includes high.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Bin {
    /// The lower edge.
    low: f64,
    /// The upper edge.
    high: f64,
    /// An estimate of how many of all readings are in the bin.
    events: Py<Interval>,
}

#[pymethods]
impl Bin {
    fn __repr__(&self) -> String {
        format!("<moteseal.Bin {} to {}: {}>", self.low, self.high, self.events.get().value)
    }
}

/// Parses the subject of an estimate: a field, or a condition on a field.
pub(crate) fn subject(text: &str) -> PyResult<Subject> {
    match Subject::parse(text) {
        Subject::Field(field) if field.is_empty() || field.contains(['<', '>', '=', '!']) => {
            Err(PyValueError::new_err(format!(
                "{text:?} is neither a field nor a condition; write a condition as a field, one of < <= = != >= >, and a number: \
                 \"temperature>=25.5\""
            )))
        }
        subject => Ok(subject),
    }
}

/// A verified sample with its query and report.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) subject: Subject,
    pub(crate) each: bool,
    pub(crate) sample: GroupSample,
    pub(crate) query: Query,
    pub(crate) report: moteseal_client::Report,
    pub(crate) roster: Arc<moteseal_verify::Roster>,
}

/// The query of a sample, and the report about its verification.
#[derive(Clone, Debug)]
struct Asked {
    query: Query,
    report: Arc<moteseal_client::Report>,
    roster: Arc<moteseal_verify::Roster>,
}

/// Estimates about all readings of a range, computed from a verified sample. Each estimate has a 95
/// % confidence interval. With bootstrap=1000, the interval is computed from 1000 resamples, drawn
/// with seed. If the sample is too small for an estimate, the method raises NoSample; it never
/// returns 0 for an unknown value.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Estimates {
    subject: Subject,
    sample: Arc<Sample>,
    devices: BTreeMap<DeviceId, Arc<Sample>>,
    is_each: bool,
    asked: Asked,
    /// The device, if these are the estimates of one device.
    device: Option<DeviceId>,
}

impl Estimates {
    pub(crate) fn complete_or(
        collected: Collected,
        allow: bool,
        py: Python<'_>,
    ) -> PyResult<Py<Self>> {
        let Collected { subject, each, sample, query, report, roster } = collected;
        let asked = Asked { query, report: Arc::new(report), roster };
        let problem = if allow { None } else { incomplete(&asked.report, &asked.roster) };
        let (group, devices) = sample.into_parts();
        let devices =
            devices.into_iter().map(|(device, sample)| (device, Arc::new(sample))).collect();
        let sample = Arc::new(group);
        let estimates = Self { subject, sample, devices, is_each: each, asked, device: None };
        let estimates = Py::new(py, estimates)?;
        match problem {
            None => Ok(estimates),
            Some(problem) => {
                let error = problem.raise(py);
                error.value(py).setattr("answer", estimates)?;
                Err(error)
            }
        }
    }

    fn field_only(&self, what: &str) -> PyResult<()> {
        match &self.subject {
            Subject::Field(_) => Ok(()),
            Subject::Condition(_) => Err(PyTypeError::new_err(format!(
                "{what}() needs a field, but these estimates are of a condition; use count() or proportion()"
            ))),
        }
    }

    fn condition(&self, what: &str) -> PyResult<&Condition> {
        match &self.subject {
            Subject::Condition(condition) => Ok(condition),
            Subject::Field(field) => Err(PyTypeError::new_err(format!(
                "{what}() needs a condition, but these estimates are of a field; use a condition such as estimate(\"{field}>=0\")"
            ))),
        }
    }

    fn interval(
        &self,
        found: Option<moteseal_client::estimate::Interval>,
        py: Python<'_>,
    ) -> PyResult<Interval> {
        found.map(Interval::from).ok_or_else(|| self.no_sample().raise(py))
    }

    fn no_sample(&self) -> Problem {
        let (sampled, population) = (self.sampled(), self.population());
        let text = match self.asked.query.choice {
            Choice::Rate(_) => format!(
                "the sample is too small: it has {sampled} of {population} readings; use a higher rate or a longer range"
            ),
            _ => format!(
                "the sample is too small: it has {sampled} of {population} readings, and fewer than two of some device's epoch; \
                 increase at_most, or use a rate"
            ),
        };
        Problem::new(ErrorKind::Incomplete, "NoSample", text).about(self.device, &self.asked.roster)
    }

    /// Computes these statistics and their intervals by resampling.
    fn drawn(
        &self,
        py: Python<'_>,
        statistics: Vec<Statistic>,
        replicates: &Bound<'_, PyAny>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Interval>> {
        let replicates = number(replicates, "bootstrap")?;
        if !REPLICATES.contains(&replicates) {
            let (least, most) = (REPLICATES.start(), REPLICATES.end());
            return Err(PyValueError::new_err(format!(
                "bootstrap: expected {least} to {most} resamples, got {replicates}"
            )));
        }
        let seed = self::seed(seed)?;
        let sample = self.sample.clone();
        let found = work::run(py, move |stop| {
            let method = Method::Bootstrap { replicates, seed };
            let mut found = Vec::with_capacity(statistics.len());
            for statistic in &statistics {
                if stop.is_stopped() {
                    return Err(Problem::stopped());
                }
                let drawn = sample.estimate(statistic, method);
                found.push(
                    drawn.map_err(|error| Problem::new(ErrorKind::Usage, error.name(), error))?,
                );
            }
            Ok(found)
        })?;
        found.into_iter().map(|found| self.interval(found, py)).collect()
    }

    fn one(
        &self,
        py: Python<'_>,
        statistic: Statistic,
        drawing: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    ) -> PyResult<Interval> {
        match drawing {
            (None, Some(_)) => Err(PyValueError::new_err(
                "seed: allowed only for resampling; set the number of resamples with bootstrap=1000",
            )),
            (None, None) => {
                let found = self.sample.estimate(&statistic, Method::Analytic);
                self.interval(found.unwrap_or_default(), py)
            }
            (Some(replicates), seed) => {
                let drawn = self.drawn(py, vec![statistic], replicates, seed)?;
                drawn.into_iter().next().ok_or_else(|| self.no_sample().raise(py))
            }
        }
    }
}

#[pymethods]
impl Estimates {
    /// The number of readings in the sample.
    #[getter]
    fn sampled(&self) -> u64 {
        self.sample.sampled()
    }

    /// The number of readings in the sample whose value is null. Means, sums and quantiles do not use them.
    #[getter]
    fn nulls(&self) -> u64 {
        self.sample.nulls()
    }

    /// The number of all readings in the range, as the devices' signed seals state it.
    #[getter]
    fn population(&self) -> u64 {
        self.sample.population()
    }

    /// The sampling rate; None if the query asked for a number of readings per epoch instead.
    #[getter]
    fn rate(&self) -> Option<String> {
        match self.asked.query.choice {
            Choice::Rate(rate) => Some(rate.to_string()),
            _ => None,
        }
    }

    /// The query that was sent to the cloud. It has ids of devices and numbers of epochs.
    #[getter]
    fn query<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.asked.query.to_json())
    }

    /// The report about the verification, with an entry for each device.
    #[getter]
    fn report(&self) -> Report {
        Report { report: self.asked.report.clone() }
    }

    /// True if the data of every device is complete over the requested range.
    #[getter]
    fn complete(&self) -> bool {
        self.asked.report.is_complete()
    }

    /// The names of the devices that have no reading in the sample. Devices that sealed nothing are
    /// included.
    #[getter]
    fn unsampled(&self) -> Vec<&str> {
        let without_rows = self.asked.report.devices.iter().filter(|device| device.rows == 0);
        without_rows.map(|device| device.name.as_str()).collect()
    }

    /// The estimates for each single device that sealed something in the range; the key is the
    /// device's name. Requires estimate(..., each=True).
    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.is_each {
            return Err(PyTypeError::new_err(
                "devices: estimates for each device require estimate(..., each=True)",
            ));
        }
        let all = PyDict::new(py);
        for device in &self.asked.report.devices {
            let Some(sample) = self.devices.get(&device.device) else { continue };
            let own = Self {
                subject: self.subject.clone(),
                sample: sample.clone(),
                devices: BTreeMap::new(),
                is_each: false,
                asked: self.asked.clone(),
                device: Some(device.device),
            };
            all.set_item(&device.name, Py::new(py, own)?)?;
        }
        Ok(all)
    }

    /// Estimates the mean of the field. The interval follows Student's t-distribution with
    /// finite-population correction.
    #[pyo3(signature = (*, bootstrap = None, seed = None))]
    fn mean(
        &self,
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interval> {
        self.field_only("mean")?;
        self.one(py, Statistic::Mean, (bootstrap, seed))
    }

    /// Estimates the sum of the field.
    #[pyo3(signature = (*, bootstrap = None, seed = None))]
    fn sum(
        &self,
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interval> {
        self.field_only("sum")?;
        self.one(py, Statistic::Sum, (bootstrap, seed))
    }

    /// For a field: the number of readings, which is exact because the devices have signed it. For
    /// a condition: an estimate of how many readings meet it.
    #[pyo3(signature = (*, bootstrap = None, seed = None))]
    fn count(
        &self,
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interval> {
        match &self.subject {
            Subject::Condition(condition) => {
                self.one(py, Statistic::Count(condition.clone()), (bootstrap, seed))
            }
            Subject::Field(_) => Ok(self.sample.exact_count().into()),
        }
    }

    /// Estimates the share of readings that meet the condition, with an exact confidence interval.
    #[pyo3(signature = (*, bootstrap = None, seed = None))]
    fn proportion(
        &self,
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interval> {
        let condition = self.condition("proportion")?.clone();
        self.one(py, Statistic::Share(condition), (bootstrap, seed))
    }

    /// Estimates the q-quantile of the field; q=0.5 is the median. The bounds are order statistics
    /// of the sample.
    #[pyo3(signature = (q = 0.5, *, bootstrap = None, seed = None))]
    fn quantile(
        &self,
        py: Python<'_>,
        q: f64,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interval> {
        let found = self.quantiles(py, vec![q], bootstrap, seed)?;
        found.into_iter().next().ok_or_else(|| self.no_sample().raise(py))
    }

    /// Estimates several quantiles of the field.
    #[pyo3(signature = (at, *, bootstrap = None, seed = None))]
    fn quantiles(
        &self,
        py: Python<'_>,
        at: Vec<f64>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Interval>> {
        self.field_only("quantile")?;
        if let Some(wrong) = at.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(PyValueError::new_err(format!(
                "q: expected a number between 0 and 1, got {wrong}; 0.5 is the median"
            )));
        }
        if let Some(replicates) = bootstrap {
            return self.drawn(
                py,
                at.into_iter().map(Statistic::Quantile).collect(),
                replicates,
                seed,
            );
        }
        if seed.is_some() {
            return Err(PyValueError::new_err(
                "seed: allowed only for resampling; set the number of resamples with bootstrap=1000",
            ));
        }
        let sample = self.sample.clone();
        let found = work::run(py, move |_| Ok(sample.quantiles(&at)))?;
        found.into_iter().map(|found| self.interval(found, py)).collect()
    }

    /// Estimates how many of all readings are in each bin. The bins have equal width and extend
    /// from the smallest to the largest sampled value, unless edges are given.
    #[pyo3(signature = (bins = 10, *, edges = None))]
    fn histogram(
        &self,
        py: Python<'_>,
        bins: usize,
        edges: Option<Vec<f64>>,
    ) -> PyResult<Vec<Bin>> {
        self.field_only("histogram")?;
        let ascends = |edges: &[f64]| edges.windows(2).all(|pair| pair[0] < pair[1]);
        if let Some(edges) = &edges
            && (edges.len() < 2 || edges.len() > usize::from(MOST_BINS) + 1 || !ascends(edges))
        {
            return Err(PyValueError::new_err(
                "edges: expected 2 to 1,001 numbers in ascending order, such as [0, 10, 20]",
            ));
        }
        let bins = u16::try_from(bins).ok().filter(|bins| (1..=MOST_BINS).contains(bins));
        let bins = bins.ok_or_else(|| {
            PyValueError::new_err(format!("bins: expected a number from 1 to {MOST_BINS}"))
        })?;
        let sample = self.sample.clone();
        let found = work::run(py, move |_| {
            let edges = edges.or_else(|| sample.edges(bins));
            Ok(edges.and_then(|edges| sample.histogram(&edges)))
        })?;
        let found = found.ok_or_else(|| self.no_sample().raise(py))?;
        let bin = |bin: moteseal_client::estimate::Bin| {
            Ok(Bin {
                low: bin.low,
                high: bin.high,
                events: Py::new(py, Interval::from(bin.events))?,
            })
        };
        found.into_iter().map(bin).collect()
    }

    fn __repr__(&self) -> String {
        let what = match &self.subject {
            Subject::Field(field) => field.clone(),
            Subject::Condition(condition) => format!("a condition on {}", condition.field()),
        };
        format!(
            "<moteseal.Estimates of {what}, from {} of {} readings>",
            self.sampled(),
            self.population()
        )
    }
}
