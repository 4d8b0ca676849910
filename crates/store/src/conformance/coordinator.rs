//! A coordinator that signs manifests, for tests of stores.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, Round};
use moteseal_seal::sample::{Manifest, ManifestDraft};

use super::coordinator_key;
use super::mote::Made;
use crate::manifest::StoredManifest;

/// Returns the coordinator's manifest of an epoch with the final round `round` and these seals.
///
/// # Panics
/// Never: Ed25519 always signs, and the buffers have the requested size.
#[must_use]
#[allow(clippy::expect_used)]
pub fn manifest(epoch: u64, round: u8, seals: &[&Made]) -> StoredManifest {
    let mut listed: BTreeMap<DeviceId, Vec<Digest>> = BTreeMap::new();
    for made in seals {
        listed.entry(made.statement.device).or_default().push(made.bundle.key().digest);
    }
    let devices: Vec<(DeviceId, &[Digest])> =
        listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
    let group = GroupId::of("conformance");
    let draft = ManifestDraft {
        group,
        roster: Digest([9; 32]),
        epoch: EpochNumber(epoch),
        round: Round(round),
        devices: &devices,
    };
    let key = coordinator_key::secret();
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    let bytes = draft.issue(&key, &mut scratch, &mut out).expect("a manifest").to_vec();
    let mut scratch = vec![0; bytes.len() + 64];
    let opened = Manifest::open(&bytes, group, &key.public(), &mut scratch)
        .expect("a manifest that was just signed");
    StoredManifest::new(&opened, &bytes)
}
