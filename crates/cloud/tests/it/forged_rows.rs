//! A party that can write to the store adds rows next to honest uploads. Nobody is accused of what it did not
//! sign, and a device or coordinator that signed two histories still is.

use moteseal_api::{CBOR_SEQ, EventReceipt, ManifestReceipt, Receipt, SealList, paths};
use moteseal_cloud::Config;
use moteseal_core::Digest;
use moteseal_core::record::Scheme::Star;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::Seal;
use moteseal_seal::follow::Limits as SealLimits;
use moteseal_seal::sample::Manifest;
use moteseal_store::{
    Batch, Bundle, EpochStore as _, ManifestKey, SealKey, StoredManifest, StoredUrgent,
};
use moteseal_verify::{Bundles, Event, ReadError, Roster, StreamReader, urgent};

use crate::events::{event, stream};
use crate::testbed::{
    Mote, Running, budgeted, coordinator, esp256_group, group, manifest, problem,
};

/// Returns an uploaded bundle as the store keeps it.
fn stored(roster: &Roster, bytes: &[u8]) -> Bundle {
    let mut found = None;
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = event {
            found = Some(Bundle::from_proven(&proven).unwrap());
        }
        Ok(())
    };
    let limits = Bundles { parts: 1, events: 1 << 20 };
    let mut reader = StreamReader::new(roster, SealLimits::default()).of_bundles(limits);
    reader.feed(bytes, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    found.unwrap()
}

/// Returns the bundle with another root, which its device did not sign.
fn forged(bundle: &Bundle, change: u8) -> Bundle {
    let batch = Batch { bundles: vec![bundle.clone()], ..Batch::default() };
    let mut bytes = batch.encode().unwrap();
    let mut replace = |old: &[u8], new: &[u8]| {
        let at = bytes.windows(old.len()).position(|part| part == old).unwrap();
        bytes[at..at + old.len()].copy_from_slice(new);
    };
    let old = bundle.rows().0;
    // The length of the signed object precedes it. The signature is at its end, after the root.
    let end = 21 + usize::from(u16::from_be_bytes([old[19], old[20]]));
    let mut head = old.to_vec();
    head[end - 67] ^= change;
    let (seal, _) = Seal::decode(&head[21..end]).unwrap();
    replace(old, &head);
    replace(&bundle.key().to_bytes(), &SealKey::of(&seal).to_bytes());
    Batch::decode(&bytes).unwrap().bundles.pop().unwrap()
}

async fn has_metric(cloud: &Running, line: &str) {
    let metrics = cloud.get(paths::METRICS).await.text().await.unwrap();
    assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
}

/// Returns the digests of the seals that the cloud lists under an index, and whether each is listed as a conflict.
async fn listed(cloud: &Running, mote: &Mote, index: u32) -> Vec<(String, bool)> {
    let page = cloud.get(&paths::seals(mote.id, SealIndex(index), 100)).await;
    let list: SealList = page.json().await.unwrap();
    let seals = list.seals.into_iter().filter(|seal| seal.index == index);
    seals.map(|seal| (seal.digest, seal.conflict)).collect()
}

