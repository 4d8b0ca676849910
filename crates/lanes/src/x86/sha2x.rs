//! SHA-256 with the SHA extensions, two messages at a time. A single message would use only half of
//! the processor's throughput, because each round has to wait for the previous round.

use core::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi64x,
    _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8,
    _mm_shuffle_epi32, _mm_storeu_si128,
};
use core::slice;

use moteseal_core::Digest;
use moteseal_core::digest::{INITIAL, compress256, state_bytes};

use super::{K, leaf_block, leaf_blocks};

/// The number of messages that are hashed at the same time.
const LANES: usize = 2;

#[inline]
#[target_feature(enable = "sse2")]
fn load_words(words: &[u32; 4]) -> __m128i {
    // SAFETY: the array has the size of the vector.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn load_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the size of the vector.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn store_words(vector: __m128i) -> [u32; 4] {
    let mut words = [0; 4];
    // SAFETY: the array has the size of the vector.
    unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), vector) };
    words
}

/// A state in the layout that the instructions need: words a, b, e, f and words c, d, g, h.
#[derive(Clone, Copy)]
struct State {
    abef: __m128i,
    cdgh: __m128i,
}

impl State {
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn load(words: &[u32; 8]) -> Self {
        let (halves, _) = words.as_chunks::<4>();
        let cdab = _mm_shuffle_epi32::<0xb1>(load_words(&halves[0]));
        let efgh = _mm_shuffle_epi32::<0x1b>(load_words(&halves[1]));
        Self { abef: _mm_alignr_epi8::<8>(cdab, efgh), cdgh: _mm_blend_epi16::<0xf0>(efgh, cdab) }
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn words(self) -> [u32; 8] {
        let feba = _mm_shuffle_epi32::<0x1b>(self.abef);
        let dchg = _mm_shuffle_epi32::<0xb1>(self.cdgh);
        let low = store_words(_mm_blend_epi16::<0xf0>(feba, dchg));
        let high = store_words(_mm_alignr_epi8::<8>(dchg, feba));
        [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn digest(self) -> Digest {
        Digest(state_bytes(&self.words()))
    }
}

/// Compresses one block into each state.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress(states: &mut [State; LANES], blocks: [&[u8; 64]; LANES]) {
    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let saved = *states;
    let mut w = [[big_endian; 4]; LANES];
    for (w, block) in w.iter_mut().zip(blocks) {
        for (w, quarter) in w.iter_mut().zip(block.as_chunks::<16>().0) {
            *w = _mm_shuffle_epi8(load_bytes(quarter), big_endian);
        }
    }
    let (constants, _) = K.as_chunks::<4>();
    macro_rules! rounds {
        ($($r:literal)*) => { $({
            let constant = load_words(&constants[$r]);
            for lane in 0..LANES {
                let (state, w) = (&mut states[lane], &mut w[lane]);
                if $r >= 4 {
                    let sum = _mm_sha256msg1_epu32(w[$r % 4], w[($r + 1) % 4]);
                    let sum = _mm_add_epi32(sum, _mm_alignr_epi8::<4>(w[($r + 3) % 4], w[($r + 2) % 4]));
                    w[$r % 4] = _mm_sha256msg2_epu32(sum, w[($r + 3) % 4]);
                }
                let t = _mm_add_epi32(w[$r % 4], constant);
                state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, t);
                state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, _mm_shuffle_epi32::<0x0e>(t));
            }
        })* };
    }
    rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    for (state, saved) in states.iter_mut().zip(saved) {
        state.abef = _mm_add_epi32(state.abef, saved.abef);
        state.cdgh = _mm_add_epi32(state.cdgh, saved.cdgh);
    }
}

/// A message that consists of a 64-byte header and a body, and the destination of its digest.
pub(super) struct Message<'a> {
    header: &'a [u8; 64],
    body: &'a [[u8; 64]],
    /// The end of the body with the padding: one or two blocks, and their number.
    tail: ([[u8; 64]; 2], usize),
    digest: &'a mut Digest,
}

impl<'a> Message<'a> {
    pub(super) fn new(header: &'a [u8; 64], body: &'a [u8], digest: &'a mut Digest) -> Self {
        let (blocks, rest) = body.as_chunks::<64>();
        let mut tail = [[0; 64]; 2];
        tail[0][..rest.len()].copy_from_slice(rest);
        tail[0][rest.len()] = 0x80;
        let tails = if rest.len() < 56 { 1 } else { 2 };
        tail[tails - 1][56..].copy_from_slice(&(8 * (64 + body.len() as u64)).to_be_bytes());
        Self { header, body: blocks, tail: (tail, tails), digest }
    }

    pub(super) fn body_length(&self) -> usize {
        self.body.len()
    }

