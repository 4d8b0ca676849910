//! Dynamic Tree Chaining (section IV.B of the paper): an online Merkle tree as in RFC 9162, section
//! 2.1. The position of a leaf is the sequence number of its event.
//!
//! A device stores only the frontier: the roots of the perfect subtrees so far, at most one digest
//! for each bit of the number of records. [`geometry`] computes the shape of the tree, without
//! hashing. [`multiproof`] and [`path`] compute the root from some of the leaves and the digests of
//! the others.

pub mod geometry;
mod groups;
pub mod multiproof;
pub mod path;

use core::fmt;

use moteseal_core::digest::{Digest, INITIAL, compress256, state_bytes};
use moteseal_core::record::Sequence;

pub use groups::{group_leaf, groups_root, join_roots, shown_roots};
pub use multiproof::{MultiproofError, multiproof_root, sibling_count};
pub use path::{PathError, path_root};

/// The length of the longest record whose leaf hash is one compression: 64 bytes minus the prefix
/// (1), the start of the padding (1) and the length (8).
const ONE_BLOCK: usize = 64 - 1 - 1 - 8;

/// Returns the leaf hash of a record: `H(0x00 || record)`.
#[must_use]
#[inline]
pub fn leaf(record: &[u8]) -> Digest {
    if record.len() > ONE_BLOCK {
        return Digest::of(&[&[0], record]);
    }
    let mut block = [0; 64];
    block[1..=record.len()].copy_from_slice(record);
    block[1 + record.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * (1 + record.len() as u64)).to_be_bytes());
    let mut state = INITIAL;
    compress256(&mut state, &[block]);
    Digest(state_bytes(&state))
}

/// Returns the hash of an inner node: `H(0x01 || left || right)`.
#[must_use]
#[inline]
pub fn node(left: &Digest, right: &Digest) -> Digest {
    let mut blocks = [[0; 64]; 2];
    blocks[0][0] = 1;
    blocks[0][1..33].copy_from_slice(&left.0);
    blocks[0][33..].copy_from_slice(&right.0[..31]);
    blocks[1][0] = right.0[31];
    blocks[1][1] = 0x80;
    blocks[1][62..].copy_from_slice(&(8 * 65_u16).to_be_bytes());
    let mut state = INITIAL;
    compress256(&mut state, &blocks);
    Digest(state_bytes(&state))
}

/// Returns the root of the empty tree: `H("")`.
#[must_use]
pub fn empty_root() -> Digest {
    Digest::of(&[])
}

/// The tree has no room for another record. Close the seal and open the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeFull;

impl fmt::Display for TreeFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tree is full; close this seal and continue under the next index")
    }
}

impl core::error::Error for TreeFull {}

/// The state of an online tree without the roots of its subtrees. The caller stores the roots in an
/// array of `H` digests, which suffices for `2^H - 1` records, and passes it to each call. [`Tree`]
/// contains both. This type is for callers that know `H` only at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeState {
    position: u64,
}

impl TreeState {
    /// Creates the state of a tree without records. The initial contents of the caller's array do
    /// not matter.
    #[must_use]
    pub const fn new() -> Self {
        Self { position: 0 }
    }

