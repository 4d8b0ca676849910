//! The block function of ChaCha20 (RFC 8439, section 2.3), used as a pseudo-random function of slot
//! and epoch.
//!
//! A source needs a single block under each of two keys. ChaCha20 libraries compute four blocks of
//! one key at once; here three of the four blocks would be wasted. This scalar form needs less time
//! and memory. Its memory accesses and branches do not depend on the key.

use zeroize::{Zeroize, Zeroizing};

/// The number of 32-bit words of a block that are used: eight for a one-time key and five for a
/// share.
pub const WORDS: usize = 13;

/// Returns the first [`WORDS`] words of a block. The block counter is the slot. The nonce is 4 zero
/// bytes followed by the epoch, little-endian.
pub(super) fn block(key: &[u8; 32], slot: u32, epoch: u64) -> Zeroizing<[u32; WORDS]> {
    #[allow(clippy::cast_possible_truncation)]
    let tail = [slot, 0, epoch as u32, (epoch >> 32) as u32];
    let mut start = [0; 16];
    // The constant "expand 32-byte k".
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    for (word, bytes) in start[4..12].iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    start[12..].copy_from_slice(&tail);
    let mut state = start;
    for _ in 0..10 {
        quarter(&mut state, 0, 4, 8, 12);
        quarter(&mut state, 1, 5, 9, 13);
        quarter(&mut state, 2, 6, 10, 14);
        quarter(&mut state, 3, 7, 11, 15);
        quarter(&mut state, 0, 5, 10, 15);
        quarter(&mut state, 1, 6, 11, 12);
        quarter(&mut state, 2, 7, 8, 13);
        quarter(&mut state, 3, 4, 9, 14);
    }
    let mut words = Zeroizing::new([0; WORDS]);
    for ((word, state), start) in words.iter_mut().zip(state).zip(start) {
        *word = state.wrapping_add(start);
    }
    start.zeroize();
    state.zeroize();
    words
}

#[inline(always)]
fn quarter(s: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(16);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(12);
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(8);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(7);
}
