//! Tests that every durable reading is sealed once and in order, in a chain that verifies, at
//! whatever moment the device crashes.

use std::fs;
use std::path::Path;

use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::recorder::{RecordError, Recorder, Recovered, unsealed_readings};
use moteseal_device::{Chain, Outbox, Profile, Sealer, chain_state};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn roster() -> Roster {
    let devices = [("dev1", secret().public())];
    let first =
        FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&secret()).unwrap(), &secret().public()).unwrap()
}

fn open(directory: &Path) -> (Recorder<SecretKey>, Recovered) {
    try_open(directory, u32::MAX, "v").unwrap()
}

fn try_open(
    directory: &Path,
    max_events: u32,
    column: &str,
) -> Result<(Recorder<SecretKey>, Recovered), RecordError> {
    let (sealer, outbox) = sealer(directory, max_events, column);
    Recorder::open(sealer, outbox, &directory.join("journal"))
}

fn sealer(directory: &Path, max_events: u32, column: &str) -> (Sealer<SecretKey>, Outbox) {
    let roster = roster();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::new(column, "", FieldType::U16)], &mut buffer).unwrap();
    let mut profile = Profile::new(&roster, "dev1", Scheme::Star, &schema).unwrap();
    profile.max_events = max_events;
    let state = directory.join("state");
    let _ = chain_state::begin(&state, profile.device, &Chain::start(profile.certificate));
    let (outbox, chain) = Outbox::open(directory, &state, &roster, profile.device).unwrap();
    (Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain), outbox)
}

/// Records readings with these numbers, ten per epoch, and makes them durable.
fn take(recorder: &mut Recorder<SecretKey>, readings: std::ops::Range<u16>) {
    for reading in readings {
        recorder.record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes()).unwrap();
    }
    recorder.sync().unwrap();
}

/// Returns all records of the bundles in a directory, in order, and the number of restarts. Checks
/// that the bundles form one chain.
fn sealed(directory: &Path) -> (Vec<u16>, usize) {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "mseal"));
    files.sort();
    let (mut records, mut restarts, mut prev) = (Vec::new(), 0, None);
    for file in files {
        let roster = roster();
        let mut reader = StreamReader::new(&roster, Limits::default());
        let mut visit = |event: Event<'_>| {
            let Event::Proven(proven) = event else { panic!("{event:?}") };
            let statement = proven.seal.statement();
            assert!(prev.is_none_or(|prev| statement.prev == prev), "the chain is broken");
            prev = Some(proven.seal.digest());
            restarts += usize::from(statement.restart);
            proven.sample.for_each(&Scalar, |_, _, record| {
                records.push(u16::from_be_bytes(record.try_into().unwrap()));
            });
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
        stored += usize::from(
            recorder
                .record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes())
                .unwrap()
                .is_some(),
        );
    }
    assert_eq!(stored, 2);
    assert!(recorder.close(true).unwrap().is_some());
    assert_eq!(sealed(directory.path()), ((0..30).collect(), 0));
}

#[test]
fn a_crash_at_any_reading_loses_no_durable_reading() {
    for crash in 1..25u16 {
        let directory = tempfile::tempdir().unwrap();
        let (mut recorder, _) = open(directory.path());
        for reading in 0..crash {
            recorder.record(EpochNumber(u64::from(reading / 10)), &reading.to_be_bytes()).unwrap();
            recorder.sync().unwrap();
        }
        // Simulate a crash: no seal is closed, and readings that were not synced are lost.
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
fn seals_once_the_readings_that_are_in_a_bundle_and_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    for reading in 0..5u16 {
        recorder.record(EpochNumber(0), &reading.to_be_bytes()).unwrap();
    }
    recorder.sync().unwrap();
    let journal = fs::read(directory.path().join("journal")).unwrap();
    recorder.close(true).unwrap();
    drop(recorder);
    // Simulate a crash: the bundle is stored, but the journal still contains its readings.
    fs::write(directory.path().join("journal"), journal).unwrap();
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered, Recovered::default());
    recorder.record(EpochNumber(1), &[0, 5]).unwrap();
    recorder.close(true).unwrap();
    assert_eq!(sealed(directory.path()), ((0..6).collect(), 0));
}

#[test]
fn a_rejected_reading_is_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    recorder.record(EpochNumber(5), &[0, 1]).unwrap();
    assert!(recorder.record(EpochNumber(4), &[0, 2]).is_err());
    assert!(recorder.record(EpochNumber(5), &[2]).is_err());
    recorder.close(true).unwrap();
    assert!(recorder.record(EpochNumber(5), &[0, 3]).is_err());
    assert_eq!(sealed(directory.path()), (vec![1], 0));
}

#[test]
fn a_failed_start_leaves_the_readings_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    take(&mut recorder, 0..10);
    drop(recorder);
    let obstacle = directory.path().join("journal.new");
    fs::create_dir(&obstacle).unwrap();
    assert!(try_open(directory.path(), u32::MAX, "v").is_err());
    fs::remove_dir(&obstacle).unwrap();
    // A folder with the name of the state prevents that the state is replaced.
    let (sealer, outbox) = sealer(directory.path(), u32::MAX, "v");
    let (state, kept) = (directory.path().join("state"), directory.path().join("kept"));
    fs::rename(&state, &kept).unwrap();
    fs::create_dir(&state).unwrap();
    assert!(Recorder::open(sealer, outbox, &directory.path().join("journal")).is_err());
    fs::remove_dir(&state).unwrap();
    fs::rename(&kept, &state).unwrap();
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered, Recovered { readings: 10, restarted: true });
    recorder.close(true).unwrap();
    assert_eq!(sealed(directory.path()), ((0..10).collect(), 1));
}

