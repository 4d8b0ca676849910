//! Reads the stored manifests of a range of epochs.

use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Manifest;
use moteseal_store::{EpochStore, ManifestKey, ReadError, StoredManifest};
use moteseal_verify::Roster;

/// An iterator over the stored manifests of a range of epochs, by ascending epoch. Several
/// manifests of one epoch are ordered by digest. Outdated manifests are left out: they name an
/// earlier version of the roster than the version that introduced the period of their epoch, so that
/// no verifier accepts them.
pub(crate) struct Manifests<'s> {
    store: &'s dyn EpochStore,
    roster: &'s Roster,
    since: EpochNumber,
    until: Option<EpochNumber>,
    after: Option<ManifestKey>,
    done: bool,
}

impl<'s> Manifests<'s> {
    pub(crate) fn new(
        store: &'s dyn EpochStore,
        roster: &'s Roster,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Self {
        Self { store, roster, since, until, after: None, done: false }
    }
}

impl Iterator for Manifests<'_> {
    type Item = Result<StoredManifest, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.read_next()?;
            if next.as_ref().is_ok_and(|manifest| self.is_outdated(manifest)) {
                continue;
            }
            return Some(next);
        }
    }
}

impl Manifests<'_> {
    fn is_outdated(&self, manifest: &StoredManifest) -> bool {
        Manifest::claimed_roster(manifest.bytes())
            .is_some_and(|named| self.roster.outdates(&named, manifest.key().epoch))
    }

    /// Reads the next manifest.
    fn read_next(&mut self) -> Option<Result<StoredManifest, ReadError>> {
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
