//! The compact multiproof of fewer leaves, or of the leaves of two multiproofs (spec/answers.md,
//! section 1.3), computed from what the parts contain.

use std::iter::{Peekable, from_fn};
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, Sequence};
use moteseal_core::schema::Cells;
use moteseal_seal::tree::geometry::{siblings, split};
use moteseal_seal::tree::{group_leaf, leaf, node};

/// The content of a tree's part: the records of the selected leaves, and the digests of the maximal
/// subtrees without a selected leaf.
#[derive(Clone, Copy)]
pub(super) struct Leaves<'a> {
    /// The number of leaves of the tree.
    pub(super) size: u64,
    pub(super) framing: Framing,
    /// The selected leaves, in ascending order.
    pub(super) selected: &'a [Sequence],
    pub(super) digests: &'a [u8],
    /// The records of the selected leaves, as encoded in a part.
    pub(super) events: &'a [u8],
    /// The cells of which the leaves are hashes; `None` if they are hashes of whole records.
    pub(super) cells: Option<Cells<'a>>,
}

/// A subtree of which the digest or the only record is known.
#[derive(Clone, Copy)]
enum Known<'a> {
    Digest(&'a [u8; 32]),
    Record(&'a [u8], Option<Cells<'a>>),
}

impl Known<'_> {
    fn digest(self) -> Digest {
        match self {
            Self::Digest(digest) => Digest(*digest),
            Self::Record(record, None) => leaf(record),
            Self::Record(record, Some(cells)) => group_leaf(cells, record),
        }
    }
}

impl<'a> Leaves<'a> {
    fn records(self) -> impl Iterator<Item = (Sequence, &'a [u8])> {
        let mut rest = self.events;
        self.selected.iter().map_while(move |seq| {
            let (record, after) = self.framing.split_first(rest)?;
            rest = after;
            Some((*seq, record))
        })
    }

    /// Returns the subtrees without a selected leaf, with their digests, from left to right.
    fn siblings(self) -> impl Iterator<Item = (Range<u64>, &'a [u8; 32])> {
        let digests = self.digests.as_chunks::<32>().0;
        siblings(self.size, self.selected.iter().copied()).zip(digests)
    }

    /// Returns all subtrees that are known, from left to right. They do not overlap, and are the whole
    /// tree.
    fn known(self) -> impl Iterator<Item = (Range<u64>, Known<'a>)> {
        let mut records = self.records().peekable();
        let mut siblings = self.siblings().peekable();
        from_fn(move || {
            let is_before = match (records.peek(), siblings.peek()) {
                (Some((seq, _)), Some((range, _))) => seq.0 < range.start,
                (record, _) => record.is_some(),
            };
            if is_before {
                let (Sequence(seq), record) = records.next()?;
                Some((seq..seq + 1, Known::Record(record, self.cells)))
            } else {
                let (range, digest) = siblings.next()?;
                Some((range, Known::Digest(digest)))
            }
        })
    }

    /// Returns the digests and the records for the leaves `kept`, a part of the selected ones in
    /// ascending order. Returns `None` if the content is not that of a tree's part.
    pub(super) fn narrowed(self, kept: &[Sequence]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut digests, mut events) = (Vec::new(), Vec::new());
        let mut known = self.known().peekable();
        for subtree in siblings(self.size, kept.iter().copied()) {
            while known.next_if(|(range, _)| range.start < subtree.start).is_some() {}
            digests.extend_from_slice(&root(subtree, &mut known)?.0);
        }
        let mut wanted = kept.iter().copied().peekable();
        for (seq, record) in self.records() {
            if wanted.next_if_eq(&seq).is_some() {
                self.framing.frame(record, |bytes| events.extend_from_slice(bytes));
            }
        }
        wanted.peek().is_none().then_some((digests, events))
    }

    /// Returns the leaves that are selected in either part of the same tree, with their digests and
    /// records. Returns `None` if the contents are not those of parts of one tree.
    pub(super) fn union(self, other: &Self) -> Option<(Vec<Sequence>, Vec<u8>, Vec<u8>)> {
        let (mut selected, mut digests, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ours, mut theirs) = (self.records().peekable(), other.records().peekable());
        loop {
            let next = [ours.peek(), theirs.peek()];
            let Some(seq) = next.into_iter().flatten().map(|(seq, _)| *seq).min() else { break };
            let (one, two) = (ours.next_if(|of| of.0 == seq), theirs.next_if(|of| of.0 == seq));
            let (_, record) = one.or(two)?;
            self.framing.frame(record, |bytes| events.extend_from_slice(bytes));
            selected.push(seq);
        }
        // The parent of such a subtree has a leaf that is selected in one of the parts. The subtree is
        // therefore maximal in this part too, which has its digest.
        let (mut ours, mut theirs) = (self.siblings().peekable(), other.siblings().peekable());
        for subtree in siblings(self.size, selected.iter().copied()) {
            let digest = found(&mut ours, &subtree).or_else(|| found(&mut theirs, &subtree))?;
            digests.extend_from_slice(digest);
        }
        Some((selected, digests, events))
    }
}

