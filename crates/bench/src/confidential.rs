//! Measures what encrypted columns cost: sealing, verifying without a key, decrypting, and storing in a
//! cloud, against the same readings in plaintext.

mod grants;
mod groups;
mod ingest;

use std::hint::black_box;

use chacha20::ChaCha20Legacy;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _};
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::{
    EncryptedColumns, KeyCommitments, KeyStream, Nonce, Path, StreamSecret,
};
use moteseal_core::record::{Framing, Scheme, Sequence};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::schema::{Field, MAX_SCHEMA, RecordCheck, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer as _};
use moteseal_core::{DeviceId, Digest, EpochNumber, GroupId, SealIndex};
use moteseal_lanes::Host;
use moteseal_seal::encryption::SealCipher;
use moteseal_seal::engine::Engine as _;
use moteseal_seal::follow::{Limits, Shape};
use moteseal_seal::level::SaltKey;
use moteseal_seal::stream::{Item, Open, PART_OVERHEAD, Part, Selection};
use moteseal_seal::stream::{encode_part_head, encode_part_tail};
use moteseal_seal::{Follower, MAX_MESSAGE, Seal, Star, Statement, star};

use crate::hashing::dependent_compressions;
use crate::load::Failed;
use crate::measure::{Bar, Contender, Report, interleaved};

/// Number of interleaved repetitions of each measurement.
const RUNS: usize = 25;
/// The levels of a star.
const LEVELS: u8 = 16;
/// The epoch of the first seal.
const FIRST: u64 = 1_000;
/// The events of all seals of one repetition.
const EVENTS: usize = 60_000;

/// The one device of the measurements.
struct Device {
    key: SecretKey,
    public: PublicKey,
    id: DeviceId,
}

impl Directory for Device {
    fn group(&self) -> GroupId {
        GroupId::of("home")
    }
    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS
    }
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }
    fn roster_digest(&self, version: u32) -> Option<Digest> {
        (version == 0).then_some(Digest([9; 32]))
    }
    fn with_key(
        &self,
        _: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        use_key(&self.public);
        Ok(())
    }
    fn first_prev(&self, _: DeviceId) -> Option<Digest> {
        Some(Digest([5; 32]))
    }
}

/// A seal as bytes: an open item and a part with all events.
struct Sealed {
    bytes: Vec<u8>,
    keys: Option<KeyCommitments>,
    epoch: EpochNumber,
}

/// What a device seals with: its schema, and the keys of the column if it is encrypted.
struct Sealer<'s> {
    device: &'s Device,
    schema: Schema<'s>,
    salts: SaltKey,
    path: Option<Path>,
}

impl Sealer<'_> {
    fn seal(&mut self, number: u32, readings: u32) -> Sealed {
        // Each seal is the first of its device, so that each is verified by itself.
        let (device, index) = (self.device.id, SealIndex(0));
        let epoch = EpochNumber(FIRST + u64::from(number));
        let salt = self.salts.salt(device, index);
        let nonce = Nonce([number.to_le_bytes()[0]; 12]);
        let mut cipher = self.path.as_mut().map(|path| {
            path.advance(epoch).expect("epochs ascend");
            let columns = self.schema.encrypted_columns();
            let streams = columns.map(|(field, _)| {
                let suite = field.suite.expect("the column is encrypted");
                KeyStream::new(path.epoch_key().seal_key(device, index, suite, &nonce))
            });
            SealCipher::new(&self.schema, nonce, streams.collect::<Vec<_>>()).expect("the keys fit")
        });
        let framing = Framing::fixed(4).expect("a record has 4 bytes");
        let mut star = Star::<{ LEVELS as usize }>::new(device, index, &salt, framing);
        let mut levels: [Vec<u8>; LEVELS as usize] = Default::default();
        for reading in 0..readings {
            let mut record = (reading ^ number.rotate_left(20)).to_be_bytes();
            if let Some(cipher) = &mut cipher {
                cipher.encrypt(Sequence(reading.into()), &mut record).expect("the record is valid");
            }
            let level = star.push(&record).expect("the star has room").0;
            levels[usize::from(level)].extend(record);
        }
        let (counters, blocks) = star.close();
        let keys = cipher.map(|cipher| cipher.commitments());
        let (home, roster) = (GroupId::of("home"), Digest([9; 32]));
        let mut statement = Statement::new(Scheme::Star, home, roster, device, LEVELS);
        (statement.index, statement.epoch, statement.last_in_epoch) = (index, epoch, true);
        (statement.schema, statement.salt, statement.keys) = (self.schema.digest(), salt, keys);
        (statement.prev, statement.counters) = (Digest([5; 32]), counters);
        let mask = statement.surviving();
        let seal = Seal::new(statement, star::root(&counters, &blocks), Algorithm::Ed25519);
        let message = &mut [0; MAX_MESSAGE];
        let signature = self.device.key.signature(seal.message(message)).expect("the key signs");
        let events: Vec<u8> = levels.iter().rev().flatten().copied().collect();
        let mut bytes = vec![0; PART_OVERHEAD + 1024 + events.len()];
        let mut out = Writer::new(&mut bytes);
        let open = Open { device, roster_version: 0, prev: None, last: None };
        open.encode(&mut out).expect("there is room");
        encode_part_head(&mut out, &seal, Selection::Levels(mask), &[], events.len())
            .expect("there is room");
        out.raw(&events).expect("there is room");
        encode_part_tail(&mut out, Some(&signature)).expect("there is room");
        let length = out.position();
        bytes.truncate(length);
        Sealed { bytes, keys, epoch }
    }
}

