//! Signature suites: Ed25519, ESP256, and, on hosts, ML-DSA-44. One type represents the public keys
//! of all suites, and another type represents the secret keys.
//!
//! A mote builds in only the suite that it uses (features `ed25519` and `esp256`), because each
//! suite takes tens of kilobytes of flash. Ed25519 (RFC 8032) is verified strictly, ECDSA on P-256
//! accepts only low `s`, and ML-DSA-44 (FIPS 204) is used in its pure variant, with an empty
//! context (spec/objects.md, section 2.2). Signatures are deterministic in every suite, so that a
//! mote needs no randomness to sign. Key files are read and written by
//! [`identity`](crate::identity).

use core::fmt;

#[cfg(feature = "ed25519")]
use ed25519_dalek::{Signer as _, Verifier as _};
#[cfg(all(feature = "esp256", not(feature = "ed25519")))]
use p256::ecdsa::signature::{Signer as _, Verifier as _};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::digest::Digest;

#[cfg(not(any(feature = "ed25519", feature = "esp256")))]
compile_error!("choose a suite: the feature ed25519 or esp256");

#[cfg(feature = "host")]
mod lattice;

/// Length of the longest signature of the built-in suites, in bytes.
pub const MAX_SIGNATURE: usize = if cfg!(feature = "host") { 2420 } else { 64 };
/// Length of the longest raw public key of the built-in suites, in bytes.
pub const MAX_PUBLIC_KEY: usize = if cfg!(feature = "host") { 1312 } else { 65 };

/// A signature suite: a fully specified algorithm of COSE (RFC 9864; ML-DSA-44 is from the COSE
/// registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Ed25519 (RFC 8032), verified strictly.
    Ed25519,
    /// ECDSA on P-256 with SHA-256, low `s` only.
    Esp256,
    /// ML-DSA-44 (FIPS 204), pure, empty context.
    MlDsa44,
}

impl Algorithm {
    /// All suites that the formats define, whether or not they are built in.
    pub const ALL: [Self; 3] = [Self::Ed25519, Self::Esp256, Self::MlDsa44];

    /// Returns the number of the algorithm in the COSE registry.
    #[must_use]
    pub const fn cose(self) -> i64 {
        match self {
            Self::Ed25519 => -19,
            Self::Esp256 => -9,
            Self::MlDsa44 => -48,
        }
    }

    /// Returns the algorithm with this number in the COSE registry.
    #[must_use]
    pub const fn from_cose(number: i64) -> Option<Self> {
        match number {
            -19 => Some(Self::Ed25519),
            -9 => Some(Self::Esp256),
            -48 => Some(Self::MlDsa44),
            _ => None,
        }
    }

