//! The level of an event: a salted, uniform hash of its sequence number.
//!
//! The paper (section IV.C) hashes the content of the event instead. With such a hash, equal
//! readings would have the same level, and an attacker who influences the sensor could move events
//! into or out of a sample. The salt stays secret until the signed seal publishes it
//! (docs/design.md, section on sealing).

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use zeroize::{Zeroize, ZeroizeOnDrop};

use moteseal_core::record::{DeviceId, Level, MAX_LEVELS, SealIndex, Sequence};
use moteseal_core::siphash::SipKey;

/// The secret from which a device derives its salts. It is independent of the signing key and never
/// leaves the device.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SaltKey([u8; 32]);

impl SaltKey {
    /// Creates a key from 32 bytes, which must be uniformly random.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the salt of one seal: `HMAC-SHA256(key, "moteseal/1/salt" || device ||
    /// index)[..16]`.
    #[must_use]
    pub fn salt(&self, device: DeviceId, index: SealIndex) -> Salt {
        #[allow(clippy::missing_panics_doc, clippy::expect_used)]
        let mut mac =
            Hmac::<sha2::Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(b"moteseal/1/salt");
        mac.update(&device.0);
        mac.update(&index.0.to_be_bytes());
        let mut salt = [0; 16];
        salt.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        Salt(salt)
    }
}

impl fmt::Debug for SaltKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SaltKey(secret)")
    }
}

/// The key of the hash that determines the levels under one seal. It is secret until the seal is
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

impl Salt {
    /// Returns the level of event `seq` in a group of `levels` levels.
    #[must_use]
    #[inline]
    pub fn level(&self, seq: Sequence, levels: u8) -> Level {
        LevelKey::new(self).level(seq.0, levels)
    }
}

/// A salt, prepared for hashing sequence numbers.
#[derive(Clone, Copy)]
pub struct LevelKey(SipKey);

impl LevelKey {
    /// Prepares a salt.
    #[must_use]
    #[inline]
    pub fn new(salt: &Salt) -> Self {
        Self(SipKey::new(&salt.0))
    }

    /// Returns the initial state of SipHash under this salt.
    #[must_use]
    pub const fn state(&self) -> [u64; 4] {
        self.0.state()
    }

    /// Returns SipHash-2-4 of a sequence number.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[must_use]
    pub fn hash(&self, seq: u64) -> u64 {
        self.0.hash(seq)
    }

    /// Returns the level of event `seq` in a group of `levels` levels (at least 1).
    #[must_use]
    #[inline]
    pub fn level(&self, seq: u64, levels: u8) -> Level {
        // Setting this bit limits the number of leading zeros to the last level, without a
        // comparison.
        let stop = (1 << 63) >> levels.saturating_sub(1);
        #[allow(clippy::cast_possible_truncation)]
        Level((self.hash(seq) | stop).leading_zeros() as u8)
    }
}

/// The number of events per level under one seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counters {
    counts: [u32; MAX_LEVELS],
    levels: u8,
}

impl Counters {
    /// Creates counters of 0 for `levels` levels (at most [`MAX_LEVELS`]).
    #[must_use]
    pub fn new(levels: u8) -> Self {
        debug_assert!(usize::from(levels) <= MAX_LEVELS);
        Self { counts: [0; MAX_LEVELS], levels }
    }

    /// Computes the levels of the events `0 .. n` one by one and counts them.
    #[must_use]
    pub fn of(salt: &Salt, levels: u8, n: u32) -> Self {
        let key = LevelKey::new(salt);
        let mut counters = Self::new(levels);
        for seq in 0..u64::from(n) {
            counters.counts[usize::from(key.level(seq, levels).0)] += 1;
        }
        counters
    }

    /// Returns the counts, one per level.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.counts[..usize::from(self.levels)]
    }

    /// Returns the counts, one per level, for modification.
    pub fn as_mut_slice(&mut self) -> &mut [u32] {
        &mut self.counts[..usize::from(self.levels)]
    }

    /// Returns the count of one level; 0 for a level that does not exist.
    #[must_use]
    pub fn at(&self, level: Level) -> u32 {
        self.counts.get(usize::from(level.0)).copied().unwrap_or(0)
    }

    /// Returns the number of levels.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the number of events at the levels of `mask` (bit `i` for level `i`).
    #[must_use]
    pub fn masked(&self, mask: u32) -> u32 {
        self.as_slice()
            .iter()
            .enumerate()
            .filter(|(level, _)| mask >> level & 1 == 1)
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the number of all events.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

/// Returns the lowest level in a mask, or `levels` if the mask is empty.
#[must_use]
pub fn lowest(mask: u32, levels: u8) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let zeros = mask.trailing_zeros() as u8;
    zeros.min(levels)
}

