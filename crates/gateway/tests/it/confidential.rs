//! A device with encrypted columns forwards its events within a budget. The coordinator keeps the same
//! events as without encryption. The bundles and the stored seals have the same lengths but for the nonce
//! and the key commitments (spec/confidential.md, section 3). The device is made of the parts of
//! `moteseal_seal` that devices use, because a role does not import another one, not even in tests.

use std::cell::RefCell;
use std::collections::BTreeSet;

use moteseal_core::confidential::{ColumnId, EncryptedColumns, KeyStream, Nonce, StreamSecret};
use moteseal_core::digest::Digest;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{DeviceId, EpochNumber, Level, Scheme, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, Signer as _};
use moteseal_gateway::{Ended, FrameEffect, GroupCoordinator};
use moteseal_seal::device_session::link_statement;
use moteseal_seal::encryption::SealCipher;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::{Forwarder, Noted};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::{Tree, group_leaf, join_roots};
use moteseal_seal::wire::{Acknowledgement, Uplink};
use moteseal_seal::{MAX_MESSAGE, Position, Seal, Statement, star};
use moteseal_store::{Bundle, EpochStore as _, Options, RedbStore};
use moteseal_verify::{Event, ReadError, Roster, SchemaEntry, StreamReader, write};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::column_groups::{GROUP_SECRET, LEVELS, roster, secret};

const FIRST: u64 = 70;
/// The size of the device's buffer: it never has to raise its own round.
const BUFFER: usize = 1 << 15;
/// The length of the nonce, of a key commitment, and of the head of the byte string of both.
const NONCE: usize = 12;
const COMMITMENT: usize = 16;
const HEAD: usize = 2;

const TYPES: [&str; 16] = [
    "u8",
    "i8",
    "u16/10",
    "i16/100",
    "u32",
    "i32",
    "u64",
    "i64",
    "f32",
    "f64",
    "time",
    "bool",
    "enum(off,on,dim)",
    "text12",
    "timestamp",
    "point",
];

fn stream_secret() -> StreamSecret {
    StreamSecret::new([5; 32], EpochNumber(FIRST - 10))
}

/// A random column.
#[derive(Clone, Copy, Debug)]
struct Column {
    kind: &'static str,
    is_nullable: bool,
    /// `!` or `!aes` for an encrypted column; empty for a plain one.
    suite: &'static str,
    /// The column group, if the column is encrypted and is not the first one.
    group: u8,
}

fn columns() -> impl Strategy<Value = Vec<Column>> {
    let suite = prop::sample::select(&["", "!", "!aes"][..]);
    let column = (prop::sample::select(&TYPES[..]), any::<bool>(), suite, 0..=3u8);
    let column = column.prop_map(|(kind, is_nullable, suite, group)| Column {
        kind,
        is_nullable,
        suite,
        group,
    });
    let columns = (prop::collection::vec(column, 1..=4), any::<prop::sample::Index>());
    columns.prop_map(|(mut columns, at)| {
        // At least one column is encrypted.
        let column = at.index(columns.len());
        if columns.iter().all(|column| column.suite.is_empty()) {
            columns[column].suite = "!";
        }
        columns
    })
}

/// Which marks of the columns a schema has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Plain,
    Encrypted,
    Grouped,
}

