//! Test fixtures: motes that seal, a roster with their keys, and a cloud on a free port with a
//! store in a new directory.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;
use std::sync::Arc;

use moteseal_api::{Query, paths};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::cbor::Writer;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, MAX_LEVELS, Round, SealIndex, Sequence,
};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_core::{Digest, Level};
use moteseal_lanes::merkle;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits as SealLimits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, ManifestDraft};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::{self, Tree};
use moteseal_seal::{MAX_MESSAGE, Position, Seal, Star, Statement, Unverified, UrgentEvent, star};
use moteseal_store::{EpochStore, Options, RedbStore};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const LEVELS: u8 = 8;
pub const EPOCH_MS: u64 = 60_000;

/// Returns the group's roster, and a mote with a secret key for each device.
pub fn group(names: &[&str]) -> (Roster, Vec<Mote>) {
    group_with(names, None, Algorithm::Ed25519)
}

/// Returns a group whose devices sign with ESP256. Its signatures take longest to verify.
pub fn esp256_group(names: &[&str]) -> (Roster, Vec<Mote>) {
    group_with(names, None, Algorithm::Esp256)
}

/// Returns the secret key of the coordinator of groups with a budget.
pub fn coordinator() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[99; 32]).unwrap()
}

/// Returns a group with a budget of `events` events per epoch.
pub fn budgeted(names: &[&str], events: u64) -> (Roster, Vec<Mote>) {
    let budget = Budget { events, coordinator: coordinator().public() };
    group_with(names, Some(budget), Algorithm::Ed25519)
}

fn group_with(names: &[&str], budget: Option<Budget>, algorithm: Algorithm) -> (Roster, Vec<Mote>) {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[77; 32]).unwrap();
    let secret =
        |i: usize| SecretKey::from_seed(algorithm, &[u8::try_from(i).unwrap() + 1; 32]).unwrap();
    let devices: Vec<_> =
        names.iter().enumerate().map(|(i, name)| (*name, secret(i).public())).collect();
    let first = FirstRoster {
        group: "home",
        epoch_ms: EPOCH_MS,
        levels: LEVELS,
        budget,
        devices: &devices,
    };
    let roster = Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap();
    let motes =
        names.iter().enumerate().map(|(i, name)| Mote::new(&roster, name, secret(i))).collect();
    (roster, motes)
}

