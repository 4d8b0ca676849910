//! The check of any store, through the interface that a cloud uses.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::Directory;

use super::urgent::finding;
use super::{Check, Finding, Progress, Report, Source};
use crate::bundle::SealKey;
use crate::embedded::index_key;
use crate::epochs::{EpochStore, Head, ReadError};
use crate::stored::StoredSeal;
use crate::urgent::UrgentLimits;

/// The maximum number of seals, manifests or devices that are read at once.
const PAGE: usize = 64;
const EVENTS: UrgentLimits = UrgentLimits { read: 1024, events: 1024, bytes: 4 << 20 };

/// The bodies and schemas of a store.
struct Open<'c>(&'c dyn EpochStore);

impl Source for Open<'_> {
    fn body(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError> {
        self.0.body(seal, 0..seal.body_length())
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.schema(digest)
    }
}

/// Checks an open store with the public keys in `directory`: every seal, manifest and urgent event,
/// and the listings against the seals. Calls `progress` after every seal. The store may be in use;
/// data that is stored meanwhile may be missing in the report.
///
/// # Errors
/// [`ReadError`] if the store is closed or cannot be read. Damage is a finding and not an error.
pub fn check_store(
    store: &dyn EpochStore,
    directory: &dyn Directory,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ReadError> {
    let source = Open(store);
    // Seals that are stored during the check are not compared with this earlier list.
    let listed = equivocations(store)?;
    let mut check = Check::new(&source, directory, progress, Report::default(), 0);
    let mut after = None;
    loop {
        let heads = match damage(store.devices(after, PAGE))? {
            Ok(heads) => heads,
            Err((_, what)) => {
                check.found(Finding::file(format!("the devices cannot be listed: {what}")));
                break;
            }
        };
        for head in &heads {
            check.device(store, head)?;
        }
        match heads.last() {
            Some(last) => after = Some(last.key.device),
            None => break,
        }
    }
    check.end_device();
    for key in listed.difference(&check.doubled).copied().collect::<Vec<_>>() {
        check.mismatch(&key, "is listed as signed twice, but is not");
    }
    let now = equivocations(store)?;
    for key in check.doubled.difference(&now).copied().collect::<Vec<_>>() {
        check.mismatch(&key, "was signed twice, but is not listed");
    }
    check.all_manifests(store)?;
    check.all_urgent(store)?;
    Ok(check.report)
}

/// Separates damage from other errors.
#[allow(clippy::type_complexity)]
fn damage<T>(
    read: Result<T, ReadError>,
) -> Result<Result<T, (Option<SealKey>, String)>, ReadError> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(ReadError::Damaged { key, what }) => Ok(Err((key, what))),
        Err(error) => Err(error),
    }
}

fn equivocations(store: &dyn EpochStore) -> Result<BTreeSet<[u8; 12]>, ReadError> {
    let (mut after, mut all) = (None, BTreeSet::new());
    loop {
        let page = store.equivocations(after, PAGE)?;
        all.extend(page.iter().map(|found| index_key(found.device, found.index)));
        match page.last() {
            Some(last) => after = Some((last.device, last.index)),
            None => return Ok(all),
        }
    }
}