/// Returns the encoded schema of the columns.
fn schema(columns: &[Column], marks: Marks) -> Vec<u8> {
    let text = |(at, column): (usize, &Column)| {
        let null = if column.is_nullable { "?" } else { "" };
        let suite = if marks == Marks::Plain { "" } else { column.suite };
        let has_group = marks == Marks::Grouped && at > 0 && !suite.is_empty() && column.group > 0;
        let group = if has_group { format!("@{}", column.group) } else { String::new() };
        format!("c{at}::{}{null}{suite}{group}", column.kind)
    };
    let texts: Vec<String> = columns.iter().enumerate().map(text).collect();
    let fields: Vec<Field<'_>> = texts.iter().map(|text| Field::parse(text).unwrap()).collect();
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// A reading: a random number for each column.
type Reading = [u64; 4];

/// Returns a cell of a plain column.
fn cell(field: &Field<'_>, number: u64) -> Vec<u8> {
    let (bytes, size) = (number.to_be_bytes(), field.kind.size());
    let [a, b, c, d, e, f, g, h] = bytes;
    if let Some(null) = field.null().filter(|_| number.is_multiple_of(5)) {
        return null.to_be_bytes()[16 - size..].to_vec();
    }
    match field.kind {
        FieldType::Bool => vec![h % 2],
        FieldType::Enum => vec![h % 3],
        FieldType::Text => {
            let letters = bytes.iter().cycle().map(|byte| b'a' + byte % 26);
            let length = h % 13;
            std::iter::once(length).chain(letters.take(length.into())).collect()
        }
        FieldType::Point => {
            let coordinate = |bytes| i32::from_be_bytes(bytes) % 900_000_000;
            let point = [coordinate([a, b, c, d]), coordinate([e, f, g, h])];
            point.iter().flat_map(|coordinate| coordinate.to_be_bytes()).collect()
        }
        _ => bytes[8 - size..].to_vec(),
    }
}

/// Returns the record of a reading under a schema without encryption. Texts are after all other cells.
fn record(plain: &[u8], reading: &Reading) -> Vec<u8> {
    let schema = Schema::decode(plain).unwrap();
    let cells = |is_text: bool| {
        let fields = schema.fields().zip(reading);
        let fields = fields.filter(move |(field, _)| (field.kind == FieldType::Text) == is_text);
        fields.flat_map(|(field, number)| cell(&field, *number))
    };
    let record: Vec<u8> = cells(false).chain(cells(true)).collect();
    schema.check_plain_record(&record).unwrap();
    record
}

/// Returns the encryption of a seal; `None` if no column is encrypted.
fn cipher(
    schema: &Schema<'_>,
    (device, index): (DeviceId, SealIndex),
    epoch: EpochNumber,
) -> Option<SealCipher<Vec<KeyStream>>> {
    let [a, b, c, d] = index.0.to_be_bytes();
    let nonce = Nonce([7, 7, 7, 7, 7, 7, 7, 7, a, b, c, d]);
    let streams = schema.encrypted_columns().map(|(field, column)| {
        let key = stream_secret().column(column).epoch_key(epoch).unwrap();
        KeyStream::new(key.seal_key(device, index, field.suite.unwrap(), &nonce))
    });
    let streams: Vec<_> = streams.collect();
    (!streams.is_empty()).then(|| SealCipher::new(schema, nonce, streams).unwrap())
}

fn salt_key() -> SaltKey {
    SaltKey::new([3; 32])
}

/// A device: what it needs to seal and forward the events of its next seal.
struct Device<'r> {
    roster: &'r Roster,
    id: DeviceId,
    link: LinkKey,
    scheme: Scheme,
    entry: SchemaEntry,
    index: SealIndex,
    position: Position,
}