    /// Returns the blocks from block `at` on, up to the end of the slice that contains block `at`:
    /// the header, the whole blocks of the body, or the tail.
    fn run(&self, at: usize) -> &[[u8; 64]] {
        let (tail, tails) = &self.tail;
        match at.checked_sub(1) {
            None => slice::from_ref(self.header),
            Some(at) if at < self.body.len() => &self.body[at..],
            Some(at) => &tail[at - self.body.len()..*tails],
        }
    }
}

/// A message that a lane is hashing: its state, and the number of blocks hashed so far.
struct Running<'a> {
    message: Message<'a>,
    state: State,
    at: usize,
}

/// Hashes all messages. A lane that has finished a message continues with the next one.
#[target_feature(enable = "sha,sse4.1,ssse3")]
pub(super) fn messages<'a>(messages: impl IntoIterator<Item = Message<'a>>) {
    let initial = State::load(&INITIAL);
    let mut queue = messages.into_iter().map(|message| Running { message, state: initial, at: 0 });
    let (mut left, mut right) = (queue.next(), queue.next());
    while let (Some(a), Some(b)) = (&mut left, &mut right) {
        let (run_a, run_b) = (a.message.run(a.at), b.message.run(b.at));
        let mut states = [a.state, b.state];
        for (block_a, block_b) in run_a.iter().zip(run_b) {
            compress(&mut states, [block_a, block_b]);
        }
        let done = run_a.len().min(run_b.len());
        [a.state, b.state] = states;
        a.at += done;
        b.at += done;
        if a.finish() {
            left = queue.next();
        }
        if b.finish() {
            right = queue.next();
        }
    }
    // The last message is hashed alone.
    if let Some(mut last) = left.or(right) {
        let mut words = last.state.words();
        while !last.is_done() {
            let run = last.message.run(last.at);
            compress256(&mut words, run);
            last.at += run.len();
        }
        *last.message.digest = Digest(state_bytes(&words));
    }
}

impl Running<'_> {
    fn is_done(&self) -> bool {
        self.at == 1 + self.message.body.len() + self.message.tail.1
    }

    /// Writes the digest if the whole message has been hashed. Returns whether it has.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn finish(&mut self) -> bool {
        let done = self.is_done();
        if done {
            *self.message.digest = self.state.digest();
        }
        done
    }
}

/// Hashes leaves in pairs. Returns the number of leaves hashed.
#[target_feature(enable = "sha,sse4.1,ssse3")]
pub(super) fn leaves(size: usize, records: &[u8], out: &mut [Digest]) -> usize {
    let initial = State::load(&INITIAL);
    let mut done = 0;
    let (pairs, _) = out.as_chunks_mut::<LANES>();
    for (records, pair) in records.chunks_exact(LANES * size).zip(pairs) {
        let (left, right) = records.split_at(size);
        let mut states = [initial; LANES];
        for block in 0..leaf_blocks(size) {
            compress(&mut states, [&leaf_block(left, block), &leaf_block(right, block)]);
        }
        for (digest, state) in pair.iter_mut().zip(states) {
            *digest = state.digest();
        }
        done += LANES;
    }
    done
}

/// Hashes nodes in pairs. Returns the number of nodes hashed.
#[target_feature(enable = "sha,sse4.1,ssse3")]
pub(super) fn nodes(children: &[Digest], out: &mut [Digest]) -> usize {
    let initial = State::load(&INITIAL);
    let mut done = 0;
    let (fours, _) = children.as_chunks::<{ 2 * LANES }>();
    let (pairs, _) = out.as_chunks_mut::<LANES>();
    for (four, pair) in fours.iter().zip(pairs) {
        let blocks = [node_blocks(&four[0], &four[1]), node_blocks(&four[2], &four[3])];
        let mut states = [initial; LANES];
        compress(&mut states, [&blocks[0][0], &blocks[1][0]]);
        compress(&mut states, [&blocks[0][1], &blocks[1][1]]);
        for (digest, state) in pair.iter_mut().zip(states) {
            *digest = state.digest();
        }
        done += LANES;
    }
    done
}

/// Returns the blocks of the padded message `0x01 || left || right`.
#[inline]
fn node_blocks(left: &Digest, right: &Digest) -> [[u8; 64]; 2] {
    let mut blocks = [[0; 64]; 2];
    blocks[0][0] = 1;
    blocks[0][1..33].copy_from_slice(&left.0);
    blocks[0][33..].copy_from_slice(&right.0[..31]);
    blocks[1][0] = right.0[31];
    blocks[1][1] = 0x80;
    blocks[1][62..].copy_from_slice(&(8 * 65_u16).to_be_bytes());
    blocks
}
