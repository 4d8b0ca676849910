//! SipHash-2-4 of consecutive sequence numbers in the 4 lanes of AVX2. Two vectors are computed at
//! a time, to hide the latency of the instructions.

use core::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_or_si256, _mm256_set1_epi64x, _mm256_setr_epi8,
    _mm256_setr_epi64x, _mm256_shuffle_epi8, _mm256_shuffle_epi32, _mm256_slli_epi64,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use moteseal_seal::level::LevelKey;

/// The number of sequence numbers that are hashed in one step.
const STEP: usize = 8;

#[inline]
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_possible_wrap)]
fn broadcast(value: u64) -> __m256i {
    _mm256_set1_epi64x(value as i64)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate<const LEFT: i32, const RIGHT: i32>(v: __m256i) -> __m256i {
    const { assert!(LEFT + RIGHT == 64) };
    _mm256_or_si256(_mm256_slli_epi64::<LEFT>(v), _mm256_srli_epi64::<RIGHT>(v))
}

/// Rotates each lane by 16 bits. This is a rotation by two bytes, which one shuffle can do.
#[inline]
#[target_feature(enable = "avx2")]
fn rotate_16(v: __m256i) -> __m256i {
    let order = _mm256_setr_epi8(
        6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13, 6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9,
        10, 11, 12, 13,
    );
    _mm256_shuffle_epi8(v, order)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate_32(v: __m256i) -> __m256i {
    _mm256_shuffle_epi32::<0b10_11_00_01>(v)
}

/// The initial state of SipHash under the key, in every lane.
#[derive(Clone, Copy)]
struct Lanes {
    state: [__m256i; 4],
    /// A bit that is set in each hash before its leading zeros are counted, so that the count is at
    /// most the last level.
    stop: u64,
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(state: [u64; 4], levels: u8) -> Self {
        let [a, b, c, d] = state;
        Self {
            state: [broadcast(a), broadcast(b), broadcast(c), broadcast(d)],
            stop: (1 << 63) >> levels.saturating_sub(1),
        }
    }

    /// Returns the levels of the sequence numbers in two vectors.
    #[inline]
    #[target_feature(enable = "avx2,lzcnt")]
    #[allow(clippy::cast_possible_truncation)]
    fn levels(&self, messages: [__m256i; 2]) -> [u8; STEP] {
        let length = broadcast(8 << 56);
        let mut s = [self.state; 2];
        macro_rules! both {
            (|$lane:ident, $i:ident| $body:expr) => {
                for $i in 0..2 {
                    let $lane = &mut s[$i];
                    $body;
                }
            };
        }
        macro_rules! round {
            () => {
                both!(|v, _i| {
                    v[0] = _mm256_add_epi64(v[0], v[1]);
                    v[2] = _mm256_add_epi64(v[2], v[3]);
                    v[1] = _mm256_xor_si256(rotate::<13, 51>(v[1]), v[0]);
                    v[3] = _mm256_xor_si256(rotate_16(v[3]), v[2]);
                    v[0] = rotate_32(v[0]);
                    v[2] = _mm256_add_epi64(v[2], v[1]);
                    v[0] = _mm256_add_epi64(v[0], v[3]);
                    v[1] = _mm256_xor_si256(rotate::<17, 47>(v[1]), v[2]);
                    v[3] = _mm256_xor_si256(rotate::<21, 43>(v[3]), v[0]);
                    v[2] = rotate_32(v[2]);
                })
            };
        }
        both!(|v, i| v[3] = _mm256_xor_si256(v[3], messages[i]));
        round!();
        round!();
        both!(|v, i| {
            v[0] = _mm256_xor_si256(v[0], messages[i]);
            v[3] = _mm256_xor_si256(v[3], length);
        });
        round!();
        round!();
        both!(|v, _i| {
            v[0] = _mm256_xor_si256(v[0], length);
            v[2] = _mm256_xor_si256(v[2], broadcast(0xff));
        });
        round!();
        round!();
        round!();
        round!();
        let mut hashes = [0_u64; STEP];
        for (four, [v0, v1, v2, v3]) in hashes.as_chunks_mut::<4>().0.iter_mut().zip(s) {
            let hash = _mm256_xor_si256(_mm256_xor_si256(v0, v1), _mm256_xor_si256(v2, v3));
            // SAFETY: the array has the size of the vector.
            unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), hash) };
        }
        let mut levels = [0; STEP];
        for (level, hash) in levels.iter_mut().zip(hashes) {
            *level = (hash | self.stop).leading_zeros() as u8;
        }
        levels
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn first_messages(first: u64) -> [__m256i; 2] {
    let first = broadcast(first);
    [
        _mm256_add_epi64(first, _mm256_setr_epi64x(0, 1, 2, 3)),
        _mm256_add_epi64(first, _mm256_setr_epi64x(4, 5, 6, 7)),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn advance([low, high]: [__m256i; 2]) -> [__m256i; 2] {
    let step = broadcast(STEP as u64);
    [_mm256_add_epi64(low, step), _mm256_add_epi64(high, step)]
}

/// Writes the levels of `first, first + 1, ...` to `out`, as many whole steps as fit. Returns the
/// number of levels written.
#[target_feature(enable = "avx2,lzcnt")]
pub(super) fn levels(state: [u64; 4], levels: u8, first: u64, out: &mut [u8]) -> usize {
    let lanes = Lanes::new(state, levels);
    let mut messages = first_messages(first);
    let (steps, _) = out.as_chunks_mut::<STEP>();
    for bytes in &mut *steps {
        *bytes = lanes.levels(messages);
        messages = advance(messages);
    }
    steps.len() * STEP
}

/// Adds the number of events of each level among the events `0 .. n` to `counts`. Four tables are
/// used in turn, so that counting an event need not wait for the previous increment of the same
/// counter.
#[target_feature(enable = "avx2,lzcnt")]
pub(super) fn count(key: LevelKey, levels: u8, n: u32, counts: &mut [u32]) {
    let lanes = Lanes::new(key.state(), levels);
    let mut messages = first_messages(0);
    let mut tables = [[0_u32; 64]; 4];
    for _ in 0..n / STEP as u32 {
        for (i, level) in lanes.levels(messages).into_iter().enumerate() {
            tables[i % 4][usize::from(level % 64)] += 1;
        }
        messages = advance(messages);
    }
    for table in tables {
        for (count, add) in counts.iter_mut().zip(table) {
            *count += add;
        }
    }
    for seq in n / STEP as u32 * STEP as u32..n {
        counts[usize::from(key.level(seq.into(), levels).0)] += 1;
    }
}
