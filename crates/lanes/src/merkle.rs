//! The proofs a store serves, made from the leaf hashes of a whole epoch: linear time, a digest of memory for every leaf.

use std::borrow::Cow;
use std::ops::Range;

use moteseal_core::engine::Engine;
use moteseal_core::seal::tree::{self, geometry};
use moteseal_core::{Digest, Sequence};

/// The leaf hashes of the records of `size` bytes each (at least 1) in `records`; a rest that is no whole record is left out.
///
/// # Panics
/// If `size` is 0.
#[must_use]
pub fn leaves(engine: &impl Engine, size: usize, records: &[u8]) -> Vec<Digest> {
    let mut leaves = vec![Digest::NULL; records.len() / size];
    engine.leaves(size, records, &mut leaves);
    leaves
}

/// The root of the tree over these leaf hashes.
#[must_use]
pub fn root(engine: &impl Engine, leaves: &[Digest]) -> Digest {
    multiproof(engine, leaves, []).pop().unwrap_or_else(tree::empty_root)
}

/// The compact multiproof of the leaves `selected` (ascending, below the number of leaves): the roots of the maximal subtrees
/// without one of them, left to right.
#[must_use]
pub fn multiproof(engine: &impl Engine, leaves: &[Digest], selected: impl IntoIterator<Item = Sequence>) -> Vec<Digest> {
    subtree_roots(engine, leaves, geometry::siblings(leaves.len() as u64, selected))
}

/// The inclusion path of leaf `seq`, from the leaf up; empty if there is no such leaf.
#[must_use]
pub fn path(engine: &impl Engine, leaves: &[Digest], seq: Sequence) -> Vec<Digest> {
    subtree_roots(engine, leaves, geometry::path(leaves.len() as u64, seq))
}

/// The roots of subtrees of the tree over these leaf hashes, in the order asked.
///
/// Goes up level by level over the whole tree, so that an engine's lanes stay full however small the subtrees are.
fn subtree_roots(engine: &impl Engine, leaves: &[Digest], subtrees: impl Iterator<Item = Range<u64>>) -> Vec<Digest> {
    // For each height, which results stand at it and where.
    let mut wanted = vec![Vec::new(); u64::BITS as usize + 1];
    let mut count = 0;
    for subtree in subtrees {
        let height = (subtree.end - subtree.start).next_power_of_two().ilog2() as usize;
        wanted[height].push((count, usize::try_from(subtree.start >> height).unwrap_or(usize::MAX)));
        count += 1;
    }
    let highest = wanted.iter().rposition(|wanted| !wanted.is_empty()).unwrap_or(0);
    let mut roots = vec![Digest::NULL; count];
    let mut level = Cow::Borrowed(leaves);
    for (height, wanted) in wanted.into_iter().enumerate() {
        for (result, place) in wanted {
            roots[result] = level[place];
        }
        if height == highest {
            break;
        }
        // A last one without a neighbour is its own parent (the right edge).
        let pairs = level.len() / 2;
        let mut parents = vec![Digest::NULL; level.len() - pairs];
        engine.nodes(&level[..2 * pairs], &mut parents[..pairs]);
        if level.len() % 2 == 1 {
            parents[pairs] = level[2 * pairs];
        }
        level = Cow::Owned(parents);
    }
    roots
}
