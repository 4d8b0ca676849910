//! Computes sixteen consecutive ChaCha20 blocks under one key (RFC 8439, section 2.3), the key stream of
//! encrypted columns, and adds it to cells.
//!
//! Each word of the state is a vector with one lane per block. A transposition at the end makes
//! blocks of the words.

use core::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set_epi8, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_shuffle_epi32,
    _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
    _mm512_add_epi32, _mm512_loadu_si512, _mm512_rol_epi32, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use moteseal_core::record::Sequence;
use moteseal_core::schema::RecordError;

use super::CHACHA;
use crate::encryption::{Cells, add_cells};

/// The number of blocks.
const BLOCKS: usize = 16;

/// The words of the quarter rounds of a column round.
pub(super) const COLUMNS: [[usize; 4]; 4] =
    [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
/// The words of the quarter rounds of a diagonal round.
pub(super) const DIAGONALS: [[usize; 4]; 4] =
    [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// Writes the blocks `first` to `first + 15` to `out`. The block counter has 64 bits, of which the
/// upper half is the first word of the nonce; the other words of the nonce are zeros.
#[target_feature(enable = "avx512f")]
#[allow(clippy::cast_possible_wrap)]
pub(super) fn blocks_avx512(key: &[u8; 32], first: u64, out: &mut [u8; 64 * BLOCKS]) {
    let (words, low, high) = (words(key), low(first), high(first));
    let start = |at: usize| match at {
        // SAFETY: sixteen 32-bit words have the size of the vector.
        12 => unsafe { _mm512_loadu_si512(low.as_ptr().cast()) },
        // SAFETY: as above.
        13 => unsafe { _mm512_loadu_si512(high.as_ptr().cast()) },
        at => _mm512_set1_epi32(words[at] as i32),
    };
    let mut s = [_mm512_setzero_si512(); 16];
    for (at, word) in s.iter_mut().enumerate() {
        *word = start(at);
    }
    for _ in 0..10 {
        for [a, b, c, d] in COLUMNS {
            quarter_avx512(&mut s, a, b, c, d);
        }
        for [a, b, c, d] in DIAGONALS {
            quarter_avx512(&mut s, a, b, c, d);
        }
    }
    for (at, word) in s.iter_mut().enumerate() {
        *word = _mm512_add_epi32(*word, start(at));
    }
    let blocks = out.as_chunks_mut::<64>().0;
    for (block, words) in blocks.iter_mut().zip(transposed(&s)) {
        // SAFETY: a block has the size of the vector.
        unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), words) };
    }
}

/// Writes at least the first `blocks` of these blocks, with AVX2: eight blocks at a time, and up to four
/// at the end.
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_possible_wrap)]
pub(super) fn blocks_avx2(key: &[u8; 32], first: u64, blocks: usize, out: &mut [u8; 64 * BLOCKS]) {
    let (words, low, high) = (words(key), low(first), high(first));
    for half in (0..blocks.min(BLOCKS)).step_by(8) {
        if blocks - half <= 4
            && let Some(four) = out[64 * half..].first_chunk_mut()
        {
            four_blocks_avx2(&words, first.wrapping_add(half as u64), four);
            break;
        }
        let load = |lanes: &[u32; BLOCKS]| {
            let lanes = lanes[half..].first_chunk::<8>().unwrap_or(&[0; 8]);
            // SAFETY: eight 32-bit words have the size of the vector.
            unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
        };
        let start = |at: usize| match at {
            12 => load(&low),
            13 => load(&high),
            at => _mm256_set1_epi32(words[at] as i32),
        };
        let mut s = [_mm256_setzero_si256(); 16];
        for (at, word) in s.iter_mut().enumerate() {
            *word = start(at);
        }
        for _ in 0..10 {
            for [a, b, c, d] in COLUMNS {
                quarter_avx2(&mut s, a, b, c, d);
            }
            for [a, b, c, d] in DIAGONALS {
                quarter_avx2(&mut s, a, b, c, d);
            }
        }
        for (at, word) in s.iter_mut().enumerate() {
            *word = _mm256_add_epi32(*word, start(at));
        }
        let blocks = out.as_chunks_mut::<64>().0;
        for (from, words) in s.as_chunks::<8>().0.iter().enumerate() {
            for (block, words) in blocks[half..].iter_mut().zip(transposed_avx2(words)) {
                let place = block.as_chunks_mut::<32>().0[from].as_mut_ptr();
                // SAFETY: 32 bytes have the size of the vector.
                unsafe { _mm256_storeu_si256(place.cast(), words) };
            }
        }
    }
}

