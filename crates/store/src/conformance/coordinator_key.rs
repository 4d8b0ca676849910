//! The key of the coordinator that all tests of stores use.

use moteseal_core::signature::{Algorithm, SecretKey};

#[allow(clippy::expect_used)]
pub(super) fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[0xc0; 32])
        .expect("any 32 bytes are a seed of Ed25519")
}
