//! The keys of a device's stream, from the stream secret that the device and its owner share.

use std::collections::BTreeMap;

use moteseal_core::confidential::{
    ColumnId, Commitment, EpochKey, KeyAccessError, KeyRequest, SealKey, SealKeys, StreamSecret,
};
use moteseal_core::record::DeviceId;

/// The number of batches of columns of a stream secret (spec/grants.md, section 2.1): the secret and its
/// successors from which a column can start.
const BATCHES: usize = 256;

/// All keys of one device's stream, for the owner of the device.
///
/// Columns that were added to the stream later start from a successor of the secret
/// ([`StreamSecret::next`]). The commitment of a seal shows which one a column starts from. A column that
/// starts from none of the 256 that the specification allows is `WrongKey`.
#[derive(Debug)]
pub struct DeviceKeys {
    device: DeviceId,
    /// The secret, followed by the successors that were needed so far.
    secrets: Vec<StreamSecret>,
    /// For each column, the position of its secret, and the key that was used last.
    last: BTreeMap<ColumnId, (usize, EpochKey)>,
}

impl DeviceKeys {
    /// Creates the keys of a device from its stream secret.
    #[must_use]
    pub fn new(device: DeviceId, secret: StreamSecret) -> Self {
        Self { device, secrets: vec![secret], last: BTreeMap::new() }
    }

    /// Returns the secret after `place` steps.
    fn secret(&mut self, place: usize) -> Option<&StreamSecret> {
        while self.secrets.len() <= place {
            let next = self.secrets.last()?.next();
            self.secrets.push(next);
        }
        self.secrets.get(place)
    }

    /// Returns the key that the secret at `place` gives, if it has the commitment.
    fn key_from(
        &mut self,
        place: usize,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        let KeyRequest { device, column, epoch, index, suite, nonce } = *request;
        let known = self.last.get(&column).filter(|(at, key)| *at == place && key.epoch() == epoch);
        let epoch_key = match known {
            Some((_, key)) => key.clone(),
            None => {
                let secret = self.secret(place).ok_or(KeyAccessError::NotCovered)?;
                secret.column(column).epoch_key(epoch)?
            }
        };
        let key = epoch_key.seal_key(device, index, suite, &nonce);
        key.check(commitment)?;
        self.last.insert(column, (place, epoch_key));
        Ok(key)
    }
}

impl SealKeys for DeviceKeys {
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        if request.device != self.device {
            return Err(KeyAccessError::NotCovered);
        }
        let likely = self.last.get(&request.column).map_or(0, |(place, _)| *place);
        let others = (0..BATCHES).filter(|place| *place != likely);
        let mut result = Err(KeyAccessError::NotCovered);
        for place in std::iter::once(likely).chain(others) {
            result = self.key_from(place, request, commitment);
            if !matches!(result, Err(KeyAccessError::WrongKey)) {
                break;
            }
        }
        result
    }
}
