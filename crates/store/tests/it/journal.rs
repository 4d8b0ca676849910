//! The journal keeps what was synced, drops an incomplete frame that a crash left, and reports
//! damage.

use std::fs;
use std::path::{Path, PathBuf};

use moteseal_api::NamedError as _;
use moteseal_store::journal::{Journal, JournalError, MAX_PENDING};
use proptest::prelude::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outbox.journal");
    (directory, path)
}

fn all(journal: &Journal) -> Vec<Vec<u8>> {
    journal.iter().map(Result::unwrap).collect()
}

/// Writes a journal with these frames.
fn written(path: &Path, frames: &[Vec<Vec<u8>>]) {
    let mut journal = Journal::open(path).unwrap();
    for frame in frames {
        frame.iter().for_each(|record| journal.append(record).unwrap());
        journal.sync().unwrap();
    }
}

fn frames() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let record = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(record, 0..4), 0..5)
}

proptest! {
    // Every frame takes a sync, so run only a few cases to keep the test short on a busy disk.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn records_are_read_in_the_order_written(frames in frames()) {
        let (_directory, path) = place();
        written(&path, &frames);
        let mut journal = Journal::open(&path).unwrap();
        prop_assert_eq!(all(&journal), frames.concat());
        prop_assert_eq!(journal.synced_records(), frames.concat().len() as u64);
        journal.append(b"waiting").unwrap();
        let records = all(&journal);
        prop_assert_eq!(records.last().map(Vec::as_slice), Some(&b"waiting"[..]));
    }
}

#[test]
fn every_truncation_leaves_complete_frames() {
    let record = |length: u8| vec![length; usize::from(length)];
    let frames = [
        vec![record(3), record(0)],
        vec![record(1)],
        vec![record(0), record(0), record(9)],
        vec![record(20)],
    ];
    let (_directory, path) = place();
    written(&path, &frames);
    let complete = fs::read(&path).unwrap();
    let prefixes: Vec<Vec<Vec<u8>>> =
        (0..=frames.len()).map(|count| frames[..count].concat()).collect();
    let mut seen = 0;
    for length in 0..=complete.len() {
        fs::write(&path, &complete[..length]).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        let records = all(&journal);
        assert!(prefixes.contains(&records), "{length} bytes give {records:?}");
        assert!(records.len() >= seen, "fewer records from more bytes");
        seen = records.len();
        if length % 5 > 0 {
            continue;
        }
        // The journal accepts further records.
        journal.append(b"next").unwrap();
        journal.sync().unwrap();
        drop(journal);
        let mut expected = records;
        expected.push(b"next".to_vec());
        assert_eq!(all(&Journal::open(&path).unwrap()), expected);
    }
    assert_eq!(seen, frames.concat().len());
}

#[test]
fn damage_before_the_last_frame_is_reported_and_never_read() {
    let (_directory, path) = place();
    let frames: Vec<Vec<Vec<u8>>> = (0..4u8).map(|i| vec![vec![i; 5], vec![i; 3]]).collect();
    let mut starts = Vec::new();
    for count in 0..=frames.len() {
        let _ = fs::remove_file(&path);
        written(&path, &frames[..count]);
        starts.push(fs::metadata(&path).unwrap().len());
    }
    let complete = fs::read(&path).unwrap();
    for at in 0..complete.len() {
        for flip in [1, 0x10, 0x80, 0xff] {
            let mut bytes = complete.clone();
            bytes[at] ^= flip;
            fs::write(&path, &bytes).unwrap();
            let frame = starts.iter().filter(|&&start| start <= at as u64).count();
            match Journal::open(&path) {
                Err(JournalError::NotAJournal(_)) => assert_eq!(frame, 0),
                Err(JournalError::Damaged { offset, record, .. }) => {
                    assert!(
                        frame < frames.len(),
                        "damage to the last frame must look like an incomplete frame"
                    );
                    assert_eq!((offset, record), (starts[frame - 1], 2 * (frame as u64 - 1)));
                }
                Err(other) => panic!("{other}"),
                Ok(journal) => {
                    assert_eq!(frame, frames.len(), "byte {at} ^ {flip:#x} was not detected");
                    assert_eq!(all(&journal), frames[..3].concat());
                    assert_eq!(journal.torn_bytes(), starts[4] - starts[3]);
                }
            }
        }
    }
}

