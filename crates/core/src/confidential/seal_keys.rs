//! Where a reader gets the keys of seals from: a grant, or the stream secret itself.

use super::{ColumnId, Commitment, KeyAccessError, Nonce, SealKey, Suite};
use crate::record::{DeviceId, EpochNumber, SealIndex};

/// The seal and the column for which a key is needed, as the seal's statement and schema state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRequest {
    /// The device.
    pub device: DeviceId,
    /// The column.
    pub column: ColumnId,
    /// The epoch of the seal.
    pub epoch: EpochNumber,
    /// The index of the seal.
    pub index: SealIndex,
    /// The cipher of the column.
    pub suite: Suite,
    /// The nonce of the seal.
    pub nonce: Nonce,
}

/// A source of the keys of seals.
pub trait SealKeys: Send {
    /// Returns the key of a column of a seal. `commitment` is the one that the seal states. A source
    /// that has several keys uses it to find the right one. The caller checks the key again
    /// ([`SealKey::check`]).
    ///
    /// # Errors
    /// `NotCovered` if the source has no key of the column in this epoch; `GrantOutdated` if it has one
    /// for another time only; `EpochOutOfKeyRange`; `KeyErased`; `WrongKey` if the commitment is that of another key.
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError>;
}
