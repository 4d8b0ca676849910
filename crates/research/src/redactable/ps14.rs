//! PS14, updatable redactable signatures (Pöhls and Samelin, ACNS 2014; D5.3, section 2.3.1): a set of
//! parts, each with a witness in one accumulator.
//!
//! The public key has a modulus `n` and an accumulator `a`, a random square modulo `n`. The signer
//! gives each message a tag, and computes with the factors of `n`:
//!
//! ```text
//! witness of the tag      = a^(1 / H(00 || tag))         mod n
//! witness of a part       = a^(1 / H(01 || tag || part)) mod n
//! ```
//!
//! Anyone can remove a part with its witness (redact), and join two messages with the same tag
//! (merge). The signer can add parts to a signed message (update). All messages with one tag can be
//! linked. What is hidden leaves no trace: neither its length nor that it was there.
//!
//! Choices that D5.3 does not state:
//!
//! - A message is a set: parts have no order and no names, and equal parts are one part.
//! - The first byte separates tags from parts. Without it, an empty part would have the witness of the
//!   tag. All tags of a key have the same length, so that no tag is the beginning of another one.
//! - Because `a` is a square, the root is computed modulo the orders of the squares modulo `p` and `q`,
//!   which are odd, instead of modulo `phi(n)`, which is even and has no inverse of some exponents.
//! - **The accumulator belongs to the public key.** D5.3 sends it in the message (`Acc`). If a verifier
//!   takes it from there, anyone can forge a signature of any set
//!   ([`forgery`](super::forgery)).
//!
//! Redaction and merging are for comparison only: a party that removes a part cannot be
//! distinguished from one that never got it.

use std::collections::BTreeMap;
use std::fmt;

use moteseal_core::named_errors;
use rand_core::CryptoRng;

use super::accumulator::{Element, Exponent, Modulus, Trapdoor};
use super::encoding;

/// The length of the tags of [`SecretKey::generate`], in bytes. D5.3 has 8, which can repeat by chance
/// after some billions of messages.
pub const TAG: usize = 16;

named_errors! {
    /// Why a message is not signed, not accepted or not changed.
    Refused {
        /// The tag has not the length that the key states.
        TagLength => "the tag's length is not that of the key's tags",
        /// A witness or the accumulator is not between 2 and n - 2, or has a factor in common with the
        /// modulus.
        Number => "a number of the signature is not between 2 and n - 2, or has a factor of the modulus",
        /// The tag is not authentic.
        Tag => "the witness of the tag is not valid",
        /// A part is not authentic, or belongs to another message.
        Part => "the witness of a part is not valid for this part and tag",
        /// There is no such part.
        NoSuchPart => "the message has no such part",
        /// Two messages cannot be merged because their tags differ.
        OtherOriginal => "the messages are not from one original; merge messages with the same tag",
        /// An exponent has no inverse. This is negligible, and reveals a factor of the modulus.
        NoRoot => "the key has no root for this value; use a longer modulus",
    }
}

/// A message that anyone can redact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The tag, which all redacted forms of the message have.
    pub tag: Vec<u8>,
    /// The witness of the tag.
    pub tag_witness: Element,
    /// The parts with their witnesses.
    pub parts: BTreeMap<Vec<u8>, Element>,
}

impl Signed {
    /// Removes a part. No key is necessary.
    ///
    /// # Errors
    /// `NoSuchPart`.
    pub fn redact(&mut self, part: &[u8]) -> Result<(), Refused> {
        self.parts.remove(part).map(|_| ()).ok_or(Refused::NoSuchPart)
    }

    /// Returns the bytes of a compact encoding: the tag, its witness, and each part after its length,
    /// with its witness.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [&self.tag, self.tag_witness.as_bytes()].concat();
        for (part, witness) in &self.parts {
            encoding::put(&mut out, part);
            out.extend(witness.as_bytes());
        }
        out
    }
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    modulus: Modulus,
    accumulator: Element,
    tag: usize,
}

impl PublicKey {
    /// Creates a key from its modulus, its accumulator and the length of its tags in bytes.
    ///
    /// # Errors
    /// `Number` if the accumulator is not an element modulo the modulus.
    pub fn new(modulus: Modulus, accumulator: Element, tag: usize) -> Result<Self, Refused> {
        if modulus.accepts(&accumulator) {
            Ok(Self { modulus, accumulator, tag })
        } else {
            Err(Refused::Number)
        }
    }

    /// Returns the modulus.
    #[must_use]
    pub const fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// Returns the accumulator `a`.
    #[must_use]
    pub const fn accumulator(&self) -> &Element {
        &self.accumulator
    }

    /// Returns the length of tags in bytes.
    #[must_use]
    pub const fn tag_length(&self) -> usize {
        self.tag
    }

