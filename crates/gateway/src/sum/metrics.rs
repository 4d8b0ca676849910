//! What an operator watches of a gateway that adds up sums, in Prometheus' text format.

use std::fmt;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

const REFUSED: &str = "moteseal_sum_frames_refused_total";
const SILENT: &str = "moteseal_sum_children_silent_total";

pub(super) struct SumMetrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub(super) frames: Counter,
    pub(super) frames_dropped: Counter,
    pub(super) frames_lost: Counter,
    pub(super) epochs: Counter,
    pub(super) epochs_partial: Counter,
    pub(super) participants: Gauge,
    pub(super) queries: Gauge,
    pub(super) schedule: Gauge,
    pub(super) held_bytes: Gauge,
    pub(super) link_up: Gauge,
    pub(super) up_link_up: Gauge,
}

fn counted(name: &'static str, about: &'static str) -> Counter {
    describe_counter!(name, about);
    counter!(name)
}

fn measured(name: &'static str, about: &'static str) -> Gauge {
    describe_gauge!(name, about);
    gauge!(name)
}

impl SumMetrics {
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let made = metrics::with_local_recorder(&recorder, || {
            describe_counter!(
                REFUSED,
                "Frames and query schedules that were refused, by the name of the reason."
            );
            describe_counter!(
                SILENT,
                "Epochs in which a child had not spoken in time, by its name."
            );
            Self {
                frames: counted("moteseal_sum_frames_total", "Frames of children that were heard."),
                frames_dropped: counted(
                    "moteseal_sum_frames_dropped_total",
                    "Frames dropped unheard: they came too fast.",
                ),
                frames_lost: counted(
                    "moteseal_sum_frames_lost_total",
                    "Frames that a link did not take in time.",
                ),
                epochs: counted("moteseal_sum_epochs_total", "Epochs that were sent on."),
                epochs_partial: counted(
                    "moteseal_sum_epochs_partial_total",
                    "Those of them in which a child had not spoken.",
                ),
                participants: measured(
                    "moteseal_sum_participants",
                    "Sources in the epoch that was sent on last.",
                ),
                queries: measured("moteseal_sum_queries", "Queries that run."),
                schedule: measured(
                    "moteseal_sum_schedule_number",
                    "The number of the query schedule that is followed; 0 before any.",
                ),
                held_bytes: measured(
                    "moteseal_sum_held_bytes",
                    "Bytes of children's records that are held.",
                ),
                link_up: measured(
                    "moteseal_sum_link_up",
                    "1 while the link to the children is up.",
                ),
                up_link_up: measured(
                    "moteseal_sum_up_link_up",
                    "1 while the link to the parent is up.",
                ),
                recorder: PrometheusBuilder::new().build_recorder(),
                handle: handle.clone(),
            }
        });
        Self { recorder, ..made }
    }

    /// Counts a frame that was refused. Names are ours, so there are few.
    pub(super) fn refused(&self, name: &'static str) {
        metrics::with_local_recorder(&self.recorder, || {
            counter!(REFUSED, "name" => name).increment(1)
        });
    }

    /// Counts an epoch in which a child of the tree had not spoken.
    pub(super) fn silent(&self, child: &str) {
        metrics::with_local_recorder(&self.recorder, || {
            counter!(SILENT, "child" => child.to_owned()).increment(1)
        });
    }

    pub(super) fn render(&self) -> String {
        self.handle.render()
    }

    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl fmt::Debug for SumMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SumMetrics")
    }
}
