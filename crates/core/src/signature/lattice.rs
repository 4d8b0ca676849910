//! ML-DSA-44 (FIPS 204), pure, with the empty context. For hosts only: it needs about 100 KiB of
//! stack.
//!
//! Keys stay in the form in which they are stored (a seed of 32 bytes, a public key of 1,312 bytes)
//! and are expanded for each use. An expanded public key takes 24 KiB and an expanded secret key
//! even more, and a roster has many keys.

use alloc::boxed::Box;

use ml_dsa::{EncodedSignature, EncodedVerifyingKey, ExpandedSigningKey, MlDsa44, VerifyingKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{KeyError, SignError, SignatureError};

/// A public key. It is on the heap: programs that keep thousands of keys would otherwise need room
/// for the longest suite for each of them.
#[derive(Clone)]
pub(super) struct PublicKey(Box<[u8; 1312]>);

impl PublicKey {
    /// Reads a public key. Every byte string of the right length is a valid key.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        bytes.try_into().map(|bytes| Self(Box::new(bytes))).map_err(|_| KeyError::KeyLength)
    }

    pub(super) fn as_bytes(&self) -> &[u8; 1312] {
        &self.0
    }

    /// Checks a signature, which must have the length that the suite defines.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let encoded = EncodedSignature::<MlDsa44>::try_from(signature)
            .map_err(|_| SignatureError::MalformedSignature)?;
        // Decoding fails if hints are out of order or coefficients are out of range.
        let signature =
            ml_dsa::Signature::<MlDsa44>::decode(&encoded).ok_or(SignatureError::NotAuthentic)?;
        let key = VerifyingKey::<MlDsa44>::decode(&EncodedVerifyingKey::<MlDsa44>::from(*self.0));
        if key.verify_with_context(message, &[], &signature) {
            Ok(())
        } else {
            Err(SignatureError::NotAuthentic)
        }
    }
}

#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct SecretKey {
    seed: [u8; 32],
    #[zeroize(skip)]
    public: [u8; 1312],
}

impl SecretKey {
    pub(super) fn from_seed(seed: &[u8; 32]) -> Self {
        let public =
            ExpandedSigningKey::<MlDsa44>::from_seed(&(*seed).into()).verifying_key().encode();
        Self { seed: *seed, public: public.into() }
    }

    pub(super) const fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    pub(super) fn public(&self) -> PublicKey {
        PublicKey(Box::new(self.public))
    }

    /// Signs with the deterministic variant (FIPS 204, section 3.4). `out` must have the length of
    /// a signature.
    pub(super) fn sign(&self, message: &[u8], out: &mut [u8]) -> Result<(), SignError> {
        let key = ExpandedSigningKey::<MlDsa44>::from_seed(&self.seed.into());
        let signature = key.sign_deterministic(message, &[]).map_err(|_| SignError::Refused)?;
        out.copy_from_slice(&signature.encode());
        Ok(())
    }

    /// Returns whether `expanded` is the expanded form of this key (FIPS 204, algorithm 24).
    pub(super) fn is_expanded_as(&self, expanded: &[u8]) -> bool {
        #[allow(deprecated)]
        let mut own = ExpandedSigningKey::<MlDsa44>::from_seed(&self.seed.into()).to_expanded();
        let same: bool = subtle::ConstantTimeEq::ct_eq(own.as_slice(), expanded).into();
        own.as_mut_slice().zeroize();
        same
    }
}