    /// Returns the name of the algorithm on command lines: `ed25519`, `esp256` or `ml-dsa-44`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Esp256 => "esp256",
            Self::MlDsa44 => "ml-dsa-44",
        }
    }

    /// Returns the algorithm with this name on command lines.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the length of a signature in bytes.
    #[must_use]
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Ed25519 | Self::Esp256 => 64,
            Self::MlDsa44 => 2420,
        }
    }

    /// Returns the length of a raw public key in bytes (spec/objects.md, section 2.2).
    #[must_use]
    pub const fn public_key_length(self) -> usize {
        match self {
            Self::Ed25519 => 32,
            Self::Esp256 => 65,
            Self::MlDsa44 => 1312,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

named_errors! {
    /// Why bytes are not a usable key.
    KeyError {
        /// The suite does not exist in the formats, or is not built in (features `ed25519`,
        /// `esp256`, and `host` for ML-DSA-44).
        UnknownAlgorithm =>
            "the key's algorithm is not Ed25519, P-256 or ML-DSA-44, or it is not built in",
        /// The number of bytes is not the length of a key of this suite.
        KeyLength => "the key's length is wrong for its algorithm",
        /// The bytes are not the canonical encoding of a point on the suite's curve, or they encode
        /// a point of small order, under which forgeries verify.
        InvalidPublicKey => "the public key is not a valid point of its curve",
        /// The secret scalar is zero or not below the curve's order.
        InvalidSecretKey => "the private key is out of range for its curve",
        /// The bytes are not the DER of a `PrivateKeyInfo` or `SubjectPublicKeyInfo`.
        MalformedDer =>
            "the key is not in PKCS#8 (private) or SubjectPublicKeyInfo (public) form",
        /// The text is not exactly one PEM block (RFC 7468).
        MalformedPem => "the file does not consist of exactly one PEM block",
        /// The PEM block does not have the expected label: it contains a public key instead of a
        /// private one, or a private key in an older format.
        WrongPemLabel => "the PEM block has the wrong label; it must be PRIVATE KEY for a \
            private key (unencrypted PKCS#8, as `openssl pkey` writes), PUBLIC KEY for a \
            public key, CERTIFICATE REQUEST for a certificate request",
        /// The ML-DSA private key has only the expanded form, without the seed.
        SeedMissing => "the ML-DSA private key has no seed; export it again in seed form",
        /// The public part of the key file does not belong to its private part.
        KeyPairMismatch => "the file's public key does not belong to its private key",
        /// The bytes are not the DER of a `CertificationRequest`.
        MalformedRequest => "the certificate request is not in PKCS#10 form (RFC 2986, DER); make \
            it again, for example with `openssl req -new`",
        /// The certificate request is longer than `identity::MAX_REQUEST`.
        RequestTooLong => "the certificate request is longer than 8,192 bytes; make it again \
            without extensions",
        /// The certificate request is signed with another algorithm than the one that the formats
        /// use with its key.
        AlgorithmMismatch => "the certificate request has another signature algorithm than its \
            key requires; make it again, for a P-256 key with SHA-256",
        /// The signature of the certificate request was not made with the secret key that belongs
        /// to its public key, or the request was modified.
        RequestNotAuthentic => "the certificate request is not signed with the secret key of its \
            public key; make it again with the device's secret key, and copy it unchanged",
        /// The output buffer is too small.
        BufferTooSmall => "the key does not fit the buffer",
    }
}

named_errors! {
    /// Why a signature was rejected.
    SignatureError {
        /// The length of the signature is wrong for the key's algorithm.
        MalformedSignature => "the signature's length is wrong for its algorithm",
        /// The ECDSA signature is valid but has `s` in the upper half of the range. Anyone can
        /// compute it from the signature with `s` in the lower half.
        HighS => "the ECDSA signature has s in the upper half of its range",
        /// The signature was not made with this key over this message.
        NotAuthentic => "the signature was not made with this key over these bytes",
    }
}

/// The canonical encodings of the eight points of small order on edwards25519.
///
/// Strict verification rejects them as `R` and as public keys, and rejects every encoding that is
/// not canonical. For these checks, the `verify_strict` of `ed25519_dalek` decompresses `R`, which
/// takes a third of the verification time. Its `verify` instead compares `R` with an encoding that
/// it computes, so a signature that passes has a canonical `R`. Comparing that encoding with this
/// table therefore gives the same result as `verify_strict`.
#[cfg(feature = "ed25519")]
const SMALL_ORDER: [[u8; 32]; 8] = {
    const fn with(mut bytes: [u8; 32], first: u8, last: u8) -> [u8; 32] {
        bytes[0] = first;
        bytes[31] = last;
        bytes
    }
    // The y coordinates of the points of order 8.
    const LOW: [u8; 32] = [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ];
    const HIGH: [u8; 32] = [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ];
    [
        with([0; 32], 0x01, 0x00),
        with([0xff; 32], 0xec, 0x7f),
        [0; 32],
        with([0; 32], 0x00, 0x80),
        LOW,
        with(LOW, 0x26, 0x85),
        HIGH,
        with(HIGH, 0xc7, 0xfa),
    ]
};

/// A public key, prepared for repeated verification.
///
/// Curve points are decompressed here, once. ML-DSA-44 keys stay encoded, because their expanded
/// form takes 24 KiB.
#[derive(Clone)]
pub struct PublicKey(Public);

#[derive(Clone)]
enum Public {
    #[cfg(feature = "ed25519")]
    Ed25519(ed25519_dalek::VerifyingKey),
    #[cfg(feature = "esp256")]
    Esp256(p256::ecdsa::VerifyingKey),
    #[cfg(feature = "host")]
    MlDsa44(lattice::PublicKey),
}

impl PublicKey {
    /// Reads a raw public key (spec/objects.md, section 2.2).
    ///
    /// # Errors
    /// `UnknownAlgorithm`, `KeyLength` or `InvalidPublicKey`.
    pub fn from_bytes(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, KeyError> {
        match algorithm {
            #[cfg(feature = "ed25519")]
            Algorithm::Ed25519 => {
                let bytes = bytes.try_into().map_err(|_| KeyError::KeyLength)?;
                let key = ed25519_dalek::VerifyingKey::from_bytes(bytes)
                    .map_err(|_| KeyError::InvalidPublicKey)?;
                // `ed25519_dalek` accepts encodings that RFC 8032 rejects. Reject them here, so
                // that each key has only one encoding.
                if key.is_weak() || key.to_edwards().compress().as_bytes() != bytes {
                    return Err(KeyError::InvalidPublicKey);
                }
                Ok(Self(Public::Ed25519(key)))
            }
            #[cfg(feature = "esp256")]
            Algorithm::Esp256 => {
                if bytes.len() != algorithm.public_key_length() {
                    return Err(KeyError::KeyLength);
                }
                // 0x04 marks the uncompressed form. SEC 1 also has a hybrid form of the same
                // length, which is rejected.
                let key = (bytes[0] == 4)
                    .then(|| p256::ecdsa::VerifyingKey::from_sec1_bytes(bytes).ok())
                    .flatten();
                key.map(|key| Self(Public::Esp256(key))).ok_or(KeyError::InvalidPublicKey)
            }
            #[cfg(feature = "host")]
            Algorithm::MlDsa44 => {
                lattice::PublicKey::from_bytes(bytes).map(|key| Self(Public::MlDsa44(key)))
            }
            #[allow(unreachable_patterns)]
            _ => Err(KeyError::UnknownAlgorithm),
        }
    }

    /// Returns the suite of the key.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self.0 {
            #[cfg(feature = "ed25519")]
            Public::Ed25519(_) => Algorithm::Ed25519,
            #[cfg(feature = "esp256")]
            Public::Esp256(_) => Algorithm::Esp256,
            #[cfg(feature = "host")]
            Public::MlDsa44(_) => Algorithm::MlDsa44,
        }
    }

    /// Returns the raw key (spec/objects.md, section 2.2).
    #[must_use]
    pub fn to_bytes(&self) -> PublicKeyBytes {
        match &self.0 {
            #[cfg(feature = "ed25519")]
            Public::Ed25519(key) => PublicKeyBytes::new(key.as_bytes()),
            #[cfg(feature = "esp256")]
            Public::Esp256(key) => PublicKeyBytes::new(key.to_sec1_point(false).as_bytes()),
            #[cfg(feature = "host")]
            Public::MlDsa44(key) => PublicKeyBytes::new(key.as_bytes()),
        }
    }

    /// Checks a signature over `message`.
    ///
    /// # Errors
    /// `MalformedSignature` for a wrong length, `HighS` for a valid ECDSA signature with `s` in the
    /// upper half, otherwise `NotAuthentic`.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        if signature.len() != self.algorithm().signature_length() {
            return Err(SignatureError::MalformedSignature);
        }
        match &self.0 {
            #[cfg(feature = "ed25519")]
            Public::Ed25519(key) => {
                let signature = ed25519_dalek::Signature::from_slice(signature)
                    .map_err(|_| SignatureError::NotAuthentic)?;
                if SMALL_ORDER.contains(signature.r_bytes()) {
                    return Err(SignatureError::NotAuthentic);
                }
                key.verify(message, &signature).map_err(|_| SignatureError::NotAuthentic)
            }
            #[cfg(feature = "esp256")]
            Public::Esp256(key) => {
                // This fails if r or s is zero or not below the order.
                let signature = p256::ecdsa::Signature::from_slice(signature)
                    .map_err(|_| SignatureError::NotAuthentic)?;
                key.verify(message, &signature).map_err(|_| SignatureError::NotAuthentic)?;
                if signature.normalize_s() == signature {
                    Ok(())
                } else {
                    Err(SignatureError::HighS)
                }
            }
            #[cfg(feature = "host")]
            Public::MlDsa44(key) => key.verify(message, signature),
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm() == other.algorithm() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm(), Digest::of(&[&self.to_bytes()]))
    }
}

