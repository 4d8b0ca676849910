//! The manifests that an intake has published lately. A coordinator sends the manifest of an epoch and then
//! the pruned seals, for which the cloud needs the manifest. The workers may not have stored it yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use moteseal_core::record::EpochNumber;
use moteseal_store::{ManifestKey, StoredManifest};

/// The most manifests that are kept.
const MOST: usize = 4096;
/// The most bytes of manifests that are kept.
const MOST_BYTES: usize = 16 << 20;

/// Manifests that the stream has acknowledged, up to a limit; the oldest are dropped first.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    manifests: BTreeMap<ManifestKey, StoredManifest>,
    order: VecDeque<ManifestKey>,
    bytes: usize,
}

impl Published {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, manifests: Vec<StoredManifest>) {
        let mut inner = self.lock();
        for manifest in manifests {
            let (key, bytes) = (manifest.key(), manifest.bytes().len());
            if inner.manifests.insert(key, manifest).is_none() {
                inner.order.push_back(key);
                inner.bytes += bytes;
            }
        }
        while (inner.order.len() > MOST || inner.bytes > MOST_BYTES)
            && let Some(oldest) = inner.order.pop_front()
        {
            let removed = inner.manifests.remove(&oldest);
            inner.bytes -= removed.map_or(0, |manifest| manifest.bytes().len());
        }
    }

    /// Adds the published manifests of a range to those of a store, in the order of their keys.
    pub(crate) fn merge(
        &self,
        stored: Vec<StoredManifest>,
        (since, until): (EpochNumber, Option<EpochNumber>),
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Vec<StoredManifest> {
        let inner = self.lock();
        if inner.manifests.is_empty() {
            return stored;
        }
        let selected = |key: &ManifestKey| {
            key.epoch >= since
                && until.is_none_or(|until| key.epoch < until)
                && after.is_none_or(|after| *key > after)
        };
        let mut all: BTreeMap<ManifestKey, StoredManifest> =
            stored.into_iter().map(|manifest| (manifest.key(), manifest)).collect();
        for (key, manifest) in inner.manifests.iter().filter(|(key, _)| selected(key)).take(limit) {
            all.entry(*key).or_insert_with(|| manifest.clone());
        }
        all.into_values().take(limit).collect()
    }
}
