//! A small group of devices that seal for real, so that tests and vectors have something true to start from.

use moteseal_core::digest::Digest;
use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, Round, SealIndex, Sequence,
};
use moteseal_core::roster::{DeviceDraft, RosterDraft};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_seal::level::{Counters, Salt, SaltKey};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::{self, Tree, geometry};
use moteseal_seal::{Answered, Position, Seal, Star, Statement, Unverified, star};
use moteseal_verify::{Roster, write};

use super::value::{Value, bytes as bstr, int, text};

pub const GROUP: &str = "vectors";
pub const LEVELS: u8 = 8;
pub const FIRST_EPOCH: u64 = 5;
pub const LAST_EPOCH: u64 = 1000;
/// Records of 4 bytes: temperature and humidity.
pub const FIXED: &[&str] = &["temperature:Cel:i16/100", "humidity:%RH:u16/100"];

pub fn secret(algorithm: Algorithm, seed: u8) -> SecretKey {
    SecretKey::from_seed(algorithm, &[seed; 32]).unwrap()
}

pub fn operator() -> SecretKey {
    secret(Algorithm::Ed25519, 0x0a)
}

/// The schema of these fields; none for opaque records.
pub fn schema(fields: &[&str]) -> Vec<u8> {
    let fields: Vec<_> =
        fields.iter().map(|field| moteseal_core::schema::Field::parse(field).unwrap()).collect();
    Schema::encode(&fields, &mut vec![0; moteseal_core::schema::MAX_SCHEMA])
        .unwrap()
        .as_bytes()
        .to_vec()
}

pub fn certificate(
    operator: &SecretKey,
    group: &str,
    device: &str,
    serial: u64,
    key: &PublicKey,
    first_index: u32,
) -> Vec<u8> {
    let (group_id, device) = (GroupId::of(group), DeviceId::of(group, device));
    let draft = CertificateDraft {
        group: group_id,
        device,
        serial,
        key,
        first_index: SealIndex(first_index),
    };
    draft.issue(operator, &mut vec![0; MAX_CERTIFICATE]).unwrap().to_vec()
}

/// The devices of the group: name, and suite and first index of each key.
pub const DEVICES: &[(&str, &[(Algorithm, u32)])] = &[
    ("ed", &[(Algorithm::Ed25519, 0), (Algorithm::Esp256, 100)]),
    ("p256", &[(Algorithm::Esp256, 0)]),
    ("late", &[(Algorithm::Ed25519, 3)]),
];
/// A device with large keys, in a roster of its own.
pub const LATTICE: &[(&str, &[(Algorithm, u32)])] = &[("pq", &[(Algorithm::MlDsa44, 0)])];

/// The devices of the same group with a budget.
pub const BUDGETED: &[(&str, &[(Algorithm, u32)])] = &[
    ("north", &[(Algorithm::Ed25519, 0)]),
    ("south", &[(Algorithm::Ed25519, 0)]),
    ("west", &[(Algorithm::Esp256, 0)]),
    ("east", &[(Algorithm::Ed25519, 0)]),
];
/// The most events that its coordinator may keep an epoch.
pub const BUDGET: u64 = 40;

/// The coordinator's key.
pub fn coordinator(algorithm: Algorithm) -> SecretKey {
    secret(algorithm, 0x0c)
}

/// The key of a device from an index on.
pub fn device_secret(name: &str, algorithm: Algorithm, first_index: u32) -> SecretKey {
    let digest = Digest::of(&[
        b"device key",
        name.as_bytes(),
        algorithm.name().as_bytes(),
        &first_index.to_be_bytes(),
    ]);
    SecretKey::from_seed(algorithm, &digest.0).unwrap()
}

/// The roster, version 1, of these devices.
pub fn roster(devices: &[(&str, &[(Algorithm, u32)])]) -> Vec<u8> {
    roster_within(devices, None, None)
}

/// The roster, version 1, of the group with a budget, under a coordinator's key of this suite.
pub fn budgeted_roster(algorithm: Algorithm) -> Vec<u8> {
    roster_within(BUDGETED, Some(BUDGET), Some(&coordinator(algorithm).public()))
}

