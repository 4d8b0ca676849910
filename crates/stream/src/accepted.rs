//! The bytes of urgent events that an intake has published since its start, by device. An intake without a store
//! applies the limit of a device to them.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use moteseal_core::record::DeviceId;
use moteseal_store::StoredUrgent;

/// The maximum number of devices that are counted. They take at most 3 MiB.
const DEVICES: usize = 1 << 16;
/// The maximum number of events that are recognised when they are published again. They take at most 9 MiB.
const EVENTS: usize = 1 << 18;

/// The bytes that the stream has acknowledged, of the devices that have sent events most recently.
#[derive(Debug, Default)]
pub(crate) struct Accepted(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    bytes: Recent<DeviceId, u64>,
    /// Events that were published, by the start of their digests. A party that may upload for a device must not use
    /// up its limit by repeating its events.
    events: Recent<EventId, ()>,
}

/// The first half of the digest of an event.
type EventId = [u8; 16];

/// What an event adds to the bytes of its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    device: DeviceId,
    event: EventId,
    bytes: u64,
}

impl From<&StoredUrgent> for Counted {
    fn from(event: &StoredUrgent) -> Self {
        let key = event.key();
        let mut id = EventId::default();
        id.copy_from_slice(&key.digest.0[..16]);
        Self { device: key.device, event: id, bytes: event.counted_bytes() }
    }
}

impl Accepted {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, events: &[Counted]) {
        let mut inner = self.lock();
        for Counted { device, event, bytes } in events {
            if inner.events.get(event).is_none() {
                inner.events.entry(*event, EVENTS);
                let count = inner.bytes.entry(*device, DEVICES);
                *count = count.saturating_add(*bytes);
            }
        }
    }

    pub(crate) fn of(&self, device: DeviceId) -> u64 {
        self.lock().bytes.get(&device).copied().unwrap_or(0)
    }
}

/// The values whose keys were used most recently, in two generations.
#[derive(Debug)]
struct Recent<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Default> Recent<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Returns the value of a key, or a new one. At least the `most / 2` keys for which this was called last have
    /// values, and at most `most`.
    fn entry(&mut self, key: K, most: usize) -> &mut V {
        if !self.newer.contains_key(&key) {
            let value = self.older.remove(&key).unwrap_or_default();
            if self.newer.len() >= most / 2 {
                self.older = mem::take(&mut self.newer);
            }
            self.newer.insert(key, value);
        }
        self.newer.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(device: u64, event: u128, bytes: u64) -> Counted {
        Counted { device: DeviceId(device.to_be_bytes()), event: event.to_be_bytes(), bytes }
    }

    #[test]
    fn each_event_of_a_device_counts_once() {
        let accepted = Accepted::default();
        let of = |device: u64| accepted.of(DeviceId(device.to_be_bytes()));
        accepted.add(&[counted(1, 10, 100), counted(2, 20, 7), counted(1, 10, 100)]);
        accepted.add(&[counted(1, 11, 5), counted(1, 10, 100)]);
        assert_eq!((of(1), of(2), of(3)), (105, 7, 0));
    }

    #[test]
    fn the_keys_that_were_used_last_are_kept() {
        const MOST: u64 = 64;
        let mut recent = Recent::<u64, u64>::default();
        for key in 1..10 * MOST {
            *recent.entry(key, MOST as usize) += key;
            *recent.entry(0, MOST as usize) += 1;
            assert!(recent.newer.len() + recent.older.len() <= MOST as usize);
            assert_eq!(recent.get(&0), Some(&key));
            let oldest = key.saturating_sub(MOST / 2 - 2).max(1);
            assert!((oldest..=key).all(|key| recent.get(&key) == Some(&key)), "{key}");
        }
        assert_eq!(recent.get(&1), None, "it is forgotten");
    }
}
