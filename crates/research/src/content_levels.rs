//! The paper's levels, which are derived from a public hash of an event's content (Li et al.,
//! section IV.C).

use xxhash_rust::xxh64::xxh64;

/// The number of levels of the compared schemes. A hash of 64 bits would allow 65.
pub const LEVELS: u8 = 16;

/// Returns the level of an event: the number of leading zeros of its xxHash64. The last level
/// includes all higher numbers. Equal events have equal levels, and anyone who can choose the
/// content of an event can choose its level.
#[must_use]
pub fn level(event: &[u8]) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let zeros = xxh64(event, 0).leading_zeros() as u8;
    zeros.min(LEVELS - 1)
}