impl<'r> Device<'r> {
    fn new(roster: &'r Roster, scheme: Scheme, schema: &[u8]) -> Self {
        let id = roster.id("mote").unwrap();
        Self {
            roster,
            id,
            link: LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), id)),
            scheme,
            entry: SchemaEntry::decode(schema).unwrap(),
            index: SealIndex(0),
            position: Position::start(roster.first_prev(id).unwrap()),
        }
    }

    fn send(
        &self,
        gateway: &mut GroupCoordinator,
        epoch: EpochNumber,
        uplink: &Uplink<'_>,
    ) -> FrameEffect {
        let mut out = vec![0; MAX_FRAME];
        let frame = uplink.close(self.id, &self.link, &mut out).unwrap();
        gateway.receive(frame, epoch).unwrap()
    }

    /// Forwards what is in the buffer, and follows the rounds that the coordinator announces.
    fn forward(
        &self,
        gateway: &mut GroupCoordinator,
        epoch: EpochNumber,
        forwarder: &mut Forwarder<BUFFER>,
    ) {
        let mut scratch = [0; 512];
        while let Some(forward) = forwarder.next_frame(&mut scratch).unwrap() {
            let effect = self.send(gateway, epoch, &Uplink::Forward(forward));
            let reply = gateway.acknowledgement(self.id).unwrap();
            let reply = Acknowledgement::open(&reply, self.id, &self.link).unwrap();
            forwarder.acknowledge(&reply);
            if let Some((_, round)) = effect.raised {
                forwarder.announced(round);
            }
        }
    }

    /// Seals records and forwards them, 16 at a time.
    fn seal(
        &mut self,
        gateway: &mut GroupCoordinator,
        epoch: EpochNumber,
        records: &[Vec<u8>],
        is_last: bool,
    ) {
        let schema = Schema::decode(&self.entry.bytes).unwrap();
        let salt = salt_key().salt(self.id, self.index);
        let mut cipher = cipher(&schema, (self.id, self.index), epoch);
        let kind = (self.scheme, self.entry.framing);
        let forwarder = Forwarder::new(self.index, epoch, kind, LEVELS, gateway.round(epoch));
        let sends_all = self.scheme == Scheme::Tree && self.entry.groups.is_some();
        let mut forwarder =
            Box::new(if sends_all { forwarder.with_all_events() } else { forwarder });
        let mut sealed = Vec::new();
        for (seq, record) in (0..).map(Sequence).zip(records) {
            let mut record = record.clone();
            if let Some(cipher) = &mut cipher {
                cipher.encrypt(seq, &mut record).unwrap();
            }
            let noted = forwarder.note(salt.level(seq, LEVELS), &record);
            assert!(matches!(noted, Noted::Below | Noted::Buffered), "{noted:?}");
            sealed.push(record);
            if seq.0 % 16 == 15 {
                self.forward(gateway, epoch, &mut forwarder);
            }
        }
        forwarder.end();
        self.forward(gateway, epoch, &mut forwarder);

        let (group, roster) = (self.roster.group(), self.roster.digest());
        let mut statement = Statement::new(self.scheme, group, roster, self.id, LEVELS);
        link_statement(&mut statement, &self.position, &forwarder);
        (statement.epoch, statement.last_in_epoch) = (epoch, is_last);
        (statement.schema, statement.groups) = (self.entry.digest, schema.groups());
        (statement.salt, statement.keys) = (salt, cipher.as_ref().map(SealCipher::commitments));
        let count = u32::try_from(sealed.len()).unwrap();
        statement.counters = Counters::of(&salt, LEVELS, count);
        let root = self.root(&statement, &sealed);
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        let signature = secret(0).signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
        let Position { prev, last, .. } = self.position;
        let (mut open, mut part) = (Vec::new(), Vec::new());
        write::open(
            &mut open,
            &Open { device: self.id, roster_version: 0, prev: Some(prev), last },
        );
        let selection = Selection::Levels(seal.statement().surviving());
        write::part(&mut part, &seal, selection, &[], &[], Some(&signature));
        let close = Uplink::Close { schema: self.entry.digest, open: &open, part: &part };
        assert!(self.send(gateway, epoch, &close).durable, "the seal is not accepted");
        self.position = seal.position();
        self.index.0 += 1;
    }

    /// Returns the root over sealed records.
    fn root(&self, statement: &Statement, records: &[Vec<u8>]) -> Digest {
        let layout = self.entry.groups.as_deref();
        match (self.scheme, layout) {
            (Scheme::Star, _) => {
                let mut blocks: [Vec<u8>; LEVELS as usize] = Default::default();
                for (seq, record) in (0..).map(Sequence).zip(records) {
                    let block = &mut blocks[usize::from(statement.salt.level(seq, LEVELS).0)];
                    self.entry.framing.frame(record, |bytes| block.extend_from_slice(bytes));
                }
                let of_level = |(level, block): (Level, &Vec<u8>)| {
                    let place = (self.id, self.index, level);
                    if statement.is_null(level) {
                        return Digest::NULL;
                    }
                    star::whole_block_digest(place, (layout, self.entry.framing), block)
                };
                let digests: Vec<_> = (0..).map(Level).zip(&blocks).map(of_level).collect();
                star::root(&statement.counters, &digests)
            }
            (Scheme::Tree, None) => {
                let mut tree = Tree::<16>::new();
                for record in records {
                    tree.push(record).unwrap();
                }
                tree.root()
            }
            (Scheme::Tree, Some(layout)) => {
                let of_group = |group: u8| {
                    let mut tree = Tree::<16>::new();
                    for record in records {
                        tree.push_leaf(group_leaf(layout.cells(group), record)).unwrap();
                    }
                    tree.root()
                };
                join_roots(&layout.all().iter().map(of_group).collect::<Vec<_>>())
            }
        }
    }
}

