//! Fingerprints of sets, by which two clouds find what one of them lacks (`spec/summaries.md`).
//!
//! A [`Fingerprint`] is the number of the entries of a set and the sum, modulo 2^256, of the
//! SHA-256 digests of the entries. It does not depend on the order of the entries, and an entry can
//! be added to it. Summaries are not signed and prove nothing: a cloud that lies in a summary only
//! withholds data.

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, Round, SealIndex};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{parse_device, parse_digest};

/// The number of indices of a device, or of epochs of manifests, in a block.
pub const BLOCK: u64 = 1024;
/// The maximum number of devices, or of blocks, on one page of a summary.
pub const PAGE: usize = 1024;
/// The maximum number of changes in one summary.
pub const CHANGES: usize = 1024;

/// The first number of the block that contains `number`.
#[must_use]
pub const fn block_of(number: u64) -> u64 {
    number - number % BLOCK
}

/// The number of the entries of a set, and the sum of their digests modulo 2^256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The number of entries.
    pub count: u64,
    /// The sum of the digests of the entries, each read as a big-endian number.
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub sum: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint of the empty set.
    pub const EMPTY: Self = Self { count: 0, sum: [0; 32] };

    /// Returns the fingerprint of the set with one entry. `parts` are the parts of its encoding.
    #[must_use]
    pub fn of_entry(parts: &[&[u8]]) -> Self {
        Self { count: 1, sum: Digest::of(parts).0 }
    }

    /// Returns the fingerprint of a seal of which the levels from round `kept_from` on are stored.
    #[must_use]
    pub fn of_seal(device: DeviceId, index: SealIndex, digest: &Digest, kept_from: Round) -> Self {
        Self::of_entry(&[&device.0, &index.0.to_be_bytes(), &digest.0, &[kept_from.0]])
    }

    /// Returns the fingerprint of the union of two disjoint sets.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (mut sum, mut carry) = ([0; 32], 0);
        for at in (0..32).rev() {
            let digit = u16::from(self.sum[at]) + u16::from(other.sum[at]) + carry;
            sum[at] = digit.to_be_bytes()[1];
            carry = digit >> 8;
        }
        Self { count: self.count.wrapping_add(other.count), sum }
    }

    /// Adds the entries of a disjoint set.
    pub fn add(&mut self, other: &Self) {
        *self = self.plus(other);
    }
}

impl<'a> std::iter::Sum<&'a Self> for Fingerprint {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::EMPTY, |sum, one| sum.plus(one))
    }
}

/// Everything that a cloud stores, in brief: the response to `GET /v1/summary`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The id of the group.
    pub group: String,
    /// The version of the roster that the cloud uses.
    pub roster_version: u32,
    /// The seals of all devices.
    pub seals: SealsSummary,
    /// The manifests.
    pub manifests: Fingerprint,
    /// The urgent events.
    pub events: Fingerprint,
    /// The cursor after the last urgent event in `events`; null if there is none.
    pub events_cursor: Option<String>,
    /// The seals and manifests that were stored after the cursor `after` of the request, in the
    /// order in which they were stored. Null if the cloud does not know them.
    pub changes: Option<Vec<Change>>,
    /// Whether there are further changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The parameter `after` of the next request.
    pub cursor: String,
}

/// The seals of all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealsSummary {
    /// The number of seals.
    pub count: u64,
    /// The digest of the devices' fingerprints ([`digest_of_devices`]).
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub digest: [u8; 32],
}

/// Returns the summary of the seals of all devices from the fingerprint of each device that has
/// seals, by ascending id. The digest is SHA-256 over the id, the count and the sum of each device.
/// It is not a sum of sums, so that a device cannot choose its own seals such that they hide the
/// absence of another device's seals.
#[must_use]
pub fn digest_of_devices<'a>(
    devices: impl Iterator<Item = (DeviceId, &'a Fingerprint)>,
) -> SealsSummary {
    let (mut count, mut encoded) = (0_u64, Vec::new());
    for (device, of) in devices {
        count = count.wrapping_add(of.count);
        encoded.extend_from_slice(&device.0);
        encoded.extend_from_slice(&of.count.to_be_bytes());
        encoded.extend_from_slice(&of.sum);
    }
    SealsSummary { count, digest: Digest::of(&[&encoded]).0 }
}

