//! Tests of a device with encrypted columns that is killed, restarted and copied back: it loses no
//! reading, uses no key stream twice, and stores neither a reading in plaintext nor a key of the past
//! (spec/confidential.md, sections 2 and 6).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use moteseal_core::confidential::{ColumnId, EncryptedColumns, KeyStream, StreamSecret};
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, EpochNumber, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::column_keys::path_of;
use moteseal_device::durable::{Identity, UrgentOutcome};
use moteseal_device::{
    Chain, ColumnKeys, DurableMote, Outbox, OutboxError, Recorder, Sealer, chain_state,
};
use moteseal_seal::UrgentEvent;
use moteseal_seal::level::SaltKey;
use moteseal_seal::wire::{Acknowledgement, MAX_ACKNOWLEDGEMENT};

use crate::confidential::{
    FIRST, Row, assert_no_key_stream_twice, profile, rows, schema, stream_secret,
};
use crate::sensors::{roster, secret};

const CHALLENGE: u64 = 0x0102_0304_0506_0708;

fn device() -> DeviceId {
    DeviceId::of("home", "dev1")
}

/// Opens the chain's state of `dev1` in a folder.
fn outbox(folder: &Path) -> (Outbox, Chain) {
    let (roster, chain) = (roster(), folder.join("chain"));
    let start = Chain::start(roster.device(device()).unwrap().certificate);
    let _ = chain_state::begin(&chain, device(), &start);
    Outbox::open(&folder.join("bundles"), &chain, &roster, device()).unwrap()
}

fn keys(outbox: &Outbox, secret: Option<&StreamSecret>) -> Result<ColumnKeys, OutboxError> {
    let schema = schema(true, true);
    let keys = outbox.column_keys(&Schema::decode(&schema).unwrap(), secret)?;
    Ok(keys.unwrap())
}

/// Starts the device of a folder. Only the first start has the stream secret.
fn start(folder: &Path, scheme: Scheme) -> DurableMote<SecretKey> {
    let (outbox, chain) = outbox(folder);
    let provisioned = path_of(&folder.join("chain")).exists();
    let first = stream_secret();
    let keys = keys(&outbox, (!provisioned).then_some(&first)).unwrap();
    let identity = Identity {
        profile: profile(scheme, &schema(true, true), Some(keys)),
        keys: secret().into(),
        salt_key: SaltKey::new([2; 32]),
        link: LinkKey::new(&[7; 32]),
        challenge: CHALLENGE,
        coordinators: Vec::new(),
        keeps_ended: true,
    };
    DurableMote::open(identity, (outbox, chain), &folder.join("journal"), 1000).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reading(u64, u64),
    Urgent(u64, u64),
    End(u64),
}

/// The inputs of a device in three epochs, of which one has no readings.
const STEPS: [Step; 12] = [
    Step::Reading(0, 1),
    Step::Reading(0, 2),
    Step::Urgent(0, 3),
    Step::Reading(0, 4),
    Step::End(0),
    Step::End(1),
    Step::Urgent(2, 5),
    Step::Reading(2, 6),
    Step::End(2),
    Step::Reading(3, 7),
    Step::Reading(4, 8),
    Step::End(4),
];

