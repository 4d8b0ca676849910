//! Keys in DER: `PrivateKeyInfo` (PKCS#8, RFC 5958) and `SubjectPublicKeyInfo` (RFC 5280) of the
//! three suites.
//!
//! Ed25519 keys follow RFC 8410, P-256 keys RFC 5915 and RFC 5480, and ML-DSA-44 keys RFC 9881. The
//! writer produces the same bytes as openssl, with ML-DSA keys in seed form. The reader also
//! accepts the other forms that openssl writes: private keys with or without the public key, and
//! ML-DSA keys with both seed and expanded key. Only the DER types that these structures use are
//! implemented.

use zeroize::Zeroizing;

use crate::signature::{Algorithm, KeyError, PublicKey, SecretKey, Signer};

/// Length of the longest key in DER that this module or openssl writes.
pub const MAX_DER: usize = if cfg!(feature = "host") { 4096 } else { 256 };

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;
/// The context-specific tags `[0]` and `[1]`. The first two constants are the primitive form, for
/// implicitly tagged strings. The last two are the constructed form, for explicitly tagged elements
/// and attributes.
const CONTEXT_0: u8 = 0x80;
const CONTEXT_1: u8 = 0x81;
pub(super) const CONTEXT_0_CONSTRUCTED: u8 = 0xa0;
const CONTEXT_1_CONSTRUCTED: u8 = 0xa1;

/// Returns the contents of an `AlgorithmIdentifier`: the object identifier and its parameters.
pub(super) const fn identifier(algorithm: Algorithm) -> &'static [u8] {
    match algorithm {
        // 1.3.101.112
        Algorithm::Ed25519 => &[0x06, 3, 0x2b, 0x65, 0x70],
        // 1.2.840.10045.2.1 with 1.2.840.10045.3.1.7
        Algorithm::Esp256 => P256_IDENTIFIER,
        // 2.16.840.1.101.3.4.3.17
        Algorithm::MlDsa44 => &[0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11],
    }
}

const P256_IDENTIFIER: &[u8] =
    &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// The object identifier of the curve P-256 alone. An `ECPrivateKey` may contain it.
const P256_CURVE: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// A reader of DER elements. It holds the bytes that have not been read yet.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// Returns the contents of the next element, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Result<&'a [u8], KeyError> {
        let [found, first, rest @ ..] = self.0 else { return Err(KeyError::MalformedDer) };
        let (length, rest) = match (*first, rest) {
            (length @ 0..=0x7f, rest) => (usize::from(length), rest),
            (0x81, &[length @ 0x80..=0xff, ref rest @ ..]) => (usize::from(length), rest),
            (0x82, &[high @ 1..=0xff, low, ref rest @ ..]) => {
                (usize::from(u16::from_be_bytes([high, low])), rest)
            }
            _ => return Err(KeyError::MalformedDer),
        };
        if *found != tag || length > rest.len() {
            return Err(KeyError::MalformedDer);
        }
        let (contents, rest) = rest.split_at(length);
        self.0 = rest;
        Ok(contents)
    }

    /// Returns the contents of the next element if it has this tag.
    fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, KeyError> {
        if self.0.first() == Some(&tag) { self.take(tag).map(Some) } else { Ok(None) }
    }

    /// Reads a nested sequence and returns a reader for its contents.
    pub(super) fn sequence(&mut self) -> Result<Self, KeyError> {
        self.take(SEQUENCE).map(Self)
    }

    /// Returns the suite of an `AlgorithmIdentifier`.
    fn algorithm(&mut self) -> Result<Algorithm, KeyError> {
        let found = self.take(SEQUENCE)?;
        Algorithm::ALL
            .into_iter()
            .find(|&algorithm| identifier(algorithm) == found)
            .ok_or(KeyError::UnknownAlgorithm)
    }

    /// Reads a `SubjectPublicKeyInfo`.
    pub(super) fn public_key(&mut self) -> Result<PublicKey, KeyError> {
        let mut info = self.sequence()?;
        let algorithm = info.algorithm()?;
        let key = octets(info.take(BIT_STRING)?)?;
        info.end()?;
        PublicKey::from_bytes(algorithm, key)
    }

    pub(super) fn end(&self) -> Result<(), KeyError> {
        if self.0.is_empty() { Ok(()) } else { Err(KeyError::MalformedDer) }
    }
}

