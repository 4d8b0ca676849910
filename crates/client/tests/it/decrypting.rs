//! A reader reads exactly the columns and epochs for which it has keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moteseal_api::{CBOR_SEQ, JSON, paths};
use moteseal_client::decrypt::{DeviceKeys, KeySet, SealKeys, Withheld};
use moteseal_client::estimate::{Estimator, Values};
use moteseal_client::output::OutputError;
use moteseal_client::{Client, NoRows, Rows, Session, Sink, proof};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::confidential::{KeyAccessError, KeyStream, Nonce};
use moteseal_core::record::{DeviceId, EpochNumber, Sequence};
use moteseal_core::schema::{Schema, Value};
use moteseal_seal::Position;
use moteseal_seal::sample::{Choice, Rate, ReadingRun, Readings};
use moteseal_store::{Options, RedbStore};
use moteseal_verify::write;

use crate::confidential::{
    Cell, Cells, FIELDS, Granted, columns, encode, encrypted, next_index, record, secret_of,
    streams,
};
use crate::support::{EPOCH, Group, Picked, Sealed};

const NAMES: [&str; 2] = ["mote-1", "mote-2"];
const ALL: u32 = u32::MAX;

/// A generator of pseudo-random numbers below a bound (xorshift64*).
fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |bound| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Returns the values of a record in plaintext.
fn values(schema: &Schema<'_>, record: &[u8]) -> Vec<String> {
    let read = |field: moteseal_core::schema::Field<'_>| -> String {
        field.in_plaintext().read(record).unwrap().to_string()
    };
    schema.fields().map(read).collect()
}

#[test]
fn of_100_000_cells_exactly_the_granted_ones_are_readable() {
    const EPOCHS: u64 = 12;
    const ROWS: u64 = 1400;
    let (group, mut next) = (Group::new(), random());
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let (mut parts, mut plain) = (Vec::<Sealed>::new(), BTreeMap::new());
    for name in NAMES {
        let mut position: Position = group.start(name);
        for epoch in EPOCH..EPOCH + EPOCHS {
            let mut records = Vec::new();
            for seq in 0..ROWS {
                let place = "abcdefghi".get(..next(10) as usize).unwrap();
                // A sixteenth of the temperatures are null.
                let temperature = if next(16) == 0 { i16::MIN } else { next(5000) as i16 };
                let record = record(temperature, next(256) as u8, next(2) == 1, place);
                let key = (group.device(name), EpochNumber(epoch), Sequence(seq));
                plain.insert(key, values(&schema, &record));
                records.push(record);
            }
            parts.push(group.seal_secretly(name, &mut position, epoch, &FIELDS, &records));
        }
    }
    let parts: Vec<(&Sealed, u32)> = parts.iter().map(|part| (part, ALL)).collect();
    let answer = group.answer(&parts);

    let (mut cells, mut readable) = (0, 0);
    for _ in 0..4 {
        let (mut keys, mut granted) = (Granted::default(), Vec::new());
        for name in NAMES {
            for column in columns(&schema) {
                let first = EPOCH + next(EPOCHS);
                let range = (first, first + next(EPOCHS - (first - EPOCH)));
                if next(5) > 0 {
                    keys.add(group.device(name), (&secret_of(name), column), range);
                    granted.push(((group.device(name), column), range));
                }
            }
        }
        let is_granted = |device, column, epoch: EpochNumber| {
            granted.iter().any(|(of, (first, last))| {
                *of == (device, column) && (*first..=*last).contains(&epoch.0)
            })
        };
        let mut found = Cells::default();
        group.read(&NAMES, Some(&mut keys), &answer, &mut found).unwrap();
        assert_eq!(found.0.len(), plain.len());
        for (device, epoch, seq, row) in found.0 {
            let expected = &plain[&(device, epoch, seq)];
            let mut encrypted = columns(&schema).into_iter();
            for ((cell, expected), field) in row.iter().zip(expected).zip(schema.fields()) {
                let column = field.suite.and_then(|_| encrypted.next());
                cells += usize::from(column.is_some());
                match column {
                    Some(column) if !is_granted(device, column, epoch) => {
                        assert_eq!(*cell, Err("NotCovered"), "{device} {epoch} {seq} {field}");
                    }
                    column => {
                        readable += usize::from(column.is_some());
                        assert_eq!(cell.as_ref(), Ok(expected), "{device} {epoch} {seq} {field}");
                    }
                }
            }
        }
    }
    assert!(cells > 400_000 && readable > 40_000 && cells - readable > 40_000, "{readable}");
}

