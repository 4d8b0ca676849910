//! SECOA^M: a maximum with an inflation certificate and a SEAL (section II.D of Papadopoulos et al.
//! 2011).
//!
//! A value has one byte, which is enough for sketches. The number of steps along a chain is the
//! value, so larger values would cost more.

use super::{CERTIFICATE_BYTES, Folding, Key, Refused, Seal};
use crate::prf::KEY_BYTES;

/// The message of a source or aggregator: the largest value so far, its source, the certificate of
/// this source, and the fold of all SEALs at this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The largest value.
    pub value: u8,
    /// The number of the source that has the largest value.
    pub source: u32,
    /// The inflation certificate of this source.
    pub certificate: [u8; CERTIFICATE_BYTES],
    /// The deflation certificate: the fold of the SEALs of all sources below the sender of this
    /// message.
    pub seal: Seal,
}

impl Claim {
    /// Merges the children's messages: takes the largest value, and rolls every SEAL up to it.
    /// SEALs at lower positions are folded with each other first. If values are equal, takes the
    /// value from the source with the smallest number. Returns `None` if there are no children.
    #[must_use]
    pub fn merge(mut claims: Vec<Self>) -> Option<Self> {
        claims.sort_unstable_by_key(|claim| (claim.value, std::cmp::Reverse(claim.source)));
        claims.into_iter().reduce(|low, high| Self {
            seal: low.seal.roll(u32::from(high.value - low.value)).fold(high.seal),
            ..high
        })
    }
}

/// A source.
#[derive(Clone)]
pub struct Source {
    number: u32,
    key: Key,
}

impl Source {
    /// Creates the source with this number, and with the key that it shares with the querier.
    #[must_use]
    pub fn new(number: u32, key: &[u8; KEY_BYTES]) -> Self {
        Self { number, key: Key::new(key) }
    }

    /// Returns the number of the source.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the source's message for a value in an epoch. `instance` distinguishes several
    /// maxima of one epoch.
    #[must_use]
    pub fn claim(&self, epoch: u64, instance: u32, value: u8) -> Claim {
        Claim {
            value,
            source: self.number,
            certificate: self.key.certificate(epoch, instance, value),
            seal: Seal::of(&self.key.seed(epoch, instance), value.into()),
        }
    }
}

/// The querier. It has the key of every source: source `i` has key `i`.
#[derive(Clone)]
pub struct Querier {
    pub(super) keys: Vec<Key>,
}

impl Querier {
    /// Creates the querier of the sources with these keys.
    #[must_use]
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Self {
        Self { keys: keys.iter().map(Key::new).collect() }
    }

    /// Verifies a message and returns the maximum over all sources.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, epoch: u64, instance: u32, claim: &Claim) -> Result<u8, Refused> {
        if self.certificate(epoch, instance, claim.source, claim.value)? != claim.certificate {
            return Err(Refused::Inflated);
        }
        let mut seeds = Folding::new();
        self.keys.iter().for_each(|key| seeds.add(&key.seed(epoch, instance)));
        if seeds.seal().roll(claim.value.into()) == claim.seal {
            Ok(claim.value)
        } else {
            Err(Refused::Deflated)
        }
    }

    pub(super) fn certificate(
        &self,
        epoch: u64,
        instance: u32,
        source: u32,
        value: u8,
    ) -> Result<[u8; CERTIFICATE_BYTES], Refused> {
        let key = usize::try_from(source)
            .ok()
            .and_then(|source| self.keys.get(source))
            .ok_or(Refused::UnknownSource)?;
        Ok(key.certificate(epoch, instance, value))
    }
}