/// Returns the record of a reading. Readings of another `run` have other values.
fn record(run: u64, number: u64) -> Vec<u8> {
    let cell = (run << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = format!("reading {run} {number}");
    let length = u8::try_from(text.len()).unwrap();
    [&cell.to_be_bytes()[..], &[0, 9, length], text.as_bytes()].concat()
}

fn input(mote: &mut DurableMote<SecretKey>, run: u64, step: Step) {
    let epoch = |epoch: u64| EpochNumber(FIRST + epoch);
    match step {
        Step::Reading(at, number) => mote.sense(epoch(at), &record(run, number)).unwrap(),
        Step::Urgent(at, number) => {
            mote.sense_urgent(epoch(at), &record(run, number)).unwrap().unwrap();
        }
        Step::End(at) => mote.end(epoch(at)).unwrap(),
    }
    mote.sync().unwrap();
}

/// The events of the epochs that have ended.
type Epochs = BTreeMap<u64, Vec<Row>>;

fn note_ended(mote: &DurableMote<SecretKey>, epochs: &mut Epochs) {
    if let Some(ended) = mote.mote().ended() {
        epochs.insert(ended.epoch.0, rows(ended.stream.as_ref().unwrap(), &schema(true, true)));
    }
}

fn run(mote: &mut DurableMote<SecretKey>, run: u64, steps: &[Step], epochs: &mut Epochs) {
    for step in steps {
        input(mote, run, *step);
        note_ended(mote, epochs);
    }
}

/// Returns the readings of each epoch that has any, in no particular order.
fn readings(epochs: &Epochs) -> BTreeSet<(u64, Vec<u8>)> {
    let rows = epochs.iter().flat_map(|(epoch, rows)| rows.iter().map(move |row| (*epoch, row)));
    rows.map(|(epoch, row)| (epoch, row.plain.clone())).collect()
}

/// Returns the readings of the steps.
fn expected(run: u64, steps: &[Step]) -> BTreeSet<(u64, Vec<u8>)> {
    let readings = steps.iter().filter_map(|step| match *step {
        Step::Reading(epoch, number) | Step::Urgent(epoch, number) => {
            Some((FIRST + epoch, record(run, number)))
        }
        Step::End(_) => None,
    });
    readings.collect()
}

/// Copies the files of a device.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Returns the contents of all files of a device.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.filter_map(|entry| fs::read(entry.path()).ok()).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn all(epochs: &Epochs) -> impl Iterator<Item = &Row> {
    epochs.values().flatten()
}

#[test]
fn a_device_that_is_killed_after_any_entry_loses_nothing_and_uses_no_key_stream_twice() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for killed in 0..=STEPS.len() {
            let folder = tempfile::tempdir().unwrap();
            let (before, after) = STEPS.split_at(killed);
            let mut epochs = Epochs::new();
            let mut mote = start(folder.path(), scheme);
            run(&mut mote, 0, before, &mut epochs);
            let (was_open, opened) = (mote.mote().epoch(), mote.mote().opened());
            drop(mote);
            let mut mote = start(folder.path(), scheme);
            assert_eq!(mote.mote().opened(), opened, "the open seal is still there");
            run(&mut mote, 0, after, &mut epochs);
            assert_eq!(readings(&epochs), expected(0, &STEPS), "{scheme:?}, {killed}");
            assert_no_key_stream_twice(all(&epochs));
            // Only if a reading followed in the epoch, the seal was closed as a part.
            let goes_on = was_open.is_some_and(|open| {
                let next = after.first();
                matches!(next, Some(Step::Reading(at, _) | Step::Urgent(at, _)) if FIRST + at == open.0)
            });
            assert_eq!(mote.mote().chain().next_index.0, 5 + u32::from(goes_on), "{killed}");
        }
    }
}

#[test]
fn a_device_that_is_killed_before_the_journal_is_synced_skips_the_index() {
    let opens = [0, 5, 6, 9, 10];
    for (place, killed) in opens.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = STEPS.split_at(killed);
        let mut epochs = Epochs::new();
        run(&mut start(folder.path(), Scheme::Star), 0, before, &mut epochs);
        // The device has stored the index of the next seal, and was killed.
        let (outbox, chain) = outbox(folder.path());
        let _ = keys(&outbox, Some(&stream_secret())).unwrap();
        let epoch = Some(EpochNumber(FIRST + place as u64));
        let next_index = SealIndex(chain.next_index.0 + 1);
        outbox.persist(&Chain { next_index, epoch, ..chain }).unwrap();
        drop(outbox);
        let mut mote = start(folder.path(), Scheme::Star);
        run(&mut mote, 0, after, &mut epochs);
        assert_eq!(readings(&epochs), expected(0, &STEPS), "{killed}");
        assert_no_key_stream_twice(all(&epochs));
        assert_eq!(mote.mote().chain().next_index.0, 6, "{killed}");
    }
}

