//! The keys with which a device encrypts columns (spec/confidential.md, sections 2 and 3).
//!
//! A device has the keys of the newest epoch that it has opened and of all later ones. The keys of
//! earlier epochs are erased, so a thief of the device learns nothing of the past. Each seal has its
//! own key, which depends on a nonce that is drawn when the seal opens. A device whose state was copied
//! back reuses indices, but no key.

use std::fmt;
use std::path::PathBuf;

use moteseal_core::confidential::{KeyAccessError, KeyStream, Nonce, Path, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_seal::encryption::SealCipher;

use crate::chain_state;
use crate::outbox::with_suffix;
use crate::seal::SealRefused;

mod stored;

pub(crate) use stored::{KeysError, Stored};

/// Returns the path of the file with the keys of a device's encrypted columns: the path of its chain's
/// state with the suffix `.columns`.
#[must_use]
pub fn path_of(chain: &std::path::Path) -> PathBuf {
    with_suffix(&chain_state::resolved(chain), ".columns")
}

/// The encryption of an open seal.
pub(crate) type Cipher = Box<SealCipher<Vec<KeyStream>>>;

/// The keys of a schema's encrypted columns from one epoch on: of at least one column.
///
/// `Debug` prints no key, and keys are erased when they are dropped.
#[derive(Clone)]
pub struct ColumnKeys {
    /// The keys of each encrypted column, in the order of the schema.
    paths: Vec<Path>,
}

impl fmt::Debug for ColumnKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.paths).finish()
    }
}

impl ColumnKeys {
    /// Returns the keys of a schema's encrypted columns from `epoch` on, or from the base epoch of the
    /// secret if that is later. Returns `None` if the schema has no encrypted columns.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange` if `epoch` is after the last epoch of the secret.
    pub fn new(
        schema: &Schema<'_>,
        secret: &StreamSecret,
        epoch: EpochNumber,
    ) -> Result<Option<Self>, KeyAccessError> {
        let epoch = epoch.max(secret.base());
        let columns = schema.encrypted_columns();
        let paths = columns.map(|(_, column)| Path::new(&secret.column(column), epoch));
        Ok(Self::of(paths.collect::<Result<_, _>>()?))
    }

    /// Returns keys, unless there are none. `paths` are in the order of the schema.
    fn of(paths: Vec<Path>) -> Option<Self> {
        (!paths.is_empty()).then_some(Self { paths })
    }

    /// Returns whether these are the keys of the encrypted columns of a schema.
    pub(crate) fn are_of(&self, schema: &Schema<'_>) -> bool {
        let columns = schema.encrypted_columns().map(|(_, column)| column);
        columns.eq(self.paths.iter().map(Path::column))
    }

    /// Checks that the keys cover an epoch.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange` or `KeyErased`.
    pub fn check(&self, epoch: EpochNumber) -> Result<(), KeyAccessError> {
        self.paths.iter().try_for_each(|path| {
            let offset = epoch.0.checked_sub(path.base().0);
            if offset.is_none_or(|offset| offset > u32::MAX.into()) {
                return Err(KeyAccessError::EpochOutOfKeyRange);
            }
            if epoch < path.epoch() { Err(KeyAccessError::KeyErased) } else { Ok(()) }
        })
    }

    /// Erases the keys of the epochs before `epoch`.
    pub fn erase_before(&mut self, epoch: EpochNumber) {
        self.paths.iter_mut().for_each(|path| erase_before(path, epoch));
    }

    /// Draws a nonce and returns the encryption of a seal. `schema` is the encoded schema.
    ///
    /// # Errors
    /// `NoNonce`, and the errors of the keys.
    pub(crate) fn cipher(
        &self,
        schema: &[u8],
        (device, index): (DeviceId, SealIndex),
        epoch: EpochNumber,
    ) -> Result<Cipher, SealRefused> {
        let schema = Schema::decode(schema).map_err(|_| SealRefused::NoStreamSecret)?;
        let mut nonce = Nonce([0; 12]);
        getrandom::fill(&mut nonce.0).map_err(|_| SealRefused::NoNonce)?;
        let suites = schema.encrypted_columns().filter_map(|(field, _)| field.suite);
        let streams = self.paths.iter().zip(suites).map(|(path, suite)| {
            let mut path = path.clone();
            path.advance(epoch)?;
            Ok(KeyStream::new(path.epoch_key().seal_key(device, index, suite, &nonce)))
        });
        let streams = streams.collect::<Result<Vec<_>, KeyAccessError>>()?;
        let cipher = SealCipher::new(&schema, nonce, streams).map_err(SealRefused::Encrypt)?;
        Ok(Box::new(cipher))
    }
}

/// Erases the keys of the epochs before `epoch`. If the keys do not cover `epoch`, no seal of it can be
/// opened, and nothing is erased.
fn erase_before(path: &mut Path, epoch: EpochNumber) {
    let _ = path.advance(epoch);
}
