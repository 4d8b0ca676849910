//! Uploads the outbox to the cloud, oldest epoch first: the manifest of an epoch, then its bundles.
//!
//! Uploads are idempotent, so an interrupted upload is repeated from its start. If the cloud does
//! not respond, the upload is repeated after increasing pauses. If the cloud rejects an item
//! because of its contents, or because the gateway may not upload data of one of its devices, the
//! item stays in the outbox and is uploaded again after increasing pauses. Other items do not wait
//! for it, and neither do the other bundles of the same item.
//!
//! A request is limited in its size, in its number of bundles, and in the number of events that its
//! bundles claim to cover. The third limit is necessary because a bundle of a long epoch contains
//! few events, but the cloud computes the levels of all events that the seal covers. If the cloud
//! rejects a request, the request is split in half.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, COSE, NamedError as _, paths};
use moteseal_net::{Client, NetError};
use moteseal_seal::stream::{Item as StreamItem, MAX_RUN_EVENTS};
use moteseal_service::metrics::gauge_value as value;
use tracing::{error, info, warn};

use crate::metrics::Metrics;
use crate::outbox::{Item, Name, Outbox, OutboxError};

mod held;
pub(crate) mod urgent;

use held::Held;

/// A request is complete when its bundles have at least this many bytes.
const REQUEST_BYTES: usize = 4 << 20;
/// The maximum number of bundles in a request.
const REQUEST_BUNDLES: usize = 512;
/// The maximum number of events that the bundles of a request claim to cover together. A single
/// bundle may claim more. Every verifier accepts this many events (spec/answers.md, section 2).
const REQUEST_EVENTS: u64 = MAX_RUN_EVENTS;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long to wait before a rejected item is uploaded again, at first and at most.
const HELD: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3600));
/// How long to wait for a notification while there is nothing to upload. Then check the outbox
/// again.
const IDLE: Duration = Duration::from_secs(1);

/// Why an item is still in the outbox.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    #[error("{0}")]
    Net(NetError),
    #[error("{0}")]
    Outbox(OutboxError),
}

impl UploadError {
    /// Returns the name of the error for the counter. The possible names are a fixed set.
    const fn name(&self) -> &'static str {
        match self {
            Self::Net(NetError::Unreachable { .. }) => "Unreachable",
            Self::Net(NetError::Interrupted { .. }) => "Interrupted",
            Self::Net(NetError::Busy { .. }) => "Busy",
            Self::Net(NetError::NotACloud { .. }) => "NotACloud",
            Self::Net(_) => "Refused",
            Self::Outbox(error) => error.name(),
        }
    }

    /// Returns the error's name and its message, for the log.
    fn named(&self) -> String {
        match self {
            Self::Net(error) => error.named().to_string(),
            Self::Outbox(error) => error.named().to_string(),
        }
    }

    /// Returns whether the error concerns this item, rather than the connection to the cloud or
    /// everything that this gateway uploads. A credential may permit the data of some devices only.
    const fn is_about_the_item(&self) -> bool {
        matches!(
            self,
            Self::Net(
                NetError::Refused { status: 400 | 409 | 413 | 422, .. }
                    | NetError::Refused { status: 403, device: Some(_), .. }
            ) | Self::Outbox(_)
        )
    }

    /// Returns whether the item's file is missing. An operator may have moved it away, as the
    /// message about a damaged file advises.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Outbox(OutboxError::Io(_, error)) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// The pauses between attempts while the cloud accepts nothing: doubled after each, up to a limit.
struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// The name of the error that was reported last. Each kind of failure is reported once.
    failing: Option<&'static str>,
}

impl Pauses {
    const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, failing: None }
    }

    /// Records a success. Returns whether it ends a failure.
    const fn succeeded(&mut self) -> bool {
        self.next = self.first;
        self.failing.take().is_some()
    }

    /// Records a failure. Returns whether it is of another kind than the one before.
    fn failed(&mut self, error: &UploadError) -> bool {
        self.failing.replace(error.name()) != Some(error.name())
    }

    /// Waits before the next attempt.
    async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
    }
}

