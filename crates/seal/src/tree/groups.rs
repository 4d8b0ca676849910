//! The tree of a schema with column groups (spec/groups.md, section 4): one tree as in RFC 9162 for
//! each group, over the cells of that group. The root of the seal is a hash over their roots.

use super::{MultiproofError, empty_root, multiproof_root};
use moteseal_core::digest::{Digest, tag};
use moteseal_core::record::{Framing, Sequence};
use moteseal_core::schema::{Cells, GroupLayout, MAX_GROUPS};
use sha2::{Digest as _, Sha256};

const GROUPS_TAG: [u8; 32] = tag(b"moteseal/2/tree/groups");

/// Returns the leaf hash of a group's cells in a record: `H(0x00 || cells)`.
#[must_use]
pub fn group_leaf(cells: Cells<'_>, record: &[u8]) -> Digest {
    let mut hash = Sha256::new_with_prefix([0]);
    cells.for_each(record, |bytes| hash.update(bytes));
    Digest(hash.finalize().into())
}

/// Returns the root of a seal, given the roots of the trees of all groups, ascending by group.
#[must_use]
pub fn join_roots(roots: &[Digest]) -> Digest {
    let mut parts: [&[u8]; 1 + MAX_GROUPS] = [&[]; 1 + MAX_GROUPS];
    parts[0] = &GROUPS_TAG;
    for (part, root) in parts[1..].iter_mut().zip(roots) {
        *part = &root.0;
    }
    Digest::of(&parts)
}

/// Returns the roots of the trees of all groups, ascending by group, computed from a part. `framing`
/// delimits the records, and `selected` are their positions, ascending. `digests` has, for each group, ascending,
/// the multiproof of a shown group, or the root of a hidden one (spec/groups.md, section 5).
///
/// # Errors
/// [`MultiproofError`].
pub fn shown_roots(
    n: u64,
    (layout, framing): (&GroupLayout, Framing),
    selected: impl Iterator<Item = Sequence> + Clone,
    (records, digests): (&[u8], &[u8]),
) -> Result<[Digest; MAX_GROUPS], MultiproofError> {
    let mut roots = [Digest::NULL; MAX_GROUPS];
    let (shown, hidden) = (layout.shown().len(), layout.hidden().len());
    let siblings =
        (digests.len() / 32).checked_sub(hidden).ok_or(MultiproofError::TooFewDigests)?
            / shown.max(1)
            * 32;
    let mut rest = digests;
    for (group, root) in layout.all().iter().zip(&mut roots) {
        let length = if layout.shown().contains(group) { siblings } else { 32 };
        let (given, tail) = rest.split_at_checked(length).ok_or(MultiproofError::TooFewDigests)?;
        rest = tail;
        *root = match given.first_chunk() {
            Some(root) if !layout.shown().contains(group) => Digest(*root),
            _ => {
                let (cells, mut rest) = (layout.cells(group), records);
                let leaves = selected.clone().map(|seq| {
                    let (record, tail) = framing.split_first(rest).unwrap_or((&[], &[]));
                    rest = tail;
                    (seq, group_leaf(cells, record))
                });
                multiproof_root(n, leaves, given)?
            }
        };
    }
    if rest.is_empty() { Ok(roots) } else { Err(MultiproofError::TooManyDigests) }
}

/// Returns the root of a seal, computed from a part. The arguments are those of [`shown_roots`]. If
/// nothing is selected, `digests` has the root of the seal, or nothing if the tree is empty.
///
/// # Errors
/// [`MultiproofError`].
pub fn groups_root(
    n: u64,
    view: (&GroupLayout, Framing),
    selected: impl Iterator<Item = Sequence> + Clone,
    content: (&[u8], &[u8]),
) -> Result<Digest, MultiproofError> {
    let count = view.0.all().len();
    if selected.clone().next().is_some() {
        let roots = shown_roots(n, view, selected, content)?;
        return Ok(join_roots(&roots[..count]));
    }
    match (n, content.1.as_chunks::<32>()) {
        (0, ([], [])) => Ok(join_roots(&[empty_root(); MAX_GROUPS][..count])),
        (1.., ([root], [])) => Ok(Digest(*root)),
        (1.., ([], [])) => Err(MultiproofError::TooFewDigests),
        _ => Err(MultiproofError::TooManyDigests),
    }
}
