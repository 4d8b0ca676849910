//! Signature suites behind one type each for public and secret keys: Ed25519, ESP256, and ML-DSA-44 on hosts.

/// A fully specified algorithm (RFC 9864; ML-DSA-44 from the COSE registry).
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
    /// The number in the COSE registry.
    #[must_use]
    pub const fn cose(self) -> i64 {
        match self {
            Self::Ed25519 => -19,
            Self::Esp256 => -9,
            Self::MlDsa44 => -48,
        }
    }

    /// The algorithm of a COSE number.
    #[must_use]
    pub const fn from_cose(number: i64) -> Option<Self> {
        match number {
            -19 => Some(Self::Ed25519),
            -9 => Some(Self::Esp256),
            -48 => Some(Self::MlDsa44),
            _ => None,
        }
    }

    /// Bytes of a signature.
    #[must_use]
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Ed25519 | Self::Esp256 => 64,
            Self::MlDsa44 => 2420,
        }
    }
}
