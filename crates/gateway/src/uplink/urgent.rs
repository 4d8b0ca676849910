//! Uploads urgent events as soon as they are durable. The upload is independent of that of the
//! epochs, so that an event waits neither for the end of its epoch nor for earlier bundles.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::{CBOR_SEQ, paths};
use moteseal_net::Client;
use moteseal_service::metrics::gauge_value as value;
use moteseal_verify::write;
use tracing::{error, info, warn};

use super::{Pauses, put};
use crate::metrics::Metrics;
use crate::urgent::{UrgentQueue, Waiting};

/// The maximum number of events in a request.
const REQUEST_EVENTS: usize = 64;
/// A request ends when its events have this many bytes.
const REQUEST_BYTES: usize = 1 << 20;
/// The longest pause between two attempts. It is short, because an urgent event should not wait
/// long after the cloud is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long to wait before a rejected event is uploaded again.
const HELD: Duration = Duration::from_secs(60);
/// How long to wait for a notification while there is nothing to upload.
const IDLE: Duration = Duration::from_secs(1);

/// Uploads the queued events until the future is dropped. Dropping it loses nothing.
pub(crate) async fn run(
    queue: Arc<UrgentQueue>,
    cloud: Client,
    metrics: Arc<Metrics>,
    first_pause: Duration,
) {
    let mut pauses = Pauses::new(first_pause, LONGEST_PAUSE);
    let mut held: HashMap<u64, Instant> = HashMap::new();
    // After a rejection, events are sent one by one until the rejected one is found.
    let mut single = 0_usize;
    loop {
        held.retain(|_, since| since.elapsed() < HELD);
        metrics.urgent_waiting.set(value(queue.len() as u64));
        let most = if single > 0 { 1 } else { REQUEST_EVENTS };
        let next = queue.oldest(most, |number| held.contains_key(&number));
        if next.is_empty() {
            let _ = tokio::time::timeout(IDLE, queue.added.notified()).await;
            continue;
        }
        let (body, count) = request(next.iter().map(|(_, waiting)| &**waiting));
        let sent = &next[..count];
        match put(&cloud, paths::EVENTS, CBOR_SEQ, body).await {
            Ok(()) => {
                sent.iter().for_each(|(number, _)| queue.remove(*number));
                metrics.urgent_uploaded.increment(count as u64);
                single = single.saturating_sub(1);
                if pauses.succeeded() {
                    info!(cloud = cloud.base(), "the cloud accepts urgent events again");
                }
            }
            Err(error) if error.is_about_the_item() && count > 1 => single = count,
            Err(error) if error.is_about_the_item() => {
                metrics.upload_failed(error.name());
                for (number, waiting) in sent {
                    error!(
                        device = %waiting.device,
                        digest = %waiting.digest,
                        error = error.named(),
                        "the cloud rejected an urgent event; it stays in the journal, and the upload is repeated later"
                    );
                    held.insert(*number, Instant::now());
                }
                single = single.saturating_sub(1);
            }
            Err(error) => {
                metrics.upload_failed(error.name());
                if pauses.failed(&error) {
                    warn!(
                        error = error.named(),
                        "the upload of urgent events failed; they wait until the cloud accepts them"
                    );
                }
                pauses.wait().await;
            }
        }
    }
}

/// Returns the body of a request with the first of these events, and their number.
fn request<'a>(events: impl Iterator<Item = &'a Waiting>) -> (Vec<u8>, usize) {
    let (mut body, mut count, mut schema) = (Vec::new(), 0, None);
    for waiting in events {
        if count > 0 && body.len() >= REQUEST_BYTES {
            break;
        }
        if schema != Some(&waiting.schema) {
            write::schema(&mut body, &waiting.schema);
            schema = Some(&waiting.schema);
        }
        body.extend_from_slice(&waiting.event);
        count += 1;
    }
    (body, count)
}
