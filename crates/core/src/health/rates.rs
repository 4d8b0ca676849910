//! What was counted between two records.

use super::{Health, ITEMS, Item, Kind};

/// What a node counted between two of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The time between the records, in seconds; since the restart, if there was one. Not 0.
    pub seconds: u32,
    /// Whether the node has restarted between the records. What it counted between the earlier record
    /// and the restart is not known.
    pub has_restarted: bool,
    counts: [u32; ITEMS],
    known: u64,
}

impl Difference {
    /// Computes the difference between two records of one node, which it made in this order. A total may
    /// have passed 2^32 once between them. A node that has lost its state may number its start again, so
    /// a time since the start that has fallen is a restart. Returns `None` if the times are equal.
    #[must_use]
    pub fn between(earlier: &Health, later: &Health) -> Option<Self> {
        let is_same_start = earlier.boot == later.boot;
        if is_same_start && earlier.uptime_s == later.uptime_s {
            return None;
        }
        let has_restarted = !is_same_start || later.uptime_s < earlier.uptime_s;
        let seconds = match has_restarted {
            true => later.uptime_s.max(1),
            false => later.uptime_s - earlier.uptime_s,
        };
        let (mut counts, mut known) = ([0; ITEMS], 0);
        for item in Item::all().filter(|item| item.kind() == Kind::Total) {
            let place = item.place();
            // A total that was not known before may have any past.
            let past = if has_restarted { u64::MAX } else { earlier.known };
            let is_known = later.known & past;
            if is_known >> place & 1 == 1 {
                let before = if has_restarted { 0 } else { earlier.values[place] };
                counts[place] = later.values[place].wrapping_sub(before);
                known |= 1 << place;
            }
        }
        Some(Self { seconds, has_restarted, counts, known })
    }

    /// Returns how far a total has risen; `None` for gauges and unknown totals.
    #[must_use]
    pub fn count(&self, item: Item) -> Option<u32> {
        (self.known >> item.place() & 1 == 1).then(|| self.counts[item.place()])
    }

    /// Returns the losses and faults that were counted. What is a part of another total counts once.
    pub fn faults(&self) -> impl Iterator<Item = (Item, u32)> + use<'_> {
        Item::all().filter(|item| item.is_fault()).filter_map(|item| {
            let is_counted = item.counted_in().is_some_and(|whole| self.count(whole).is_some());
            self.count(item).filter(|count| *count > 0 && !is_counted).map(|count| (item, count))
        })
    }

    /// Returns the rate of a total in counts per 1000 seconds, rounded down.
    #[must_use]
    pub fn per_1000_s(&self, item: Item) -> Option<u64> {
        Some(u64::from(self.count(item)?) * 1000 / u64::from(self.seconds))
    }
}

/// The sums of a node's differences, over its restarts.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    last: Option<Health>,
    /// How often the node has restarted.
    pub restarts: u32,
    sums: [u64; ITEMS],
}

impl Default for Totals {
    fn default() -> Self {
        Self { last: None, restarts: 0, sums: [0; ITEMS] }
    }
}

impl Totals {
    /// Takes a record. Returns the difference to the one before, or `None` if it is the first one or is
    /// not later.
    pub fn take(&mut self, health: &Health) -> Option<Difference> {
        let Some(last) = self.last else {
            self.last = Some(*health);
            for (item, value) in health.values().filter(|(item, _)| item.kind() == Kind::Total) {
                self.sums[item.place()] = value.unsigned_abs();
            }
            return None;
        };
        let difference = Difference::between(&last, health)?;
        self.last = Some(*health);
        self.restarts += u32::from(difference.has_restarted);
        for item in Item::all() {
            let count = u64::from(difference.count(item).unwrap_or_default());
            self.sums[item.place()] = self.sums[item.place()].saturating_add(count);
        }
        Some(difference)
    }

    /// Returns the newest record.
    #[must_use]
    pub const fn last(&self) -> Option<&Health> {
        self.last.as_ref()
    }

    /// Returns the sum of a total since the start that the first record states.
    #[must_use]
    pub const fn sum(&self, item: Item) -> u64 {
        self.sums[item.place()]
    }
}
