//! The keys of a device's stream, from the stream secret that the device and its owner share.

use std::collections::BTreeMap;

use moteseal_core::confidential::{
    ColumnId, Commitment, EpochKey, KeyAccessError, KeyRequest, SealKey, SealKeys, StreamSecret,
};
use moteseal_core::record::{DeviceId, EpochNumber};

/// The number of batches of columns of a stream secret (spec/grants.md, section 2.1): the secret and its
/// successors from which a column can start.
const BATCHES: usize = 256;
/// The number of successors after the last one that was needed that are tried for a column.
const AHEAD: usize = 8;
/// The number of epochs of a column for which all successors are tried in vain.
const SEARCHES: u8 = 4;

/// All keys of one device's stream, for the owner of the device.
///
/// Columns that were added to the stream later start from a successor of the secret
/// ([`StreamSecret::next`]). The commitment of a seal shows which one a column starts from. A column that
/// starts from none of the 256 that the specification allows is `WrongKey`.
///
/// The search takes little time if the secret is not the right one, for example because the device has got
/// a newer one since: all 256 are tried in four epochs of a column that has not been opened. In later
/// epochs, and for a column that has been opened before, only those up to the eighth after the last one
/// that was needed are tried. A search in vain is not repeated for other seals of the same epoch.
#[derive(Debug)]
pub struct DeviceKeys {
    device: DeviceId,
    /// The secret, followed by the successors that were needed so far.
    secrets: Vec<StreamSecret>,
    /// The highest position of a secret from which a column starts.
    highest: usize,
    columns: BTreeMap<ColumnId, Known>,
}

/// What is known about a column.
#[derive(Debug, Default)]
struct Known {
    /// The position of its secret, and the key that was used last.
    last: Option<(usize, EpochKey)>,
    /// The last epoch for which no key was found.
    missed: Option<EpochNumber>,
    /// The number of epochs for which no key was found.
    misses: u8,
}

impl DeviceKeys {
    /// Creates the keys of a device from its stream secret.
    #[must_use]
    pub fn new(device: DeviceId, secret: StreamSecret) -> Self {
        // The list never moves, so that it leaves no copies of secrets behind.
        let mut secrets = Vec::with_capacity(BATCHES);
        secrets.push(secret);
        Self { device, secrets, highest: 0, columns: BTreeMap::new() }
    }

    /// Returns the secret after `place` steps.
    fn secret(&mut self, place: usize) -> Option<&StreamSecret> {
        while self.secrets.len() <= place {
            let next = self.secrets.last()?.next();
            self.secrets.push(next);
        }
        self.secrets.get(place)
    }

    /// Returns the positions of the secrets that are tried for a column in an epoch, in this order.
    fn places(&self, column: ColumnId, epoch: EpochNumber) -> impl Iterator<Item = usize> + use<> {
        let near = (self.highest + 1 + AHEAD).min(BATCHES);
        let known = self.columns.get(&column);
        let likely = known.and_then(|known| known.last.as_ref()).map_or(0, |(place, _)| *place);
        let end = match known {
            Some(known) if known.missed == Some(epoch) => 0,
            Some(known) if known.last.is_some() || known.misses >= SEARCHES => near,
            _ => BATCHES,
        };
        std::iter::once(likely).chain((0..end).filter(move |place| *place != likely))
    }

    /// Returns the key that the secret at `place` gives, if it has the commitment.
    fn key_from(
        &mut self,
        place: usize,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        let KeyRequest { device, column, epoch, index, suite, nonce } = *request;
        let last = self.columns.get(&column).and_then(|known| known.last.as_ref());
        let epoch_key = match last.filter(|(at, key)| *at == place && key.epoch() == epoch) {
            Some((_, key)) => key.clone(),
            None => {
                let secret = self.secret(place).ok_or(KeyAccessError::NotCovered)?;
                secret.column(column).epoch_key(epoch)?
            }
        };
        let key = epoch_key.seal_key(device, index, suite, &nonce);
        key.check(commitment)?;
        self.columns.entry(column).or_default().last = Some((place, epoch_key));
        self.highest = self.highest.max(place);
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
        let KeyRequest { column, epoch, .. } = *request;
        for place in self.places(column, epoch) {
            let result = self.key_from(place, request, commitment);
            if !matches!(result, Err(KeyAccessError::WrongKey)) {
                return result;
            }
        }
        let known = self.columns.entry(column).or_default();
        if known.missed.replace(epoch) != Some(epoch) {
            known.misses = known.misses.saturating_add(1);
        }
        Err(KeyAccessError::WrongKey)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::confidential::{Nonce, Suite};
    use moteseal_core::record::SealIndex;

    use super::*;

    const DEVICE: DeviceId = DeviceId([1; 8]);
    const COLUMN: ColumnId = ColumnId([2; 16]);

    fn secret(byte: u8, steps: usize) -> StreamSecret {
        let first = StreamSecret::new([byte; 32], EpochNumber(0));
        (0..steps).fold(first, |secret, _| secret.next())
    }

    /// Asks for the key of a seal that was encrypted from `of`. Returns whether it was found.
    fn ask(keys: &mut DeviceKeys, of: &StreamSecret, column: ColumnId, epoch: u64) -> bool {
        let (index, suite, nonce) = (SealIndex(1), Suite::ChaCha20, Nonce([3; 12]));
        let epoch = EpochNumber(epoch);
        let key = of.column(column).epoch_key(epoch).unwrap();
        let key = key.seal_key(DEVICE, index, suite, &nonce);
        let request = KeyRequest { device: DEVICE, column, epoch, index, suite, nonce };
        match keys.seal_key(&request, &key.commitment()) {
            Ok(given) => {
                assert_eq!(given.expose(), key.expose());
                true
            }
            Err(error) => {
                assert_eq!(error, KeyAccessError::WrongKey);
                false
            }
        }
    }

    fn tries(keys: &DeviceKeys, column: ColumnId, epoch: u64) -> usize {
        keys.places(column, EpochNumber(epoch)).count()
    }

    /// The device has got a newer secret, and its seals are read with the old one.
    #[test]
    fn a_secret_that_is_not_the_right_one_costs_few_derivations() {
        let mut keys = DeviceKeys::new(DEVICE, secret(7, 0));
        let mut total = 0;
        for epoch in 0..288 {
            for _ in 0..3 {
                total += tries(&keys, COLUMN, epoch);
                assert!(!ask(&mut keys, &secret(8, 0), COLUMN, epoch));
            }
        }
        assert!(total <= 4 * 256 + 284 * 9 + 2 * 288, "{total}");
        // The right secret is still found, and so is the first one at the next seals.
        assert!(ask(&mut keys, &secret(7, 0), COLUMN, 287));
        assert!(ask(&mut keys, &secret(7, 5), COLUMN, 288));
    }

    #[test]
    fn a_column_that_was_opened_is_searched_near_the_secrets_that_were_needed() {
        let mut keys = DeviceKeys::new(DEVICE, secret(7, 0));
        assert!(ask(&mut keys, &secret(7, 0), COLUMN, 1));
        assert_eq!(tries(&keys, COLUMN, 2), 9);
        // A column that has not been opened can start from any of the secrets.
        let (other, last) = (ColumnId([4; 16]), ColumnId([5; 16]));
        assert!(ask(&mut keys, &secret(7, 100), other, 1));
        assert!(ask(&mut keys, &secret(7, 255), last, 1));
        assert!(!ask(&mut keys, &secret(7, 256), ColumnId([6; 16]), 1));
        // The device lost its keys, and started from the stream secret again.
        assert!(ask(&mut keys, &secret(7, 0), other, 2));
    }
}