/// Returns the octets of a bit string that has no unused bits.
pub(super) fn octets(bits: &[u8]) -> Result<&[u8], KeyError> {
    bits.strip_prefix(&[0]).ok_or(KeyError::MalformedDer)
}

/// Reads a `SubjectPublicKeyInfo`.
///
/// # Errors
/// `MalformedDer`, `UnknownAlgorithm`, `KeyLength` or `InvalidPublicKey`.
pub fn decode_public_der(der: &[u8]) -> Result<PublicKey, KeyError> {
    let mut outer = Der(der);
    let key = outer.public_key()?;
    outer.end()?;
    Ok(key)
}

/// Reads a `PrivateKeyInfo`.
///
/// # Errors
/// `MalformedDer`, `UnknownAlgorithm`, `KeyLength`, `InvalidSecretKey`, `SeedMissing`, or
/// `KeyPairMismatch` if the structure has a public key that does not belong to the private key.
pub fn decode_secret_der(der: &[u8]) -> Result<SecretKey, KeyError> {
    let mut outer = Der(der);
    let mut info = outer.sequence()?;
    outer.end()?;
    let version = info.take(INTEGER)?;
    let algorithm = info.algorithm()?;
    let private = info.take(OCTET_STRING)?;
    info.optional(CONTEXT_0_CONSTRUCTED)?;
    let mut public = info.optional(CONTEXT_1)?.map(octets).transpose()?;
    info.end()?;
    if version != [u8::from(public.is_some())] {
        return Err(KeyError::MalformedDer);
    }
    let key = match algorithm {
        Algorithm::Ed25519 => {
            let mut inner = Der(private);
            let seed = inner.take(OCTET_STRING)?;
            inner.end()?;
            SecretKey::from_bytes(algorithm, seed)?
        }
        Algorithm::Esp256 => {
            let mut outer = Der(private);
            let mut inner = outer.sequence()?;
            outer.end()?;
            if inner.take(INTEGER)? != [1] {
                return Err(KeyError::MalformedDer);
            }
            let scalar = inner.take(OCTET_STRING)?;
            if inner.optional(CONTEXT_0_CONSTRUCTED)?.is_some_and(|curve| curve != P256_CURVE) {
                return Err(KeyError::UnknownAlgorithm);
            }
            if let Some(explicit) = inner.optional(CONTEXT_1_CONSTRUCTED)? {
                let mut explicit = Der(explicit);
                public = Some(octets(explicit.take(BIT_STRING)?)?);
                explicit.end()?;
            }
            inner.end()?;
            SecretKey::from_bytes(algorithm, scalar)?
        }
        Algorithm::MlDsa44 => decode_lattice(private)?,
    };
    match public {
        Some(public) if *key.public().to_bytes() != *public => Err(KeyError::KeyPairMismatch),
        _ => Ok(key),
    }
}

/// Reads an `ML-DSA-44-PrivateKey` (RFC 9881, section 6): the seed, or both the seed and the
/// expanded key.
fn decode_lattice(private: &[u8]) -> Result<SecretKey, KeyError> {
    let mut inner = Der(private);
    if let Some(seed) = inner.optional(CONTEXT_0)? {
        inner.end()?;
        return SecretKey::from_bytes(Algorithm::MlDsa44, seed);
    }
    if inner.optional(OCTET_STRING)?.is_some() {
        return Err(KeyError::SeedMissing);
    }
    let mut both = inner.sequence()?;
    inner.end()?;
    let key = SecretKey::from_bytes(Algorithm::MlDsa44, both.take(OCTET_STRING)?)?;
    let expanded = both.take(OCTET_STRING)?;
    both.end()?;
    if key.is_expanded_as(expanded) { Ok(key) } else { Err(KeyError::KeyPairMismatch) }
}

