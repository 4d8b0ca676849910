//! Who reads the encrypted columns of a simulated group: the owner, and a reader with a grant of some
//! devices, columns and epochs. Both decrypt what the cloud has, and the cells are compared with those that
//! the devices sensed. Without a key, neither the gateway's nor the cloud's bytes have a cell of an
//! encrypted column.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;

use moteseal_client::decrypt::DeviceKeys;
use moteseal_core::confidential::{
    EncryptedColumns, KeyAccessError, KeyRequest, KeyStream, SealKeys,
};
use moteseal_core::record::{EpochNumber, Scheme};
use moteseal_core::schema::{Schema, ValueError};
use moteseal_core::{DeviceId, Digest};
use moteseal_grant::{GrantRequest, Identity, OpenGrant, Owner, Recipients, Unlock};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_store::{Bundle as StoredBundle, EpochStore as _, Options, RedbStore};
use moteseal_verify::issue::NextRoster;
use moteseal_verify::{Event, Proven, ReadError, Roster, StreamReader};

use super::columns::{Columns, ENCRYPTED, cell, stream_secret};
use super::device::Device;
use super::{EPOCHS, FIRST, World, secret};
use crate::chance::Chance;

const OWNER: &str = "alice";

/// The reader with the grant.
pub(super) struct Reader {
    /// The grant, which was made under the first version of the roster that lists the owner.
    file: Vec<u8>,
    unlock: Unlock,
    devices: Vec<DeviceId>,
    columns: Vec<&'static str>,
    epochs: RangeInclusive<EpochNumber>,
    /// Whether the cloud's database is written to a file and searched, too.
    searches_file: bool,
}

/// What readers have decrypted.
#[derive(Debug, Default)]
pub(super) struct Decrypted {
    /// The seals with encrypted columns, of trees (`true`) and stars.
    seals: BTreeMap<(bool, Columns), u64>,
    /// The cells that the reader decrypted, and those that it was not granted.
    granted: u64,
    withheld: u64,
    /// The seals by their nonces.
    nonces: BTreeMap<[u8; 12], Digest>,
    /// The readings of the rows.
    readings: BTreeSet<u32>,
    /// The files that were searched.
    files: u64,
}

impl Decrypted {
    pub(super) fn add(&mut self, other: Self) {
        // Nonces and readings are compared within a run.
        let Self { seals, granted, withheld, nonces: _, readings: _, files } = other;
        for (kind, count) in seals {
            *self.seals.entry(kind).or_default() += count;
        }
        self.granted += granted;
        self.withheld += withheld;
        self.files += files;
    }

    /// Asserts that enough was decrypted in this number of runs.
    pub(super) fn check_counts(&self, runs: u64) {
        for is_tree in [false, true] {
            for columns in [Columns::Encrypted, Columns::Grouped] {
                let count = self.seals.get(&(is_tree, columns)).copied().unwrap_or_default();
                assert!(count > runs / 20, "seals of {columns:?}, trees {is_tree}: {self:?}");
            }
        }
        assert!(self.granted > runs && self.withheld > runs, "{self:?}");
        assert!(self.files > runs / 100, "{self:?}");
    }
}

/// Issues a version of the roster that lists the owner.
pub(super) fn with_owner(roster: &Roster) -> Roster {
    let operator = secret(98);
    let public = operator.public();
    let mut next = NextRoster::after(roster.bytes(), &operator, &public).unwrap();
    next.set_owner(OWNER, &secret(97).public()).unwrap();
    Roster::open(&next.issue().unwrap(), &public).unwrap()
}