/// Uploads the contents of the outbox, and everything that is added to it, until the future is
/// dropped. Dropping it loses nothing.
pub(crate) async fn run(
    outbox: Arc<Outbox>,
    cloud: Client,
    metrics: Arc<Metrics>,
    first_pause: Duration,
) {
    let mut pauses = Pauses::new(first_pause, LONGEST_PAUSE);
    let mut held = Held::new(HELD.0, HELD.1);
    loop {
        let (names, now) = (outbox.names(), Instant::now());
        held.retain(|name| names.binary_search(name).is_ok());
        metrics.held.set(value(held.len() as u64));
        // Items that were rejected before come after all others.
        let is_new = |name: &&Name| !held.contains(name);
        let is_due = |name: &&Name| held.is_due(name, now);
        let next = names.iter().find(is_new).or_else(|| names.iter().find(is_due)).copied();
        let Some(name) = next else {
            let _ = tokio::time::timeout(IDLE, outbox.next_stored()).await;
            continue;
        };
        match upload(&outbox, &cloud, name).await {
            Ok(()) => {
                held.release(&name);
                metrics.uploaded.increment(1);
                if pauses.succeeded() {
                    info!(cloud = cloud.base(), "the cloud accepts epochs again");
                }
            }
            Err(error) if error.is_gone() => {
                warn!(%name, error = error.named(), "this file was removed from the outbox, so its contents are not uploaded");
                if let Err(error) = remove(&outbox, name).await {
                    warn!(%name, error = %error.named(), "the entry of the removed file cannot be deleted");
                    held.hold(name, Instant::now());
                }
            }
            Err(error @ UploadError::Outbox(_)) => {
                metrics.upload_failed(error.name());
                error!(
                    %name,
                    error = error.named(),
                    "this item cannot be read or removed; it stays in the outbox, and the upload is repeated later"
                );
                held.hold(name, Instant::now());
            }
            Err(error) if error.is_about_the_item() => {
                metrics.upload_failed(error.name());
                error!(
                    %name,
                    error = error.named(),
                    "the cloud rejected this item; it stays in the outbox, and the upload is repeated later"
                );
                held.hold(name, Instant::now());
            }
            Err(error) => {
                metrics.upload_failed(error.name());
                if pauses.failed(&error) {
                    warn!(
                        error = error.named(),
                        "the upload failed; epochs wait in the outbox until the cloud accepts them"
                    );
                }
                pauses.wait().await;
            }
        }
    }
}

async fn upload(outbox: &Arc<Outbox>, cloud: &Client, name: Name) -> Result<(), UploadError> {
    let Item { manifest, bundles } = on_disk(outbox, move |outbox| outbox.read(name)).await?;
    if let Some(manifest) = manifest {
        put(cloud, paths::MANIFESTS, COSE, manifest).await?;
    }
    let path = if name.late.is_some() { paths::LATE_BUNDLES } else { paths::BUNDLES };
    // The remaining requests, in reverse order. A request that is rejected is replaced by its two
    // halves, so that a rejected bundle does not hold back the bundles of other devices.
    let mut requests: Vec<&[Vec<u8>]> = requests(&bundles);
    requests.reverse();
    let mut rejected = None;
    while let Some(request) = requests.pop() {
        match put(cloud, path, CBOR_SEQ, request.concat()).await {
            Err(error) if error.is_about_the_item() && request.len() > 1 => {
                let (first, second) = request.split_at(request.len() / 2);
                requests.extend([second, first]);
            }
            Err(error) if error.is_about_the_item() => rejected = rejected.or(Some(error)),
            sent => sent?,
        }
    }
    rejected.map_or(Ok(()), Err)?;
    remove(outbox, name).await
}

/// Divides bundles into requests. The order stays the same, because a bundle may be provable only
/// together with the bundles before it.
fn requests(bundles: &[Vec<u8>]) -> Vec<&[Vec<u8>]> {
    let (mut requests, mut start) = (Vec::new(), 0);
    let (mut bytes, mut events) = (0, 0);
    for (at, bundle) in bundles.iter().enumerate() {
        let claimed = claimed_events(bundle);
        let is_full = bytes >= REQUEST_BYTES
            || at - start == REQUEST_BUNDLES
            || events + claimed > REQUEST_EVENTS;
        if is_full && at > start {
            requests.push(&bundles[start..at]);
            (start, bytes, events) = (at, 0, 0);
        }
        bytes += bundle.len();
        events += claimed;
    }
    if start < bundles.len() {
        requests.push(&bundles[start..]);
    }
    requests
}

