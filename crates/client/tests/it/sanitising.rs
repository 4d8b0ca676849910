//! A sanitiser makes a column coarser, everybody sees that it did, and readers accept it by name.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use moteseal_client::decrypt::{ColumnValues, DeviceKeys, SealKeys};
use moteseal_client::estimate::Estimator;
use moteseal_client::output::{Batches, Format, OutputError, Writer};
use moteseal_client::proof::{verify, verify_sanitised};
use moteseal_client::redact::{Keep, NewColumn, Sanitisation, merge, redact, sanitise};
use moteseal_client::{Error, NoRows, Origin, Report, Rows, Sink};
use moteseal_core::record::EpochNumber;
use moteseal_core::schema::Groups;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::stream::Item;
use moteseal_verify::issue::NextRoster;
use moteseal_verify::{Roster, SanitiserRight, write};
use proptest::prelude::*;

use crate::confidential::secret_of;
use crate::support::{Buffer, EPOCH, Group, everything};

const FIELDS: [&str; 4] =
    ["seen::u8", "temperature:Cel:i16/100!@1", "place::text9!@2", "power:W:u8!@2"];
const NAME: &str = "mote-1";

/// A proof of two epochs of a device, and what a sanitiser needs.
struct World {
    roster: Roster,
    proof: Vec<u8>,
    temperatures: Vec<i16>,
    folder: tempfile::TempDir,
}

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn right(groups: u8) -> SanitiserRight {
    SanitiserRight {
        devices: None,
        groups: Groups::from_bits(groups),
        first_epoch: EpochNumber(0),
        end_epoch: None,
    }
}