/// Seals the records of each epoch, at most `most` a seal, and forwards them to a coordinator. Returns the
/// epochs as the coordinator ended them.
fn run(
    roster: &Roster,
    (scheme, schema): (Scheme, &[u8]),
    epochs: &[Vec<Vec<u8>>],
    most: usize,
) -> Vec<Ended> {
    let mut gateway = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
    let mut device = Device::new(roster, scheme, schema);
    let learnt = device.send(&mut gateway, EpochNumber(FIRST), &Uplink::Schema(schema));
    assert!(learnt.durable, "the schema is not accepted");
    let mut ended = Vec::new();
    for (epoch, records) in (FIRST..).map(EpochNumber).zip(epochs) {
        let mut parts: Vec<_> = records.chunks(most).collect();
        // An epoch without readings has a seal, too.
        if parts.is_empty() {
            parts.push(&records[..]);
        }
        let count = parts.len();
        for (part, number) in parts.into_iter().zip(1..) {
            device.seal(&mut gateway, epoch, part, number == count);
        }
        ended.push(gateway.end(epoch, &secret(99)).unwrap());
    }
    ended
}

/// A row: the index of its seal, its sequence number, its level, and its values.
type Row = (u32, u64, u8, Vec<String>);

/// A verified bundle.
struct Read {
    rows: Vec<Row>,
    /// The length of the bundle without the item of the schema.
    length: usize,
    /// What a store keeps of it.
    stored: Bundle,
}

