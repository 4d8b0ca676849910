//! The secret of a device's stream, and the roots of its columns (spec/confidential.md, section 1).

use core::fmt;
use core::ops::RangeInclusive;

use super::epoch_tree::{Cover, Node, Nodes};
use super::{EpochKey, Key, KeyAccessError, short_digest};
use crate::record::EpochNumber;

/// The id of a column in keys and grants: `H("moteseal/2/column" || 0x00 || field)[..16]`, where
/// `field` is the field as encoded in a schema of version 2.
///
/// A field with another name, unit, type, scale, id or suite has another id and thus other keys. The
/// id does not depend on the other fields of the schema.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub [u8; 16]);

impl ColumnId {
    /// Returns the id of an encoded field.
    #[must_use]
    pub fn of(field: &[u8]) -> Self {
        Self(short_digest(b"moteseal/2/column", field))
    }
}

impl fmt::Debug for ColumnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ColumnId {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The secret that a device shares with its owner, and the first epoch that its keys cover.
///
/// It is independent of the keys that sign and of the salt key. `==` compares in constant time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSecret {
    key: Key,
    base: EpochNumber,
}

impl StreamSecret {
    /// Creates a secret from 32 bytes, which must be uniformly random. Its keys cover the 2^32 epochs
    /// from `base`, which never changes for this secret.
    #[must_use]
    pub const fn new(bytes: [u8; 32], base: EpochNumber) -> Self {
        Self { key: Key(bytes), base }
    }

    /// Returns the first epoch that the keys cover.
    #[must_use]
    pub const fn base(&self) -> EpochNumber {
        self.base
    }

    /// Returns the secret bytes, to store them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.key.0
    }

    /// Returns the root of a column: `KDF(secret, "moteseal/1/column", column id)`.
    #[must_use]
    pub fn column(&self, column: ColumnId) -> ColumnRoot {
        let key = self.key.derive(b"moteseal/1/column", &[&column.0]);
        ColumnRoot { column, base: self.base, node: Node::root(key) }
    }

    /// Returns the secret from which columns start that are added after provisioning:
    /// `KDF(secret, "moteseal/2/next")`. A device keeps it when it erases its stream secret.
    #[must_use]
    pub fn next(&self) -> Self {
        Self { key: self.key.derive(b"moteseal/2/next", &[]), base: self.base }
    }
}

/// The root of a column's keys. It opens all epochs of the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRoot {
    column: ColumnId,
    base: EpochNumber,
    node: Node,
}

impl ColumnRoot {
    /// Returns the column.
    #[must_use]
    pub const fn column(&self) -> ColumnId {
        self.column
    }

    /// Returns the first epoch that the keys cover.
    #[must_use]
    pub const fn base(&self) -> EpochNumber {
        self.base
    }

    /// Returns the node of depth 0.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the root as a set of one node.
    #[must_use]
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes::new(self.column, self.base, core::slice::from_ref(&self.node))
    }

    /// Returns the key of an epoch.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange`.
    pub fn epoch_key(&self, epoch: EpochNumber) -> Result<EpochKey, KeyAccessError> {
        self.nodes().epoch_key(epoch)
    }

    /// Returns the nodes that open exactly these epochs, by ascending epoch ([`Nodes::cover`]).
    pub fn cover(&self, epochs: RangeInclusive<EpochNumber>) -> Cover<'_> {
        self.nodes().cover(epochs)
    }
}
