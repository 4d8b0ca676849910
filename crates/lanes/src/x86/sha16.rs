//! SHA-256 of sixteen messages at the same time, one message per lane of AVX-512. It is efficient
//! only if the messages have similar lengths.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_set_epi64x, _mm_storeu_si128, _mm512_add_epi32, _mm512_broadcast_i32x4,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_mask_mov_epi32, _mm512_or_si512,
    _mm512_ror_epi32, _mm512_set1_epi32, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use moteseal_core::Digest;
use moteseal_core::digest::INITIAL;
use moteseal_core::record::MAX_LEVELS;
use moteseal_seal::level::Counters;
use moteseal_seal::star::Served;

use super::{K, leaf_block, leaf_blocks};

/// The number of messages that are hashed at the same time.
pub(super) const LANES: usize = 16;

#[inline]
#[target_feature(enable = "avx512f")]
#[allow(clippy::cast_possible_wrap)]
fn broadcast(word: u32) -> __m512i {
    _mm512_set1_epi32(word as i32)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array has the size of the vector.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; 16], quarter: __m128i) {
    // SAFETY: the array has the size of the vector.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), quarter) };
}

/// Reverses the bytes of each word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap_bytes(v: __m512i) -> __m512i {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(order))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sum(terms: &[__m512i]) -> __m512i {
    let mut sum = terms[0];
    for &term in &terms[1..] {
        sum = _mm512_add_epi32(sum, term);
    }
    sum
}

/// One block of each message: a vector for each of the sixteen words, one message per lane.
type Words = [__m512i; 16];

/// The states of the messages: a vector for each of the eight words, one message per lane.
#[derive(Clone, Copy)]
struct States([__m512i; 8]);

impl States {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn initial() -> Self {
        let mut words = [broadcast(0); 8];
        for (vector, word) in words.iter_mut().zip(INITIAL) {
            *vector = broadcast(word);
        }
        Self(words)
    }

    /// Compresses one block of each message (FIPS 180-4, section 6.2.2).
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn compress(&mut self, mut w: Words) {
        let mut s = self.0;
        for chunk in 0..4 {
            macro_rules! rounds {
                ($($i:literal)*) => { $({
                    if chunk > 0 {
                        let (w1, w9, w14) = (w[($i + 1) % 16], w[($i + 9) % 16], w[($i + 14) % 16]);
                        let s0 = xor3(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
                        let s1 = xor3(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
                        w[$i] = sum(&[w[$i], s0, w9, s1]);
                    }
                    // The eight variables stay in place. Instead, their names rotate by one in each
                    // round.
                    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|v: usize| (v + 64 - $i) % 8);
                    let s1 = xor3(_mm512_ror_epi32::<6>(s[e]), _mm512_ror_epi32::<11>(s[e]), _mm512_ror_epi32::<25>(s[e]));
                    let choice = _mm512_ternarylogic_epi32::<0xca>(s[e], s[f], s[g]);
                    let t1 = sum(&[s[h], _mm512_add_epi32(w[$i], broadcast(K[16 * chunk + $i])), choice, s1]);
                    let s0 = xor3(_mm512_ror_epi32::<2>(s[a]), _mm512_ror_epi32::<13>(s[a]), _mm512_ror_epi32::<22>(s[a]));
                    let majority = _mm512_ternarylogic_epi32::<0xe8>(s[a], s[b], s[c]);
                    s[d] = _mm512_add_epi32(s[d], t1);
                    s[h] = sum(&[t1, s0, majority]);
                })* };
            }
            rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
        for (state, s) in self.0.iter_mut().zip(s) {
            *state = _mm512_add_epi32(*state, s);
        }
    }

    /// Returns these states in the lanes of `mask`, and the states `before` in the other lanes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn only(mut self, mask: u16, before: &Self) -> Self {
        for (word, before) in self.0.iter_mut().zip(&before.0) {
            *word = _mm512_mask_mov_epi32(*before, mask, *word);
        }
        self
    }

    /// Writes the digests, big-endian, to `out`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn digests(self, out: &mut [Digest; LANES]) {
        let mut s = self.0;
        for word in &mut s {
            *word = swap_bytes(*word);
        }
        // For each half of the digest, each transposed vector has the four words of every fourth
        // message.
        for (half, s) in s.as_chunks::<4>().0.iter().enumerate() {
            let at = 16 * half;
            for (i, quarters) in transpose4(*s).into_iter().enumerate() {
                macro_rules! quarter {
                    ($($q:literal)*) => { $(
                        let bytes = out[4 * $q + i].0[at..].first_chunk_mut().expect("a half is sixteen bytes");
                        store(bytes, _mm512_extracti32x4_epi32::<$q>(quarters));
                    )* };
                }
                quarter!(0 1 2 3);
            }
        }
    }
}

