//! The metrics of an aggregator. Each metric is registered once.

use metrics::{Counter, Gauge, Label};
use moteseal_service::Table;

const REJECTED: &str = "moteseal_sum_frames_refused_total";
const SILENT: &str = "moteseal_sum_children_silent_total";

#[derive(Debug)]
pub(super) struct SumMetrics {
    table: Table,
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

impl SumMetrics {
    pub(super) fn new() -> Self {
        let table = Table::new();
        table.describe_counter(
            REJECTED,
            "Frames and query schedules rejected, by the name of the reason.",
        );
        table.describe_counter(
            SILENT,
            "Epochs in which a child did not answer in time, by the child's name.",
        );
        let counter = |name, about| table.counter(name, about);
        let gauge = |name, about| table.gauge(name, about);
        Self {
            frames: counter("moteseal_sum_frames_total", "Frames received from children."),
            frames_dropped: counter(
                "moteseal_sum_frames_dropped_total",
                "Frames dropped without being read because they arrived too fast.",
            ),
            frames_lost: counter(
                "moteseal_sum_frames_lost_total",
                "Frames that a link did not accept in time.",
            ),
            epochs: counter(
                "moteseal_sum_epochs_total",
                "Epochs whose sum was sent to the parent.",
            ),
            epochs_partial: counter(
                "moteseal_sum_epochs_partial_total",
                "Epochs whose sum was sent to the parent although at least one child had not answered.",
            ),
            participants: gauge(
                "moteseal_sum_participants",
                "Participating sources of the epoch that was sent last.",
            ),
            queries: gauge("moteseal_sum_queries", "Active queries."),
            schedule: gauge(
                "moteseal_sum_schedule_number",
                "The number of the current query schedule; 0 if there is none yet.",
            ),
            held_bytes: gauge(
                "moteseal_sum_held_bytes",
                "Size of the children's records in memory, in bytes.",
            ),
            link_up: gauge("moteseal_sum_link_up", "1 while the link to the children is up."),
            up_link_up: gauge("moteseal_sum_up_link_up", "1 while the link to the parent is up."),
            table,
        }
    }

    /// Counts a rejected frame. The reasons are a fixed set, so the number of labels is bounded.
    pub(super) fn refused(&self, name: &'static str) {
        self.table.counter_with(REJECTED, vec![Label::new("name", name)]).increment(1);
    }

    /// Counts an epoch in which a child of the tree did not answer.
    pub(super) fn silent(&self, child: &str) {
        self.table.counter_with(SILENT, vec![Label::new("child", child.to_owned())]).increment(1);
    }

    /// Returns all metrics in the Prometheus text format.
    pub(super) fn render(&self) -> String {
        self.table.render()
    }

    pub(super) fn upkeep(&self) {
        self.table.upkeep();
    }
}
