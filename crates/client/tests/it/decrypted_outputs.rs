//! Every format has the same rows as without encryption, and nulls where a key is missing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch};
use arrow_ipc::reader::StreamReader;
use moteseal_client::decrypt::{DeviceKeys, SealKeys};
use moteseal_client::output::{Batches, Format, RowOutput, UrgentText, Writer};
use moteseal_core::confidential::Nonce;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_seal::UrgentEvent;
use moteseal_verify::{SchemaEntry, Urgent};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::confidential::{Granted, columns, encode, encrypted, record, secret_of, streams};
use crate::support::{Buffer, EPOCH, Group};

const FIELDS: [&str; 10] = [
    "temperature:Cel:i16/100?!",
    "seen::u8",
    "level:dB:f32!",
    "big::u64!",
    "open::bool?!aes",
    "state::enum(off,on)!",
    "place::text32?!aes",
    "when::timestamp!",
    "at::point!",
    "since::time!",
];
const ROWS: [[&str; 10]; 4] = [
    ["21.3", "4", "-0.5", "7", "true", "on", "hidden place", "2026-03-01T07:00:00Z", "59,18", "5"],
    ["", "0", "0", "18446744073709551615", "", "off", "", "1969-12-31T23:59:59Z", "-90,-180", "0"],
    ["-0.01", "255", "1.25", "0", "false", "on", "x", "2026-03-01T07:00:00Z", "0,0", "3600"],
    ["3", "1", "0.5", "1", "true", "off", "hidden place", "2026-03-01T07:00:00Z", "1,2", "4"],
];
const PLACE: &[u8] = b"hidden place";

fn records(fields: &[&str]) -> Vec<Vec<u8>> {
    let fields: Vec<Field<'_>> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let record = |row: &[&str; 10]| {
        let mut record = vec![0; schema.longest_record()];
        for (field, text) in schema.fields().zip(row) {
            field.in_plaintext().write(text, &mut record).unwrap();
        }
        record.truncate(schema.record_length(&record).unwrap());
        record
    };
    ROWS.iter().map(record).collect()
}

/// The fields without encryption.
fn plain_fields() -> Vec<&'static str> {
    FIELDS.iter().map(|field| field.split('!').next().unwrap()).collect()
}

/// Returns an answer with two epochs, two rows each.
fn answer(group: &Group, is_encrypted: bool) -> Vec<u8> {
    let mut position = group.start("mote-1");
    let fields = if is_encrypted { FIELDS.to_vec() } else { plain_fields() };
    let records = records(&fields);
    let mut seal = |epoch, records: &[Vec<u8>]| {
        if is_encrypted {
            group.seal_secretly("mote-1", &mut position, epoch, &fields, records)
        } else {
            group.seal("mote-1", &mut position, epoch, &fields, records)
        }
    };
    let parts = [seal(EPOCH, &records[..2]), seal(EPOCH + 1, &records[2..])];
    group.answer(&[(&parts[0], u32::MAX), (&parts[1], u32::MAX)])
}

/// What a reader has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    None,
    /// Those of all columns in the first epoch, and of the text in none.
    FirstEpoch,
    All,
}

fn written(format: Format, is_encrypted: bool, keys: Keys) -> Vec<u8> {
    let group = Group::new();
    let answer = answer(&group, is_encrypted);
    let buffer = Buffer::default();
    let mut writer = Writer::new(format, buffer.clone());
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let (device, secret) = (group.device("mote-1"), secret_of("mote-1"));
    match keys {
        Keys::None => drop(group.read(&["mote-1"], None, &answer, &mut writer).unwrap()),
        Keys::FirstEpoch => {
            let mut granted = Granted::default();
            for (field, column) in schema.encrypted_columns() {
                if field.name != "place" {
                    granted.add(device, (&secret, column), (EPOCH, EPOCH));
                }
            }
            group.read(&["mote-1"], Some(&mut granted), &answer, &mut writer).unwrap();
        }
        Keys::All => {
            let mut keys = DeviceKeys::new(device, secret);
            group.read(&["mote-1"], Some(&mut keys), &answer, &mut writer).unwrap();
        }
    }
    writer.finish().unwrap();
    let bytes = buffer.0.lock().unwrap();
    bytes.clone()
}

