//! A small group with a star device and a tree device, and all of their seals. The targets compare
//! their results with it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, MAX_LEVELS, SealIndex, Sequence,
};
use moteseal_core::roster::{DeviceDraft, Directory, Period, Roster, RosterDraft, Term};
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_seal::engine::Scalar;
use moteseal_seal::level::SaltKey;
use moteseal_seal::star::star_evidence;
use moteseal_seal::stream::{self, Open, PART_OVERHEAD, Selection};
use moteseal_seal::tree::{self, Tree};
use moteseal_seal::{Position, Seal, Star, Statement, Unverified, star};

/// The number of levels of the group.
pub const LEVELS: u8 = 4;
const GROUP: &str = "home";
const NAMES: [(&str, Scheme); 2] = [("star", Scheme::Star), ("tree", Scheme::Tree)];

/// A row: device, index, sequence number, record.
pub type Row = (DeviceId, u32, u64, Vec<u8>);

/// Returns the operator's key.
pub fn operator() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

/// Returns the key of the device called `name`.
pub fn key(name: &str) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &Digest::of(&[name.as_bytes()]).0).unwrap()
}

/// Returns a certificate of the device called `name`.
pub fn certificate(name: &str) -> Vec<u8> {
    let (public, mut out) = (key(name).public(), [0; MAX_CERTIFICATE]);
    let draft = CertificateDraft {
        group: GroupId::of(GROUP),
        device: DeviceId::of(GROUP, name),
        serial: 1,
        key: &public,
        first_index: SealIndex(0),
    };
    draft.issue(&operator(), &mut out).unwrap().to_vec()
}

/// Returns the bytes of the roster file.
pub fn roster() -> &'static [u8] {
    static ROSTER: OnceLock<Vec<u8>> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let certificates = NAMES.map(|(name, _)| certificate(name));
        let held = [[Term::always(&certificates[0])], [Term::always(&certificates[1])]];
        let mut devices = [
            DeviceDraft { name: NAMES[0].0, since: 0, terms: &held[0] },
            DeviceDraft { name: NAMES[1].0, since: 0, terms: &held[1] },
        ];
        devices.sort_by_key(|device| device.id(GROUP));
        let draft = RosterDraft {
            group_name: GROUP,
            history: &[],
            periods: &[Period::first(3_600_000, LEVELS, None, EpochNumber(0), None)],
            last_epoch: Some(EpochNumber(1 << 40)),
            querier: None,
            devices: &devices,
            owners: &[],
            sanitisers: &[],
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.sign(&operator(), &mut scratch, &mut out).unwrap().to_vec()
    })
}

/// Returns the bytes of the next version: a new period, and a device whose key changes.
pub fn later_roster() -> &'static [u8] {
    static ROSTER: OnceLock<Vec<u8>> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let certificates = NAMES.map(|(name, _)| certificate(name));
        let end = Some(EpochNumber(1000));
        let held = [
            vec![Term { end_epoch: end, ..Term::always(&certificates[0]) }],
            vec![
                Term { end_index: Some(SealIndex(7)), ..Term::always(&certificates[1]) },
                Term { first_epoch: EpochNumber(900), ..Term::always(&certificates[1]) },
            ],
        ];
        let mut devices = [
            DeviceDraft { name: NAMES[0].0, since: 0, terms: &held[0] },
            DeviceDraft { name: NAMES[1].0, since: 1, terms: &held[1] },
        ];
        devices.sort_by_key(|device| device.id(GROUP));
        let first = Period::first(3_600_000, LEVELS, None, EpochNumber(0), None);
        let second = Period {
            version: 1,
            first_epoch: EpochNumber(1000),
            start_ms: first.epoch_start_ms(EpochNumber(1000)),
            epoch_ms: 60_000,
            budget: Some(5),
            ..first
        };
        let draft = RosterDraft {
            group_name: GROUP,
            history: &[Digest([3; 32])],
            periods: &[first, second],
            last_epoch: None,
            querier: None,
            devices: &devices,
            owners: &[],
            sanitisers: &[],
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.sign(&operator(), &mut scratch, &mut out).unwrap().to_vec()
    })
}

