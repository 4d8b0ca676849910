//! Confidential readings: the keys and the key streams that encrypt columns of a device's records
//! (spec/confidential.md).
//!
//! A device encrypts the cells of an encrypted column before it seals the record. Digests and
//! signatures therefore cover the ciphertext, and everything but the readings themselves is
//! verified without a key. A reader decrypts the columns and epochs whose keys it has.
//!
//! Keys form a hierarchy. Each key is derived from the one above it by HMAC-SHA256:
//!
//! | key | of | type |
//! |---|---|---|
//! | stream secret | a device and its owner | [`StreamSecret`] |
//! | column root | a column | [`ColumnRoot`] |
//! | node | an aligned range of epochs of a column | [`Node`], [`Nodes`], [`Path`] |
//! | epoch key | one epoch of a column | [`EpochKey`] |
//! | seal key | one seal of a column | [`SealKey`] |
//!
//! The nodes of a column are a binary tree of depth 32 (the construction of Goldreich, Goldwasser
//! and Micali, 1986; for time ranges as in TimeCrypt, NSDI 2020). A node opens exactly the epochs
//! below it. A grant contains the nodes of its range ([`Nodes::cover`]), and a device keeps the
//! nodes of the present and the future only ([`Path`]).
//!
//! Every key is erased when it is dropped, and no `Debug` implementation prints one. Intermediate
//! states of SHA-256, and copies that the compiler makes on the stack, are not erased.
//!
//! ```
//! use moteseal_core::confidential::{ColumnId, Nonce, Nodes, StreamSecret, Suite};
//! use moteseal_core::{DeviceId, EpochNumber, SealIndex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, take the secret and the nonce from a source of randomness.
//! let secret = StreamSecret::new([1; 32], EpochNumber(1000));
//! let column = ColumnId::of(b"the encoded field");
//! let root = secret.column(column);
//!
//! // The owner grants the epochs 1005 to 1010.
//! let granted: Vec<_> = root.cover(EpochNumber(1005)..=EpochNumber(1010)).collect();
//! assert_eq!(granted.len(), 4);
//!
//! // A reader with the grant has the key of epoch 1007, but not that of epoch 1011.
//! let nodes = Nodes::new(column, EpochNumber(1000), &granted);
//! let key = nodes.epoch_key(EpochNumber(1007))?;
//! assert_eq!(nodes.epoch_key(EpochNumber(1011)).unwrap_err().name(), "NotCovered");
//!
//! // The device's key of the seal has the same commitment.
//! let place = (DeviceId::of("home", "thermometer"), SealIndex(3));
//! let mine = key.seal_key(place.0, place.1, Suite::ChaCha20, &Nonce([2; 12]));
//! let theirs = root
//!     .epoch_key(EpochNumber(1007))?
//!     .seal_key(place.0, place.1, Suite::ChaCha20, &Nonce([2; 12]));
//! assert!(mine.check(&theirs.commitment()).is_ok());
//! # Ok(())
//! # }
//! ```

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

mod column;
mod epoch_tree;
mod key_stream;
mod path;
mod record_cipher;
mod seal_key;
mod seal_keys;
mod sealed_keys;

pub use column::{ColumnId, ColumnRoot, StreamSecret};
pub use epoch_tree::{Cover, DEPTH, EpochKey, Node, Nodes};
pub use key_stream::{KeyStream, KeyStreamError};
pub use path::{PATH, Path};
pub use record_cipher::{CipherError, Decrypted, EncryptedColumns};
pub use seal_key::{Commitment, Nonce, SealKey, Suite};
pub use seal_keys::{KeyRequest, SealKeys};
pub use sealed_keys::{KeyCommitments, MAX_KEY_COMMITMENTS};

/// The largest number of encrypted columns in a schema.
pub const MAX_ENCRYPTED: usize = 16;

named_errors! {
    /// Why a key is not available.
    KeyAccessError {
        /// The epoch is before the base epoch, or more than 2^32-1 epochs after it.
        EpochOutOfKeyRange =>
            "the epoch is outside the range of the stream secret; provision the device anew",
        /// No node covers the epoch.
        NotCovered =>
            "no key of this column in this epoch; ask the owner for a grant of both",
        /// The group's epochs have changed since the grant was made, and the epoch is now outside the time
        /// that the owner has granted.
        GrantOutdated =>
            "the length of the group's epochs has changed since the grant was made; ask the owner for a new grant",
        /// The key of the epoch has been erased.
        KeyErased =>
            "the key of this epoch has been erased; to seal the epoch again, a device needs a new stream secret \
             (`moteseal owner add --from`)",
        /// The key does not have the commitment that the seal states.
        WrongKey => "the key is not the one that the device encrypted with",
    }
}

named_errors! {
    /// Why the encoding of a key was rejected.
    KeyEncodingError {
        /// The length, the position or the padding is not that of an encoded key.
        MalformedKey => "the stored key is damaged; restore it from a backup",
    }
}

/// A key of 32 bytes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Key([u8; 32]);

impl Key {
    /// Derives a key: `HMAC-SHA256(self, label || 0x00 || context)`. All contexts of a label have the
    /// same length and no label contains a zero byte, so no two inputs of the HMAC are equal.
    fn derive(&self, label: &[u8], context: &[&[u8]]) -> Self {
        #[allow(clippy::expect_used)]
        let mut mac =
            Hmac::<sha2::Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(label);
        mac.update(&[0]);
        for part in context {
            mac.update(part);
        }
        let mut out = mac.finalize().into_bytes();
        let key = Self(out.into());
        out.as_mut_slice().zeroize();
        key
    }
}

impl PartialEq for Key {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// Returns the first 16 bytes of the SHA-256 digest of `label || 0x00 || content`.
fn short_digest(label: &[u8], content: &[u8]) -> [u8; 16] {
    let digest = crate::digest::Digest::of(&[label, &[0], content]);
    let mut out = [0; 16];
    out.copy_from_slice(&digest.0[..16]);
    out
}
