//! Uploads urgent events as soon as they are durable. The upload is independent of that of the
//! epochs, so that an event waits neither for the end of its epoch nor for earlier bundles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::{CBOR_SEQ, paths};
use moteseal_core::record::DeviceId;
use moteseal_net::Client;
use moteseal_service::metrics::gauge_value as value;
use moteseal_verify::write;
use tracing::{error, info, warn};

use super::held::Held;
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
/// How long to wait before a device's rejected events are uploaded again, at first and at most.
const HELD: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// How long to wait for a notification while there is nothing to upload.
const IDLE: Duration = Duration::from_secs(1);

/// Events of one request, with their numbers in the queue.
type Batch = Vec<(u64, Arc<Waiting>)>;

/// Uploads the queued events until the future is dropped. Dropping it loses nothing.
pub(crate) async fn run(
    queue: Arc<UrgentQueue>,
    cloud: Client,
    metrics: Arc<Metrics>,
    first_pause: Duration,
) {
    let mut pauses = Pauses::new(first_pause, LONGEST_PAUSE);
    let mut turns = Turns::new();
    loop {
        metrics.urgent_waiting.set(value(queue.len() as u64));
        let Some(batch) = turns.next(&queue, Instant::now()) else {
            let _ = tokio::time::timeout(IDLE, queue.added.notified()).await;
            continue;
        };
        match put(&cloud, paths::EVENTS, CBOR_SEQ, body(&batch)).await {
            Ok(()) => {
                metrics.urgent_uploaded.increment(batch.len() as u64);
                turns.uploaded(&queue, &batch);
                if pauses.succeeded() {
                    info!(cloud = cloud.base(), "the cloud accepts urgent events again");
                }
            }
            Err(error) if error.is_about_the_item() => {
                if let Some(waiting) = turns.rejected(batch, Instant::now()) {
                    metrics.upload_failed(error.name());
                    error!(
                        device = %waiting.device,
                        digest = %waiting.digest,
                        error = error.named(),
                        "the cloud rejected an urgent event; it stays in the journal, and the upload is repeated later"
                    );
                }
            }
            Err(error) => {
                metrics.upload_failed(error.name());
                turns.again = Some(batch);
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

/// The order in which events are uploaded. Events that were never uploaded come first, and among
/// them those of devices without rejected events. The parts of a rejected request follow, and then
/// the events that were rejected, when the pause of their device has ended.
struct Turns {
    /// The number of the first event that was not part of a request yet.
    new_from: u64,
    /// A request that the cloud could not process.
    again: Option<Batch>,
    /// The parts of rejected requests, of which the last is next.
    parts: Vec<Batch>,
    /// New events of devices with rejected events.
    suspect: VecDeque<Batch>,
    /// The devices with rejected events.
    held: Held<DeviceId>,
    /// The rejected events of each device, which are not part of a request now.
    rejected: BTreeMap<DeviceId, BTreeSet<u64>>,
}

impl Turns {
    fn new() -> Self {
        Self {
            new_from: 0,
            again: None,
            parts: Vec::new(),
            suspect: VecDeque::new(),
            held: Held::new(HELD.0, HELD.1),
            rejected: BTreeMap::new(),
        }
    }

    /// Returns the events of the next request, or `None` if no event is due.
    fn next(&mut self, queue: &UrgentQueue, now: Instant) -> Option<Batch> {
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        loop {
            let new = queue.from(self.new_from, REQUEST_EVENTS, REQUEST_BYTES);
            let Some((last, _)) = new.last() else { break };
            self.new_from = last + 1;
            let (suspect, new): (Batch, Batch) =
                new.into_iter().partition(|(_, waiting)| self.held.contains(&waiting.device));
            if !suspect.is_empty() {
                self.suspect.push_back(suspect);
            }
            if !new.is_empty() {
                return Some(new);
            }
        }
        self.parts.pop().or_else(|| self.suspect.pop_front()).or_else(|| self.due(queue, now))
    }

    /// Returns rejected events of a device whose pause has ended.
    fn due(&mut self, queue: &UrgentQueue, now: Instant) -> Option<Batch> {
        let mut devices = self.rejected.iter_mut();
        let (_, numbers) = devices.find(|(device, _)| self.held.is_due(device, now))?;
        let batch: Batch = numbers
            .iter()
            .filter_map(|number| Some((*number, queue.get(*number)?)))
            .take(REQUEST_EVENTS)
            .collect();
        for (number, _) in &batch {
            numbers.remove(number);
        }
        Some(batch)
    }

    /// Records that the cloud has stored events.
    fn uploaded(&mut self, queue: &UrgentQueue, batch: &Batch) {
        for (number, waiting) in batch {
            queue.remove(*number);
            if self.rejected.get(&waiting.device).is_none_or(BTreeSet::is_empty) {
                self.rejected.remove(&waiting.device);
                self.held.release(&waiting.device);
            }
        }
    }

    /// Records that the cloud has rejected a request. A request with several events is halved, until
    /// the rejected event is found. Returns this event.
    fn rejected(&mut self, mut batch: Batch, now: Instant) -> Option<Arc<Waiting>> {
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            self.parts.extend([second, batch]);
            return None;
        }
        let (number, waiting) = batch.pop()?;
        self.held.hold(waiting.device, now);
        self.rejected.entry(waiting.device).or_default().insert(number);
        Some(waiting)
    }
}

/// Returns the body of a request with these events.
fn body(events: &Batch) -> Vec<u8> {
    let (mut body, mut schema) = (Vec::new(), None);
    for (_, waiting) in events {
        if schema != Some(&waiting.schema) {
            write::schema(&mut body, &waiting.schema);
            schema = Some(&waiting.schema);
        }
        body.extend_from_slice(&waiting.event);
    }
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::digest::Digest;

    use super::*;

    fn add(queue: &UrgentQueue, device: u8, number: u8) {
        let mut digest = [device; 32];
        digest[0] = number;
        queue.add(Waiting {
            device: DeviceId([device; 8]),
            digest: Digest(digest),
            schema: Vec::new(),
            event: vec![number],
        });
    }

    /// Returns the device and the number of each event of a request.
    fn events(batch: &Batch) -> Vec<(u8, u8)> {
        batch.iter().map(|(_, waiting)| (waiting.device.0[0], waiting.event[0])).collect()
    }

    /// Uploads all that is due to a cloud that rejects events for which `is_bad` returns true.
    /// Returns the requests.
    fn upload(
        turns: &mut Turns,
        queue: &UrgentQueue,
        now: Instant,
        is_bad: impl Fn((u8, u8)) -> bool,
    ) -> Vec<Vec<(u8, u8)>> {
        let mut requests = Vec::new();
        while let Some(batch) = turns.next(queue, now) {
            requests.push(events(&batch));
            if events(&batch).into_iter().any(&is_bad) {
                turns.rejected(batch, now);
            } else {
                turns.uploaded(queue, &batch);
            }
            assert!(requests.len() < 200, "{requests:?}");
        }
        requests
    }

    #[test]
    fn a_rejected_request_is_halved_until_only_the_rejected_event_is_left() {
        let (queue, mut turns, now) = (UrgentQueue::default(), Turns::new(), Instant::now());
        (0..64).for_each(|number| add(&queue, number, number));
        let requests = upload(&mut turns, &queue, now, |(_, number)| number == 37);
        assert_eq!(queue.len(), 1, "all others are uploaded");
        assert_eq!(requests.len(), 13, "one request, and two at each halving");
    }

    #[test]
    fn an_event_that_was_never_uploaded_comes_before_rejected_ones_and_before_their_search() {
        let (queue, mut turns, now) = (UrgentQueue::default(), Turns::new(), Instant::now());
        (0..60).for_each(|number| add(&queue, 1, number));
        let first = turns.next(&queue, now).unwrap();
        assert!(turns.rejected(first, now).is_none());
        add(&queue, 2, 200);
        assert_eq!(events(&turns.next(&queue, now).unwrap()), [(2, 200)]);
        let is_bad = |(device, _)| device == 1;
        upload(&mut turns, &queue, now, is_bad);
        // New events of the device with rejected events do not share a request with other ones.
        add(&queue, 1, 60);
        add(&queue, 3, 201);
        let requests = upload(&mut turns, &queue, now, is_bad);
        assert_eq!(requests, [[(3, 201)], [(1, 60)]]);
        // Also when the pause has ended.
        let later = now + HELD.0;
        add(&queue, 2, 202);
        assert_eq!(events(&turns.next(&queue, later).unwrap()), [(2, 202)]);
    }

    #[test]
    fn rejected_events_are_uploaded_after_pauses_that_double_and_at_once_when_one_is_accepted() {
        let (queue, mut turns, now) = (UrgentQueue::default(), Turns::new(), Instant::now());
        (0..3).for_each(|number| add(&queue, 1, number));
        upload(&mut turns, &queue, now, |_| true);
        assert!(turns.next(&queue, now + HELD.0 / 2).is_none());
        let second = now + HELD.0;
        assert!(!upload(&mut turns, &queue, second, |_| true).is_empty());
        assert!(turns.next(&queue, second + HELD.0).is_none(), "the pause is twice as long");
        let third = second + 2 * HELD.0;
        assert_eq!(upload(&mut turns, &queue, third, |_| false), [[(1, 0), (1, 1), (1, 2)]]);
        assert_eq!((queue.len(), turns.held.len(), turns.rejected.len()), (0, 0, 0));
    }

    #[test]
    fn a_request_that_the_cloud_could_not_process_is_repeated_first() {
        let (queue, mut turns, now) = (UrgentQueue::default(), Turns::new(), Instant::now());
        add(&queue, 1, 0);
        turns.again = turns.next(&queue, now);
        add(&queue, 1, 1);
        assert_eq!(upload(&mut turns, &queue, now, |_| false), [[(1, 0)], [(1, 1)]]);
    }
}