/// The next version of a roster, with the sanitisers `gw` (key 9) and `other` (key 8).
fn with_sanitisers(before: &Roster, right: &SanitiserRight) -> Roster {
    let operator = key(1);
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    next.set_sanitiser("gw", Some(&key(9).public()), right.clone()).unwrap();
    next.set_sanitiser("other", Some(&key(8).public()), right.clone()).unwrap();
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

impl World {
    fn new(temperatures: Vec<i16>) -> Self {
        Self::with(temperatures, &right(0b110))
    }

    fn with(temperatures: Vec<i16>, right: &SanitiserRight) -> Self {
        let group = Group::new();
        let mut position = group.start(NAME);
        let records: Vec<Vec<u8>> = temperatures
            .iter()
            .zip(0_u8..)
            .map(|(temperature, seq)| {
                let mut record = vec![seq];
                record.extend(temperature.to_be_bytes());
                record.extend([seq.wrapping_mul(3), seq % 4]);
                record.extend(vec![b'x'; usize::from(seq % 4)]);
                record
            })
            .collect();
        let half = records.len() / 2;
        let parts =
            [(EPOCH, &records[..half]), (EPOCH + 1, &records[half..])].map(|(epoch, records)| {
                group.seal_secretly(NAME, &mut position, epoch, &FIELDS, records)
            });
        let answer = group.answer(&[(&parts[0], u32::MAX), (&parts[1], u32::MAX)]);
        let query = group.query(&[NAME], Some(EPOCH + 2), everything());
        let mut proof = Vec::new();
        write::proof(&mut proof, &query.to_json());
        proof.extend(answer);
        let roster = with_sanitisers(&group.roster, right);
        Self { roster, proof, temperatures, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn keys(&self) -> DeviceKeys {
        let device = self.roster.id(NAME).unwrap();
        DeviceKeys::new(device, secret_of(NAME))
    }

    fn sanitised_by(
        &self,
        proof: &[u8],
        columns: &[&str],
        (policy, by): (Option<&str>, u8),
    ) -> Result<Vec<u8>, String> {
        let columns: Vec<_> = columns.iter().map(|text| NewColumn::parse(text).unwrap()).collect();
        let (key, out) = (key(by), self.path("new.mproof"));
        let with = Sanitisation { columns: &columns, policy, key: &key };
        let source = (Cursor::new(proof), Path::new("p.mproof"));
        sanitise(source, &self.roster, &mut self.keys(), &with, &out)
            .map_err(|error| error.name().to_owned())?;
        Ok(std::fs::read(out).unwrap())
    }

    /// The proof with whole degrees.
    fn coarse(&self, proof: &[u8]) -> Vec<u8> {
        self.sanitised_by(proof, &["temperature:Cel:i8"], (Some("whole degrees"), 9)).unwrap()
    }

    fn dropped(&self, proof: &[u8], kept: &[&str]) -> Vec<u8> {
        let columns = kept.iter().map(|name| (*name).to_owned()).collect();
        let (keep, out) = (Keep { columns, ..Keep::default() }, self.path("less.mproof"));
        redact(Cursor::new(proof), Path::new("p.mproof"), &self.roster, &keep, &out).unwrap();
        std::fs::read(out).unwrap()
    }

    fn merged(&self, one: &[u8], two: &[u8]) -> Result<Vec<u8>, String> {
        let out = self.path("both.mproof");
        let sources = [one, two].map(|proof| (Cursor::new(proof), Path::new("p.mproof")));
        merge(sources.into(), &self.roster, &out).map_err(|error| error.error.name().to_owned())?;
        Ok(std::fs::read(out).unwrap())
    }

    fn read(
        &self,
        proof: &[u8],
        accepted: &[&str],
        keys: Option<&mut dyn SealKeys>,
        sink: &mut dyn Sink,
    ) -> Result<Report, Error> {
        let accepted: Vec<String> = accepted.iter().map(|name| (*name).to_owned()).collect();
        let (source, path) = (Cursor::new(proof), Path::new("p.mproof"));
        verify_sanitised(source, path, (&self.roster, None), &accepted, keys, sink)
            .map(|(_, report)| report)
    }

    /// What the degrees of the device's temperatures round to.
    fn degrees(&self) -> Vec<String> {
        let round = |hundredths: &i16| {
            let (sign, size) = (hundredths.signum(), i32::from(*hundredths).unsigned_abs());
            let degrees = i32::try_from((size + 50) / 100).unwrap();
            (degrees * i32::from(sign)).to_string()
        };
        self.temperatures.iter().map(round).collect()
    }
}

/// The values of a column with their origins.
#[derive(Default)]
struct Temperatures(Vec<(String, String)>);

impl Sink for Temperatures {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let columns: Vec<_> = rows.columns().collect();
        let column = columns.iter().find(|of| of.field().name == "temperature").unwrap();
        rows.for_each(|_, _, record| {
            let (value, origin) = match column.values() {
                ColumnValues::Device(values) => {
                    (values.read(record).unwrap().to_string(), "device".to_owned())
                }
                ColumnValues::Sanitised { values, by, policy } => {
                    assert_eq!(column.readable().unwrap_err().name(), "ColumnSanitised");
                    assert_eq!(column.origin(), Origin::Sanitised { by, policy });
                    (values.read(record).unwrap().to_string(), format!("{by}: {policy}"))
                }
                ColumnValues::Withheld(withheld) => (String::new(), withheld.name().to_owned()),
            };
            self.0.push((value, origin));
        });
        Ok(())
    }
}

fn world() -> World {
    World::new((0..40_i16).map(|seq| 1849 + 31 * seq - 40 * (seq % 7)).collect())
}

#[test]
fn a_sanitised_column_is_refused_unless_its_sanitiser_is_accepted() {
    let world = world();
    let coarse = world.coarse(&world.proof);
    let error = verify(Cursor::new(&coarse), Path::new("q"), &world.roster, None, &mut NoRows);
    let error = error.unwrap_err();
    assert_eq!(error.name(), "ColumnSanitised");
    assert!(error.to_string().contains("gw replaced the values of temperature"), "{error}");
    for names in [&[][..], &["other"], &["GW"]] {
        assert_eq!(world.read(&coarse, names, None, &mut NoRows).unwrap_err().name(), error.name());
    }
    let mut found = Temperatures::default();
    let report = world.read(&coarse, &["other", "gw"], None, &mut found).unwrap();
    let expected: Vec<_> =
        world.degrees().into_iter().map(|value| (value, "gw: whole degrees".to_owned())).collect();
    assert_eq!(found.0, expected);
    assert!(report.is_complete() && !report.is_redacted);
    let [of] = &report.devices[0].sanitised[..] else { panic!("{report:?}") };
    assert_eq!((&*of.column, &*of.by, of.rows), ("temperature", "gw", 40));
    // The other columns are the device's, and need its keys.
    let mut rows = 0;
    let mut sink = |found: &Rows<'_>| {
        assert!(found.is_sanitised());
        let columns: Vec<_> = found.columns().collect();
        assert!(columns[2].readable().is_ok() && columns[3].readable().is_ok());
        assert_eq!(columns[2].origin(), Origin::Device);
        found.for_each(|seq, _, record| {
            let power = columns[3].readable().unwrap().read_f64(record).unwrap();
            let expected = (rows as u8).wrapping_mul(3);
            assert_eq!(power, Some(expected.into()), "{seq}");
            rows += 1;
        });
        Ok(())
    };
    world.read(&coarse, &["gw"], Some(&mut world.keys()), &mut sink).unwrap();
    assert_eq!(rows, 40);
}

#[test]
fn every_output_states_the_origin() {
    let world = world();
    let coarse = world.coarse(&world.proof);
    let written = |format| -> Vec<u8> {
        let buffer = Buffer::default();
        let mut writer = Writer::new(format, buffer.clone());
        world.read(&coarse, &["gw"], None, &mut writer).unwrap();
        writer.finish().unwrap();
        std::mem::take(&mut buffer.0.lock().unwrap())
    };
    let text = |format| String::from_utf8(written(format)).unwrap();
    let degrees = world.degrees();
    let csv = text(Format::Csv);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().ends_with(",seen,temperature,place,power,origin"));
    let origin = "temperature sanitised by gw: whole degrees";
    assert!(lines.next().unwrap().ends_with(&format!(",0,{},,,{origin}", degrees[0])), "{csv}");
    let jsonl = text(Format::JsonLines);
    let origin = r#""origin":{"temperature":{"sanitised_by":"gw","policy":"whole degrees"}}}"#;
    assert!(jsonl.lines().all(|line| line.ends_with(origin)), "{jsonl}");
    assert!(text(Format::Table).lines().next().unwrap().ends_with("origin"));
    let mut batches = Batches::new();
    world.read(&coarse, &["gw"], None, &mut batches).unwrap();
    let (schema, _) = batches.finish().unwrap();
    let field = schema.field_with_name("temperature").unwrap();
    assert_eq!(field.metadata()["moteseal.origin"], "sanitised by gw: whole degrees");
    assert!(!schema.field_with_name("seen").unwrap().metadata().contains_key("moteseal.origin"));
    let bytes = written(Format::Arrow);
    let reader = arrow_ipc::reader::StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    let field = reader.schema().field_with_name("temperature").unwrap().clone();
    assert_eq!(field.metadata()["moteseal.origin"], "sanitised by gw: whole degrees");
}

