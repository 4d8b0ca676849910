//! The loops for x86-64. This module contains the only `unsafe` code of the product's library
//! crates for hosts.
//!
//! There are two kinds of unsafe code: calls of functions that need a CPU feature, each after a
//! check of the corresponding field of [`Features`]; and loads and stores of vectors, from and to
//! arrays of exactly the vector's size.
//!
//! The code iterates over arrays of vectors with `for` instead of `map`. `map` is compiled without
//! the CPU features, so the closure would not be inlined into it, and the vectors would be passed
//! through memory.

mod chacha16;
mod chacha8;
mod chacha_blocks;
mod sha16;
mod sha2x;
mod sip4;
mod sip8;

use moteseal_core::record::{Framing, MAX_LEVELS, Sequence};
use moteseal_core::schema::{GroupLayout, RecordError};
use moteseal_core::{DeviceId, Digest, Level, SealIndex};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::star::{self, Served};
use moteseal_sum::sies::{KeyLanes, KeyTotals, Slot};
use sha2x::Message;

use crate::encryption::{self, Cells};
use crate::groups::copy_cells;

/// The minimum number of messages of similar length for which sixteen lanes are faster than two.
/// Each of the sixteen lanes is much slower than each of the two.
const WORTH_IT: usize = 11;

/// Which of the CPU features that the loops use are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// AVX-512 F, BW, CD, DQ and VL.
    avx512: bool,
    /// AVX2 and LZCNT.
    avx2: bool,
    /// The SHA extensions, SSE 4.1 and SSSE3.
    sha: bool,
}

impl Features {
    pub(crate) fn detect() -> Self {
        Self {
            avx512: is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"),
            avx2: is_x86_feature_detected!("avx2") && is_x86_feature_detected!("lzcnt"),
            sha: is_x86_feature_detected!("sha")
                && is_x86_feature_detected!("sse4.1")
                && is_x86_feature_detected!("ssse3"),
        }
    }