/// The records of a sink by their places, as they are in memory.
#[derive(Default)]
struct Memory(BTreeMap<(DeviceId, EpochNumber, Sequence), Vec<u8>>);

impl Sink for Memory {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let (device, epoch) = (rows.device(), rows.statement().epoch);
        rows.for_each(|seq, _, record| drop(self.0.insert((device, epoch, seq), record.to_vec())));
        let mut chunked = Vec::new();
        rows.for_each_chunk(|seqs, records| {
            chunked.extend(seqs.iter().zip(records).map(|(seq, record)| (*seq, record.to_vec())));
        });
        for (seq, record) in chunked {
            assert_eq!(self.0[&(device, epoch, seq)], record);
        }
        Ok(())
    }
}

/// Returns the bytes of a cell of [`FIELDS`] in a record. The length of a text is not encrypted.
fn cell(record: &[u8], position: usize) -> &[u8] {
    match position {
        0 => &record[..2],
        1 => &record[2..3],
        2 => &record[3..4],
        _ => &record[5..],
    }
}

#[test]
fn of_100_000_random_cells_those_that_are_not_granted_are_ciphertext_in_the_memory_of_the_answer() {
    const EPOCHS: u64 = 30;
    const ROWS: u64 = 600;
    let (group, mut next) = (Group::new(), random());
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let mut parts = Vec::<Sealed>::new();
    for name in NAMES {
        let mut position: Position = group.start(name);
        for epoch in EPOCH..EPOCH + EPOCHS {
            let records = (0..ROWS).map(|_| {
                let place = "abcdefghi".get(..1 + next(9) as usize).unwrap();
                record(next(5000) as i16, next(256) as u8, next(2) == 1, place)
            });
            let records: Vec<_> = records.collect();
            parts.push(group.seal_secretly(name, &mut position, epoch, &FIELDS, &records));
        }
    }
    let parts: Vec<(&Sealed, u32)> = parts.iter().map(|part| (part, ALL)).collect();
    let answer = group.answer(&parts);
    let read = |keys: Option<&mut dyn SealKeys>| {
        let mut memory = Memory::default();
        group.read(&NAMES, keys, &answer, &mut memory).unwrap();
        memory.0
    };
    let mut all = KeySet::new();
    NAMES.iter().for_each(|name| all.add(DeviceKeys::new(group.device(name), secret_of(name))));
    let (sealed, plain) = (read(None), read(Some(&mut all)));

    // A grant opens some columns of some devices in some epochs.
    let mut granted = BTreeSet::new();
    let mut keys = Granted::default();
    for name in NAMES {
        for (position, (_, column)) in [0, 2, 3].into_iter().zip(schema.encrypted_columns()) {
            for epoch in (EPOCH..EPOCH + EPOCHS).filter(|_| next(2) == 0) {
                keys.add(group.device(name), (&secret_of(name), column), (epoch, epoch));
                granted.insert((group.device(name), position, EpochNumber(epoch)));
            }
        }
    }
    let memory = read(Some(&mut keys));
    assert_eq!(memory.len() as u64, 2 * EPOCHS * ROWS);
    let (places, mut readable, mut different): (Vec<_>, _, _) = (memory.keys().collect(), 0, 0);
    let names = ["temperature", "seen", "open", "place"];
    for _ in 0..100_000 {
        let place = places[next(places.len() as u64) as usize];
        let position = next(4) as usize;
        let of = |records: &BTreeMap<_, Vec<u8>>| cell(&records[place], position).to_vec();
        let (found, sealed, plain) = (of(&memory), of(&sealed), of(&plain));
        let is_granted = position == 1 || granted.contains(&(place.0, position, place.1));
        let expected = if is_granted { &plain } else { &sealed };
        assert_eq!(&found, expected, "{} of {place:?}", names[position]);
        readable += u32::from(is_granted && position != 1);
        different += u32::from(!is_granted && sealed != plain);
    }
    assert!(readable > 30_000 && different > 30_000, "{readable} {different}");
}