/// At most `N` bytes, stored without a heap.
#[derive(Clone, PartialEq, Eq)]
pub struct Bounded<const N: usize> {
    // The bytes from `length` on are zero, so comparing the fields compares the contents.
    bytes: [u8; N],
    length: usize,
}

/// A raw public key.
pub type PublicKeyBytes = Bounded<MAX_PUBLIC_KEY>;
/// A signature.
pub type Signature = Bounded<MAX_SIGNATURE>;

impl<const N: usize> Bounded<N> {
    /// Copies `bytes`, which must be at most `N` bytes.
    fn new(bytes: &[u8]) -> Self {
        let mut out = Self { bytes: [0; N], length: bytes.len() };
        out.bytes[..bytes.len()].copy_from_slice(bytes);
        out
    }

    /// Returns a copy of `bytes`, or `None` if there are more than `N`.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= N).then(|| Self::new(bytes))
    }
}

impl<const N: usize> core::ops::Deref for Bounded<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const N: usize> AsRef<[u8]> for Bounded<N> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> fmt::Debug for Bounded<N> {
    /// Writes hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

named_errors! {
    /// Why a signer did not sign.
    SignError {
        /// The buffer is shorter than [`Algorithm::signature_length`].
        BufferTooSmall => "the signature does not fit the buffer",
        /// The signer, for example a secure element or an agent, failed.
        Refused => "the signer failed to sign",
    }
}

/// Makes signatures with one key. A [`SecretKey`] is a signer; a secure element or an agent can
/// also be a signer.
pub trait Signer {
    /// Returns the suite of the signatures.
    fn algorithm(&self) -> Algorithm;

