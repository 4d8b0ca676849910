//! A device that seals stars, and the answers that an honest cloud gives of them.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use moteseal_api::Query;
use moteseal_client::{Memory, Report, Session, Sink};
use moteseal_core::digest::Digest;
use moteseal_core::level::SaltKey;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_core::sample::{Choice, Rate};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::seal::{Position, Scheme, Seal, Star, Statement, Unverified, star};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_core::wire::stream::{Open, Selection};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Roster, SchemaEntry, write};

pub const LEVELS: u8 = 8;
/// 25 May 2026, 10:00 UTC is the start of epoch 494,362 of an hour.
pub const EPOCH: u64 = 494_362;

pub struct Group {
    pub roster: Roster,
    secret: SecretKey,
}

/// One sealed part.
#[derive(Clone)]
pub struct Sealed {
    pub seal: Seal<Unverified>,
    blocks: Vec<Digest>,
    /// Of each level.
    events: Vec<Vec<u8>>,
    schema: Vec<u8>,
}

impl Group {
    pub fn new() -> Self {
        let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let secret = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
        let devices = [("mote-1", secret.public()), ("mote-2", secret.public())];
        let draft = FirstRoster { group: "lab", epoch_ms: 3_600_000, levels: LEVELS, budget: None, devices: &devices };
        let roster = Roster::open(&draft.issue(&operator).unwrap(), &operator.public()).unwrap();
        Self { roster, secret }
    }

    pub fn device(&self, name: &str) -> DeviceId {
        self.roster.id(name).unwrap()
    }

    pub fn start(&self, name: &str) -> Position {
        Position::start(self.roster.device(self.device(name)).unwrap().certificate)
    }

    /// Seals records as the last part of an epoch, behind `position`, which moves on.
    pub fn seal(&self, name: &str, position: &mut Position, epoch: u64, fields: &[&str], records: &[Vec<u8>]) -> Sealed {
        self.seal_part(name, position, (epoch, true), fields, records)
    }

    /// The same for a part that may not be the last.
    pub fn seal_part(
        &self,
        name: &str,
        position: &mut Position,
        (epoch, last_in_epoch): (u64, bool),
        fields: &[&str],
        records: &[Vec<u8>],
    ) -> Sealed {
        let fields: Vec<Field<'_>> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
        let mut buffer = [0; 1024];
        let schema = SchemaEntry::decode(Schema::encode(&fields, &mut buffer).unwrap().as_bytes()).unwrap();
        let device = self.device(name);
        let index = SealIndex(position.last.map_or(0, |(index, _)| index.0 + 1));
        let mut statement = Statement::new(Scheme::Star, self.roster.group(), self.roster.digest(), device, LEVELS);
        statement.index = index;
        statement.prev = position.prev;
        statement.last = position.last;
        statement.epoch = EpochNumber(epoch);
        statement.last_in_epoch = last_in_epoch;
        statement.schema = schema.digest;
        statement.salt = SaltKey::new([7; 32]).salt(device, index);
        let mut star = Star::<{ LEVELS as usize }>::new(device, index, &statement.salt, schema.framing);
        let mut events = vec![Vec::new(); usize::from(LEVELS)];
        for record in records {
            let level = star.push(record).unwrap();
            events[usize::from(level.0)].extend_from_slice(record);
        }
        let (counters, blocks) = star.close();
        statement.counters = counters;
        let root = star::root(&counters, &blocks);
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        *position = seal.position();
        Sealed { seal, blocks: blocks.to_vec(), events, schema: schema.bytes }
    }

    /// The parts at the levels `mask`, each under a signature of its own.
    pub fn answer(&self, parts: &[(&Sealed, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sealed, mask) in parts {
            let statement = sealed.seal.statement();
            write::schema(&mut out, &sealed.schema);
            let prev = Some(statement.prev);
            write::open(&mut out, &Open { device: statement.device, roster_version: 0, prev, last: statement.last });
            let mask = mask & statement.surviving();
            let levels = (0..usize::from(LEVELS)).rev().filter(|level| mask >> level & 1 == 1);
            let events: Vec<u8> = levels.flat_map(|level| sealed.events[level].clone()).collect();
            let digests = write::star_evidence(&sealed.seal, &sealed.blocks, mask);
            let mut signature = [0; 64];
            let mut message = [0; moteseal_core::seal::MAX_MESSAGE];
            self.secret.sign(sealed.seal.message(&mut message), &mut signature).unwrap();
            write::part(&mut out, &sealed.seal, Selection::Levels(mask), &digests, &events, Some(&signature));
        }
        write::end(&mut out);
        out
    }

    pub fn query(&self, names: &[&str], until: Option<u64>, choice: Choice) -> Query {
        let devices = names.iter().map(|name| self.device(name)).collect();
        Query { devices, since: EpochNumber(EPOCH), until: until.map(EpochNumber), choice }
    }

    /// Judges an answer, fed in chunks of 100 bytes; the error is its name.
    pub fn judge(&self, query: Query, memory: Option<&mut Memory>, answer: &[u8], sink: &mut dyn Sink) -> Result<Report, String> {
        let mut session = Session::new(&self.roster, query, memory.as_deref());
        let name = |stop| moteseal_client::Failure::from(stop).name();
        for chunk in answer.chunks(100) {
            session.feed(chunk, sink).map_err(name)?;
        }
        let (report, newest) = session.finish(sink).map_err(name)?;
        if let Some(memory) = memory {
            newest.into_iter().for_each(|(device, seal)| memory.remember(&self.roster, device, seal));
        }
        Ok(report)
    }
}

pub fn everything() -> Choice {
    Choice::Rate(Rate::ALL)
}

/// Takes rows and forgets them.
pub fn nowhere() -> impl Sink {
    |_: &moteseal_client::Rows<'_>| -> Result<(), moteseal_client::output::OutputError> { Ok(()) }
}