/// Two epochs of one device, and their rows in plaintext.
fn two_epochs(group: &Group) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut position = group.start("mote-1");
    let records: Vec<_> =
        (0..40).map(|at| record(100 * at, at as u8, at % 3 == 0, "attic")).collect();
    let mut seal = |epoch, records: &[Vec<u8>]| {
        group.seal_secretly("mote-1", &mut position, epoch, &FIELDS, records)
    };
    let (one, two) = (seal(EPOCH, &records[..20]), seal(EPOCH + 1, &records[20..]));
    (group.answer(&[(&one, ALL), (&two, ALL)]), records)
}

#[test]
fn the_stream_secret_of_a_device_opens_all_of_its_columns_and_those_of_no_other_device() {
    let group = Group::new();
    let (answer, records) = two_epochs(&group);
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let device = group.device("mote-1");
    let mut keys = DeviceKeys::new(device, secret_of("mote-1"));
    let mut found = Cells::default();
    let report = group.read(&["mote-1"], Some(&mut keys), &answer, &mut found).unwrap();
    let expected: Vec<_> = records.iter().map(|record| values(&schema, record)).collect();
    let rows: Vec<Vec<String>> = found
        .0
        .into_iter()
        .map(|(.., row)| row.into_iter().map(Result::unwrap).collect())
        .collect();
    assert_eq!(rows, expected);
    assert!(report.devices[0].withheld.is_empty());

    for (mut keys, reason) in [
        (DeviceKeys::new(group.device("mote-2"), secret_of("mote-1")), "NotCovered"),
        (DeviceKeys::new(device, secret_of("mote-2")), "WrongKey"),
    ] {
        let mut found = Cells::default();
        let report = group.read(&["mote-1"], Some(&mut keys), &answer, &mut found).unwrap();
        assert!(found.0.iter().all(|(.., row)| row[0] == Err(reason) && row[1].is_ok()));
        let withheld = &report.devices[0].withheld;
        let places: Vec<_> = withheld.iter().map(|of| (&*of.column, of.seals, of.rows)).collect();
        assert_eq!(places, [("temperature", 2, 40), ("open", 2, 40), ("place", 2, 40)]);
        assert!(withheld.iter().all(|of| of.reason.name() == reason));
    }
}

#[test]
fn a_column_that_was_added_later_starts_from_the_successor_of_the_secret() {
    let group = Group::new();
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let (device, mut position) = (group.device("mote-1"), group.start("mote-1"));
    let (secret, nonce) = (secret_of("mote-1"), Nonce([3; 12]));
    let place = (EpochNumber(EPOCH), next_index(&position));
    // The first column is of the first batch, and the others are of the third.
    let mut of_first = streams(&schema, device, place, (&secret, nonce));
    let mut mixed = streams(&schema, device, place, (&secret.next().next(), nonce));
    mixed[0] = of_first.remove(0);
    let (sealed, keys) = encrypted(&schema, &[record(2150, 1, true, "attic")], nonce, mixed);
    let part = (EPOCH, true);
    let seal = group.seal_encrypted("mote-1", &mut position, part, &FIELDS, (&sealed, Some(keys)));
    let mut found = Cells::default();
    let mut keys = DeviceKeys::new(device, secret);
    group.read(&["mote-1"], Some(&mut keys), &group.answer(&[(&seal, ALL)]), &mut found).unwrap();
    let row: Vec<_> = found.0[0].3.iter().map(|cell| cell.clone().unwrap()).collect();
    assert_eq!(row, ["21.50", "1", "true", "attic"]);
}