fn batches(format: Format, bytes: &[u8]) -> Vec<RecordBatch> {
    if format == Format::Arrow {
        return StreamReader::try_new(bytes, None).unwrap().map(Result::unwrap).collect();
    }
    let bytes = bytes::Bytes::from(bytes.to_vec());
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    reader.map(Result::unwrap).collect()
}

#[test]
fn a_file_with_decrypted_columns_is_readable_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let usual = folder.path().join("usual");
    std::fs::write(&usual, "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let group = Group::new();
    let answer = answer(&group, true);
    for has_keys in [false, true] {
        let path = folder.path().join("rows.csv");
        let mut rows = RowOutput::to_file(&path, Format::Csv).unwrap();
        let mut keys = DeviceKeys::new(group.device("mote-1"), secret_of("mote-1"));
        let keys: Option<&mut dyn SealKeys> = if has_keys { Some(&mut keys) } else { None };
        group.read(&["mote-1"], keys, &answer, &mut rows).unwrap();
        rows.finish().unwrap().release().unwrap();
        assert_eq!(mode(&path), if has_keys { 0o600 } else { mode(&usual) });
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn with_all_keys_text_formats_are_those_of_plaintext() {
    for format in [Format::Table, Format::Csv, Format::JsonLines] {
        let expected = written(format, false, Keys::None);
        assert_eq!(written(format, true, Keys::All), expected, "{format:?}");
    }
}

#[test]
fn without_a_key_a_cell_is_empty_in_csv_and_null_in_json() {
    let text = String::from_utf8(written(Format::Csv, true, Keys::FirstEpoch)).unwrap();
    let plain = String::from_utf8(written(Format::Csv, false, Keys::None)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], plain.lines().next().unwrap());
    assert_eq!(lines[1], plain.lines().nth(1).unwrap().replace("hidden place", ""));
    assert_eq!(lines[3], "494363,2026-05-25T11:00:00Z,mote-1,1,0,,255,,,,,,,,");
    assert_eq!(lines.len(), 5);

    let text = String::from_utf8(written(Format::JsonLines, true, Keys::None)).unwrap();
    for (line, row) in text.lines().zip(ROWS) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        for (field, value) in plain_fields().iter().zip(row) {
            let name = field.split(':').next().unwrap();
            let found = &object[name];
            let is_right = match name {
                "seen" => found.as_u64() == value.parse().ok(),
                _ => found.is_null(),
            };
            assert!(is_right, "{line}");
        }
    }
}

#[test]
fn without_a_key_arrow_and_parquet_have_nulls_and_the_reason_in_the_metadata() {
    for format in [Format::Arrow, Format::Parquet] {
        let plain = batches(format, &written(format, false, Keys::None));
        for keys in [Keys::None, Keys::FirstEpoch, Keys::All] {
            let found = batches(format, &written(format, true, keys));
            assert_eq!((found.len(), plain.len()), (1, 1));
            let (found, plain) = (&found[0], &plain[0]);
            assert_eq!((found.num_rows(), found.num_columns()), (4, plain.num_columns()));
            for (at, field) in found.schema().fields().iter().enumerate() {
                let (column, expected) = (found.column(at), plain.column(at));
                let name = field.name().as_str();
                let encrypted = FIELDS.iter().find(|field| field.starts_with(&format!("{name}:")));
                let is_encrypted = encrypted.is_some_and(|field| field.contains('!'));
                let (readable, reason) = match keys {
                    _ if !is_encrypted => (4, None),
                    Keys::All => (4, None),
                    Keys::None => (0, Some("Encrypted")),
                    Keys::FirstEpoch if name == "place" => (0, Some("NotCovered")),
                    Keys::FirstEpoch => (2, Some("NotCovered")),
                };
                let found_reason = field.metadata().get("moteseal.withheld").map(String::as_str);
                assert_eq!(found_reason, reason, "{format:?} {keys:?} {name}");
                assert_eq!(&column.slice(0, readable), &expected.slice(0, readable), "{name}");
                assert!((readable..4).all(|row| column.is_null(row)), "{keys:?} {name}");
                assert!(field.is_nullable() || !is_encrypted);
            }
        }
    }
}

