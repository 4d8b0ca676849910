//! An attack on PS14 as D5.3 sends it: with the accumulator in the message.
//!
//! The attacker chooses any number `z` and computes the accumulator from it, instead of computing
//! witnesses from an accumulator:
//!
//! ```text
//! Acc            = z^(product of all exponents)
//! each witness   = z^(product of the other exponents)
//! ```
//!
//! Every witness is then valid in `Acc`, and no factor of the modulus is needed. The attack fails if
//! the verifier takes the accumulator from the public key.

use std::collections::BTreeMap;

use super::accumulator::{Element, Exponent, Modulus};
use super::ps14::{Signed, of_part, of_tag};

/// A set with a forged signature.
#[derive(Clone, Debug)]
pub struct Forged {
    /// The accumulator that the message states.
    pub accumulator: Element,
    /// The message.
    pub signed: Signed,
}

/// Forges a message without a secret key. Returns `None` if a power is 1 or -1, which has negligible
/// probability.
#[must_use]
pub fn forge(modulus: &Modulus, z: &Element, tag: &[u8], parts: &[&[u8]]) -> Option<Forged> {
    let mut exponents = vec![of_tag(modulus, tag)];
    exponents.extend(parts.iter().map(|part| of_part(modulus, tag, part)));
    let power = |left_out: Option<usize>| {
        let others = exponents.iter().enumerate().filter(|(at, _)| Some(*at) != left_out);
        others
            .map(|(_, exponent)| exponent)
            .try_fold(z.clone(), |power, exponent: &Exponent| modulus.power(&power, exponent))
    };
    let mut witnesses: BTreeMap<_, _> = BTreeMap::new();
    for (at, part) in (1..).zip(parts) {
        witnesses.insert(part.to_vec(), power(Some(at))?);
    }
    let signed = Signed { tag: tag.to_vec(), tag_witness: power(Some(0))?, parts: witnesses };
    Some(Forged { accumulator: power(None)?, signed })
}
