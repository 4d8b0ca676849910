//! The tree of a column's keys over epochs (spec/confidential.md, section 2).
//!
//! The leaves of the tree are the 2^32 epochs from a base epoch. The *offset* of an epoch is its
//! number less that of the base epoch. The path from the root to a leaf is the offset in binary,
//! from the most significant bit: 0 is left.

use core::ops::RangeInclusive;

use zeroize::Zeroizing;

use super::{ColumnId, Key, KeyAccessError, KeyEncodingError, Nonce, SealKey, Suite};
use crate::record::{DeviceId, EpochNumber, SealIndex};

/// The depth of the leaves.
pub const DEPTH: u8 = 32;

/// Returns the offset of an epoch.
pub(super) fn offset(base: EpochNumber, epoch: EpochNumber) -> Result<u32, KeyAccessError> {
    let offset = epoch.0.checked_sub(base.0).and_then(|offset| u32::try_from(offset).ok());
    offset.ok_or(KeyAccessError::EpochOutOfKeyRange)
}

/// A node of a column's tree. It opens the epochs below it. `==` compares keys in constant time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    depth: u8,
    prefix: u32,
    key: Key,
}

impl Node {
    /// Creates a node from its parts. `depth` is 0 for the root and [`DEPTH`] for a leaf. `prefix` is
    /// the position of the node among the nodes of its depth, from the left and from 0: the first
    /// `depth` bits of the offsets of its epochs.
    ///
    /// # Errors
    /// `MalformedKey` if the depth is above [`DEPTH`], or the prefix is not below `2^depth`.
    pub const fn new(depth: u8, prefix: u32, key: [u8; 32]) -> Result<Self, KeyEncodingError> {
        if depth > DEPTH || prefix as u64 >= 1 << depth {
            return Err(KeyEncodingError::MalformedKey);
        }
        Ok(Self { depth, prefix, key: Key(key) })
    }

    pub(super) const fn root(key: Key) -> Self {
        Self { depth: 0, prefix: 0, key }
    }

    pub(super) const fn at(depth: u8, prefix: u32, key: Key) -> Self {
        Self { depth, prefix, key }
    }

    pub(super) const fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the depth, 0 to [`DEPTH`].
    #[must_use]
    pub const fn depth(&self) -> u8 {
        self.depth
    }

    /// Returns the position among the nodes of the same depth, below `2^depth`.
    #[must_use]
    pub const fn prefix(&self) -> u32 {
        self.prefix
    }

    /// Returns the secret bytes, to store them or to put them into a grant.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.key.0
    }

    /// Returns the first and the last offset of the epochs below the node.
    #[must_use]
    pub fn offsets(&self) -> RangeInclusive<u32> {
        let (first, last) = span(self.depth, self.prefix);
        first..=last
    }
}

/// Returns the first and the last offset below a node.
fn span(depth: u8, prefix: u32) -> (u32, u32) {
    let below = u32::MAX.checked_shr(depth.into()).unwrap_or(0);
    let first = prefix.checked_shl(u32::from(DEPTH - depth)).unwrap_or(0);
    (first, first | below)
}

/// Derives one of the two children of a node: `KDF(node, "moteseal/1/node", bit)`.
pub(super) fn child(key: &Key, bit: bool) -> Key {
    key.derive(b"moteseal/1/node", &[&[bit.into()]])
}

/// Returns the bit of an offset that chooses the child of depth `depth` (1 to [`DEPTH`]).
pub(super) const fn bit(offset: u32, depth: u8) -> bool {
    offset >> (DEPTH - depth) & 1 == 1
}

/// The keys on the path from a given node down to the node that was derived last. Nodes that are near
/// each other are derived with few steps.
struct Descent {
    /// The keys of the depths `top ..= depth`; index 0 is the key of `top`.
    keys: [Option<Key>; DEPTH as usize + 1],
    top: u8,
    depth: u8,
    /// The position of the last node at its depth.
    prefix: u32,
}

impl Descent {
    fn new(node: &Node) -> Self {
        let mut keys = [const { None }; DEPTH as usize + 1];
        keys[0] = Some(node.key.clone());
        Self { keys, top: node.depth, depth: node.depth, prefix: node.prefix }
    }

    /// Returns the key of a node, which must be the given node or below it.
    fn key(&mut self, depth: u8, prefix: u32) -> Option<&Key> {
        // Go up to the lowest common ancestor, which is not above the given node.
        let shared = |at: u8| {
            prefix.checked_shr((depth - at).into()).unwrap_or(0)
                == self.prefix.checked_shr((self.depth - at).into()).unwrap_or(0)
        };
        let mut at = (self.top..=depth.min(self.depth)).rev().find(|&at| shared(at))?;
        while at < depth {
            at += 1;
            let right = prefix >> (depth - at) & 1 == 1;
            let place = usize::from(at - self.top);
            let parent = self.keys.get(place.checked_sub(1)?)?.as_ref()?;
            let key = child(parent, right);
            *self.keys.get_mut(place)? = Some(key);
        }
        (self.depth, self.prefix) = (depth, prefix);
        self.keys.get(usize::from(depth - self.top))?.as_ref()
    }
}

/// Nodes of one column: what a grant, or the owner of a stream, has of it.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    column: ColumnId,
    base: EpochNumber,
    nodes: &'a [Node],
}

