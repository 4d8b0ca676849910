//! A batch: bundles or manifests that a store accepts together or not at all.

use crate::bundle::Bundle;
use crate::manifest::StoredManifest;

/// The bundles and manifests of one submission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) manifests: Vec<StoredManifest>,
}

impl Batch {
    /// Returns the number of bytes that a store keeps of the batch, without schemas and table
    /// overhead.
    pub(crate) fn stored_bytes(&self) -> usize {
        let bundles: usize = self.bundles.iter().map(Bundle::stored_bytes).sum();
        bundles + self.manifests.iter().map(|manifest| manifest.bytes.len()).sum::<usize>()
    }
}

impl From<Vec<Bundle>> for Batch {
    fn from(bundles: Vec<Bundle>) -> Self {
        Self { bundles, manifests: Vec::new() }
    }
}

impl From<Vec<StoredManifest>> for Batch {
    fn from(manifests: Vec<StoredManifest>) -> Self {
        Self { bundles: Vec::new(), manifests }
    }
}
