//! A group whose devices seal stars and trees, and functions that return the answers of an honest
//! cloud.
#![allow(unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use moteseal_api::Query;
use moteseal_client::{PinnedSeals, Report, Session, Sink};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_lanes::merkle;
use moteseal_seal::engine::Scalar;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::{Choice, ManifestDraft, Rate};
use moteseal_seal::star::GroupedStar;
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::{Position, Seal, Star, Statement, Unverified, star, tree};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Roster, SchemaEntry, write};

pub const LEVELS: u8 = 8;
/// The epoch that starts on 25 May 2026, 10:00 UTC, if epochs last one hour.
pub const EPOCH: u64 = 494_362;

/// A shared buffer for the bytes of a writer.
#[derive(Clone, Default)]
pub struct Buffer(pub Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub struct Group {
    pub roster: Roster,
    secret: SecretKey,
}

/// Returns the secret key of the coordinator of groups with a budget.
pub fn coordinator() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap()
}

/// One sealed part of a star.
#[derive(Clone)]
pub struct Sealed {
    pub seal: Seal<Unverified>,
    pub blocks: Vec<Digest>,
    /// The events of each level.
    events: Vec<Vec<u8>>,
    pub schema: Vec<u8>,
}

/// One sealed tree.
#[derive(Clone)]
pub struct Tree {
    pub seal: Seal<Unverified>,
    leaves: Vec<Digest>,
    records: Vec<u8>,
    schema: Vec<u8>,
}

/// A selection of a tree's events that the cloud returns.
#[derive(Clone)]
pub enum Picked {
    Levels(u32),
    Events(Vec<Sequence>),
}

impl Tree {
    /// Returns the tree's events at these levels.
    pub fn at(&self, mask: u32) -> Vec<Sequence> {
        let level = |seq: &Sequence| self.seal.statement().salt.level(*seq, LEVELS).0;
        (0..self.records.len() as u64)
            .map(Sequence)
            .filter(|seq| mask >> level(seq) & 1 == 1)
            .collect()
    }
}

impl Group {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Creates a group with a budget of `events` events per epoch.
    pub fn budgeted(events: u64) -> Self {
        Self::with(Some(Budget { events, coordinator: coordinator().public() }))
    }

    fn with(budget: Option<Budget>) -> Self {
        let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let secret = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
        let devices = [("mote-1", secret.public()), ("mote-2", secret.public())];
        let draft = FirstRoster {
            group: "lab",
            epoch_ms: 3_600_000,
            levels: LEVELS,
            budget,
            devices: &devices,
        };
        let roster = Roster::open(&draft.issue(&operator).unwrap(), &operator.public()).unwrap();
        Self { roster, secret }
    }

    /// Returns the manifest of an epoch that ended at `round`. It lists these seals.
    pub fn manifest(&self, epoch: u64, round: u8, seals: &[&Sealed]) -> Vec<u8> {
        self.manifest_by(&coordinator(), epoch, round, seals)
    }

    pub fn manifest_by(
        &self,
        signer: &SecretKey,
        epoch: u64,
        round: u8,
        seals: &[&Sealed],
    ) -> Vec<u8> {
        let seals: Vec<&Seal<Unverified>> = seals.iter().map(|sealed| &sealed.seal).collect();
        self.manifest_of(signer, epoch, round, &seals)
    }

