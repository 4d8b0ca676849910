//! What this process has written, and therefore neither writes again nor reads before it writes.
//!
//! A keyspace can be emptied under a running process. The process notices it at the next seal of a partition
//! that it has listed, because the partition no longer states that it is listed, and forgets everything. The
//! rows of [`KnownRows`] are also forgotten after [`LIFETIME`], because they can be lost without this.
//! [`EventBytes`] is different: it keeps sums that are expensive to read, for a short time.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};

/// The longest time that a row is known; the shortest is half of it.
pub(crate) const LIFETIME: Duration = Duration::from_mins(10);
/// The maximum number of rows that are known.
const MOST: usize = 1 << 17;
/// How long the bytes of the urgent events of a device are known.
pub(crate) const COUNTED: Duration = Duration::from_secs(10);
/// The maximum number of devices whose bytes are known. They take at most 6 MiB.
const DEVICES: usize = 1 << 16;
/// The maximum number of spans whose newest index is known. They take at most 36 MiB.
const SPANS: usize = 1 << 20;

/// A row that is the same each time it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Known {
    /// The listing of the devices whose ids begin with this byte.
    Shard(u8),
    Schema(Digest),
    Unordered(DeviceId),
    Manifests(u64),
}

/// The rows that were written lately, in two generations. A generation lasts half of [`LIFETIME`], and
/// its rows are forgotten when the next one ends. So no row needs a time of its own.
#[derive(Debug)]
pub(crate) struct KnownRows {
    newer: HashSet<Known>,
    older: HashSet<Known>,
    /// The start of the newer generation.
    since: Instant,
}

impl KnownRows {
    pub(crate) fn new(now: Instant) -> Self {
        Self { newer: HashSet::new(), older: HashSet::new(), since: now }
    }

    /// Returns whether a row was written lately: `true` for at least half of [`LIFETIME`], while there are
    /// not too many rows, and for less than all of it.
    pub(crate) fn contains(&mut self, row: Known, now: Instant) -> bool {
        self.age(now);
        self.newer.contains(&row) || self.older.contains(&row)
    }

    pub(crate) fn insert(&mut self, row: Known, now: Instant) {
        self.age(now);
        if self.newer.len() >= MOST / 2 {
            self.next(now);
        }
        self.newer.insert(row);
    }

    /// Forgets the generations that are too old.
    fn age(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age >= LIFETIME / 2 {
            self.next(now);
        }
        if age >= LIFETIME {
            self.older = HashSet::new();
        }
    }

    fn next(&mut self, now: Instant) {
        self.older = mem::take(&mut self.newer);
        self.since = now;
    }
}

/// The newest index in each span of a device when this process stored there last, of the spans in which it has
/// stored most recently.
///
/// This process has listed these spans. A seal with a later index is there only if another process has
/// stored it since, so it is written without being looked for.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    newer: HashMap<(DeviceId, i32), SealIndex>,
    older: HashMap<(DeviceId, i32), SealIndex>,
}

impl Newest {
    pub(crate) fn get(&self, device: DeviceId, span: i32) -> Option<SealIndex> {
        let span = (device, span);
        self.newer.get(&span).max(self.older.get(&span)).copied()
    }

    pub(crate) fn insert(&mut self, device: DeviceId, span: i32, index: SealIndex) {
        if self.newer.len() >= SPANS / 2 && !self.newer.contains_key(&(device, span)) {
            self.older = mem::take(&mut self.newer);
        }
        let newest = self.newer.entry((device, span)).or_insert(index);
        *newest = index.max(*newest);
    }
}

/// The bytes of the urgent events of the devices that were counted most recently.
///
/// A count lacks what other processes have stored since it was read, for less than [`COUNTED`]. It includes what
/// this process has stored since. What this process stored while the count was read may be included twice.
#[derive(Debug, Default)]
pub(crate) struct EventBytes {
    newer: HashMap<DeviceId, Count>,
    older: HashMap<DeviceId, Count>,
}

#[derive(Debug, Default)]
struct Count {
    bytes: u64,
    /// When it was read; `None` if it must be read each time.
    since: Option<Instant>,
    /// The bytes that this process has stored since this count exists.
    added: u64,
}

impl EventBytes {
    pub(crate) fn get(&mut self, device: DeviceId, now: Instant) -> Option<u64> {
        let count = self.entry(device);
        let age = now.saturating_duration_since(count.since?);
        (age < COUNTED).then_some(count.bytes)
    }

    /// Returns what [`insert`](Self::insert) needs. Call it before the bytes are read.
    pub(crate) fn begin(&mut self, device: DeviceId) -> u64 {
        self.entry(device).added
    }

    /// Keeps a count that was read from `since` on.
    pub(crate) fn insert(&mut self, device: DeviceId, bytes: u64, since: Instant, begun: u64) {
        let count = self.entry(device);
        count.bytes = bytes.saturating_add(count.added.saturating_sub(begun));
        count.since = Some(since);
    }

    /// Adds what this process has stored.
    pub(crate) fn add(&mut self, device: DeviceId, bytes: u64) {
        for counts in [&mut self.newer, &mut self.older] {
            if let Some(count) = counts.get_mut(&device) {
                count.bytes = count.bytes.saturating_add(bytes);
                count.added = count.added.saturating_add(bytes);
            }
        }
    }

