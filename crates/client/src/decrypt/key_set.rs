//! Several sources of keys, such as the grants of several owners.

use std::fmt;

use moteseal_core::confidential::{Commitment, KeyAccessError, KeyRequest, SealKey, SealKeys};

/// Several sources of keys. A key comes from the first source that has it.
#[derive(Default)]
pub struct KeySet<'k>(Vec<Box<dyn SealKeys + 'k>>);

impl fmt::Debug for KeySet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet of {}", self.0.len())
    }
}

impl<'k> KeySet<'k> {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source.
    pub fn add(&mut self, keys: impl SealKeys + 'k) {
        self.0.push(Box::new(keys));
    }

    /// Returns whether there is no source.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns how much an error says about a column. A source of other columns says `NotCovered`.
const fn weight(error: KeyAccessError) -> u8 {
    match error {
        KeyAccessError::NotCovered => 0,
        KeyAccessError::EpochOutOfKeyRange => 1,
        KeyAccessError::KeyErased => 2,
        KeyAccessError::GrantOutdated => 3,
        _ => 4,
    }
}

impl SealKeys for KeySet<'_> {
    /// Returns the first key that a source has. Without one, returns the error that says most:
    /// `WrongKey`, then `GrantOutdated`, `KeyErased`, `EpochOutOfKeyRange` and `NotCovered`.
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        let mut error = KeyAccessError::NotCovered;
        for source in &mut self.0 {
            match source.seal_key(request, commitment) {
                Ok(key) => return Ok(key),
                Err(other) if weight(other) > weight(error) => error = other,
                Err(_) => {}
            }
        }
        Err(error)
    }
}