impl Reader {
    /// Draws what a reader is granted. Returns `None` if no device encrypts.
    pub(super) fn new(chance: &mut Chance, roster: &Roster, devices: &[Device]) -> Option<Self> {
        if devices.iter().all(|device| device.columns == Columns::Plain) {
            return None;
        }
        let mut owner = Owner::new("field", OWNER, secret(97)).unwrap();
        let mut granted = Vec::new();
        for device in devices.iter().filter(|device| device.columns != Columns::Plain) {
            let columns = device.columns.encrypted();
            owner.add(device.id, stream_secret(device.number), &columns).unwrap();
            if granted.is_empty() || chance.percent(70) {
                granted.push(device.id);
            }
        }
        let columns = match chance.below(3) {
            0 => vec![ENCRYPTED[0]],
            1 => vec![ENCRYPTED[1]],
            _ => ENCRYPTED.to_vec(),
        };
        let first = FIRST + chance.below(EPOCHS / 2);
        let epochs = EpochNumber(first)..=EpochNumber(first + chance.below(EPOCHS));
        let identity = Identity::generate();
        let request = GrantRequest {
            devices: &granted,
            columns: Some(&columns),
            epochs: epochs.clone(),
            recipients: &Recipients::Keys(vec![identity.recipient().clone()]),
            not_after_ms: None,
            purpose: "a simulation",
        };
        let file = owner.grant(&request, roster, false).unwrap();
        let unlock = Unlock::Identities(vec![identity]);
        let searches_file = chance.percent(10);
        Some(Self { file, unlock, devices: granted, columns, epochs, searches_file })
    }

    /// Opens the grant under a later version of the roster.
    pub(super) fn open(&self, roster: &Roster) -> OpenGrant {
        OpenGrant::open(&self.file, &self.unlock, roster, 0).unwrap()
    }

    /// Decrypts a verified part with the grant, and with the stream secret that the owner has. Asserts that
    /// each cell is the one that the device sensed, except that cells that are not granted have no
    /// value. Returns the number of rows.
    pub(super) fn check(
        &self,
        grant: &OpenGrant,
        proven: &Proven<'_>,
        (device, truth): (&Device, &[[u8; 4]]),
        decrypted: &mut Decrypted,
    ) -> u64 {
        let statement = proven.seal.statement();
        let nonce = statement.keys.as_ref().unwrap().nonce();
        let digest = proven.seal.digest();
        let before = decrypted.nonces.insert(nonce.0, digest);
        assert!(before.is_none_or(|before| before == digest), "two seals have one nonce");
        let kind = (statement.scheme == Scheme::Tree, device.columns);
        *decrypted.seals.entry(kind).or_default() += 1;

        let mut of_owner = DeviceKeys::new(device.id, stream_secret(device.number));
        let (rows, _) = opened(proven, (device, truth), &mut of_owner, &|_| true);
        proven.sample.for_each(&Scalar, |seq, _, _| {
            decrypted.readings.insert(u32::from_be_bytes(truth[seq.0 as usize]));
        });
        let is_granted = |column: &str| {
            self.devices.contains(&device.id)
                && self.columns.contains(&column)
                && self.epochs.contains(&statement.epoch)
        };
        let (again, cells) = opened(proven, (device, truth), &mut grant.keys(), &is_granted);
        assert_eq!(again, rows);
        decrypted.granted += cells;
        decrypted.withheld += rows * ENCRYPTED.len() as u64 - cells;
        rows
    }
}

/// Decrypts a part with keys that open some columns. Asserts that exactly these columns have the cells that
/// the device sensed, and that the others have no value. Returns the number of rows, and that of the cells
/// that were decrypted.
fn opened(
    proven: &Proven<'_>,
    (device, truth): (&Device, &[[u8; 4]]),
    keys: &mut dyn SealKeys,
    is_open: &dyn Fn(&str) -> bool,
) -> (u64, u64) {
    assert_eq!(proven.schema.bytes[..], device.columns.schema());
    let schema = Schema::decode(&proven.schema.bytes).unwrap();
    let statement = proven.seal.statement();
    let stated = statement.keys.as_ref().unwrap();
    assert_eq!(stated.commitments().len(), schema.encrypted_count());
    let mut streams = Vec::new();
    for ((field, column), commitment) in schema.encrypted_columns().zip(stated.commitments()) {
        let request = KeyRequest {
            device: statement.device,
            column,
            epoch: statement.epoch,
            index: statement.index,
            suite: field.suite.unwrap(),
            nonce: stated.nonce(),
        };
        let stream = match keys.seal_key(&request, commitment) {
            Ok(key) => {
                key.check(commitment).unwrap();
                Some(KeyStream::new(key))
            }
            Err(error) => {
                assert_eq!(error, KeyAccessError::NotCovered, "{request:?}");
                None
            }
        };
        assert_eq!(stream.is_some(), is_open(field.name), "{request:?}");
        streams.push(stream);
    }
    let (mut rows, mut cells) = (0, 0);
    proven.sample.for_each(&Scalar, |seq, _, sealed| {
        let sensed = device.columns.record(truth[seq.0 as usize]);
        let mut record = sealed.to_vec();
        let seen = EncryptedColumns::of(&schema).decrypt(seq, &mut record, &mut streams).unwrap();
        for field in schema.fields() {
            if field.suite.is_some() && !is_open(field.name) {
                assert_eq!(seen.read(&field), Err(ValueError::Encrypted));
                continue;
            }
            assert_eq!(seen.read(&field), field.in_plaintext().read(&sensed), "{}", field.name);
            cells += u64::from(field.suite.is_some());
        }
        rows += 1;
    });
    (rows, cells)
}

