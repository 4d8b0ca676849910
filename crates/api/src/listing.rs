//! The JSON of listings and receipts. Ids and digests are lower-case hexadecimal. None of it is a
//! proof.

use serde::{Deserialize, Serialize};

/// The response to an upload: everything in the upload is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// New bundles.
    pub stored: u64,
    /// Bundles that were stored already; sending one again changes nothing.
    pub known: u64,
    /// Seals of the request whose device signed a different seal under the same index. The cloud
    /// keeps all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// The response to a manifest: it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestReceipt {
    /// 1 if the manifest is new.
    pub stored: u64,
    /// 1 if it was stored already; sending it again changes nothing.
    pub known: u64,
    /// The coordinator signed different manifests of this epoch. The cloud keeps all of them as
    /// evidence.
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
    /// The version of the roster that the service uses.
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
    /// The stored seal with the highest index; null if there is none.
    pub newest: Option<Newest>,
}

/// The newest stored seal of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    /// The seal's index.
    pub index: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Its digest: the `prev` of the next seal.
    pub digest: String,
}

/// A page of a device's seals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealList {
    /// The device.
    pub device: String,
    /// By ascending index; if the device signed different seals under one index, all of them.
    pub seals: Vec<SealEntry>,
    /// The `from` of the next page; null on the last page.
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
    /// Whether no further seal covers its epoch.
    pub last_in_epoch: bool,
    /// Whether the device restarted before it.
    pub restart: bool,
    /// The round from which on its levels are stored; 0 if all are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_from: u8,
    /// Whether another seal has the same index: the device equivocated, or its key was stolen.
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
