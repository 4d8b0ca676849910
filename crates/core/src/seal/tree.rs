//! Dynamic Tree Chaining (section IV.B): an online RFC 9162 tree.

use crate::digest::Digest;

/// The leaf hash of a record.
#[must_use]
pub fn leaf(record: &[u8]) -> Digest {
    Digest::of(&[&[0], record])
}

/// The hash of an inner node.
#[must_use]
pub fn node(left: &Digest, right: &Digest) -> Digest {
    Digest::of(&[&[1], &left.0, &right.0])
}