#[test]
fn a_sanitised_column_is_estimated_if_its_sanitiser_is_accepted() {
    let world = world();
    let coarse = world.coarse(&world.proof);
    let mut mean = Estimator::new("temperature");
    assert_eq!(world.read(&coarse, &[], None, &mut mean).unwrap_err().name(), "ColumnSanitised");
    let mut mean = Estimator::new("temperature");
    world.read(&coarse, &["gw"], None, &mut mean).unwrap();
    let degrees: Vec<f64> = world.degrees().iter().map(|text| text.parse().unwrap()).collect();
    let expected = degrees.iter().sum::<f64>() / degrees.len() as f64;
    assert!((mean.mean().unwrap().value - expected).abs() < 1e-9);
}

#[test]
fn what_a_sanitiser_cannot_or_must_not_replace_is_refused_by_name() {
    let world = world();
    let result =
        |columns: &[&str], by| world.sanitised_by(&world.proof, columns, (None, by)).map(|_| ());
    let refused = |name: &str| Err(name.to_owned());
    assert_eq!(result(&["temperature:Cel:i8"], 9), Ok(()));
    assert_eq!(result(&["temperature:Cel:i8"], 7), refused("UnknownSanitiser"));
    assert_eq!(result(&["temp:Cel:i8"], 9), refused("UnknownColumn"));
    assert_eq!(result(&["temperature:K:i8"], 9), refused("FieldMismatch"));
    assert_eq!(result(&["seen::u8"], 9), refused("GroupsOutOfRange"));
    assert_eq!(result(&["power:W:u8"], 9), refused("FieldMismatch"));
    assert_eq!(result(&["power:W:u8", "place::text9"], 9), Ok(()));
    assert_eq!(result(&["temperature:Cel:bool"], 9), refused("WrongValueType"));
    assert_eq!(result(&["power:W:u8", "place::text2"], 9), refused("TextTooLong"));
    let long = "x".repeat(257);
    let policy = world.sanitised_by(&world.proof, &["temperature:Cel:i8"], (Some(&long), 9));
    assert_eq!(policy, refused("InvalidPolicy").map(|()| Vec::new()));
    // Without the key of the column.
    let columns = [NewColumn::parse("temperature:Cel:i8").unwrap()];
    let (signer, out) = (key(9), world.path("x"));
    let with = Sanitisation { columns: &columns, policy: None, key: &signer };
    let source = (Cursor::new(&world.proof), Path::new("p.mproof"));
    let mut none = DeviceKeys::new(world.roster.id("mote-2").unwrap(), secret_of("mote-2"));
    let error = sanitise(source, &world.roster, &mut none, &with, &out).unwrap_err();
    assert_eq!(error.name(), "NotCovered");
    assert!(!out.exists());
    // Without the right.
    for right in [
        right(0b100),
        SanitiserRight { first_epoch: EpochNumber(EPOCH + 1), ..right(0b110) },
        SanitiserRight { end_epoch: Some(EpochNumber(EPOCH + 1)), ..right(0b110) },
    ] {
        let world = World::with(vec![100; 20], &right);
        let error = world.sanitised_by(&world.proof, &["temperature:Cel:i8"], (None, 9));
        assert_eq!(error.unwrap_err(), "SanitiserNotPermitted");
    }
    // What is sanitised or left out cannot be sanitised again.
    for proof in [world.coarse(&world.proof), world.dropped(&world.proof, &["seen"])] {
        let again = world.sanitised_by(&proof, &["temperature:Cel:i8"], (None, 8));
        assert_eq!(again.unwrap_err(), "ColumnHidden");
    }
}

