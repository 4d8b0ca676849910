//! The urgent events that a gateway has stored and not uploaded yet (spec/coordinator.md, section
//! 8).
//!
//! The journal of the station has the same events, so a restart rebuilds this queue. The queue is
//! bounded in total and for each device. What does not fit is refused, and its device keeps it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::DeviceId;
use tokio::sync::Notify;

/// The maximum number of bytes of all events that wait.
const MOST_BYTES: usize = 64 << 20;
/// The maximum number of bytes of the events of one device that wait. It has room for several
/// events of the maximum length.
const MOST_BYTES_OF_A_DEVICE: usize = 256 << 10;
/// The maximum number of events of one device that wait.
const MOST_OF_A_DEVICE: usize = 256;
/// The number of urgent events that a device may send at once.
const BURST: u32 = 60;
/// The interval after which a device may send one more urgent event.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of stored events of each device whose repetitions are recognised. A device keeps at
/// most this many events until they are stored.
const REMEMBERED: usize = 64;
/// The journal is rewritten when the events in it that are uploaded have this many bytes.
const STALE_BYTES: usize = 1 << 20;

/// An event that waits to be uploaded.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) device: DeviceId,
    pub(crate) digest: Digest,
    /// The stream schema, encoded.
    pub(crate) schema: Vec<u8>,
    /// The signed event.
    pub(crate) event: Vec<u8>,
}

impl Waiting {
    const fn bytes(&self) -> usize {
        self.schema.len() + self.event.len()
    }
}

/// The events that wait to be uploaded, oldest first.
#[derive(Debug, Default)]
pub(crate) struct UrgentQueue {
    state: Mutex<State>,
    /// Notified when an event was added.
    pub(crate) added: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Arc<Waiting>>,
    numbers: HashMap<Digest, u64>,
    bytes: usize,
    /// For each device: the number of its events, and their bytes.
    devices: HashMap<DeviceId, (usize, usize)>,
    /// The bytes of uploaded events that the journal may still have.
    uploaded: usize,
}

impl UrgentQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an event waits.
    pub(crate) fn contains(&self, digest: &Digest) -> bool {
        self.lock().numbers.contains_key(digest)
    }

    /// Returns whether the queue has room for `bytes` more of a device.
    pub(crate) fn has_room(&self, device: DeviceId, bytes: usize) -> bool {
        let state = self.lock();
        let (events, of_device) = state.devices.get(&device).copied().unwrap_or_default();
        events < MOST_OF_A_DEVICE
            && of_device + bytes <= MOST_BYTES_OF_A_DEVICE
            && state.bytes + bytes <= MOST_BYTES
    }

    /// Adds an event, unless it waits already.
    pub(crate) fn add(&self, waiting: Waiting) {
        let mut state = self.lock();
        if state.numbers.contains_key(&waiting.digest) {
            return;
        }
        let number = state.next;
        state.next += 1;
        state.bytes += waiting.bytes();
        let of_device = state.devices.entry(waiting.device).or_default();
        *of_device = (of_device.0 + 1, of_device.1 + waiting.bytes());
        state.numbers.insert(waiting.digest, number);
        state.waiting.insert(number, Arc::new(waiting));
        drop(state);
        self.added.notify_one();
    }

    /// Removes an event that the cloud has stored.
    pub(crate) fn remove(&self, number: u64) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.remove(&number) else { return };
        state.numbers.remove(&waiting.digest);
        state.bytes -= waiting.bytes();
        state.uploaded += waiting.bytes();
        if let Some(of_device) = state.devices.get_mut(&waiting.device) {
            *of_device = (of_device.0 - 1, of_device.1 - waiting.bytes());
            if of_device.0 == 0 {
                state.devices.remove(&waiting.device);
            }
        }
    }

    /// Returns the oldest events from a number on, with their numbers: at most `most`, and no more
    /// after the first ones that together have at least `bytes` bytes.
    pub(crate) fn from(&self, number: u64, most: usize, bytes: usize) -> Vec<(u64, Arc<Waiting>)> {
        let (state, mut before) = (self.lock(), 0);
        let waiting = state.waiting.range(number..).take(most).take_while(|(_, waiting)| {
            let has_room = before < bytes;
            before += waiting.bytes();
            has_room
        });
        waiting.map(|(number, waiting)| (*number, Arc::clone(waiting))).collect()
    }

    /// Returns an event that waits.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Waiting>> {
        self.lock().waiting.get(&number).cloned()
    }

    /// Returns the number of events that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns whether the journal has so many uploaded events that it should be rewritten. Starts
    /// to count again if so.
    pub(crate) fn is_stale(&self) -> bool {
        let mut state = self.lock();
        let is_stale = state.uploaded >= STALE_BYTES;
        if is_stale {
            state.uploaded = 0;
        }
        is_stale
    }
}

