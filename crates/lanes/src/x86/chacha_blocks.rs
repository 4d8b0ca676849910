//! Computes sixteen consecutive ChaCha20 blocks under one key (RFC 8439, section 2.3): the key stream
//! of encrypted columns.
//!
//! Each word of the state is an array with one lane per block. The compiler turns the loops over the
//! lanes into vector instructions.

use super::CHACHA;

/// The number of blocks.
const BLOCKS: usize = 16;

/// Writes the blocks `first` to `first + 15` to `out`. The block counter has 64 bits, of which the
/// upper half is the first word of the nonce; the other words of the nonce are zeros.
#[target_feature(enable = "avx512f")]
pub(super) fn blocks_avx512(key: &[u8; 32], first: u64, out: &mut [u8; 64 * BLOCKS]) {
    blocks(key, first, out);
}

/// Does the same with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn blocks_avx2(key: &[u8; 32], first: u64, out: &mut [u8; 64 * BLOCKS]) {
    blocks(key, first, out);
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, clippy::needless_range_loop)]
fn blocks(key: &[u8; 32], first: u64, out: &mut [u8; 64 * BLOCKS]) {
    let mut start = [[0; BLOCKS]; 16];
    for (word, constant) in start.iter_mut().zip(CHACHA) {
        *word = [constant; BLOCKS];
    }
    for (word, bytes) in start[4..12].iter_mut().zip(key.as_chunks().0) {
        *word = [u32::from_le_bytes(*bytes); BLOCKS];
    }
    for lane in 0..BLOCKS {
        let block = first.wrapping_add(lane as u64);
        (start[12][lane], start[13][lane]) = (block as u32, (block >> 32) as u32);
    }
    let mut s = start;
    for _ in 0..10 {
        for [a, b, c, d] in [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]] {
            quarter(&mut s, a, b, c, d);
        }
        for [a, b, c, d] in [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]] {
            quarter(&mut s, a, b, c, d);
        }
    }
    let bytes = out.as_chunks_mut::<64>().0;
    for (at, (word, start)) in s.iter().zip(&start).enumerate() {
        for lane in 0..BLOCKS {
            let sum = word[lane].wrapping_add(start[lane]);
            bytes[lane][4 * at..4 * at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn quarter(s: &mut [[u32; BLOCKS]; 16], a: usize, b: usize, c: usize, d: usize) {
    for lane in 0..BLOCKS {
        s[a][lane] = s[a][lane].wrapping_add(s[b][lane]);
        s[d][lane] = (s[d][lane] ^ s[a][lane]).rotate_left(16);
        s[c][lane] = s[c][lane].wrapping_add(s[d][lane]);
        s[b][lane] = (s[b][lane] ^ s[c][lane]).rotate_left(12);
        s[a][lane] = s[a][lane].wrapping_add(s[b][lane]);
        s[d][lane] = (s[d][lane] ^ s[a][lane]).rotate_left(8);
        s[c][lane] = s[c][lane].wrapping_add(s[d][lane]);
        s[b][lane] = (s[b][lane] ^ s[c][lane]).rotate_left(7);
    }
}
