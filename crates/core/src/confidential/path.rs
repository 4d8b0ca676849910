//! The keys that remain of a column after its past epochs have been erased (spec/confidential.md,
//! section 2.3).

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use super::epoch_tree::{DEPTH, EpochKey, Node, bit, child, offset};
use super::{ColumnId, ColumnRoot, Key, KeyAccessError, KeyEncodingError};
use crate::record::EpochNumber;

/// The length of an encoded [`Path`] in bytes: column id (16), base epoch (8), offset (4), leaf (32),
/// and 32 siblings of 32 bytes.
pub const PATH: usize = SIBLINGS + DEPTH as usize * 32;

/// The length of an encoded [`Path`] without its siblings in bytes.
const SIBLINGS: usize = 60;

/// The keys of a column from one epoch on: the leaf of this epoch, and the sibling of each node on
/// the path to it that is right of the path. The keys of earlier epochs cannot be computed from it.
///
/// A device keeps a path for each encrypted column, and calls [`advance`](Self::advance) once a later
/// epoch is durably opened. An owner who erases the keys of the past keeps a path, too. A path takes
/// 1.1 KiB of memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Path {
    column: ColumnId,
    base: EpochNumber,
    /// The offset of the current epoch.
    current: u32,
    leaf: Key,
    /// The right siblings of the depths 1 to 32. A sibling exists if the bit of the current offset at
    /// its depth is 0; otherwise its place is zeros, so that no erased key stays in memory.
    siblings: [Key; DEPTH as usize],
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path")
            .field("column", &self.column)
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

impl Path {
    /// Returns the keys of a column from `epoch` on. Takes at most 64 derivations.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange`.
    pub fn new(root: &ColumnRoot, epoch: EpochNumber) -> Result<Self, KeyAccessError> {
        let current = offset(root.base(), epoch)?;
        let mut path = Self {
            column: root.column(),
            base: root.base(),
            current,
            leaf: root.node().key().clone(),
            siblings: [const { Key([0; 32]) }; DEPTH as usize],
        };
        path.descend(0);
        Ok(path)
    }

    /// Derives the leaf of the current epoch, and the siblings below `depth`. `leaf` is the key of the
    /// node at `depth` on the path.
    fn descend(&mut self, depth: u8) {
        for (at, sibling) in (1..=DEPTH).zip(&mut self.siblings).skip(depth.into()) {
            let right = bit(self.current, at);
            sibling.zeroize();
            if !right {
                *sibling = child(&self.leaf, true);
            }
            self.leaf = child(&self.leaf, right);
        }
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

    /// Returns the first epoch whose key can be computed.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        EpochNumber(self.base.0 + self.current as u64)
    }

    /// Returns the key of the current epoch.
    #[must_use]
    pub fn epoch_key(&self) -> EpochKey {
        EpochKey::at(self.column, self.epoch(), self.leaf.clone())
    }

    /// Moves to a later epoch and erases the keys of the epochs before it. Does nothing if `epoch` is
    /// the current epoch. Takes at most 64 derivations, and 2 on average for consecutive epochs.
    ///
    /// # Errors
    /// `KeyErased` if `epoch` is before the current epoch; `EpochOutOfKeyRange`. The path is then
    /// unchanged.
    pub fn advance(&mut self, epoch: EpochNumber) -> Result<(), KeyAccessError> {
        let next = offset(self.base, epoch)?;
        if next < self.current {
            return Err(KeyAccessError::KeyErased);
        }
        if next == self.current {
            return Ok(());
        }
        // At the first bit that differs, the current offset has 0 and the next one has 1, so the
        // sibling there exists and is an ancestor of the next leaf.
        #[allow(clippy::cast_possible_truncation)]
        let depth = (self.current ^ next).leading_zeros() as u8 + 1;
        let sibling = &mut self.siblings[usize::from(depth) - 1];
        self.leaf.0.copy_from_slice(&sibling.0);
        sibling.zeroize();
        self.current = next;
        self.descend(depth);
        Ok(())
    }