impl Check<'_> {
    fn mismatch(&mut self, key: &[u8; 12], what: &str) {
        let (device, index) = crate::embedded::index_of(key);
        let key = SealKey { device, index, digest: Digest::NULL };
        self.found(Finding::seal("IndexMismatch", &key, what));
    }

    /// Checks all seals of a device. `head` is its newest one in the list of devices.
    fn device(&mut self, store: &dyn EpochStore, head: &Head) -> Result<(), ReadError> {
        let device = head.key.device;
        // The highest epoch, and the lowest index that has it.
        let mut highest: Option<(EpochNumber, SealIndex)> = None;
        let mut has_head = false;
        let mut from = Some(SealIndex(0));
        let mut limit = PAGE;
        while let Some(first) = from {
            let page = damage(store.seals(device, first, limit))?;
            let seals = match page {
                Ok(mut seals) if seals.len() == limit && limit > 1 => {
                    // The last index may have further seals, so it is read with the next page.
                    let last = seals[limit - 1].key().index;
                    if seals[0].key().index == last {
                        limit = 1;
                        continue;
                    }
                    seals.retain(|seal| seal.key().index != last);
                    from = Some(last);
                    seals
                }
                Ok(seals) if limit > 1 || seals.is_empty() => {
                    from = None;
                    seals
                }
                Ok(seals) => {
                    let index = seals[0].key().index;
                    match damage(store.seals_at(device, index))? {
                        Ok(seals) => {
                            (from, limit) = (index.0.checked_add(1).map(SealIndex), PAGE);
                            seals
                        }
                        Err(error) => {
                            from = self.unreadable(device, index, error);
                            limit = PAGE;
                            continue;
                        }
                    }
                }
                // Read up to the damaged seal one by one.
                Err(_) if limit > 1 => {
                    limit = 1;
                    continue;
                }
                Err(error) => {
                    from = self.unreadable(device, first, error);
                    limit = PAGE;
                    continue;
                }
            };
            for seal in &seals {
                let (key, epoch) = (seal.key(), seal.seal().statement().epoch);
                self.report.seals += 1;
                self.report.bytes += (seal.sign1().len() + 32 * seal.blocks().len()) as u64;
                self.report.bytes += seal.inline_body().map_or(0, |body| body.len() as u64);
                has_head |= key == head.key;
                if highest.is_none_or(|(highest, _)| epoch > highest) {
                    highest = Some((epoch, key.index));
                }
                self.seal(seal);
                self.show();
            }
        }
        if !has_head {
            let what = "is listed as the newest seal of the device, but cannot be read";
            self.found(Finding::seal("IndexMismatch", &head.key, what));
        }
        if let Some((epoch, index)) = highest
            && let Ok(found) = damage(store.seals_since(device, epoch, 1))?
            && found.first().map(|seal| seal.key().index) != Some(index)
        {
            // A later seal may have been stored meanwhile, but not an earlier one with this epoch.
            let key = SealKey { device, index, digest: Digest::NULL };
            self.found(Finding::seal("IndexMismatch", &key, "is not found by its epoch"));
        }
        Ok(())
    }

    /// Reports seals that cannot be read. Returns the index after them.
    fn unreadable(
        &mut self,
        device: DeviceId,
        from: SealIndex,
        (key, what): (Option<SealKey>, String),
    ) -> Option<SealIndex> {
        let key = key.filter(|key| key.device == device && key.index >= from);
        let indices = Some((from, key.map_or(SealIndex(u32::MAX), |key| key.index)));
        let indices = key.map_or(indices, |key| Some((key.index, key.index)));
        self.found(Finding { name: "SealsUnreadable", device: Some(device), indices, what });
        key.and_then(|key| key.index.0.checked_add(1)).map(SealIndex)
    }

    fn all_manifests(&mut self, store: &dyn EpochStore) -> Result<(), ReadError> {
        let mut after = None;
        loop {
            match damage(store.manifests(EpochNumber(0), None, after, PAGE))? {
                Ok(page) => {
                    for manifest in &page {
                        self.manifest(&manifest.key(), manifest.bytes());
                    }
                    match page.last() {
                        Some(last) => after = Some(last.key()),
                        None => return Ok(()),
                    }
                }
                Err((_, what)) => {
                    let name = "ManifestsUnreadable";
                    self.found(Finding { name, device: None, indices: None, what });
                    return Ok(());
                }
            }
        }
    }

    fn all_urgent(&mut self, store: &dyn EpochStore) -> Result<(), ReadError> {
        let (mut after, mut used) = (None, BTreeMap::<DeviceId, u64>::new());
        loop {
            let page = match damage(store.urgent(after, EVENTS, &|_, _| true))? {
                Ok(page) => page,
                Err((_, what)) => {
                    let name = "EventsUnreadable";
                    self.found(Finding { name, device: None, indices: None, what });
                    return Ok(());
                }
            };
            for (key, bytes) in &page.events {
                self.report.urgent += 1;
                *used.entry(key.device).or_default() += bytes.len() as u64;
                let mut found = Vec::new();
                if let Some((schema, _)) = self.urgent_event(key, bytes, &mut found)
                    && !matches!(damage(store.schema(&schema))?, Ok(Some(_)))
                {
                    found.push(finding("SchemaUnknown", key, "has a schema that is missing"));
                }
                self.report.damage.append(&mut found);
            }
            after = page.last.or(after);
            if !page.has_more {
                break;
            }
        }
        for (device, bytes) in used {
            // Events that are stored meanwhile are counted already.
            if store.urgent_bytes(device)? < bytes {
                let what = "the count of the device's urgent events is wrong".to_owned();
                let name = "IndexMismatch";
                self.found(Finding { name, device: Some(device), indices: None, what });
            }
        }
        Ok(())
    }
}