/// Verifies a bundle, and decrypts its rows with the device's stream secret.
fn read(roster: &Roster, bundle: &[u8]) -> Read {
    let mut found = None;
    let mut reader = StreamReader::new(roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        let Event::Proven(proven) = event else { panic!("{event:?}") };
        let schema = Schema::decode(&proven.schema.bytes).unwrap();
        let statement = proven.seal.statement();
        assert_eq!(statement.keys.is_some(), schema.encrypted_count() > 0);
        let stream_of = |column: ColumnId| {
            let root = stream_secret().column(column);
            KeyStream::new(proven.seal.column_key(&schema, &root.nodes()).unwrap())
        };
        let streams = schema.encrypted_columns().map(|(_, column)| Some(stream_of(column)));
        let mut streams: Vec<Option<KeyStream>> = streams.collect();
        let (columns, mut rows) = (EncryptedColumns::of(&schema), Vec::new());
        proven.sample.for_each(&Scalar, |seq, level, sealed| {
            let mut record = sealed.to_vec();
            let decrypted = columns.decrypt(seq, &mut record, &mut streams).unwrap();
            let value = |field: Field<'_>| format!("{:?}", decrypted.read(&field).unwrap());
            let values = schema.fields().map(value).collect();
            rows.push((statement.index.0, seq.0, level.0, values));
        });
        let mut item = Vec::new();
        write::schema(&mut item, &proven.schema.bytes);
        let stored = Bundle::from_proven(&proven).unwrap();
        found = Some(Read { rows, length: bundle.len() - item.len(), stored });
        Ok::<_, ReadError>(())
    };
    reader.feed(bundle, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    found.unwrap()
}

fn read_all(roster: &Roster, ended: &[Ended]) -> Vec<Read> {
    ended.iter().flat_map(|ended| &ended.bundles).map(|bundle| read(roster, bundle)).collect()
}

fn rows(read: &[Read]) -> Vec<Row> {
    read.iter().flat_map(|read| read.rows.iter().cloned()).collect()
}

/// Returns the rows that a coordinator must keep: the events of the levels from the final round on.
fn expected(
    roster: &Roster,
    plain: &[u8],
    epochs: &[Vec<Vec<u8>>],
    ended: &[Ended],
    most: usize,
) -> Vec<Row> {
    let schema = Schema::decode(plain).unwrap();
    let device = roster.id("mote").unwrap();
    let (mut rows, mut index) = (Vec::new(), SealIndex(0));
    for (records, ended) in epochs.iter().zip(ended) {
        for part in records.chunks(most) {
            let salt = salt_key().salt(device, index);
            for (seq, record) in (0..).map(Sequence).zip(part) {
                let level = salt.level(seq, LEVELS);
                if level.0 < ended.round.0 {
                    continue;
                }
                let value = |field: Field<'_>| format!("{:?}", field.read(record).unwrap());
                rows.push((index.0, seq.0, level.0, schema.fields().map(value).collect()));
            }
            index.0 += 1;
        }
        index.0 += u32::from(records.is_empty());
    }
    rows
}

/// Asserts what a store keeps more of an encrypted seal without column groups. The head has the signed
/// statement, a byte string whose own head may have one byte more. The body has the events, and a tree's
/// digests.
fn assert_stored_cost(encrypted: &Bundle, plain: &Bundle, columns: usize) {
    let ((plain_head, plain_body), (head, body)) = (plain.rows(), encrypted.rows());
    let more = head.len() - plain_head.len() - (NONCE + COMMITMENT * columns);
    assert!((HEAD..=HEAD + 1).contains(&more), "{more} bytes of heads");
    assert_eq!(body.len(), plain_body.len());
}

#[derive(Clone, Debug)]
struct Input {
    scheme: Scheme,
    columns: Vec<Column>,
    is_grouped: bool,
    /// The budget of an epoch, in events.
    budget: u64,
    /// The largest number of events of a seal.
    most: usize,
    epochs: Vec<Vec<Reading>>,
}

fn inputs() -> impl Strategy<Value = Input> {
    let scheme = prop::sample::select(&[Scheme::Star, Scheme::Tree][..]);
    let budget = prop_oneof![Just(1_000), 1..40u64];
    let epochs = prop::collection::vec(prop::collection::vec(any::<Reading>(), 0..120), 1..4);
    let input = (scheme, columns(), any::<bool>(), budget, 30..150usize, epochs);
    input.prop_map(|(scheme, columns, is_grouped, budget, most, epochs)| Input {
        scheme,
        columns,
        is_grouped,
        budget,
        most,
        epochs,
    })
}

#[test]
fn a_coordinator_with_a_budget_keeps_the_same_rows_with_encrypted_columns_as_without() {
    let config = ProptestConfig {
        source_file: Some(file!()),
        test_name: Some(concat!(module_path!(), "::rows_within_a_budget")),
        ..ProptestConfig::with_cases(60)
    };
    // The schemes with a case in which no event was dropped, and with one in which events were.
    let seen = RefCell::new(BTreeSet::new());
    let result = TestRunner::new(config).run(&inputs(), |input| {
        let Input { scheme, columns, is_grouped, budget, most, epochs } = input;
        let roster = roster(budget);
        let plain = schema(&columns, Marks::Plain);
        let marks = if is_grouped { Marks::Grouped } else { Marks::Encrypted };
        let encrypted = schema(&columns, marks);
        let records = |epoch: &Vec<Reading>| epoch.iter().map(|at| record(&plain, at)).collect();
        let epochs: Vec<Vec<Vec<u8>>> = epochs.iter().map(records).collect();

        let ended_plain = run(&roster, (scheme, &plain), &epochs, most);
        let ended_encrypted = run(&roster, (scheme, &encrypted), &epochs, most);
        let rounds = |ended: &[Ended]| -> Vec<_> {
            ended.iter().map(|ended| (ended.epoch, ended.round, ended.kept)).collect()
        };
        prop_assert_eq!(rounds(&ended_plain), rounds(&ended_encrypted));
        let expected = expected(&roster, &plain, &epochs, &ended_plain, most);
        let read_plain = read_all(&roster, &ended_plain);
        let read_encrypted = read_all(&roster, &ended_encrypted);
        prop_assert_eq!(&rows(&read_plain), &expected);
        prop_assert_eq!(&rows(&read_encrypted), &expected);

        let entry = SchemaEntry::decode(&encrypted).unwrap();
        let more = NONCE + COMMITMENT * entry.encrypted + HEAD;
        // The part names its groups, and has an empty list of secrets. A tree has more digests, too.
        let more = more + if entry.groups.is_some() { 2 } else { 0 };
        prop_assert_eq!(read_plain.len(), read_encrypted.len());
        if scheme == Scheme::Star || entry.groups.is_none() {
            for (plain, encrypted) in read_plain.iter().zip(&read_encrypted) {
                prop_assert_eq!(encrypted.length, plain.length + more);
            }
        }
        if entry.groups.is_none() {
            for (plain, encrypted) in read_plain.iter().zip(&read_encrypted) {
                assert_stored_cost(&encrypted.stored, &plain.stored, entry.encrypted);
            }
        }
        let events: usize = epochs.iter().map(Vec::len).sum();
        let is_dropped = expected.len() < events;
        seen.borrow_mut().insert((scheme == Scheme::Tree, is_dropped));
        Ok(())
    });
    result.unwrap();
    let seen = seen.into_inner();
    assert_eq!(seen.len(), 4, "no case of a scheme with, or without, dropped events: {seen:?}");
}

#[test]
fn a_store_keeps_twelve_bytes_more_a_seal_and_sixteen_more_a_column() {
    let column = |kind, suite| Column { kind, is_nullable: false, suite, group: 0 };
    let fixed = [column("i16/100", "!"), column("u8", ""), column("u64", "!aes")];
    let with_text = [column("i16/100", "!"), column("text12", "!")];
    let schemas = [(&fixed[..], 2), (&with_text[..], 2), (&fixed[..1], 1)];
    let folder = tempfile::tempdir().unwrap();
    let of_scheme = |scheme| [(scheme, 1_000), (scheme, 40)];
    let groups = [Scheme::Star, Scheme::Tree].into_iter().flat_map(of_scheme);
    let cases = groups.flat_map(|group| schemas.map(|columns| (group, columns)));
    for (number, ((scheme, budget), (columns, encrypted_count))) in cases.enumerate() {
        let roster = roster(budget);
        let readings = (1..=250_u64).map(|at| [at.wrapping_mul(0x0123_4567_89ab_cdef); 4]);
        let plain = schema(columns, Marks::Plain);
        let records: Vec<Vec<u8>> = readings.map(|reading| record(&plain, &reading)).collect();
        let [plain, encrypted] = [Marks::Plain, Marks::Encrypted].map(|marks| {
            let schema = schema(columns, marks);
            let epochs = std::slice::from_ref(&records);
            let ended = run(&roster, (scheme, &schema), epochs, 250);
            assert_eq!(ended[0].round.0 > 0, budget < 250);
            let bundle = read(&roster, &ended[0].bundles[0]).stored;
            let name = format!("{number}-{marks:?}.redb");
            let store = RedbStore::open(&folder.path().join(name), Options::default()).unwrap();
            assert_eq!(store.put(vec![bundle.clone()]).unwrap().stored, 1);
            let seal = store.seals_at(bundle.key().device, SealIndex(0)).unwrap().remove(0);
            // The store has the head and the body whose lengths are compared.
            let (head, body) = bundle.rows();
            assert_eq!(store.body(&seal, 0..seal.body_length()).unwrap(), body);
            assert!(head.windows(seal.sign1().len()).any(|bytes| bytes == seal.sign1()));
            assert_eq!(bundle.stored_bytes(), head.len() + body.len());
            (bundle, seal)
        });
        assert_eq!(encrypted.1.stored_events(), plain.1.stored_events());
        assert_stored_cost(&encrypted.0, &plain.0, encrypted_count);
        let more = encrypted.1.sign1().len() - plain.1.sign1().len();
        assert_eq!(more, encrypted.0.stored_bytes() - plain.0.stored_bytes());
    }
}
