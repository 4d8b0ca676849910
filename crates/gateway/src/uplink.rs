//! From the outbox to the cloud: the manifest of an epoch, then its bundles, the oldest epoch first, for as long as it takes.
//!
//! Uploads are idempotent, so what was interrupted is sent again from its start. A cloud that does not answer is asked again with
//! growing pauses. An item that the cloud refuses for what it is stays in the outbox, is tried again from time to time, and does not
//! hold up the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, COSE, paths};
use moteseal_net::{Client, NetError};
use tracing::{error, info, warn};

use crate::metrics::value;
use crate::outbox::{Item, Name, Outbox, OutboxError};
use crate::service::Shared;

/// A request is sent when its bundles are this many bytes, or more.
const REQUEST_BYTES: usize = 4 << 20;
/// Or when they are this many.
const REQUEST_BUNDLES: usize = 512;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// When a refused item is tried again.
const HELD: Duration = Duration::from_secs(600);
/// How long to wait for news when nothing waits.
const IDLE: Duration = Duration::from_secs(1);

/// Why an item is still here.
#[derive(Debug)]
enum UploadError {
    Net(NetError),
    Outbox(OutboxError),
}

impl UploadError {
    /// A name for the counter: one of ours, or that a cloud has refused.
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

    /// Whether it is this item that is wrong, rather than the way to the cloud.
    const fn is_about_the_item(&self) -> bool {
        matches!(self, Self::Net(NetError::Refused { status: 400 | 409 | 413 | 422, .. }) | Self::Outbox(_))
    }
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(error) => error.fmt(f),
            Self::Outbox(error) => error.fmt(f),
        }
    }
}

/// Uploads what is in the outbox, and what comes into it, until it is dropped. Nothing is lost then.
pub(crate) async fn run(outbox: Arc<Outbox>, cloud: Client, shared: Arc<Shared>, first_pause: Duration) {
    let (mut pause, mut failing) = (first_pause, None);
    let mut held: HashMap<Name, Instant> = HashMap::new();
    loop {
        held.retain(|_, since| since.elapsed() < HELD);
        shared.metrics.held.set(value(held.len() as u64));
        let next = outbox.names().into_iter().find(|name| !held.contains_key(name));
        let Some(name) = next else {
            let _ = tokio::time::timeout(IDLE, shared.stored.notified()).await;
            continue;
        };
        match upload(&outbox, &cloud, name).await {
            Ok(()) => {
                shared.metrics.uploaded.increment(1);
                pause = first_pause;
                if failing.take().is_some() {
                    info!(cloud = cloud.base(), "the cloud takes epochs again");
                }
            }
            Err(error) if error.is_about_the_item() => {
                shared.metrics.upload_failed(error.name());
                error!(%name, %error, "the cloud refuses this; it stays in the outbox and is tried again");
                held.insert(name, Instant::now());
            }
            Err(error) => {
                shared.metrics.upload_failed(error.name());
                if failing != Some(error.name()) {
                    failing = Some(error.name());
                    warn!(%error, "epochs wait in the outbox until the cloud takes them");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn upload(outbox: &Arc<Outbox>, cloud: &Client, name: Name) -> Result<(), UploadError> {
    let from = Arc::clone(outbox);
    let read = tokio::task::spawn_blocking(move || from.read(name)).await;
    let Item { manifest, bundles } = match read {
        Ok(item) => item.map_err(UploadError::Outbox)?,
        // The runtime is being shut down.
        Err(_) => return Ok(()),
    };
    if let Some(manifest) = manifest {
        put(cloud, paths::MANIFESTS, COSE, manifest).await?;
    }
    let (mut body, mut count) = (Vec::new(), 0);
    for bundle in bundles {
        body.extend_from_slice(&bundle);
        count += 1;
        if body.len() >= REQUEST_BYTES || count == REQUEST_BUNDLES {
            put(cloud, paths::BUNDLES, CBOR_SEQ, std::mem::take(&mut body)).await?;
            count = 0;
        }
    }
    if count > 0 {
        put(cloud, paths::BUNDLES, CBOR_SEQ, body).await?;
    }
    outbox.remove(name).map_err(UploadError::Outbox)
}

async fn put(cloud: &Client, path: &str, media_type: &'static str, body: Vec<u8>) -> Result<(), UploadError> {
    cloud.put(path, media_type, Bytes::from(body)).await.map(drop).map_err(UploadError::Net)
}
