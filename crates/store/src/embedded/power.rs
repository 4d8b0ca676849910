//! Simulates power losses. The simulated disk may lose any of the writes since the last sync,
//! sector by sector.
//!
//! Power may be lost at every sync. Some of the sectors that were written since the previous sync
//! are then on the disk, and the others are not. A sector that was written several times may have
//! any of the written contents. In every case, all batches that were acknowledged before must be
//! present.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use moteseal_core::record::Scheme;
use redb::{Database, ReadableDatabase, StorageBackend};

use super::commit::{Known, commit};
use super::open::make_tables;
use super::{MANIFESTS, PIECES, SEALS, decode, read_body};
use crate::Bundle;
use crate::batch::Batch;
use crate::conformance::{Mote, manifest};
use crate::pages::{Damaged, Pages};

const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Disk {
    /// The contents at the last sync, which are certainly on the disk.
    synced: Vec<u8>,
    /// The contents that the process reads.
    current: Vec<u8>,
    /// The contents that each sector has had since the last sync, oldest first.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    acknowledged: usize,
    /// Possible contents after a power loss, each with the number of batches acknowledged before.
    losses: Vec<(usize, Vec<u8>)>,
    random: u64,
}

impl Disk {
    fn random(&mut self, below: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    /// Returns one possible content of the disk after a power loss.
    fn lose_power(&mut self) -> Vec<u8> {
        // The share of the unsynced sectors that reach the disk, from none to all.
        let (keep, of) = (self.random(9), 8);
        let mut image = self.synced.clone();
        if self.random(2) == 0 || self.synced.len() > self.current.len() {
            image.resize(self.current.len(), 0);
        }
        let sectors: Vec<(usize, Vec<Vec<u8>>)> = self.unsynced.clone().into_iter().collect();
        for (sector, contents) in sectors {
            if self.random(of) >= keep {
                continue;
            }
            let content = &contents[self.random(contents.len())];
            let end = (sector * SECTOR + content.len()).min(self.current.len());
            if image.len() < end {
                // A write after the synced end extends the file.
                image.resize(self.current.len(), 0);
            }
            image[sector * SECTOR..end].copy_from_slice(&content[..end - sector * SECTOR]);
        }
        image
    }

    fn sync(&mut self) {
        for _ in 0..4 {
            let image = self.lose_power();
            self.losses.push((self.acknowledged, image));
        }
        self.synced.clone_from(&self.current);
        self.unsynced.clear();
    }
}

#[derive(Clone, Debug, Default)]
struct Storage(Arc<Mutex<Disk>>);

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap();
        let bytes = disk.current.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.lock().unwrap().current.resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().unwrap().sync();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if disk.current.len() < end {
            disk.current.resize(end, 0);
        }
        disk.current[start..end].copy_from_slice(data);
        for sector in start / SECTOR..end.div_ceil(SECTOR) {
            let content = disk.current
                [sector * SECTOR..((sector + 1) * SECTOR).min(disk.current.len())]
                .to_vec();
            disk.unsynced.entry(sector).or_default().push(content);
        }
        Ok(())
    }
}

fn database(storage: Storage) -> Database {
    Database::builder().create_with_backend(Pages::on(storage, Damaged::default())).unwrap()
}

fn put(database: &Database, known: &mut Known, batch: Vec<Bundle>) {
    commit(database, true, known, &[&batch.into()]).unwrap();
}

fn assert_stored(database: &Database, bundle: &Bundle) {
    let transaction = database.begin_read().unwrap();
    let seals = transaction.open_table(SEALS).unwrap();
    let row = seals.get(bundle.key.to_bytes()).unwrap().expect("an acknowledged seal is stored");
    let seal = decode(bundle.key.to_bytes(), row.value()).unwrap();
    let pieces = transaction.open_table(PIECES).unwrap();
    assert!(
        read_body(&pieces, &seal, 0..seal.body_length()).unwrap() == bundle.body,
        "its events are whole"
    );
}