#[test]
fn keys_of_several_sources_add_up_and_the_error_that_says_most_is_reported() {
    let group = Group::new();
    let (answer, _) = two_epochs(&group);
    let bytes = encode(&FIELDS);
    let ids = columns(&Schema::decode(&bytes).unwrap());
    let device = group.device("mote-1");
    let (right, wrong) = (secret_of("mote-1"), secret_of("mote-2"));
    let (mut one, mut two) = (Granted::default(), Granted::default());
    one.add(device, (&right, ids[0]), (EPOCH, EPOCH));
    two.add(device, (&right, ids[0]), (EPOCH + 1, EPOCH + 9));
    two.add(device, (&wrong, ids[1]), (EPOCH, EPOCH + 9));
    let mut set = KeySet::new();
    assert!(set.is_empty());
    set.add(one);
    set.add(two);
    let mut found = Cells::default();
    let report = group.read(&["mote-1"], Some(&mut set), &answer, &mut found).unwrap();
    for (.., row) in &found.0 {
        let names: Vec<_> = row.iter().map(|cell| cell.as_ref().err().copied()).collect();
        assert_eq!(names, [None, None, Some("WrongKey"), Some("NotCovered")]);
    }
    let reasons: Vec<_> = report.devices[0].withheld.iter().map(|of| of.reason).collect();
    let key = |error| Withheld::Key(error);
    assert_eq!(reasons, [key(KeyAccessError::WrongKey), key(KeyAccessError::NotCovered)]);
    let json = report.to_json();
    assert_eq!(json["devices"][0]["withheld"][0]["reason"], "WrongKey");
    assert_eq!(json["devices"][0]["withheld"][0]["column"], "open");
}

#[test]
fn named_and_drawn_readings_of_a_tree_are_decrypted() {
    let group = Group::new();
    let field = "a:V:u8!";
    let bytes = encode(&[field]);
    let schema = Schema::decode(&bytes).unwrap();
    let (device, mut position) = (group.device("mote-1"), group.start("mote-1"));
    let (secret, nonce) = (secret_of("mote-1"), Nonce([5; 12]));
    let place = (EpochNumber(EPOCH), next_index(&position));
    let plain: Vec<Vec<u8>> = (0..150).map(|at| vec![at]).collect();
    let keys: Vec<KeyStream> = streams(&schema, device, place, (&secret, nonce));
    let (sealed, keys) = encrypted(&schema, &plain, nonce, keys);
    let tree =
        group.seal_tree_of(field, &mut position, (EPOCH, true), 0, &sealed.concat(), Some(keys));
    let run = ReadingRun { index: place.1, first: 70, count: 9 };
    let choice = Choice::Readings(Readings::new(&[run]).unwrap());
    let picked = Picked::Events((70..79).map(Sequence).collect());
    let answer = group.answer_of_trees(&[], &[(&tree, picked)]);
    let query = group.query(&["mote-1"], Some(EPOCH + 1), choice);
    let mut keys = DeviceKeys::new(device, secret);
    let mut session = Session::new(&group.roster, query, None).with_keys(&mut keys);
    let mut found = Cells::default();
    session.feed(&answer, &mut found).unwrap();
    session.finish(&mut found).unwrap();
    let read: Vec<_> = found.0.iter().map(|(.., seq, row)| (seq.0, row[0].clone())).collect();
    let expected: Vec<_> = (70..79).map(|at| (at, Ok(at.to_string()))).collect();
    assert_eq!(read, expected);
}

