//! Makes proofs for a store, from the leaf hashes of a whole epoch, and computes the roots with
//! which proofs are checked. The functions hash the tree one height at a time, so that the engine's
//! lanes are full even for small subtrees. They need linear time, and memory for one digest per
//! leaf or sibling.

use std::borrow::Cow;
use std::ops::Range;

use moteseal_core::record::Framing;
use moteseal_core::{Digest, Sequence};
use moteseal_seal::engine::Engine;
use moteseal_seal::tree::{self, MultiproofError, geometry};

/// Returns the leaf hashes of `records`, each of `size` bytes (at least 1). Bytes after the last
/// whole record are ignored.
///
/// # Panics
/// If `size` is 0.
#[must_use]
pub fn leaves(engine: &impl Engine, size: usize, records: &[u8]) -> Vec<Digest> {
    let mut leaves = vec![Digest::NULL; records.len() / size];
    engine.leaves(size, records, &mut leaves);
    leaves
}

/// Returns the root of the tree over these leaf hashes.
#[must_use]
pub fn root(engine: &impl Engine, leaves: &[Digest]) -> Digest {
    multiproof(engine, leaves, []).pop().unwrap_or_else(tree::empty_root)
}

/// Returns the compact multiproof of the leaves `selected` (ascending, below the number of leaves):
/// the roots of the maximal subtrees without a selected leaf, from left to right.
#[must_use]
pub fn multiproof(
    engine: &impl Engine,
    leaves: &[Digest],
    selected: impl IntoIterator<Item = Sequence>,
) -> Vec<Digest> {
    subtree_roots(engine, leaves, geometry::siblings(leaves.len() as u64, selected))
}

/// Returns the inclusion path of leaf `seq`, from the leaf up. The path is empty if there is no
/// such leaf.
#[must_use]
pub fn path(engine: &impl Engine, leaves: &[Digest], seq: Sequence) -> Vec<Digest> {
    subtree_roots(engine, leaves, geometry::path(leaves.len() as u64, seq))
}

/// Returns the roots of the given subtrees of the tree over these leaf hashes, in the order of
/// `subtrees`.
fn subtree_roots(
    engine: &impl Engine,
    leaves: &[Digest],
    subtrees: impl Iterator<Item = Range<u64>>,
) -> Vec<Digest> {
    // For each height, the requested subtrees of this height: the index of the result, and the
    // position of the subtree among the nodes of this height.
    let mut wanted = vec![Vec::new(); u64::BITS as usize + 1];
    let mut count = 0;
    for subtree in subtrees {
        let height = height(&subtree);
        wanted[height]
            .push((count, usize::try_from(subtree.start >> height).unwrap_or(usize::MAX)));
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
        // At the right edge, the last node may have no sibling. It then becomes a node of the next
        // height unchanged.
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

/// Computes the root of a tree of `n` leaves from some of its records and the multiproof of the
/// others. The result is the same as that of [`tree::multiproof_root`], but this function needs
/// more memory: one digest per record and sibling.
///
/// # Errors
/// [`MultiproofError`]. If there are several errors, any of them may be returned. A missing record
/// is treated as an empty record.
pub fn multiproof_root(
    engine: &impl Engine,
    n: u64,
    framing: Framing,
    records: &[u8],
    selected: &mut dyn Iterator<Item = Sequence>,
    siblings: &[u8],
) -> Result<Digest, MultiproofError> {
    if n > u64::from(u32::MAX) {
        return Err(MultiproofError::OutOfRange);
    }
    // The known nodes of one height: their positions, from left to right, and their hashes. They
    // begin with the selected leaves.
    let mut places = Vec::new();
    for Sequence(seq) in selected {
        if seq >= n {
            return Err(MultiproofError::OutOfRange);
        }
        if places.last().is_some_and(|&last| last >= seq) {
            return Err(MultiproofError::Unsorted);
        }
        places.push(seq);
    }
    let mut roots = leaves_of(engine, framing, records, places.len());
    let (digests, rest) = siblings.as_chunks::<32>();
    let given = siblings_by_height(n, &places, digests.len())?;
    if !rest.is_empty() {
        return Err(MultiproofError::TooManyDigests);
    }

    // The number of nodes that the whole tree has at the current height.
    let mut width = n;
    let mut children = Vec::new();
    for given in given {
        children.clear();
        let mut parents = Vec::with_capacity(places.len());
        let mut known = places.iter().copied().zip(&roots).peekable();
        let mut given = given.into_iter().peekable();
        while let Some((place, root)) = known
            .next_if(|(place, _)| given.peek().is_none_or(|(other, _)| place < other))
            .map(|(place, root)| (place, *root))
            .or_else(|| given.next().map(|(place, digest)| (place, Digest(digests[digest]))))
        {
            if place % 2 == 0 {
                parents.push(place / 2);
            }
            children.push(root);
        }
        if width <= 1 {
            break;
        }
        // The selected leaves and the siblings together cover the tree, so the sibling of every
        // node is known. If the number of nodes is odd, the last node has no sibling. It becomes a
        // node of the next height unchanged.
        let pairs = children.len() / 2;
        roots.resize(children.len() - pairs, Digest::NULL);
        engine.nodes(&children[..2 * pairs], &mut roots[..pairs]);
        if let Some(edge) = children.get(2 * pairs) {
            roots[pairs] = *edge;
        }
        (places, width) = (parents, width.div_ceil(2));
    }
    Ok(children.first().copied().unwrap_or_else(tree::empty_root))
}

/// Returns the leaf hashes of the first `count` records.
fn leaves_of(engine: &impl Engine, framing: Framing, records: &[u8], count: usize) -> Vec<Digest> {
    let mut rest = records;
    let mut hashes = match framing {
        Framing::Fixed(size) => {
            let size = usize::from(size.get());
            let length = rest.len().min(count * size);
            let whole = leaves(engine, size, &rest[..length]);
            rest = &rest[whole.len() * size..];
            whole
        }
        Framing::Prefixed => Vec::new(),
    };
    while hashes.len() < count {
        let (record, tail) = framing.split_first(rest).unwrap_or((&[], &[]));
        hashes.push(tree::leaf(record));
        rest = tail;
    }
    hashes
}

/// Returns the positions of the siblings at each height, from left to right, each with the index of
/// its digest. `count` is the number of digests that the multiproof has.
fn siblings_by_height(
    n: u64,
    selected: &[u64],
    count: usize,
) -> Result<Vec<Vec<(u64, usize)>>, MultiproofError> {
    let mut by_height = vec![Vec::new(); u64::BITS as usize + 1];
    let mut digests = 0..count;
    for subtree in geometry::siblings(n, selected.iter().copied().map(Sequence)) {
        let digest = digests.next().ok_or(MultiproofError::TooFewDigests)?;
        let height = height(&subtree);
        by_height[height].push((subtree.start >> height, digest));
    }
    if digests.is_empty() { Ok(by_height) } else { Err(MultiproofError::TooManyDigests) }
}

/// Returns the height of a subtree in the tree. A subtree at the right edge that is not perfect has
/// the height of the next larger perfect subtree.
fn height(subtree: &Range<u64>) -> usize {
    (subtree.end - subtree.start).next_power_of_two().ilog2() as usize
}