    /// Verifies all parts of a message.
    ///
    /// # Errors
    /// `TagLength`, `Number`, `Tag` or `Part`.
    pub fn verify(&self, signed: &Signed) -> Result<(), Refused> {
        if signed.tag.len() != self.tag {
            return Err(Refused::TagLength);
        }
        let is_witness = |witness: &Element, exponent: &Exponent| {
            if self.modulus.accepts(witness) {
                Ok(self.modulus.is_witness(witness, exponent, &self.accumulator))
            } else {
                Err(Refused::Number)
            }
        };
        if !is_witness(&signed.tag_witness, &of_tag(&self.modulus, &signed.tag))? {
            return Err(Refused::Tag);
        }
        for (part, witness) in &signed.parts {
            if !is_witness(witness, &of_part(&self.modulus, &signed.tag, part))? {
                return Err(Refused::Part);
            }
        }
        Ok(())
    }

    /// Verifies two messages and joins their parts. A part has only one valid witness, so equal parts
    /// have equal witnesses.
    ///
    /// # Errors
    /// `OtherOriginal` if the tags differ, and the errors of [`verify`](Self::verify).
    pub fn merge(&self, one: &Signed, other: &Signed) -> Result<Signed, Refused> {
        if one.tag != other.tag {
            return Err(Refused::OtherOriginal);
        }
        self.verify(one)?;
        self.verify(other)?;
        let mut merged = one.clone();
        merged.parts.extend(other.parts.clone());
        Ok(merged)
    }
}

/// Returns the exponent of a tag.
pub(super) fn of_tag(modulus: &Modulus, tag: &[u8]) -> Exponent {
    modulus.exponent(&[&[0], tag])
}

/// Returns the exponent of a part of a message with this tag.
pub(super) fn of_part(modulus: &Modulus, tag: &[u8], part: &[u8]) -> Exponent {
    modulus.exponent(&[&[1], tag, part])
}

/// A secret key. The type does not protect the key, so it must not hold a real secret.
#[derive(Clone)]
pub struct SecretKey {
    trapdoor: Trapdoor,
    public: PublicKey,
}

impl SecretKey {
    /// Generates the accumulator of a key whose modulus has these factors, and whose tags have
    /// [`TAG`] bytes.
    pub fn generate(trapdoor: Trapdoor, rng: &mut impl CryptoRng) -> Self {
        let modulus = trapdoor.modulus().clone();
        let accumulator = modulus.random_square(rng);
        Self { trapdoor, public: PublicKey { modulus, accumulator, tag: TAG } }
    }

    /// Creates a key with a given accumulator and length of tags. The accumulator must be a square
    /// modulo the modulus, which is not checked.
    ///
    /// # Errors
    /// `Number` if the accumulator is not an element modulo the modulus.
    pub fn new(trapdoor: Trapdoor, accumulator: Element, tag: usize) -> Result<Self, Refused> {
        let public = PublicKey::new(trapdoor.modulus().clone(), accumulator, tag)?;
        Ok(Self { trapdoor, public })
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a set of parts. The signer must never use a tag for two messages, because they could be
    /// merged.
    ///
    /// # Errors
    /// `TagLength` or `NoRoot`.
    pub fn sign<'p>(
        &self,
        tag: &[u8],
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<Signed, Refused> {
        if tag.len() != self.public.tag {
            return Err(Refused::TagLength);
        }
        let tag_witness = self.root(&of_tag(&self.public.modulus, tag))?;
        let mut signed = Signed { tag: tag.to_vec(), tag_witness, parts: BTreeMap::new() };
        self.add(&mut signed, parts)?;
        Ok(signed)
    }

    /// Verifies a message, and adds parts to it.
    ///
    /// # Errors
    /// The errors of [`PublicKey::verify`], and `NoRoot`. The message is then unchanged.
    pub fn update<'p>(
        &self,
        signed: &mut Signed,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<(), Refused> {
        self.public.verify(signed)?;
        self.add(signed, parts)
    }

    fn add<'p>(
        &self,
        signed: &mut Signed,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<(), Refused> {
        let added: Result<Vec<_>, Refused> = parts
            .into_iter()
            .map(|part| {
                let exponent = of_part(&self.public.modulus, &signed.tag, part);
                Ok((part.to_vec(), self.root(&exponent)?))
            })
            .collect();
        signed.parts.extend(added?);
        Ok(())
    }

    fn root(&self, exponent: &Exponent) -> Result<Element, Refused> {
        self.trapdoor.root(&self.public.accumulator, exponent).ok_or(Refused::NoRoot)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("public", &self.public).finish_non_exhaustive()
    }
}
