//! The receiver of tree chaining. It receives one event at a time with its siblings, and caches
//! verified nodes (section IV.B).

use super::Hash;

/// A receiver that verifies one tree after the other. Like the paper's prototype, it stops caching
/// when `capacity` nodes are cached; a new tree empties the cache. The paper does not define the
/// order in which the nodes of a path are cached. This receiver starts at the root, where each node
/// serves the most events.
#[derive(Clone, Debug)]
pub struct Receiver<H: Hash> {
    capacity: usize,
    cached: usize,
    /// The mark of cache entries that belong to the current tree. A new mark empties the cache at
    /// no cost.
    tree: u32,
    root: H::Digest,
    /// For each level of the current tree, from the leaves up: its start in `cache`, and its number
    /// of nodes.
    levels: Vec<(usize, usize)>,
    /// One slot for each node of the tree, so that a look-up needs no search. At most `capacity`
    /// slots are in use.
    cache: Vec<(u32, H::Digest)>,
    path: Vec<(usize, H::Digest)>,
}

impl<H: Hash> Receiver<H> {
    /// Creates a receiver with a cache of this many nodes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            cached: 0,
            tree: 0,
            root: H::Digest::default(),
            levels: Vec::new(),
            cache: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Begins a tree with this number of leaves. The caller has verified the signature of the root.
    pub fn begin(&mut self, leaves: usize, root: H::Digest) {
        (self.tree, self.root, self.cached) = (self.tree + 1, root, 0);
        self.levels.clear();
        let (mut nodes, mut start) = (leaves, 0);
        loop {
            self.levels.push((start, nodes));
            start += nodes;
            if nodes <= 1 {
                break;
            }
            nodes = nodes.div_ceil(2);
        }
        if self.cache.len() < start {
            self.cache.resize(start, (0, H::Digest::default()));
        }
    }

    /// Returns the number of cached nodes.
    #[must_use]
    pub const fn cached(&self) -> usize {
        self.cached
    }

    /// Verifies that the tree has this event at position `seq`. `siblings` are the siblings on its
    /// path to the root, from the leaf up. The computation stops at the first node that is already
    /// verified.
    pub fn verify(&mut self, seq: usize, event: &[u8], siblings: &[H::Digest]) -> bool {
        let (mut at, mut digest, mut given) = (seq, H::of(&[event]), siblings.iter());
        self.path.clear();
        let mut proven = false;
        for &(start, nodes) in &self.levels {
            if at >= nodes {
                return false;
            }
            let (tree, cached) = self.cache[start + at];
            if tree == self.tree {
                if cached != digest {
                    return false;
                }
                proven = true;
                break;
            }
            self.path.push((start + at, digest));
            let neighbour = at ^ 1;
            if neighbour < nodes {
                let Some(&sibling) = given.next() else { return false };
                self.path.push((start + neighbour, sibling));
                let (left, right) =
                    if at < neighbour { (&digest, &sibling) } else { (&sibling, &digest) };
                digest = H::of(&[left.as_ref(), right.as_ref()]);
            }
            at /= 2;
        }
        if !proven && digest != self.root {
            return false;
        }
        for &(place, digest) in self.path.iter().rev() {
            if self.cached == self.capacity {
                break;
            }
            if self.cache[place].0 != self.tree {
                self.cache[place] = (self.tree, digest);
                self.cached += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Md5, Nodes};
    use super::*;

    proptest! {
        #[test]
        fn genuine_events_are_accepted_and_forged_ones_refused_for_any_cache(
            count in 1_usize..70, capacity in 0_usize..150, order in proptest::collection::vec((0_usize..70, 0_u8..4), 1..60)
        ) {
            let events: Vec<[u8; 4]> = (0..70_u32).map(u32::to_be_bytes).collect();
            let mut receiver = Receiver::<Md5>::new(capacity);
            for size in [count, 70 - count] {
                let nodes = Nodes::<Md5>::of(events[..size].iter().map(|event| &event[..]));
                if size == 0 {
                    continue;
                }
                receiver.begin(size, nodes.root());
                let mut siblings = Vec::new();
                for &(seq, how) in &order {
                    let seq = seq % size;
                    nodes.siblings(seq, &mut siblings);
                    match how {
                        0 => prop_assert!(!receiver.verify(seq, b"forged", &siblings)),
                        1 => prop_assert!(!receiver.verify(seq + size, &events[seq], &siblings)),
                        2 if size > 1 => prop_assert!(!receiver.verify(seq ^ 1, &events[seq], &siblings)),
                        _ => prop_assert!(receiver.verify(seq, &events[seq], &siblings)),
                    }
                    prop_assert!(receiver.cached() <= capacity);
                }
            }
        }
    }

    #[test]
    fn a_forged_sibling_is_not_cached() {
        let events: Vec<[u8; 4]> = (0..8_u32).map(u32::to_be_bytes).collect();
        let nodes = Nodes::<Md5>::of(events.iter().map(|event| &event[..]));
        let mut receiver = Receiver::<Md5>::new(100);
        receiver.begin(8, nodes.root());
        let mut siblings = Vec::new();
        nodes.siblings(3, &mut siblings);
        siblings[0][0] ^= 1;
        assert!(!receiver.verify(3, &events[3], &siblings));
        assert_eq!(receiver.cached(), 0);
    }
}
