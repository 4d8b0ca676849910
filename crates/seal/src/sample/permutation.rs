//! The seeded permutation that determines which events of an epoch
//! [`Choice::Sample`](crate::sample::Choice::Sample) selects (spec/answers.md, section 4).
//!
//! It is a sparse Fisher-Yates shuffle. It stores only the positions that it has moved, in memory
//! that the caller provides.

use core::fmt;

use chacha20::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber};

/// One stored swap: a position, and the value that is now there. It is the element of the scratch
/// memory of [`choose`].
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    position: u64,
    value: u64,
}

impl Swap {
    /// A free element. Scratch memory can be initialised with it.
    pub const FREE: Self = Self { position: u64::MAX, value: 0 };
}

/// Returns the recommended number of [`Swap`]s of scratch memory for a sample of `m` events. The
/// minimum is `m + 1`, but the shuffle is faster with more.
#[must_use]
pub const fn scratch_for(m: usize) -> usize {
    2 * m + 1
}

/// The scratch memory has too few [`Swap`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScratchTooSmall;

impl fmt::Display for ScratchTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scratch memory is too small; provide two swaps for each chosen event")
    }
}

impl core::error::Error for ScratchTooSmall {}

/// Chooses `min(chosen.len(), total)` different positions of `0 .. total` uniformly, writes them to
/// the start of `chosen` in the order in which they were chosen, and returns that slice. The caller
/// must sort the positions, because events are served in ascending order.
///
/// The generator is ChaCha12 with the key `H("moteseal/1/perm" || seed || device || epoch (8 bytes,
/// big-endian))`, nonce 0 and a 64-bit block counter from 0; its key stream is read as 64-bit
/// little-endian words. Step `i` takes the first word `w` below the largest multiple of `total - i`
/// up to 2^64, and swaps positions `i` and `i + w mod (total - i)`.
///
/// # Errors
/// [`ScratchTooSmall`] if `scratch` does not have at least one element more than the number of
/// chosen positions; see [`scratch_for`].
pub fn choose<'c>(
    seed: &[u8; 32],
    device: DeviceId,
    epoch: EpochNumber,
    total: u64,
    chosen: &'c mut [u64],
    scratch: &mut [Swap],
) -> Result<&'c mut [u64], ScratchTooSmall> {
    let count = usize::try_from(total).map_or(chosen.len(), |total| total.min(chosen.len()));
    if scratch.len() <= count {
        return Err(ScratchTooSmall);
    }
    let mut words = words(seed, device, epoch);
    let mut moved = Moved::new(scratch);
    for (i, slot) in (0..total).zip(&mut chosen[..count]) {
        let j = i + draw(total - i, || words.next_u64());
        // Swap the values at i and j. Position i is never read again, so only the new value at j is
        // stored.
        let here = moved.at(i);
        *slot = if j == i { here } else { moved.replace(j, here) };
    }
    Ok(&mut chosen[..count])
}

/// Returns the random number generator for one epoch of one device.
fn words(seed: &[u8; 32], device: DeviceId, epoch: EpochNumber) -> ChaCha12Rng {
    ChaCha12Rng::from_seed(
        Digest::of(&[b"moteseal/1/perm", seed, &device.0, &epoch.0.to_be_bytes()]).0,
    )
}

/// Returns a uniform number below `span` (at least 1). Skips words at or above the largest multiple
/// of `span` up to 2^64, because they would introduce a bias.
fn draw(span: u64, mut word: impl FnMut() -> u64) -> u64 {
    // 2^64 mod span.
    let excess = (u64::MAX % span + 1) % span;
    loop {
        let w = word();
        if w <= u64::MAX - excess {
            return w % span;
        }
    }
}

/// The positions whose values have been moved, with their values: a hash table with linear probing
/// that is never full.
struct Moved<'s>(&'s mut [Swap]);

impl<'s> Moved<'s> {
    fn new(scratch: &'s mut [Swap]) -> Self {
        scratch.fill(Swap::FREE);
        Self(scratch)
    }

    /// Returns the slot of a position, or the free slot in which the position must be stored.
    fn slot(&mut self, position: u64) -> &mut Swap {
        // The high half of the product differs widely for neighbouring positions. Scaling it to the
        // size of the table needs no division.
        let hash = position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        #[allow(clippy::cast_possible_truncation)]
        let mut at = ((hash * self.0.len() as u64) >> 32) as usize;
        while self.0[at].position != position && self.0[at].position != Swap::FREE.position {
            at = if at + 1 == self.0.len() { 0 } else { at + 1 };
        }
        &mut self.0[at]
    }

    fn at(&mut self, position: u64) -> u64 {
        let slot = self.slot(position);
        if slot.position == position { slot.value } else { position }
    }

