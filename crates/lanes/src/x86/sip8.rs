//! SipHash-2-4 of consecutive sequence numbers in the 8 lanes of AVX-512. Two vectors are computed
//! at a time, to hide the latency of the instructions.

use core::arch::x86_64::{
    __m512i, _mm_storel_epi64, _mm512_add_epi64, _mm512_cmpeq_epi8_mask, _mm512_cmpgt_epu64_mask,
    _mm512_cvtepi64_epi8, _mm512_loadu_si512, _mm512_lzcnt_epi64, _mm512_or_si512,
    _mm512_rol_epi64, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_setzero_si512,
    _mm512_slli_epi64, _mm512_sllv_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};

use moteseal_seal::level::LevelKey;

/// The number of sequence numbers that are hashed in one step.
const STEP: usize = 16;

/// The initial state of SipHash under the key, in every lane.
#[derive(Clone, Copy)]
struct Lanes {
    state: [__m512i; 4],
    /// A bit that is set in each hash before its leading zeros are counted, so that the count is at
    /// most the last level.
    stop: __m512i,
}

#[target_feature(enable = "avx512f")]
#[allow(clippy::cast_possible_wrap)]
fn broadcast(value: u64) -> __m512i {
    _mm512_set1_epi64(value as i64)
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(state: [u64; 4], levels: u8) -> Self {
        let [a, b, c, d] = state;
        let stop = broadcast((1 << 63) >> levels.saturating_sub(1));
        Self { state: [broadcast(a), broadcast(b), broadcast(c), broadcast(d)], stop }
    }

    /// Returns the levels of the sequence numbers in two vectors, one per lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512cd")]
    fn levels(&self, messages: [__m512i; 2]) -> [__m512i; 2] {
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
                    v[0] = _mm512_add_epi64(v[0], v[1]);
                    v[2] = _mm512_add_epi64(v[2], v[3]);
                    v[1] = _mm512_xor_si512(_mm512_rol_epi64::<13>(v[1]), v[0]);
                    v[3] = _mm512_xor_si512(_mm512_rol_epi64::<16>(v[3]), v[2]);
                    v[0] = _mm512_rol_epi64::<32>(v[0]);
                    v[2] = _mm512_add_epi64(v[2], v[1]);
                    v[0] = _mm512_add_epi64(v[0], v[3]);
                    v[1] = _mm512_xor_si512(_mm512_rol_epi64::<17>(v[1]), v[2]);
                    v[3] = _mm512_xor_si512(_mm512_rol_epi64::<21>(v[3]), v[0]);
                    v[2] = _mm512_rol_epi64::<32>(v[2]);
                })
            };
        }
        both!(|v, i| v[3] = _mm512_xor_si512(v[3], messages[i]));
        round!();
        round!();
        both!(|v, i| {
            v[0] = _mm512_xor_si512(v[0], messages[i]);
            v[3] = _mm512_xor_si512(v[3], length);
        });
        round!();
        round!();
        both!(|v, _i| {
            v[0] = _mm512_xor_si512(v[0], length);
            v[2] = _mm512_xor_si512(v[2], broadcast(0xff));
        });
        round!();
        round!();
        round!();
        round!();
        let mut levels = messages;
        for (level, [v0, v1, v2, v3]) in levels.iter_mut().zip(s) {
            let hash = _mm512_xor_si512(_mm512_xor_si512(v0, v1), _mm512_xor_si512(v2, v3));
            *level = _mm512_lzcnt_epi64(_mm512_or_si512(hash, self.stop));
        }
        levels
    }
}

