//! SECOA^M: a maximum with an inflation certificate and a SEAL, section II.D of Papadopoulos et al.
//! 2011.
//!
//! Values are one byte, which is what sketches need; chains are as long as values are large, so
//! larger values would cost more.

use super::{CERTIFICATE_BYTES, Folding, Key, Refused, Seal};
use crate::prf::KEY_BYTES;

/// What is sent: the largest value so far, its source, that source's certificate, and the fold of
/// all SEALs at that value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The largest value.
    pub value: u8,
    /// The number of its source.
    pub source: u32,
    /// That source's inflation certificate.
    pub certificate: [u8; CERTIFICATE_BYTES],
    /// The deflation certificate of all sources below.
    pub seal: Seal,
}

impl Claim {
    /// Merges the children's maxima: the largest value, and every SEAL rolled up to it; lower ones
    /// are folded with each other first. `None` for no children. Of equal values, the source with
    /// the smaller number counts.
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
    /// Returns the source with this number, and the key that it shares with the querier.
    #[must_use]
    pub fn new(number: u32, key: &[u8; KEY_BYTES]) -> Self {
        Self { number, key: Key::new(key) }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns its value in an epoch; `instance` distinguishes maxima of one epoch.
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

/// The querier, which has every source's key: source `i` has the `i`-th.
#[derive(Clone)]
pub struct Querier {
    pub(super) keys: Vec<Key>,
}

impl Querier {
    /// Returns the querier of the sources with these keys.
    #[must_use]
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Self {
        Self { keys: keys.iter().map(Key::new).collect() }
    }

    /// Returns the verified maximum over all sources.
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
