//! The pseudo-random functions of table I of Papadopoulos et al., "Secure and Efficient In-Network
//! Processing of Exact SUM Queries" (ICDE 2011): `HM_1` is HMAC over SHA-1, and `HM_256` is HMAC
//! over SHA-256.
//!
//! SHA-1 is used because the papers specify it. HMAC over SHA-1 is still secure, but the product
//! does not use it.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// The length of a key in bytes, as in section IV.A.
pub const KEY_BYTES: usize = 20;

/// Returns `HM_1(key, message)`, which has 20 bytes.
#[must_use]
#[allow(clippy::missing_panics_doc, clippy::expect_used)]
pub fn hm1(key: &[u8], message: &[u8]) -> [u8; 20] {
    Hmac::<Sha1>::new_from_slice(key)
        .expect("HMAC takes keys of any length")
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// Returns `HM_256(key, message)`, which has 32 bytes.
#[must_use]
#[allow(clippy::missing_panics_doc, clippy::expect_used)]
pub fn hm256(key: &[u8], message: &[u8]) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key)
        .expect("HMAC takes keys of any length")
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// `HM_1` under a key that is used for many messages. The two hash states of HMAC are computed
/// once.
#[derive(Clone)]
pub(crate) struct Hm1(Hmac<Sha1>);

impl Hm1 {
    #[allow(clippy::expect_used)]
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    pub(crate) fn of(&self, message: &[u8]) -> [u8; 20] {
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }
}
