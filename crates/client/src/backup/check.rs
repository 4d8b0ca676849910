//! Verifies a backup offline.

use moteseal_api::summary::{BLOCK, Fingerprint};
use moteseal_core::roster::Directory as _;
use moteseal_verify::Roster;

use super::index::{Block, Index, Object};
use super::place::Place;
use super::{BackupError, Findings, content};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of seals that were verified.
    pub seals: u64,
    /// The number of manifests that were verified.
    pub manifests: u64,
    /// The number of urgent events that were verified.
    pub events: u64,
    /// The bytes that were read.
    pub bytes: u64,
    /// The objects that are missing or altered, that do not verify, or that are not those that the
    /// index describes.
    pub findings: Findings,
}

/// Reads every object of a backup and verifies it with the roster. `progress` is called with the
/// number of bytes that were read and of all bytes.
///
/// # Errors
/// [`BackupError`] if there is no index that can be read, or if it is of another group. Everything
/// else is a finding.
pub async fn check(
    place: &Place,
    roster: &Roster,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Checked, BackupError> {
    let index = Index::read(place).await?;
    let index = index.ok_or_else(|| BackupError::NoIndex { place: place.name() })?;
    if index.group != roster.group().to_string() {
        return Err(BackupError::OtherGroup { whose: place.name(), group: index.group });
    }
    let total = index.objects().map(|object| object.length).sum();
    let mut checked = Checked::default();
    for block in &index.seals {
        let mut sum = Fingerprint::EMPTY;
        for object in &block.objects {
            let read = |bytes: &[u8]| seals(roster, block, bytes);
            sum.add(&checked.object(place, object, read).await?);
            progress(checked.bytes, total);
        }
        checked.seals += sum.count;
        checked.compare(&block_name(block), &sum, &block.entries);
    }
    for block in &index.manifests {
        let mut sum = Fingerprint::EMPTY;
        for object in &block.objects {
            let read = |bytes: &[u8]| manifests(roster, block, bytes);
            sum.add(&checked.object(place, object, read).await?);
            progress(checked.bytes, total);
        }
        checked.manifests += sum.count;
        checked.compare(&block_name(block), &sum, &block.entries);
    }
    let mut sum = Fingerprint::EMPTY;
    for object in &index.events.objects {
        let read = |bytes: &[u8]| {
            content::events(roster, bytes).map(|all| all.iter().sum()).map_err(str::to_owned)
        };
        sum.add(&checked.object(place, object, read).await?);
        progress(checked.bytes, total);
    }
    checked.events += sum.count;
    checked.compare("the urgent events", &sum, &index.events.entries);
    Ok(checked)
}

impl Checked {
    /// Reads an object, and returns the fingerprint of what it contains. If it is wrong, it counts
    /// as empty.
    async fn object(
        &mut self,
        place: &Place,
        object: &Object,
        read: impl FnOnce(&[u8]) -> Result<Fingerprint, String>,
    ) -> Result<Fingerprint, BackupError> {
        self.bytes = self.bytes.saturating_add(object.length);
        match object.read(place).await {
            Ok(bytes) => Ok(read(&bytes).unwrap_or_else(|name| {
                self.findings.add(&name, object.name.clone());
                Fingerprint::EMPTY
            })),
            Err(error @ BackupError::Damaged { .. }) => {
                self.findings.add(error.name(), error.to_string());
                Ok(Fingerprint::EMPTY)
            }
            Err(error) => Err(error),
        }
    }

    fn compare(&mut self, what: &str, found: &Fingerprint, stated: &Fingerprint) {
        if found != stated {
            self.findings.add("BackupDamaged", format!("{what}: not what the index states"));
        }
    }
}

fn block_name(block: &Block) -> String {
    let end = block.first.saturating_add(BLOCK - 1);
    match &block.device {
        Some(device) => format!("the seals {} to {end} of device {device}", block.first),
        None => format!("the manifests of the epochs {} to {end}", block.first),
    }
}

fn seals(roster: &Roster, block: &Block, bytes: &[u8]) -> Result<Fingerprint, String> {
    let seals = content::seals(roster, bytes).map_err(|error| error.name().to_owned())?;
    let is_of = |seal: &moteseal_net::replica::ListedSeal| {
        let index = u64::from(seal.index.0);
        Some(seal.device.to_string()) == block.device
            && (block.first..block.first.saturating_add(BLOCK)).contains(&index)
    };
    if !seals.iter().all(is_of) {
        return Err("BackupDamaged".to_owned());
    }
    Ok(seals.iter().map(content::fingerprint).collect::<Vec<_>>().iter().sum())
}

fn manifests(roster: &Roster, block: &Block, bytes: &[u8]) -> Result<Fingerprint, String> {
    let manifests = content::manifests(bytes).ok_or("UnknownItem")?;
    let mut sum = Fingerprint::EMPTY;
    for manifest in manifests {
        let (epoch, entry) = content::manifest(roster, manifest)?;
        if !(block.first..block.first.saturating_add(BLOCK)).contains(&epoch) {
            return Err("BackupDamaged".to_owned());
        }
        sum.add(&entry);
    }
    Ok(sum)
}
