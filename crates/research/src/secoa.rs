//! SECOA: Nath, Yu and Chan, "Secure outsourced aggregation via one-way chains" (SIGMOD 2009), as
//! section II.D of Papadopoulos et al. (2011) defines it for comparison: [`max`] is SECOA^M, and
//! [`sum`] is SECOA^S.
//!
//! **SECOA is patented in the United States (US 8,607,057 B2). It is here for comparison only: no
//! product crate may link it**, and `crates/cli/tests/it/import_order.rs` fails if one does.
//!
//! A maximum cannot be inflated, because its source certifies it. It cannot be deflated, because
//! every source's [`Seal`](seal::Seal) is at the position of its own value in a one-way chain, and
//! chains only roll forward. A sum is estimated from the maxima of many sketches. SECOA keeps no
//! data secret: readings are sent in plaintext.
//!
//! The paper leaves three points undefined. This implementation makes these choices:
//!
//! - The source of a maximum: a certificate cannot be checked without knowing its source, so each
//!   maximum contains 4 bytes for the source, which the paper does not count.
//! - The certificates: by equation 5 every aggregator combines its children's certificates by XOR.
//!   They cannot be separated again, so the next aggregator could not keep only the certificates of
//!   the maxima. The querier can compute only these certificates. Here each sketch keeps its
//!   certificate, and only the sink combines them: [`sum::Final`] is as in the paper,
//!   [`sum::Partial`] is larger.
//! - The exponent: by table II, RSA takes as long as 3.9 modular multiplications, so the exponent is
//!   small. Here it is 3, which takes two multiplications.

pub mod max;
mod seal;
mod sketch;
pub mod sum;

pub use seal::{Folding, SEAL_BYTES, Seal};
pub use sketch::{Estimate, Sketch};

use moteseal_core::named_errors;

use crate::prf::{Hm1, KEY_BYTES};

/// The length of a certificate, in bytes.
pub const CERTIFICATE_BYTES: usize = 20;

named_errors! {
    /// Why the querier rejects a result.
    Refused {
        /// The numbers of values, sources and SEALs do not match.
        Malformed => "the numbers of values, sources and SEALs do not match",
        /// The source of a maximum is unknown.
        UnknownSource => "the querier has no key of the source of a maximum",
        /// The source did not certify the value for this epoch: the value is too large, or is of
        /// another epoch.
        Inflated => "the source of a maximum did not certify it for this epoch",
        /// A source's SEAL was further along its chain, or is missing.
        Deflated => "a source's SEAL was further along its chain, or is missing",
    }
}

/// The key that a source shares with the querier. Certificates and temporal seeds are derived from
/// it.
#[derive(Clone)]
struct Key(Hm1);

impl Key {
    fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Hm1::new(bytes))
    }

    /// Returns the inflation certificate of a value.
    fn certificate(&self, epoch: u64, instance: u32, value: u8) -> [u8; CERTIFICATE_BYTES] {
        let mut message = [b'c'; 14];
        message[1..9].copy_from_slice(&epoch.to_be_bytes());
        message[9..13].copy_from_slice(&instance.to_be_bytes());
        message[13] = value;
        self.0.of(&message)
    }

    /// Returns the seed `sd_i` of one epoch.
    fn seed(&self, epoch: u64, instance: u32) -> [u8; 20] {
        let mut message = [b's'; 13];
        message[1..9].copy_from_slice(&epoch.to_be_bytes());
        message[9..13].copy_from_slice(&instance.to_be_bytes());
        self.0.of(&message)
    }
}
