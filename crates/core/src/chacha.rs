//! The block function of ChaCha20 (RFC 8439, section 2.3), in a scalar form.
//!
//! Libraries of ChaCha20 compute four blocks of one key at once. The callers of this function need
//! single blocks, for which this form takes less time and memory. Its memory accesses and branches
//! do not depend on the key.

use zeroize::{Zeroize, Zeroizing};

/// The number of 32-bit words of a block.
pub const BLOCK_WORDS: usize = 16;

/// Returns the first `WORDS` words (at most [`BLOCK_WORDS`]) of a block. `tail` is the last row of
/// the initial state: the block counter, and the three words of the nonce. The bytes of the block
/// are the little-endian encodings of its words.
#[must_use]
pub fn block<const WORDS: usize>(key: &[u8; 32], tail: [u32; 4]) -> Zeroizing<[u32; WORDS]> {
    let mut start = [0; BLOCK_WORDS];
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
fn quarter(s: &mut [u32; BLOCK_WORDS], a: usize, b: usize, c: usize, d: usize) {
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(16);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(12);
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(8);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, section 2.3.2.
    #[test]
    fn a_block_is_that_of_the_rfc() {
        let mut key = [0; 32];
        key.iter_mut().zip(0..).for_each(|(byte, value)| *byte = value);
        let block = block::<BLOCK_WORDS>(&key, [1, 0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(
            *block,
            [
                0xe4e7_f110,
                0x1559_3bd1,
                0x1fdd_0f50,
                0xc471_20a3,
                0xc7f4_d1c7,
                0x0368_c033,
                0x9aaa_2204,
                0x4e6c_d4c3,
                0x4664_82d2,
                0x09aa_9f07,
                0x05d7_c214,
                0xa202_8bd9,
                0xd19c_12b5,
                0xb94e_16de,
                0xe883_d0cb,
                0x4e3c_50a2
            ]
        );
    }
}
