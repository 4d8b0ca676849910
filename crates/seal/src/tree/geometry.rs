//! The positions of the subtrees of an RFC 9162 tree. A subtree is represented by the range of its
//! leaves. Nothing is hashed here.

use core::iter::{FusedIterator, Peekable};
use core::ops::Range;

use moteseal_core::record::Sequence;

/// Returns the number of leaves in the left subtree of the root of a tree of `n` leaves: the
/// largest power of two below `n` (RFC 9162, section 2.1.1), or 0 if `n < 2`.
#[must_use]
pub const fn split(n: u64) -> u64 {
    if n < 2 { 0 } else { 1 << (n - 1).ilog2() }
}

/// Returns the largest subtree of a tree of `n` leaves that starts at `start` and ends at or before
/// `end`, for `start < end <= n`.
///
/// There are two kinds of subtrees. Perfect subtrees have `2^k` leaves and start at a multiple of
/// `2^k`. Subtrees at the right edge start at a multiple of `2^k` and end at `n`, if at most `2^k`
/// leaves remain.
#[must_use]
pub const fn widest(n: u64, start: u64, end: u64) -> Range<u64> {
    let aligned = start.trailing_zeros();
    if end == n && (aligned >= 64 || n - start <= 1 << aligned) {
        return start..n;
    }
    let fits = (end - start).ilog2();
    start..start + (1 << if fits < aligned { fits } else { aligned })
}

/// Returns the maximal subtrees without a selected leaf, from left to right. Their roots form a
/// compact multiproof.
///
/// `selected` must be ascending. Positions that do not ascend, or are not below `n`, are ignored.
/// If no leaf is selected, the result is the whole tree. If all leaves are selected, or the tree is
/// empty, the result is empty.
pub fn siblings<I: IntoIterator<Item = Sequence>>(n: u64, selected: I) -> Siblings<I::IntoIter> {
    Siblings { n, at: 0, end: n, selected: selected.into_iter().peekable() }
}

/// Does the same as [`siblings`] for the leaves in `range` of a tree that is still growing. It
/// returns only perfect subtrees, because these remain subtrees when leaves are added.
pub fn perfect<I: IntoIterator<Item = Sequence>>(
    range: Range<u64>,
    selected: I,
) -> Siblings<I::IntoIter> {
    Siblings {
        n: u64::MAX,
        at: range.start,
        end: range.end,
        selected: selected.into_iter().peekable(),
    }
}

/// The iterator that [`siblings`] and [`perfect`] return.
#[derive(Clone, Debug)]
pub struct Siblings<I: Iterator<Item = Sequence>> {
    n: u64,
    at: u64,
    end: u64,
    selected: Peekable<I>,
}

impl<I: Iterator<Item = Sequence>> Iterator for Siblings<I> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        while let Some(&Sequence(seq)) = self.selected.peek() {
            if seq >= self.end {
                break;
            }
            if seq > self.at {
                return Some(self.step(seq));
            }
            if seq == self.at {
                self.at += 1;
            }
            self.selected.next();
        }
        (self.at < self.end).then(|| self.step(self.end))
    }
}

impl<I: Iterator<Item = Sequence>> FusedIterator for Siblings<I> {}

impl<I: Iterator<Item = Sequence>> Siblings<I> {
    // Before `at` there is a selected leaf, a maximal subtree or the start of the range. The
    // maximal subtree that contains `at` therefore starts at `at`.
    fn step(&mut self, end: u64) -> Range<u64> {
        let subtree = widest(self.n, self.at, end);
        self.at = subtree.end;
        subtree
    }
}

/// Returns the subtrees whose roots are the inclusion path of leaf `seq` in a tree of `n` leaves,
/// from the leaf up (RFC 9162, section 2.1.3.1). There are none if `seq >= n`.
pub fn path(n: u64, seq: Sequence) -> impl Iterator<Item = Range<u64>> {
    // From the bottom up: at height k, take the subtree of 2^k leaves that contains `seq`, cut off
    // at n. Its sibling is the other child of its parent. If the sibling would start at or after n,
    // there is none, and the parent is the same subtree.
    (0..u64::BITS - n.saturating_sub(1).leading_zeros()).filter_map(move |height| {
        let start = (seq.0 >> height ^ 1) << height;
        let end = start.checked_add(1 << height).map_or(n, |end| end.min(n));
        (seq.0 < n && start < n).then_some(start..end)
    })
}