    /// Writes a signature over `message` to the start of `signature` and returns its length.
    ///
    /// # Errors
    /// `BufferTooSmall` if `signature` is shorter than [`Algorithm::signature_length`]; `Refused`
    /// if the signer fails.
    fn sign(&self, message: &[u8], signature: &mut [u8]) -> Result<usize, SignError>;

    /// Returns a signature over `message`.
    ///
    /// # Errors
    /// The errors of [`Signer::sign`].
    fn signature(&self, message: &[u8]) -> Result<Signature, SignError> {
        let mut out = Signature { bytes: [0; MAX_SIGNATURE], length: 0 };
        out.length = self.sign(message, &mut out.bytes)?;
        Ok(out)
    }
}

/// A [`Signer`] that can return its public key, for signed objects that contain that key.
pub trait KeyPair: Signer {
    /// Returns the public key.
    fn public_key(&self) -> PublicKey;
}

/// A secret key. `Debug` does not print it, and it is zeroed when dropped.
#[derive(Clone)]
pub struct SecretKey(Secret);

#[derive(Clone)]
#[cfg_attr(feature = "host", allow(clippy::large_enum_variant))]
enum Secret {
    #[cfg(feature = "ed25519")]
    Ed25519(ed25519_dalek::SigningKey),
    #[cfg(feature = "esp256")]
    Esp256(p256::ecdsa::SigningKey),
    #[cfg(feature = "host")]
    MlDsa44(lattice::SecretKey),
}

impl SecretKey {
    /// Returns the key that is derived from 32 uniformly random bytes.
    ///
    /// # Errors
    /// `UnknownAlgorithm` if the suite is not built in.
    pub fn from_seed(algorithm: Algorithm, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new(*seed);
        loop {
            match Self::from_bytes(algorithm, &*seed) {
                // About one seed in 2^32 is not a valid P-256 scalar. Use its digest instead, which
                // almost certainly is valid.
                Err(KeyError::InvalidSecretKey) => {
                    *seed = Digest::of(&[b"moteseal/1/seed\0", &*seed]).0;
                }
                result => return result,
            }
        }
    }

