//! The paper's levels: a public hash of an event's content (Li et al., section IV.C).

use xxhash_rust::xxh64::xxh64;

/// The number of levels of the compared schemes; with 64 bits of hash there could be 65.
pub const LEVELS: u8 = 16;

/// Returns the number of leading zeros of xxHash64 of the event; the last level includes all higher
/// counts. Equal events have equal levels, and the author of an event's content determines its
/// level.
#[must_use]
pub fn level(event: &[u8]) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let zeros = xxh64(event, 0).leading_zeros() as u8;
    zeros.min(LEVELS - 1)
}