/// Transposes four vectors, each of which has one word of sixteen messages. Quarter `q` of result
/// `i` has the four words of message `4q + i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose4([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Transposes a matrix of sixteen by sixteen words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose16(rows: [__m512i; 16]) -> [__m512i; 16] {
    // First transpose within the quarters: quarter q of block 4r + i then has word 4q + i of the
    // rows 4r .. 4r + 4.
    let mut blocks = [rows[0]; 16];
    for r in 0..4 {
        let four = transpose4([rows[4 * r], rows[4 * r + 1], rows[4 * r + 2], rows[4 * r + 3]]);
        blocks[4 * r..4 * r + 4].copy_from_slice(&four);
    }
    // Then transpose the quarters.
    let mut columns = rows;
    for i in 0..4 {
        let [a, b, c, d] = [blocks[i], blocks[4 + i], blocks[8 + i], blocks[12 + i]];
        let (ab_low, ab_high) =
            (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (cd_low, cd_high) =
            (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        columns[i] = _mm512_shuffle_i32x4::<0x88>(ab_low, cd_low);
        columns[4 + i] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
        columns[8 + i] = _mm512_shuffle_i32x4::<0xdd>(ab_low, cd_low);
        columns[12 + i] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
    }
    columns
}

/// Returns the words of sixteen blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words(blocks: &[[u8; 64]; LANES]) -> Words {
    let mut rows = [broadcast(0); LANES];
    for (row, block) in rows.iter_mut().zip(blocks) {
        *row = swap_bytes(load(block));
    }
    transpose16(rows)
}

/// A message that consists of a 64-byte header and a body.
pub(super) struct Message<'a> {
    header: [u8; 64],
    body: &'a [[u8; 64]],
    /// The end of the body with the padding: one or two blocks.
    tail: [[u8; 64]; 2],
    /// The total number of blocks.
    blocks: usize,
}

impl<'a> Message<'a> {
    /// Returns an unused message, for a lane without a message.
    pub(super) const fn none() -> Self {
        Self { header: [0; 64], body: &[], tail: [[0; 64]; 2], blocks: 1 }
    }

    /// Turns an unused message into the message with this header and body.
    pub(super) fn set(&mut self, header: &[u8; 64], body: &'a [u8]) {
        let (whole, rest) = body.as_chunks::<64>();
        self.header = *header;
        self.body = whole;
        self.tail[0][..rest.len()].copy_from_slice(rest);
        self.tail[0][rest.len()] = 0x80;
        self.blocks = Self::blocks_of(body);
        let length = 8 * (64 + body.len() as u64);
        self.tail[self.blocks - 2 - whole.len()][56..].copy_from_slice(&length.to_be_bytes());
    }

    /// Returns the number of blocks of header, body and padding.
    pub(super) const fn blocks_of(body: &[u8]) -> usize {
        (64 + body.len() + 9).div_ceil(64)
    }

    /// Returns block `at`, or the last block if there are fewer blocks.
    #[inline]
    fn block(&self, at: usize) -> &[u8; 64] {
        match at.checked_sub(1) {
            None => &self.header,
            Some(at) if at < self.body.len() => &self.body[at],
            // After the end, repeat the last block.
            Some(at) => {
                &self.tail[usize::from(self.blocks > self.body.len() + 2 && at > self.body.len())]
            }
        }
    }
}

/// Hashes sixteen messages. All lanes compress as many blocks as the longest message has.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn messages(messages: &[Message<'_>; LANES], out: &mut [Digest; LANES]) {
    let mut states = States::initial();
    let (mut longest, mut shortest) = (0, usize::MAX);
    for message in messages {
        longest = longest.max(message.blocks);
        shortest = shortest.min(message.blocks);
    }
    for at in 0..longest {
        let mut rows = [broadcast(0); LANES];
        for (row, message) in rows.iter_mut().zip(messages) {
            *row = swap_bytes(load(message.block(at)));
        }
        let before = states;
        states.compress(transpose16(rows));
        if at >= shortest {
            let mut mask = 0;
            for (lane, message) in messages.iter().enumerate() {
                mask |= u16::from(at < message.blocks) << lane;
            }
            states = states.only(mask, &before);
        }
    }
    states.digests(out);
}

/// A star's chain over its levels: `A_i = SHA-256(A_(i-1) || n_i || D_i)`.
pub(super) struct Chain {
    /// The first level to link. `above` is the chain over the levels below it.
    from: u8,
    above: Digest,
    /// The number of events of each level, `n_i`.
    counters: Counters,
    /// The digest of each block, `D_i`.
    blocks: [Digest; MAX_LEVELS],
}

