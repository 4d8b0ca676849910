//! A map that forgets its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A map with a maximum number of entries. A further entry replaces the oldest one.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Inserts an entry. Returns whether the key is new.
    pub(super) fn insert(&mut self, key: K, value: V) -> bool {
        if self.entries.insert(key.clone(), value).is_some() {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_is_forgotten() {
        let mut recent = Recent::new(2);
        assert!(recent.insert(1, 'a') && recent.insert(2, 'b') && !recent.insert(1, 'c'));
        assert!(recent.insert(3, 'd'));
        assert_eq!(
            (recent.get(&1), recent.get(&2), recent.get(&3)),
            (None, Some(&'b'), Some(&'d'))
        );
        recent.clear();
        assert!(!recent.contains(&2));
    }
}
