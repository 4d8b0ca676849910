//! Two other kinds of star, for comparison: the paper's star, and a star with one hash compression
//! for each event. Their digests are not part of any format of Moteseal.

use moteseal_core::digest::{Digest, INITIAL, compress256};
use moteseal_core::record::Level;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::Salt;
use sha2::{Digest as _, Sha256};

/// The paper's star (section IV.C): `D_i = H(H(e) || D_i)`. The hash of an event's content
/// determines its level.
pub struct PaperStar<const L: usize> {
    digests: [Digest; L],
    counts: [u32; L],
}

impl<const L: usize> Default for PaperStar<L> {
    fn default() -> Self {
        Self { digests: [Digest::NULL; L], counts: [0; L] }
    }
}

impl<const L: usize> PaperStar<L> {
    /// Adds an event.
    pub fn push(&mut self, event: &[u8]) {
        let hash = Sha256::digest(event);
        // As in the paper, the event's own hash also serves as the uniform hash for the level.
        let zeros =
            hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first).leading_zeros());
        let level = (zeros as usize).min(L - 1);
        if let (Some(digest), Some(count)) =
            (self.digests.get_mut(level), self.counts.get_mut(level))
        {
            *digest =
                Digest(Sha256::new().chain_update(hash).chain_update(digest.0).finalize().into());
            *count += 1;
        }
    }

    /// Returns the digest of each level.
    pub const fn digests(&self) -> &[Digest; L] {
        &self.digests
    }
}

/// A star with one compression for each event: `D_i = compress(D_i, event)`. The salt determines
/// the levels of events, as in `moteseal_seal`.
pub struct OneEach<const L: usize> {
    key: LevelKey,
    states: [[u32; 8]; L],
    counts: [u32; L],
    total: u64,
}

impl<const L: usize> OneEach<L> {
    /// Creates an empty star.
    #[must_use]
    pub fn new(salt: &Salt) -> Self {
        Self { key: LevelKey::new(salt), states: [INITIAL; L], counts: [0; L], total: 0 }
    }

    /// Adds an event of at most 55 bytes.
    pub fn push(&mut self, event: &[u8]) {
        let Level(level) = self.key.level(self.total, L as u8);
        self.total += 1;
        let mut block = [0; 64];
        if let Some(place) = block.get_mut(..event.len()) {
            place.copy_from_slice(event);
        }
        if let (Some(state), Some(count)) =
            (self.states.get_mut(usize::from(level)), self.counts.get_mut(usize::from(level)))
        {
            compress256(state, &[block]);
            *count += 1;
        }
    }

    /// Returns the hash state of each level.
    pub const fn states(&self) -> &[[u32; 8]; L] {
        &self.states
    }
}