/// Returns a manifest that lists these seals, signed by `signer`.
pub fn manifest(
    roster: &Roster,
    signer: &SecretKey,
    epoch: u64,
    round: u8,
    seals: &[(DeviceId, Vec<Digest>)],
) -> Vec<u8> {
    let mut devices: Vec<(DeviceId, &[Digest])> =
        seals.iter().map(|(device, seals)| (*device, &seals[..])).collect();
    devices.sort_by_key(|(device, _)| *device);
    let draft = ManifestDraft {
        group: roster.group(),
        roster: roster.digest(),
        epoch: EpochNumber(epoch),
        round: Round(round),
        devices: &devices,
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.issue(signer, &mut scratch, &mut out).unwrap().to_vec()
}

/// Returns a schema whose records consist of one unsigned 32-bit number.
pub fn schema() -> Vec<u8> {
    use moteseal_core::schema::Field;
    let field: Field<'_> = Field::parse("count::u32").unwrap();
    let mut out = vec![0; 256];
    let schema = Schema::encode(&[field], &mut out).unwrap();
    schema.as_bytes().to_vec()
}

/// A device that seals events.
#[derive(Clone)]
pub struct Mote {
    pub id: DeviceId,
    secret: SecretKey,
    salt_key: SaltKey,
    roster: Roster,
    pub position: Position,
    /// The device keeps the events of the levels from this round on. Events of lower levels are
    /// only counted.
    pub own_round: u8,
}

impl Mote {
    fn new(roster: &Roster, name: &str, secret: SecretKey) -> Self {
        let id = roster.id(name).unwrap();
        let position = Position::start(roster.first_prev(id).unwrap());
        Self {
            id,
            secret,
            salt_key: SaltKey::new([3; 32]),
            roster: roster.clone(),
            position,
            own_round: 0,
        }
    }

    /// Signs an urgent event for a place of a seal. `key` signs it; `None` for the mote's own key.
    pub fn urgent(
        &self,
        (index, epoch, seq): (u32, u64, u64),
        record: &[u8],
        key: Option<&SecretKey>,
    ) -> Vec<u8> {
        let key = key.unwrap_or(&self.secret);
        let event = UrgentEvent {
            group: self.roster.group(),
            roster: self.roster.digest(),
            device: self.id,
            index: SealIndex(index),
            epoch: EpochNumber(epoch),
            seq: Sequence(seq),
            schema: Schema::decode(&schema()).unwrap().digest(),
            keys: None,
            record,
        };
        let mut buffer = vec![0; record.len() + 512];
        let signature =
            key.signature(event.message(key.algorithm(), &mut buffer).unwrap()).unwrap();
        let mut bytes = vec![0; record.len() + 512];
        let mut out = Writer::new(&mut bytes);
        event.encode(&mut out, key.algorithm(), &signature).unwrap();
        out.finish().to_vec()
    }

    /// Seals events and returns the bundle. `last` marks the seal as the last of its epoch.
    pub fn seal(&mut self, scheme: Scheme, epoch: u64, last: bool, events: &[u32]) -> Vec<u8> {
        let position = self.position;
        let (seal, _, records) = self.made(scheme, epoch, last, events);
        self.position = seal.position();
        self.bundle(position, &seal, &records)
    }

    /// Like [`seal`](Self::seal), but does not advance the position: the next seal has the same
    /// index.
    pub fn fork(&self, scheme: Scheme, epoch: u64, last: bool, events: &[u32]) -> Vec<u8> {
        self.clone().seal(scheme, epoch, last, events)
    }

    fn made(
        &self,
        scheme: Scheme,
        epoch: u64,
        last: bool,
        events: &[u32],
    ) -> (Seal<Unverified>, Vec<Digest>, Vec<u8>) {
        let schema = schema();
        let index = SealIndex(self.position.last.map_or(0, |(index, _)| index.0 + 1));
        let salt = self.salt_key.salt(self.id, index);
        let mut statement =
            Statement::new(scheme, self.roster.group(), self.roster.digest(), self.id, LEVELS);
        statement.index = index;
        statement.prev = self.position.prev;
        statement.last = self.position.last;
        statement.epoch = EpochNumber(epoch);
        statement.last_in_epoch = last;
        statement.schema = Schema::decode(&schema).unwrap().digest();
        statement.salt = salt;
        let mut star = Star::<8>::new(self.id, index, &salt, Framing::fixed(4).unwrap());
        let mut tree = Tree::<24>::new();
        for event in events {
            star.push(&event.to_be_bytes()).unwrap();
            tree.push(&event.to_be_bytes()).unwrap();
        }
        let (counters, mut blocks) = star.close();
        statement.counters = counters;
        let own_round = self.own_round;
        statement.own_round = Round(own_round);
        blocks[..usize::from(own_round)].fill(Digest::NULL);
        let root =
            if scheme == Scheme::Star { star::root(&counters, &blocks) } else { tree.root() };
        let mut order: Vec<usize> = (0..events.len()).collect();
        if scheme == Scheme::Star {
            // The sort is stable, so the events of a level stay in the order of their sequence
            // numbers.
            order.sort_by_key(|&seq| std::cmp::Reverse(salt.level(Sequence(seq as u64), LEVELS)));
            order.retain(|&seq| salt.level(Sequence(seq as u64), LEVELS).0 >= own_round);
        }
        let records = order.iter().flat_map(|&seq| events[seq].to_be_bytes()).collect();
        (Seal::new(statement, root, self.secret.algorithm()), blocks.to_vec(), records)
    }

    fn bundle(&self, before: Position, seal: &Seal<Unverified>, records: &[u8]) -> Vec<u8> {
        let mut out = self.head(before);
        self.part(&mut out, seal, seal.statement().surviving(), &[], records, true);
        out
    }

    /// Returns the items before the parts of a stream that continues at `before`.
    fn head(&self, before: Position) -> Vec<u8> {
        let mut out = Vec::new();
        write::schema(&mut out, &schema());
        let Position { prev, last, .. } = before;
        write::open(&mut out, &Open { device: self.id, roster_version: 0, prev: Some(prev), last });
        out
    }

    fn part(
        &self,
        out: &mut Vec<u8>,
        seal: &Seal<Unverified>,
        mask: u32,
        digests: &[u8],
        records: &[u8],
        signed: bool,
    ) {
        let mut signature = [0; 64];
        self.secret.sign(seal.message(&mut [0; MAX_MESSAGE]), &mut signature).unwrap();
        write::part(
            out,
            seal,
            Selection::Levels(mask),
            digests,
            records,
            signed.then_some(&signature[..]),
        );
    }

    /// Returns a stream that verifies but is not a bundle, because its part has no events.
    pub fn partial(&self, epoch: u64, events: &[u32]) -> Vec<u8> {
        let (seal, blocks, _) = self.made(Scheme::Star, epoch, true, events);
        let mut out = self.head(self.position);
        self.part(&mut out, &seal, 0, &write::star_evidence(&seal, &blocks, 0), &[], true);
        out
    }

    /// Seals events. Returns the bundle with only the levels from `round` on, as a coordinator
    /// uploads it, and the digest of the seal.
    pub fn seal_from(
        &mut self,
        round: u8,
        epoch: u64,
        last: bool,
        events: &[u32],
    ) -> (Vec<u8>, Digest) {
        self.seal_scheme_from(Scheme::Star, round, epoch, last, events)
    }

    /// Like [`seal_from`](Self::seal_from), for a given scheme.
    pub fn seal_scheme_from(
        &mut self,
        scheme: Scheme,
        round: u8,
        epoch: u64,
        last: bool,
        events: &[u32],
    ) -> (Vec<u8>, Digest) {
        let before = self.position;
        let (seal, blocks, records) = self.made(scheme, epoch, last, events);
        self.position = seal.position();
        (self.kept_from(round, before, &seal, &blocks, (events, &records)), seal.digest())
    }

    /// Like [`seal_from`](Self::seal_from), but does not advance the position, so that the same
    /// seal can be sent again with other levels.
    pub fn fork_from(&self, round: u8, epoch: u64, last: bool, events: &[u32]) -> Vec<u8> {
        self.clone().seal_from(round, epoch, last, events).0
    }

    /// Like [`fork_from`](Self::fork_from), for a tree.
    pub fn fork_tree_from(&self, round: u8, epoch: u64, last: bool, events: &[u32]) -> Vec<u8> {
        self.clone().seal_scheme_from(Scheme::Tree, round, epoch, last, events).0
    }

    fn kept_from(
        &self,
        round: u8,
        before: Position,
        seal: &Seal<Unverified>,
        blocks: &[Digest],
        (events, records): (&[u32], &[u8]),
    ) -> Vec<u8> {
        let statement = seal.statement();
        let mask = statement.surviving() & u32::MAX.checked_shl(round.into()).unwrap_or(0);
        let (digests, kept) = match statement.scheme {
            // The records are ordered from the highest level to the lowest, so the kept records are
            // at the beginning.
            Scheme::Star => {
                let kept = 4 * statement.counters.masked(mask) as usize;
                (write::star_evidence(seal, blocks, mask), records[..kept].to_vec())
            }
            Scheme::Tree => {
                let leaves: Vec<Digest> =
                    events.iter().map(|event| tree::leaf(&event.to_be_bytes())).collect();
                let at = |seq: &Sequence| mask >> statement.salt.level(*seq, LEVELS).0 & 1 == 1;
                let kept: Vec<Sequence> =
                    (0..events.len() as u64).map(Sequence).filter(at).collect();
                let proof = merkle::multiproof(&Scalar, &leaves, kept.iter().copied());
                let records = kept
                    .iter()
                    .flat_map(|seq| events[usize::try_from(seq.0).unwrap()].to_be_bytes());
                (proof.iter().flat_map(|digest| digest.0).collect(), records.collect())
            }
        };
        let mut out = self.head(before);
        self.part(&mut out, seal, mask, &digests, &kept, true);
        out
    }

    /// Returns a forged part without events that claims `n` events of the highest level.
    pub fn claiming(&self, epoch: u64, n: u32) -> Vec<u8> {
        let (seal, ..) = self.made(Scheme::Star, epoch, true, &[]);
        let mut statement = seal.statement().clone();
        statement.counters.as_mut_slice()[usize::from(LEVELS) - 1] = n;
        let forged = Seal::new(statement, *seal.root(), Algorithm::Ed25519);
        let mut out = self.head(self.position);
        self.part(&mut out, &forged, 1 << (LEVELS - 1), &[], &[], true);
        out
    }

    /// Returns the bundle without `prev` in its open item.
    pub fn without_prev(bundle: &[u8]) -> Vec<u8> {
        use moteseal_seal::stream::Item;
        let (mut at, mut out) = (0, Vec::new());
        while at < bundle.len() {
            let (item, length) = Item::decode(&bundle[at..]).unwrap();
            match item {
                Item::Open(open) => write::open(&mut out, &Open { prev: None, ..open }),
                _ => out.extend_from_slice(&bundle[at..at + length]),
            }
            at += length;
        }
        out
    }
}

/// A running cloud.
pub struct Running {
    pub url: String,
    pub address: std::net::SocketAddr,
    pub http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    pub store: Arc<RedbStore>,
}

pub fn open_store(directory: &Path) -> Arc<RedbStore> {
    Arc::new(RedbStore::open(&directory.join("epochs.redb"), Options::default()).unwrap())
}

impl Running {
    pub async fn start(directory: &Path, config: Config) -> Self {
        let store = open_store(directory);
        let cloud = Cloud::bind(config, Arc::clone(&store) as Arc<dyn EpochStore>).await.unwrap();
        Self::of(cloud, store)
    }

    /// Runs a cloud.
    pub fn of(cloud: Cloud, store: Arc<RedbStore>) -> Self {
        let (url, address) = (cloud.url(), cloud.address());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(cloud.run(async {
            let _ = stopped.await;
        }));
        Self { url, address, http: reqwest::Client::new(), stop: Some(stop), task, store }
    }

    /// Stops the cloud and waits until it has stopped.
    pub async fn stop(mut self) {
        self.begin_stop();
        self.task.await.unwrap();
    }

    pub fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub async fn put(&self, body: Vec<u8>) -> reqwest::Response {
        let request =
            self.http.put(self.at(paths::BUNDLES)).header("content-type", moteseal_api::CBOR_SEQ);
        request.body(body).send().await.unwrap()
    }

    pub async fn put_manifest(&self, body: Vec<u8>) -> reqwest::Response {
        let request =
            self.http.put(self.at(paths::MANIFESTS)).header("content-type", moteseal_api::COSE);
        request.body(body).send().await.unwrap()
    }

    pub async fn ask(&self, query: &Query) -> reqwest::Response {
        let request =
            self.http.post(self.at(paths::QUERY)).header("content-type", moteseal_api::JSON);
        request.body(query.to_json()).send().await.unwrap()
    }

    pub async fn get(&self, path: &str) -> reqwest::Response {
        self.http.get(self.at(path)).send().await.unwrap()
    }
}

pub async fn problem(response: reqwest::Response) -> moteseal_api::Problem {
    assert_eq!(response.headers()["content-type"], moteseal_api::PROBLEM_JSON);
    let status = response.status().as_u16();
    let problem: moteseal_api::Problem =
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(problem.status, status);
    assert!(!problem.detail.contains('\n'), "must be one line: {}", problem.detail);
    problem
}

pub fn query(devices: &[DeviceId], since: u64, until: Option<u64>, choice: Choice) -> Query {
    Query {
        devices: devices.to_vec(),
        since: EpochNumber(since),
        until: until.map(EpochNumber),
        choice,
        columns: Vec::new(),
    }
}

/// The content of a verified answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The device, index and epoch of each part, and whether the part was signed.
    pub parts: Vec<(DeviceId, u32, u64, bool)>,
    /// The device, index, sequence number and value of each event.
    pub rows: Vec<(DeviceId, u32, u64, u32)>,
    pub ended: bool,
    /// The epoch and round of each manifest.
    pub manifests: Vec<(u64, u8)>,
    pub problem: Option<(String, String)>,
}

/// Reads an answer and verifies it.
pub fn verified(roster: &Roster, bytes: &[u8]) -> Result<Read, ReadError> {
    let mut reader = StreamReader::new(roster, SealLimits::default());
    let mut read = Read::default();
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        match event {
            Event::Proven(proven) => {
                let statement = proven.seal.statement();
                read.parts.push((
                    statement.device,
                    statement.index.0,
                    statement.epoch.0,
                    proven.part.signature.is_some(),
                ));
                proven.sample.for_each(&Scalar, |seq: Sequence, _: Level, record: &[u8]| {
                    let value = u32::from_be_bytes(record.try_into().unwrap());
                    read.rows.push((statement.device, statement.index.0, seq.0, value));
                });
            }
            Event::Manifest(manifest, _) => {
                assert!(read.parts.is_empty(), "manifests come first");
                read.manifests.push((manifest.epoch().0, manifest.round().0));
            }
            Event::End => read.ended = true,
            Event::Problem(name, detail) => {
                read.problem = Some((name.to_owned(), detail.to_owned()));
            }
            _ => {}
        }
        Ok(())
    };
    reader.feed(bytes, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(read)
}

const _: () = assert!(LEVELS as usize <= MAX_LEVELS);