impl Chain {
    /// Returns the chain of a star whose blocks have been hashed.
    pub(super) fn new(star: &Served<'_>) -> Self {
        let (from, above, blocks) = star.chain();
        Self { from, above, counters: star.counters, blocks }
    }
}

/// Computes up to sixteen chains.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn chains(chains: &[Chain], out: &mut [Digest; LANES]) {
    let mut rows = [[0; 64]; LANES];
    let mut levels = 0;
    for (row, chain) in rows.iter_mut().zip(chains) {
        row[..32].copy_from_slice(&chain.above.0);
        levels = levels.max(chain.counters.as_slice().len());
    }
    let above = words(&rows);
    let mut states = States([broadcast(0); 8]);
    states.0.copy_from_slice(&above[..8]);
    for level in 0..levels {
        let mut mask = 0;
        for (lane, (row, chain)) in rows.iter_mut().zip(chains).enumerate() {
            if let (true, Some(count)) =
                (usize::from(chain.from) <= level, chain.counters.as_slice().get(level))
            {
                row[..4].copy_from_slice(&count.to_be_bytes());
                row[4..36].copy_from_slice(&chain.blocks[level].0);
                mask |= 1 << lane;
            }
        }
        let link = words(&rows);
        let mut first = [broadcast(0); 16];
        first[..8].copy_from_slice(&states.0);
        first[8..].copy_from_slice(&link[..8]);
        let mut rest = [broadcast(0); 16];
        rest[0] = link[8];
        rest[1] = broadcast(0x8000_0000);
        rest[15] = broadcast(8 * 68);
        let mut linked = States::initial();
        linked.compress(first);
        linked.compress(rest);
        states = linked.only(mask, &states);
    }
    states.digests(out);
}

/// Hashes leaves in groups of sixteen. Returns the number of leaves hashed.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn leaves(size: usize, records: &[u8], out: &mut [Digest]) -> usize {
    let mut done = 0;
    let (sixteens, _) = out.as_chunks_mut::<LANES>();
    for (records, digests) in records.chunks_exact(LANES * size).zip(sixteens) {
        let mut states = States::initial();
        if size == 4 {
            states.compress(words_of_four(
                records.first_chunk().expect("sixteen records of four bytes"),
            ));
        } else {
            for index in 0..leaf_blocks(size) {
                let mut blocks = [[0; 64]; LANES];
                for (block, record) in blocks.iter_mut().zip(records.chunks_exact(size)) {
                    *block = leaf_block(record, index);
                }
                states.compress(words(&blocks));
            }
        }
        states.digests(digests);
        done += LANES;
    }
    done
}

/// Returns the words of the leaves of sixteen records of four bytes. Each leaf is a single block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words_of_four(records: &[u8; 64]) -> Words {
    let record = swap_bytes(load(records));
    let mut words = [broadcast(0); 16];
    words[0] = _mm512_srli_epi32::<8>(record);
    words[1] = _mm512_or_si512(_mm512_slli_epi32::<24>(record), broadcast(0x0080_0000));
    words[15] = broadcast(8 * 5);
    words
}

/// Hashes nodes in groups of sixteen. Returns the number of nodes hashed.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn nodes(children: &[Digest], out: &mut [Digest]) -> usize {
    let mut done = 0;
    let (sixteens, _) = out.as_chunks_mut::<LANES>();
    let (pairs, _) = children.as_chunks::<2>();
    let (sixteen_pairs, _) = pairs.as_chunks::<LANES>();
    for (pairs, digests) in sixteen_pairs.iter().zip(sixteens) {
        let mut blocks = [[0; 64]; LANES];
        for (block, [left, right]) in blocks.iter_mut().zip(pairs) {
            block[..32].copy_from_slice(&left.0);
            block[32..].copy_from_slice(&right.0);
        }
        // The prefix 0x01 shifts every byte of the children by one position.
        let mut first = words(&blocks);
        let mut before = broadcast(1);
        for word in &mut first {
            let moved =
                _mm512_or_si512(_mm512_slli_epi32::<24>(before), _mm512_srli_epi32::<8>(*word));
            before = *word;
            *word = moved;
        }
        let mut states = States::initial();
        states.compress(first);
        let mut rest = [broadcast(0); 16];
        rest[0] = _mm512_or_si512(_mm512_slli_epi32::<24>(before), broadcast(0x0080_0000));
        rest[15] = broadcast(8 * 65);
        states.compress(rest);
        states.digests(digests);
        done += LANES;
    }
    done
}
