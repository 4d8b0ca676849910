//! What a seal states about the keys of its encrypted columns (spec/confidential.md, section 3).

use core::fmt;

use super::{Commitment, MAX_ENCRYPTED, Nonce, SealKey};

/// The length of a nonce, and of a commitment.
const NONCE: usize = 12;
const COMMITMENT: usize = 16;
/// The maximum length of the encoding in bytes.
pub const MAX_KEY_COMMITMENTS: usize = NONCE + MAX_ENCRYPTED * COMMITMENT;

/// The nonce of a seal and the commitments to the keys of its encrypted columns, in the order of the
/// schema: 1 to [`MAX_ENCRYPTED`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyCommitments {
    nonce: Nonce,
    commitments: [Commitment; MAX_ENCRYPTED],
    /// The number of commitments.
    count: u8,
}

impl KeyCommitments {
    /// Creates the commitments to these keys. Returns `None` if there are none or more than
    /// [`MAX_ENCRYPTED`].
    #[must_use]
    pub fn new<'k>(nonce: Nonce, keys: impl IntoIterator<Item = &'k SealKey>) -> Option<Self> {
        Self::collect(nonce, keys.into_iter().map(SealKey::commitment))
    }

    fn collect(nonce: Nonce, commitments: impl Iterator<Item = Commitment>) -> Option<Self> {
        let mut out =
            Self { nonce, commitments: [Commitment([0; COMMITMENT]); MAX_ENCRYPTED], count: 0 };
        for commitment in commitments {
            *out.commitments.get_mut(usize::from(out.count))? = commitment;
            out.count += 1;
        }
        (out.count > 0).then_some(out)
    }

    /// Returns the nonce.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns the commitments.
    #[must_use]
    pub fn commitments(&self) -> &[Commitment] {
        &self.commitments[..usize::from(self.count)]
    }

    /// Writes the encoding, nonce and commitments concatenated, to `out` and returns it.
    #[must_use]
    pub fn encode<'o>(&self, out: &'o mut [u8; MAX_KEY_COMMITMENTS]) -> &'o [u8] {
        out[..NONCE].copy_from_slice(&self.nonce.0);
        let places = out[NONCE..].as_chunks_mut::<COMMITMENT>().0;
        for (place, commitment) in places.iter_mut().zip(self.commitments()) {
            *place = commitment.0;
        }
        &out[..NONCE + usize::from(self.count) * COMMITMENT]
    }

    /// Reads an encoding. Returns `None` if its length is not that of a nonce and of 1 to
    /// [`MAX_ENCRYPTED`] commitments.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (nonce, rest) = bytes.split_first_chunk()?;
        let (commitments, rest) = rest.as_chunks();
        let commitments = commitments.iter().copied().map(Commitment);
        rest.is_empty().then(|| Self::collect(Nonce(*nonce), commitments)).flatten()
    }
}

impl fmt::Debug for KeyCommitments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCommitments")
            .field("nonce", &self.nonce)
            .field("commitments", &self.commitments())
            .finish()
    }
}
