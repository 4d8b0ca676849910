//! Computes ChaCha20 blocks under sixteen keys at a time and sums them word by word, to open a
//! private sum (RFC 8439, section 2.3).
//!
//! Each word of the state is a vector with one lane per key, so no word moves between lanes. Only
//! the words of a block that the protocol uses are summed.

use core::arch::x86_64::{
    _mm512_add_epi32, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512,
    _mm512_maskz_mov_epi32, _mm512_reduce_add_epi64, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_srli_epi64,
};

use moteseal_sum::sies::{KeyLanes, WORDS};

use super::CHACHA;
use super::chacha_blocks::{COLUMNS, DIAGONALS, quarter_avx512};

/// Sums the blocks of the lanes whose bit in `present` is set, word by word, for the words that the
/// protocol uses. `tail` is the last row of the ChaCha20 state: the counter and the nonce.
#[target_feature(enable = "avx512f")]
#[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
pub(super) fn sums(lanes: &[KeyLanes], present: &[u16], tail: [u32; 4]) -> [u64; WORDS] {
    let broadcast = |word: u32| _mm512_set1_epi32(word as i32);
    let low = _mm512_set1_epi64(0xffff_ffff);
    let mut totals = [_mm512_setzero_si512(); WORDS];
    for (keys, present) in lanes.iter().zip(present) {
        if *present == 0 {
            continue;
        }
        let mut start = [_mm512_setzero_si512(); 16];
        for (word, constant) in start.iter_mut().zip(CHACHA) {
            *word = broadcast(constant);
        }
        for (word, lanes) in start[4..].iter_mut().zip(keys.words()) {
            // SAFETY: sixteen 32-bit words have the size of the vector.
            *word = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
        }
        for (word, value) in start[12..].iter_mut().zip(tail) {
            *word = broadcast(value);
        }
        let mut s = start;
        for _ in 0..10 {
            for [a, b, c, d] in COLUMNS {
                quarter_avx512(&mut s, a, b, c, d);
            }
            for [a, b, c, d] in DIAGONALS {
                quarter_avx512(&mut s, a, b, c, d);
            }
        }
        for ((total, word), start) in totals.iter_mut().zip(s).zip(start) {
            let word = _mm512_maskz_mov_epi32(*present, _mm512_add_epi32(word, start));
            let (even, odd) = (_mm512_and_si512(word, low), _mm512_srli_epi64::<32>(word));
            *total = _mm512_add_epi64(*total, _mm512_add_epi64(even, odd));
        }
    }
    let mut sums = [0; WORDS];
    for (sum, total) in sums.iter_mut().zip(totals) {
        *sum = _mm512_reduce_add_epi64(total) as u64;
    }
    sums
}
