//! CMT: Castelluccia, Mykletun and Tsudik, "Efficient aggregation of encrypted data in wireless
//! sensor networks" (MobiQuitous 2005). The parameters are the ones in the comparison of
//! Papadopoulos et al. (2011, section II.D): a 20-byte modulus, and keys that are derived for each
//! epoch by HMAC over SHA-1.
//!
//! CMT keeps readings secret but does not protect their integrity. Anyone on the path can add to
//! the sum, and the querier cannot detect it.

use crate::prf::{KEY_BYTES, hm1};

/// The length of a ciphertext on every edge, in bytes.
pub const BYTES: usize = 20;

/// A residue modulo `n = 2^160`, the only 20-byte modulus under which 20-byte keys are uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ciphertext {
    high: u32,
    low: u128,
}

impl Ciphertext {
    const ZERO: Self = Self { high: 0, low: 0 };

    /// Decodes 20 bytes, big-endian. Every string of 20 bytes is a residue.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let (mut high, mut low) = ([0; 4], [0; 16]);
        high.copy_from_slice(&bytes[..4]);
        low.copy_from_slice(&bytes[4..]);
        Self { high: u32::from_be_bytes(high), low: u128::from_be_bytes(low) }
    }

    /// Encodes the residue as 20 bytes, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&self.high.to_be_bytes());
        bytes[4..].copy_from_slice(&self.low.to_be_bytes());
        bytes
    }

    /// Adds two ciphertexts, as an aggregator does. The result is a ciphertext of the sum of the
    /// readings.
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high.wrapping_add(other.high).wrapping_add(carry as u32), low }
    }

    const fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high.wrapping_sub(other.high).wrapping_sub(borrow as u32), low }
    }
}

/// A source. It shares its key with the querier only.
#[derive(Clone)]
pub struct Source([u8; KEY_BYTES]);

impl Source {
    /// Creates the source with this key.
    #[must_use]
    pub const fn new(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }

    /// Encrypts a reading of an epoch: `v + HM_1(k_i, t) mod n`.
    #[must_use]
    pub fn encrypt(&self, epoch: u64, value: u64) -> Ciphertext {
        Ciphertext { high: 0, low: value.into() }.merge(epoch_key(&self.0, epoch))
    }
}

/// The querier. It has the key of every source.
#[derive(Clone)]
pub struct Querier(Vec<[u8; KEY_BYTES]>);

impl Querier {
    /// Creates the querier of the sources with these keys.
    #[must_use]
    pub const fn new(keys: Vec<[u8; KEY_BYTES]>) -> Self {
        Self(keys)
    }

    /// Decrypts the sum of all sources' readings. Returns `None` if the result cannot be a sum of
    /// this number of 64-bit readings. The scheme allows no other check.
    #[must_use]
    pub fn decrypt(&self, epoch: u64, sum: Ciphertext) -> Option<u128> {
        let keys = self
            .0
            .iter()
            .map(|key| epoch_key(key, epoch))
            .fold(Ciphertext::ZERO, Ciphertext::merge);
        let sum = sum.minus(keys);
        let most = u128::from(u64::MAX).saturating_mul(self.0.len() as u128);
        (sum.high == 0 && sum.low <= most).then_some(sum.low)
    }
}

fn epoch_key(key: &[u8; KEY_BYTES], epoch: u64) -> Ciphertext {
    Ciphertext::from_bytes(&hm1(key, &epoch.to_be_bytes()))
}
