//! Keys and other random bytes, from the system's random number generator.

use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_terminal::failure::Failure;
use zeroize::Zeroizing;

use crate::internal;

/// Returns `N` random bytes, which are erased from memory when dropped.
pub(crate) fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, Failure> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes)
        .map_err(|error| internal(format_args!("cannot read random bytes: {error}")))?;
    Ok(bytes)
}

/// Generates a new Ed25519 key.
pub(crate) fn signing_key() -> Result<SecretKey, Failure> {
    SecretKey::from_seed(Algorithm::Ed25519, &*bytes::<32>()?).map_err(internal)
}