#[test]
fn a_device_whose_state_was_copied_back_reuses_indices_and_no_key_stream() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for at in 0..STEPS.len() {
            let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (before, after) = STEPS.split_at(at);
            let mut epochs = Epochs::new();
            let mut mote = start(folder.path(), scheme);
            run(&mut mote, 0, before, &mut epochs);
            copy(folder.path(), copied.path());
            let mut again = epochs.clone();
            run(&mut mote, 0, after, &mut epochs);
            run(&mut start(copied.path(), scheme), 1, after, &mut again);
            // Events from before the copy are the same, byte for byte.
            let mut unique: BTreeMap<_, &Row> = BTreeMap::new();
            for row in all(&epochs).chain(all(&again)) {
                let known = unique.entry((row.index, row.seq, row.nonce.unwrap().0)).or_insert(row);
                assert_eq!(*known, row);
            }
            assert_no_key_stream_twice(unique.values().copied());
            let indices = |of: &Epochs, other: &Epochs| -> BTreeSet<u32> {
                let is_own = |row: &&Row| all(other).all(|known| known != *row);
                all(of).filter(is_own).map(|row| row.index).collect()
            };
            let (ours, theirs) = (indices(&epochs, &again), indices(&again, &epochs));
            assert_eq!(ours.is_disjoint(&theirs), at > 10, "{at}: {ours:?}, {theirs:?}");
        }
    }
}

#[test]
fn the_files_of_a_device_have_no_reading_in_plaintext_and_no_key_of_the_past() {
    let folder = tempfile::tempdir().unwrap();
    let mut mote = start(folder.path(), Scheme::Tree);
    let (root, bytes) = (stream_secret(), schema(true, true));
    let columns: Vec<_> = Schema::decode(&bytes).unwrap().encrypted_columns().collect();
    let key_of = |epoch: u64| -> Vec<_> {
        let epoch = EpochNumber(epoch);
        let key = |column| root.column(column).epoch_key(epoch).unwrap().expose();
        columns.iter().map(|(_, column)| key(*column)).collect()
    };
    let mut newest = None;
    for step in STEPS {
        input(&mut mote, 0, step);
        let files = files(folder.path());
        let is_in = |part: &[u8]| files.iter().any(|bytes| contains(bytes, part));
        for number in 1..=8 {
            let record = record(0, number);
            assert!(!is_in(&record[..8]) && !is_in(&record[11..]), "{step:?}: {number}");
        }
        assert!(!is_in(root.expose()), "the stream secret is in a file");
        newest = newest.max(mote.mote().chain().epoch);
        let newest = newest.unwrap().0;
        for past in root.base().0..newest {
            assert!(key_of(past).iter().all(|key| !is_in(&**key)), "{step:?}: {past}");
        }
        assert!(key_of(newest).iter().all(|key| is_in(&**key)), "{step:?}");
    }
    let keys = path_of(&folder.path().join("chain"));
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!format!("{mote:?}").contains("leaf"), "no key is printed");
}

#[test]
fn urgent_events_state_the_keys_of_their_seal() {
    let folder = tempfile::tempdir().unwrap();
    let mut mote = start(folder.path(), Scheme::Star);
    input(&mut mote, 0, Step::Reading(0, 1));
    input(&mut mote, 0, Step::Urgent(0, 2));
    drop(mote);
    // An event of the journal is the same after a restart.
    let mote = start(folder.path(), Scheme::Star);
    let events = mote.newest_events();
    let [event] = &events[..] else { panic!("{events:?}") };
    let event = UrgentEvent::open(&event.event, &roster(), &mut [0; 1200]).unwrap();
    let (bytes, keys) = (schema(true, true), event.keys.unwrap());
    let schema = Schema::decode(&bytes).unwrap();
    let streams = schema.encrypted_columns().zip(keys.commitments());
    let streams = streams.map(|((field, column), commitment)| {
        let key = stream_secret().column(column).epoch_key(event.epoch).unwrap();
        let suite = field.suite.unwrap();
        let key = key.seal_key(event.device, event.index, suite, &keys.nonce());
        key.check(commitment).unwrap();
        Some(KeyStream::new(key))
    });
    let mut plain = event.record.to_vec();
    let mut streams: Vec<_> = streams.collect();
    EncryptedColumns::of(&schema).decrypt(event.seq, &mut plain, &mut streams).unwrap();
    assert_eq!((event.seq, plain), (Sequence(1), record(0, 2)));
}