#[test]
fn batches_in_memory_have_the_reason_in_the_metadata() {
    let group = Group::new();
    let mut found = Batches::new();
    group.read(&["mote-1"], None, &answer(&group, true), &mut found).unwrap();
    let (schema, batches) = found.finish().unwrap();
    let reason = |name: &str| {
        let field = schema.field_with_name(name).unwrap();
        field.metadata().get("moteseal.withheld").cloned()
    };
    assert_eq!((reason("place"), reason("seen")), (Some("Encrypted".to_owned()), None));
    assert_eq!(batches[0].schema(), schema);
    assert_eq!(batches[0].column_by_name("place").unwrap().null_count(), 4);
}

#[test]
fn plaintext_that_is_not_granted_is_in_no_output() {
    let contains = |bytes: &[u8]| bytes.windows(PLACE.len()).any(|window| window == PLACE);
    for (_, format) in Format::NAMES {
        assert!(contains(&written(*format, true, Keys::All)), "{format:?}");
        for keys in [Keys::None, Keys::FirstEpoch] {
            assert!(!contains(&written(*format, true, keys)), "{format:?} {keys:?}");
        }
    }
}

/// Returns a verified urgent event with one record of [`crate::confidential::FIELDS`].
fn urgent(group: &Group, plain: &[u8]) -> Urgent {
    let bytes = encode(&crate::confidential::FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let (device, nonce) = (group.device("mote-1"), Nonce([7; 12]));
    let place = (EpochNumber(EPOCH), SealIndex(0));
    let streams = streams(&schema, device, place, (&secret_of("mote-1"), nonce));
    let (sealed, keys) = encrypted(&schema, &[plain.to_vec()], nonce, streams);
    let event = UrgentEvent {
        group: group.roster.group(),
        roster: group.roster.digest(),
        device,
        index: place.1,
        epoch: place.0,
        seq: Sequence(0),
        schema: schema.digest(),
        keys: Some(keys),
        record: &sealed[0],
    };
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let mut message = [0; 1024];
    let message = event.message(key.algorithm(), &mut message).unwrap();
    let signature = key.signature(message).unwrap();
    let mut bytes_of_event = [0; 1024];
    let mut out = moteseal_core::cbor::Writer::new(&mut bytes_of_event);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    let entry = Arc::new(SchemaEntry::decode(&bytes).unwrap());
    Urgent::open(out.finish(), &entry, &group.roster).unwrap()
}

#[test]
fn urgent_events_are_decrypted_with_the_key_of_their_seal() {
    let group = Group::new();
    let event = urgent(&group, &record(2150, 3, true, "attic"));
    let bytes = encode(&crate::confidential::FIELDS);
    let ids = columns(&Schema::decode(&bytes).unwrap());
    let (device, secret) = (group.device("mote-1"), secret_of("mote-1"));
    let mut some = Granted::default();
    some.add(device, (&secret, ids[0]), (EPOCH, EPOCH));
    let mut all = DeviceKeys::new(device, secret);

    let text =
        |mut text: UrgentText<'_>| text.event(&event).unwrap().lines().last().unwrap().to_owned();
    let new = |format| UrgentText::new(format, &group.roster).unwrap();
    let head = "494362,2026-05-25T10:00:00Z,mote-1,0,0";
    assert_eq!(text(new(Format::Csv)), format!("{head},,3,,"));
    assert_eq!(text(new(Format::Csv).with_keys(&mut some)), format!("{head},21.50,3,,"));
    assert_eq!(text(new(Format::Csv).with_keys(&mut all)), format!("{head},21.50,3,true,attic"));
    let json = text(new(Format::JsonLines));
    assert!(json.contains("\"temperature\":null") && json.contains("\"seen\":3"), "{json}");
}
