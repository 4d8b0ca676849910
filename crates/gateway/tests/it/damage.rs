//! Tests a gateway whose files were damaged after they had been synced. The files contain
//! acknowledged data, so the gateway must report the damage and must not remove any byte.

use std::path::Path;

use moteseal_core::DeviceId;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::outbox::{Item, Name};
use moteseal_gateway::{Outbox, Station, StationError};
use moteseal_seal::wire::{Forward, Uplink};
use moteseal_store::journal::{Journal, JournalError};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

const GROUP_SECRET: [u8; 32] = [0x51; 32];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

pub(crate) fn roster() -> Roster {
    let budget = Some(Budget { events: 100, coordinator: secret(99).public() });
    let devices = [("mote", secret(1).public())];
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: 8, budget, devices: &devices };
    Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap()
}

pub(crate) fn station(folder: &Path) -> Result<Station, StationError> {
    Station::open(folder, roster(), GROUP_SECRET, Box::new(secret(99)), 1 << 30)
        .map(|(station, _)| station)
}

fn closed(device: DeviceId, uplink: &Uplink<'_>) -> Vec<u8> {
    let key = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster().group(), device));
    let mut out = vec![0; MAX_FRAME];
    uplink.close(device, &key, &mut out).unwrap().to_vec()
}

/// Returns a frame with the schema of the events of [`frame`].
fn schema(device: DeviceId) -> Vec<u8> {
    closed(device, &Uplink::Schema(&crate::hostile_frames::schema()))
}

/// Returns a frame with one event for each sequence number.
pub(crate) fn frame(device: DeviceId, epoch: u64, range: std::ops::Range<u8>) -> Vec<u8> {
    let events: Vec<u8> = range.clone().flat_map(|seq| [7, 0, 0, 0, seq]).collect();
    let forward = Forward {
        index: SealIndex(0),
        epoch: EpochNumber(epoch),
        own_round: Round(0),
        from: Sequence(range.start.into()),
        until: Sequence(range.end.into()),
        framing: Framing::fixed(4).unwrap(),
        events: &events,
        digests: None,
    };
    closed(device, &Uplink::Forward(forward))
}

/// Flips one bit of byte `at` of the file, calls `check`, and restores the file. Asserts that
/// `check` did not modify the file.
fn damaged(path: &Path, at: usize, check: impl FnOnce()) {
    let whole = std::fs::read(path).unwrap();
    let mut bytes = whole.clone();
    bytes[at] ^= 0x10;
    std::fs::write(path, &bytes).unwrap();
    check();
    assert!(
        std::fs::read(path).unwrap() == bytes,
        "the file with damage at byte {at} was modified"
    );
    std::fs::write(path, &whole).unwrap();
}

#[test]
fn reports_a_damaged_journal_and_does_not_modify_it() {
    let folder = tempfile::tempdir().unwrap();
    let device = roster().id("mote").unwrap();
    let mut station = station(folder.path()).unwrap();
    let _ = station.receive(&schema(device), EpochNumber(70)).unwrap();
    station.commit().unwrap();
    let journal = folder.path().join("journal");
    let mut ends = vec![std::fs::metadata(&journal).unwrap().len()];
    for range in [0..40, 40..80, 80..120] {
        let news = station.receive(&frame(device, 70, range), EpochNumber(70)).unwrap();
        assert!(news.durable);
        assert_eq!(
            station.commit().unwrap().acknowledgements.len(),
            1,
            "the frame was acknowledged"
        );
        ends.push(std::fs::metadata(&journal).unwrap().len());
    }
    drop(station);
    // Damage every tenth byte of each frame, and the last byte of the file.
    for at in (ends[0]..ends[3]).step_by(10).chain([ends[3] - 1]) {
        damaged(&journal, usize::try_from(at).unwrap(), || {
            let error = self::station(folder.path()).err().unwrap();
            let frame = ends.iter().rposition(|&end| end <= at).unwrap();
            let StationError::Journal(JournalError::Damaged { offset, .. }) = &error else {
                panic!("byte {at}: {error}")
            };
            assert_eq!(*offset, ends[frame]);
            assert!(
                error.name() == "JournalDamaged" && error.to_string().contains("restore it"),
                "{error}"
            );
        });
    }
    assert_eq!(self::station(folder.path()).unwrap().coordinator().counts().seen, 120);
}