#[test]
fn damage_to_an_open_journal_is_reported_when_it_is_read() {
    let (_directory, path) = place();
    written(&path, &[vec![b"one".to_vec()], vec![b"two".to_vec()]]);
    let journal = Journal::open(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let read: Vec<_> = journal.iter().collect();
    assert!(matches!(&read[..], [Ok(one), Err(JournalError::Damaged { record: 1, .. })]
            if one == b"one"));
}

#[test]
fn a_crash_between_append_and_sync_loses_only_what_was_not_synced() {
    let (_directory, path) = place();
    let mut journal = Journal::open(&path).unwrap();
    journal.append(b"kept").unwrap();
    journal.sync().unwrap();
    journal.append(b"lost").unwrap();
    drop(journal);
    assert_eq!(all(&Journal::open(&path).unwrap()), [b"kept"]);
}

#[test]
fn reset_and_compacted_journals_survive_reopening() {
    let (_directory, path) = place();
    written(&path, &[vec![b"a".to_vec(), b"b".to_vec()], vec![b"c".to_vec()]]);
    let mut journal = Journal::open(&path).unwrap();
    journal.append(b"waiting").unwrap();
    journal.compact([&b"b"[..], b"c"]).unwrap();
    assert_eq!(all(&journal), [b"b", b"c"]);
    journal.append(b"d").unwrap();
    journal.sync().unwrap();
    assert!(
        matches!(Journal::open(&path), Err(JournalError::Locked(_))),
        "the compacted file is locked too"
    );
    drop(journal);
    let mut journal = Journal::open(&path).unwrap();
    assert_eq!(all(&journal), [b"b", b"c", b"d"]);
    journal.reset().unwrap();
    assert_eq!(all(&journal).len(), 0);
    journal.append(b"e").unwrap();
    journal.sync().unwrap();
    drop(journal);
    assert_eq!(all(&Journal::open(&path).unwrap()), [b"e"]);
}

#[test]
fn a_long_journal_is_compacted_into_frames_of_a_mebibyte() {
    let (_directory, path) = place();
    // Most records are in one frame, and some still wait for a sync.
    let records: Vec<Vec<u8>> =
        (0..5000u32).map(|number| [&number.to_be_bytes()[..], &[7; 996]].concat()).collect();
    written(&path, &[records[..4900].to_vec()]);
    let mut journal = Journal::open_strict(&path).unwrap();
    records[4900..].iter().for_each(|record| journal.append(record).unwrap());
    let keeps = |record: &[u8]| -> Result<bool, JournalError> { Ok(record[3] % 2 == 1) };
    journal.retain(b"first", keeps).unwrap();
    let kept: Vec<_> = records.iter().filter(|record| record[3] % 2 == 1).cloned().collect();
    let expected = [&[b"first".to_vec()][..], &kept].concat();
    assert_eq!(all(&journal), expected);
    journal.append(b"next").unwrap();
    journal.sync().unwrap();
    drop(journal);
    let bytes = fs::read(&path).unwrap();
    let starts: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, word)| word == b"\xf7MJ\n")
        .map(|(at, _)| at)
        .collect();
    assert!(
        starts.len() >= 4 && starts.windows(2).all(|pair| pair[1] - pair[0] <= (1 << 20) + 2048),
        "{starts:?}"
    );
    let mut journal = Journal::open_strict(&path).unwrap();
    let expected = [&expected[..], &[b"next".to_vec()]].concat();
    assert_eq!(all(&journal), expected);
    // If the filter fails, the journal stays as it was.
    let fails = |record: &[u8]| {
        if record == b"next" { Err(JournalError::TooMuch(path.clone())) } else { Ok(true) }
    };
    assert!(matches!(journal.retain(b"other", fails), Err(JournalError::TooMuch(_))));
    assert_eq!(all(&journal), expected);
    assert!(!path.with_extension("journal.new").exists());
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let (directory, path) = place();
    let _journal = Journal::open(&path).unwrap();
    let error = Journal::open(&path).unwrap_err().named().to_string();
    assert!(
        error.starts_with("JournalLocked: ")
            && error.contains("outbox.journal")
            && error.ends_with("stop it first")
    );
    let other = directory.path().join("notes.txt");
    fs::write(&other, "not a journal").unwrap();
    let error = Journal::open(&other).unwrap_err().named().to_string();
    assert!(error.starts_with("NotAJournal: ") && error.contains("notes.txt"), "{error}");
    assert_eq!(fs::read(&other).unwrap(), b"not a journal", "another file must stay as it is");
    let error =
        Journal::open(&directory.path().join("missing/journal")).unwrap_err().named().to_string();
    assert!(error.starts_with("JournalFailed: ") && error.contains("missing/journal"), "{error}");
    let mut journal = Journal::open(&directory.path().join("long")).unwrap();
    let error = journal.append(&vec![0; MAX_PENDING]).unwrap_err().named().to_string();
    assert!(error.starts_with("JournalTooMuch: "), "{error}");
}
