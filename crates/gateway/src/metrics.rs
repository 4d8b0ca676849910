//! The metrics of a coordinator. Each metric is registered once.

use metrics::{Counter, Gauge, Histogram, Label};
use moteseal_service::{Refusals, Table};

const REJECTED: &str = "moteseal_gateway_frames_refused_total";
const FAILED: &str = "moteseal_gateway_uploads_failed_total";

#[derive(Debug)]
pub(crate) struct Metrics {
    table: Table,
    refusals: Refusals,
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
    pub(crate) urgent_received: Counter,
    pub(crate) urgent_uploaded: Counter,
    pub(crate) urgent_waiting: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let table = Table::new();
        table.describe_counter(REJECTED, "Frames rejected, by the name of the reason.");
        table.describe_counter(FAILED, "Uploads that failed, by the name of the error.");
        let counter = |name, about| table.counter(name, about);
        let gauge = |name, about| table.gauge(name, about);
        Self {
            refusals: Refusals::new(&table, "moteseal_gateway_coap_refused_total"),
            frames: counter("moteseal_gateway_frames_total", "Frames received from devices."),
            frames_dropped: counter(
                "moteseal_gateway_frames_dropped_total",
                "Frames dropped without being read because their device exceeded its share of the queue.",
            ),
            events_seen: counter(
                "moteseal_gateway_events_seen_total",
                "Events forwarded by devices, each counted once.",
            ),
            events_discarded: counter(
                "moteseal_gateway_events_discarded_total",
                "Events discarded because their level was below the round.",
            ),
            events_kept: counter(
                "moteseal_gateway_events_kept_total",
                "Events of ended epochs that are uploaded to the cloud.",
            ),
            buffered: gauge(
                "moteseal_gateway_buffered_events",
                "The largest number of events buffered for one open epoch; at most the budget.",
            ),
            budget: gauge(
                "moteseal_gateway_budget_events",
                "The group's budget, in events per epoch.",
            ),
            round: gauge("moteseal_gateway_round", "The round of the newest epoch."),
            epoch: gauge("moteseal_gateway_epoch", "The newest epoch."),
            epochs_ended: counter("moteseal_gateway_epochs_ended_total", "Epochs that have ended."),
            devices_absent: gauge(
                "moteseal_gateway_devices_absent",
                "Devices that had not closed the last ended epoch when it ended.",
            ),
            link_up: gauge("moteseal_gateway_link_up", "1 while the link to the devices is up."),
            taking: gauge(
                "moteseal_gateway_taking_frames",
                "1 while frames are accepted; 0 while the disk fails or the state folder is full.",
            ),
            state_bytes: gauge(
                "moteseal_gateway_state_bytes",
                "Size of the journal and the outbox, in bytes.",
            ),
            state_bound: gauge(
                "moteseal_gateway_state_bound_bytes",
                "Maximum size of the journal and the outbox, in bytes.",
            ),
            outbox_items: gauge(
                "moteseal_gateway_outbox_items",
                "Epochs and late seals not yet uploaded.",
            ),
            outbox_bytes: gauge(
                "moteseal_gateway_outbox_bytes",
                "Size of the epochs and late seals not yet uploaded, in bytes.",
            ),
            oldest_epoch: gauge(
                "moteseal_gateway_outbox_oldest_epoch",
                "The oldest epoch not yet uploaded; the newest epoch if there is none.",
            ),
            uploaded: counter(
                "moteseal_gateway_uploads_total",
                "Epochs and late seals uploaded to the cloud.",
            ),
            held: gauge(
                "moteseal_gateway_outbox_held",
                "Epochs and late seals that stay in the outbox because the cloud rejected them, or \
                 because they cannot be read or removed.",
            ),
            commit_seconds: table.histogram(
                "moteseal_gateway_commit_seconds",
                "Time to make received frames durable, in seconds.",
            ),
            urgent_received: counter(
                "moteseal_gateway_urgent_total",
                "Urgent events received from devices, including repeated ones.",
            ),
            urgent_uploaded: counter(
                "moteseal_gateway_urgent_uploaded_total",
                "Urgent events uploaded to the cloud.",
            ),
            urgent_waiting: gauge(
                "moteseal_gateway_urgent_waiting",
                "Urgent events not yet uploaded.",
            ),
            table,
        }
    }

    /// Counts a rejected frame. The reasons are a fixed set, so the number of labels is bounded.
    pub(crate) fn refused(&self, name: &'static str) {
        self.table.counter_with(REJECTED, vec![Label::new("name", name)]).increment(1);
    }

    /// Counts a failed upload by the name of its error. Only names of a fixed set are used as
    /// labels.
    pub(crate) fn upload_failed(&self, name: &'static str) {
        self.table.counter_with(FAILED, vec![Label::new("name", name)]).increment(1);
    }

    /// Sets what the sockets for CoAP refused.
    pub(crate) fn set_refused(&self, counts: &[(&'static str, u64)]) {
        self.refusals.set(&self.table, counts);
    }

    /// Returns all metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> String {
        self.table.render()
    }

    pub(crate) fn upkeep(&self) {
        self.table.upkeep();
    }
}