impl World {
    /// Asserts that neither what the gateway has made durable nor what the cloud has stored has a cell of
    /// an encrypted column in plaintext. The cells of the plain column of the same rows must be found.
    pub(super) fn check_stored_bytes(&self, decrypted: &mut Decrypted) {
        let Some(reader) = &self.reader else { return };
        let (search, late) = (Search::new(self.sensed), self.stored_late());
        let listed = self.ended.iter().flat_map(|ended| &ended.bundles);
        let bundles: Vec<&[u8]> =
            listed.chain(late.iter().map(|(_, bundle)| bundle)).map(Vec::as_slice).collect();
        let manifests = self.ended.iter().map(|ended| ended.manifest.as_slice());
        let mut at_cloud = BTreeSet::new();
        for bytes in bundles.iter().copied().chain(manifests) {
            search.add_found(bytes, &mut at_cloud);
        }
        assert_eq!(at_cloud, decrypted.readings, "plain cells at the cloud");
        let mut at_gateway = BTreeSet::new();
        self.durable.iter().for_each(|frame| search.add_found(frame, &mut at_gateway));
        assert!(at_cloud.is_subset(&at_gateway), "plain cells of frames");
        if reader.searches_file {
            let mut in_file = BTreeSet::new();
            search.add_found(&self.database(&bundles), &mut in_file);
            // A seal that is listed and late is stored once.
            assert!(in_file.is_subset(&at_cloud), "cells that no bundle has");
            assert_eq!(in_file.is_empty(), at_cloud.is_empty(), "plain cells in the cloud's file");
            decrypted.files += 1;
        }
    }

    /// Returns the bytes of the database of a cloud that has these bundles.
    fn database(&self, bundles: &[&[u8]]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epochs.redb");
        let store = RedbStore::open(&path, Options::default()).unwrap();
        let mut stored = Vec::new();
        for bundle in bundles {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                if let Event::Proven(proven) = event {
                    stored.push(StoredBundle::from_proven(&proven).unwrap());
                }
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        store.put(stored).unwrap();
        drop(store);
        fs::read(path).unwrap()
    }
}

/// A search for the cells of all readings.
struct Search {
    /// The readings and the columns of the cells.
    cells: HashMap<[u8; 8], (u32, u64)>,
    /// Which first two bytes cells have, because most of the searched bytes start no cell.
    starts: Vec<bool>,
}

impl Search {
    fn new(readings: u64) -> Self {
        let (mut cells, mut starts) = (HashMap::new(), vec![false; 1 << 16]);
        for reading in 0..u32::try_from(readings).unwrap() {
            for column in 0..=ENCRYPTED.len() as u64 {
                let cell = cell(reading.to_be_bytes(), column);
                starts[start(&cell)] = true;
                cells.insert(cell, (reading, column));
            }
        }
        Self { cells, starts }
    }

    /// Adds the readings whose plain cells are in these bytes. Asserts that no cell of an encrypted column
    /// is.
    fn add_found(&self, bytes: &[u8], found: &mut BTreeSet<u32>) {
        for window in bytes.windows(8).filter(|window| self.starts[start(window)]) {
            if let Some((reading, column)) = self.cells.get(window) {
                assert_eq!(*column, 0, "a cell of reading {reading} is in plaintext");
                found.insert(*reading);
            }
        }
    }
}

fn start(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}