/// The newest events of each device that are stored, also if they are uploaded. A device repeats an
/// event whose acknowledgement was lost, and others can repeat its frames.
#[derive(Debug, Default)]
pub(crate) struct StoredEvents {
    devices: HashMap<DeviceId, VecDeque<Digest>>,
}

impl StoredEvents {
    /// Adds an event of a device of the roster.
    pub(crate) fn add(&mut self, device: DeviceId, digest: Digest) {
        let of_device = self.devices.entry(device).or_default();
        if of_device.contains(&digest) {
            return;
        }
        if of_device.len() >= REMEMBERED {
            of_device.pop_front();
        }
        of_device.push_back(digest);
    }

    /// Returns whether an event of a device is one of them.
    pub(crate) fn contains(&self, device: DeviceId, digest: &Digest) -> bool {
        self.devices.get(&device).is_some_and(|of_device| of_device.contains(digest))
    }
}

/// Limits how many urgent events each device may send: some at once, and then one in each interval.
/// An event that repeats one that is stored does not count.
#[derive(Debug, Default)]
pub(crate) struct UrgentRate {
    /// For each device: how many events it may send, as of a time.
    devices: HashMap<DeviceId, (u32, Instant)>,
}

impl UrgentRate {
    /// Counts an event of a device of the roster. Returns whether the device may send it.
    pub(crate) fn admits(&mut self, device: DeviceId, now: Instant) -> bool {
        let (left, since) = self.devices.entry(device).or_insert((BURST, now));
        let intervals = now.saturating_duration_since(*since).as_secs() / INTERVAL.as_secs();
        let more = u32::try_from(intervals).unwrap_or(u32::MAX);
        if left.saturating_add(more) >= BURST {
            (*left, *since) = (BURST, now);
        } else {
            *left += more;
            *since += INTERVAL * more;
        }
        let is_admitted = *left > 0;
        *left = left.saturating_sub(1);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceId = DeviceId([1; 8]);

    fn waiting(number: u8, bytes: usize) -> Waiting {
        let digest = Digest([number; 32]);
        Waiting { device: DEVICE, digest, schema: Vec::new(), event: vec![0; bytes] }
    }

    #[test]
    fn a_device_may_send_a_burst_and_then_one_event_a_second() {
        let (mut rate, start) = (UrgentRate::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!((0..BURST).all(|_| rate.admits(DEVICE, at(0))));
        assert!(!rate.admits(DEVICE, at(999)));
        assert!(rate.admits(DeviceId([2; 8]), at(999)), "another device is not affected");
        assert!(rate.admits(DEVICE, at(1000)) && !rate.admits(DEVICE, at(1999)));
        let minute = 1000 * u64::from(BURST);
        assert_eq!((0..100).filter(|_| rate.admits(DEVICE, at(10 * minute))).count(), 60);
    }

    #[test]
    fn the_events_of_a_device_that_wait_are_bounded_in_number_and_bytes() {
        let queue = UrgentQueue::default();
        queue.add(waiting(1, MOST_BYTES_OF_A_DEVICE - 10));
        queue.add(waiting(1, MOST_BYTES_OF_A_DEVICE - 10));
        assert_eq!(queue.len(), 1, "the same event once");
        assert!(queue.has_room(DEVICE, 10) && !queue.has_room(DEVICE, 11));
        assert!(queue.has_room(DeviceId([2; 8]), 1 << 16));
        let [(number, _)] = &queue.from(0, 9, 1)[..] else { unreachable!("one event") };
        queue.remove(*number);
        assert!(queue.has_room(DEVICE, MOST_BYTES_OF_A_DEVICE) && queue.len() == 0);
    }
}
