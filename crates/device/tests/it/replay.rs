//! A replay that was killed continues after the last durable reading, whichever seal contains it,
//! and seals no reading twice.

use std::path::Path;

use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::import::Clock;
use moteseal_device::replay::Replay;
use moteseal_device::{Chain, Import, Outbox, Profile, Recorder, Recording, Sealer, chain_state};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Calendar, Event, ReadError, Roster, StreamReader};

const EPOCH_MS: u64 = 40_000;

fn roster() -> Roster {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let devices = [("dev1", key.public())];
    let first = FirstRoster {
        group: "home",
        epoch_ms: EPOCH_MS,
        levels: 8,
        budget: None,
        devices: &devices,
    };
    Roster::open(&first.issue(&key).unwrap(), &key.public()).unwrap()
}

/// Returns sixty readings with the values 0, 1, 2, ..., one second apart, in two epochs of forty
/// seconds each.
fn recording() -> Recording {
    let import = Import {
        columns: vec!["v::u8".to_owned()],
        opaque: None,
        clock: Clock::Every { start_ms: 0, every_ms: 1000 },
        keep_time: None,
        delimiter: None,
        skip_incomplete: false,
        sort: false,
        latest_ms: None,
    };
    let rows: String = (0..60).map(|row| format!("{row}\n")).collect();
    import.read(Path::new("data.csv"), format!("v\n{rows}").as_bytes()).unwrap()
}

fn open(directory: &Path, max_events: u32) -> Recorder<SecretKey> {
    let (roster, recording) = (roster(), recording());
    let schema = Schema::decode(&recording.schema).unwrap();
    let mut profile = Profile::new(&roster, "dev1", Scheme::Star, &schema).unwrap();
    profile.max_events = max_events;
    let state = directory.join("state");
    let _ = chain_state::begin(&state, profile.device, &Chain::start(profile.certificate));
    let (outbox, chain) = Outbox::open(directory, &state, &roster, profile.device).unwrap();
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let sealer = Sealer::new(profile, key, SaltKey::new([2; 32]), chain);
    Recorder::open(sealer, outbox, &directory.join("journal")).unwrap().0
}

/// Returns all records of the outbox's bundles in the order of the chain. The records of each seal
/// are sorted, because a star's records are ordered by level.
fn sealed(recorder: &Recorder<SecretKey>) -> Vec<u8> {
    let mut records = Vec::new();
    for (_, path) in recorder.outbox().bundles().unwrap() {
        let roster = roster();
        let mut reader = StreamReader::new(&roster, Limits::default());
        let mut seal = Vec::new();
        let mut visit = |event: Event<'_>| {
            let Event::Proven(proven) = event else { panic!("{event:?}") };
            proven.sample.for_each(&Scalar, |_, _, record| seal.push(record[0]));
            Ok::<(), ReadError>(())
        };
        reader.feed(&std::fs::read(path).unwrap(), &mut visit).unwrap();
        reader.finish(&mut visit).unwrap();
        seal.sort_unstable();
        records.extend(seal);
    }
    records
}

#[tokio::test]
async fn a_replay_continues_wherever_it_was_killed() {
    let recording = recording();
    for max_events in [7, 10, u32::MAX] {
        for killed in [1, 7, 26, 39, 40, 41, 50, 59] {
            let directory = tempfile::tempdir().unwrap();
            let mut recorder = open(directory.path(), max_events);
            for (unix_ms, record) in recording.iter().take(killed) {
                recorder.record(EpochNumber(unix_ms / EPOCH_MS), record).unwrap();
            }
            recorder.sync().unwrap();
            drop(recorder);

            let mut recorder = open(directory.path(), max_events);
            let replay = Replay { calendar: Calendar::constant(EPOCH_MS), speed: None };
            let replayed =
                replay.run(&recording, &mut recorder, &mut |_| {}, &mut |_| {}).await.unwrap();
            assert_eq!(
                replayed.readings,
                60 - killed as u64,
                "killed at {killed}, seals of {max_events}"
            );
            assert_eq!(replayed.left_out, killed as u64);
            assert_eq!(
                sealed(&recorder),
                (0..60).collect::<Vec<u8>>(),
                "killed at {killed}, seals of {max_events}"
            );
            drop(recorder);

            // Replay again. Nothing is left to do.
            let mut recorder = open(directory.path(), max_events);
            let replayed =
                replay.run(&recording, &mut recorder, &mut |_| {}, &mut |_| {}).await.unwrap();
            assert_eq!((replayed.readings, replayed.left_out, replayed.bundles), (0, 60, 0));
        }
    }
}