/// Returns the digest of a subtree, if it is one of `siblings`. Skips the siblings before it.
fn found<'a>(
    siblings: &mut Peekable<impl Iterator<Item = (Range<u64>, &'a [u8; 32])>>,
    subtree: &Range<u64>,
) -> Option<&'a [u8; 32]> {
    while siblings.next_if(|(range, _)| range.start < subtree.start).is_some() {}
    siblings.next_if(|(range, _)| range == subtree).map(|(_, digest)| digest)
}

/// Computes the root of a subtree from the known subtrees in it. The next known subtree must be the
/// first one in it.
fn root<'a>(
    subtree: Range<u64>,
    known: &mut Peekable<impl Iterator<Item = (Range<u64>, Known<'a>)>>,
) -> Option<Digest> {
    if let Some((_, found)) = known.next_if(|(range, _)| *range == subtree) {
        return Some(found.digest());
    }
    let half = split(subtree.end - subtree.start);
    if half == 0 {
        return None;
    }
    let middle = subtree.start + half;
    let left = root(subtree.start..middle, known)?;
    let right = root(middle..subtree.end, known)?;
    Some(node(&left, &right))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn record(seq: u64) -> [u8; 4] {
        u32::try_from(seq).unwrap().wrapping_mul(2_654_435_761).to_be_bytes()
    }

    /// The root of a subtree by the definition of RFC 9162, section 2.1.1.
    fn reference(range: Range<u64>) -> Digest {
        let length = range.end - range.start;
        if length == 1 {
            return leaf(&record(range.start));
        }
        let middle = range.start + length.next_power_of_two() / 2;
        node(&reference(range.start..middle), &reference(middle..range.end))
    }

    /// The content of the part that selects these leaves, made from the whole tree.
    fn served(size: u64, selected: &[Sequence]) -> (Vec<u8>, Vec<u8>) {
        let roots = siblings(size, selected.iter().copied()).flat_map(|range| reference(range).0);
        (roots.collect(), selected.iter().flat_map(|seq| record(seq.0)).collect())
    }

    fn picked(size: u64, picks: &BTreeSet<u64>) -> Vec<Sequence> {
        picks.iter().filter(|seq| **seq < size).map(|seq| Sequence(*seq)).collect()
    }

    proptest! {
        #[test]
        fn fewer_leaves_and_the_union_of_leaves_have_the_digests_of_the_whole_tree(
            size in 1..70u64,
            one in prop::collection::btree_set(0..70u64, 0..70),
            two in prop::collection::btree_set(0..70u64, 0..70),
        ) {
            let framing = Framing::fixed(4).unwrap();
            let (one, two) = (picked(size, &one), picked(size, &two));
            let (both, all): (Vec<_>, BTreeSet<_>) = (
                one.iter().copied().filter(|seq| two.contains(seq)).collect(),
                one.iter().chain(&two).copied().collect(),
            );
            let all: Vec<Sequence> = all.into_iter().collect();
            let contents = [served(size, &one), served(size, &two)];
            let leaves = |at: usize, selected| {
                let (digests, events) = &contents[at];
                Leaves { size, framing, selected, digests, events, cells: None }
            };
            let (ours, theirs) = (leaves(0, &one), leaves(1, &two));
            prop_assert_eq!(ours.narrowed(&both).unwrap(), served(size, &both));
            prop_assert_eq!(theirs.narrowed(&both).unwrap(), served(size, &both));
            let (selected, digests, events) = ours.union(&theirs).unwrap();
            prop_assert_eq!((digests, events), served(size, &all));
            prop_assert_eq!(selected, all);
        }
    }

    #[test]
    fn leaves_that_are_not_in_the_part_cannot_be_kept() {
        let (size, selected) = (9, [Sequence(2), Sequence(7)]);
        let (digests, events) = served(size, &selected);
        let (digests, events) = (&digests[..], &events[..]);
        let framing = Framing::fixed(4).unwrap();
        let leaves = Leaves { size, framing, selected: &selected, digests, events, cells: None };
        assert!(leaves.narrowed(&[Sequence(3)]).is_none());
        assert!(Leaves { digests: &digests[..32], ..leaves }.narrowed(&[Sequence(2)]).is_none());
    }
}
