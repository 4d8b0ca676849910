//! Does the same as [`chacha16`](super::chacha16) with AVX2: processes the sixteen keys in two
//! halves.

use core::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_srli_epi64,
    _mm256_storeu_si256,
};

use moteseal_sum::sies::{KeyLanes, LANES, WORDS};

use super::CHACHA;
use super::chacha_blocks::{COLUMNS, DIAGONALS, quarter_avx2};

/// Sums the blocks of the lanes whose bit in `present` is set, word by word, for the words that the
/// protocol uses. `tail` is the last row of the ChaCha20 state: the counter and the nonce.
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_possible_wrap)]
pub(super) fn sums(lanes: &[KeyLanes], present: &[u16], tail: [u32; 4]) -> [u64; WORDS] {
    let broadcast = |word: u32| _mm256_set1_epi32(word as i32);
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let mut totals = [_mm256_setzero_si256(); WORDS];
    for (keys, present) in lanes.iter().zip(present) {
        let mut masks = [0_u32; LANES];
        for (lane, mask) in masks.iter_mut().enumerate() {
            *mask = if present >> lane & 1 == 0 { 0 } else { u32::MAX };
        }
        for half in [0, LANES / 2] {
            let mask = load(&masks, half);
            let mut start = [_mm256_setzero_si256(); 16];
            for (word, constant) in start.iter_mut().zip(CHACHA) {
                *word = broadcast(constant);
            }
            for (word, lanes) in start[4..].iter_mut().zip(keys.words()) {
                *word = load(lanes, half);
            }
            for (word, value) in start[12..].iter_mut().zip(tail) {
                *word = broadcast(value);
            }
            let mut s = start;
            for _ in 0..10 {
                for [a, b, c, d] in COLUMNS {
                    quarter_avx2(&mut s, a, b, c, d);
                }
                for [a, b, c, d] in DIAGONALS {
                    quarter_avx2(&mut s, a, b, c, d);
                }
            }
            for ((total, word), start) in totals.iter_mut().zip(s).zip(start) {
                let word = _mm256_and_si256(mask, _mm256_add_epi32(word, start));
                let (even, odd) = (_mm256_and_si256(word, low), _mm256_srli_epi64::<32>(word));
                *total = _mm256_add_epi64(*total, _mm256_add_epi64(even, odd));
            }
        }
    }
    let mut sums = [0; WORDS];
    for (sum, total) in sums.iter_mut().zip(totals) {
        let mut words = [0_u64; 4];
        // SAFETY: four 64-bit words have the size of the vector.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), total) };
        *sum = words.iter().sum();
    }
    sums
}

/// Loads eight words, starting at `from`, which must be 0 or 8.
#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; LANES], from: usize) -> __m256i {
    let half = words[from..].first_chunk::<8>().unwrap_or(&[0; 8]);
    // SAFETY: eight 32-bit words have the size of the vector.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}