/// Writes the blocks `first` to `first + 3`. A vector has one row of the state of two blocks, so the
/// words of three rows turn between the rounds. This takes less time than eight blocks.
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_possible_wrap, clippy::cast_possible_truncation)]
fn four_blocks_avx2(words: &[u32; 16], first: u64, out: &mut [u8; 256]) {
    let row = |at: usize| {
        let [a, b, c, d] = [words[at], words[at + 1], words[at + 2], words[at + 3]];
        let [a, b, c, d] = [a as i32, b as i32, c as i32, d as i32];
        _mm256_setr_epi32(a, b, c, d, a, b, c, d)
    };
    let counters = |at: u64| {
        let [one, two] = [first.wrapping_add(at) as i64, first.wrapping_add(at + 1) as i64];
        _mm256_setr_epi64x(one, 0, two, 0)
    };
    let (constant, second, third) = (row(0), row(4), row(8));
    let start = [constant, second, third, counters(0), constant, second, third, counters(2)];
    let mut s = [_mm256_setzero_si256(); 16];
    s[..8].copy_from_slice(&start);
    for _ in 0..10 {
        for at in [0, 4] {
            quarter_avx2(&mut s, at, at + 1, at + 2, at + 3);
            s[at + 1] = _mm256_shuffle_epi32::<0x39>(s[at + 1]);
            s[at + 2] = _mm256_shuffle_epi32::<0x4e>(s[at + 2]);
            s[at + 3] = _mm256_shuffle_epi32::<0x93>(s[at + 3]);
        }
        for at in [0, 4] {
            quarter_avx2(&mut s, at, at + 1, at + 2, at + 3);
            s[at + 1] = _mm256_shuffle_epi32::<0x93>(s[at + 1]);
            s[at + 2] = _mm256_shuffle_epi32::<0x4e>(s[at + 2]);
            s[at + 3] = _mm256_shuffle_epi32::<0x39>(s[at + 3]);
        }
    }
    for (word, start) in s.iter_mut().zip(start) {
        *word = _mm256_add_epi32(*word, start);
    }
    let [a, b, c, d, e, f, g, h, ..] = s;
    let halves = [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x20>(c, d),
        _mm256_permute2x128_si256::<0x31>(a, b),
        _mm256_permute2x128_si256::<0x31>(c, d),
        _mm256_permute2x128_si256::<0x20>(e, f),
        _mm256_permute2x128_si256::<0x20>(g, h),
        _mm256_permute2x128_si256::<0x31>(e, f),
        _mm256_permute2x128_si256::<0x31>(g, h),
    ];
    for (place, words) in out.as_chunks_mut::<32>().0.iter_mut().zip(halves) {
        // SAFETY: 32 bytes have the size of the vector.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), words) };
    }
}

/// Adds key stream to cells ([`add_cells`]). The compiler uses vectors of AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn add_cells_avx512<const WIDTH: usize>(
    keys: &[[u8; WIDTH]],
    sequences: &[Sequence],
    cells: Cells<'_>,
) -> Result<usize, RecordError> {
    add_cells(keys, sequences, cells)
}

/// Does the same with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn add_cells_avx2<const WIDTH: usize>(
    keys: &[[u8; WIDTH]],
    sequences: &[Sequence],
    cells: Cells<'_>,
) -> Result<usize, RecordError> {
    add_cells(keys, sequences, cells)
}

/// Returns the words of the initial state that all blocks share. Those of the counter are zeros.
fn words(key: &[u8; 32]) -> [u32; 16] {
    let mut words = [0; 16];
    words[..4].copy_from_slice(&CHACHA);
    for (word, bytes) in words[4..12].iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Returns the lower halves of the block counters.
#[allow(clippy::cast_possible_truncation)]
fn low(first: u64) -> [u32; BLOCKS] {
    core::array::from_fn(|lane| first.wrapping_add(lane as u64) as u32)
}

/// Returns the upper halves of the block counters.
#[allow(clippy::cast_possible_truncation)]
fn high(first: u64) -> [u32; BLOCKS] {
    core::array::from_fn(|lane| (first.wrapping_add(lane as u64) >> 32) as u32)
}

/// The quarter round of sixteen blocks.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarter_avx512(s: &mut [__m512i; 16], a: usize, b: usize, c: usize, d: usize) {
    s[a] = _mm512_add_epi32(s[a], s[b]);
    s[d] = _mm512_rol_epi32::<16>(_mm512_xor_si512(s[d], s[a]));
    s[c] = _mm512_add_epi32(s[c], s[d]);
    s[b] = _mm512_rol_epi32::<12>(_mm512_xor_si512(s[b], s[c]));
    s[a] = _mm512_add_epi32(s[a], s[b]);
    s[d] = _mm512_rol_epi32::<8>(_mm512_xor_si512(s[d], s[a]));
    s[c] = _mm512_add_epi32(s[c], s[d]);
    s[b] = _mm512_rol_epi32::<7>(_mm512_xor_si512(s[b], s[c]));
}