pub fn roster_within(
    devices: &[(&str, &[(Algorithm, u32)])],
    budget: Option<u64>,
    coordinator: Option<&PublicKey>,
) -> Vec<u8> {
    let operator = operator();
    let coordinator =
        coordinator.map(|key| certificate(&operator, GROUP, "coordinator", 99, key, 0));
    let mut listed: Vec<(&str, Vec<Vec<u8>>)> = Vec::new();
    for (name, keys) in devices {
        let certificates = (0..).zip(*keys).map(|(serial, &(algorithm, first_index))| {
            let key = device_secret(name, algorithm, first_index).public();
            certificate(&operator, GROUP, name, serial, &key, first_index)
        });
        listed.push((name, certificates.collect()));
    }
    listed.sort_by_key(|(name, _)| DeviceId::of(GROUP, name));
    let borrowed: Vec<Vec<&[u8]>> = listed
        .iter()
        .map(|(_, certificates)| certificates.iter().map(Vec::as_slice).collect())
        .collect();
    let drafts: Vec<DeviceDraft<'_>> = listed
        .iter()
        .zip(&borrowed)
        .map(|((name, _), certificates)| DeviceDraft { name, certificates })
        .collect();
    let draft = RosterDraft {
        group_name: GROUP,
        history: &[Digest::of(&[b"version 0"])],
        epoch_ms: 900_000,
        levels: LEVELS,
        budget,
        first_epoch: EpochNumber(FIRST_EPOCH),
        last_epoch: Some(EpochNumber(LAST_EPOCH)),
        coordinator: coordinator.as_deref(),
        devices: &drafts,
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.sign(&operator, &mut scratch, &mut out).unwrap().to_vec()
}

/// A tagged `COSE_Sign1` of any header and payload, signed for real.
pub fn sign1(secret: &SecretKey, header: &Value, payload: &[u8]) -> Vec<u8> {
    sign1_raw(secret, &header.encode(), payload)
}

pub fn sign1_raw(secret: &SecretKey, protected: &[u8], payload: &[u8]) -> Vec<u8> {
    let message =
        Value::Array(vec![text("Signature1"), bstr(protected), bstr(&[]), bstr(payload)]).encode();
    let signature = secret.signature(&message).unwrap();
    let object = Value::Array(vec![
        bstr(protected),
        Value::Map(Vec::new()),
        bstr(payload),
        bstr(&signature),
    ]);
    Value::Tag(18, Box::new(object)).encode()
}

/// The protected header of `typ`, and what comes behind it.
pub fn header(algorithm: Algorithm, typ: &str, rest: &[(i64, Value)]) -> Value {
    let mut pairs = vec![(int(1), int(algorithm.cose())), (int(16), text(typ))];
    pairs.extend(rest.iter().map(|(label, value)| (int(*label), value.clone())));
    Value::Map(pairs)
}

/// What a device is to seal.
#[derive(Clone, Debug)]
pub struct Epoch {
    pub scheme: Scheme,
    pub epoch: u64,
    pub last_in_epoch: bool,
    pub restart: bool,
    pub skipped: u32,
    pub round: u8,
    pub own_round: u8,
    pub lost: Option<Vec<u32>>,
    pub answered: Vec<Answered>,
    pub records: Vec<Vec<u8>>,
}

impl Epoch {
    /// `count` records of 4 bytes.
    pub fn new(scheme: Scheme, epoch: u64, count: u32) -> Self {
        let records = (0..count)
            .map(|i| {
                (i * 0x0003_0007 + u32::try_from(epoch).unwrap() * 0x100).to_be_bytes().to_vec()
            })
            .collect();
        Self {
            scheme,
            epoch,
            last_in_epoch: true,
            restart: false,
            skipped: 0,
            round: 0,
            own_round: 0,
            lost: None,
            answered: Vec::new(),
            records,
        }
    }
}

/// A seal with everything it covers.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub seal: Seal<Unverified>,
    pub blocks: Vec<Digest>,
    pub records: Vec<Vec<u8>>,
    pub framing: Framing,
    pub signature: Vec<u8>,
}

/// A device of the group, with its chain.
pub struct Device {
    pub name: &'static str,
    pub id: DeviceId,
    salt_key: SaltKey,
    schema: Vec<u8>,
    roster: Digest,
    pub position: Position,
    keys: &'static [(Algorithm, u32)],
}