    /// Returns the number of records.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u64 {
        self.position
    }

    /// Adds a record and returns its position. This takes two hashes per record on average.
    ///
    /// # Errors
    /// [`TreeFull`]. The tree is then unchanged.
    #[inline]
    pub fn push(&mut self, slots: &mut [Digest], record: &[u8]) -> Result<Sequence, TreeFull> {
        self.push_leaf(slots, leaf(record))
    }

    #[inline]
    fn push_leaf(&mut self, slots: &mut [Digest], leaf: Digest) -> Result<Sequence, TreeFull> {
        let seq = self.position;
        if (seq + 1) >> slots.len() != 0 {
            return Err(TreeFull);
        }
        self.append(slots, 0, leaf);
        Ok(Sequence(seq))
    }

    /// Returns the root of the records so far. More records can be added afterwards.
    #[must_use]
    pub fn root(&self, slots: &[Digest]) -> Digest {
        self.root_with(slots, None).unwrap_or_else(empty_root)
    }

    /// Adds the root of the next `2^height` leaves. The current position must be a multiple of
    /// `2^height`, and the new position must be at most `2^H - 1`.
    #[inline]
    fn append(&mut self, slots: &mut [Digest], height: u32, root: Digest) {
        debug_assert!(self.position.trailing_zeros() >= height);
        let (mut root, mut slot) = (root, height as usize);
        while self.position >> slot & 1 == 1 {
            root = node(&slots[slot], &root);
            slot += 1;
        }
        slots[slot] = root;
        self.position += 1 << height;
    }

    /// Returns the root over all leaves to the left of the position and, if `right` is given, the
    /// leaves after them, whose root is `right`.
    fn root_with(&self, slots: &[Digest], right: Option<Digest>) -> Option<Digest> {
        let mut rest = self.position;
        let mut root = right;
        while rest != 0 {
            let left = slots[rest.trailing_zeros() as usize];
            root = Some(root.map_or(left, |right| node(&left, &right)));
            rest &= rest - 1;
        }
        root
    }
}

/// The roots of the perfect subtrees to the left of a position, one for each bit that is set in the
/// position. Slot `h` holds the root of `2^h` leaves.
#[derive(Clone)]
pub(crate) struct Frontier<const H: usize> {
    slots: [Digest; H],
    state: TreeState,
}

impl<const H: usize> Frontier<H> {
    pub(crate) const fn new() -> Self {
        Self { slots: [Digest::NULL; H], state: TreeState::new() }
    }

    /// Adds the root of the next `2^height` leaves. The current position must be a multiple of
    /// `2^height`, and the new position must be at most `2^H - 1`.
    #[inline]
    pub(crate) fn append(&mut self, height: u32, root: Digest) {
        self.state.append(&mut self.slots, height, root);
    }

    /// Returns the root over all leaves to the left of the position and, if `right` is given, the
    /// leaves after them, whose root is `right`.
    pub(crate) fn root(&self, right: Option<Digest>) -> Option<Digest> {
        self.state.root_with(&self.slots, right)
    }
}

/// An online tree of at most `2^H - 1` records; `H` is at most 32.
///
/// Its size is `32 * H + 8` bytes. A group with up to a million records per seal needs `H = 20`.
#[derive(Clone)]
pub struct Tree<const H: usize>(pub(crate) Frontier<H>);

impl<const H: usize> Tree<H> {
    /// Maximum number of records.
    pub const CAPACITY: u64 = {
        assert!(H <= 32, "a seal covers fewer than 2^32 records");
        (1 << H) - 1
    };

    /// Creates a tree without records.
    #[must_use]
    pub const fn new() -> Self {
        Self(Frontier::new())
    }

    /// Returns the number of records.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.0.state.position
    }

    /// Returns whether there are no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a record and returns its position. This takes two hashes per record on average.
    ///
    /// # Errors
    /// [`TreeFull`]. The tree is then unchanged.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<Sequence, TreeFull> {
        self.push_leaf(leaf(record))
    }

    /// Adds a record whose leaf hash is known.
    ///
    /// # Errors
    /// [`TreeFull`]. The tree is then unchanged.
    #[inline]
    pub fn push_leaf(&mut self, leaf: Digest) -> Result<Sequence, TreeFull> {
        const { assert!(H <= 32, "a seal covers fewer than 2^32 records") };
        self.0.state.push_leaf(&mut self.0.slots, leaf)
    }

    /// Returns the root of the records so far. More records can be added afterwards.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.0.root(None).unwrap_or_else(empty_root)
    }
}

impl<const H: usize> Default for Tree<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const H: usize> fmt::Debug for Tree<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("len", &self.len()).field("root", &self.root()).finish()
    }
}
