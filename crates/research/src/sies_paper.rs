//! SIES as published: Papadopoulos, Kiayias and Papadias, "Secure and Efficient In-Network
//! Processing of Exact SUM Queries" (ICDE 2011), sections III.D and IV.
//!
//! A record is `PSR = K_t * m + k_{i,t} mod p`. Keys come from HMAC over SHA-256, and shares from
//! HMAC over SHA-1. A value has 4 bytes, and all sources share one key `K`.
//!
//! This implementation keeps the weaknesses of the published scheme, so that [`attack`] can show
//! their consequences: a source can answer twice in one epoch, there are no key groups, and only
//! the aggregators report which sources took part. Products use `moteseal-sum`.

pub mod attack;
pub mod field;

use crypto_bigint::U256;
use moteseal_core::named_errors;

use crate::prf::{KEY_BYTES, hm1, hm256};
use field::{add, from_bytes, multiply, reduced, subtract};

/// The length of a partial state record on every edge, in bytes.
pub const BYTES: usize = 32;
/// The position of the value in the plaintext. Below the value are 8 bytes of padding, the maximum
/// in section IV.A, and a share of 20 bytes.
pub const VALUE_SHIFT: u32 = 224;

/// A partial state record: a residue modulo `p = 2^256 - 189`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psr(U256);

impl Psr {
    /// Decodes 32 bytes, big-endian; `None` if the number is `p` or larger.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        from_bytes(bytes).map(Self)
    }

    /// Encodes the residue as 32 bytes, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        field::to_bytes(&self.0)
    }

    /// Adds two records: the merging phase.
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        Self(add(&self.0, &other.0))
    }
}

/// A source's keys.
#[derive(Clone)]
pub struct Source {
    global: [u8; KEY_BYTES],
    own: [u8; KEY_BYTES],
}

impl Source {
    /// Creates the source with the key `K`, which all sources share, and its own key `k_i`.
    #[must_use]
    pub const fn new(global: [u8; KEY_BYTES], own: [u8; KEY_BYTES]) -> Self {
        Self { global, own }
    }

    /// Encrypts a value for an epoch: the initialization phase. In the paper, a source does not
    /// record which epochs it has answered.
    #[must_use]
    pub fn answer(&self, epoch: u64, value: u32) -> Psr {
        let (key, share) = own_key(&self.own, epoch);
        let message = U256::from(value).shl_vartime(VALUE_SHIFT).wrapping_add(&share);
        Psr(add(&multiply(&epoch_key(&self.global, epoch), &reduced(message)), &key))
    }
}

named_errors! {
    /// Why the querier rejects a record.
    OpenError {
        /// A participant is unknown to the querier.
        UnknownSource => "the querier has no key of a participant",
        /// The shares in the record do not add up to the shares of the participants.
        SharesMismatch => "the record is not the sum of the answers of these sources in this epoch",
    }
}

/// The querier's keys.
#[derive(Clone)]
pub struct Querier {
    global: [u8; KEY_BYTES],
    own: Vec<[u8; KEY_BYTES]>,
}

impl Querier {
    /// Creates the querier with `K` and every `k_i`.
    #[must_use]
    pub const fn new(global: [u8; KEY_BYTES], own: Vec<[u8; KEY_BYTES]>) -> Self {
        Self { global, own }
    }

    /// Opens the sum of all sources: the evaluation phase.
    ///
    /// # Errors
    /// [`OpenError::SharesMismatch`].
    pub fn open(&self, epoch: u64, psr: Psr) -> Result<u32, OpenError> {
        self.evaluate(epoch, psr, self.own.iter())
    }

    /// Opens the sum of the given participants. This is the evaluation phase when some nodes have
    /// failed (the discussion at the end of section IV.B). The aggregators report which sources
    /// took part.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_of(&self, epoch: u64, psr: Psr, participants: &[usize]) -> Result<u32, OpenError> {
        let keys =
            participants.iter().map(|&source| self.own.get(source).ok_or(OpenError::UnknownSource));
        self.evaluate(epoch, psr, keys.collect::<Result<Vec<_>, _>>()?.into_iter())
    }

    fn evaluate<'a>(
        &self,
        epoch: u64,
        psr: Psr,
        keys: impl Iterator<Item = &'a [u8; KEY_BYTES]>,
    ) -> Result<u32, OpenError> {
        let (keys, shares) = keys
            .map(|key| own_key(key, epoch))
            .fold((U256::ZERO, U256::ZERO), |(keys, shares), (key, share)| {
                (add(&keys, &key), shares.wrapping_add(&share))
            });
        let inverse =
            field::invert(&epoch_key(&self.global, epoch)).ok_or(OpenError::SharesMismatch)?;
        let message = multiply(&subtract(&psr.0, &keys), &inverse);
        let value = message.shr_vartime(VALUE_SHIFT);
        if message.wrapping_sub(&value.shl_vartime(VALUE_SHIFT)) != shares {
            return Err(OpenError::SharesMismatch);
        }
        // The value is the upper 32 of the 256 bits.
        let mut result = [0; 4];
        result.copy_from_slice(&field::to_bytes(&value)[BYTES - 4..]);
        Ok(u32::from_be_bytes(result))
    }
}

/// Returns `K_t`.
fn epoch_key(global: &[u8; KEY_BYTES], epoch: u64) -> U256 {
    field::residue(&hm256(global, &epoch.to_be_bytes()))
}

/// Returns `k_{i,t}` and `ss_{i,t}`.
fn own_key(own: &[u8; KEY_BYTES], epoch: u64) -> (U256, U256) {
    let key = hm256(own, &epoch.to_be_bytes());
    let mut share = [0; BYTES];
    share[BYTES - 20..].copy_from_slice(&hm1(&key, &epoch.to_be_bytes()));
    (field::residue(&key), U256::from_be_slice(&share))
}
