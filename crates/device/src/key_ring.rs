//! The keys of a device. A device has several while its key changes: the roster states for which
//! seals each of them is valid (spec/objects.md, section 4).

use std::fmt;

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::NoKey;
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_verify::roster::{Device, Term};

use crate::seal::SealRefused;

/// The keys of a device.
#[derive(Clone)]
pub struct KeyRing<K> {
    keys: Vec<K>,
    /// The roster's entry of the device, and for each of its terms the position of the key. `None`
    /// if there is only one key, which is valid for all seals.
    listed: Option<(Device, Vec<Option<usize>>)>,
}

impl<K> From<K> for KeyRing<K> {
    /// Creates the ring of a device that has one key for all seals.
    fn from(key: K) -> Self {
        Self { keys: vec![key], listed: None }
    }
}

impl<K> fmt::Debug for KeyRing<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl<K: Signer> KeyRing<K> {
    /// Creates the ring of a device that the roster lists as `device`. Returns `None` if the roster
    /// certifies none of the keys for the device.
    #[must_use]
    pub fn new(keys: Vec<K>, device: &Device) -> Option<Self> {
        let mut ring = Self { keys, listed: None };
        ring.load(device).then_some(ring)
    }

    /// Continues under a later version of the roster. Returns whether the roster certifies at least
    /// one of the keys; otherwise nothing changes.
    pub fn load(&mut self, device: &Device) -> bool {
        let key_of = |term: &Term| self.keys.iter().position(|key| is_key_of(&term.key, key));
        let places: Vec<_> = device.terms().iter().map(key_of).collect();
        let has_any = places.iter().any(Option::is_some);
        if has_any {
            self.listed = Some((device.clone(), places));
        }
        has_any
    }

    /// Returns the key for the seal with this index in this epoch.
    ///
    /// # Errors
    /// `KeyEnded` if the device was removed or the key was revoked, `KeyMissing` if the roster
    /// certifies a key that the device does not have.
    pub fn signer(&self, index: SealIndex, epoch: EpochNumber) -> Result<&K, SealRefused> {
        let Some((device, places)) = &self.listed else { return Ok(&self.keys[0]) };
        let valid = match device.key(index, epoch) {
            Ok(key) => key,
            Err(NoKey::Ended) => return Err(SealRefused::KeyEnded { epoch }),
            Err(NoKey::Unknown) => return Err(SealRefused::KeyMissing { epoch }),
        };
        let term = device.terms().iter().zip(places).find(|(term, _)| term.key == *valid);
        let key = term.and_then(|(_, place)| self.keys.get((*place)?));
        key.ok_or(SealRefused::KeyMissing { epoch })
    }
}

/// Returns whether a signer has the secret key of a public key. A test signature identifies the key
/// even if it is in hardware and cannot be read.
fn is_key_of(key: &PublicKey, signer: &dyn Signer) -> bool {
    let message = b"moteseal/1/is this the device";
    let signed = signer.signature(message).ok();
    signed.is_some_and(|signature| key.verify(message, &signature).is_ok())
}