impl Device {
    pub fn new(roster: &Roster, name: &'static str, schema: &[u8]) -> Self {
        let keys = DEVICES
            .iter()
            .chain(LATTICE)
            .chain(BUDGETED)
            .find(|(known, _)| *known == name)
            .unwrap()
            .1;
        let id = roster.id(name).unwrap();
        let position = Position::start(roster.device(id).unwrap().certificate);
        let salt_key = SaltKey::new([0x5a; 32]);
        Self {
            name,
            id,
            salt_key,
            schema: schema.to_vec(),
            roster: roster.digest(),
            position,
            keys,
        }
    }

    pub fn framing(&self) -> Framing {
        Schema::decode(&self.schema)
            .unwrap()
            .record_size()
            .and_then(Framing::fixed)
            .unwrap_or(Framing::Prefixed)
    }

    pub fn salt(&self, index: u32) -> Salt {
        self.salt_key.salt(self.id, SealIndex(index))
    }

    pub fn secret(&self, index: u32) -> SecretKey {
        let (algorithm, first) =
            *self.keys.iter().rev().find(|(_, first)| *first <= index).unwrap_or(&self.keys[0]);
        device_secret(self.name, algorithm, first)
    }

    pub fn seal(&mut self, epoch: &Epoch) -> Sealed {
        let index = self.position.last.map_or(0, |(index, _)| index.0 + 1) + epoch.skipped;
        let salt = self.salt(index);
        let framing = self.framing();
        let mut star = Star::<{ LEVELS as usize }>::new(self.id, SealIndex(index), &salt, framing);
        let mut tree = Tree::<20>::new();
        for record in &epoch.records {
            star.push(record).unwrap();
            tree.push(record).unwrap();
        }
        let (counters, blocks) = star.close();
        let mut blocks = blocks.to_vec();
        let mut statement =
            Statement::new(epoch.scheme, GroupId::of(GROUP), self.roster, self.id, LEVELS);
        statement.index = SealIndex(index);
        statement.prev = self.position.prev;
        statement.last = self.position.last;
        statement.epoch = EpochNumber(epoch.epoch);
        statement.last_in_epoch = epoch.last_in_epoch;
        statement.restart = epoch.restart;
        statement.schema = Schema::decode(&self.schema).unwrap().digest();
        statement.salt = salt;
        statement.round = Round(epoch.round);
        statement.own_round = Round(epoch.own_round);
        statement.counters = counters;
        statement.lost = epoch.lost.as_ref().map(|lost| {
            let mut counts = Counters::new(LEVELS);
            counts.as_mut_slice().copy_from_slice(lost);
            counts
        });
        for answer in &epoch.answered {
            assert!(statement.answered.push(*answer));
        }
        for (level, block) in (0..).zip(&mut blocks) {
            if statement.is_null(Level(level)) {
                *block = Digest::NULL;
            }
        }
        let root = match epoch.scheme {
            Scheme::Star => star::root(&counters, &blocks),
            Scheme::Tree => tree.root(),
        };
        let secret = self.secret(index);
        let seal = Seal::new(statement, root, secret.algorithm());
        let mut buffer = [0; moteseal_seal::MAX_MESSAGE];
        let signature = secret.signature(seal.message(&mut buffer)).unwrap().to_vec();
        self.position = seal.position();
        Sealed { seal, blocks, records: epoch.records.clone(), framing, signature }
    }
}

/// What a part is to carry.
#[derive(Clone, Debug)]
pub enum Pick {
    /// Levels, less the null ones.
    Levels(u32),
    /// Events of a tree.
    Events(Vec<u64>),
}

impl Sealed {
    pub fn level(&self, seq: usize) -> u8 {
        self.seal.statement().salt.level(Sequence(seq as u64), LEVELS).0
    }

    pub fn leaves(&self) -> Vec<Digest> {
        self.records.iter().map(|record| tree::leaf(record)).collect()
    }

    pub fn multiproof(&self, selected: &[u64]) -> Vec<u8> {
        multiproof(&self.leaves(), selected)
    }

    fn frame(&self, seq: usize) -> Vec<u8> {
        let record = &self.records[seq];
        match self.framing {
            Framing::Fixed(_) => record.clone(),
            Framing::Prefixed => {
                [&u16::try_from(record.len()).unwrap().to_be_bytes()[..], record].concat()
            }
        }
    }

