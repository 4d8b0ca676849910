//! The metrics of a cloud. Every metric without a variable label is registered once, at the start.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label};
use moteseal_net::coap::refused_by;
use moteseal_service::{ConnectionMetrics, Refusals, Table};
use moteseal_store::Receipt;

use crate::follow::label;

const REQUESTS: &str = "moteseal_requests_total";
const REQUEST_SECONDS: &str = "moteseal_request_seconds";
const REJECTED: &str = "moteseal_uploads_refused_total";
const FOLLOW_FETCHED: &str = "moteseal_follow_fetched_total";
const FOLLOW_REFUSED: &str = "moteseal_follow_refused_total";
const FOLLOW_FAILURES: &str = "moteseal_follow_failures_total";
const FOLLOW_SUCCESS: &str = "moteseal_follow_success_seconds";
const FOLLOW_DIFFERING: &str = "moteseal_follow_differing_blocks";

#[derive(Debug)]
pub(crate) struct Metrics {
    table: Table,
    refusals: Refusals,
    routes: Vec<(&'static str, Route)>,
    pub(crate) bundles: Uploaded,
    pub(crate) manifests: Uploaded,
    pub(crate) events: Uploaded,
    pub(crate) manifests_doubled: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) upload_bytes: Counter,
    pub(crate) response_bytes: Counter,
    pub(crate) store_queue: Gauge,
    pub(crate) store_seconds: Histogram,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) password_hashes: Counter,
    pub(crate) password_hashes_running: Gauge,
    pub(crate) logins_throttled: Counter,
    pub(crate) credential_files_unusable: Gauge,
}

/// The metrics of what was uploaded of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Uploaded {
    stored: Counter,
    known: Counter,
    /// The same one for all kinds.
    queued: Counter,
}

impl Uploaded {
    pub(crate) fn add(&self, receipt: &Receipt) {
        self.stored.increment(receipt.stored);
        self.known.increment(receipt.known);
        self.queued.increment(receipt.queued);
    }
}

/// The metrics of a cloud that is followed.
pub(crate) struct Followed {
    /// Seals, manifests and urgent events.
    pub(crate) fetched: (Counter, Counter, Counter),
    pub(crate) failures: Counter,
    pub(crate) success: Gauge,
    pub(crate) differing: Gauge,
}