/// Returns a proof without its sanitised items.
fn stripped(proof: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), proof);
    while let Ok((item, length)) = Item::decode(rest) {
        if !matches!(item, Item::Sanitised { .. }) {
            out.extend_from_slice(&rest[..length]);
        }
        rest = &rest[length..];
    }
    out
}

#[test]
fn a_sanitised_column_never_shows_as_the_device_s() {
    let world = world();
    let coarse = world.coarse(&world.proof);
    // The answer lacks a column that its query asks for.
    let error = world.read(&stripped(&coarse), &["gw"], None, &mut NoRows).unwrap_err();
    assert_eq!(error.name(), "ColumnWithheld");
    // In a redacted proof, the column is hidden.
    let redacted = world.dropped(&coarse, &["seen", "temperature"]);
    let mut found = Temperatures::default();
    world.read(&stripped(&redacted), &["gw"], None, &mut found).unwrap();
    assert!(found.0.iter().all(|cell| *cell == (String::new(), "ColumnHidden".to_owned())));
    // Each byte is covered by a signature, or is refused.
    for at in (0..coarse.len()).step_by(7) {
        let mut altered = coarse.clone();
        altered[at] ^= 1;
        let mut found = Temperatures::default();
        let read = world.read(&altered, &["gw"], None, &mut found);
        let is_same = found.0.iter().zip(world.degrees()).all(|(cell, degrees)| cell.0 == degrees);
        // A change of the first item, whose query only states what the proof shows, may be harmless.
        assert!(read.is_err() || is_same, "byte {at}");
    }
}