    /// Stores `value` at a position and returns the previous value.
    fn replace(&mut self, position: u64, value: u64) -> u64 {
        let slot = self.slot(position);
        let before = if slot.position == position { slot.value } else { position };
        *slot = Swap { position, value };
        before
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const DEVICE: DeviceId = DeviceId(*b"device 1");

    fn sparse(seed: &[u8; 32], total: u64, m: usize, scratch: usize) -> Vec<u64> {
        let mut chosen = vec![0; m];
        choose(seed, DEVICE, EpochNumber(7), total, &mut chosen, &mut vec![Swap::FREE; scratch])
            .unwrap()
            .to_vec()
    }

    /// Shuffles all positions, as the specification describes.
    fn dense(seed: &[u8; 32], total: u64, m: usize) -> Vec<u64> {
        let mut stream = ChaCha12Rng::from_seed(
            Digest::of(&[b"moteseal/1/perm", seed, b"device 1", &7_u64.to_be_bytes()]).0,
        );
        let mut positions: Vec<u64> = (0..total).collect();
        for i in 0..m.min(positions.len()) {
            let span = u128::from(total) - i as u128;
            let limit = (1_u128 << 64) - (1_u128 << 64) % span;
            let word = loop {
                let mut bytes = [0; 8];
                stream.fill_bytes(&mut bytes);
                let word = u128::from(u64::from_le_bytes(bytes));
                if word < limit {
                    break word;
                }
            };
            positions.swap(i, i + usize::try_from(word % span).unwrap());
        }
        positions.truncate(m);
        positions
    }

    proptest! {
        #[test]
        fn the_sparse_shuffle_equals_the_dense_one(seed: [u8; 32], total in 0_u64..400, m in 0_usize..420, spare in 0_usize..40) {
            let scratch = m.min(usize::try_from(total).unwrap()) + 1 + spare;
            prop_assert_eq!(sparse(&seed, total, m, scratch), dense(&seed, total, m));
        }

        #[test]
        fn chooses_no_position_twice(seed: [u8; 32], total in 1_u64.., m in 0_usize..300) {
            let mut chosen = sparse(&seed, total, m, scratch_for(m));
            prop_assert!(chosen.iter().all(|&position| position < total));
            let count = chosen.len();
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), count);
        }
    }

    #[test]
    fn a_smaller_sample_is_a_prefix_of_a_larger_one() {
        let all = sparse(&[3; 32], 1000, 1000, scratch_for(1000));
        assert_eq!(sparse(&[3; 32], 1000, 10, scratch_for(10)), all[..10]);
    }

    #[test]
    fn different_devices_epochs_and_seeds_choose_differently() {
        let draw = |seed: u8, device, epoch| {
            let mut chosen = [0; 8];
            choose(
                &[seed; 32],
                DeviceId([device; 8]),
                EpochNumber(epoch),
                1 << 40,
                &mut chosen,
                &mut [Swap::FREE; 17],
            )
            .unwrap();
            chosen
        };
        let base = draw(0, 0, 0);
        assert!(draw(1, 0, 0) != base && draw(0, 1, 0) != base && draw(0, 0, 1) != base);
    }

    #[test]
    fn rejects_too_little_scratch() {
        let scratch = &mut [Swap::FREE; 4];
        assert_eq!(
            choose(&[0; 32], DEVICE, EpochNumber(0), 100, &mut [0; 4], scratch),
            Err(ScratchTooSmall)
        );
        assert!(choose(&[0; 32], DEVICE, EpochNumber(0), 3, &mut [0; 4], scratch).is_ok());
    }

    #[test]
    fn skips_words_that_would_introduce_a_bias() {
        // 2^64 mod 3 is 1, so only the largest word is rejected.
        let mut script = [u64::MAX, u64::MAX - 1].into_iter();
        assert_eq!(draw(3, || script.next().unwrap()), (u64::MAX - 1) % 3);
        // 2^64 mod (2^63 + 1) is 2^63 - 1, so all words from 2^63 + 1 on are rejected.
        let mut script = [(1 << 63) + 1, u64::MAX, 1 << 63].into_iter();
        assert_eq!(draw((1 << 63) + 1, || script.next().unwrap()), 1 << 63);
        // A power of two divides 2^64, so no word is rejected.
        assert_eq!(draw(8, || u64::MAX), 7);
    }

    /// Test vector TC1 of draft-strombergson-chacha-test-vectors: 12 rounds, and a 256-bit key and
    /// a nonce of zeros.
    #[test]
    fn the_generator_is_chacha12_from_block_0() {
        let mut stream = ChaCha12Rng::from_seed([0; 32]);
        assert_eq!(
            stream.next_u64().to_le_bytes(),
            [0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53]
        );
        assert_eq!(
            stream.next_u64().to_le_bytes(),
            [0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5]
        );
    }

    /// Over 2,000 seeds, every draw hits each of 20 positions equally often: chi-square with 19
    /// degrees of freedom is below its 99.9 % quantile. The same is tested for the sum of all five
    /// draws. The five draws never hit a position twice. This multiplies the variance by
    /// `(N - m) / (N - 1)`, so this statistic is divided by that factor.
    #[test]
    fn positions_are_uniform_over_2000_seeds() {
        const POSITIONS: usize = 20;
        const DRAWS: usize = 5;
        const QUANTILE: f64 = 43.82;
        let mut hits = [[0_u32; POSITIONS]; DRAWS];
        for i in 0..2000_u32 {
            let seed = Digest::of(&[b"uniform", &i.to_be_bytes()]).0;
            for (draw, position) in
                sparse(&seed, POSITIONS as u64, DRAWS, scratch_for(DRAWS)).into_iter().enumerate()
            {
                hits[draw][usize::try_from(position).unwrap()] += 1;
            }
        }
        let chi_square = |counts: &[u32]| {
            let expected = f64::from(counts.iter().sum::<u32>()) / POSITIONS as f64;
            counts
                .iter()
                .map(|&count| (f64::from(count) - expected).powi(2) / expected)
                .sum::<f64>()
        };
        for counts in &hits {
            let statistic = chi_square(counts);
            assert!(statistic < QUANTILE, "{statistic}");
        }
        let together: Vec<u32> = (0..POSITIONS)
            .map(|position| hits.iter().map(|counts| counts[position]).sum())
            .collect();
        let statistic = chi_square(&together) * (POSITIONS - 1) as f64 / (POSITIONS - DRAWS) as f64;
        assert!(statistic < QUANTILE, "{statistic}");
    }
}
