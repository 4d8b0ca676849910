//! The routes, spelled as in the router and in the OpenAPI document, and functions that insert
//! parameters into them.

use moteseal_core::{DeviceId, EpochNumber, SealIndex};

/// `PUT`: stores the bundles of a stream of schema, open and part items; if one bundle is rejected,
/// none is stored. Returns a [`Receipt`](crate::Receipt).
pub const BUNDLES: &str = "/v1/bundles";
/// `PUT`: like [`BUNDLES`], for late seals. A seal is late if no manifest lists it, because it
/// arrived after its epoch's manifest or because its epoch has no manifest. A late seal may be
/// pruned at any round.
pub const LATE_BUNDLES: &str = "/v1/bundles?late=true";
/// `GET`: the devices of the roster and the newest seal of each. Returns a
/// [`DeviceList`](crate::DeviceList).
pub const DEVICES: &str = "/v1/devices";
/// `GET`: the stored seals of a device, by ascending index. Returns a
/// [`SealList`](crate::SealList).
pub const SEALS: &str = "/v1/devices/{device}/seals";
/// `GET`: one whole bundle, as a stream of schema, open, part and end items.
pub const BUNDLE: &str = "/v1/devices/{device}/bundles/{index}";
/// `GET`: the explaining form of one seal (spec/answers.md, section 5.3), as a stream of
/// explain and end items.
pub const EXPLAIN: &str = "/v1/devices/{device}/seals/{index}/explain";
/// `POST`: answers a [`Query`](crate::Query). Returns a stream of items.
pub const QUERY: &str = "/v1/query";
/// `PUT`: stores the manifest of an epoch, a tagged `COSE_Sign1`. Returns a
/// [`ManifestReceipt`](crate::ManifestReceipt).
///
/// `GET`: the manifests of the epochs from `since` up to, but not including, `until`, as a stream
/// of manifest items and an end item.
pub const MANIFESTS: &str = "/v1/manifests";
/// `PUT`: stores urgent events, a stream of schema items and signed events; if one event is
/// rejected, none is stored. Returns an [`EventReceipt`](crate::EventReceipt).
///
/// `GET`: the stored urgent events in the order in which they were stored, as a stream of schema
/// items, signed events and an end item (spec/answers.md, section 9). The parameter `after` is the
/// [`CURSOR`](crate::CURSOR) of an earlier answer, and `wait` the number of seconds to wait for
/// events that are not stored yet.
pub const EVENTS: &str = "/v1/events";
/// `GET`: what the cloud stores, in brief: fingerprints, and what was stored after the cursor `after`
/// of an earlier answer. Returns a [`Summary`](crate::summary::Summary).
pub const SUMMARY: &str = "/v1/summary";
/// `GET`: the fingerprints of the devices after `after`. Returns a
/// [`DevicePage`](crate::summary::DevicePage).
pub const SUMMARY_DEVICES: &str = "/v1/summary/devices";
/// `GET`: the fingerprints of the blocks of a device's seals from the index `from` on. Returns a
/// [`BlockPage`](crate::summary::BlockPage).
pub const SUMMARY_SEALS: &str = "/v1/summary/devices/{device}";
/// `GET`: the fingerprints of the blocks of manifests from the epoch `from` on. Returns a
/// [`BlockPage`](crate::summary::BlockPage).
pub const SUMMARY_MANIFESTS: &str = "/v1/summary/manifests";
/// `GET`: the OpenAPI 3.1 document of this contract.
pub const OPENAPI: &str = "/openapi.json";
/// `GET`: Prometheus metrics.
pub const METRICS: &str = "/metrics";
/// `GET`: status 200 while the process runs.
pub const HEALTHZ: &str = "/healthz";
/// `GET`: status 200 while the service accepts requests, 503 while it is stopping or its store
/// fails.
pub const READYZ: &str = "/readyz";

/// Every route with each of its methods, in lower case.
pub const ALL: [(&str, &str); 18] = [
    (BUNDLES, "put"),
    (DEVICES, "get"),
    (SEALS, "get"),
    (BUNDLE, "get"),
    (EXPLAIN, "get"),
    (QUERY, "post"),
    (MANIFESTS, "get"),
    (MANIFESTS, "put"),
    (EVENTS, "get"),
    (EVENTS, "put"),
    (SUMMARY, "get"),
    (SUMMARY_DEVICES, "get"),
    (SUMMARY_SEALS, "get"),
    (SUMMARY_MANIFESTS, "get"),
    (OPENAPI, "get"),
    (METRICS, "get"),
    (HEALTHZ, "get"),
    (READYZ, "get"),
];