/// Returns the mask of the levels below `level`.
pub(crate) const fn below(level: u8) -> u32 {
    if level >= 32 { u32::MAX } else { (1 << level) - 1 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::vec::Vec;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;

    use super::*;
    use moteseal_core::digest::Digest;

    fn salt(seed: u32) -> Salt {
        Salt(*Digest::of(&[b"salt", &seed.to_be_bytes()]).0.first_chunk().unwrap())
    }

    /// A test vector of the reference implementation of Aumasson and Bernstein, "SipHash: a fast
    /// short-input PRF".
    #[test]
    fn hashes_with_siphash_2_4() {
        let key = LevelKey::new(&Salt(core::array::from_fn(|i| u8::try_from(i).unwrap())));
        assert_eq!(key.hash(0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    /// The expected salt was computed with Python's `hmac`. The key is 00 01 .. 1f.
    #[test]
    fn derives_a_salt_by_hmac_from_device_and_index() {
        let key = SaltKey::new(core::array::from_fn(|i| u8::try_from(i).unwrap()));
        let salt = key.salt(DeviceId(*b"device 1"), SealIndex(7));
        assert_eq!(hex::encode(salt.0), "6a9ba82377b125e0b20864e36faea710");
    }

    proptest! {
        #[test]
        fn equals_the_siphasher_crate(key: [u8; 16], message: u64) {
            prop_assert_eq!(LevelKey::new(&Salt(key)).hash(message), SipHasher24::new_with_key(&key).hash(&message.to_le_bytes()));
        }

        #[test]
        fn a_level_is_the_number_of_leading_zeros_up_to_the_last_level(key: [u8; 16], seq: u64, levels in 1_u8..=32) {
            let zeros = SipHasher24::new_with_key(&key).hash(&seq.to_le_bytes()).leading_zeros();
            prop_assert_eq!(u32::from(Salt(key).level(Sequence(seq), levels).0), zeros.min(u32::from(levels) - 1));
        }

        #[test]
        fn counters_count_the_events_of_each_level(key: [u8; 16], n in 0_u32..500, levels in 1_u8..=32) {
            let counters = Counters::of(&Salt(key), levels, n);
            for level in (0..levels).map(Level) {
                let expected = (0..u64::from(n)).filter(|&seq| Salt(key).level(Sequence(seq), levels) == level).count();
                prop_assert_eq!(usize::try_from(counters.at(level)).unwrap(), expected);
            }
            prop_assert_eq!(counters.total(), u64::from(n));
        }
    }

    /// Returns the chi-square statistic of (observed, expected) counts.
    fn chi_square(counts: impl IntoIterator<Item = (u32, f64)>) -> f64 {
        counts
            .into_iter()
            .map(|(count, expected)| (f64::from(count) - expected).powi(2) / expected)
            .sum()
    }

    /// Over 2,000 salts, every position in an epoch of 40 events has a given level equally often:
    /// chi-square with 39 degrees of freedom is below its 99.9 % quantile. Each count has a
    /// binomial distribution, whose variance is `1 - p` times its mean for a level with the share
    /// `p`. The statistic is therefore divided by `1 - p`.
    #[test]
    fn blocks_are_uniform_in_position_over_2000_salts() {
        const POSITIONS: u32 = 40;
        const SALTS: u32 = 2000;
        const QUANTILE: f64 = 72.05;
        for level in (0..4).map(Level) {
            let mut hits = [0_u32; POSITIONS as usize];
            for seed in 0..SALTS {
                let key = LevelKey::new(&salt(seed));
                for (seq, hits) in (0..).zip(&mut hits) {
                    *hits += u32::from(key.level(seq, 5) == level);
                }
            }
            let share = 0.5_f64.powi(i32::from(level.0) + 1);
            let mean = hits.iter().sum::<u32>() as f64 / f64::from(POSITIONS);
            let statistic = chi_square(hits.map(|count| (count, mean))) / (1.0 - share);
            assert!(statistic < QUANTILE, "{level}: {statistic}");
        }
    }

    /// The levels have the shares 1/2, 1/4, ..., and the last level has the rest: chi-square with 7
    /// degrees of freedom is below its 99.9 % quantile.
    #[test]
    fn levels_are_geometrically_distributed() {
        let counts: Vec<u32> = (0..2000).fold(std::vec![0; 8], |sums, seed| {
            let counters = Counters::of(&salt(seed), 8, 100);
            sums.iter().zip(counters.as_slice()).map(|(sum, count)| sum + count).collect()
        });
        let expected = (0..8).map(|level| 200_000.0 * 0.5_f64.powi((level + 1).min(7)));
        let statistic = chi_square(counts.into_iter().zip(expected));
        assert!(statistic < 24.32, "{statistic}");
    }

    #[test]
    fn debug_does_not_print_a_salt_key() {
        assert_eq!(std::format!("{:?}", SaltKey::new([0x42; 32])), "SaltKey(secret)");
    }
}
