//! What an operator watches, in Prometheus' text format. Every handle is made once, so that counting is one atomic addition.
//!
//! Each cloud has a recorder of its own: several in one process do not mix.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// How often observed latencies move from their buffer to the buckets.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

/// Bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.000_1, 0.000_3, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    routes: Vec<(&'static str, Route)>,
    /// Bundles that are new.
    pub(crate) stored: Counter,
    /// Bundles that were there already.
    pub(crate) known: Counter,
    /// Manifests that are new.
    pub(crate) manifests_stored: Counter,
    /// Manifests that were there already.
    pub(crate) manifests_known: Counter,
    /// Epochs found with more than one manifest.
    pub(crate) manifests_doubled: Counter,
    /// Indices found with more than one seal.
    pub(crate) conflicts: Counter,
    /// Bytes of accepted uploads.
    pub(crate) upload_bytes: Counter,
    /// Bytes of answers.
    pub(crate) answer_bytes: Counter,
    /// Uploads verified and waiting for the store.
    pub(crate) store_queue: Gauge,
    /// How long the store takes to make an upload durable.
    pub(crate) store_seconds: Histogram,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Connections refused because there were too many.
    pub(crate) connections_refused: Counter,
}

/// What is counted of one route.
pub(crate) struct Route {
    seconds: Histogram,
    /// Requests by the first digit of their status, from 1 to 5.
    requests: [Counter; 5],
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, describe);
        let make = || {
            let mut routes: Vec<&str> =
                moteseal_api::paths::ALL.iter().map(|(route, _)| *route).chain(["other"]).collect();
            routes.dedup();
            Self {
                routes: routes.into_iter().map(|route| (route, Route::new(route))).collect(),
                stored: counter!("moteseal_bundles_stored_total"),
                known: counter!("moteseal_bundles_known_total"),
                manifests_stored: counter!("moteseal_manifests_stored_total"),
                manifests_known: counter!("moteseal_manifests_known_total"),
                manifests_doubled: counter!("moteseal_manifests_doubled_total"),
                conflicts: counter!("moteseal_equivocations_total"),
                upload_bytes: counter!("moteseal_upload_bytes_total"),
                answer_bytes: counter!("moteseal_answer_bytes_total"),
                store_queue: gauge!("moteseal_store_queue"),
                store_seconds: histogram!("moteseal_store_seconds"),
                connections: gauge!("moteseal_connections"),
                connections_refused: counter!("moteseal_connections_refused_total"),
                recorder: PrometheusBuilder::new().build_recorder(),
                handle: handle.clone(),
            }
        };
        let made = metrics::with_local_recorder(&recorder, make);
        Self { recorder, ..made }
    }

    /// Counts a request that was answered.
    pub(crate) fn request(&self, route: &str, status: u16, took: Duration) {
        let found = self.routes.iter().find(|(name, _)| *name == route).or(self.routes.last());
        let Some((_, route)) = found else { return };
        route.seconds.record(took.as_secs_f64());
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        route.requests[class].increment(1);
    }

    /// Counts a refused upload by the name of what was wrong with it. Names are ours, so there are few.
    pub(crate) fn refused_upload(&self, name: &str) {
        let name = name.to_owned();
        metrics::with_local_recorder(&self.recorder, || {
            counter!("moteseal_uploads_refused_total", "name" => name).increment(1)
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

impl Route {
    fn new(route: &'static str) -> Self {
        let requests = |class: &'static str| counter!("moteseal_requests_total", "route" => route, "status" => class);
        Self {
            seconds: histogram!("moteseal_request_seconds", "route" => route),
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(requests),
        }
    }
}

fn describe() {
    describe_counter!(
        "moteseal_requests_total",
        "Requests answered, by route and class of status."
    );
    describe_histogram!(
        "moteseal_request_seconds",
        "From a request's head to its answer's, by route."
    );
    describe_counter!("moteseal_bundles_stored_total", "Bundles stored that were new.");
    describe_counter!("moteseal_bundles_known_total", "Bundles uploaded that were stored already.");
    describe_counter!("moteseal_manifests_stored_total", "Manifests stored that were new.");
    describe_counter!(
        "moteseal_manifests_known_total",
        "Manifests uploaded that were stored already."
    );
    describe_counter!(
        "moteseal_manifests_doubled_total",
        "Epochs of which the coordinator was found to have signed different manifests."
    );
    describe_counter!(
        "moteseal_equivocations_total",
        "Indices under which a device was found to have signed different seals."
    );
    describe_counter!(
        "moteseal_uploads_refused_total",
        "Uploads refused, by the name of the error."
    );
    describe_counter!("moteseal_upload_bytes_total", "Bytes of accepted uploads.");
    describe_counter!("moteseal_answer_bytes_total", "Bytes of answers sent.");
    describe_gauge!("moteseal_store_queue", "Uploads verified and waiting for the store.");
    describe_histogram!(
        "moteseal_store_seconds",
        "How long the store takes to make an upload durable."
    );
    describe_gauge!("moteseal_connections", "Open connections.");
    describe_counter!(
        "moteseal_connections_refused_total",
        "Connections refused because there were too many."
    );
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}