/// Delivers an acknowledgement of a gateway that has more than the device's state.
fn acknowledge_more(mote: &mut DurableMote<SecretKey>) {
    let _ = mote.frames(8).unwrap();
    let acknowledgement = Acknowledgement {
        index: SealIndex(40),
        next: Sequence(3),
        sealed: None,
        wants_schema: false,
        challenge: Some(CHALLENGE),
    };
    let mut out = [0; MAX_ACKNOWLEDGEMENT];
    let frame = acknowledgement.close(device(), &LinkKey::new(&[7; 32]), &mut out).unwrap();
    assert!(mote.acknowledged(frame).unwrap().unwrap());
    assert_eq!(mote.rollbacks(), 1);
}

#[test]
fn an_urgent_reading_is_encrypted_anew_for_its_new_place_while_the_process_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut mote = start(folder.path(), Scheme::Star);
    input(&mut mote, 0, Step::Urgent(0, 1));
    let before = mote.newest_events();
    acknowledge_more(&mut mote);
    assert!(mote.urgent_outcomes().is_empty());
    assert_eq!(mote.waiting_urgent(), 1);
    assert_ne!(mote.newest_events(), before);
    let mut epochs = Epochs::new();
    run(&mut mote, 0, &[Step::End(0)], &mut epochs);
    assert_eq!(readings(&epochs), expected(0, &[Step::Urgent(0, 1)]));
    assert!(all(&epochs).all(|row| row.index > 40));
}

#[test]
fn an_urgent_reading_of_an_earlier_process_is_reported_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    input(&mut start(folder.path(), Scheme::Star), 0, Step::Urgent(0, 1));
    let mut mote = start(folder.path(), Scheme::Star);
    acknowledge_more(&mut mote);
    let outcomes = mote.urgent_outcomes();
    assert!(
        matches!(&outcomes[..], [(_, UrgentOutcome::Lost(_, name))] if name == "KeyErased"),
        "{outcomes:?}"
    );
    assert_eq!(mote.waiting_urgent(), 0);
}

#[test]
fn keys_come_from_the_file_and_only_missing_ones_from_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, chain) = outbox(folder.path());
    let name = |result: Result<ColumnKeys, OutboxError>| result.unwrap_err().name();
    assert_eq!(name(keys(&outbox, None)), "NoStreamSecret");
    assert!(!outbox.column_keys_path().exists());
    let plain = schema(false, true);
    let plain = Schema::decode(&plain).unwrap();
    assert!(outbox.column_keys(&plain, Some(&stream_secret())).unwrap().is_none());
    keys(&outbox, Some(&stream_secret())).unwrap();
    let first = fs::read(outbox.column_keys_path()).unwrap();
    let epoch = Some(EpochNumber(FIRST));
    outbox.persist(&Chain { next_index: SealIndex(1), epoch, ..chain }).unwrap();
    let advanced = fs::read(outbox.column_keys_path()).unwrap();
    assert_ne!(first, advanced);
    let before = EpochNumber(FIRST - 1);
    for secret in [None, Some(stream_secret())] {
        // The secret does not bring the erased keys back.
        let keys = keys(&outbox, secret.as_ref()).unwrap();
        assert_eq!(keys.check(before).unwrap_err().name(), "KeyErased");
        assert_eq!(fs::read(outbox.column_keys_path()).unwrap(), advanced);
    }
    // The keys of another secret replace those of the first one.
    let other = StreamSecret::new([6; 32], EpochNumber(FIRST));
    keys(&outbox, Some(&other)).unwrap();
    let replaced = fs::read(outbox.column_keys_path()).unwrap();
    assert_ne!(replaced, advanced);
    keys(&outbox, None).unwrap();
    assert_eq!(fs::read(outbox.column_keys_path()).unwrap(), replaced);
    for at in [0, replaced.len() / 2, replaced.len() - 1] {
        let mut damaged = replaced.clone();
        damaged[at] ^= 1;
        fs::write(outbox.column_keys_path(), damaged).unwrap();
        assert_eq!(name(keys(&outbox, Some(&other))), "MalformedKey");
    }
}

