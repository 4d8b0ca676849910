//! What this process has written, and therefore neither writes again nor reads before it writes.
//!
//! A keyspace can be emptied under a running process. The process notices it at the next seal of a partition
//! that it has listed, because the partition no longer states that it is listed, and forgets everything. The
//! rows of [`KnownRows`] are also forgotten after [`LIFETIME`], because they can be lost without this.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};

/// The longest time that a row is known; the shortest is half of it.
pub(crate) const LIFETIME: Duration = Duration::from_mins(10);
/// The maximum number of rows that are known.
const MOST: usize = 1 << 17;
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

#[cfg(test)]
mod tests {
    use super::*;

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
