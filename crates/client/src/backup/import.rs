//! Uploads a backup to a cloud, which verifies it again.

use std::collections::{BTreeMap, HashMap};

use moteseal_api::summary::Fingerprint;
use moteseal_api::{
    CBOR_SEQ, COSE, EventReceipt, JSON, ManifestReceipt, Receipt, parse_device, paths,
};
use moteseal_core::record::DeviceId;
use moteseal_net::NetError;
use moteseal_net::replica::{BlockWalk, BlocksOf, DeviceWalk, Replica};
use serde::de::DeserializeOwned;

use super::index::{Block, Index};
use super::place::Place;
use super::{BackupError, Findings, content};

/// The maximum size of a receipt, in bytes.
const RECEIPT: usize = 4 << 20;

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The numbers of seals, manifests and urgent events that are new to the cloud.
    pub stored: (u64, u64, u64),
    /// The number of entries that the cloud already had.
    pub known: u64,
    /// The number of entries that were not uploaded, because the cloud has the whole block.
    pub skipped: u64,
    /// The objects that the cloud refused.
    pub refused: Findings,
}

/// Uploads a backup to the cloud of `replica`. Blocks that the cloud has are skipped. `progress` is
/// called with the number of entries that are done and of all entries.
///
/// # Errors
/// [`BackupError`]. What was uploaded stays in the cloud; a further import continues.
pub async fn import(
    place: &Place,
    replica: &Replica,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Imported, BackupError> {
    let index = Index::read(place).await?;
    let index = index.ok_or_else(|| BackupError::NoIndex { place: place.name() })?;
    let summary = replica.summary(None).await?;
    if summary.group != index.group {
        return Err(BackupError::OtherGroup { whose: place.name(), group: index.group });
    }
    let mut imported = Imported::default();
    let blocks = index.seals.iter().chain(&index.manifests);
    let total = blocks.map(|block| block.entries.count).sum::<u64>() + index.events.entries.count;
    let mut done = 0;

    // Seals come before the manifests: a manifest determines which levels of its seals an upload
    // must have, and a backup has all levels that there are.
    let mut of_device: BTreeMap<DeviceId, Vec<&Block>> = BTreeMap::new();
    for block in &index.seals {
        let device = block.device.as_deref().and_then(parse_device);
        let device = device.ok_or_else(|| BackupError::Damaged {
            object: format!("{}/{}", place.name(), super::INDEX),
            what: "a block of seals names no device".to_owned(),
        })?;
        of_device.entry(device).or_default().push(block);
    }
    let mut walk = DeviceWalk::default();
    let mut stored = Vec::new();
    while let Some(devices) = walk.next(replica).await? {
        stored.extend(devices.into_iter().map(|entry| entry.device));
    }
    for (device, blocks) in of_device {
        let has = match stored.contains(&device) {
            true => fingerprints(replica, BlocksOf::Seals(device)).await?,
            false => HashMap::new(),
        };
        for block in blocks {
            done += block.entries.count;
            if has.get(&block.first) == Some(&block.entries) {
                imported.skipped += block.entries.count;
                progress(done, total);
                continue;
            }
            for object in &block.objects {
                let bytes = object.read(place).await?;
                let receipt: Option<Receipt> = upload(
                    replica,
                    (paths::LATE_BUNDLES, CBOR_SEQ),
                    bytes,
                    (object.name.as_str(), &mut imported.refused),
                )
                .await?;
                if let Some(receipt) = receipt {
                    imported.stored.0 += receipt.stored;
                    imported.known += receipt.known;
                }
            }
            progress(done, total);
        }
    }
    let has = match index.manifests.is_empty() {
        false => fingerprints(replica, BlocksOf::Manifests).await?,
        true => HashMap::new(),
    };
    for block in &index.manifests {
        done += block.entries.count;
        if has.get(&block.first) == Some(&block.entries) {
            imported.skipped += block.entries.count;
            continue;
        }
        for object in &block.objects {
            let bytes = object.read(place).await?;
            let manifests = content::manifests(&bytes).ok_or_else(|| BackupError::Damaged {
                object: object.name.clone(),
                what: "it is not a stream of manifests".to_owned(),
            })?;
            for manifest in manifests {
                let receipt: Option<ManifestReceipt> = upload(
                    replica,
                    (paths::MANIFESTS, COSE),
                    manifest.to_vec(),
                    (object.name.as_str(), &mut imported.refused),
                )
                .await?;
                if let Some(receipt) = receipt {
                    imported.stored.1 += receipt.stored;
                    imported.known += receipt.known;
                }
            }
        }
        progress(done, total);
    }
    if summary.events == index.events.entries {
        imported.skipped += index.events.entries.count;
    } else {
        for object in &index.events.objects {
            let bytes = object.read(place).await?;
            let receipt: Option<EventReceipt> = upload(
                replica,
                (paths::EVENTS, CBOR_SEQ),
                bytes,
                (object.name.as_str(), &mut imported.refused),
            )
            .await?;
            if let Some(receipt) = receipt {
                imported.stored.2 += receipt.stored;
                imported.known += receipt.known;
            }
        }
    }
    progress(total, total);
    Ok(imported)
}

/// Uploads an object. Returns `None` if the cloud refused it.
async fn upload<R: DeserializeOwned>(
    replica: &Replica,
    (path, media_type): (&str, &'static str),
    bytes: Vec<u8>,
    (name, refused): (&str, &mut Findings),
) -> Result<Option<R>, BackupError> {
    let response = match replica.client().put(path, media_type, bytes.into()).await {
        Err(NetError::Refused { status: 409 | 413 | 422, name: error, detail, .. }) => {
            refused.add(&error, format!("{name}: {detail}"));
            return Ok(None);
        }
        response => response?,
    };
    let url = response.url().to_owned();
    let receipt = response.expect(JSON)?.bytes(RECEIPT).await?;
    let receipt = serde_json::from_slice(&receipt).map_err(|error| NetError::NotACloud {
        url,
        cause: format!("the receipt is not valid: {error}"),
    })?;
    Ok(Some(receipt))
}

/// Returns the fingerprint of each block that the cloud has.
async fn fingerprints(
    replica: &Replica,
    of: BlocksOf,
) -> Result<HashMap<u64, Fingerprint>, BackupError> {
    let (mut walk, mut found) = (BlockWalk::new(of), HashMap::new());
    while let Some(blocks) = walk.next(replica).await? {
        found.extend(blocks.into_iter().map(|block| (block.first, block.entries)));
    }
    Ok(found)
}