#[tokio::test]
async fn forged_seals_next_to_an_upload_do_not_accuse_the_device() {
    let (roster, mut motes) = group(&["a"]);
    let (of_stranger, mut strangers) = esp256_group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let mote = &mut motes[0];
    let (twin, first) = (mote.fork(Star, 1, true, &[2; 9]), mote.seal(Star, 1, true, &[1; 9]));
    // One row has the device's signature of another seal, and a stranger signed the other one.
    let rows = vec![
        forged(&stored(&roster, &first), 1),
        stored(&of_stranger, &strangers[0].seal(Star, 1, true, &[3; 9])),
    ];
    cloud.store.put(rows).unwrap();
    let receipt: Receipt = cloud.put(first.clone()).await.json().await.unwrap();
    assert_eq!(receipt, Receipt { stored: 1, ..Receipt::default() });
    has_metric(&cloud, "moteseal_equivocations_total 0").await;
    let seals = listed(&cloud, mote, 0).await;
    assert_eq!((seals.len(), seals.iter().any(|(_, conflict)| *conflict)), (3, false));
    let refused = problem(cloud.get(&paths::bundle(mote.id, SealIndex(0))).await).await;
    assert_eq!(refused.name(), "StoreDamaged", "{refused}");

    // The device signs a second seal of the index.
    let receipt: Receipt = cloud.put(twin.clone()).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.conflicts.len()), (1, 1));
    has_metric(&cloud, "moteseal_equivocations_total 1").await;
    let mut both = [first, twin].map(|bytes| stored(&roster, &bytes).key().digest.to_string());
    both.sort();
    let mut conflicts = listed(&cloud, mote, 0).await;
    conflicts.retain(|(_, conflict)| *conflict);
    assert_eq!(conflicts.into_iter().map(|(digest, _)| digest).collect::<Vec<_>>(), both);

    // A limited number of rows is verified.
    let second = mote.seal(Star, 2, true, &[4; 9]);
    let bundle = stored(&roster, &second);
    cloud.store.put((1..=20).map(|change| forged(&bundle, change)).collect()).unwrap();
    let receipt: Receipt = cloud.put(second).await.json().await.unwrap();
    assert_eq!(receipt, Receipt { stored: 1, ..Receipt::default() });
    assert!(listed(&cloud, mote, 1).await.iter().all(|(_, conflict)| !conflict));
    cloud.stop().await;
}

#[tokio::test]
async fn forged_manifests_next_to_an_upload_do_not_accuse_the_coordinator() {
    let (roster, motes) = budgeted(&["a"], 100);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[5; 32]).unwrap();
    let of = |key: &SecretKey, round| {
        manifest(&roster, key, 5, round, &[(motes[0].id, vec![Digest([1; 32])])])
    };
    let (honest, twin, forged) = (of(&coordinator(), 1), of(&coordinator(), 2), of(&stranger, 3));
    let mut scratch = vec![0; forged.len() + 64];
    let opened = Manifest::open(&forged, roster.group(), &stranger.public(), &mut scratch).unwrap();
    let other_key = ManifestKey { epoch: EpochNumber(5), digest: Digest([7; 32]) };
    let rows = vec![
        StoredManifest::new(&opened, &forged),
        StoredManifest::of_parts(other_key, honest.clone()),
    ];
    cloud.store.put_manifests(rows).unwrap();
    for (bytes, conflict) in [(honest, false), (twin, true)] {
        let receipt: ManifestReceipt = cloud.put_manifest(bytes).await.json().await.unwrap();
        assert_eq!(receipt, ManifestReceipt { stored: 1, conflict, ..Default::default() });
        let count = u8::from(conflict);
        has_metric(&cloud, &format!("moteseal_manifests_doubled_total {count}")).await;
    }
    cloud.stop().await;
}

#[tokio::test]
async fn forged_events_next_to_an_upload_do_not_accuse_the_device() {
    let (roster, motes) = group(&["a"]);
    let (of_stranger, strangers) = esp256_group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let forged = stream(&[event(&strangers[0], 4, 9)]);
    let read = urgent::read(&forged, &of_stranger, (1, false), &mut || ()).unwrap();
    cloud.store.put_urgent(read.events.iter().map(StoredUrgent::from).collect()).unwrap();
    for (value, conflicts) in [(1, 0), (2, 1)] {
        let body = stream(&[event(&motes[0], 4, value)]);
        let request = cloud.http.put(cloud.at(paths::EVENTS)).header("content-type", CBOR_SEQ);
        let receipt: EventReceipt = request.body(body).send().await.unwrap().json().await.unwrap();
        assert_eq!((receipt.stored, receipt.conflicts.len()), (1, conflicts));
        has_metric(&cloud, &format!("moteseal_equivocations_total {conflicts}")).await;
    }
    cloud.stop().await;
}