/// The metrics of one route.
#[derive(Debug)]
struct Route {
    seconds: Histogram,
    /// The number of requests by the first digit of their status, from 1 to 5.
    requests: [Counter; 5],
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let table = Table::new();
        table.describe_counter(REQUESTS, "Requests, by route and class of status.");
        table.describe_histogram(
            REQUEST_SECONDS,
            "Time from the head of a request to the head of its response, by route.",
        );
        table.describe_counter(REJECTED, "Uploads rejected, by the name of the error.");
        let mut routes: Vec<&str> =
            moteseal_api::paths::ALL.iter().map(|(route, _)| *route).chain(["other"]).collect();
        routes.dedup();
        let counter = |name, about| table.counter(name, about);
        let refusals = Refusals::new(&table, "moteseal_coap_refused_total");
        refusals.set(&table, &refused_by([]));
        let queued = counter(
            "moteseal_queued_total",
            "Uploaded bundles, manifests and urgent events that are in the queue of the workers.",
        );
        let uploaded = |stored, known| Uploaded { stored, known, queued: queued.clone() };
        Self {
            refusals,
            routes: routes.into_iter().map(|route| (route, Route::new(&table, route))).collect(),
            bundles: uploaded(
                counter("moteseal_bundles_stored_total", "New bundles stored."),
                counter(
                    "moteseal_bundles_known_total",
                    "Uploaded bundles that were stored already.",
                ),
            ),
            manifests: uploaded(
                counter("moteseal_manifests_stored_total", "New manifests stored."),
                counter(
                    "moteseal_manifests_known_total",
                    "Uploaded manifests that were stored already.",
                ),
            ),
            events: uploaded(
                counter("moteseal_urgent_stored_total", "New urgent events stored."),
                counter(
                    "moteseal_urgent_known_total",
                    "Uploaded urgent events that were stored already.",
                ),
            ),
            manifests_doubled: counter(
                "moteseal_manifests_doubled_total",
                "Uploaded manifests whose epoch has another one that the coordinator signed.",
            ),
            conflicts: counter(
                "moteseal_equivocations_total",
                "Indices under which a device signed different seals, and places of seals for which it \
                 signed different urgent events, once for each upload of one of them.",
            ),
            upload_bytes: counter("moteseal_upload_bytes_total", "Bytes of accepted uploads."),
            response_bytes: counter("moteseal_answer_bytes_total", "Bytes of responses sent."),
            store_queue: table
                .gauge("moteseal_store_queue", "Verified uploads that wait for the store."),
            store_seconds: table.histogram(
                "moteseal_store_seconds",
                "Time the store needs to make an upload durable.",
            ),
            connections: ConnectionMetrics {
                open: table.gauge("moteseal_connections", "Open connections."),
                rejected: counter(
                    "moteseal_connections_refused_total",
                    "Connections rejected because too many were open.",
                ),
            },
            password_hashes: counter(
                "moteseal_password_hashes_total",
                "Passwords that were hashed to check them.",
            ),
            password_hashes_running: table.gauge(
                "moteseal_password_hashes_running",
                "Passwords that are being hashed; at most two.",
            ),
            logins_throttled: counter(
                "moteseal_logins_throttled_total",
                "Passwords that were not checked, because too many before them were wrong.",
            ),
            credential_files_unusable: table.gauge(
                "moteseal_credential_files_unusable",
                "Files of tokens or users that are missing, unreadable or damaged.",
            ),
            table,
        }
    }

    /// Counts a finished request.
    pub(crate) fn request(&self, route: &str, status: u16, took: Duration) {
        let found = self.routes.iter().find(|(name, _)| *name == route).or(self.routes.last());
        let Some((_, route)) = found else { return };
        route.seconds.record(took.as_secs_f64());
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        route.requests[class].increment(1);
    }

    /// Counts a rejected upload. `name` is a name of `spec/errors.md`, so the set of labels is
    /// bounded.
    pub(crate) fn refused_upload(&self, name: &str) {
        self.table.counter_with(REJECTED, vec![Label::new("name", name.to_owned())]).increment(1);
    }

    /// Registers the metrics of a cloud that is followed.
    pub(crate) fn follow(&self, cloud: &str) -> Followed {
        let table = &self.table;
        table.describe_counter(
            FOLLOW_FETCHED,
            "Objects that were fetched from a followed cloud and stored, by kind.",
        );
        table.describe_counter(
            FOLLOW_REFUSED,
            "Objects of a followed cloud that were refused, by the name of the error.",
        );
        table.describe_counter(FOLLOW_FAILURES, "Attempts to follow a cloud that failed.");
        table.describe_gauge(
            FOLLOW_SUCCESS,
            "When a cloud was followed successfully the last time, as Unix time.",
        );
        table.describe_gauge(
            FOLLOW_DIFFERING,
            "Blocks in which a followed cloud differed in the last comparison.",
        );
        let label = || vec![label(cloud)];
        let fetched = |kind| {
            table.counter_with(FOLLOW_FETCHED, vec![self::label(cloud), Label::new("kind", kind)])
        };
        // So that the metric exists before anything is refused.
        let _ = table.counter_with(
            FOLLOW_REFUSED,
            vec![self::label(cloud), Label::new("name", "NotAsAsked")],
        );
        Followed {
            fetched: (fetched("seals"), fetched("manifests"), fetched("events")),
            failures: table.counter_with(FOLLOW_FAILURES, label()),
            success: table.gauge_with(FOLLOW_SUCCESS, label()),
            differing: table.gauge_with(FOLLOW_DIFFERING, label()),
        }
    }

    /// Counts an object of a followed cloud that was refused. The name is a name of
    /// `spec/errors.md`, so the set of labels is bounded.
    pub(crate) fn follow_refused(&self, cloud: &str, name: &str) {
        let labels = vec![label(cloud), Label::new("name", name.to_owned())];
        self.table.counter_with(FOLLOW_REFUSED, labels).increment(1);
    }

    /// Sets what the sockets for CoAP refused.
    pub(crate) fn set_refused(&self, counts: &[(&'static str, u64)]) {
        self.refusals.set(&self.table, counts);
    }

    /// Returns all metrics in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        self.table.render()
    }

    pub(crate) fn upkeep(&self) {
        self.table.upkeep();
    }
}

impl Route {
    fn new(table: &Table, route: &'static str) -> Self {
        let labels =
            |class: &'static str| vec![Label::new("route", route), Label::new("status", class)];
        Self {
            seconds: table.histogram_with(REQUEST_SECONDS, vec![Label::new("route", route)]),
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"]
                .map(|class| table.counter_with(REQUESTS, labels(class))),
        }
    }
}