    /// Creates a key from the 32 bytes that a private key file contains: the Ed25519 seed, the
    /// P-256 scalar (big-endian) or the ML-DSA seed.
    ///
    /// # Errors
    /// `UnknownAlgorithm`, `KeyLength`, or `InvalidSecretKey` for a P-256 scalar out of range.
    pub fn from_bytes(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes: &[u8; 32] = bytes.try_into().map_err(|_| KeyError::KeyLength)?;
        match algorithm {
            #[cfg(feature = "ed25519")]
            Algorithm::Ed25519 => {
                Ok(Self(Secret::Ed25519(ed25519_dalek::SigningKey::from_bytes(bytes))))
            }
            #[cfg(feature = "esp256")]
            Algorithm::Esp256 => p256::ecdsa::SigningKey::from_slice(bytes)
                .map(|key| Self(Secret::Esp256(key)))
                .map_err(|_| KeyError::InvalidSecretKey),
            #[cfg(feature = "host")]
            Algorithm::MlDsa44 => Ok(Self(Secret::MlDsa44(lattice::SecretKey::from_seed(bytes)))),
            #[allow(unreachable_patterns)]
            _ => Err(KeyError::UnknownAlgorithm),
        }
    }

    /// Returns the 32 bytes that [`SecretKey::from_bytes`] reads, zeroed when dropped.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        match &self.0 {
            #[cfg(feature = "ed25519")]
            Secret::Ed25519(key) => Zeroizing::new(key.to_bytes()),
            #[cfg(feature = "esp256")]
            Secret::Esp256(key) => Zeroizing::new(key.to_bytes().into()),
            #[cfg(feature = "host")]
            Secret::MlDsa44(key) => Zeroizing::new(*key.seed()),
        }
    }

    /// Returns whether `expanded` is this key in the expanded form of FIPS 204. Returns false for
    /// suites without such a form.
    pub(crate) fn is_expanded_as(&self, expanded: &[u8]) -> bool {
        match &self.0 {
            #[cfg(feature = "host")]
            Secret::MlDsa44(key) => key.is_expanded_as(expanded),
            _ => {
                let _ = expanded;
                false
            }
        }
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(match &self.0 {
            #[cfg(feature = "ed25519")]
            Secret::Ed25519(key) => Public::Ed25519(key.verifying_key()),
            #[cfg(feature = "esp256")]
            Secret::Esp256(key) => Public::Esp256(*key.verifying_key()),
            #[cfg(feature = "host")]
            Secret::MlDsa44(key) => Public::MlDsa44(key.public()),
        })
    }
}

impl Signer for SecretKey {
    fn algorithm(&self) -> Algorithm {
        match self.0 {
            #[cfg(feature = "ed25519")]
            Secret::Ed25519(_) => Algorithm::Ed25519,
            #[cfg(feature = "esp256")]
            Secret::Esp256(_) => Algorithm::Esp256,
            #[cfg(feature = "host")]
            Secret::MlDsa44(_) => Algorithm::MlDsa44,
        }
    }

    fn sign(&self, message: &[u8], signature: &mut [u8]) -> Result<usize, SignError> {
        let length = self.algorithm().signature_length();
        let out = signature.get_mut(..length).ok_or(SignError::BufferTooSmall)?;
        match &self.0 {
            #[cfg(feature = "ed25519")]
            Secret::Ed25519(key) => out.copy_from_slice(&key.sign(message).to_bytes()),
            #[cfg(feature = "esp256")]
            Secret::Esp256(key) => {
                // RFC 6979, section 3.2: the nonce is a function of the key and the message.
                let signature: p256::ecdsa::Signature =
                    key.try_sign(message).map_err(|_| SignError::Refused)?;
                out.copy_from_slice(&signature.normalize_s().to_bytes());
            }
            #[cfg(feature = "host")]
            Secret::MlDsa44(key) => key.sign(message, out)?,
        }
        Ok(length)
    }
}

impl KeyPair for SecretKey {
    fn public_key(&self) -> PublicKey {
        self.public()
    }
}

// The key of each suite zeroes itself when it is dropped.
impl ZeroizeOnDrop for SecretKey {}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({} secret)", self.algorithm())
    }
}

#[cfg(test)]
mod tests;
