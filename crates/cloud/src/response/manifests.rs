//! Reading the stored manifests of a range of epochs.

use moteseal_core::record::EpochNumber;
use moteseal_store::{EpochStore, ManifestKey, ReadError, StoredManifest};

/// The stored manifests of a range of epochs, ascending by epoch, those of one epoch by digest.
pub(crate) struct Manifests<'s> {
    store: &'s dyn EpochStore,
    since: EpochNumber,
    until: Option<EpochNumber>,
    after: Option<ManifestKey>,
    done: bool,
}

impl<'s> Manifests<'s> {
    pub(crate) fn new(
        store: &'s dyn EpochStore,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Self {
        Self { store, since, until, after: None, done: false }
    }
}

impl Iterator for Manifests<'_> {
    type Item = Result<StoredManifest, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        // A manifest lists every seal of its epoch, so that reading one at a time is enough.
        let next = self
            .store
            .manifests(self.since, self.until, self.after, 1)
            .map(|mut found| found.pop())
            .transpose();
        self.done = !matches!(next, Some(Ok(_)));
        self.after = next.as_ref().and_then(|next| next.as_ref().ok()).map(StoredManifest::key);
        next
    }
}