/// The quarter round of eight blocks.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn quarter_avx2(s: &mut [__m256i; 16], a: usize, b: usize, c: usize, d: usize) {
    // A rotation by whole bytes is one shuffle.
    let left_16 = _mm256_set_epi8(
        13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2, 13, 12, 15, 14, 9, 8, 11, 10, 5, 4,
        7, 6, 1, 0, 3, 2,
    );
    let left_8 = _mm256_set_epi8(
        14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3, 14, 13, 12, 15, 10, 9, 8, 11, 6, 5,
        4, 7, 2, 1, 0, 3,
    );
    macro_rules! turn {
        ($word:expr, $left:literal) => {{
            let word = $word;
            _mm256_or_si256(
                _mm256_slli_epi32::<$left>(word),
                _mm256_srli_epi32::<{ 32 - $left }>(word),
            )
        }};
    }
    s[a] = _mm256_add_epi32(s[a], s[b]);
    s[d] = _mm256_shuffle_epi8(_mm256_xor_si256(s[d], s[a]), left_16);
    s[c] = _mm256_add_epi32(s[c], s[d]);
    s[b] = turn!(_mm256_xor_si256(s[b], s[c]), 12);
    s[a] = _mm256_add_epi32(s[a], s[b]);
    s[d] = _mm256_shuffle_epi8(_mm256_xor_si256(s[d], s[a]), left_8);
    s[c] = _mm256_add_epi32(s[c], s[d]);
    s[b] = turn!(_mm256_xor_si256(s[b], s[c]), 7);
}

/// Returns the transpose of a matrix of sixteen rows of sixteen words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(s: &[__m512i; 16]) -> [__m512i; 16] {
    // Within each quarter of a vector, transpose four words of four rows. Vector `4 * i + j` then has
    // the words `4 * i ..` of the blocks `j`, `j + 4`, `j + 8` and `j + 12`.
    let mut of_four = [_mm512_setzero_si512(); 16];
    for (rows, out) in s.as_chunks::<4>().0.iter().zip(of_four.as_chunks_mut::<4>().0) {
        let (low_01, high_01) =
            (_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[0], rows[1]));
        let (low_23, high_23) =
            (_mm512_unpacklo_epi32(rows[2], rows[3]), _mm512_unpackhi_epi32(rows[2], rows[3]));
        out[0] = _mm512_unpacklo_epi64(low_01, low_23);
        out[1] = _mm512_unpackhi_epi64(low_01, low_23);
        out[2] = _mm512_unpacklo_epi64(high_01, high_23);
        out[3] = _mm512_unpackhi_epi64(high_01, high_23);
    }
    // Transpose the quarters of the four vectors with the same blocks.
    let mut out = [_mm512_setzero_si512(); 16];
    for j in 0..4 {
        let [a, b, c, d] = [of_four[j], of_four[4 + j], of_four[8 + j], of_four[12 + j]];
        let (even_ab, odd_ab) =
            (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (even_cd, odd_cd) =
            (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        out[j] = _mm512_shuffle_i32x4::<0x88>(even_ab, even_cd);
        out[j + 4] = _mm512_shuffle_i32x4::<0x88>(odd_ab, odd_cd);
        out[j + 8] = _mm512_shuffle_i32x4::<0xdd>(even_ab, even_cd);
        out[j + 12] = _mm512_shuffle_i32x4::<0xdd>(odd_ab, odd_cd);
    }
    out
}

/// Returns the transpose of a matrix of eight rows of eight words.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_avx2(s: &[__m256i; 8]) -> [__m256i; 8] {
    // Vector `4 * i + j` has the words `4 * i ..` of the blocks `j` and `j + 4`.
    let mut of_four = [_mm256_setzero_si256(); 8];
    for (rows, out) in s.as_chunks::<4>().0.iter().zip(of_four.as_chunks_mut::<4>().0) {
        let (low_01, high_01) =
            (_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[0], rows[1]));
        let (low_23, high_23) =
            (_mm256_unpacklo_epi32(rows[2], rows[3]), _mm256_unpackhi_epi32(rows[2], rows[3]));
        out[0] = _mm256_unpacklo_epi64(low_01, low_23);
        out[1] = _mm256_unpackhi_epi64(low_01, low_23);
        out[2] = _mm256_unpacklo_epi64(high_01, high_23);
        out[3] = _mm256_unpackhi_epi64(high_01, high_23);
    }
    let mut out = [_mm256_setzero_si256(); 8];
    for j in 0..4 {
        out[j] = _mm256_permute2x128_si256::<0x20>(of_four[j], of_four[4 + j]);
        out[j + 4] = _mm256_permute2x128_si256::<0x31>(of_four[j], of_four[4 + j]);
    }
    out
}