    /// Returns the nodes that open the current and all later epochs, by ascending epoch: at most 33.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        let leaf = Node::at(DEPTH, self.current, self.leaf.clone());
        let siblings = (1..=DEPTH).zip(&self.siblings).rev();
        core::iter::once(leaf).chain(siblings.filter_map(|(depth, sibling)| {
            let prefix = self.current >> (DEPTH - depth) | 1;
            (!bit(self.current, depth)).then(|| Node::at(depth, prefix, sibling.clone()))
        }))
    }

    /// Returns the encoding, which always has the same length: column id (16 bytes), base epoch (8),
    /// offset of the current epoch (4), leaf, siblings of the depths 1 to 32. Integers are big-endian.
    /// A sibling that does not exist is 32 zeros. The encoding is secret.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<[u8; PATH]> {
        let mut out = Zeroizing::new([0; PATH]);
        out[..16].copy_from_slice(&self.column.0);
        out[16..24].copy_from_slice(&self.base.0.to_be_bytes());
        out[24..28].copy_from_slice(&self.current.to_be_bytes());
        out[28..60].copy_from_slice(&self.leaf.0);
        for (place, sibling) in out[60..].chunks_exact_mut(32).zip(&self.siblings) {
            place.copy_from_slice(&sibling.0);
        }
        out
    }

    /// Writes the encoding without the siblings that do not exist to `out` and returns it: 60 bytes, and
    /// 32 for each bit 0 of the offset. The encoding is secret.
    pub fn encode_short<'o>(&self, out: &'o mut [u8; PATH]) -> &'o [u8] {
        *out = *self.encode();
        let mut end = SIBLINGS;
        for depth in (1..=DEPTH).filter(|&depth| !bit(self.current, depth)) {
            let from = SIBLINGS + (usize::from(depth) - 1) * 32;
            out.copy_within(from..from + 32, end);
            end += 32;
        }
        out[end..].zeroize();
        &out[..end]
    }

    /// Reads what [`encode_short`](Self::encode_short) wrote at the start of `bytes`, and returns the
    /// bytes that follow. The encoding has no check value; the caller must detect damage.
    ///
    /// # Errors
    /// `MalformedKey` if the encoding is cut off, a sibling is zeros, or the current epoch does not fit
    /// 64 bits.
    pub fn decode_short(bytes: &[u8]) -> Result<(Self, &[u8]), KeyEncodingError> {
        let (head, mut rest) = chunk::<SIBLINGS>(bytes)?;
        let head = Zeroizing::new(head);
        let (_, offset) = head.split_at(24);
        let (offset, _) = chunk(offset)?;
        let current = u32::from_be_bytes(offset);
        let mut whole = Zeroizing::new([0; PATH]);
        whole[..SIBLINGS].copy_from_slice(&*head);
        for (depth, place) in (1..=DEPTH).zip(whole[SIBLINGS..].chunks_exact_mut(32)) {
            if !bit(current, depth) {
                let sibling: &[u8; 32];
                (sibling, rest) = rest.split_first_chunk().ok_or(KeyEncodingError::MalformedKey)?;
                place.copy_from_slice(sibling);
            }
        }
        Ok((Self::decode(&whole)?, rest))
    }

    /// Reads an encoding. The encoding has no check value; the caller must detect damage.
    ///
    /// # Errors
    /// `MalformedKey` if a sibling that must not exist is not zeros, one that must exist is zeros, or
    /// the current epoch does not fit 64 bits.
    pub fn decode(bytes: &[u8; PATH]) -> Result<Self, KeyEncodingError> {
        let (column, rest) = chunk(bytes)?;
        let (base, rest) = chunk(rest)?;
        let (current, rest) = chunk(rest)?;
        let (leaf, rest) = chunk(rest)?;
        let (base, current) = (u64::from_be_bytes(base), u32::from_be_bytes(current));
        if base.checked_add(current.into()).is_none() {
            return Err(KeyEncodingError::MalformedKey);
        }
        let leaf = Key(leaf);
        let mut siblings = [const { Key([0; 32]) }; DEPTH as usize];
        let keys = rest.as_chunks::<32>().0;
        for ((depth, sibling), key) in (1..=DEPTH).zip(&mut siblings).zip(keys) {
            if bit(current, depth) == key.iter().any(|&byte| byte != 0) {
                return Err(KeyEncodingError::MalformedKey);
            }
            sibling.0.copy_from_slice(key);
        }
        Ok(Self { column: ColumnId(column), base: EpochNumber(base), current, leaf, siblings })
    }
}

fn chunk<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), KeyEncodingError> {
    let chunk = bytes.split_first_chunk().map(|(chunk, rest)| (*chunk, rest));
    chunk.ok_or(KeyEncodingError::MalformedKey)
}
