//! Makes three devices with their seals, an honest cloud that stores all of them, and the sealed
//! readings with which to compare answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use moteseal_adversary::{Answer, COORDINATOR, Holdings, Select};
use moteseal_api::{CBOR_SEQ, COSE, JSON, Query, paths};
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Sink};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field as Column, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer as _};
use moteseal_device::seal::{Chain, Profile, Sealer};
use moteseal_net::{Client, Options};
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, ManifestDraft};
use moteseal_store::{EpochStore, RedbStore};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

pub const NAMES: [&str; 3] = ["north", "south", "west"];
/// The epochs that every device sealed.
pub const EPOCHS: std::ops::Range<u64> = 100..109;
pub const EPOCH_MS: u64 = 900_000;
const COLUMNS: [&str; 6] = [
    "temperature:Cel:i16/100",
    "humidity:%RH:u16/100",
    "energy:J:u64",
    "pressure:Pa:u16+90000",
    "current:A:f64",
    "taken:ms:time",
];

/// The key of a sealed event: device, epoch, index and sequence number.
pub type Key = (DeviceId, u64, u32, u64);
/// The event that was sealed under each key: the record, and the values as text.
pub type Truth = BTreeMap<Key, (Vec<u8>, Vec<String>)>;

pub struct Field {
    pub roster: Roster,
    pub devices: Vec<DeviceId>,
    pub keys: BTreeMap<DeviceId, SecretKey>,
    pub schema: Vec<u8>,
    pub truth: Truth,
    pub bundles: Vec<(DeviceId, u64, Vec<u8>)>,
    /// The manifests, if the group has a budget.
    pub manifests: Vec<Vec<u8>>,
    /// All events, including those that the bundles lack because of the budget.
    pub holdings: Holdings,
}

