//! The reads of an intake that has no store.

use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_store::{
    Bundle, EpochStore, Equivocation, Head, ManifestKey, PutError, ReadError, Reply,
    StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace,
};

/// A store without content, which accepts nothing. With it, an intake knows no stored seals and manifests:
/// a device must send the digest of each seal's predecessor, and pruned seals are rejected as if their
/// manifest were missing. The limit of the urgent events of a device applies to what the intake has published
/// since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

impl EpochStore for NoStore {
    fn submit(&self, _: Vec<Bundle>, _: Reply) -> Result<(), PutError> {
        Err(PutError::Closed)
    }

    fn submit_manifests(&self, _: Vec<StoredManifest>, _: Reply) -> Result<(), PutError> {
        Err(PutError::Closed)
    }

    fn submit_urgent(&self, _: Vec<StoredUrgent>, _: Reply) -> Result<(), PutError> {
        Err(PutError::Closed)
    }

    fn urgent(
        &self,
        _: Option<UrgentPlace>,
        _: UrgentLimits,
        _: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        Ok(UrgentPage::default())
    }

    fn urgent_at(
        &self,
        _: (DeviceId, SealIndex, Sequence),
        _: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        Ok(Vec::new())
    }

    fn urgent_bytes(&self, _: DeviceId) -> Result<u64, ReadError> {
        Ok(0)
    }

    fn manifests(
        &self,
        _: EpochNumber,
        _: Option<EpochNumber>,
        _: Option<ManifestKey>,
        _: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        Ok(Vec::new())
    }

    fn devices(&self, _: Option<DeviceId>, _: usize) -> Result<Vec<Head>, ReadError> {
        Ok(Vec::new())
    }

    fn seals(&self, _: DeviceId, _: SealIndex, _: usize) -> Result<Vec<StoredSeal>, ReadError> {
        Ok(Vec::new())
    }

    fn seals_since(
        &self,
        _: DeviceId,
        _: EpochNumber,
        _: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        Ok(Vec::new())
    }

    fn seals_at(&self, _: DeviceId, _: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        Ok(Vec::new())
    }

    fn body(&self, seal: &StoredSeal, _: Range<u64>) -> Result<Vec<u8>, ReadError> {
        Err(ReadError::Failed { what: format!("{} is not in this store", seal.key()) })
    }

    fn schema(&self, _: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(None)
    }

    fn equivocations(
        &self,
        _: Option<(DeviceId, SealIndex)>,
        _: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        Ok(Vec::new())
    }
}
