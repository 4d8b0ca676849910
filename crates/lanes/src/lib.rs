//! Fast hashing for hosts. This crate implements the [`Engine`] of `moteseal-seal` and the
//! [`KeyEngine`] of `moteseal-sum` with the vector instructions of the processor, which compute
//! several hashes at once.
//!
//! It is for programs that verify or serve many events: clouds, clients and gateways. The results
//! are identical to those of [`Scalar`], the engine that motes use.
//!
//! [`Host::detect`] examines the processor once. If the processor has no usable vector
//! instructions, the scalar loops compute everything. The module `x86` contains all `unsafe` code
//! of the product's library crates for hosts. [`merkle`] makes the proofs that a store serves. A
//! [`Recall`] is an engine that caches the levels that it has computed.
//!
//! # Example: hash records with all lanes, and compare with the scalar loop
//!
//! ```
//! use moteseal_core::Digest;
//! use moteseal_lanes::Host;
//! use moteseal_seal::engine::{Engine, Scalar};
//!
//! // The Merkle tree leaves of 100 records of 4 bytes each.
//! let records: Vec<u8> = (0..400_u32).map(|byte| byte as u8).collect();
//! let (mut fast, mut slow) = ([Digest::NULL; 100], [Digest::NULL; 100]);
//! Host::detect().leaves(4, &records, &mut fast);
//! Scalar.leaves(4, &records, &mut slow);
//! assert_eq!(fast, slow);
//! ```

#![deny(unsafe_code)]

mod encryption;
mod groups;
pub mod merkle;
mod recall;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

pub use groups::{copied_length, copy_cells};
pub use recall::Recall;

use moteseal_core::record::{Framing, MAX_LEVELS};
use moteseal_core::schema::GroupLayout;
use moteseal_core::{DeviceId, Digest, SealIndex, Sequence};
use moteseal_seal::engine::{Engine, Scalar};
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::star::Served;
use moteseal_seal::tree::MultiproofError;
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::sies::{KeyLanes, KeyTotals, Slot};

/// An engine with the fastest hashing loops that this processor supports.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    #[cfg(target_arch = "x86_64")]
    x86: x86::Features,
}

impl Host {
    /// Examines the processor and chooses the fastest loops.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            x86: x86::Features::detect(),
        }
    }

    /// Returns every set of loops that this processor can run, so that each can be tested and
    /// measured. The fastest set is first, and the scalar loops are last.
    #[must_use]
    pub fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        return x86::Features::all().into_iter().map(|x86| Self { x86 }).collect();
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self {}]
    }

    /// Counts how often each level occurs in `levels`, in a group of `of` levels.
    pub(crate) fn histogram(&self, levels: &[u8], of: u8) -> Counters {
        #[cfg(target_arch = "x86_64")]
        if let Some(counters) = self.x86.histogram(levels, of) {
            return counters;
        }
        histogram(levels, of)
    }

    /// Returns the name of the loops, for logs and reports, such as "avx512+sha", "avx2" or
    /// "scalar".
    #[must_use]
    pub fn name(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        return self.x86.name();
        #[cfg(not(target_arch = "x86_64"))]
        "scalar"
    }
}

/// Counts how often each level occurs in `levels`. It increments the counters in four tables in
/// turn: half of the levels are 0, and incrementing the same counter again would have to wait for
/// the previous increment.
fn histogram(levels: &[u8], of: u8) -> Counters {
    let mut counts = [[0_u32; MAX_LEVELS]; 4];
    let (quads, rest) = levels.as_chunks::<4>();
    for quad in quads {
        for (counts, level) in counts.iter_mut().zip(quad) {
            counts[usize::from(*level) % MAX_LEVELS] += 1;
        }
    }
    for level in rest {
        counts[0][usize::from(*level) % MAX_LEVELS] += 1;
    }
    let mut counters = Counters::new(of);
    for (level, count) in counters.as_mut_slice().iter_mut().enumerate() {
        *count = counts.iter().map(|counts| counts[level]).sum();
    }
    counters
}

impl Default for Host {
    fn default() -> Self {
        Self::detect()
    }
}

#[cfg(target_arch = "x86_64")]
impl Engine for Host {
    fn levels(&self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) {
        let done = self.x86.levels(salt, levels, first, out);
        Scalar.levels(salt, levels, first + done as u64, &mut out[done..]);
    }

    fn counters(&self, salt: &Salt, levels: u8, n: u32) -> Counters {
        self.x86.counters(salt, levels, n).unwrap_or_else(|| Scalar.counters(salt, levels, n))
    }

    fn block_digests(
        &self,
        device: DeviceId,
        index: SealIndex,
        blocks: &[&[u8]],
        out: &mut [Digest],
    ) {
        if !self.x86.block_digests(device, index, blocks, out) {
            Scalar.block_digests(device, index, blocks, out);
        }
    }

    fn star_roots<'s, 'a: 's>(&self, stars: &mut dyn Iterator<Item = &'s mut Served<'a>>) {
        let mut stars: Vec<_> = stars.collect();
        let done = self.x86.star_roots(&mut stars);
        for star in stars.into_iter().skip(done) {
            self.block_digests(star.device, star.index, &star.blocks, &mut star.digests);
            star.root = star.link_all();
        }
    }

    fn grouped_digests(
        &self,
        layout: &GroupLayout,
        framing: Framing,
        hidden: &[u8],
        star: &mut Served<'_>,
    ) {
        if !self.x86.grouped_digests(layout, framing, hidden, star) {
            Scalar.grouped_digests(layout, framing, hidden, star);
        }
    }

    fn leaves(&self, size: usize, records: &[u8], out: &mut [Digest]) {
        let done = self.x86.leaves(size, records, out);
        Scalar.leaves(size, &records[done * size..], &mut out[done..]);
    }

    fn multiproof_root(
        &self,
        n: u64,
        framing: Framing,
        records: &[u8],
        selected: &mut dyn Iterator<Item = Sequence>,
        siblings: &[u8],
    ) -> Result<Digest, MultiproofError> {
        merkle::multiproof_root(self, n, framing, records, selected, siblings)
    }

    fn nodes(&self, children: &[Digest], out: &mut [Digest]) {
        let done = self.x86.nodes(children, out);
        Scalar.nodes(&children[2 * done..], &mut out[done..]);
    }
}

#[cfg(target_arch = "x86_64")]
impl KeyEngine for Host {
    fn sum_keys(
        &self,
        lanes: &[KeyLanes],
        present: &[u16],
        slot: Slot,
        epoch: u64,
        totals: &mut KeyTotals,
    ) {
        if !self.x86.sum_keys(lanes, present, slot, epoch, totals) {
            moteseal_sum::engine::Scalar.sum_keys(lanes, present, slot, epoch, totals);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Engine for Host {}

#[cfg(not(target_arch = "x86_64"))]
impl KeyEngine for Host {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_set_of_loops_counts_each_level_correctly(
            of in 1..=32_u8,
            levels in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let levels: Vec<u8> = levels.into_iter().map(|level| level % of).collect();
            for host in Host::all() {
                let counters = host.histogram(&levels, of);
                for (level, &count) in (0..of).zip(counters.as_slice()) {
                    let expected = levels.iter().filter(|found| **found == level).count();
                    prop_assert_eq!(count as usize, expected, "{}", host.name());
                }
            }
        }
    }
}
