//! The JSON of listings and receipts. Ids and digests are lower-case hexadecimal. Listings and
//! receipts are not signed and prove nothing.

use serde::{Deserialize, Serialize};

/// The response to an upload. The cloud sends it once everything in the upload is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of bundles that are new to the store.
    pub stored: u64,
    /// The number of bundles that the store already had. Uploading a bundle again changes nothing.
    pub known: u64,
    /// The number of bundles that are durable in the queue of a cloud with workers. Whether they are new is
    /// known only when a worker has stored them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub queued: u64,
    /// Seals of the upload whose device has also signed a different seal under the same index. The
    /// cloud has verified the signatures of both, and keeps all of these seals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// The response to an uploaded manifest. The cloud sends it once the manifest is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestReceipt {
    /// 1 if the manifest is new.
    pub stored: u64,
    /// 1 if the manifest was stored already. Uploading it again changes nothing.
    pub known: u64,
    /// The number of manifests that are durable in the queue of a cloud with workers. Whether they are new is
    /// known only when a worker has stored them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub queued: u64,
    /// Whether the coordinator signed different manifests for this epoch. The cloud has verified the
    /// signatures of two of them, and keeps all of them as evidence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
}

/// The response to uploaded urgent events. The cloud sends it once all of them are durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReceipt {
    /// The number of events that are new to the store.
    pub stored: u64,
    /// The number of events that the store already had. Uploading an event again changes nothing.
    pub known: u64,
    /// The number of events that are durable in the queue of a cloud with workers. Whether they are new is
    /// known only when a worker has stored them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub queued: u64,
    /// Places of events at which the device has also signed a different event. The cloud has verified
    /// the signatures of both, and keeps all of them as evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<EventConflict>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A place in a seal for which a device signed two different urgent events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventConflict {
    /// The device's id.
    pub device: String,
    /// The index of the seal.
    pub index: u32,
    /// The place in the seal.
    pub seq: u64,
}

/// An index under which a device signed two different seals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The device's id.
    pub device: String,
    /// The index of the two seals.
    pub index: u32,
}

/// The listing of a roster's devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceList {
    /// The name of the group.
    pub group: String,
    /// The version of the roster that the cloud uses.
    pub roster_version: u32,
    /// The digest of that roster.
    pub roster_digest: String,
    /// The devices, by ascending id.
    pub devices: Vec<DeviceEntry>,
}

/// One device of the roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEntry {
    /// The device's id.
    pub id: String,
    /// The device's name in the roster.
    pub name: String,
    /// The device's stored seal with the highest index; null if no seal is stored.
    pub newest: Option<Newest>,
}

/// The newest stored seal of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    /// The seal's index.
    pub index: u32,
    /// The seal's epoch.
    pub epoch: u64,
    /// The seal's digest, which is the `prev` of the device's next seal.
    pub digest: String,
}

/// A page of a device's seals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealList {
    /// The device's id.
    pub device: String,
    /// The seals by ascending index. If the device signed different seals under one index, all of
    /// them are listed.
    pub seals: Vec<SealEntry>,
    /// The `from` parameter of the next page; null on the last page.
    pub next: Option<u32>,
}

/// One stored seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealEntry {
    /// The seal's index.
    pub index: u32,
    /// The seal's epoch.
    pub epoch: u64,
    /// The seal's digest.
    pub digest: String,
    /// The digest of the device's previous seal; for its first seal, the digest of its first
    /// certificate.
    pub prev: String,
    /// The seal's scheme: `star` or `tree`.
    pub scheme: String,
    /// The number of events that the seal covers.
    pub events: u64,
    /// Whether the seal states that no later seal covers its epoch.
    pub last_in_epoch: bool,
    /// Whether the device restarted before it made this seal.
    pub restart: bool,
    /// The seal's levels from this round on are stored. 0 if all levels that the device kept are
    /// stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_from: u8,
    /// Whether the device signed this seal and another one under this index: it equivocated, or its
    /// key was stolen. The cloud has verified the signatures of both.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(round: &u8) -> bool {
    *round == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_seal_states_its_round_and_conflict_only_if_there_are_any() {
        let text = |kept_from, conflict| {
            let entry = SealEntry {
                index: 1,
                epoch: 2,
                digest: String::new(),
                prev: String::new(),
                scheme: "star".to_owned(),
                events: 3,
                last_in_epoch: true,
                restart: false,
                kept_from,
                conflict,
            };
            serde_json::to_value(entry).unwrap()
        };
        let (plain, marked) = (text(0, false), text(4, true));
        assert_eq!((plain.get("kept_from"), plain.get("conflict")), (None, None));
        assert_eq!((&marked["kept_from"], &marked["conflict"]), (&4.into(), &true.into()));
    }

    #[test]
    fn a_receipt_without_conflicts_is_two_counts() {
        let receipt = Receipt { stored: 3, known: 1, ..Receipt::default() };
        let text = serde_json::to_string(&receipt).unwrap();
        assert_eq!(text, r#"{"stored":3,"known":1}"#);
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    }
}