impl Lanes {
    /// Returns the levels of the sequence numbers in two vectors, one per byte.
    #[inline]
    #[target_feature(enable = "avx512f,avx512cd")]
    fn step(&self, messages: [__m512i; 2]) -> [u8; STEP] {
        let mut bytes = [0; STEP];
        let (halves, _) = bytes.as_chunks_mut::<8>();
        for (half, level) in halves.iter_mut().zip(self.levels(messages)) {
            // SAFETY: each half holds the eight bytes that are stored.
            unsafe { _mm_storel_epi64(half.as_mut_ptr().cast(), _mm512_cvtepi64_epi8(level)) };
        }
        bytes
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn first_messages(first: u64) -> [__m512i; 2] {
    let first = broadcast(first);
    [
        _mm512_add_epi64(first, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)),
        _mm512_add_epi64(first, _mm512_setr_epi64(8, 9, 10, 11, 12, 13, 14, 15)),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn advance([low, high]: [__m512i; 2]) -> [__m512i; 2] {
    let step = broadcast(STEP as u64);
    [_mm512_add_epi64(low, step), _mm512_add_epi64(high, step)]
}

/// Writes the levels of `first, first + 1, ...` to `out`.
#[target_feature(enable = "avx512f,avx512cd")]
pub(super) fn levels(state: [u64; 4], levels: u8, first: u64, out: &mut [u8]) {
    let lanes = Lanes::new(state, levels);
    let mut messages = first_messages(first);
    let (steps, rest) = out.as_chunks_mut::<STEP>();
    for bytes in steps {
        *bytes = lanes.step(messages);
        messages = advance(messages);
    }
    // Compute a whole step for the last events and ignore the surplus lanes.
    rest.copy_from_slice(&lanes.step(messages)[..rest.len()]);
}

/// Adds the number of events of each level among the events `0 .. n` to `counts`.
///
/// The counters stay in registers: every lane has eight counters of one byte, for levels 0 to 7.
/// Adding `1 << (8 * level)` counts one event. For higher levels the shifted value is 0, so these
/// events, about one in 256, are counted separately.
#[target_feature(enable = "avx512f,avx512cd")]
pub(super) fn count(key: LevelKey, levels: u8, n: u32, counts: &mut [u32]) {
    /// The number of steps that a byte can count without overflow: each step adds at most two to
    /// it.
    const STEPS: u32 = 127;
    let lanes = Lanes::new(key.state(), levels);
    let mut messages = first_messages(0);
    let mut left = n / STEP as u32;
    while left > 0 {
        let portion = left.min(STEPS);
        left -= portion;
        let mut bytes = _mm512_setzero_si512();
        for _ in 0..portion {
            let pair = lanes.levels(messages);
            for level in pair {
                let ones = _mm512_sllv_epi64(broadcast(1), _mm512_slli_epi64::<3>(level));
                bytes = _mm512_add_epi64(bytes, ones);
            }
            if _mm512_cmpgt_epu64_mask(_mm512_or_si512(pair[0], pair[1]), broadcast(7)) != 0 {
                for level in
                    pair.into_iter().flat_map(|level| unpack(level)).filter(|level| *level > 7)
                {
                    counts[usize::from(level.to_le_bytes()[0])] += 1;
                }
            }
            messages = advance(messages);
        }
        for lane in unpack(bytes) {
            for (count, byte) in counts.iter_mut().zip(lane.to_le_bytes()) {
                *count += u32::from(byte);
            }
        }
    }
    let rest = (n % STEP as u32) as usize;
    for level in &lanes.step(messages)[..rest] {
        counts[usize::from(*level)] += 1;
    }
}

/// Adds the number of occurrences of each level in `levels` to `counts`. It takes sixty-four levels
/// at a time and compares them with 0, 1, 2 and so on, the most frequent level first, until all of
/// them have been counted.
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(clippy::cast_possible_wrap)]
pub(super) fn histogram(levels: &[u8], counts: &mut [u32]) {
    let (whole, rest) = levels.as_chunks::<64>();
    let mut last = [u8::MAX; 64];
    last[..rest.len()].copy_from_slice(rest);
    for (chunk, of) in whole.iter().map(|chunk| (chunk, 64)).chain([(&last, rest.len())]) {
        // SAFETY: the array has the size of the vector.
        let chunk = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        let mut left = of;
        for (level, count) in (0..=u8::MAX).zip(&mut *counts) {
            if left == 0 {
                break;
            }
            let found = _mm512_cmpeq_epi8_mask(chunk, _mm512_set1_epi8(level as i8)).count_ones();
            *count += found;
            left -= found as usize;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn unpack(vector: __m512i) -> [u64; 8] {
    let mut lanes = [0; 8];
    // SAFETY: the array has the size of the vector.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) };
    lanes
}