/// Returns how many events the parts of a bundle claim to cover. Stops at an invalid item, which
/// the cloud will report.
fn claimed_events(bundle: &[u8]) -> u64 {
    let (mut rest, mut events) = (bundle, 0);
    while let Ok((item, length)) = StreamItem::decode(rest) {
        if let StreamItem::Part(part) = item {
            events += u64::from(part.n);
        }
        rest = rest.get(length.max(1)..).unwrap_or_default();
    }
    events
}

/// Removes an item that the cloud has stored, or whose file is missing.
async fn remove(outbox: &Arc<Outbox>, name: Name) -> Result<(), UploadError> {
    on_disk(outbox, move |outbox| outbox.remove(name)).await
}

/// Runs disk operations on a thread where they do not block other tasks.
async fn on_disk<T: Send + 'static>(
    outbox: &Arc<Outbox>,
    work: impl FnOnce(&Outbox) -> Result<T, OutboxError> + Send + 'static,
) -> Result<T, UploadError> {
    let outbox = Arc::clone(outbox);
    match tokio::task::spawn_blocking(move || work(&outbox)).await {
        Ok(done) => done.map_err(UploadError::Outbox),
        // The runtime is shutting down and will drop this task.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => {
            Err(UploadError::Outbox(OutboxError::Io("outbox".into(), std::io::Error::other(error))))
        }
    }
}

async fn put(
    cloud: &Client,
    path: &str,
    media_type: &'static str,
    body: Vec<u8>,
) -> Result<(), UploadError> {
    cloud.put(path, media_type, Bytes::from(body)).await.map(drop).map_err(UploadError::Net)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::record::Round;
    use moteseal_core::record::Scheme;
    use moteseal_core::schema::Groups;
    use moteseal_seal::Answers;
    use moteseal_seal::level::Salt;
    use moteseal_seal::stream::{Part, Select};
    use moteseal_verify::write;
    use proptest::prelude::*;

    use super::*;

    /// Returns a bundle that claims `n` events and contains `length` bytes of events.
    fn bundle(n: u32, length: usize) -> Vec<u8> {
        let part = Part {
            scheme: Scheme::Star,
            last_in_epoch: true,
            restart: false,
            skipped: 0,
            advance: 70,
            salt: Salt([7; 16]),
            n,
            round: Round(0),
            own_round: Round(0),
            lost: None,
            answered: Answers::NONE,
            keys: None,
            groups: Groups::NONE,
            blinds: &[],
            select: Select::Levels(0),
            digests: &[],
            events: &[],
            signature: Some(&[1; 64]),
        };
        let mut out = Vec::new();
        write::schema(&mut out, &[0x80]);
        write::rebuilt_part(&mut out, &part, 1, &[], &vec![0; length]);
        out
    }

    proptest! {
        #[test]
        fn requests_have_every_bundle_once_in_order_and_at_most_what_a_cloud_accepts(
            claims in prop::collection::vec(prop_oneof![0..3_000u32, 0..=1u32 << 24], 0..1500),
        ) {
            let bundles: Vec<Vec<u8>> = claims.iter().map(|n| bundle(*n, 10)).collect();
            let requests = requests(&bundles);
            prop_assert_eq!(requests.concat(), bundles.clone());
            let mut at = 0;
            for request in requests {
                let claimed: u64 = claims[at..at + request.len()].iter().map(|n| u64::from(*n)).sum();
                at += request.len();
                prop_assert!(!request.is_empty() && request.len() <= REQUEST_BUNDLES);
                prop_assert!(claimed <= 1 << 24, "{} events", claimed);
                // A request ends only when it is full.
                let next = claims.get(at).map_or(u64::MAX, |n| u64::from(*n));
                prop_assert!(request.len() == REQUEST_BUNDLES || claimed.saturating_add(next) > 1 << 24);
            }
        }
    }

    #[test]
    fn a_request_ends_after_a_long_bundle() {
        let bundles = [bundle(1, 5 << 20), bundle(1, 10), bundle(1, 5 << 20), bundle(1, 10)];
        let lengths: Vec<usize> = requests(&bundles).iter().map(|request| request.len()).collect();
        assert_eq!(lengths, [1, 2, 1], "the bundle that fills a request is its last one");
        assert!(requests(&[]).is_empty());
    }
}