impl<'a> Nodes<'a> {
    /// Creates a set from nodes in any order. `base` is the base epoch of the stream secret that the
    /// nodes are derived from.
    #[must_use]
    pub const fn new(column: ColumnId, base: EpochNumber, nodes: &'a [Node]) -> Self {
        Self { column, base, nodes }
    }

    /// Returns the column.
    #[must_use]
    pub const fn column(&self) -> ColumnId {
        self.column
    }

    /// Returns the base epoch.
    #[must_use]
    pub const fn base(&self) -> EpochNumber {
        self.base
    }

    /// Returns the nodes.
    #[must_use]
    pub const fn as_slice(&self) -> &'a [Node] {
        self.nodes
    }

    fn node_of(&self, epoch: EpochNumber) -> Result<(&'a Node, u32), KeyAccessError> {
        let offset = offset(self.base, epoch)?;
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.offsets().contains(&offset));
        node.map(|node| (node, offset)).ok_or(KeyAccessError::NotCovered)
    }

    /// Returns whether a node covers the epoch. Derives no key.
    #[must_use]
    pub fn covers(&self, epoch: EpochNumber) -> bool {
        self.node_of(epoch).is_ok()
    }

    /// Returns the key of an epoch. Takes at most 32 derivations.
    ///
    /// # Errors
    /// `NotCovered`; `EpochOutOfKeyRange`.
    pub fn epoch_key(&self, epoch: EpochNumber) -> Result<EpochKey, KeyAccessError> {
        let (node, offset) = self.node_of(epoch)?;
        let mut key = node.key.clone();
        for depth in node.depth + 1..=DEPTH {
            key = child(&key, bit(offset, depth));
        }
        Ok(EpochKey { column: self.column, epoch, key })
    }

    /// Returns the nodes that open exactly the epochs of the range that this set covers. If the set
    /// is a [`ColumnRoot`](super::ColumnRoot), these are at most `2 * log2(n)` nodes for `n` (at least
    /// 2) epochs, by ascending epoch. Epochs that the set does not cover are left out.
    ///
    /// The iterator takes 1 KiB of memory, and about `2 * 32` derivations in all for a node of this
    /// set.
    pub fn cover(&self, epochs: RangeInclusive<EpochNumber>) -> Cover<'a> {
        let (first, last) = (epochs.start().0, epochs.end().0);
        let end = self.base.0.saturating_add(u32::MAX.into());
        let range = (!epochs.is_empty() && first <= end && last >= self.base.0).then(|| {
            let clipped = |epoch: u64| epoch.clamp(self.base.0, end) - self.base.0;
            #[allow(clippy::cast_possible_truncation)]
            let offset = |epoch: u64| clipped(epoch) as u32;
            (offset(first), offset(last))
        });
        Cover { rest: self.nodes, range, within: None }
    }
}

/// The nodes that open a range of epochs. [`Nodes::cover`] creates it.
pub struct Cover<'a> {
    /// The nodes of the set from which none has been derived yet.
    rest: &'a [Node],
    /// The first and the last offset of the range; `None` if it is empty.
    range: Option<(u32, u32)>,
    /// The node of the set that is in use: the keys below it, the next offset, and the last one.
    within: Option<(Descent, u32, u32)>,
}

impl Iterator for Cover<'_> {
    type Item = Node;

    fn next(&mut self) -> Option<Node> {
        let range = self.range?;
        let (mut descent, first, last) = loop {
            if let Some(within) = self.within.take() {
                break within;
            }
            let (node, rest) = self.rest.split_first()?;
            self.rest = rest;
            let (first, last) = span(node.depth, node.prefix);
            let (first, last) = (first.max(range.0), last.min(range.1));
            if first <= last {
                self.within = Some((Descent::new(node), first, last));
            }
        };
        // The largest aligned range that starts at `first` and does not extend past `last`. It is
        // below the node of the set, because this node's own range is aligned.
        let left = u64::from(last - first) + 1;
        #[allow(clippy::cast_possible_truncation)]
        let height = first.trailing_zeros().min(left.ilog2()) as u8;
        let depth = DEPTH - height;
        let prefix = first.checked_shr(height.into()).unwrap_or(0);
        let key = descent.key(depth, prefix)?.clone();
        let (_, end) = span(depth, prefix);
        if end < last {
            self.within = Some((descent, end + 1, last));
        }
        Some(Node::at(depth, prefix, key))
    }
}

/// The key of one epoch of a column: a leaf of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochKey {
    column: ColumnId,
    epoch: EpochNumber,
    key: Key,
}

impl EpochKey {
    pub(super) const fn at(column: ColumnId, epoch: EpochNumber, key: Key) -> Self {
        Self { column, epoch, key }
    }

    /// Returns the column.
    #[must_use]
    pub const fn column(&self) -> ColumnId {
        self.column
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the secret bytes. For test vectors.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.0)
    }

    /// Returns the key of a seal: `KDF(epoch key, "moteseal/1/seal", device id || epoch (8) ||
    /// index (4) || column id || suite (1) || nonce)`, integers big-endian.
    #[must_use]
    pub fn seal_key(
        &self,
        device: DeviceId,
        index: SealIndex,
        suite: Suite,
        nonce: &Nonce,
    ) -> SealKey {
        let (epoch, index) = (self.epoch.0.to_be_bytes(), index.0.to_be_bytes());
        let suite_number = [suite.number()];
        let context: [&[u8]; 6] =
            [&device.0, &epoch, &index, &self.column.0, &suite_number, &nonce.0];
        SealKey::of(self.column, suite, self.key.derive(b"moteseal/1/seal", &context))
    }
}
