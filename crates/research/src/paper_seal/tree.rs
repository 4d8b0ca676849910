//! Dynamic Tree Chaining with memory for `u` digests. When the memory is full, the root is signed
//! and a new tree begins (section IV.B).

use super::Hash;

/// The tree on the device: the roots of perfect subtrees that are not joined yet, at most `units`
/// of them.
#[derive(Clone, Debug)]
pub struct TreeSigner<H: Hash> {
    units: usize,
    waiting: Vec<(u32, H::Digest)>,
}

fn node<H: Hash>(left: &H::Digest, right: &H::Digest) -> H::Digest {
    H::of(&[left.as_ref(), right.as_ref()])
}

impl<H: Hash> TreeSigner<H> {
    /// Creates a tree with memory for this many digests, at least one. `u` digests are enough for a
    /// tree of `2^u - 1` events.
    #[must_use]
    pub fn new(units: usize) -> Self {
        Self { units: units.max(1), waiting: Vec::new() }
    }

    /// Adds an event. If the memory is full, closes the current tree first and returns its root,
    /// which the caller must sign.
    pub fn push(&mut self, event: &[u8]) -> Option<H::Digest> {
        let closed = if self.waiting.len() == self.units { self.close() } else { None };
        self.waiting.push((0, H::of(&[event])));
        while let [.., (left, first), (right, second)] = self.waiting[..]
            && left == right
        {
            self.waiting.truncate(self.waiting.len() - 2);
            self.waiting.push((left + 1, node::<H>(&first, &second)));
        }
        closed
    }

    /// Returns the number of waiting digests.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Closes the current tree and returns its root, which the caller must sign; `None` if the tree
    /// has no events. The next event begins a new tree.
    pub fn close(&mut self) -> Option<H::Digest> {
        let (_, mut root) = self.waiting.pop()?;
        while let Some((_, left)) = self.waiting.pop() {
            root = node::<H>(&left, &root);
        }
        Some(root)
    }
}

/// All nodes of one tree, as the cloud stores them, by level from the leaves. A node without a
/// sibling is its own parent.
#[derive(Clone, Debug)]
pub struct Nodes<H: Hash>(Vec<Vec<H::Digest>>);

impl<H: Hash> Nodes<H> {
    /// Builds the tree over these events. There must be at least one event.
    #[must_use]
    pub fn of<'e>(events: impl IntoIterator<Item = &'e [u8]>) -> Self {
        let mut levels = vec![events.into_iter().map(|event| H::of(&[event])).collect::<Vec<_>>()];
        while let Some(below) = levels.last()
            && below.len() > 1
        {
            let above = below.chunks(2).map(|pair| {
                if let [left, right] = pair { node::<H>(left, right) } else { pair[0] }
            });
            levels.push(above.collect());
        }
        Self(levels)
    }

    /// Returns the root.
    #[must_use]
    pub fn root(&self) -> H::Digest {
        self.0.last().and_then(|top| top.first()).copied().unwrap_or_default()
    }

    /// Returns the number of leaves.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.0[0].len()
    }

    /// Writes to `out` the siblings on an event's path to the root, from the leaf up. A node
    /// without a sibling is skipped.
    pub fn siblings(&self, seq: usize, out: &mut Vec<H::Digest>) {
        out.clear();
        for (level, nodes) in self.0.iter().enumerate() {
            out.extend(nodes.get((seq >> level) ^ 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Md5, Sha256};
    use super::*;

    fn events(count: u32) -> Vec<[u8; 4]> {
        (0..count).map(u32::to_be_bytes).collect()
    }

    #[test]
    fn a_signer_signs_a_tree_whenever_its_memory_is_full() {
        for (units, size) in [(1, 1), (2, 3), (3, 7), (5, 31)] {
            let events = events(100);
            let mut signer = TreeSigner::<Md5>::new(units);
            let mut roots: Vec<_> = events.iter().filter_map(|event| signer.push(event)).collect();
            roots.extend(signer.close());
            let expected: Vec<_> = events
                .chunks(size)
                .map(|events| Nodes::<Md5>::of(events.iter().map(|event| &event[..])).root())
                .collect();
            assert_eq!(roots, expected, "{units} units");
            assert_eq!(signer.close(), None);
        }
    }

    #[test]
    fn with_memory_for_all_events_the_root_is_that_of_the_papers_tree() {
        let events = events(1000);
        let mut signer = TreeSigner::<Sha256>::new(64);
        assert!(events.iter().all(|event| signer.push(event).is_none()));
        assert_eq!(
            signer.close(),
            Some(Nodes::<Sha256>::of(events.iter().map(|event| &event[..])).root())
        );
    }
}