/// A seal or a manifest that a cloud has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A new seal, or further levels of a seal.
    Seal {
        /// The device.
        #[serde(serialize_with = "write_device", deserialize_with = "read_device")]
        device: DeviceId,
        /// The index.
        index: u32,
        /// The digest of the seal.
        #[serde(serialize_with = "write_digest", deserialize_with = "read_digest")]
        digest: Digest,
        /// The levels from this round on are stored.
        #[serde(default, skip_serializing_if = "is_zero")]
        kept_from: u8,
    },
    /// A new manifest.
    Manifest {
        /// The epoch.
        epoch: u64,
    },
}

/// A page of the devices of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePage {
    /// The devices that have seals, by ascending id.
    pub devices: Vec<DeviceSummary>,
    /// Whether there are devices after these.
    pub more: bool,
}

/// The seals of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// The device.
    #[serde(serialize_with = "write_device", deserialize_with = "read_device")]
    pub device: DeviceId,
    /// The fingerprint of its seals.
    #[serde(flatten)]
    pub seals: Fingerprint,
}

/// A page of the blocks of a device's seals, or of the manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPage {
    /// The blocks that are not empty, ascending.
    pub blocks: Vec<BlockSummary>,
    /// Whether there are blocks after these.
    pub more: bool,
}

/// The entries of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSummary {
    /// The first index or epoch of the block, a multiple of [`BLOCK`].
    pub first: u64,
    /// The fingerprint of the entries of the block.
    #[serde(flatten)]
    pub entries: Fingerprint,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(round: &u8) -> bool {
    *round == 0
}

fn write_hex<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Digest(*bytes))
}

fn read_hex<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
    read_digest(from).map(|digest| digest.0)
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn write_digest<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(digest)
}

fn read_digest<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
    parse_digest(&text).ok_or_else(|| de::Error::custom("expected 64 hexadecimal digits"))
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn write_device<S: Serializer>(device: &DeviceId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(device)
}

fn read_device<'de, D: Deserializer<'de>>(from: D) -> Result<DeviceId, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
    parse_device(&text).ok_or_else(|| de::Error::custom("expected 16 hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// The test vector of `spec/summaries.md`.
    #[test]
    fn the_fingerprints_are_those_of_the_specification() {
        let page = include_str!("../../../spec/summaries.md");
        let device = DeviceId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef");
        let one = Fingerprint::of_seal(device, SealIndex(0), &Digest([0x11; 32]), Round(0));
        let two = Fingerprint::of_seal(device, SealIndex(1), &Digest([0x22; 32]), Round(3));
        let all = digest_of_devices([(device, &one.plus(&two))].into_iter());
        for (name, value) in [
            ("entry 0", Digest(one.sum)),
            ("entry 1", Digest(two.sum)),
            ("sum", Digest(one.plus(&two).sum)),
            ("digest", Digest(all.digest)),
        ] {
            assert!(page.contains(&format!("| {name} | `{value}` |")), "{name}: {value}");
        }
    }

    #[test]
    fn sums_wrap_at_two_to_the_256() {
        let most = Fingerprint { count: 1, sum: [0xff; 32] };
        let mut two = [0; 32];
        two[31] = 2;
        let sum = most.plus(&Fingerprint { count: 1, sum: two });
        two[31] = 1;
        assert_eq!(sum, Fingerprint { count: 2, sum: two });
    }

    #[test]
    fn a_summary_reads_back_and_wrong_digits_are_refused() {
        let summary = Summary {
            group: "00".repeat(8),
            roster_version: 3,
            seals: SealsSummary { count: 7, digest: [0xab; 32] },
            manifests: Fingerprint::EMPTY,
            events: Fingerprint { count: 1, sum: [1; 32] },
            events_cursor: Some("1-00".to_owned()),
            changes: Some(vec![
                Change::Seal {
                    device: DeviceId([9; 8]),
                    index: 3,
                    digest: Digest([8; 32]),
                    kept_from: 2,
                },
                Change::Manifest { epoch: 12 },
            ]),
            more: true,
            cursor: "a-3".to_owned(),
        };
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
        let wrong = text.replace(&"ab".repeat(32), "ab");
        serde_json::from_str::<Summary>(&wrong).unwrap_err();
    }

    proptest! {
        #[test]
        fn a_fingerprint_does_not_depend_on_the_order(mut entries: Vec<Vec<u8>>, by in 0..9_usize) {
            let of = |entries: &[Vec<u8>]| -> Fingerprint {
                entries.iter().map(|entry| Fingerprint::of_entry(&[entry])).collect::<Vec<_>>().iter().sum()
            };
            let before = of(&entries);
            let by = by.min(entries.len());
            entries.rotate_left(by);
            prop_assert_eq!(of(&entries), before);
            entries.push(vec![1]);
            prop_assert_ne!(of(&entries), before);
        }
    }
}
