//! The JSON of listings and receipts. Ids and digests are lower-case hexadecimal. None of it is proof.

use serde::{Deserialize, Serialize};

/// The answer to an upload: everything in it is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Bundles that are new.
    pub stored: u64,
    /// Bundles that were there already; sending one again changes nothing.
    pub known: u64,
    /// Indices of the request under which the device has now signed different seals. Both are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// The answer to a manifest: it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestReceipt {
    /// 1 if it is new.
    pub stored: u64,
    /// 1 if it was there already; sending it again changes nothing.
    pub known: u64,
    /// The coordinator has now signed different manifests of this epoch. All are kept, as evidence against it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
}

/// Two different seals under one index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The device.
    pub device: String,
    /// The index.
    pub index: u32,
}

/// The devices of the roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceList {
    /// The group's name.
    pub group: String,
    /// The version of the roster that the service goes by.
    pub roster_version: u32,
    /// That roster's digest.
    pub roster_digest: String,
    /// By ascending id.
    pub devices: Vec<DeviceEntry>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEntry {
    /// Its id.
    pub id: String,
    /// Its name in the roster.
    pub name: String,
    /// The stored seal with the highest index, if there is any.
    pub newest: Option<Newest>,
}

/// How far a device has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    /// The seal's index.
    pub index: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Its digest: the `prev` of the next.
    pub digest: String,
}

/// A stretch of a device's seals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealList {
    /// The device.
    pub device: String,
    /// By ascending index; where a device signed different seals under one index, all of them stand here.
    pub seals: Vec<SealEntry>,
    /// The `from` of the next page; none after the last.
    pub next: Option<u32>,
}

/// One seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealEntry {
    /// Its index.
    pub index: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Its digest.
    pub digest: String,
    /// The digest of its predecessor, or of the device's first certificate.
    pub prev: String,
    /// `star` or `tree`.
    pub scheme: String,
    /// The events it covers.
    pub events: u64,
    /// No further seal covers its epoch.
    pub last_in_epoch: bool,
    /// The device restarted before it.
    pub restart: bool,
    /// Not 0 where only the levels from this round on are stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_from: u8,
    /// Another seal has the same index: the device equivocated, or its key is in other hands.
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
    fn a_receipt_without_conflicts_is_two_counts() {
        let receipt = Receipt { stored: 3, known: 1, conflicts: Vec::new() };
        let text = serde_json::to_string(&receipt).unwrap();
        assert_eq!(text, r#"{"stored":3,"known":1}"#);
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    }
}