/// Returns the path that lists a device's seals: at most `limit` seals, from index `from` on.
#[must_use]
pub fn seals(device: DeviceId, from: SealIndex, limit: u32) -> String {
    format!("/v1/devices/{device}/seals?from={from}&limit={limit}")
}

/// Returns the path of the listing of one device.
#[must_use]
pub fn device(device: DeviceId) -> String {
    format!("{DEVICES}?device={device}")
}

/// Returns the path of one bundle.
#[must_use]
pub fn bundle(device: DeviceId, index: SealIndex) -> String {
    format!("/v1/devices/{device}/bundles/{index}")
}

/// Returns the path of the explaining form of one seal.
#[must_use]
pub fn explain(device: DeviceId, index: SealIndex) -> String {
    format!("/v1/devices/{device}/seals/{index}/explain")
}

/// Returns the path of the manifests of a range of epochs. Without `until`, the range includes all
/// epochs from `since` on.
#[must_use]
pub fn manifests(since: EpochNumber, until: Option<EpochNumber>) -> String {
    let until = until.map_or_else(String::new, |until| format!("&until={until}"));
    format!("{MANIFESTS}?since={since}{until}")
}

/// Returns the path of the urgent events from an epoch on, after a cursor. Without `devices`, it
/// selects those of all devices. `wait` is the maximum number of seconds to wait for the next event
/// if there is none.
#[must_use]
pub fn events(
    since: EpochNumber,
    devices: &[DeviceId],
    after: Option<&str>,
    wait: Option<u64>,
) -> String {
    let devices: String = devices.iter().map(|device| format!("&device={device}")).collect();
    let after = after.map_or_else(String::new, |after| format!("&after={after}"));
    let wait = wait.map_or_else(String::new, |wait| format!("&wait={wait}"));
    format!("{EVENTS}?since={since}{devices}{after}{wait}")
}

/// Returns the path of the summary. `after` is the cursor of an earlier answer.
#[must_use]
pub fn summary(after: Option<&str>) -> String {
    after.map_or_else(|| SUMMARY.to_owned(), |after| format!("{SUMMARY}?after={after}"))
}

/// Returns the path of the fingerprints of the devices after a device.
#[must_use]
pub fn summary_devices(after: Option<DeviceId>) -> String {
    let after = after.map_or_else(String::new, |after| format!("?after={after}"));
    format!("{SUMMARY_DEVICES}{after}")
}

/// Returns the path of the fingerprints of the blocks of a device's seals.
#[must_use]
pub fn summary_seals(device: DeviceId, from: u64) -> String {
    format!("{SUMMARY_DEVICES}/{device}?from={from}")
}

/// Returns the path of the fingerprints of the blocks of manifests.
#[must_use]
pub fn summary_manifests(from: u64) -> String {
    format!("{SUMMARY_MANIFESTS}?from={from}")
}

/// Returns the path of a summary or of one of its pages with a demand that it has everything that was
/// stored before the first request with this token, which consists of 1 to 64 letters and digits.
#[must_use]
pub fn fresh(path: &str, token: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}fresh={token}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_paths_match_their_routes() {
        let device = DeviceId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef");
        let fill =
            |route: &str| route.replace("{device}", "0123456789abcdef").replace("{index}", "7");
        assert_eq!(bundle(device, SealIndex(7)), fill(BUNDLE));
        assert_eq!(explain(device, SealIndex(7)), fill(EXPLAIN));
        assert_eq!(seals(device, SealIndex(7), 9), fill(SEALS) + "?from=7&limit=9");
        assert_eq!(
            manifests(EpochNumber(3), Some(EpochNumber(9))),
            "/v1/manifests?since=3&until=9"
        );
        assert_eq!(manifests(EpochNumber(3), None), "/v1/manifests?since=3");
        assert_eq!(fresh(&summary(None), "a1"), "/v1/summary?fresh=a1");
        assert_eq!(fresh(&summary_manifests(7), "a1"), "/v1/summary/manifests?from=7&fresh=a1");
        assert_eq!(events(EpochNumber(3), &[], None, None), "/v1/events?since=3");
        assert_eq!(
            events(EpochNumber(3), &[device, device], Some("7-ab"), Some(20)),
            "/v1/events?since=3&device=0123456789abcdef&device=0123456789abcdef&after=7-ab&wait=20"
        );
    }
}
