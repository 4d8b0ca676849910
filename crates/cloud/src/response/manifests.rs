//! Reads the stored manifests of a range of epochs.

use moteseal_core::record::EpochNumber;
use moteseal_store::{EpochStore, ManifestKey, ReadError, StoredManifest};

/// An iterator over the stored manifests of a range of epochs, by ascending epoch. Several
/// manifests of one epoch are ordered by digest.
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
        // A manifest lists every seal of its epoch and is therefore long; reading one manifest at a
        // time is fast enough.
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
