//! Represents the dropped leaves of a Merkle tree. It stores the roots of the maximal perfect
//! subtrees that contain no kept leaf (docs/design.md, sampling). The kept leaves are stored
//! elsewhere.
//!
//! Leaves arrive in order, either single or as the root of a whole subtree. When the round rises,
//! leaves that were kept are dropped one by one. Two sibling subtrees without a kept leaf are
//! merged into their parent at once, so that the stored roots are the fewest from which the tree's
//! root can be computed. The exception is the tree's right edge: [`Pruned::multiproof`] combines
//! the roots there when the number of leaves is known.

use std::collections::BTreeMap;
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::Sequence;
use moteseal_seal::tree::{geometry, node};

/// The roots that represent the leaves that are not kept.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Pruned {
    /// The height and root of each perfect subtree. The key is the position of the subtree's first
    /// leaf.
    roots: BTreeMap<u32, (u32, Digest)>,
}

impl Pruned {
    /// Drops a leaf that was kept or has just arrived.
    pub(crate) fn drop_leaf(&mut self, seq: Sequence, leaf: Digest) {
        if let Ok(start) = u32::try_from(seq.0) {
            self.insert(start, 0, leaf);
        }
    }

    /// Adds the root of a perfect subtree without a kept leaf. All leaves before `next` have
    /// arrived earlier. If the subtree contains leaves before and after `next`, its root replaces
    /// the roots of the earlier leaves. If the subtree ends before `next`, it is not new and is
    /// ignored.
    pub(crate) fn take(&mut self, subtree: &Range<u64>, root: Digest, next: Sequence) {
        let (Ok(start), Ok(known)) = (u32::try_from(subtree.start), u32::try_from(next.0)) else {
            return;
        };
        let leaves = subtree.end.saturating_sub(subtree.start);
        if subtree.end <= next.0 || !leaves.is_power_of_two() {
            return;
        }
        if start < known {
            let before: Vec<u32> =
                self.roots.range(start..known).map(|(start, _)| *start).collect();
            before.iter().for_each(|start| _ = self.roots.remove(start));
        }
        self.insert(start, leaves.ilog2(), root);
    }

    /// Returns the number of stored roots.
    pub(crate) fn len(&self) -> usize {
        self.roots.len()
    }

    fn insert(&mut self, start: u32, height: u32, root: Digest) {
        let (mut start, mut height, mut root) = (start, height, root);
        while height < u32::BITS {
            let sibling = start ^ 1 << height;
            if self.roots.get(&sibling).is_none_or(|(other, _)| *other != height) {
                break;
            }
            let Some((_, other)) = self.roots.remove(&sibling) else { break };
            root = if sibling < start { node(&other, &root) } else { node(&root, &other) };
            (start, height) = (start.min(sibling), height + 1);
        }
        self.roots.insert(start, (height, root));
    }

