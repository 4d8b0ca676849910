//! The paper's levels: from the content of an event, by a public hash (Li et al., section IV.C).

use xxhash_rust::xxh64::xxh64;

/// How many levels the compared schemes use; with 64 bits of hash there could be 65.
pub const LEVELS: u8 = 16;

/// The leading zeros of xxHash64 of the event, the last level catching the rest. Equal events have equal levels, and whoever
/// chooses an event's content chooses its level.
#[must_use]
pub fn level(event: &[u8]) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let zeros = xxh64(event, 0).leading_zeros() as u8;
    zeros.min(LEVELS - 1)
}
