//! Compact multiproofs. A multiproof consists of the roots of the maximal subtrees without a
//! selected leaf, from left to right (spec/answers.md, section 1.3, "Tree").

use crate::tree::{Frontier, empty_root, geometry};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::Sequence;

named_errors! {
    /// Why the given number of digests and the selected positions cannot form a tree. The values of
    /// the digests are not checked.
    MultiproofError {
        /// The selected positions are not strictly ascending.
        Unsorted => "the selected positions do not ascend",
        /// A selected position is not below the number of leaves, or there are `2^32` leaves or
        /// more.
        OutOfRange => "a selected position is not below the number of leaves",
        /// There are fewer digests than subtrees without a selected leaf, or a digest is
        /// incomplete.
        TooFewDigests => "there are fewer digests than subtrees without a selected leaf",
        /// There are more digests than subtrees without a selected leaf.
        TooManyDigests => "there are more digests than subtrees without a selected leaf",
    }
}

/// Returns the number of digests in the multiproof for `selected` (ascending, below `n`). It
/// computes no hashes.
pub fn sibling_count(n: u64, selected: impl IntoIterator<Item = Sequence>) -> u64 {
    geometry::siblings(n, selected).map(|_| 1).sum()
}

/// Computes the root of a tree of `n` leaves (at most `2^32 - 1`) from the selected leaves and the
/// multiproof. `selected` contains the hashes of these leaves, ascending by position. The
/// multiproof is a concatenation of 32-byte digests. The caller must compare the result with the
/// expected root.
///
/// This takes at most one hash per selected leaf and per digest of the multiproof, and memory for
/// one digest per bit of `n`.
///
/// # Errors
/// See [`MultiproofError`].
pub fn multiproof_root(
    n: u64,
    selected: impl IntoIterator<Item = (Sequence, Digest)>,
    siblings: &[u8],
) -> Result<Digest, MultiproofError> {
    if n > u64::from(u32::MAX) {
        return Err(MultiproofError::OutOfRange);
    }
    let (digests, rest) = siblings.as_chunks::<32>();
    let mut run = Run { n, digests: digests.iter(), frontier: Frontier::new() };
    let mut edge = None;
    let mut last = None;
    for (Sequence(seq), leaf) in selected {
        if seq >= n {
            return Err(MultiproofError::OutOfRange);
        }
        if last.is_some_and(|last| last >= seq) {
            return Err(MultiproofError::Unsorted);
        }
        last = Some(seq);
        run.fill(seq)?;
        run.frontier.append(0, leaf);
    }
    if run.frontier.state.position < n {
        edge = run.fill(n)?;
    }
    if run.digests.next().is_some() || !rest.is_empty() {
        return Err(MultiproofError::TooManyDigests);
    }
    Ok(run.frontier.root(edge).unwrap_or_else(empty_root))
}

struct Run<'a> {
    n: u64,
    digests: core::slice::Iter<'a, [u8; 32]>,
    frontier: Frontier<32>,
}

impl Run<'_> {
    /// Adds the digests of the subtrees up to the leaf `end`. Returns the last digest instead of
    /// adding it if its subtree is the incomplete right edge of the tree.
    fn fill(&mut self, end: u64) -> Result<Option<Digest>, MultiproofError> {
        while self.frontier.state.position < end {
            let subtree = geometry::widest(self.n, self.frontier.state.position, end);
            let digest = Digest(*self.digests.next().ok_or(MultiproofError::TooFewDigests)?);
            let leaves = subtree.end - subtree.start;
            if !leaves.is_power_of_two() {
                return Ok(Some(digest));
            }
            self.frontier.append(leaves.ilog2(), digest);
        }
        Ok(None)
    }
}
