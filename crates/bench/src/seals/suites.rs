//! The suites of the paper's schemes: RSA-1024 and DSA-512 over MD5, SHA-1 and SHA-256, and ours
//! over SHA-256.

use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_research::paper_seal::{Hash, Md5, Sha1, Sha256};

use super::legacy::{DigestName, Dsa, Rsa};

/// A digest function, with AWS-LC's name for it.
pub(super) trait Named: Hash {
    const ID: DigestName;
}

impl Named for Md5 {
    const ID: DigestName = DigestName::Md5;
}

impl Named for Sha1 {
    const ID: DigestName = DigestName::Sha1;
}

impl Named for Sha256 {
    const ID: DigestName = DigestName::Sha256;
}

/// A key pair of any suite.
pub(super) enum Key {
    Rsa(Rsa),
    Dsa(Dsa),
    Ours(Box<(SecretKey, PublicKey)>),
}

impl Key {
    /// Creates a key of one of our suites.
    pub(super) fn ours(algorithm: Algorithm) -> Result<Self, String> {
        let key = SecretKey::from_seed(algorithm, &[7; 32]).map_err(|error| error.to_string())?;
        let public = key.public();
        Ok(Self::Ours(Box::new((key, public))))
    }

    /// Returns the name of the signature.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RSA-1024",
            Self::Dsa(_) => "DSA-512",
            Self::Ours(keys) => name(keys.0.algorithm()),
        }
    }

    /// Returns the length of a signature in bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Rsa(_) => Rsa::SIGNATURE,
            Self::Dsa(_) => Dsa::SIGNATURE,
            Self::Ours(keys) => keys.0.algorithm().signature_length(),
        }
    }

    /// Signs a digest computed by `H`.
    pub(super) fn sign<H: Named>(&self, digest: &[u8]) -> Vec<u8> {
        let signature = match self {
            Self::Rsa(key) => key.sign(H::ID, digest).ok(),
            Self::Dsa(key) => key.sign(H::ID, digest).ok(),
            Self::Ours(keys) => keys.0.signature(digest).ok().map(|signature| signature.to_vec()),
        };
        signature.expect("a key that was made signs digests of their length")
    }

    /// Returns whether a signature is valid.
    pub(super) fn verify<H: Named>(&self, digest: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa(key) => key.verify(H::ID, digest, signature),
            Self::Dsa(key) => key.verify(H::ID, digest, signature),
            Self::Ours(keys) => keys.1.verify(digest, signature).is_ok(),
        }
    }
}

/// Returns the name of an algorithm for people.
pub(super) const fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Ed25519 => "Ed25519",
        Algorithm::Esp256 => "P-256",
        Algorithm::MlDsa44 => "ML-DSA-44",
        _ => "another",
    }
}

/// Returns the name of the suite, such as `DSA-512 + MD5`.
pub(super) fn suite<H: Named>(key: &Key) -> &'static str {
    match (key.name(), H::NAME) {
        ("RSA-1024", "MD5") => "RSA-1024 + MD5",
        ("RSA-1024", "SHA-1") => "RSA-1024 + SHA-1",
        ("RSA-1024", _) => "RSA-1024 + SHA-256",
        ("DSA-512", "MD5") => "DSA-512 + MD5",
        ("DSA-512", "SHA-1") => "DSA-512 + SHA-1",
        ("DSA-512", _) => "DSA-512 + SHA-256",
        ("Ed25519", _) => "Ed25519 + SHA-256",
        ("P-256", _) => "P-256 + SHA-256",
        (_, _) => "ML-DSA-44 + SHA-256",
    }
}