    /// Returns the available features, followed by smaller and smaller subsets, down to no
    /// features.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::detect()];
        let mut less = all[0];
        for feature in [
            |f: &mut Self| f.avx512 = false,
            |f: &mut Self| f.avx2 = false,
            |f: &mut Self| f.sha = false,
        ] {
            feature(&mut less);
            all.push(less);
        }
        all.dedup();
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match (self.avx512, self.avx2, self.sha) {
            (true, _, true) => "avx512+sha",
            (true, _, false) => "avx512",
            (false, true, true) => "avx2+sha",
            (false, true, false) => "avx2",
            (false, false, true) => "sha",
            (false, false, false) => "scalar",
        }
    }

    /// Writes levels to the start of `out` and returns how many were written.
    pub(crate) fn levels(self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) -> usize {
        let key = LevelKey::new(salt);
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { sip8::levels(key.state(), levels, first, out) };
            out.len()
        } else if self.avx2 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { sip4::levels(key.state(), levels, first, out) }
        } else {
            0
        }
    }

    /// Counts how often each level occurs in `levels`. Returns `None` if this processor supports
    /// only the scalar loop for this.
    pub(crate) fn histogram(self, levels: &[u8], of: u8) -> Option<Counters> {
        self.avx512.then(|| {
            let mut counters = Counters::new(of);
            // SAFETY: the processor has the features that the function needs.
            unsafe { sip8::histogram(levels, counters.as_mut_slice()) };
            counters
        })
    }

    /// Counts the events `0 .. n` of each level. Returns `None` if this processor supports only the
    /// scalar loop for this.
    pub(crate) fn counters(self, salt: &Salt, levels: u8, n: u32) -> Option<Counters> {
        let key = LevelKey::new(salt);
        let mut counters = Counters::new(levels);
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { sip8::count(key, levels, n, counters.as_mut_slice()) };
        } else if self.avx2 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { sip4::count(key, levels, n, counters.as_mut_slice()) };
        } else {
            return None;
        }
        Some(counters)
    }

    /// Hashes the blocks of a star. Returns `false` if this processor supports only the scalar loop
    /// for this.
    pub(crate) fn block_digests(
        self,
        device: DeviceId,
        index: SealIndex,
        blocks: &[&[u8]],
        out: &mut [Digest],
    ) -> bool {
        if !self.sha {
            return false;
        }
        let headers: Vec<_> = (0..=u8::MAX)
            .zip(blocks)
            .map(|(level, _)| star::header(device, index, Level(level)))
            .collect();
        let messages =
            headers.iter().zip(blocks).zip(out).filter_map(|((header, block), digest)| {
                // The digest of an empty block is null.
                *digest = Digest::NULL;
                (!block.is_empty()).then(|| Message::new(header, block, digest))
            });
        let mut messages: Vec<_> = messages.collect();
        // Hash the longest blocks first, so that at the end short blocks keep both lanes busy.
        messages.sort_unstable_by_key(|message| core::cmp::Reverse(message.body_length()));
        // SAFETY: the processor has the features that the function needs.
        unsafe { sha2x::messages(messages) };
        true
    }

    /// Computes the digests and roots of stars, sixteen stars at a time, from the first star on.
    /// Returns the number of stars computed.
    pub(crate) fn star_roots(self, stars: &mut [&mut Served<'_>]) -> usize {
        if !self.avx512 || !self.sha {
            return 0;
        }
        let mut done = 0;
        for stars in stars.chunks_mut(sha16::LANES).take_while(|stars| stars.len() >= WORTH_IT) {
            self.block_digests_of(stars);
            let chains: Vec<_> = stars.iter().map(|star| sha16::Chain::new(star)).collect();
            let mut roots = [Digest::NULL; sha16::LANES];
            // SAFETY: the processor has the features that the function needs.
            unsafe { sha16::chains(&chains, &mut roots) };
            for (star, root) in stars.iter_mut().zip(roots) {
                star.root = root;
            }
            done += stars.len();
        }
        done
    }

    /// Hashes the blocks of up to sixteen stars. The blocks of one level have similar lengths, so
    /// they are hashed at the same time.
    fn block_digests_of(self, stars: &mut [&mut Served<'_>]) {
        let mut lanes = [(0, 0); sha16::LANES];
        let mut taken = 0;
        for level in 0..MAX_LEVELS {
            for star in 0..stars.len() {
                stars[star].digests[level] = Digest::NULL;
                if stars[star].blocks[level].is_empty() {
                    continue;
                }
                lanes[taken] = (star, level);
                taken += 1;
                if taken == lanes.len() {
                    self.sixteen_blocks(stars, &lanes);
                    taken = 0;
                }
            }
        }
        self.sixteen_blocks(stars, &lanes[..taken]);
    }

    /// Hashes up to sixteen blocks. Each element of `lanes` identifies a block by the index of its
    /// star and its level.
    fn sixteen_blocks(self, stars: &mut [&mut Served<'_>], lanes: &[(usize, usize)]) {
        let header = |&(star, level): &(usize, usize)| {
            let level = Level(u8::try_from(level).unwrap_or(u8::MAX));
            star::header(stars[star].device, stars[star].index, level)
        };
        let mut digests = [Digest::NULL; sha16::LANES];
        let blocks_of =
            |&(star, level): &(usize, usize)| sha16::Message::blocks_of(stars[star].blocks[level]);
        let longest = lanes.iter().map(blocks_of).max().unwrap_or(0);
        let all: usize = lanes.iter().map(blocks_of).sum();
        if !lanes.is_empty() && all >= longest * WORTH_IT {
            let mut messages = [const { sha16::Message::none() }; sha16::LANES];
            for (message, lane) in messages.iter_mut().zip(lanes) {
                message.set(&header(lane), stars[lane.0].blocks[lane.1]);
            }
            // SAFETY: the processor has the features that the function needs.
            unsafe { sha16::messages(&messages, &mut digests) };
        } else {
            // There are too few blocks for sixteen lanes, or one block is so long that most lanes
            // would be idle.
            let headers: Vec<_> = lanes.iter().map(header).collect();
            let blocks = lanes.iter().map(|&(star, level)| stars[star].blocks[level]);
            let messages = headers.iter().zip(blocks).zip(&mut digests);
            let messages: Vec<_> = messages
                .map(|((header, block), digest)| Message::new(header, block, digest))
                .collect();
            // SAFETY: the processor has the features that the function needs.
            unsafe { sha2x::messages(messages) };
        }
        for (&(star, level), digest) in lanes.iter().zip(digests) {
            stars[star].digests[level] = digest;
        }
    }

    /// Hashes the blocks of a star with column groups. Returns `false` if this processor supports
    /// only the scalar loop for this.
    pub(crate) fn grouped_digests(
        self,
        layout: &GroupLayout,
        framing: Framing,
        hidden: &[u8],
        star: &mut Served<'_>,
    ) -> bool {
        if !self.sha {
            return false;
        }
        // The cells of each group in each block, after the second half of their header.
        let (mut cells, mut headers, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for (level, block) in (0..).map(Level).zip(star.blocks) {
            if star.mask.checked_shr(level.0.into()).unwrap_or(0) & 1 == 0 {
                continue;
            }
            for group in layout.shown().iter() {
                let [first, second] = star::group_header(star.device, star.index, level, group);
                let start = cells.len();
                cells.extend_from_slice(&second);
                copy_cells(&mut cells, layout.cells(group), framing, block);
                headers.push(first);
                ranges.push(start..cells.len());
            }
        }
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by_key(|&at| core::cmp::Reverse(ranges[at].len()));
        let mut digests = vec![Digest::NULL; ranges.len()];
        for lanes in order.chunks(sha16::LANES) {
            let bodies: Vec<&[u8]> = lanes.iter().map(|&at| &cells[ranges[at].clone()]).collect();
            let mut found = [Digest::NULL; sha16::LANES];
            let longest = sha16::Message::blocks_of(bodies[0]);
            let all: usize = bodies.iter().map(|body| sha16::Message::blocks_of(body)).sum();
            if self.avx512 && all >= longest * WORTH_IT {
                let mut messages = [const { sha16::Message::none() }; sha16::LANES];
                for ((message, at), body) in messages.iter_mut().zip(lanes).zip(&bodies) {
                    message.set(&headers[*at], body);
                }
                // SAFETY: the processor has the features that the function needs.
                unsafe { sha16::messages(&messages, &mut found) };
            } else {
                let messages = lanes.iter().zip(&bodies).zip(&mut found);
                let messages: Vec<_> = messages
                    .map(|((&at, body), digest)| Message::new(&headers[at], body, digest))
                    .collect();
                // SAFETY: the processor has the features that the function needs.
                unsafe { sha2x::messages(messages) };
            }
            for (at, digest) in lanes.iter().zip(found) {
                digests[*at] = digest;
            }
        }
        let mut digests = digests.chunks_exact(layout.shown().len().max(1));
        star::join_groups(layout, hidden, star, |_, _, shown| {
            if let Some(digests) = digests.next() {
                shown[..digests.len()].copy_from_slice(digests);
            }
        });
        true
    }

    /// Hashes records, from the first one on, and returns the number of records hashed.
    pub(crate) fn leaves(self, size: usize, records: &[u8], out: &mut [Digest]) -> usize {
        let mut done = 0;
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            done = unsafe { sha16::leaves(size, records, out) };
        }
        if self.sha {
            // SAFETY: the processor has the features that the function needs.
            done += unsafe { sha2x::leaves(size, &records[done * size..], &mut out[done..]) };
        }
        done
    }

    /// Adds the key blocks of the sources that are present to `totals`. Returns `false` if this
    /// processor supports only the scalar loop for this.
    pub(crate) fn sum_keys(
        self,
        lanes: &[KeyLanes],
        present: &[u16],
        slot: Slot,
        epoch: u64,
        totals: &mut KeyTotals,
    ) -> bool {
        #[allow(clippy::cast_possible_truncation)]
        let tail = [u32::from(slot.0), 0, epoch as u32, (epoch >> 32) as u32];
        let words = if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha16::sums(lanes, present, tail) }
        } else if self.avx2 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha8::sums(lanes, present, tail) }
        } else {
            return false;
        };
        totals.add_words(
            &words,
            present.iter().take(lanes.len()).map(|present| present.count_ones()).sum(),
        );
        true
    }

    /// Writes up to sixteen ChaCha20 blocks under one key, from block `first` on. The blocks of `out`
    /// after them are unspecified. Returns `false` if this processor supports only the scalar loop for
    /// this.
    pub(crate) fn key_stream(
        self,
        key: &[u8; 32],
        first: u64,
        blocks: usize,
        out: &mut [u8; 1024],
    ) -> bool {
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha_blocks::blocks_avx512(key, first, out) };
        } else if self.avx2 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha_blocks::blocks_avx2(key, first, blocks, out) };
        } else {
            return false;
        }
        true
    }

    /// Adds key stream to the cells of records ([`encryption::add_cells`]).
    pub(crate) fn add_cells<const WIDTH: usize>(
        self,
        keys: &[[u8; WIDTH]],
        sequences: &[Sequence],
        cells: Cells<'_>,
    ) -> Result<usize, RecordError> {
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha_blocks::add_cells_avx512(keys, sequences, cells) }
        } else if self.avx2 {
            // SAFETY: the processor has the features that the function needs.
            unsafe { chacha_blocks::add_cells_avx2(keys, sequences, cells) }
        } else {
            encryption::add_cells(keys, sequences, cells)
        }
    }

    /// Hashes pairs of children, from the first pair on, and returns the number of pairs hashed.
    pub(crate) fn nodes(self, children: &[Digest], out: &mut [Digest]) -> usize {
        let mut done = 0;
        if self.avx512 {
            // SAFETY: the processor has the features that the function needs.
            done = unsafe { sha16::nodes(children, out) };
        }
        if self.sha {
            // SAFETY: the processor has the features that the function needs.
            done += unsafe { sha2x::nodes(&children[2 * done..], &mut out[done..]) };
        }
        done
    }
}

/// ChaCha20's constants (RFC 8439, section 2.3): "expand 32-byte k".
const CHACHA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// SHA-256's round constants (FIPS 180-4, section 4.2.2).
const K: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// Returns the number of SHA-256 blocks of a leaf with a record of `size` bytes, including the
/// padding.
const fn leaf_blocks(size: usize) -> usize {
    (1 + size + 9).div_ceil(64)
}

/// Returns block `index` of the padded message `0x00 || record`.
#[inline]
fn leaf_block(record: &[u8], index: usize) -> [u8; 64] {
    let mut block = [0; 64];
    // The message has one byte, the prefix, before the record.
    let start = 64 * index;
    let from = start.saturating_sub(1);
    if from < record.len() {
        let part = &record[from..record.len().min(start + 63)];
        let at = usize::from(index == 0);
        block[at..at + part.len()].copy_from_slice(part);
    }
    let end = record.len() + 1;
    if (start..start + 64).contains(&end) {
        block[end - start] = 0x80;
    }
    if index + 1 == leaf_blocks(record.len()) {
        block[56..].copy_from_slice(&(8 * end as u64).to_be_bytes());
    }
    block
}
