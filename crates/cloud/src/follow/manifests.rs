//! Fetches manifests. A manifest has no listing: the manifests of a range of epochs are fetched as a
//! whole, and those that this cloud has are skipped.

use std::collections::HashSet;

use axum::body::Bytes;
use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;

use super::{Failure, Follower, Refused, is_about_data};
use crate::handlers::manifests;
use crate::refusal::Refusal;
use crate::streaming::unreadable;

/// The number of manifests that are read from the store at a time.
const READ: usize = 16;
/// The maximum number of manifests that are accepted for a range of epochs.
const MOST: u32 = 1 << 14;

impl Follower {
    /// Fetches the manifests of a range of epochs that this cloud does not have. Returns the number
    /// of those that were stored.
    pub(super) async fn fetch_manifests(
        &mut self,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Result<u64, Failure> {
        let known = self.own_manifests(since, until).await?;
        let mut arriving = self.replica.manifests(since, until).await?;
        let (mut stored, mut count) = (0, 0);
        while let Some(manifest) = arriving.next().await? {
            count += 1;
            if count > MOST {
                return Err(Failure::MuchRefused);
            }
            let digest = Digest::of(&[&manifest]);
            if known.contains(&digest) || self.refused.contains(&Refused::Bytes(digest)) {
                continue;
            }
            let body = Bytes::from(manifest);
            match manifests::verify_and_store(&self.shared, self.peer, body, None).await {
                Ok((receipt, _)) => {
                    self.refused_in_a_row = 0;
                    self.metrics.manifests.increment(receipt.stored);
                    stored += receipt.stored;
                }
                Err(refusal) if is_about_data(&refusal) => {
                    let text = format!("a manifest of the epochs from {since} on");
                    self.refuse(Refused::Bytes(digest), &text, refusal.problem().name())?;
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(stored)
    }

    /// Returns the digests of the bytes of the stored manifests of a range of epochs.
    async fn own_manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Result<HashSet<Digest>, Failure> {
        let shared = std::sync::Arc::clone(&self.shared);
        let work = move || {
            let (mut known, mut after) = (HashSet::new(), None);
            loop {
                let page = shared.store.manifests(since, until, after, READ).map_err(unreadable)?;
                let Some(last) = page.last() else { return Ok(known) };
                after = Some(last.key());
                known.extend(page.iter().map(|manifest| Digest::of(&[manifest.bytes()])));
            }
        };
        let unexpected = |_| Refusal::busy("reading the store failed unexpectedly; it is repeated");
        let known: Result<HashSet<Digest>, Refusal> =
            tokio::task::spawn_blocking(work).await.map_err(unexpected)?;
        Ok(known?)
    }
}