/// The maker of a proof also chooses its query, so a redacted proof could otherwise pass for the complete
/// answer to a query of the readings that it shows.
#[test]
fn a_proof_of_named_readings_is_not_complete_and_the_answer_to_their_query_is() {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let index = next_index(&position);
    let plain: Vec<u8> = (0..150).collect();
    let tree = group.seal_tree_of("a:V:u8", &mut position, (EPOCH, true), 0, &plain, None);
    let run = ReadingRun { index, first: 70, count: 9 };
    let choice = Choice::Readings(Readings::new(&[run]).unwrap());
    let picked = Picked::Events((70..79).map(Sequence).collect());
    let answer = group.answer_of_trees(&[], &[(&tree, picked)]);
    // The range ends with the last seal, or is open.
    for until in [Some(EPOCH + 1), None] {
        let query = group.query(&["mote-1"], until, choice);
        let mut live = Session::new(&group.roster, query.clone(), None);
        live.feed(&answer, &mut NoRows).unwrap();
        let (report, _) = live.finish(&mut NoRows).unwrap();
        assert!(!report.is_named());
        let is_complete = report.is_complete();
        assert!(is_complete || until.is_some(), "the query has no end");

        let mut proof = Vec::new();
        write::proof(&mut proof, &query.to_json());
        proof.extend(&answer);
        let mut saved = Session::of_proof(&group.roster, None);
        saved.feed(&proof, &mut NoRows).unwrap();
        let (report, _) = saved.finish(&mut NoRows).unwrap();
        assert_eq!(report.rows(), 9);
        assert!(report.is_named() && !report.is_complete());
        let json = report.to_json();
        assert_eq!(json["complete"], false);
        assert_eq!(json["named"], true);
        assert_eq!(json["devices"][0]["complete"], false);
        let error = report.require_complete(&group.roster).unwrap_err();
        assert_eq!(error.name(), if is_complete { "ReadingsNamed" } else { "TailUnknown" });
    }
}

#[test]
fn an_estimate_needs_a_column_that_is_readable_throughout() {
    let group = Group::new();
    let (answer, records) = two_epochs(&group);
    let bytes = encode(&FIELDS);
    let ids = columns(&Schema::decode(&bytes).unwrap());
    let (device, secret) = (group.device("mote-1"), secret_of("mote-1"));
    let granted = |last: u64| {
        let mut keys = Granted::default();
        keys.add(device, (&secret, ids[0]), (EPOCH, last));
        keys
    };
    // Neither without keys, nor with those of the first epoch only.
    for mut keys in [None, Some(granted(EPOCH))] {
        let mut read = |sink: &mut dyn Sink| {
            let keys = keys.as_mut().map(|keys| keys as &mut dyn SealKeys);
            group.read(&["mote-1"], keys, &answer, sink).unwrap_err()
        };
        let condition = "temperature>=1".parse().unwrap();
        assert_eq!(read(&mut Estimator::new("temperature")), "ColumnEncrypted");
        assert_eq!(read(&mut Estimator::of_share(condition)), "ColumnEncrypted");
        assert_eq!(read(&mut Values::new("temperature")), "ColumnEncrypted");
    }
    let (mut mean, mut values) = (Estimator::new("temperature"), Values::new("temperature"));
    let mut share = Estimator::of_share("temperature>=20".parse().unwrap());
    let mut sink = |rows: &Rows<'_>| {
        use moteseal_client::Sink as _;
        mean.rows(rows).and_then(|()| values.rows(rows)).and_then(|()| share.rows(rows))
    };
    group.read(&["mote-1"], Some(&mut granted(EPOCH + 1)), &answer, &mut sink).unwrap();
    let field = moteseal_core::schema::Field::parse("temperature:Cel:i16/100").unwrap();
    let numbers = records.iter().map(|record| match field.read(record).unwrap() {
        Value::Integer(value) => value.to_f64(),
        other => panic!("{other:?}"),
    });
    let sum: f64 = numbers.sum();
    assert!((mean.mean().unwrap().value - sum / 40.0).abs() < 1e-9);
    assert_eq!(values.sampled(), 40);
    assert_eq!(share.hits().unwrap().value, 20.0);
    // A plain column needs no key.
    let mut seen = Estimator::new("seen");
    group.read(&["mote-1"], None, &answer, &mut seen).unwrap();
    assert_eq!(seen.sampled(), 40);
}

