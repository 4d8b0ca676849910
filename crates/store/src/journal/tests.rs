//! Tests what remains of a journal after a power loss, for any set of lost sectors, and after
//! damage to every byte. Also tests that all ways of writing a frame leave the same file.

#![allow(clippy::unwrap_used)]

use super::*;

const AHEAD: u64 = 4096;

/// Writes three frames to a journal with space written in advance. Returns the file's bytes, and
/// the start and the end of the last frame.
fn written(path: &Path) -> (Vec<u8>, usize, usize) {
    let _ = fs::remove_file(path);
    let mut journal = Journal::open(path).unwrap().fill_ahead(AHEAD);
    let mut start = 0;
    for (byte, length) in [(1, 700), (2, 300), (3, 1800)] {
        start = journal.end as usize;
        journal.append(&vec![byte; length]).unwrap();
        journal.append(b"and").unwrap();
        journal.sync().unwrap();
    }
    let end = journal.end as usize;
    drop(journal);
    (fs::read(path).unwrap(), start, end)
}

fn open(path: &Path, bytes: &[u8]) -> Result<u64, JournalError> {
    fs::write(path, bytes).unwrap();
    Journal::open_strict(path).map(|journal| journal.synced_records())
}

#[test]
fn zeros_written_in_advance_are_not_an_incomplete_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (bytes, _, end) = written(&path);
    assert!(bytes.len() > end && bytes[end..].iter().all(|&byte| byte == 0));
    let journal = Journal::open_strict(&path).unwrap();
    assert_eq!((journal.synced_records(), journal.torn_bytes(), journal.end), (6, 0, end as u64));
    drop(journal);
    // The file grows in steps of `AHEAD`, not by one frame at a time.
    let mut journal = Journal::open_strict(&path).unwrap().fill_ahead(AHEAD);
    let mut lengths = std::collections::BTreeSet::new();
    for number in 0..200u8 {
        journal.append(&[number; 50]).unwrap();
        journal.sync().unwrap();
        lengths.insert(fs::metadata(&path).unwrap().len());
    }
    assert!(lengths.len() <= 5, "{lengths:?}");
    assert_eq!(journal.iter().count(), 206);
}

#[test]
fn a_power_loss_can_only_lose_sectors_of_the_last_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (bytes, start, end) = written(&path);
    let sectors: Vec<usize> = (start / 512..=(end - 1) / 512).collect();
    assert!(sectors.len() >= 4);
    for kept in 0..1u32 << sectors.len() {
        for cut in [bytes.len(), end, start] {
            let mut lost = bytes.clone();
            for (_, sector) in sectors.iter().enumerate().filter(|(at, _)| kept >> at & 1 == 0) {
                lost[(sector * 512).max(start)..(sector * 512 + 512).min(end)].fill(0);
            }
            lost.truncate(cut);
            let complete = kept + 1 == 1 << sectors.len() && cut >= end;
            assert_eq!(
                open(&path, &lost).unwrap(),
                if complete { 6 } else { 4 },
                "sectors {kept:b}, {cut} bytes"
            );
        }
    }
}

#[test]
fn detects_damage_to_a_complete_last_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (bytes, start, end) = written(&path);
    for at in start..end {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let error = open(&path, &damaged).unwrap_err();
            assert!(
                matches!(error, JournalError::Damaged { offset, record: 4, .. }
                    if offset == start as u64),
                "byte {at}"
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Frames of these lengths, each synced.
    Frames(Vec<usize>),
    /// A frame that is written but not synced.
    Unsynced(usize),
    Reset,
    /// Keeps this many of the newest records.
    Compact(usize),
    Reopen,
    /// Space cannot be written in advance, as on a full disk.
    NoRoom,
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    // Lengths near one block, and near the maximum length that is written directly.
    let length = prop_oneof![
        0..600_usize,
        3900..4300_usize,
        Just(direct::LONGEST - 200),
        Just(direct::LONGEST + 1)
    ];
    let step = prop_oneof![
        6 => prop::collection::vec(length.clone(), 1..6).prop_map(Step::Frames),
        1 => length.prop_map(Step::Unsynced),
        1 => Just(Step::Reset),
        1 => (0..3_usize).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::NoRoom),
    ];
    prop::collection::vec(step, 1..12)
}

/// A journal after a step.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The file up to the journal's end, and whether only zeros follow.
    file: Vec<u8>,
    zeros_after: bool,
    records: Vec<Vec<u8>>,
}

/// Returns the journal after each step, and the number of frames that were written past the page
/// cache.
fn play(path: &Path, steps: &[Step], past_cache: bool) -> (Vec<Seen>, usize) {
    const ROOM: u64 = 3 * 4096;
    let _ = fs::remove_file(path);
    let mut journal = Journal::open_strict(path).unwrap().fill_ahead(ROOM);
    let (mut seen, mut number, mut direct) = (Vec::new(), 0_u8, 0);
    let mut frame = |journal: &mut Journal, length: usize, sync: bool| {
        number = number.wrapping_add(1);
        journal.append(&vec![number; length]).unwrap();
        if !past_cache {
            journal.past_cache = PastCache::Refused;
        }
        journal.write(sync).unwrap();
        direct += usize::from(matches!(journal.past_cache, PastCache::Open(_)));
    };
    for step in steps {
        match step {
            Step::Frames(lengths) => {
                lengths.iter().for_each(|&length| frame(&mut journal, length, true));
            }
            Step::Unsynced(length) => frame(&mut journal, *length, false),
            Step::Reset => journal.reset().unwrap(),
            Step::Compact(kept) => {
                let records: Vec<Vec<u8>> = journal.iter().map(Result::unwrap).collect();
                journal.compact(records.iter().rev().take(*kept).rev().map(Vec::as_slice)).unwrap();
            }
            Step::Reopen => {
                drop(journal);
                journal = Journal::open_strict(path).unwrap().fill_ahead(ROOM);
            }
            Step::NoRoom => journal.cut().unwrap(),
        }
        let (end, records) = (journal.end as usize, journal.iter().map(Result::unwrap).collect());
        let mut file = fs::read(path).unwrap();
        let after = file.split_off(end);
        seen.push(Seen { file, zeros_after: after.iter().all(|&byte| byte == 0), records });
    }
    (seen, direct)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn frames_written_past_the_cache_make_the_same_file(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let (through, none) = play(&directory.path().join("through"), &steps, false);
        let (past, _) = play(&directory.path().join("past"), &steps, true);
        proptest::prop_assert_eq!(none, 0);
        proptest::prop_assert!(through.iter().chain(&past).all(|seen| seen.zeros_after));
        proptest::prop_assert!(past == through);
    }
}

#[test]
fn a_frame_is_written_through_the_cache_if_direct_writes_fail() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open_strict(&path).unwrap().fill_ahead(AHEAD);
    let put = |journal: &mut Journal, record: &[u8]| {
        journal.append(record).unwrap();
        journal.sync().unwrap();
    };
    put(&mut journal, b"first");
    if let PastCache::Open(direct) = &mut journal.past_cache {
        direct.refuse_writes();
        put(&mut journal, b"second");
        assert!(matches!(journal.past_cache, PastCache::Refused));
    }
    put(&mut journal, b"third");
    let records = journal.iter().count() as u64;
    drop(journal);
    assert_eq!(Journal::open_strict(&path).unwrap().synced_records(), records);
}