fn roster(operator: &SecretKey, group: &str, keys: &[SecretKey], budget: Option<Budget>) -> Roster {
    let devices: Vec<(&str, PublicKey)> =
        NAMES.into_iter().zip(keys.iter().map(SecretKey::public)).collect();
    let issued = FirstRoster { group, epoch_ms: EPOCH_MS, levels: 12, budget, devices: &devices };
    Roster::open(&issued.issue(operator).unwrap(), &operator.public()).unwrap()
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns the values of one event as text, in the form in which an instrument writes them.
fn values(device: usize, epoch: u64, seq: u64, shift: u64) -> Vec<String> {
    let step = seq * 7 + epoch * 13 + device as u64 * 31 + shift;
    let temperature = i64::try_from(step % 1900).unwrap() - 700;
    let sign = if temperature < 0 { "-" } else { "" };
    let hundredths = |value: u64| format!("{}.{:02}", value / 100, value % 100);
    vec![
        format!("{sign}{}", hundredths(temperature.unsigned_abs())),
        hundredths(4000 + step % 97),
        (u64::MAX - step).to_string(),
        (90_000 + step % 60_000).to_string(),
        (step as f64 / 3.0).to_string(),
        (seq * 1000).to_string(),
    ]
}

impl Field {
    /// Makes three devices: the first closes its epochs, the second leaves them open, and the third
    /// seals each epoch in two parts.
    pub fn new(scheme: Scheme) -> Self {
        Self::with_shift(scheme, 0)
    }

    /// Makes the same devices with the same keys, but with readings that differ by `shift`. Each
    /// shift gives a different history.
    pub fn with_shift(scheme: Scheme, shift: u64) -> Self {
        Self::made(scheme, shift, None)
    }

    /// Makes the same devices in a group with a budget. `round` returns the final round of each
    /// epoch. The bundles are stars that have the levels from that round on, and each epoch has a
    /// manifest.
    pub fn within_budget(round: fn(u64) -> u8) -> Self {
        let coordinator = secret(20);
        let mut field = Self::made(
            Scheme::Star,
            0,
            Some(Budget { events: 500, coordinator: coordinator.public() }),
        );
        field.bundles.clear();
        for epoch in EPOCHS {
            let from = u32::MAX << round(epoch);
            let mut listed = Vec::new();
            for &device in &field.devices {
                let held: Vec<_> = field
                    .holdings
                    .seals(device)
                    .filter(|held| held.seal.statement().epoch == EpochNumber(epoch))
                    .collect();
                for held in &held {
                    let items =
                        held.run(Select::Levels(from & held.seal.statement().surviving())).to_vec();
                    field.bundles.push((device, epoch, Answer { items }.encode()));
                }
                listed
                    .push((device, held.iter().map(|held| held.seal.digest()).collect::<Vec<_>>()));
            }
            listed.sort_by_key(|(device, _)| *device);
            let devices: Vec<(DeviceId, &[Digest])> =
                listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
            let (group, roster) = (field.roster.group(), field.roster.digest());
            let (epoch, round) = (EpochNumber(epoch), Round(round(epoch)));
            let draft = ManifestDraft { group, roster, epoch, round, devices: &devices };
            let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
            field
                .manifests
                .push(draft.issue(&coordinator, &mut scratch, &mut out).unwrap().to_vec());
        }
        field.keys.insert(COORDINATOR, coordinator);
        field
    }

    fn made(scheme: Scheme, shift: u64, budget: Option<Budget>) -> Self {
        let keys = [secret(10), secret(11), secret(12)];
        let roster = roster(&secret(1), "orchard", &keys, budget);
        let mut schema = [0; 512];
        let columns = COLUMNS.map(|text| Column::parse(text).unwrap());
        let schema = Schema::encode(&columns, &mut schema).unwrap();
        let size = schema.record_size().unwrap();
        let mut field = Self {
            devices: NAMES.iter().map(|name| roster.id(name).unwrap()).collect(),
            keys: BTreeMap::new(),
            schema: schema.as_bytes().to_vec(),
            truth: Truth::new(),
            bundles: Vec::new(),
            manifests: Vec::new(),
            holdings: Holdings::default(),
            roster,
        };
        for (number, key) in keys.into_iter().enumerate() {
            let profile = Profile::new(&field.roster, NAMES[number], scheme, &schema).unwrap();
            let (device, chain) = (profile.device, Chain::start(profile.certificate));
            let mut sealer = Sealer::new(profile, key.clone(), SaltKey::new([9; 32]), chain);
            for epoch in EPOCHS {
                let parts = if number == 2 { 2 } else { 1 };
                let mut count = 0;
                for part in 1..=parts {
                    let mut sealed = Vec::new();
                    for _ in 0..160 + epoch % 9 {
                        let texts = values(number, epoch, count, shift);
                        count += 1;
                        let mut record = vec![0; size];
                        schema
                            .fields()
                            .zip(&texts)
                            .for_each(|(column, text)| column.write(text, &mut record).unwrap());
                        assert!(sealer.push(EpochNumber(epoch), &record).unwrap().is_none());
                        sealed.push((record, texts));
                    }
                    let bundle = sealer.close(number != 1 && part == parts).unwrap().unwrap();
                    let keyed = |(seq, event)| ((device, epoch, bundle.index().0, seq), event);
                    field.truth.extend((0..).zip(sealed).map(keyed));
                    field.holdings.take(&field.roster, &bundle.bytes).unwrap();
                    field.bundles.push((device, epoch, bundle.bytes));
                }
            }
            field.keys.insert(device, key);
        }
        field
    }

    /// Returns a roster with the same devices, of another operator or of another group.
    pub fn stranger(operator: u8, group: &str) -> Roster {
        roster(&secret(operator), group, &[secret(10), secret(11), secret(12)], None)
    }

    /// Returns a query for all devices and for the epochs in the middle of the sealed range.
    pub fn query(&self, choice: Choice) -> Query {
        Query {
            devices: self.devices.clone(),
            since: EpochNumber(102),
            until: Some(EpochNumber(107)),
            choice,
            columns: Vec::new(),
        }
    }

    /// Signs with a device's key, for lies in which a device takes part.
    pub fn sign(&self, device: DeviceId, message: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.get(&device)?;
        let mut signature = vec![0; key.public().algorithm().signature_length()];
        key.sign(message, &mut signature).unwrap();
        Some(signature)
    }
}

/// A cloud with a new store that has received the bundles up to an epoch.
pub struct Honest {
    pub url: String,
    _directory: tempfile::TempDir,
}

impl Honest {
    pub async fn serve(field: &Field, before: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = moteseal_store::Options::default();
        let store: Arc<dyn EpochStore> =
            Arc::new(RedbStore::open(&directory.path().join("epochs.redb"), options).unwrap());
        let cloud = Cloud::bind(Config::new(field.roster.clone()), store).await.unwrap();
        let url = cloud.url();
        tokio::spawn(cloud.run(std::future::pending()));
        let client = client(&url);
        for manifest in &field.manifests {
            client
                .put(paths::MANIFESTS, COSE, Bytes::from(manifest.clone()))
                .await
                .unwrap()
                .expect(JSON)
                .unwrap();
        }
        for device in &field.devices {
            let bundles =
                field.bundles.iter().filter(|(of, epoch, _)| of == device && *epoch < before);
            let body: Vec<u8> = bundles.flat_map(|(_, _, bytes)| bytes.clone()).collect();
            client.put(paths::BUNDLES, CBOR_SEQ, Bytes::from(body)).await.unwrap();
        }
        Self { url, _directory: directory }
    }
}

pub fn client(url: &str) -> Client {
    Client::new(url, &Options::default()).unwrap()
}

/// A sink that asserts that each row is exactly as sealed and occurs once.
pub struct Checked<'f> {
    truth: &'f Truth,
    pub seen: BTreeMap<Key, Vec<u8>>,
}

impl<'f> Checked<'f> {
    pub fn new(field: &'f Field) -> Self {
        Self { truth: &field.truth, seen: BTreeMap::new() }
    }
}

impl Sink for Checked<'_> {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let statement = rows.statement();
        assert_eq!(NAMES.iter().filter(|name| **name == rows.name()).count(), 1);
        rows.for_each(|seq, _, record| {
            let key = (statement.device, statement.epoch.0, statement.index.0, seq.0);
            assert_eq!(
                self.truth.get(&key).map(|(sealed, _)| sealed.as_slice()),
                Some(record),
                "not sealed: {key:?}"
            );
            assert!(
                self.seen.insert(key, record.to_vec()).is_none(),
                "a row occurs twice: {key:?}"
            );
        });
        Ok(())
    }
}