/// Returns the opened roster.
pub fn directory() -> &'static Roster<'static> {
    static OPEN: OnceLock<Roster<'static>> = OnceLock::new();
    OPEN.get_or_init(|| {
        Roster::open(roster(), &operator().public(), &mut vec![0; roster().len() + 64]).unwrap()
    })
}

/// Returns the schema of all records: a temperature and a humidity, 2 bytes each.
pub fn schema() -> Vec<u8> {
    let fields = [
        Field::new("temperature", "Cel", FieldType::I16).scaled(100, 0),
        Field::new("humidity", "%RH", FieldType::U16).scaled(100, 0),
    ];
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// A seal with its events and signature.
pub struct Sealed {
    /// The seal.
    pub seal: Seal<Unverified>,
    /// The signature of the seal.
    pub signature: Vec<u8>,
    events: Vec<[u8; 4]>,
    blocks: Vec<Digest>,
}

/// Returns three seals of each device.
pub fn sealed() -> &'static [Vec<Sealed>] {
    static SEALED: OnceLock<Vec<Vec<Sealed>>> = OnceLock::new();
    SEALED.get_or_init(|| NAMES.iter().map(|(name, scheme)| history(name, *scheme)).collect())
}

fn history(name: &str, scheme: Scheme) -> Vec<Sealed> {
    let device = DeviceId::of(GROUP, name);
    let mut position = Position::start(directory().first_prev(device).unwrap());
    (0..3u32).map(|index| seal(name, device, scheme, SealIndex(index), &mut position)).collect()
}

fn seal(
    name: &str,
    device: DeviceId,
    scheme: Scheme,
    index: SealIndex,
    position: &mut Position,
) -> Sealed {
    let salt = SaltKey::new([7; 32]).salt(device, index);
    let events: Vec<[u8; 4]> =
        (0..9 + index.0).map(|event| [index.0 as u8, 0, event as u8, 0xee]).collect();
    let mut star =
        Star::<{ LEVELS as usize }>::new(device, index, &salt, Framing::fixed(4).unwrap());
    let mut tree = Tree::<8>::new();
    for event in &events {
        star.push(event).unwrap();
        tree.push(event).unwrap();
    }
    let (counters, blocks) = star.close();
    let root = if scheme == Scheme::Star { star::root(&counters, &blocks) } else { tree.root() };
    let mut statement =
        Statement::new(scheme, GroupId::of(GROUP), directory().digest(), device, LEVELS);
    statement.index = index;
    statement.prev = position.prev;
    statement.last = position.last;
    statement.epoch = EpochNumber(10 + u64::from(index.0));
    statement.last_in_epoch = true;
    statement.schema = Schema::decode(&schema()).unwrap().digest();
    statement.salt = salt;
    statement.counters = counters;
    let seal = Seal::new(statement, root, Algorithm::Ed25519);
    *position = seal.position();
    let signature =
        key(name).signature(seal.message(&mut [0; moteseal_seal::MAX_MESSAGE])).unwrap().to_vec();
    Sealed { seal, signature, events, blocks: blocks.to_vec() }
}

/// Returns every row that was ever sealed.
pub fn rows() -> &'static BTreeSet<Row> {
    static ROWS: OnceLock<BTreeSet<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let rows = |sealed: &Sealed| {
            let statement = sealed.seal.statement();
            let (device, index) = (statement.device, statement.index.0);
            (0u64..)
                .zip(&sealed.events)
                .map(|(seq, event)| (device, index, seq, event.to_vec()))
                .collect::<Vec<_>>()
        };
        sealed().iter().flatten().flat_map(rows).collect()
    })
}

/// Returns a stream of the schema and one device's seals from number `first` on, with the levels of
/// `mask`. Only the last seal is signed.
pub fn stream(history: &[Sealed], first: usize, mask: u32) -> Vec<u8> {
    let mut out = vec![0; 4096 + history.len() * (PART_OVERHEAD + 1024)];
    let mut writer = Writer::new(&mut out);
    stream::encode_schema(&mut writer, &schema()).unwrap();
    let statement = history[first].seal.statement();
    let prev = (first > 0).then_some(statement.prev);
    Open { device: statement.device, roster_version: 0, prev, last: statement.last }
        .encode(&mut writer)
        .unwrap();
    for (at, sealed) in history.iter().enumerate().skip(first) {
        let signature = (at + 1 == history.len()).then_some(&sealed.signature[..]);
        part(&mut writer, sealed, mask & sealed.seal.statement().surviving(), signature);
    }
    stream::encode_end(&mut writer).unwrap();
    let length = writer.position();
    out.truncate(length);
    out
}

