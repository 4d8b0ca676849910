//! The block function of ChaCha20 (RFC 8439, section 2.3), used as a pseudo-random function of slot
//! and epoch. A source needs a single block under each of two keys.

use moteseal_core::chacha::{self, BLOCK_WORDS};
use zeroize::Zeroizing;

/// The number of 32-bit words of a block that are used: eight for a one-time key and five for a
/// share.
pub const WORDS: usize = 13;

/// Returns a block, of which the first [`WORDS`] words are used. The block counter is the slot. The
/// nonce is 4 zero bytes followed by the epoch, little-endian.
pub(super) fn block(key: &[u8; 32], slot: u32, epoch: u64) -> Zeroizing<[u32; BLOCK_WORDS]> {
    #[allow(clippy::cast_possible_truncation)]
    let tail = [slot, 0, epoch as u32, (epoch >> 32) as u32];
    let mut words = Zeroizing::new([0; BLOCK_WORDS]);
    chacha::block(key, tail, &mut words);
    words
}
