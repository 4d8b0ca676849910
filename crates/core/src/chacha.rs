//! The block function of ChaCha20 (RFC 8439, section 2.3), in a scalar form.
//!
//! Libraries of ChaCha20 compute four blocks of one key at once. The callers of this function need
//! single blocks, for which this form takes less time and memory. Its memory accesses and branches
//! do not depend on the key.

use core::hint::black_box;

/// The number of 32-bit words of a block.
pub const BLOCK_WORDS: usize = 16;

/// The constant "expand 32-byte k".
const CONSTANT: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Writes a block to `out`. `tail` is the last row of the initial state: the block counter, and the
/// three words of the nonce. The bytes of the block are the little-endian encodings of its words.
pub fn block(key: &[u8; 32], tail: [u32; 4], out: &mut [u32; BLOCK_WORDS]) {
    let (second, third) = rows(key);
    // All indices are constants, so the words are in registers, as far as there are enough.
    let mut state = [0; BLOCK_WORDS];
    add(&mut state, 0, CONSTANT);
    add(&mut state, 4, second);
    add(&mut state, 8, third);
    add(&mut state, 12, tail);
    // Between the rounds, the second and the fourth row are without the last rotation of their quarter
    // rounds. A Cortex-M3 rotates an operand of an addition at no cost.
    rotate(&mut state, 4, 32 - 7);
    rotate(&mut state, 12, 32 - 8);
    for _ in 0..10 {
        // In this order, a Cortex-M3 loads and stores the fewest words.
        quarter(&mut state, 0, 4, 8, 12);
        quarter(&mut state, 1, 5, 9, 13);
        quarter(&mut state, 3, 7, 11, 15);
        quarter(&mut state, 2, 6, 10, 14);
        quarter(&mut state, 0, 5, 10, 15);
        quarter(&mut state, 1, 6, 11, 12);
        quarter(&mut state, 3, 4, 9, 14);
        quarter(&mut state, 2, 7, 8, 13);
    }
    rotate(&mut state, 4, 7);
    rotate(&mut state, 12, 8);
    *out = state;
    // Read the key a second time, so that the compiler keeps no copy of it on the stack.
    let (second, third) = rows(black_box(key));
    add(out, 0, CONSTANT);
    add(out, 4, second);
    add(out, 8, third);
    add(out, 12, tail);
}

/// Returns the second and the third row of the initial state.
#[inline(always)]
fn rows(key: &[u8; 32]) -> ([u32; 4], [u32; 4]) {
    let word = |at| u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
    ([word(0), word(4), word(8), word(12)], [word(16), word(20), word(24), word(28)])
}

/// Rotates the words of a row to the left.
#[inline(always)]
const fn rotate(s: &mut [u32; BLOCK_WORDS], row: usize, bits: u32) {
    s[row] = s[row].rotate_left(bits);
    s[row + 1] = s[row + 1].rotate_left(bits);
    s[row + 2] = s[row + 2].rotate_left(bits);
    s[row + 3] = s[row + 3].rotate_left(bits);
}

/// Adds a row to a row of the state.
#[inline(always)]
const fn add(s: &mut [u32; BLOCK_WORDS], row: usize, words: [u32; 4]) {
    s[row] = s[row].wrapping_add(words[0]);
    s[row + 1] = s[row + 1].wrapping_add(words[1]);
    s[row + 2] = s[row + 2].wrapping_add(words[2]);
    s[row + 3] = s[row + 3].wrapping_add(words[3]);
}

/// A quarter round. On entry and on exit, `s[b]` is not yet rotated by 7 bits, and `s[d]` not yet by 8.
#[inline(always)]
const fn quarter(s: &mut [u32; BLOCK_WORDS], a: usize, b: usize, c: usize, d: usize) {
    s[a] = s[a].wrapping_add(s[b].rotate_left(7));
    s[d] = s[d].rotate_left(8) ^ s[a];
    s[c] = s[c].wrapping_add(s[d].rotate_left(16));
    s[b] = s[b].rotate_left(7) ^ s[c];
    s[a] = s[a].wrapping_add(s[b].rotate_left(12));
    s[d] = s[d].rotate_left(16) ^ s[a];
    s[c] = s[c].wrapping_add(s[d].rotate_left(8));
    s[b] = s[b].rotate_left(12) ^ s[c];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, section 2.3.2.
    #[test]
    fn a_block_is_that_of_the_rfc() {
        let mut key = [0; 32];
        key.iter_mut().zip(0..).for_each(|(byte, value)| *byte = value);
        let mut words = [0; BLOCK_WORDS];
        block(&key, [1, 0x0900_0000, 0x4a00_0000, 0], &mut words);
        assert_eq!(
            words,
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
