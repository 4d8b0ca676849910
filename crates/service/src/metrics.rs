//! A table of metrics in Prometheus' text format.
//!
//! Each service has its own table, so that the metrics of several services in one process are
//! separate. A service registers each handle once; counting is then one atomic addition.

use std::fmt;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// How often a service calls [`Table::upkeep`].
pub const UPKEEP: Duration = Duration::from_secs(5);

/// The upper bounds of the histogram buckets for durations, in seconds.
const BUCKETS: [f64; 14] =
    [0.000_1, 0.000_3, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The metrics of one service.
pub struct Table {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        // `set_buckets` fails only for an empty list.
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        Self { handle: recorder.handle(), recorder }
    }

    /// Registers a counter and describes it.
    pub fn counter(&self, name: &'static str, about: &'static str) -> Counter {
        self.describe_counter(name, about);
        self.counter_with(name, Vec::new())
    }

    /// Registers a gauge and describes it.
    pub fn gauge(&self, name: &'static str, about: &'static str) -> Gauge {
        self.describe_gauge(name, about);
        self.gauge_with(name, Vec::new())
    }

    /// Registers a histogram of durations in seconds and describes it.
    pub fn histogram(&self, name: &'static str, about: &'static str) -> Histogram {
        self.describe_histogram(name, about);
        self.histogram_with(name, Vec::new())
    }

    /// Describes a counter that has labels; see [`counter_with`](Self::counter_with).
    pub fn describe_counter(&self, name: &'static str, about: &'static str) {
        self.recorder.describe_counter(KeyName::from(name), None, about.into());
    }

    /// Describes a gauge that has labels; see [`gauge_with`](Self::gauge_with).
    pub fn describe_gauge(&self, name: &'static str, about: &'static str) {
        self.recorder.describe_gauge(KeyName::from(name), None, about.into());
    }

    /// Describes a histogram that has labels; see [`histogram_with`](Self::histogram_with).
    pub fn describe_histogram(&self, name: &'static str, about: &'static str) {
        self.recorder.describe_histogram(KeyName::from(name), None, about.into());
    }

    /// Returns the counter with this name and these labels. Each combination of label values
    /// occupies memory for the lifetime of the table, so use only values from a bounded set.
    pub fn counter_with(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
    }

    /// Returns the gauge with this name and these labels. As for
    /// [`counter_with`](Self::counter_with), label values must come from a bounded set.
    pub fn gauge_with(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    /// Returns the histogram with this name and these labels. As for
    /// [`counter_with`](Self::counter_with), label values must come from a bounded set.
    pub fn histogram_with(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }

    /// Returns all metrics in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves recorded durations from their buffers to the buckets. A service must call this
    /// regularly, every [`UPKEEP`]; otherwise the buffers grow without limit.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

/// Converts a number to the value of a gauge. Numbers above 2^53 are rounded.
#[allow(clippy::cast_precision_loss)]
#[must_use]
pub const fn gauge_value(number: u64) -> f64 {
    number as f64
}
