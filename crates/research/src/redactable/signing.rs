//! The signatures that [`bps12`](super::bps12) and the trees use: D5.3's ECDSA on P-192, and the
//! suites of `moteseal-core`.

use std::fmt::Debug;

use moteseal_core::signature::{self, SignError, Signer as _};

use crate::secp192r1;

/// A secret key.
pub trait SigningKey {
    /// The public key.
    type Public: VerifyingKey;

    /// Returns the public key.
    fn public(&self) -> Self::Public;

    /// Signs a message.
    ///
    /// # Errors
    /// [`SignError`] if the signer fails.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// A public key.
pub trait VerifyingKey: Clone + Debug + PartialEq {
    /// Returns the bytes of the key. No other key has the same bytes.
    fn encoded(&self) -> Vec<u8>;

    /// Returns whether a signature of a message is valid.
    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool;
}

impl SigningKey for secp192r1::SecretKey {
    type Public = secp192r1::PublicKey;

    fn public(&self) -> Self::Public {
        self.public().clone()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(self.sign(message).to_vec())
    }
}

impl VerifyingKey for secp192r1::PublicKey {
    fn encoded(&self) -> Vec<u8> {
        self.to_bytes().to_vec()
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        signature.try_into().is_ok_and(|signature| self.verify(message, signature))
    }
}

impl SigningKey for signature::SecretKey {
    type Public = signature::PublicKey;

    fn public(&self) -> Self::Public {
        self.public()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(self.signature(message)?.to_vec())
    }
}

impl VerifyingKey for signature::PublicKey {
    /// The number of the suite in the COSE registry, in eight bytes, and the raw key.
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = self.algorithm().cose().to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.to_bytes());
        bytes
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verify(message, signature).is_ok()
    }
}
