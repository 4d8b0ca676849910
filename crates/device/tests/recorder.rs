//! Whatever moment a device crashes at: every reading that was durable is sealed once, in order, under a chain that verifies.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;

use moteseal_core::engine::Scalar;
use moteseal_core::level::SaltKey;
use moteseal_core::record::EpochNumber;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::seal::Scheme;
use moteseal_core::seal::follow::Limits;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::recorder::{Recorder, Recovered};
use moteseal_device::{Outbox, Profile, Sealer};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn roster() -> Roster {
    let devices = [("dev1", secret().public())];
    let first = FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&secret()).unwrap(), &secret().public()).unwrap()
}

fn open(directory: &Path) -> (Recorder<SecretKey>, Recovered) {
    let roster = roster();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::new("v", "", FieldType::U16)], &mut buffer).unwrap();
    let profile = Profile::new(&roster, "dev1", Scheme::Star, &schema).unwrap();
    let (outbox, chain) = Outbox::open(directory, None, &roster, profile.device).unwrap();
    let sealer = Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain);
    Recorder::open(sealer, outbox, &directory.join("journal")).unwrap()
}

/// Every record under the bundles of a directory, in order; they verify as one chain.
fn sealed(directory: &Path) -> (Vec<u16>, usize) {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "mseal"));
    files.sort();
    let (mut records, mut restarts, mut prev) = (Vec::new(), 0, None);
    for file in files {
        let roster = roster();
        let mut reader = StreamReader::new(&roster, Limits::default());
        let mut visit = |event: Event<'_>| {
            let Event::Proven(proven) = event else { panic!("{event:?}") };
            let statement = proven.seal.statement();
            assert!(prev.is_none_or(|prev| statement.prev == prev), "the chain is unbroken");
            prev = Some(proven.seal.digest());
            restarts += usize::from(statement.restart);
            proven.sample.for_each(&Scalar, |_, _, record| records.push(u16::from_be_bytes(record.try_into().unwrap())));
            Ok::<(), ReadError>(())
        };
        reader.feed(&fs::read(file).unwrap(), &mut visit).unwrap();
        reader.finish(&mut visit).unwrap();
    }
    (records, restarts)
}

#[test]
fn readings_are_sealed_epoch_by_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered, Recovered::default());
    let mut stored = 0;
    for reading in 0..30u16 {
        stored += usize::from(recorder.record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes()).unwrap().is_some());
    }
    assert_eq!(stored, 2);
    assert!(recorder.close(true).unwrap().is_some());
    assert_eq!(sealed(directory.path()), ((0..30).collect(), 0));
}

#[test]
fn a_crash_at_any_reading_loses_nothing_that_was_durable() {
    for crash in 1..25u16 {
        let directory = tempfile::tempdir().unwrap();
        let (mut recorder, _) = open(directory.path());
        for reading in 0..crash {
            recorder.record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes()).unwrap();
            recorder.sync().unwrap();
        }
        // The crash: nothing is closed, and what was not synced is gone.
        recorder.record(EpochNumber(u64::from((crash - 1) / 10)), &u16::MAX.to_be_bytes()).unwrap();
        drop(recorder);
        let (mut recorder, recovered) = open(directory.path());
        assert!(recovered.restarted);
        assert_eq!(recovered.readings, u64::from((crash - 1) % 10 + 1));
        for reading in crash..30 {
            recorder.record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes()).unwrap();
        }
        recorder.close(true).unwrap();
        assert_eq!(sealed(directory.path()), ((0..30).collect(), 1), "crash at {crash}");
    }
}

#[test]
fn readings_that_are_sealed_and_still_in_the_journal_are_sealed_once() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    for reading in 0..5u16 {
        recorder.record(EpochNumber(0), &reading.to_be_bytes()).unwrap();
    }
    recorder.sync().unwrap();
    let journal = fs::read(directory.path().join("journal")).unwrap();
    recorder.close(true).unwrap();
    drop(recorder);
    // The crash: the bundle is stored, the journal not yet emptied.
    fs::write(directory.path().join("journal"), journal).unwrap();
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered, Recovered::default());
    recorder.record(EpochNumber(1), &[0, 5]).unwrap();
    recorder.close(true).unwrap();
    assert_eq!(sealed(directory.path()), ((0..6).collect(), 0));
}

#[test]
fn what_is_refused_is_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    recorder.record(EpochNumber(5), &[0, 1]).unwrap();
    assert!(recorder.record(EpochNumber(4), &[0, 2]).is_err());
    assert!(recorder.record(EpochNumber(5), &[2]).is_err());
    recorder.close(true).unwrap();
    assert!(recorder.record(EpochNumber(5), &[0, 3]).is_err());
    assert_eq!(sealed(directory.path()), (vec![1], 0));
}