    /// Returns the compact multiproof of the kept leaves of a tree with `n` leaves: the sibling
    /// digests, concatenated from left to right. `kept` must be ascending. Returns `None` if the
    /// stored roots do not cover exactly the leaves that are not in `kept`.
    pub(crate) fn multiproof(
        &self,
        n: u64,
        kept: impl IntoIterator<Item = Sequence>,
    ) -> Option<Vec<u8>> {
        let (mut proof, mut used) = (Vec::new(), 0);
        for subtree in geometry::siblings(n, kept) {
            let start = u32::try_from(subtree.start).ok()?;
            let mut at = subtree.start;
            let mut parts = Vec::new();
            for (first, (height, root)) in self.roots.range(start..) {
                if u64::from(*first) != at || at >= subtree.end {
                    break;
                }
                at += 1 << height;
                parts.push(*root);
            }
            if at != subtree.end {
                return None;
            }
            used += parts.len();
            // Only a subtree at the right edge has several roots, those of perfect subtrees of
            // decreasing size. Combine them, starting with the last one.
            let root = parts.into_iter().rev().reduce(|right, left| node(&left, &right))?;
            proof.extend_from_slice(&root.0);
        }
        (used == self.roots.len()).then_some(proof)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use moteseal_seal::tree::{Tree, leaf, multiproof_root, sibling_count};
    use proptest::prelude::*;

    use super::*;

    fn record(seq: u64) -> Digest {
        leaf(&seq.to_be_bytes())
    }

    fn root(range: Range<u64>) -> Digest {
        let middle = range.start.midpoint(range.end);
        if range.end - range.start == 1 {
            record(range.start)
        } else {
            node(&root(range.start..middle), &root(middle..range.end))
        }
    }

    proptest! {
        /// Drops levels while leaves are still arriving. Some leaves arrive as subtrees, and some
        /// subtrees arrive after their leaves.
        #[test]
        fn the_stored_roots_are_the_minimum_that_gives_the_root(
            levels in prop::collection::vec(0..6u8, 1..300),
            forgets in prop::collection::vec((0..300usize, 1..7u8), 0..5),
            sends in prop::collection::vec(0..3u8, 1..50),
        ) {
            let n = levels.len() as u64;
            let (mut pruned, mut kept, mut next, mut round) = (Pruned::default(), BTreeSet::new(), 0u64, 0u8);
            let mut sends = sends.iter().cycle();
            while next < n {
                let due = forgets.iter().filter(|(at, _)| *at as u64 <= next).map(|(_, to)| *to).max().unwrap_or(0);
                if due > round {
                    round = due;
                    let gone: Vec<u64> = kept.iter().copied().filter(|seq: &u64| levels[*seq as usize] < round).collect();
                    for seq in gone {
                        kept.remove(&seq);
                        pruned.drop_leaf(Sequence(seq), record(seq));
                    }
                }
                // A device sends a whole subtree if the subtree has no kept leaf. The subtree may
                // begin with leaves that have already arrived.
                let mut widths = (0..8u32).map(|height| 1u64 << height).filter(|width| {
                    let (start, end) = (next / width * width, (next / width + 1) * width);
                    end <= n && (start..end).all(|seq| levels[seq as usize] < round)
                });
                let width = widths.next_back().filter(|_| *sends.next().unwrap() > 0);
                if let Some(width) = width {
                    let range = next / width * width..(next / width + 1) * width;
                    pruned.take(&range, root(range.clone()), Sequence(next));
                    pruned.take(&range, root(range.clone()), Sequence(range.end));
                    next = range.end;
                } else {
                    if levels[next as usize] < round {
                        pruned.drop_leaf(Sequence(next), record(next));
                    } else {
                        kept.insert(next);
                    }
                    next += 1;
                }
            }
            let sequence = || kept.iter().copied().map(Sequence);
            let proof = pruned.multiproof(n, sequence()).unwrap();
            prop_assert_eq!(proof.len() as u64, 32 * sibling_count(n, sequence()));
            let mut tree = Tree::<20>::new();
            (0..n).for_each(|seq| _ = tree.push_leaf(record(seq)).unwrap());
            let leaves = kept.iter().map(|seq| (Sequence(*seq), record(*seq)));
            prop_assert_eq!(multiproof_root(n, leaves, &proof).unwrap(), tree.root());
            // A kept leaf that is not listed, or a listed leaf that is not kept, is detected.
            if let Some(first) = kept.first() {
                prop_assert!(pruned.multiproof(n, sequence().skip(1)).is_none(), "{} is missing from the list", first);
            }
            prop_assert!(pruned.roots.is_empty() || pruned.multiproof(n, (0..n).map(Sequence)).is_none());
        }
    }

    #[test]
    fn subtrees_that_contradict_each_other_give_no_proof_and_no_panic() {
        let mut pruned = Pruned::default();
        pruned.take(&(8..16), record(1), Sequence(3));
        pruned.take(&(0..4), record(2), Sequence(0));
        pruned.take(&(2..4), record(3), Sequence(0));
        pruned.take(&(3..4), record(4), Sequence(4));
        pruned.take(&(u64::from(u32::MAX)..1 << 40), record(5), Sequence(0));
        pruned.take(&(0..1 << 32), record(6), Sequence(20));
        pruned.drop_leaf(Sequence(1), record(7));
        assert!(pruned.multiproof(16, []).is_none());
        assert!(pruned.multiproof(1 << 33, []).is_none());
    }
}