/// Returns the encoded schema of numbered columns, which are encrypted.
fn numbered(columns: std::ops::Range<u32>) -> Vec<u8> {
    let texts: Vec<String> =
        columns.map(|number| format!("c{number}::u16!#{}", number + 1)).collect();
    let fields: Vec<Field<'_>> = texts.iter().map(|text| Field::parse(text).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    Schema::encode(&fields, &mut buffer).unwrap().as_bytes().to_vec()
}

/// Returns the epoch key of each column of a schema as the owner derives it: all columns of a batch from
/// the stream secret after as many steps to its successor.
fn owners_keys(schema: &[u8], batches: &[u32], epoch: EpochNumber) -> Vec<[u8; 32]> {
    let schema = Schema::decode(schema).unwrap();
    let key = |((_, column), batch): ((_, ColumnId), &u32)| {
        let secret = (0..*batch).fold(stream_secret(), |secret, _| secret.next());
        *secret.column(column).epoch_key(epoch).unwrap().expose()
    };
    schema.encrypted_columns().zip(batches).map(key).collect()
}

#[test]
fn columns_that_are_added_later_start_from_the_spare_secret_with_and_without_the_stream_secret() {
    for keeps_secret in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (outbox, chain) = outbox(folder.path());
        let secret = stream_secret();
        let mut epoch = EpochNumber(FIRST);
        let begun = Chain { next_index: SealIndex(1), epoch: Some(epoch), ..chain };
        outbox.persist(&begun).unwrap();
        // The schema of each start, and the batches of its columns.
        let starts: [(_, &[u32]); 5] = [
            (0..2, &[0, 0]),
            (0..4, &[0, 0, 1, 1]),
            // A column is left out, and then there again.
            (1..4, &[0, 1, 1]),
            (0..5, &[0, 0, 1, 1, 2]),
            (4..6, &[2, 3]),
        ];
        for (start, (columns, batches)) in starts.into_iter().enumerate() {
            let schema = numbered(columns);
            let given = Some(&secret).filter(|_| start == 0 || keeps_secret);
            let keys = outbox.column_keys(&Schema::decode(&schema).unwrap(), given).unwrap();
            keys.unwrap().check(epoch).unwrap();
            let file = fs::read(outbox.column_keys_path()).unwrap();
            for key in owners_keys(&schema, batches, epoch) {
                assert!(contains(&file, &key), "{keeps_secret}, start {start}");
            }
            assert!(!contains(&file, secret.expose()));
            epoch = EpochNumber(epoch.0 + 3);
            let (next_index, newest) = (SealIndex(start as u32 + 2), Some(epoch));
            outbox.persist(&Chain { next_index, epoch: newest, ..chain }).unwrap();
            // The file has neither a key of the past nor a secret that opens it.
            let file = fs::read(outbox.column_keys_path()).unwrap();
            let past = EpochNumber(epoch.0 - 1);
            for key in owners_keys(&schema, batches, past) {
                assert!(!contains(&file, &key), "{keeps_secret}, start {start}");
            }
            for batch in batches {
                let opens_past = (0..*batch).fold(stream_secret(), |secret, _| secret.next());
                assert!(!contains(&file, opens_past.expose()));
            }
        }
        // Another secret replaces all keys. Its columns are a first batch.
        let other = StreamSecret::new([6; 32], EpochNumber(FIRST));
        let schema = numbered(0..6);
        outbox.column_keys(&Schema::decode(&schema).unwrap(), Some(&other)).unwrap().unwrap();
        let file = fs::read(outbox.column_keys_path()).unwrap();
        for (_, column) in Schema::decode(&schema).unwrap().encrypted_columns() {
            assert!(contains(&file, &*other.column(column).epoch_key(epoch).unwrap().expose()));
        }
        assert!(!contains(&file, &owners_keys(&schema, &[0; 6], epoch)[0]));
    }
}