/// A gateway of an earlier version took events of a device before it had a schema of it.
#[test]
fn a_journal_with_events_before_their_schema_is_replayed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let device = roster().id("mote").unwrap();
    let mut station = station(folder.path()).unwrap();
    let frames = [schema(device), frame(device, 70, 0..40)];
    for frame in &frames {
        let _ = station.receive(frame, EpochNumber(70)).unwrap();
    }
    station.commit().unwrap();
    drop(station);
    let mut journal = Journal::open_strict(&folder.path().join("journal")).unwrap();
    let mut records: Vec<_> = journal.iter().collect::<Result<_, _>>().unwrap();
    let count = records.len();
    records.retain(|record| !record.windows(frames[0].len()).any(|part| part == frames[0]));
    assert_eq!(records.len(), count - 1, "without the schema");
    journal.compact(records.iter().map(Vec::as_slice)).unwrap();
    drop(journal);
    let (station, recovered) =
        Station::open(folder.path(), roster(), GROUP_SECRET, Box::new(secret(99)), 1 << 30)
            .unwrap();
    assert_eq!((recovered.frames, recovered.refused), (1, 0));
    assert_eq!(station.coordinator().counts().seen, 40);
}

#[test]
fn a_crash_during_a_commit_is_not_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    let device = roster().id("mote").unwrap();
    let mut station = station(folder.path()).unwrap();
    for frame in [schema(device), frame(device, 70, 0..40)] {
        let _ = station.receive(&frame, EpochNumber(70)).unwrap();
    }
    station.commit().unwrap();
    drop(station);
    let journal = folder.path().join("journal");
    let mut torn = std::fs::read(&journal).unwrap();
    torn.extend_from_slice(b"\xf7MJ\n\0\x01");
    std::fs::write(&journal, &torn).unwrap();
    let (station, recovered) =
        Station::open(folder.path(), roster(), GROUP_SECRET, Box::new(secret(99)), 1 << 30)
            .unwrap();
    assert_eq!((station.coordinator().counts().seen, recovered.torn), (40, 6));
}

#[test]
fn reports_a_damaged_item_of_the_outbox_and_does_not_modify_it() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::open(folder.path()).unwrap();
    let items = [
        (
            Name::of(EpochNumber(7)),
            Item { manifest: Some(vec![1; 90]), bundles: vec![vec![2; 700], vec![3; 60]] },
        ),
        (
            Name::of_late(EpochNumber(7), &[4; 40]),
            Item { manifest: None, bundles: vec![vec![4; 40]] },
        ),
    ];
    for (name, item) in &items {
        outbox.store(*name, item).unwrap();
        let path = folder.path().join(name.to_string());
        let length = std::fs::metadata(&path).unwrap().len();
        for at in 0..usize::try_from(length).unwrap() {
            damaged(&path, at, || {
                let error = outbox.read(*name).unwrap_err();
                assert_eq!(error.name(), "OutboxDamaged", "byte {at}: {error}");
                assert!(error.to_string().contains("restore it"), "{error}");
            });
        }
        // A truncated file is also damaged, because a file gets its name only after all of it is
        // durable.
        let whole = std::fs::read(&path).unwrap();
        for cut in [whole.len() - 1, whole.len() / 2, 21] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(outbox.read(*name).unwrap_err().name(), "OutboxDamaged", "{cut} bytes");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), cut as u64);
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(outbox.read(*name).unwrap(), *item, "a restored file is read again");
    }
    assert_eq!(outbox.names().len(), 2);
}
