//! The key that encrypts one column of one seal, and the commitment to it (spec/confidential.md,
//! section 3).

use core::fmt;

use subtle::ConstantTimeEq;

use super::{ColumnId, Key, KeyAccessError, short_digest};

/// A cipher that encrypts a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// ChaCha20 (RFC 8439) with a 32-byte key.
    ChaCha20 = 1,
    /// AES-128 in counter mode (FIPS 197, NIST SP 800-38A), for devices that have it in hardware.
    Aes128Ctr = 2,
}

impl Suite {
    /// All suites, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::ChaCha20, Self::Aes128Ctr];

    /// Returns the number of the suite in schemas and in key derivation.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the suite with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| u64::from(suite.number()) == number)
    }

    /// Returns whether this build has the suite. ChaCha20 is in every build; AES-128-CTR needs the
    /// feature `aes128`.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        match self {
            Self::ChaCha20 => true,
            Self::Aes128Ctr => cfg!(feature = "aes128"),
        }
    }

    /// Returns the name of the suite in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChaCha20 => "chacha20",
            Self::Aes128Ctr => "aes-128-ctr",
        }
    }
}

/// The nonce of a seal: 12 bytes that the device draws at random when it opens the seal.
///
/// Two seals with the same index, as of a device whose storage was restored from a backup, have
/// different nonces and therefore different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 12]);

/// The commitment to a seal key: `H("moteseal/1/commit" || 0x00 || key)[..16]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commitment(pub [u8; 16]);

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The key that encrypts one column of one seal.
#[derive(Clone, Debug)]
pub struct SealKey {
    column: ColumnId,
    suite: Suite,
    key: Key,
}

impl SealKey {
    pub(super) const fn of(column: ColumnId, suite: Suite, key: Key) -> Self {
        Self { column, suite, key }
    }

    /// Creates a key from its secret bytes, such as those of a test vector. A reader derives it
    /// ([`EpochKey::seal_key`](super::EpochKey::seal_key)) and checks it against the seal's commitment.
    #[must_use]
    pub const fn from_bytes(column: ColumnId, suite: Suite, bytes: [u8; 32]) -> Self {
        Self { column, suite, key: Key(bytes) }
    }

    /// Returns the column that the key is for.
    #[must_use]
    pub const fn column(&self) -> ColumnId {
        self.column
    }

    /// Returns the cipher that the key is for.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns the secret bytes, for another implementation of the key stream.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.key.0
    }

    /// Returns the commitment, which the seal states.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        Commitment(short_digest(b"moteseal/1/commit", &self.key.0))
    }

    /// Checks the key against the commitment that a seal states, in constant time. A reader must
    /// check this before it decrypts.
    ///
    /// # Errors
    /// `WrongKey`.
    pub fn check(&self, stated: &Commitment) -> Result<(), KeyAccessError> {
        let is_equal = self.commitment().0.ct_eq(&stated.0);
        if bool::from(is_equal) { Ok(()) } else { Err(KeyAccessError::WrongKey) }
    }
}
