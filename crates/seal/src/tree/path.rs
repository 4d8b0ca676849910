//! Inclusion paths of single leaves (RFC 9162, section 2.1.3).

use crate::tree::node;
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::Sequence;

named_errors! {
    /// Why an inclusion path has the wrong length. The values of its digests are not checked.
    PathError {
        /// The position is not below the number of leaves.
        OutOfRange => "the position is not below the number of leaves",
        /// The path has the wrong number of digests for this position.
        DigestCount => "the path has the wrong number of digests for this position",
    }
}

/// Computes the root of a tree of `n` leaves from the leaf hash at `seq` and its inclusion path
/// (RFC 9162, section 2.1.3.2). `path` is the concatenation of the 32-byte sibling digests from the
/// leaf up. The caller must compare the result with the expected root.
///
/// # Errors
/// See [`PathError`].
pub fn path_root(leaf: Digest, seq: Sequence, n: u64, path: &[u8]) -> Result<Digest, PathError> {
    if seq.0 >= n {
        return Err(PathError::OutOfRange);
    }
    let (digests, rest) = path.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(PathError::DigestCount);
    }
    let (mut at, mut last, mut root) = (seq.0, n - 1, leaf);
    for sibling in digests {
        if last == 0 {
            return Err(PathError::DigestCount);
        }
        if at & 1 == 1 || at == last {
            root = node(&Digest(*sibling), &root);
            // Skip the heights at which a node of the right edge has no sibling. Here `at` is not
            // 0.
            let skip = at.trailing_zeros();
            (at, last) = (at >> skip, last >> skip);
        } else {
            root = node(&root, &Digest(*sibling));
        }
        (at, last) = (at >> 1, last >> 1);
    }
    if last == 0 { Ok(root) } else { Err(PathError::DigestCount) }
}
