//! A batch: bundles, manifests or urgent events that a store accepts together or not at all.

use crate::bundle::Bundle;
use crate::manifest::StoredManifest;
use crate::urgent::StoredUrgent;

/// The bundles, manifests and urgent events of one submission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) manifests: Vec<StoredManifest>,
    pub(crate) events: Vec<StoredUrgent>,
}

impl Batch {
    /// Returns the number of bytes that a store keeps of the batch, without schemas and table
    /// overhead.
    pub(crate) fn stored_bytes(&self) -> usize {
        let bundles: usize = self.bundles.iter().map(Bundle::stored_bytes).sum();
        let events: usize = self.events.iter().map(|event| event.bytes.len()).sum();
        bundles + self.manifests.iter().map(|manifest| manifest.bytes.len()).sum::<usize>() + events
    }
}

impl From<Vec<Bundle>> for Batch {
    fn from(bundles: Vec<Bundle>) -> Self {
        Self { bundles, ..Self::default() }
    }
}

impl From<Vec<StoredManifest>> for Batch {
    fn from(manifests: Vec<StoredManifest>) -> Self {
        Self { manifests, ..Self::default() }
    }
}

impl From<Vec<StoredUrgent>> for Batch {
    fn from(events: Vec<StoredUrgent>) -> Self {
        Self { events, ..Self::default() }
    }
}
