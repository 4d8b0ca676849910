//! The keys of a device's encrypted columns, which belong to the state of its chain.

use std::path::PathBuf;
use std::sync::PoisonError;

use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::EpochNumber;
use moteseal_core::schema::Schema;

use super::{Outbox, OutboxError, at};
use crate::chain_state;
use crate::column_keys::{ColumnKeys, KeysError, Stored, path_of};
use crate::seal::Chain;

impl Outbox {
    /// Returns the path of the file with the keys of the encrypted columns ([`path_of`]).
    #[must_use]
    pub fn column_keys_path(&self) -> PathBuf {
        path_of(&self.state)
    }

    /// Returns the keys of a schema's encrypted columns, from the newest epoch of the chain on. Returns
    /// `None` if the schema has no encrypted columns.
    ///
    /// The keys are in a private file. If `secret` is another stream secret than that of the file, all
    /// keys are derived from it; its base epoch must not be earlier (`SecretNotLater`). Otherwise, the
    /// keys of columns that were added to the schema are derived from a spare secret in the file, as the
    /// owner derives them (spec/confidential.md, section 2). Once the file has keys, the stream secret is
    /// not needed any more. Keep it away from the device: it opens the epochs of the past, whose keys the
    /// device erases ([`persist`](Self::persist)).
    ///
    /// # Errors
    /// `NoStreamSecret`, `BadColumnKeys`, `Key`, `ColumnCount`, `SecretNotLater` or `Io`.
    pub fn column_keys(
        &self,
        schema: &Schema<'_>,
        secret: Option<&StreamSecret>,
    ) -> Result<Option<ColumnKeys>, OutboxError> {
        if schema.encrypted_count() == 0 {
            return Ok(None);
        }
        let path = self.column_keys_path();
        moteseal_files::erase_abandoned(&path);
        let mut stored = match Stored::read(&path, self.device).map_err(at(&path))? {
            None => Stored::new(self.device),
            Some(stored) => stored.map_err(|_| OutboxError::BadColumnKeys(path.clone()))?,
        };
        let chain = chain_state::read(&self.state, self.device)?;
        let epoch = chain.and_then(|(chain, _)| chain.epoch).unwrap_or(EpochNumber(0));
        let keys = stored.keys_of(schema, secret, epoch).map_err(|error| match error {
            KeysError::Key(error) => OutboxError::Key(error),
            KeysError::ColumnCount => OutboxError::ColumnCount(path.clone()),
            KeysError::SecretNotLater => OutboxError::SecretNotLater(path.clone()),
        })?;
        let Some(keys) = keys else { return Err(OutboxError::NoStreamSecret(path)) };
        stored.erase_before(epoch);
        stored.write(&path).map_err(at(&path))?;
        *self.columns.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        Ok(Some(keys))
    }

    /// Erases the keys of the epochs before the newest one, which is durably opened.
    pub(super) fn erase_keys(&self, chain: &Chain) -> Result<(), OutboxError> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(stored), Some(epoch)) = (columns.as_mut(), chain.epoch) {
            let path = self.column_keys_path();
            stored.erase_before(epoch);
            stored.write(&path).map_err(at(&path))?;
        }
        Ok(())
    }
}