#[test]
fn acknowledged_batches_survive_a_power_loss() {
    let disk = Storage::default();
    disk.0.lock().unwrap().random = 7;
    let store = database(disk.clone());
    make_tables(&store).unwrap();
    // Ignore power losses until here: `open::make` creates the tables in a file with a temporary
    // name.
    disk.0.lock().unwrap().losses.clear();

    let mut motes = [Mote::new("one", false), Mote::new("two", true)];
    let mut known = Known::default();
    let mut batches: Vec<Vec<Bundle>> = Vec::new();
    for i in 0..40u64 {
        let n = if i % 10 == 9 { 8_000 } else { 200 + 10 * i as u32 };
        let scheme = if i % 3 == 0 { Scheme::Tree } else { Scheme::Star };
        let batch: Vec<Bundle> =
            motes.iter_mut().map(|mote| mote.seal_some(scheme, i, n).bundle).collect();
        put(&store, &mut known, batch.clone());
        batches.push(batch);
        disk.0.lock().unwrap().acknowledged = batches.len();
    }
    let losses = std::mem::take(&mut disk.0.lock().unwrap().losses);
    assert!(losses.len() >= 4 * batches.len());
    let mut rolled_back = 0;
    for (acknowledged, image) in losses {
        let after = Storage::default();
        after.0.lock().unwrap().current.clone_from(&image);
        after.0.lock().unwrap().synced = image;
        let store = database(after.clone());
        batches[..acknowledged].iter().flatten().for_each(|bundle| assert_stored(&store, bundle));
        // The batch in progress is stored either completely or not at all.
        let seals = store.begin_read().unwrap().open_table(SEALS).unwrap();
        let next = batches.get(acknowledged).map_or(&[][..], Vec::as_slice);
        let present = next
            .iter()
            .filter(|bundle| seals.get(bundle.key.to_bytes()).unwrap().is_some())
            .count();
        assert!(present == 0 || present == next.len(), "a part of a batch is stored");
        rolled_back += usize::from(present == 0);
        drop(seals);
        // The store accepts further batches.
        let mut mote = Mote::new("three", false);
        let next = mote.seal_some(Scheme::Star, 0, 100).bundle;
        put(&store, &mut Known::default(), vec![next.clone()]);
        assert_stored(&store, &next);
        batches[..acknowledged].iter().flatten().for_each(|bundle| assert_stored(&store, bundle));
    }
    assert!(rolled_back > 10, "the simulation interrupts too few batches");
}

/// Covers manifests, and seals that receive more levels. After a power loss each is in the state
/// that was acknowledged or in the state that the batch in progress gives it.
#[test]
fn growing_seals_and_manifests_survive_a_power_loss() {
    let disk = Storage::default();
    disk.0.lock().unwrap().random = 11;
    let store = database(disk.clone());
    make_tables(&store).unwrap();
    disk.0.lock().unwrap().losses.clear();

    let mut mote = Mote::new("one", true);
    let mut known = Known::default();
    let mut steps: Vec<Batch> = Vec::new();
    for epoch in 0..6u64 {
        let whole = mote.seal_some(Scheme::Star, epoch, [100, 700, 9_000][epoch as usize % 3]);
        steps.push(vec![manifest(epoch, 4, &[&whole])].into());
        steps.extend([4, 1].map(|round| vec![whole.pruned(round, mote.schema()).bundle].into()));
        steps.push(vec![whole.bundle].into());
    }
    for (number, step) in (1..).zip(&steps) {
        commit(&store, true, &mut known, &[step]).unwrap();
        disk.0.lock().unwrap().acknowledged = number;
    }
    let losses = std::mem::take(&mut disk.0.lock().unwrap().losses);
    let mut rolled_back = 0;
    for (acknowledged, image) in losses {
        let after = Storage::default();
        after.0.lock().unwrap().current.clone_from(&image);
        after.0.lock().unwrap().synced = image;
        let store = database(after);
        let transaction = store.begin_read().unwrap();
        let (seals, pieces) =
            (transaction.open_table(SEALS).unwrap(), transaction.open_table(PIECES).unwrap());
        let manifests = transaction.open_table(MANIFESTS).unwrap();
        for manifest in steps[..acknowledged].iter().flat_map(|step| &step.manifests) {
            let stored = manifests
                .get(manifest.key.to_bytes())
                .unwrap()
                .expect("an acknowledged manifest is stored");
            assert!(stored.value() == manifest.bytes);
        }
        let in_progress = steps.get(acknowledged).map_or(&[][..], |step| &step.bundles);
        for bundle in steps[..acknowledged].iter().flat_map(|step| &step.bundles) {
            let last = steps[..acknowledged]
                .iter()
                .flat_map(|step| &step.bundles)
                .rfind(|other| other.key == bundle.key)
                .unwrap();
            let row =
                seals.get(bundle.key.to_bytes()).unwrap().expect("an acknowledged seal is stored");
            let seal = decode(bundle.key.to_bytes(), row.value()).unwrap();
            let next = in_progress.iter().find(|next| next.key == bundle.key);
            rolled_back += usize::from(next.is_some_and(|next| next.kept != seal.kept()));
            let expected = next.filter(|next| next.kept == seal.kept()).unwrap_or(last);
            assert_eq!(seal.kept(), expected.kept, "never fewer levels than were acknowledged");
            assert!(
                read_body(&pieces, &seal, 0..seal.body_length()).unwrap() == expected.body,
                "its events are whole"
            );
        }
    }
    assert!(rolled_back > 10, "the simulation interrupts too few batches");
}
