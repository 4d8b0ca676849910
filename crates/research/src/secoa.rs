//! SECOA: Nath, Yu and Chan, "Secure outsourced aggregation via one-way chains" (SIGMOD 2009), as section II.D of Papadopoulos et al. 2011
//! sets it for comparison: [`max`] is SECOA^M, [`sum`] is SECOA^S.
//!
//! **Patented in the United States (US 8,607,057 B2). It is here for comparison only: no product crate may link it**, and
//! `crates/cli/tests/it/import_order.rs` fails if one does.
//!
//! A maximum cannot be inflated, because its source certifies it, and cannot be deflated, because every source's [`Seal`] stands at its
//! own value in a one-way chain, and chains only roll forward. A sum is estimated from the maxima of many sketches. Nothing is secret:
//! readings travel in the clear.
//!
//! What the paper leaves unsaid, and how it is here:
//! - Which source a maximum is of. Its certificate cannot be checked without, so 4 bytes a maximum travel that the paper does not count.
//! - Equation 5 has every aggregator XOR its children's certificates. What was XORed cannot be taken apart again, so above it nobody
//!   could keep the winners' certificates alone, which are all that the querier can make. Here certificates travel one a
//!   sketch, and the sink alone XORs them: [`sum::Final`] is as the paper has it, [`sum::Partial`] is larger.
//! - The exponent. Table II has RSA at 3.9 modular multiplications, so it is small: 3 here, two multiplications.

pub mod max;
mod seal;
mod sketch;
pub mod sum;

use std::fmt;

pub use seal::{Folding, SEAL_BYTES, Seal};
pub use sketch::{Estimate, Sketch};

use crate::prf::{Hm1, KEY_BYTES};

/// Bytes of a certificate.
pub const CERTIFICATE_BYTES: usize = 20;

/// What the querier finds wrong with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Not as many values, sources and SEALs as belong together.
    Malformed,
    /// It names a source that there is not.
    UnknownSource,
    /// No source certified that value: it is too large, or of another epoch.
    Inflated,
    /// Some source's SEAL stood further on, or is missing.
    Deflated,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "Malformed: not as many values, sources and SEALs as belong together"
            }
            Self::UnknownSource => {
                "UnknownSource: a maximum of a source that the querier has no key of"
            }
            Self::Inflated => "Inflated: a maximum that its source did not certify for this epoch",
            Self::Deflated => "Deflated: a source's SEAL stood further on, or is missing",
        })
    }
}

impl std::error::Error for Refused {}

/// What a source shares with the querier: certificates and temporal seeds follow from it.
#[derive(Clone)]
struct Key(Hm1);

impl Key {
    fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Hm1::new(bytes))
    }

    /// The inflation certificate of a value.
    fn certificate(&self, epoch: u64, instance: u32, value: u8) -> [u8; CERTIFICATE_BYTES] {
        let mut message = [b'c'; 14];
        message[1..9].copy_from_slice(&epoch.to_be_bytes());
        message[9..13].copy_from_slice(&instance.to_be_bytes());
        message[13] = value;
        self.0.of(&message)
    }

    /// The seed `sd_i` of one epoch.
    fn seed(&self, epoch: u64, instance: u32) -> [u8; 20] {
        let mut message = [b's'; 13];
        message[1..9].copy_from_slice(&epoch.to_be_bytes());
        message[9..13].copy_from_slice(&instance.to_be_bytes());
        self.0.of(&message)
    }
}
