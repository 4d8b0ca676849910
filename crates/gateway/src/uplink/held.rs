//! When rejected data is uploaded again: after a pause, which doubles with each further rejection.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The keys whose data the cloud has rejected: items of the outbox, or devices with urgent events.
/// The caller bounds their number, because it holds only data that it keeps.
#[derive(Debug)]
pub(super) struct Held<K> {
    first: Duration,
    longest: Duration,
    /// For each key, the end of its pause, and the length of the pause.
    keys: HashMap<K, (Instant, Duration)>,
}

impl<K: Copy + Eq + Hash> Held<K> {
    /// Creates an empty set. The pause after the first rejection of a key is `first`, and no pause
    /// is longer than `longest`.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, keys: HashMap::new() }
    }

    /// Records a rejection. A further rejection within the same pause does not extend the pause.
    pub(super) fn hold(&mut self, key: K, now: Instant) {
        let (until, pause) = self.keys.entry(key).or_insert((now, self.first / 2));
        if *until <= now {
            *pause = (*pause * 2).min(self.longest);
            *until = now + *pause;
        }
    }

    /// Forgets a key, because the cloud has accepted its data, or the data is gone.
    pub(super) fn release(&mut self, key: &K) {
        self.keys.remove(key);
    }

    /// Forgets the keys for which `keeps` returns false.
    pub(super) fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.keys.retain(|key, _| keeps(key));
    }

    /// Returns whether data of the key was rejected and not accepted since.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns whether data of the key was rejected and its pause has ended.
    pub(super) fn is_due(&self, key: &K, now: Instant) -> bool {
        self.keys.get(key).is_some_and(|(until, _)| *until <= now)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_with_each_rejection_up_to_a_limit_and_starts_again_after_a_success() {
        let mut held = Held::new(Duration::from_secs(10), Duration::from_secs(40));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        held.hold(1, at(0));
        held.hold(1, at(5));
        assert!(held.contains(&1) && !held.is_due(&1, at(9)) && held.is_due(&1, at(10)));
        assert!(!held.contains(&2) && !held.is_due(&2, at(10)));
        for (rejected, due) in [(10, 30), (30, 70), (70, 110)] {
            held.hold(1, at(rejected));
            assert!(!held.is_due(&1, at(due - 1)) && held.is_due(&1, at(due)));
        }
        held.release(&1);
        assert_eq!(held.len(), 0);
        held.hold(1, at(110));
        assert!(held.is_due(&1, at(120)));
    }
}