#[test]
fn a_proof_of_a_sanitiser_that_was_removed_is_refused() {
    let world = world();
    let coarse = world.coarse(&world.proof);
    let operator = key(1);
    let later = |change: &dyn Fn(&mut NextRoster<'_>)| {
        let bytes = world.roster.bytes();
        let mut next = NextRoster::after(bytes, &operator, &operator.public()).unwrap();
        change(&mut next);
        let roster = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
        let (source, path) = (Cursor::new(&coarse), Path::new("q"));
        let accepted = ["gw".to_owned()];
        verify_sanitised(source, path, (&roster, None), &accepted, None, &mut NoRows)
            .map(|_| ())
            .map_err(|error| error.name().to_owned())
    };
    assert_eq!(later(&|_| {}), Ok(()));
    let removed = later(&|next| next.remove_sanitiser("gw").unwrap());
    assert_eq!(removed, Err("UnknownSanitiser".to_owned()));
    let ended = later(&|next| next.end_sanitiser("gw", EpochNumber(EPOCH + 1)).unwrap());
    assert_eq!(ended, Err("SanitiserNotPermitted".to_owned()));
    assert_eq!(later(&|next| next.end_sanitiser("gw", EpochNumber(EPOCH + 2)).unwrap()), Ok(()));
}

#[test]
fn two_statements_of_one_scope_are_not_merged() {
    let mut world = world();
    let one = world.coarse(&world.proof);
    let two =
        world.sanitised_by(&world.proof, &["temperature:Cel:i8"], (Some("other"), 9)).unwrap();
    assert_eq!(world.merged(&one, &two).unwrap_err(), "SanitiserEquivocation");
    let by_other = world.sanitised_by(&world.proof, &["temperature:Cel:i8"], (None, 8)).unwrap();
    assert_eq!(world.merged(&one, &by_other).unwrap_err(), "NotMergeable");
    assert!(world.merged(&one, &one).is_ok());
    // Under a later version of the roster, the statement says the same.
    let operator = key(1);
    let mut next = NextRoster::after(world.roster.bytes(), &operator, &operator.public()).unwrap();
    next.set_sanitiser("third", Some(&key(77).public()), right(0b10)).unwrap();
    world.roster = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
    let again = world.coarse(&world.proof);
    assert_ne!(again, one);
    let merged = world.merged(&one, &again).unwrap();
    assert_eq!(merged, world.merged(&again, &one).unwrap());
    assert_eq!(world.merged(&again, &two).unwrap_err(), "SanitiserEquivocation");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn sanitising_commutes_with_redaction_and_merging(
        temperatures in prop::collection::vec(-12_000..12_000_i16, 2..40),
    ) {
        let world = World::new(temperatures);
        let all = ["seen", "temperature", "place", "power"];
        let coarse = world.coarse(&world.proof);
        // Redacting to all columns changes the scope only, so that proofs can be compared.
        let whole = world.dropped(&world.proof, &all);
        let whole_coarse = world.dropped(&coarse, &all);
        prop_assert_eq!(&world.coarse(&whole), &whole_coarse);
        // Hiding another group, before or after.
        let kept = ["seen", "temperature"];
        let hidden = world.dropped(&world.proof, &kept);
        let hidden_coarse = world.dropped(&coarse, &kept);
        prop_assert_eq!(&world.coarse(&hidden), &hidden_coarse);
        let mut found = Temperatures::default();
        world.read(&hidden_coarse, &["gw"], None, &mut found).unwrap();
        let values: Vec<_> = found.0.iter().map(|cell| cell.0.clone()).collect();
        prop_assert_eq!(values, world.degrees());
        // Hiding the sanitised group removes its cells.
        let kept = ["seen", "place", "power"];
        let gone = world.dropped(&coarse, &kept);
        prop_assert_eq!(&gone, &world.dropped(&world.proof, &kept));
        prop_assert_eq!(&stripped(&gone), &gone);
        // Merging adds the cells again, and the device's own cells take their place.
        prop_assert_eq!(world.merged(&gone, &hidden_coarse).unwrap(), whole_coarse.clone());
        prop_assert_eq!(world.merged(&hidden_coarse, &gone).unwrap(), whole_coarse.clone());
        prop_assert_eq!(world.merged(&coarse, &world.proof).unwrap(), whole.clone());
        prop_assert_eq!(world.merged(&world.proof, &coarse).unwrap(), whole.clone());
    }
}