/// Writes DER from the end of a buffer towards its start, so that each length is known when its
/// head is written.
struct Backwards<'b> {
    buffer: &'b mut [u8],
    at: usize,
}

impl<'b> Backwards<'b> {
    const fn new(buffer: &'b mut [u8]) -> Self {
        let at = buffer.len();
        Self { buffer, at }
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), KeyError> {
        let start = self.at.checked_sub(bytes.len()).ok_or(KeyError::BufferTooSmall)?;
        self.buffer[start..self.at].copy_from_slice(bytes);
        self.at = start;
        Ok(())
    }

    /// Writes the head of an element. Its contents are the bytes that were written since the write
    /// position was `end`.
    #[allow(clippy::cast_possible_truncation)]
    fn head(&mut self, tag: u8, end: usize) -> Result<(), KeyError> {
        let length = end - self.at;
        match length {
            0..=0x7f => self.raw(&[tag, length as u8]),
            0x80..=0xff => self.raw(&[tag, 0x81, length as u8]),
            // Keys are far shorter than 64 KiB.
            _ => self.raw(&[tag, 0x82, (length >> 8) as u8, length as u8]),
        }
    }

    fn element(&mut self, tag: u8, contents: &[u8]) -> Result<(), KeyError> {
        let end = self.at;
        self.raw(contents)?;
        self.head(tag, end)
    }

    fn bit_string(&mut self, contents: &[u8]) -> Result<(), KeyError> {
        let end = self.at;
        self.raw(contents)?;
        self.raw(&[0])?;
        self.head(BIT_STRING, end)
    }

    /// Moves the written bytes to the start of the buffer and returns them.
    fn finish(self) -> &'b [u8] {
        let length = self.buffer.len() - self.at;
        self.buffer.copy_within(self.at.., 0);
        &self.buffer[..length]
    }
}

/// Writes a `SubjectPublicKeyInfo` to `out` ([`MAX_DER`] bytes suffice).
///
/// # Errors
/// `BufferTooSmall`.
pub fn encode_public_der<'o>(key: &PublicKey, out: &'o mut [u8]) -> Result<&'o [u8], KeyError> {
    let mut der = Backwards::new(out);
    let end = der.at;
    der.bit_string(&key.to_bytes())?;
    der.element(SEQUENCE, identifier(key.algorithm()))?;
    der.head(SEQUENCE, end)?;
    Ok(der.finish())
}

/// Writes a `PrivateKeyInfo` to `out`. The caller must zero it after use.
///
/// # Errors
/// `BufferTooSmall`; [`MAX_DER`] bytes suffice.
pub fn encode_secret_der<'o>(key: &SecretKey, out: &'o mut [u8]) -> Result<&'o [u8], KeyError> {
    // Use a separate buffer: moving the key to the front of `out` would leave a copy of the secret
    // in the rest of `out`.
    let mut scratch = Zeroizing::new([0; 192]);
    let mut der = Backwards::new(&mut *scratch);
    let end = der.at;
    let secret = key.to_bytes();
    match key.algorithm() {
        Algorithm::Ed25519 => der.element(OCTET_STRING, &*secret)?,
        Algorithm::Esp256 => {
            der.bit_string(&key.public().to_bytes())?;
            der.head(CONTEXT_1_CONSTRUCTED, end)?;
            der.element(OCTET_STRING, &*secret)?;
            der.element(INTEGER, &[1])?;
            der.head(SEQUENCE, end)?;
        }
        Algorithm::MlDsa44 => der.element(CONTEXT_0, &*secret)?,
    }
    der.head(OCTET_STRING, end)?;
    der.element(SEQUENCE, identifier(key.algorithm()))?;
    der.element(INTEGER, &[0])?;
    der.head(SEQUENCE, end)?;
    let written = &der.buffer[der.at..];
    let out = out.get_mut(..written.len()).ok_or(KeyError::BufferTooSmall)?;
    out.copy_from_slice(written);
    Ok(out)
}
