//! A gateway's metrics, in Prometheus' text format. Every handle is made once. Each gateway has its
//! own recorder, so that several in one process do not mix.

use std::fmt;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// How often observed times move from their buffer to the buckets.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);
/// Bounds of the buckets of times, in seconds.
const BUCKETS: [f64; 12] =
    [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

/// What is counted by the name of an error.
const REFUSED: &str = "moteseal_gateway_frames_refused_total";
const FAILED: &str = "moteseal_gateway_uploads_failed_total";

pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub(crate) frames: Counter,
    pub(crate) frames_dropped: Counter,
    pub(crate) events_seen: Counter,
    pub(crate) events_discarded: Counter,
    pub(crate) events_kept: Counter,
    pub(crate) buffered: Gauge,
    pub(crate) budget: Gauge,
    pub(crate) round: Gauge,
    pub(crate) epoch: Gauge,
    pub(crate) epochs_ended: Counter,
    pub(crate) devices_absent: Gauge,
    pub(crate) link_up: Gauge,
    pub(crate) taking: Gauge,
    pub(crate) state_bytes: Gauge,
    pub(crate) state_bound: Gauge,
    pub(crate) outbox_items: Gauge,
    pub(crate) outbox_bytes: Gauge,
    pub(crate) oldest_epoch: Gauge,
    pub(crate) uploaded: Counter,
    pub(crate) held: Gauge,
    pub(crate) commit_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let describe_named = || {
            describe_counter!(REFUSED, "Frames that were refused, by the name of the reason.");
            describe_counter!(FAILED, "Uploads that failed, by the name of the error.");
        };
        metrics::with_local_recorder(&recorder, describe_named);
        let made = metrics::with_local_recorder(&recorder, || Self {
            frames: counter("moteseal_gateway_frames_total", "Frames of devices that were heard."),
            frames_dropped: counter(
                "moteseal_gateway_frames_dropped_total",
                "Frames dropped unheard: their device sent faster than it had a share in.",
            ),
            events_seen: counter(
                "moteseal_gateway_events_seen_total",
                "Events forwarded by devices, each once.",
            ),
            events_discarded: counter(
                "moteseal_gateway_events_discarded_total",
                "Events let go of because their level was below the round.",
            ),
            events_kept: counter(
                "moteseal_gateway_events_kept_total",
                "Events of epochs that were ended, as they go to the cloud.",
            ),
            buffered: gauge(
                "moteseal_gateway_buffered_events",
                "The most events that any open epoch has buffered: at most the budget.",
            ),
            budget: gauge("moteseal_gateway_budget_events", "The group's budget."),
            round: gauge("moteseal_gateway_round", "The round of the newest epoch."),
            epoch: gauge("moteseal_gateway_epoch", "The newest epoch."),
            epochs_ended: counter("moteseal_gateway_epochs_ended_total", "Epochs that were ended."),
            devices_absent: gauge(
                "moteseal_gateway_devices_absent",
                "Devices that had not closed the epoch that was ended last.",
            ),
            link_up: gauge("moteseal_gateway_link_up", "1 while the link to the devices is up."),
            taking: gauge(
                "moteseal_gateway_taking_frames",
                "1 while frames are taken; 0 while the disk is full or the state at its bound.",
            ),
            state_bytes: gauge("moteseal_gateway_state_bytes", "Bytes of journal and outbox."),
            state_bound: gauge("moteseal_gateway_state_bound_bytes", "The bound on these bytes."),
            outbox_items: gauge(
                "moteseal_gateway_outbox_items",
                "Epochs and late seals that wait for the cloud.",
            ),
            outbox_bytes: gauge("moteseal_gateway_outbox_bytes", "Bytes that wait for the cloud."),
            oldest_epoch: gauge(
                "moteseal_gateway_outbox_oldest_epoch",
                "The oldest epoch that waits for the cloud; the newest epoch if none does.",
            ),
            uploaded: counter(
                "moteseal_gateway_uploads_total",
                "Epochs and late seals that the cloud has taken.",
            ),
            held: gauge(
                "moteseal_gateway_outbox_held",
                "Epochs and late seals that the cloud refuses.",
            ),
            commit_seconds: histogram(
                "moteseal_gateway_commit_seconds",
                "How long it takes to make what was heard durable.",
            ),
            recorder: PrometheusBuilder::new().build_recorder(),
            handle: handle.clone(),
        });
        Self { recorder, ..made }
    }

    /// Counts a rejected frame by the reason's name, which is one of a small fixed set.
    pub(crate) fn refused(&self, name: &'static str) {
        metrics::with_local_recorder(&self.recorder, || {
            counter!(REFUSED, "name" => name).increment(1);
        });
    }

    /// Counts a failed upload. A name that a cloud reports counts only if it belongs to the
    /// contract.
    pub(crate) fn upload_failed(&self, name: &'static str) {
        metrics::with_local_recorder(&self.recorder, || {
            counter!(FAILED, "name" => name).increment(1);
        });
    }

    /// All of it, as text.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// A number as a gauge has it.
#[allow(clippy::cast_precision_loss)]
pub(crate) const fn value(number: u64) -> f64 {
    number as f64
}

fn counter(name: &'static str, about: &'static str) -> Counter {
    describe_counter!(name, about);
    counter!(name)
}

fn gauge(name: &'static str, about: &'static str) -> Gauge {
    describe_gauge!(name, about);
    gauge!(name)
}

fn histogram(name: &'static str, about: &'static str) -> Histogram {
    describe_histogram!(name, about);
    histogram!(name)
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