#[test]
fn recovered_readings_survive_a_crash_between_their_seals() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    take(&mut recorder, 0..10);
    drop(recorder);
    // Seals now have at most four readings. The second bundle of the recovery cannot be stored, so
    // readings 0 to 3 are sealed and readings 4 to 9 are not.
    let obstacle = directory.path().join("dev1-0000000002.mseal.tmp");
    fs::create_dir(&obstacle).unwrap();
    assert!(try_open(directory.path(), 4, "v").is_err());
    assert_eq!(sealed(directory.path()).0, [0, 1, 2, 3]);
    fs::remove_dir(&obstacle).unwrap();
    let (mut recorder, recovered) = try_open(directory.path(), 4, "v").unwrap();
    assert_eq!(recovered.readings, 6);
    assert_eq!(recorder.taken(), Some((EpochNumber(0), 10)));
    take(&mut recorder, 10..12);
    recorder.close(true).unwrap();
    assert_eq!(sealed(directory.path()).0, (0..12).collect::<Vec<_>>());
}

#[test]
fn retries_a_failed_bundle_before_anything_else() {
    for restart in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (mut recorder, _) = open(directory.path());
        take(&mut recorder, 0..10);
        let obstacle = directory.path().join("dev1-0000000000.mseal.tmp");
        fs::create_dir(&obstacle).unwrap();
        for _ in 0..2 {
            // Reading 10 would open the next epoch. Reading 99 belongs to the old epoch, and must
            // not get the signed index either.
            assert!(recorder.record(EpochNumber(1), &10u16.to_be_bytes()).is_err());
            assert!(recorder.record(EpochNumber(0), &99u16.to_be_bytes()).is_err());
            assert!(recorder.close(true).is_err());
        }
        fs::remove_dir(&obstacle).unwrap();
        if restart {
            drop(recorder);
            recorder = open(directory.path()).0;
        }
        let stored = recorder.record(EpochNumber(1), &10u16.to_be_bytes()).unwrap();
        assert!(stored.is_some(), "the bundle is returned");
        take(&mut recorder, 11..20);
        recorder.close(true).unwrap();
        assert_eq!(
            sealed(directory.path()),
            ((0..20).collect(), usize::from(restart)),
            "restart: {restart}"
        );
    }
}

#[test]
fn reports_readings_left_in_a_journal_that_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    take(&mut recorder, 0..7);
    drop(recorder);
    let left = || {
        unsealed_readings(
            &directory.path().join("journal"),
            &sealer(directory.path(), u32::MAX, "v").0,
        )
        .unwrap()
    };
    assert_eq!(left(), 7);
    let (mut recorder, _) = open(directory.path());
    recorder.close(true).unwrap();
    drop(recorder);
    assert_eq!(left(), 0);
    fs::remove_file(directory.path().join("journal")).unwrap();
    assert_eq!(left(), 0);
}

#[test]
fn a_journal_that_could_not_be_emptied_loses_no_reading() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    take(&mut recorder, 0..10);
    let first = fs::read(directory.path().join("journal")).unwrap();
    take(&mut recorder, 10..15);
    drop(recorder);
    // Append the readings of the second seal to those of the first, as if the journal could not be
    // emptied in between.
    let path = directory.path().join("both");
    let mut both = moteseal_store::Journal::open(&path).unwrap();
    fs::write(directory.path().join("first"), first).unwrap();
    for name in ["first", "journal"] {
        let part = moteseal_store::Journal::open(&directory.path().join(name)).unwrap();
        for record in part.iter() {
            both.append(&record.unwrap()).unwrap();
        }
    }
    both.sync().unwrap();
    drop(both);
    fs::rename(path, directory.path().join("journal")).unwrap();
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered.readings, 5);
    take(&mut recorder, 15..20);
    recorder.close(true).unwrap();
    assert_eq!(sealed(directory.path()), ((0..20).collect(), 1));
}

#[test]
fn rejects_a_journal_with_other_columns_or_of_another_device() {
    let directory = tempfile::tempdir().unwrap();
    let (mut recorder, _) = open(directory.path());
    take(&mut recorder, 0..5);
    drop(recorder);
    assert!(matches!(try_open(directory.path(), u32::MAX, "w"), Err(RecordError::OtherSchema(_))));
    let (mut recorder, recovered) = open(directory.path());
    assert_eq!(recovered.readings, 5);
    recorder.close(true).unwrap();
    drop(recorder);
    let (recorder, _) = try_open(directory.path(), u32::MAX, "w").unwrap();
    drop(recorder);
    let mut journal = moteseal_store::Journal::open(&directory.path().join("journal")).unwrap();
    journal.append(&[&[0; 13][..], &[0; 32]].concat()).unwrap();
    journal.sync().unwrap();
    drop(journal);
    assert!(matches!(
        try_open(directory.path(), u32::MAX, "v"),
        Err(RecordError::NotThisDevice(_))
    ));
}