/// Verifies seals one by one, without a key. Returns the number of events.
fn verify(device: &Device, schema: &Schema<'_>, seals: &[Sealed], host: Host) -> u64 {
    let check = RecordCheck::of(schema);
    let shape = Shape {
        digest: schema.digest(),
        framing: Framing::fixed(4).expect("a record has 4 bytes"),
        check: check.as_ref(),
        encrypted: schema.encrypted_count(),
        groups: None,
    };
    let mut events = 0;
    for sealed in seals {
        let mut follower = Follower::new(device, host, Limits::default());
        let (part, _) = part_of(&mut follower, &sealed.bytes);
        let rebuilt = follower.part(&part, Some(&shape)).expect("the part is the device's own");
        let signature = part.signature.unwrap_or_default();
        let seal = rebuilt.seal.verify(device, signature).expect("the signature is valid");
        events += rebuilt.sample.proven(&seal).map_or(0, |_| seal.statement().counters.total());
    }
    events
}

fn part_of<'b>(follower: &mut Follower<'_, Device, Host>, bytes: &'b [u8]) -> (Part<'b>, usize) {
    let (item, length) = Item::decode(bytes).expect("the item is our own");
    let Item::Open(open) = item else { unreachable!("the first item opens the chain") };
    follower.open(&open, |_| None).expect("the device is in the directory");
    let Ok(Item::Part(part)) = Item::decode_whole(&bytes[length..]) else {
        unreachable!("the second item is a part")
    };
    (part, length)
}

/// Decrypts ciphertext of each seal; with `keys`, derives and checks the key of each seal, too.
fn decrypt(
    (schema, secret): (&Schema<'_>, &StreamSecret),
    (seals, records): (&[Sealed], &mut [Vec<u8>]),
    sequences: &[Sequence],
    (host, with_keys): (Host, bool),
) {
    let (field, column) = schema.encrypted_columns().next().expect("a column is encrypted");
    let suite = field.suite.expect("the column is encrypted");
    let columns = EncryptedColumns::of(schema);
    // A reader has the nodes of a grant. These are for the epochs of all seals.
    let root = secret.column(column);
    let last = EpochNumber(FIRST + seals.len() as u64);
    let nodes: Vec<_> = root.cover(EpochNumber(FIRST)..=last).collect();
    let nodes = moteseal_core::confidential::Nodes::new(column, secret.base(), &nodes);
    let device = DeviceId::of("home", "dev1");
    let mut kept = None;
    for (sealed, records) in seals.iter().zip(records) {
        let keys = sealed.keys.expect("the seal states its keys");
        if with_keys || kept.is_none() {
            let key = nodes.epoch_key(sealed.epoch).expect("the nodes cover the epoch");
            let key = key.seal_key(device, SealIndex(0), suite, &keys.nonce());
            key.check(&keys.commitments()[0]).expect("it is the right key");
            kept = Some(key);
        }
        host.apply_key_streams(&columns, sequences, (4, records), std::slice::from_ref(&kept))
            .expect("the records have 4 bytes");
    }
}

/// Computes as much key stream as all events of the seals need, with the crate `chacha20`, whose vectors
/// are those of AVX2.
fn peer_key_stream(seals: usize, stream: &mut [u8]) {
    for seal in 0..seals {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&seal.to_le_bytes());
        ChaCha20Legacy::new(&key.into(), &[0; 8].into()).write_keystream(stream);
        black_box(&mut *stream);
    }
}

pub(crate) fn run() -> Result<Report, Failed> {
    let mut report = Report::new(format!(
        "encrypted columns: one of 4 bytes, ChaCha20; host loops: {}; D = one dependent SHA-256 compression; medians of {RUNS} \
         interleaved runs",
        Host::detect().name()
    ));
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).expect("32 bytes are a seed");
    let public = key.public();
    let device = Device { key, public, id: DeviceId::of("home", "dev1") };
    for readings in [298_u32, 4_800] {
        measure(&device, readings, &mut report);
    }
    grants::measure(&mut report)?;
    groups::measure(&mut report)?;
    ingest::measure(&mut report)?;
    Ok(report)
}

