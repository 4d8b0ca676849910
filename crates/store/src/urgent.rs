//! An urgent event as a store keeps it: the signed object, byte for byte (spec/objects.md, section
//! 7).
//!
//! Urgent events are verified before they are stored. Clients and [`check`](crate::check) verify
//! them again when they read them.

use std::fmt;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_verify::{SchemaEntry, Urgent};

/// The key of an urgent event. It includes the digest of the signed object, because a device can
/// sign two different events for one place of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrgentKey {
    /// The device.
    pub device: DeviceId,
    /// The index of the seal in which the device placed the reading.
    pub index: SealIndex,
    /// The place of the reading in the seal.
    pub seq: Sequence,
    /// The digest of the signed object.
    pub digest: Digest,
}

impl UrgentKey {
    /// The length of the array that [`to_bytes`](Self::to_bytes) returns.
    pub const LENGTH: usize = 8 + 4 + 8 + 32;

    /// Encodes the key as device, index and place (big-endian) and digest. The encodings sort in
    /// the same order as the keys.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.device.0);
        bytes[8..12].copy_from_slice(&self.index.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes[20..].copy_from_slice(&self.digest.0);
        bytes
    }

    /// Decodes a key that [`to_bytes`](Self::to_bytes) encoded.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut key = Self {
            device: DeviceId([0; 8]),
            index: SealIndex(0),
            seq: Sequence(0),
            digest: Digest::NULL,
        };
        let number =
            |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        key.device.0.copy_from_slice(&bytes[..8]);
        key.index.0 = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        key.seq.0 = number(&bytes[12..20]);
        key.digest.0.copy_from_slice(&bytes[20..]);
        key
    }
}

impl fmt::Display for UrgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, index, seq, .. } = self;
        write!(f, "the urgent event at place {seq} of seal {index} of device {device}")
    }
}

/// An urgent event as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUrgent {
    pub(crate) key: UrgentKey,
    pub(crate) epoch: EpochNumber,
    pub(crate) schema: Arc<SchemaEntry>,
    pub(crate) bytes: Vec<u8>,
}

impl From<&Urgent> for StoredUrgent {
    fn from(event: &Urgent) -> Self {
        Self {
            key: UrgentKey {
                device: event.device(),
                index: event.index(),
                seq: event.seq(),
                digest: event.digest(),
            },
            epoch: event.epoch(),
            schema: Arc::clone(event.schema()),
            bytes: event.bytes().to_vec(),
        }
    }
}

impl StoredUrgent {
    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> UrgentKey {
        self.key
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the signed event, a tagged `COSE_Sign1`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the schema of the event's record.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.schema
    }

    /// Returns the number of bytes that count against the limit of the event's device.
    #[must_use]
    pub const fn counted_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// The place of an urgent event in the order in which a store received its events. If a store was
/// restored from an old copy, another event may have the number; the digest shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentPlace {
    /// The number of the event, from 1.
    pub number: u64,
    /// The digest of the event.
    pub digest: Digest,
}

/// What a page of urgent events may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentLimits {
    /// The maximum number of events that are read, selected or not.
    pub read: usize,
    /// The maximum number of selected events.
    pub events: usize,
    /// The page ends when its events have this many bytes.
    pub bytes: usize,
}

/// A page of urgent events, in the order in which the store received them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrgentPage {
    /// The selected events. Each consists of the signed object.
    pub events: Vec<(UrgentKey, Vec<u8>)>,
    /// The place of the last event that was read, selected or not; `None` if there was none.
    pub last: Option<UrgentPlace>,
    /// Whether the store has events after the last one.
    pub has_more: bool,
}
