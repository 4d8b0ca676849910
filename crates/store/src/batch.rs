//! A batch: bundles, manifests or urgent events that a store accepts together or not at all.

mod encoding;

use crate::bundle::Bundle;
use crate::manifest::StoredManifest;
use crate::urgent::StoredUrgent;

/// The bundles, manifests and urgent events of one submission.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The bundles.
    pub bundles: Vec<Bundle>,
    /// The manifests.
    pub manifests: Vec<StoredManifest>,
    /// The urgent events.
    pub events: Vec<StoredUrgent>,
}

impl Batch {
    /// Encodes the batch, as in the journal of an embedded store. Returns `None` if it has more than
    /// 2^32 - 1 bundles, or if a field of a bundle is longer than 2^32 - 1 bytes.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        encoding::encode(self)
    }

    /// Decodes a batch. Returns `None` if the bytes are not exactly one batch, or if a part of it
    /// does not belong to its key.
    ///
    /// The encoding has no checksum and no signature is verified. The caller must know that the
    /// bytes are those that [`encode`](Self::encode) returned.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        encoding::decode(bytes)
    }

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