    /// Forgets a count.
    pub(crate) fn forget(&mut self, device: DeviceId) {
        for counts in [&mut self.newer, &mut self.older] {
            if let Some(count) = counts.get_mut(&device) {
                count.since = None;
            }
        }
    }

    fn entry(&mut self, device: DeviceId) -> &mut Count {
        if !self.newer.contains_key(&device) {
            let count = self.older.remove(&device).unwrap_or_default();
            if self.newer.len() >= DEVICES / 2 {
                self.older = mem::take(&mut self.newer);
            }
            self.newer.insert(device, count);
        }
        self.newer.entry(device).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_device_are_known_for_a_while_and_include_what_this_process_stored() {
        let (device, other) = (DeviceId([1; 8]), DeviceId([2; 8]));
        let start = Instant::now();
        let mut counts = EventBytes::default();
        assert_eq!(counts.get(device, start), None);
        counts.add(device, 1);
        let begun = counts.begin(device);
        counts.add(device, 10);
        counts.insert(device, 100, start, begun);
        counts.add(device, 1_000);
        counts.add(other, 10_000);
        assert_eq!(counts.get(device, start + COUNTED / 2), Some(1_110));
        assert_eq!(counts.get(device, start + COUNTED), None);
        assert_eq!(counts.get(other, start), None);
        let begun = counts.begin(device);
        counts.insert(device, 1_110, start + COUNTED, begun);
        assert_eq!(counts.get(device, start + COUNTED), Some(1_110));
        counts.forget(device);
        assert_eq!(counts.get(device, start + COUNTED), None);
    }

    #[test]
    fn the_number_of_devices_whose_bytes_are_known_is_limited() {
        let device = |number: u64| DeviceId(number.to_be_bytes());
        let start = Instant::now();
        let mut counts = EventBytes::default();
        counts.insert(device(0), 7, start, 0);
        for number in 1..2 * DEVICES as u64 {
            counts.insert(device(number), 1, start, 0);
            assert_eq!(counts.get(device(0), start), Some(7), "it is used all the time");
            assert!(counts.newer.len() + counts.older.len() <= DEVICES);
        }
        assert_eq!(counts.get(device(1), start), None, "it is forgotten");
    }

    #[test]
    fn the_newest_index_of_the_spans_that_were_used_last_is_known() {
        let device = |number: u64| DeviceId(number.to_be_bytes());
        let mut newest = Newest::default();
        assert_eq!(newest.get(device(1), 0), None);
        newest.insert(device(1), 0, SealIndex(7));
        newest.insert(device(1), 0, SealIndex(3));
        newest.insert(device(1), 1, SealIndex(256));
        assert_eq!(newest.get(device(1), 0), Some(SealIndex(7)));
        assert_eq!(newest.get(device(1), 1), Some(SealIndex(256)));
        assert_eq!(newest.get(device(2), 0), None);
        // The span of a device that stores all the time stays known, with the newest index of either
        // generation.
        for number in 10..2 * SPANS as u64 {
            newest.insert(device(number), 0, SealIndex(1));
            newest.insert(device(1), 0, SealIndex(5));
            assert!(newest.get(device(1), 0) >= Some(SealIndex(5)));
            assert!(newest.newer.len() + newest.older.len() <= SPANS);
        }
        assert_eq!(newest.get(device(10), 0), None, "it is forgotten");
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_row_is_known_for_a_while_and_then_written_again() {
        let start = Instant::now();
        let mut known = KnownRows::new(start);
        // Wherever in a generation it is written, and however often it is asked for.
        for (number, offset) in (1_u32..).zip([0_u32, 1, 150, 299, 300, 301]) {
            let row = Known::Manifests(offset.into());
            let generation = start + LIFETIME * 10 * number;
            assert!(!known.contains(row, generation));
            let written = generation + SECOND * offset;
            known.insert(row, written);
            for second in 0..700 {
                let is_known = known.contains(row, written + SECOND * second);
                assert!(is_known || second >= 300, "{offset} s: forgotten after {second} s");
                assert!(!is_known || second < 600, "{offset} s: known after {second} s");
            }
        }
    }

    #[test]
    fn a_row_is_forgotten_also_if_nothing_was_asked_for_a_long_time() {
        let start = Instant::now();
        let mut known = KnownRows::new(start);
        known.insert(Known::Manifests(1), start + 299 * SECOND);
        known.insert(Known::Manifests(2), start + 301 * SECOND);
        assert!(known.contains(Known::Manifests(1), start + 302 * SECOND));
        for number in [1, 2] {
            assert!(!known.contains(Known::Manifests(number), start + 2 * LIFETIME));
        }
        assert!(known.newer.is_empty() && known.older.is_empty());
    }

    #[test]
    fn the_number_of_known_rows_is_limited_and_the_newest_stay_known() {
        let start = Instant::now();
        let mut known = KnownRows::new(start);
        let count = 3 * MOST as u64;
        for number in 0..count {
            known.insert(Known::Manifests(number), start);
            assert!(known.newer.len() + known.older.len() <= MOST);
        }
        assert!(known.contains(Known::Manifests(count - 1), start));
        assert!(known.contains(Known::Manifests(count - MOST as u64 / 2), start));
        assert!(!known.contains(Known::Manifests(0), start));
    }
}