/// An old grant must not open readings that are sealed after the owner gave the device a new secret.
#[test]
fn a_device_does_not_go_back_to_an_older_stream_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _) = outbox(folder.path());
    let (old, new) = (stream_secret(), StreamSecret::new([6; 32], EpochNumber(FIRST)));
    let keys = |columns: std::ops::Range<u32>, secret: Option<&StreamSecret>| {
        let schema = numbered(columns);
        outbox.column_keys(&Schema::decode(&schema).unwrap(), secret).map(Option::unwrap)
    };
    keys(0..2, Some(&old)).unwrap();
    keys(0..2, Some(&new)).unwrap();
    // The base epoch also remains known after columns were added, for which the spare secret changes.
    for columns in [0..2, 0..4, 0..6] {
        keys(columns.clone(), None).unwrap();
        let file = fs::read(outbox.column_keys_path()).unwrap();
        let refused = keys(columns, Some(&old)).unwrap_err();
        assert_eq!(refused.name(), "SecretNotLater");
        assert!(refused.to_string().contains("owner copy"), "{refused}");
        assert_eq!(fs::read(outbox.column_keys_path()).unwrap(), file, "nothing is changed");
    }
    // The secret of the keys is accepted, and so are one of the same epoch and a later one.
    keys(0..6, Some(&new)).unwrap();
    keys(0..6, Some(&StreamSecret::new([7; 32], EpochNumber(FIRST)))).unwrap();
    keys(0..6, Some(&StreamSecret::new([8; 32], EpochNumber(FIRST + 1)))).unwrap();
    assert_eq!(keys(0..6, Some(&new)).unwrap_err().name(), "SecretNotLater");
}

#[test]
fn a_file_has_the_keys_of_at_most_256_columns_when_it_is_written_and_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _) = outbox(folder.path());
    let keys = |columns: std::ops::Range<u32>, secret: Option<&StreamSecret>| {
        let schema = numbered(columns);
        outbox.column_keys(&Schema::decode(&schema).unwrap(), secret).map(Option::unwrap)
    };
    for first in (0..256).step_by(16) {
        keys(first..first + 16, Some(&stream_secret())).unwrap();
    }
    let full = fs::read(outbox.column_keys_path()).unwrap();
    for secret in [None, Some(&stream_secret())] {
        let refused = keys(256..257, secret).unwrap_err();
        assert_eq!(refused.name(), "ColumnCount");
        assert!(refused.to_string().contains("owner add"), "{refused}");
        assert_eq!(fs::read(outbox.column_keys_path()).unwrap(), full);
        keys(0..16, secret).unwrap();
    }
    keys(256..257, Some(&StreamSecret::new([6; 32], EpochNumber(FIRST)))).unwrap();
    // A file that is longer than the limit is not read to its end.
    fs::write(outbox.column_keys_path(), [&full[..], &[0; 1 << 20]].concat()).unwrap();
    assert_eq!(keys(0..16, None).unwrap_err().name(), "MalformedKey");
}

#[test]
fn a_recorder_refuses_encrypted_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, chain) = outbox(folder.path());
    let keys = keys(&outbox, Some(&stream_secret())).unwrap();
    let profile = profile(Scheme::Star, &schema(true, true), Some(keys));
    let sealer = Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain);
    let opened = Recorder::open(sealer, outbox, &folder.path().join("recorded"));
    assert_eq!(opened.unwrap_err().name(), "ReplayEncrypted");
}