/// Returns a stream of a complete tree seal and three single events of this seal.
pub fn single_events(sealed: &Sealed) -> Vec<u8> {
    let mut out = vec![0; 8192];
    let mut writer = Writer::new(&mut out);
    stream::encode_schema(&mut writer, &schema()).unwrap();
    let statement = sealed.seal.statement();
    Open {
        device: statement.device,
        roster_version: 0,
        prev: Some(statement.prev),
        last: statement.last,
    }
    .encode(&mut writer)
    .unwrap();
    let chosen = [1, 2, 8].map(Sequence);
    tree_part(&mut writer, sealed, Selection::Events(&chosen), &chosen, Some(&sealed.signature));
    let length = writer.position();
    out.truncate(length);
    out
}

/// Returns the explaining form of a seal.
pub fn explanation(sealed: &Sealed) -> Vec<u8> {
    let mut object = [0; 1024];
    let mut writer = Writer::new(&mut object);
    sealed.seal.encode(&mut writer, &sealed.signature).unwrap();
    let object = writer.finish();
    let digests: Vec<u8> = sealed.blocks.iter().flat_map(|digest| digest.0).collect();
    let mut out = vec![0; 4096];
    let mut writer = Writer::new(&mut out);
    stream::encode_explain(&mut writer, object, &digests).unwrap();
    writer.finish().to_vec()
}

fn part(out: &mut Writer<'_>, sealed: &Sealed, mask: u32, signature: Option<&[u8]>) {
    let statement = sealed.seal.statement();
    let members = |wanted: u32| {
        let at = move |seq: u64| wanted >> statement.salt.level(Sequence(seq), LEVELS).0 & 1 == 1;
        (0..sealed.events.len() as u64)
            .filter(move |&seq| at(seq))
            .map(Sequence)
            .collect::<Vec<_>>()
    };
    if statement.scheme == Scheme::Tree {
        return tree_part(out, sealed, Selection::Levels(mask), &members(mask), signature);
    }
    let mut evidence = [Digest::NULL; MAX_LEVELS];
    let count = star_evidence(statement, &sealed.blocks, mask, &mut evidence);
    let digests: Vec<u8> = evidence[..count].iter().flat_map(|digest| digest.0).collect();
    let levels = (0..LEVELS).rev().map(Level).filter(|level| mask >> level.0 & 1 == 1);
    let events: Vec<u8> = levels
        .flat_map(|level| members(1 << level.0))
        .flat_map(|seq| sealed.events[seq.0 as usize])
        .collect();
    stream::encode_part_head(out, &sealed.seal, Selection::Levels(mask), &digests, events.len())
        .unwrap();
    out.raw(&events).unwrap();
    stream::encode_part_tail(out, signature).unwrap();
}

fn tree_part(
    out: &mut Writer<'_>,
    sealed: &Sealed,
    select: Selection<'_>,
    chosen: &[Sequence],
    signature: Option<&[u8]>,
) {
    let mut digests = Vec::new();
    for range in tree::geometry::siblings(sealed.events.len() as u64, chosen.iter().copied()) {
        let mut subtree = Tree::<8>::new();
        let records: Vec<u8> = sealed.events[range.start as usize..range.end as usize].concat();
        subtree.extend(&Scalar, 4, &records).unwrap();
        digests.extend(subtree.root().0);
    }
    let events: Vec<u8> = chosen.iter().flat_map(|seq| sealed.events[seq.0 as usize]).collect();
    stream::encode_part_head(out, &sealed.seal, select, &digests, events.len()).unwrap();
    out.raw(&events).unwrap();
    stream::encode_part_tail(out, signature).unwrap();
}