#[allow(clippy::cast_possible_truncation)]
fn measure(device: &Device, readings: u32, report: &mut Report) {
    let host = Host::detect();
    let (mut plain, mut hidden) = ([0; MAX_SCHEMA], [0; MAX_SCHEMA]);
    let schema = |buffer, field| {
        Schema::encode(&[Field::parse(field).expect("the field is valid")], buffer)
            .expect("the schema is valid")
    };
    let plain = schema(&mut plain, "value::u32");
    let hidden = schema(&mut hidden, "value::u32!");
    let secret = StreamSecret::new([7; 32], EpochNumber(0));
    let count = (EVENTS / readings as usize) as u32;
    let events = (count * readings) as usize;
    let seal_all = |schema: &Schema<'_>, is_encrypted: bool| -> Vec<Sealed> {
        let path = is_encrypted.then(|| {
            let (_, column) = schema.encrypted_columns().next().expect("a column is encrypted");
            Path::new(&secret.column(column), EpochNumber(FIRST)).expect("the epoch has keys")
        });
        let mut sealer = Sealer { device, schema: *schema, salts: SaltKey::new([2; 32]), path };
        (0..count).map(|number| sealer.seal(number, readings)).collect()
    };
    let (of_plain, of_hidden) = (seal_all(&plain, false), seal_all(&hidden, true));
    let bytes = |seals: &[Sealed]| seals.iter().map(|seal| seal.bytes.len()).sum::<usize>();
    let added = (bytes(&of_hidden) - bytes(&of_plain)) as f64 / f64::from(count);
    let sequences: Vec<_> = (0..u64::from(readings)).map(Sequence).collect();
    // A sample of half of the events: those above level 0.
    let mut levels = vec![0; readings as usize];
    host.levels(&SaltKey::new([2; 32]).salt(device.id, SealIndex(0)), LEVELS, 0, &mut levels);
    let sample = sequences.iter().zip(&levels).filter(|(_, level)| **level > 0);
    let sample: Vec<_> = sample.map(|(seq, _)| *seq).collect();
    let records = |events: usize| vec![vec![0; 4 * events]; count as usize];
    let [mut lanes, mut keyed_lanes] = [records(sequences.len()), records(sequences.len())];
    let mut sampled = records(sample.len());
    let mut narrow_lanes = records(sequences.len());
    // The fastest loops without AVX-512.
    let narrow = Host::all().into_iter().find(|host| !host.name().starts_with("avx512"));
    let narrow = narrow.unwrap_or(host);
    let mut stream = vec![0; 4 * readings as usize];
    let keyed = (&hidden, &secret);
    let times = interleaved(
        RUNS,
        &mut [
            dependent_compressions(),
            Contender::new(events, || drop(black_box(seal_all(&plain, false)))),
            Contender::new(events, || drop(black_box(seal_all(&hidden, true)))),
            Contender::new(events, || {
                assert_eq!(verify(device, &plain, &of_plain, host), events as u64);
            }),
            Contender::new(events, || {
                assert_eq!(verify(device, &hidden, &of_hidden, host), events as u64);
            }),
            Contender::new(events, || {
                decrypt(keyed, (&of_hidden, &mut lanes), &sequences, (host, false));
            }),
            Contender::new(events, || {
                decrypt(keyed, (&of_hidden, &mut keyed_lanes), &sequences, (host, true));
            }),
            Contender::new(count as usize * sample.len(), || {
                decrypt(keyed, (&of_hidden, &mut sampled), &sample, (host, false));
            }),
            Contender::new(events, || {
                decrypt(keyed, (&of_hidden, &mut narrow_lanes), &sequences, (narrow, false));
            }),
            Contender::new(events, || peer_key_stream(count as usize, &mut stream)),
            Contender::new(events, || {
                assert_eq!(verify(device, &plain, &of_plain, narrow), events as u64);
            }),
            Contender::new(events, || {
                assert_eq!(verify(device, &hidden, &of_hidden, narrow), events as u64);
            }),
        ],
    );
    let title = format!("{readings} readings a seal");
    let mut add = |name: &str, contender, base, unit, bar: Option<Bar>| {
        report.add_spread(format!("{title}: {name}"), times.ratios(contender, base), unit, bar);
    };
    let most = Some(Bar::AtMost(0.05));
    add("sealing, encrypted / plaintext", 2, 1, "x", Some(Bar::AtMost(1.25)));
    let as_fast = Some(Bar::AtMost(1.02));
    add("verifying without a key, encrypted / plaintext", 4, 3, "x", as_fast);
    add(&format!("verifying without a key, by the loops {}", narrow.name()), 11, 10, "x", as_fast);
    add("decrypting an event, without deriving keys", 5, 0, "D", most);
    add(&format!("decrypting an event, by the loops {}", narrow.name()), 8, 0, "D", most);
    add("  the key stream alone, crate chacha20", 9, 0, "D", None);
    add("decrypting an event of a sample of half", 7, 0, "D", None);
    add("decrypting an event, with the keys of each seal", 6, 0, "D", None);
    let millions = |contender| 1e3 / times.nanoseconds(contender);
    // The nonce and a commitment are 28 bytes. The statement states their length in 2 more.
    report.add(format!("{title}: bytes more a seal"), added, "B", Bar::AtMost(30.0));
    for (name, of) in [("sealed in plaintext", 1), ("sealed encrypted", 2), ("verified", 4)] {
        report.add(format!("{title}: readings {name}, one core"), millions(of), "M/s", None);
    }
    let both = 1e3 / (times.nanoseconds(4) + times.nanoseconds(6));
    report.add(format!("{title}: readings verified and decrypted, one core"), both, "M/s", None);
}