#[test]
fn the_error_of_an_estimate_names_the_column_the_device_and_the_reason() {
    let group = Group::new();
    let (answer, _) = two_epochs(&group);
    let query = group.query(&["mote-1"], None, crate::support::everything());
    let mut session = Session::new(&group.roster, query, None);
    let error = session.feed(&answer, &mut Estimator::new("temperature")).unwrap_err();
    let error = moteseal_client::Error::from(error);
    assert_eq!(error.kind(), moteseal_api::ErrorKind::Usage);
    let text = error.to_string();
    for part in ["temperature", "mote-1", "2026-05-25T10:00:00Z", "Encrypted", "grant"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Starts a cloud that stores the two epochs. It has no key.
async fn cloud_with_two_epochs(group: &Group, folder: &std::path::Path) -> moteseal_net::Client {
    let store = RedbStore::open(&folder.join("epochs.redb"), Options::default()).unwrap();
    let service = Cloud::bind(Config::new(group.roster.clone()), Arc::new(store)).await.unwrap();
    let cloud = moteseal_net::Client::new(&service.url(), &Default::default()).unwrap();
    tokio::spawn(service.run(std::future::pending()));
    let (mut answer, _) = two_epochs(group);
    // Without its end item, the answer is an upload.
    answer.truncate(answer.len() - 2);
    let response = cloud.put(paths::BUNDLES, CBOR_SEQ, answer.into()).await.unwrap();
    response.expect(JSON).unwrap();
    cloud
}

#[tokio::test]
async fn a_cloud_samples_and_serves_ciphertext_and_a_proof_is_read_offline() {
    let group = Group::new();
    let directory = tempfile::tempdir().unwrap();
    let cloud = cloud_with_two_epochs(&group, directory.path()).await;
    let client = Client::new(&cloud, &group.roster);
    let (device, path) = (group.device("mote-1"), directory.path().join("p.mproof"));
    let (_, records) = two_epochs(&group);
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let mut keys = DeviceKeys::new(device, secret_of("mote-1"));
    for rate in [Rate::ALL, Rate::new(1, 2).unwrap()] {
        let (mut found, mut without) = (Cells::default(), Cells::default());
        let get = || client.get().device("mote-1").since(EpochNumber(EPOCH)).rate(rate);
        get().keys(&mut keys).proof(&path).run(&mut found).await.unwrap().keep().unwrap();
        let report = get().run(&mut without).await.unwrap().keep().unwrap();
        assert_eq!(report.devices[0].withheld[0].reason, Withheld::Encrypted);
        assert!(!found.0.is_empty() && found.0.len() == without.0.len());
        for ((_, epoch, seq, row), (.., blank)) in found.0.iter().zip(&without.0) {
            let record = &records[((epoch.0 - EPOCH) * 20 + seq.0) as usize];
            let expected: Vec<Cell> = values(&schema, record).into_iter().map(Ok).collect();
            assert_eq!(*row, expected);
            assert_eq!((&blank[0], &blank[1]), (&Err("Encrypted"), &expected[1]));
        }
        let mut offline = Cells::default();
        let file = std::fs::File::open(&path).unwrap();
        let roster = &group.roster;
        proof::verify_with_keys(file, &path, roster, None, &mut keys, &mut offline).unwrap();
        assert_eq!(offline.0, found.0);
        std::fs::remove_file(&path).unwrap();
    }
}