    /// The records of these events, as they lie in a part.
    pub fn frames(&self, selected: impl IntoIterator<Item = usize>) -> Vec<u8> {
        selected.into_iter().flat_map(|seq| self.frame(seq)).collect()
    }

    pub fn at_level(&self, level: u8) -> Vec<usize> {
        (0..self.records.len()).filter(|&seq| self.level(seq) == level).collect()
    }

    /// The part item, with the seal's signature or without.
    pub fn part(&self, pick: &Pick, signed: bool) -> Vec<u8> {
        let statement = self.seal.statement();
        let signature = signed.then_some(self.signature.as_slice());
        let mut out = Vec::new();
        match pick {
            Pick::Levels(mask) => {
                let mask = mask & statement.surviving();
                let (digests, events) = match statement.scheme {
                    Scheme::Star => {
                        let picked = (0..LEVELS).rev().filter(|level| mask >> level & 1 == 1);
                        let events =
                            picked.flat_map(|level| self.frames(self.at_level(level))).collect();
                        (write::star_evidence(&self.seal, &self.blocks, mask), events)
                    }
                    Scheme::Tree => {
                        let selected: Vec<usize> = (0..self.records.len())
                            .filter(|&seq| mask >> self.level(seq) & 1 == 1)
                            .collect();
                        let positions: Vec<u64> = selected.iter().map(|&seq| seq as u64).collect();
                        (self.multiproof(&positions), self.frames(selected))
                    }
                };
                write::part(
                    &mut out,
                    &self.seal,
                    Selection::Levels(mask),
                    &digests,
                    &events,
                    signature,
                );
            }
            Pick::Events(selected) => {
                let sequence: Vec<Sequence> = selected.iter().map(|&seq| Sequence(seq)).collect();
                let events = self.frames(selected.iter().map(|&seq| usize::try_from(seq).unwrap()));
                write::part(
                    &mut out,
                    &self.seal,
                    Selection::Events(&sequence),
                    &self.multiproof(selected),
                    &events,
                    signature,
                );
            }
        }
        out
    }

    /// The open item in front of this seal.
    pub fn open(&self, with_prev: bool) -> Vec<u8> {
        let statement = self.seal.statement();
        let mut out = Vec::new();
        let prev = with_prev.then_some(statement.prev);
        write::open(
            &mut out,
            &Open { device: statement.device, roster_version: 1, prev, last: statement.last },
        );
        out
    }

    /// The explain item of this seal: a star's digests; a tree's leaf hashes, or nothing.
    pub fn explain(&self, leaves: bool) -> Vec<u8> {
        let digests = match self.seal.statement().scheme {
            Scheme::Star => self.blocks.clone(),
            Scheme::Tree if leaves => self.leaves(),
            Scheme::Tree => Vec::new(),
        };
        let mut out = Vec::new();
        write::explain(&mut out, &write::sign1(&self.seal, &self.signature), &digests);
        out
    }
}

/// The root over these leaf hashes.
pub fn root_of(leaves: &[Digest]) -> Digest {
    let mut tree = Tree::<20>::new();
    leaves.iter().for_each(|leaf| {
        tree.push_leaf(*leaf).unwrap();
    });
    tree.root()
}

pub fn multiproof(leaves: &[Digest], selected: &[u64]) -> Vec<u8> {
    let ranges = geometry::siblings(leaves.len() as u64, selected.iter().map(|&seq| Sequence(seq)));
    let range = |range: std::ops::Range<u64>| {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    };
    ranges.flat_map(|subtree| root_of(&leaves[range(subtree)]).0).collect()
}

/// The inclusion path of a leaf, from the leaf up.
pub fn path(leaves: &[Digest], seq: u64) -> Vec<Digest> {
    let ranges = geometry::path(leaves.len() as u64, Sequence(seq));
    let range = |range: std::ops::Range<u64>| {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    };
    ranges.map(|subtree| root_of(&leaves[range(subtree)])).collect()
}

/// A stream: the schema, an open item, and these parts, of which only the last is signed.
pub fn stream(schema: &[u8], sealed: &[Sealed], pick: &Pick) -> Vec<u8> {
    let mut out = Vec::new();
    write::schema(&mut out, schema);
    out.extend(sealed[0].open(true));
    for (i, one) in sealed.iter().enumerate() {
        out.extend(one.part(pick, i + 1 == sealed.len()));
    }
    out
}
