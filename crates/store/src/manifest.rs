//! A coordinator's manifest of an epoch as a store keeps it: the signed object, byte for byte
//! (`spec/coordinator.md`, section 3).
//!
//! Manifests are verified before they are stored. Clients and [`check`](crate::check) verify them
//! again when they read them.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Manifest;

/// The key of a manifest. It includes the digest of the signed object, because a coordinator can
/// sign two manifests of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestKey {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The digest of the signed object: [`Manifest::digest`].
    pub digest: Digest,
}

impl ManifestKey {
    /// The length of the array that [`to_bytes`](Self::to_bytes) returns.
    pub const LENGTH: usize = 8 + 32;

    /// Encodes the key as epoch (big-endian) and digest. The encodings sort in the same order as
    /// the keys.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.epoch.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.digest.0);
        bytes
    }

    /// Decodes a key that [`to_bytes`](Self::to_bytes) encoded.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut key = Self { epoch: EpochNumber(0), digest: Digest::NULL };
        let (epoch, digest) = bytes.split_at(8);
        key.epoch.0 = epoch.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        key.digest.0.copy_from_slice(digest);
        key
    }
}

impl fmt::Display for ManifestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the manifest {} of epoch {}", self.digest, self.epoch)
    }
}

/// A manifest as a store keeps it: its key and the signed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    pub(crate) key: ManifestKey,
    pub(crate) bytes: Vec<u8>,
}

impl StoredManifest {
    /// Returns the stored form of a verified manifest. `bytes` is the tagged `COSE_Sign1` from
    /// which the manifest was opened.
    #[must_use]
    pub fn new(manifest: &Manifest<'_>, bytes: &[u8]) -> Self {
        Self {
            key: ManifestKey { epoch: manifest.epoch(), digest: manifest.digest() },
            bytes: bytes.to_vec(),
        }
    }

    /// Returns the manifest with this key and these bytes, without a check. For implementations of
    /// [`EpochStore`](crate::EpochStore) that read their own data.
    #[must_use]
    pub const fn of_parts(key: ManifestKey, bytes: Vec<u8>) -> Self {
        Self { key, bytes }
    }

    /// Returns the key of the manifest.
    #[must_use]
    pub const fn key(&self) -> ManifestKey {
        self.key
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.key.epoch
    }

    /// Returns the signed object, a tagged `COSE_Sign1`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
