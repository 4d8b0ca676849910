//! Which level an event belongs to: a salted, uniform hash of its sequence number and nothing else.
//!
//! DESIGN section 5 departs from the paper (section IV.C), which hashes the content: equal readings would share a block, and
//! whoever influences what a device senses could steer it into or out of a sample. The salt leaves the device only in the
//! closing seal.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::record::{DeviceId, Level, MAX_LEVELS, SealIndex, Sequence};

/// The secret that makes a device's salts. It is apart from the signing key and never leaves the device.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SaltKey([u8; 32]);

impl SaltKey {
    /// A key from 32 uniformly random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The salt of one seal: `HMAC-SHA256(key, "moteseal/1/salt" || device || index)[..16]`.
    #[must_use]
    pub fn salt(&self, device: DeviceId, index: SealIndex) -> Salt {
        #[allow(clippy::missing_panics_doc, clippy::expect_used)]
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
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

/// The key of the uniform hash under one seal; secret until the seal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

impl Salt {
    /// The level of event `seq` in a group of `levels` levels.
    #[must_use]
    #[inline]
    pub fn level(&self, seq: Sequence, levels: u8) -> Level {
        SipKey::new(self).level(seq.0, levels)
    }
}

/// The salt, unpacked into SipHash's initial state.
#[derive(Clone, Copy)]
pub struct SipKey([u64; 4]);

impl SipKey {
    /// Unpacks a salt.
    #[must_use]
    #[inline]
    pub fn new(salt: &Salt) -> Self {
        let mut halves = salt.0.chunks_exact(8).map(|half| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            u64::from_le_bytes(bytes)
        });
        let (k0, k1) = (halves.next().unwrap_or(0), halves.next().unwrap_or(0));
        Self([k0 ^ 0x736f_6d65_7073_6575, k1 ^ 0x646f_7261_6e64_6f6d, k0 ^ 0x6c79_6765_6e65_7261, k1 ^ 0x7465_6462_7974_6573])
    }

    /// The state SipHash starts from.
    #[must_use]
    pub const fn state(&self) -> [u64; 4] {
        self.0
    }

    /// SipHash-2-4 of the eight little-endian bytes of `message`.
    #[must_use]
    #[inline]
    pub fn hash(&self, message: u64) -> u64 {
        const LENGTH: u64 = 8 << 56;
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        macro_rules! round {
            () => {
                v0 = v0.wrapping_add(v1);
                v2 = v2.wrapping_add(v3);
                v1 = v1.rotate_left(13) ^ v0;
                v3 = v3.rotate_left(16) ^ v2;
                v0 = v0.rotate_left(32);
                v2 = v2.wrapping_add(v1);
                v0 = v0.wrapping_add(v3);
                v1 = v1.rotate_left(17) ^ v2;
                v3 = v3.rotate_left(21) ^ v0;
                v2 = v2.rotate_left(32);
            };
        }
        v3 ^= message;
        round!();
        round!();
        v0 ^= message;
        v3 ^= LENGTH;
        round!();
        round!();
        v0 ^= LENGTH;
        v2 ^= 0xff;
        round!();
        round!();
        round!();
        round!();
        v0 ^ v1 ^ v2 ^ v3
    }

    /// The level of event `seq` in a group of `levels` levels (at least 1).
    #[must_use]
    #[inline]
    pub fn level(&self, seq: u64, levels: u8) -> Level {
        // Setting the bit below the last level makes leading_zeros saturate there without a comparison.
        let stop = (1 << 63) >> levels.saturating_sub(1);
        #[allow(clippy::cast_possible_truncation)]
        Level((self.hash(seq) | stop).leading_zeros() as u8)
    }
}

/// Events per level under one seal. Entries from the group's `levels` on are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    counts: [u32; MAX_LEVELS],
    levels: u8,
}

impl Counters {
    /// No events at any of `levels` levels (at most [`MAX_LEVELS`]).
    #[must_use]
    pub fn new(levels: u8) -> Self {
        debug_assert!(usize::from(levels) <= MAX_LEVELS);
        Self { counts: [0; MAX_LEVELS], levels }
    }

    /// The counts of `level(0) .. level(n - 1)`: the slow, obvious way.
    #[must_use]
    pub fn of(salt: &Salt, levels: u8, n: u32) -> Self {
        let key = SipKey::new(salt);
        let mut counters = Self::new(levels);
        for seq in 0..u64::from(n) {
            counters.counts[usize::from(key.level(seq, levels).0)] += 1;
        }
        counters
    }

    /// The counts, one a level.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.counts[..usize::from(self.levels)]
    }

    /// The counts, one a level, to fill in.
    pub fn as_mut_slice(&mut self) -> &mut [u32] {
        &mut self.counts[..usize::from(self.levels)]
    }

    /// The count of one level; 0 past the last.
    #[must_use]
    pub fn at(&self, level: Level) -> u32 {
        self.counts.get(usize::from(level.0)).copied().unwrap_or(0)
    }

    /// How many levels there are.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// All events.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}