    /// Returns a manifest that lists these seals, signed by `signer`.
    pub fn manifest_of(
        &self,
        signer: &SecretKey,
        epoch: u64,
        round: u8,
        seals: &[&Seal<Unverified>],
    ) -> Vec<u8> {
        let mut listed: BTreeMap<DeviceId, Vec<Digest>> = BTreeMap::new();
        for seal in seals {
            listed.entry(seal.statement().device).or_default().push(seal.digest());
        }
        let devices: Vec<(DeviceId, &[Digest])> =
            listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
        let (group, roster) = (self.roster.group(), self.roster.digest());
        let draft = ManifestDraft {
            group,
            roster,
            epoch: EpochNumber(epoch),
            round: Round(round),
            devices: &devices,
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.issue(signer, &mut scratch, &mut out).unwrap().to_vec()
    }

    /// Returns an answer that begins with these manifests.
    pub fn answer_after(&self, manifests: &[&Vec<u8>], parts: &[(&Sealed, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        manifests.iter().for_each(|manifest| write::manifest(&mut out, manifest));
        out.extend(self.answer(parts));
        out
    }

    pub fn device(&self, name: &str) -> DeviceId {
        self.roster.id(name).unwrap()
    }

    pub fn start(&self, name: &str) -> Position {
        Position::start(self.roster.device(self.device(name)).unwrap().certificate)
    }

    /// Seals records of one byte as a tree. The device keeps the levels from `own_round` on.
    pub fn seal_tree(
        &self,
        position: &mut Position,
        (epoch, last_in_epoch): (u64, bool),
        own_round: u8,
        records: &[u8],
    ) -> Tree {
        self.seal_tree_of("a:V:u8", position, (epoch, last_in_epoch), own_round, records, None)
    }

    /// Seals records of one field of one byte as a tree. If the field is encrypted, so are the records,
    /// and `keys` are the commitments to their keys.
    pub fn seal_tree_of(
        &self,
        field: &str,
        position: &mut Position,
        (epoch, last_in_epoch): (u64, bool),
        own_round: u8,
        records: &[u8],
        keys: Option<KeyCommitments>,
    ) -> Tree {
        let schema = [Field::parse(field).unwrap()];
        let mut buffer = [0; 1024];
        let schema =
            SchemaEntry::decode(Schema::encode(&schema, &mut buffer).unwrap().as_bytes()).unwrap();
        let device = self.device("mote-1");
        let index = SealIndex(position.last.map_or(0, |(index, _)| index.0 + 1));
        let mut statement =
            Statement::new(Scheme::Tree, self.roster.group(), self.roster.digest(), device, LEVELS);
        (statement.index, statement.prev, statement.last) = (index, position.prev, position.last);
        (statement.epoch, statement.last_in_epoch) = (EpochNumber(epoch), last_in_epoch);
        (statement.schema, statement.own_round) = (schema.digest, Round(own_round));
        statement.keys = keys;
        statement.salt = SaltKey::new([7; 32]).salt(device, index);
        statement.counters =
            Counters::of(&statement.salt, LEVELS, u32::try_from(records.len()).unwrap());
        let leaves: Vec<Digest> = records.iter().map(|record| tree::leaf(&[*record])).collect();
        let seal = Seal::new(statement, merkle::root(&Scalar, &leaves), Algorithm::Ed25519);
        *position = seal.position();
        Tree { seal, leaves, records: records.to_vec(), schema: schema.bytes }
    }

    /// Returns an answer with the manifests, followed by these selections of trees.
    pub fn answer_of_trees(&self, manifests: &[&Vec<u8>], parts: &[(&Tree, Picked)]) -> Vec<u8> {
        let mut out = Vec::new();
        manifests.iter().for_each(|manifest| write::manifest(&mut out, manifest));
        for (tree, picked) in parts {
            let statement = tree.seal.statement();
            write::schema(&mut out, &tree.schema);
            let prev = Some(statement.prev);
            write::open(
                &mut out,
                &Open { device: statement.device, roster_version: 0, prev, last: statement.last },
            );
            let (selection, selected) = match picked {
                Picked::Levels(mask) => {
                    let mask = mask & statement.surviving();
                    (Selection::Levels(mask), tree.at(mask))
                }
                Picked::Events(events) => (Selection::Events(events), events.clone()),
            };
            let proof = merkle::multiproof(&Scalar, &tree.leaves, selected.iter().copied());
            let digests: Vec<u8> = proof.iter().flat_map(|digest| digest.0).collect();
            let events: Vec<u8> =
                selected.iter().map(|seq| tree.records[usize::try_from(seq.0).unwrap()]).collect();
            let mut signature = [0; 64];
            let mut message = [0; moteseal_seal::MAX_MESSAGE];
            self.secret.sign(tree.seal.message(&mut message), &mut signature).unwrap();
            write::part(&mut out, &tree.seal, selection, &digests, &events, Some(&signature));
        }
        write::end(&mut out);
        out
    }

    /// Seals records as the last part of an epoch, after `position`, and advances `position`.
    pub fn seal(
        &self,
        name: &str,
        position: &mut Position,
        epoch: u64,
        fields: &[&str],
        records: &[Vec<u8>],
    ) -> Sealed {
        self.seal_part(name, position, (epoch, true), fields, records)
    }

    /// Seals records as a part of an epoch, which may be followed by further parts.
    pub fn seal_part(
        &self,
        name: &str,
        position: &mut Position,
        (epoch, last_in_epoch): (u64, bool),
        fields: &[&str],
        records: &[Vec<u8>],
    ) -> Sealed {
        self.seal_encrypted(name, position, (epoch, last_in_epoch), fields, (records, None))
    }

    /// Seals records whose encrypted columns are ciphertext. `keys` are the commitments to their keys.
    pub fn seal_encrypted(
        &self,
        name: &str,
        position: &mut Position,
        (epoch, last_in_epoch): (u64, bool),
        fields: &[&str],
        (records, keys): (&[Vec<u8>], Option<KeyCommitments>),
    ) -> Sealed {
        let fields: Vec<Field<'_>> =
            fields.iter().map(|field| Field::parse(field).unwrap()).collect();
        let mut buffer = [0; 1024];
        let schema =
            SchemaEntry::decode(Schema::encode(&fields, &mut buffer).unwrap().as_bytes()).unwrap();
        let device = self.device(name);
        let index = SealIndex(position.last.map_or(0, |(index, _)| index.0 + 1));
        let mut statement =
            Statement::new(Scheme::Star, self.roster.group(), self.roster.digest(), device, LEVELS);
        statement.index = index;
        statement.prev = position.prev;
        statement.last = position.last;
        statement.epoch = EpochNumber(epoch);
        statement.last_in_epoch = last_in_epoch;
        statement.schema = schema.digest;
        statement.keys = keys;
        statement.salt = SaltKey::new([7; 32]).salt(device, index);
        statement.groups = schema.groups();
        let mut star =
            Star::<{ LEVELS as usize }>::new(device, index, &statement.salt, schema.framing);
        let place = (device, index, &statement.salt);
        let mut grouped = schema.groups.as_deref().map(|layout| {
            let layout = (*layout, schema.framing);
            GroupedStar::<{ LEVELS as usize }, 8>::new(place.0, place.1, place.2, layout, LEVELS)
                .unwrap()
        });
        let mut events = vec![Vec::new(); usize::from(LEVELS)];
        for record in records {
            let level = match &mut grouped {
                Some(star) => star.push(record).unwrap(),
                None => star.push(record).unwrap(),
            };
            schema
                .framing
                .frame(record, |bytes| events[usize::from(level.0)].extend_from_slice(bytes));
        }
        let (counters, blocks) = match grouped {
            Some(star) => star.close(),
            None => star.close(),
        };
        statement.counters = counters;
        let root = star::root(&counters, &blocks);
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        *position = seal.position();
        Sealed { seal, blocks: blocks.to_vec(), events, schema: schema.bytes }
    }

    /// Returns an answer that has the levels `mask` of each part. Every part has its own signature.
    pub fn answer(&self, parts: &[(&Sealed, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sealed, mask) in parts {
            let statement = sealed.seal.statement();
            write::schema(&mut out, &sealed.schema);
            let prev = Some(statement.prev);
            write::open(
                &mut out,
                &Open { device: statement.device, roster_version: 0, prev, last: statement.last },
            );
            let mask = mask & statement.surviving();
            let levels = (0..usize::from(LEVELS)).rev().filter(|level| mask >> level & 1 == 1);
            let events: Vec<u8> = levels.flat_map(|level| sealed.events[level].clone()).collect();
            let digests = write::star_evidence(&sealed.seal, &sealed.blocks, mask);
            let mut signature = [0; 64];
            let mut message = [0; moteseal_seal::MAX_MESSAGE];
            self.secret.sign(sealed.seal.message(&mut message), &mut signature).unwrap();
            write::part(
                &mut out,
                &sealed.seal,
                Selection::Levels(mask),
                &digests,
                &events,
                Some(&signature),
            );
        }
        write::end(&mut out);
        out
    }

    pub fn query(&self, names: &[&str], until: Option<u64>, choice: Choice) -> Query {
        let devices = names.iter().map(|name| self.device(name)).collect();
        let columns = Vec::new();
        Query { devices, since: EpochNumber(EPOCH), until: until.map(EpochNumber), choice, columns }
    }

    /// Verifies an answer, which is fed in chunks of 100 bytes. The error is the name of the
    /// rejection.
    pub fn verify(
        &self,
        query: Query,
        pinned: Option<&mut PinnedSeals>,
        answer: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Report, String> {
        let mut session = Session::new(&self.roster, query, pinned.as_deref());
        let name = |stop| moteseal_client::Error::from(stop).name().to_owned();
        for chunk in answer.chunks(100) {
            session.feed(chunk, sink).map_err(name)?;
        }
        let (report, newest) = session.finish(sink).map_err(name)?;
        if let Some(pinned) = pinned {
            newest.into_iter().for_each(|(device, seal)| pinned.pin(&self.roster, device, seal));
        }
        Ok(report)
    }

    /// Flips the lowest and the highest bit of every byte of an answer, and checks that each
    /// altered answer is rejected.
    pub fn rejects_every_altered_byte(&self, query: impl Fn() -> Query, answer: &[u8]) {
        for at in 0..answer.len() {
            for flip in [1, 0x80] {
                let mut altered = answer.to_vec();
                altered[at] ^= flip;
                let verified = self.verify(query(), None, &altered, &mut nowhere());
                assert!(verified.is_err(), "byte {at} ^ {flip:#x}: {verified:?}");
            }
        }
    }
}

pub fn everything() -> Choice {
    Choice::Rate(Rate::ALL)
}

/// Returns a sink that discards rows.
pub fn nowhere() -> impl Sink {
    |_: &moteseal_client::Rows<'_>| -> Result<(), moteseal_client::output::OutputError> { Ok(()) }
}
