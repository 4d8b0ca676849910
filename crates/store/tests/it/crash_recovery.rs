//! Tests the journal of the embedded store. After a crash its batches are applied to the store, and
//! damage to it is reported. Readers of a running store cannot tell whether a batch is still only
//! in the journal.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use moteseal_api::NamedError as _;
use moteseal_core::record::{DeviceId, Scheme, SealIndex};
use moteseal_store::check::check;
use moteseal_store::conformance::{Made, Mote, Motes, assert_reads_back};
use moteseal_store::{DiscardedJournal, EpochStore, Options, Receipt, RedbStore, discard_journal};

const NAME: &str = "mote";

fn journal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-journal", path.display()))
}

/// Options of a store that applies batches only when a read, a receipt or closing needs them.
fn lazy() -> Options {
    Options { apply_after: Duration::from_secs(3600), ..Options::default() }
}

fn bundles(count: usize) -> Vec<Made> {
    let mut mote = Mote::new(NAME, false);
    (0..count as u64).map(|epoch| mote.seal_some(Scheme::Star, epoch, 3)).collect()
}

/// Returns the files of a store (tables and journal) as a kill leaves them after all of `made` were
/// acknowledged.
fn killed(directory: &Path, made: &[Made]) -> (Vec<u8>, Vec<u8>) {
    let path = directory.join("running");
    let store = RedbStore::open(&path, lazy()).unwrap();
    for made in made {
        assert_eq!(
            store.put(vec![made.bundle.clone()]).unwrap(),
            Receipt { stored: 1, ..Receipt::default() }
        );
    }
    // No thread writes now: nothing is queued, and nothing is applied for an hour.
    let files = (fs::read(&path).unwrap(), fs::read(journal_of(&path)).unwrap());
    drop(store);
    fs::remove_file(&path).unwrap();
    files
}

fn place(directory: &Path, (store, journal): (&[u8], &[u8])) -> PathBuf {
    let path = directory.join("epochs");
    fs::write(&path, store).unwrap();
    fs::write(journal_of(&path), journal).unwrap();
    path
}

fn count(store: &RedbStore) -> usize {
    store.seals(Mote::new(NAME, false).device(), SealIndex(0), usize::MAX).unwrap().len()
}

/// Returns the start of each frame of a journal, and the end of the last frame.
fn frames(journal: &[u8]) -> Vec<usize> {
    let mut starts = vec![20];
    while let Some(head) = journal
        .get(starts[starts.len() - 1]..)
        .filter(|rest| rest.first().is_some_and(|&byte| byte != 0))
    {
        let size = u32::from_be_bytes(head[4..8].try_into().unwrap()) as usize;
        starts.push(starts[starts.len() - 1] + 20 + size);
    }
    starts
}

#[test]
fn batches_that_are_only_in_the_journal_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let made = bundles(5);
    let (store, journal) = killed(directory.path(), &made);
    let empty = RedbStore::open(&directory.path().join("empty"), lazy()).unwrap();
    drop(empty);
    // The journal alone must suffice, so also use the tables of an empty store.
    let new = fs::read(directory.path().join("empty")).unwrap();
    for tables in [&store, &new] {
        let path = place(directory.path(), (tables, &journal));
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        assert!(report.is_clean() && report.seals == 5, "{report:?}");
        assert_eq!(
            (&fs::read(&path).unwrap(), &fs::read(journal_of(&path)).unwrap()),
            (tables, &journal),
            "a check must not write"
        );
        let store = RedbStore::open(&path, lazy()).unwrap();
        made.iter().for_each(|made| assert_reads_back(&store, made));
        assert_eq!(store.put(vec![made[4].bundle.clone()]).unwrap().known, 1);
        drop(store);
        assert!(!journal_of(&path).exists(), "a closed store is a single file");
        // Simulate a crash between the last sync of the tables and the removal of the journal: all
        // batches are applied a second time.
        let applied = fs::read(&path).unwrap();
        let path = place(directory.path(), (&applied, &journal));
        let store = RedbStore::open(&path, lazy()).unwrap();
        assert_eq!((count(&store), store.equivocations(None, 9).unwrap().len()), (5, 0));
        drop(store);
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        assert!(report.is_clean() && report.seals == 5, "{report:?}");
    }
}

#[test]
fn an_incomplete_last_frame_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let made = bundles(3);
    let (before, _) = killed(directory.path(), &made[..2]);
    let (_, journal) = killed(directory.path(), &made);
    let starts = frames(&journal);
    assert_eq!(starts.len(), 4);
    assert!(journal[starts[3]..].iter().all(|&byte| byte == 0), "only zeros may follow the frames");
    for length in (starts[2]..=starts[3]).chain([starts[3] + 1, journal.len()]) {
        let path = place(directory.path(), (&before, &journal[..length]));
        let expected = if length >= starts[3] { 3 } else { 2 };
        let store = RedbStore::open(&path, lazy()).unwrap();
        assert_eq!(count(&store), expected, "{length} of {} bytes", journal.len());
    }
}

/// Returns the names of the findings of a check.
fn findings(path: &Path) -> Vec<&'static str> {
    let report = check(path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
    report.damage.iter().map(|finding| finding.name).collect()
}

/// Returns copies of `journal` in which one aligned sector of the frame in `frame` is zeros.
fn without_a_sector(journal: &[u8], frame: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let mut copies = Vec::new();
    for size in [512, 4096] {
        for sector in frame.start / size..frame.end.div_ceil(size) {
            let mut copy = journal.to_vec();
            copy[(sector * size).max(20)..(sector + 1) * size].fill(0);
            copies.push(copy);
        }
    }
    copies
}

/// Returns seals whose frames in the journal have several sectors.
fn long_bundles(count: u64) -> Vec<Made> {
    let mut mote = Mote::new(NAME, false);
    (0..count).map(|epoch| mote.seal_some(Scheme::Star, epoch, 500)).collect()
}

/// Finding A7 of the review.
#[test]
fn an_acknowledged_frame_without_a_sector_is_damage_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (store, journal) = killed(directory.path(), &long_bundles(3));
    let starts = frames(&journal);
    assert!(starts[3] - starts[2] > 1024, "{starts:?}");
    for damaged in without_a_sector(&journal, starts[2]..starts[3]) {
        let path = place(directory.path(), (&store, &damaged));
        assert_eq!(findings(&path), ["JournalDamaged"]);
        assert_eq!(RedbStore::open(&path, lazy()).unwrap_err().name(), "JournalDamaged");
        assert!(fs::read(journal_of(&path)).unwrap() == damaged, "the journal was modified");
    }
    for length in (20..starts[3]).step_by(211).chain([starts[2], starts[3] - 1]) {
        let path = place(directory.path(), (&store, &journal[..length]));
        assert_eq!(
            RedbStore::open(&path, lazy()).unwrap_err().name(),
            "JournalDamaged",
            "the journal ends at byte {length}"
        );
    }
}

/// Finding A7 of the review.
#[test]
fn a_last_frame_without_a_sector_is_a_doubt_after_a_power_loss() {
    let directory = tempfile::tempdir().unwrap();
    let made = long_bundles(3);
    // The power loss undid the newest record of what was acknowledged.
    let (before, _) = killed(directory.path(), &made[..2]);
    let (_, journal) = killed(directory.path(), &made);
    let starts = frames(&journal);
    for damaged in without_a_sector(&journal, starts[2].next_multiple_of(4096)..starts[3]) {
        let path = place(directory.path(), (&before, &damaged));
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        let lost = format!("may have lost {} bytes", starts[3] - starts[2]);
        assert!(
            report.damage.len() == 1
                && report.damage[0].name == "JournalTorn"
                && report.damage[0].what.contains(&lost),
            "{:?}",
            report.damage
        );
        let store = RedbStore::open(&path, lazy()).unwrap();
        assert_eq!((count(&store), store.torn_bytes()), (2, (starts[3] - starts[2]) as u64));
    }
    let path = place(directory.path(), (&before, &journal));
    assert!(findings(&path).is_empty());
    assert_eq!(RedbStore::open(&path, lazy()).unwrap().torn_bytes(), 0);
}

/// Finding A7 of the review.
#[test]
fn a_truncated_store_that_was_not_closed_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (store, journal) = killed(directory.path(), &long_bundles(3));
    for length in (4096..store.len()).step_by(4104).chain([5000, store.len() - 1]) {
        let path = place(directory.path(), (&store[..length], &journal));
        assert!(findings(&path).contains(&"StoreDamaged"), "{length} of {} bytes", store.len());
    }
}

#[test]
fn a_flipped_byte_of_the_journal_is_reported_and_nothing_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let made = bundles(3);
    let (store, journal) = killed(directory.path(), &made);
    let path = place(directory.path(), (&store, &journal));
    drop(RedbStore::open(&path, lazy()).unwrap());
    let applied = fs::read(&path).unwrap();
    let starts = frames(&journal);
    for (at, tables) in (0..starts[3])
        .step_by(5)
        .chain(starts[2]..starts[2] + 20)
        .zip([&store, &applied].into_iter().cycle())
    {
        let mut modified = journal.clone();
        modified[at] ^= 1 << (at % 8);
        let path = place(directory.path(), (tables, &modified));
        let text = RedbStore::open(&path, lazy()).unwrap_err().named().to_string();
        let reported =
            text.starts_with("JournalDamaged: ") || (at < 20 && text.starts_with("NotAJournal: "));
        assert!(reported && text.contains("epochs-journal"), "byte {at}: {text}");
        assert_eq!(
            fs::read(journal_of(&path)).unwrap(),
            modified,
            "the journal must stay as it was"
        );
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        let journal = |name| name == "JournalDamaged" || name == "NotAJournal";
        assert!(report.damage.iter().any(|finding| journal(finding.name)), "byte {at}: {report:?}");
    }
}

#[test]
fn a_journal_without_its_store_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (store, journal) = killed(directory.path(), &bundles(2));
    let path = place(directory.path(), (&store, &journal));
    fs::remove_file(&path).unwrap();
    let text = RedbStore::open(&path, Options::default()).unwrap_err().named().to_string();
    assert!(
        text.starts_with("JournalOrphaned: ")
            && text.contains("epochs-journal")
            && text.contains("restore the store"),
        "{text}"
    );
    assert!(!path.exists() && fs::read(journal_of(&path)).unwrap() == journal);
}

#[test]
fn a_long_journal_is_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("epochs");
    let store =
        RedbStore::open(&path, Options { journal_bytes: 20_000, ..Options::default() }).unwrap();
    let mut mote = Mote::new(NAME, false);
    let mut emptied = 0;
    let mut last = 0;
    for epoch in 0..200 {
        let made = mote.seal_some(Scheme::Star, epoch, 300);
        assert_eq!(store.put(vec![made.bundle.clone()]).unwrap().stored, 1);
        if epoch % 5 == 0 {
            assert_reads_back(&store, &made);
        }
        let length = fs::metadata(journal_of(&path)).unwrap().len();
        emptied += usize::from(length < last);
        last = length;
    }
    assert!(emptied > 5, "emptied {emptied} times");
    drop(store);
    assert_eq!(count(&RedbStore::open(&path, lazy()).unwrap()), 200);
}

/// A read that starts after an acknowledgement returns its data, in any thread and while other
/// threads write.
#[test]
fn other_threads_see_acknowledged_batches_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&directory.path().join("epochs"), lazy()).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..3)
        .map(|i| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            thread::spawn(move || {
                let mut mote = Mote::new(&format!("load {i}"), false);
                for epoch in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    store.put(vec![mote.seal_some(Scheme::Star, epoch, 50).bundle]).unwrap();
                }
            })
        })
        .collect();
    let (announce, received) = mpsc::channel::<Made>();
    let reader = {
        let store = Arc::clone(&store);
        thread::spawn(move || received.iter().map(|made| assert_reads_back(&*store, &made)).count())
    };
    let mut mote = Mote::new(NAME, false);
    for epoch in 0..300 {
        let made = mote.seal_some(
            if epoch % 50 == 7 { Scheme::Tree } else { Scheme::Star },
            epoch,
            if epoch % 40 == 9 { 3000 } else { 9 },
        );
        store.put(vec![made.bundle.clone()]).unwrap();
        announce.send(made).unwrap();
    }
    drop(announce);
    assert_eq!(reader.join().unwrap(), 300);
    stop.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().unwrap());
}

/// If several callers send the same seal at once, exactly one receipt counts it as new. If a device
/// signs two seals under one index, exactly one receipt reports the equivocation.
#[test]
fn receipts_are_exact_under_concurrent_duplicates() {
    const CALLERS: usize = 6;
    let directory = tempfile::tempdir().unwrap();
    let store =
        Arc::new(RedbStore::open(&directory.path().join("epochs"), Options::default()).unwrap());
    let mut mote = Mote::new(NAME, false);
    let (mut made, mut forks) = (Vec::new(), BTreeSet::new());
    for epoch in 0..60u64 {
        let previous = mote.position;
        made.push(mote.seal_some(Scheme::Star, epoch, 5));
        if epoch % 7 == 3 {
            let next = std::mem::replace(&mut mote.position, previous);
            made.push(mote.seal_some(Scheme::Star, epoch, 6));
            forks.insert(SealIndex(epoch as u32));
            mote.position = next;
        }
    }
    let made = Arc::new(made);
    let barrier = Arc::new(Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, made, barrier) =
                (Arc::clone(&store), Arc::clone(&made), Arc::clone(&barrier));
            thread::spawn(move || {
                let mut total = Receipt::default();
                barrier.wait();
                // Each batch overlaps the next one, so that some of its bundles are already known.
                // Callers start at different positions.
                for i in 0..made.len() {
                    let first = (i + caller * (caller % 3)) % made.len();
                    let batch =
                        [first, (first + 1) % made.len(), first].map(|i| made[i].bundle.clone());
                    let receipt = store.put(batch.to_vec()).unwrap();
                    assert_eq!(receipt.stored + receipt.known, 3);
                    let named: BTreeSet<_> = receipt.equivocations.iter().collect();
                    assert_eq!(named.len(), receipt.equivocations.len(), "each index once");
                    let is_in_batch = |(device, index): &(DeviceId, SealIndex)| {
                        batch
                            .iter()
                            .any(|of| (of.key().device, of.key().index) == (*device, *index))
                    };
                    assert!(receipt.equivocations.iter().all(is_in_batch));
                    total.stored += receipt.stored;
                    total.known += receipt.known;
                    total.equivocations.extend(receipt.equivocations);
                }
                total
            })
        })
        .collect();
    let totals: Vec<Receipt> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let stored: u64 = totals.iter().map(|total| total.stored).sum();
    assert_eq!(stored, made.len() as u64, "each seal is counted as new once");
    let named: BTreeSet<SealIndex> =
        totals.iter().flat_map(|total| &total.equivocations).map(|(_, index)| *index).collect();
    assert_eq!(named, forks);
    let again = store.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
    let expected: Vec<_> = forks.into_iter().map(|index| (mote.device(), index)).collect();
    let known = made.len() as u64;
    assert_eq!(again, Receipt { known, equivocations: expected, ..Receipt::default() });
    made.iter().for_each(|made| assert_reads_back(&*store, made));
}

/// A crash while a closed store is opened leaves an incomplete header and no mark.
#[test]
fn a_closed_store_opens_with_a_journal_that_has_an_incomplete_header() {
    let directory = tempfile::tempdir().unwrap();
    let (_, journal) = killed(directory.path(), &bundles(2));
    let path = directory.path().join("epochs");
    drop(RedbStore::open(&path, lazy()).unwrap());
    for length in 0..20 {
        fs::write(journal_of(&path), &journal[..length]).unwrap();
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{length} bytes: {report:?}");
        assert_eq!(count(&RedbStore::open(&path, lazy()).unwrap()), 0, "{length} bytes");
    }
}

/// Finding A6 of the review.
#[test]
fn a_store_that_was_not_closed_does_not_open_without_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let (store, journal) = killed(directory.path(), &bundles(2));
    let shorter_than_a_header = (0..20).map(|length| Some(&journal[..length]));
    for left in iter::once(None).chain(shorter_than_a_header) {
        let path = place(directory.path(), (&store, left.unwrap_or_default()));
        let name = if left.is_none() {
            fs::remove_file(journal_of(&path)).unwrap();
            "JournalMissing"
        } else {
            "JournalDamaged"
        };
        let text = RedbStore::open(&path, lazy()).unwrap_err().named().to_string();
        assert!(
            text.starts_with(&format!("{name}: ")) && text.contains("epochs-journal"),
            "{text}"
        );
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        assert_eq!(report.damage.iter().map(|finding| finding.name).collect::<Vec<_>>(), [name]);
        assert_eq!(journal_of(&path).exists(), left.is_some(), "the error must not create a file");
        assert!(left.is_none() || text.contains("in its header, which is incomplete"), "{text}");
        // Without the journal, the store has what was applied before.
        let discarded = discard_journal(&path).unwrap();
        assert_eq!((discarded.was_needed, discarded.kept.is_some()), (true, left.is_some()));
        assert_eq!(count(&RedbStore::open(&path, lazy()).unwrap()), 0);
    }
    // With its journal, the same store has everything.
    let path = place(directory.path(), (&store, &journal));
    assert_eq!(count(&RedbStore::open(&path, lazy()).unwrap()), 2);
    assert!(!journal_of(&path).exists());
}

/// Finding A6 of the review.
#[test]
fn a_symbolic_link_leads_to_the_journal_and_a_hard_link_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (store, journal) = killed(directory.path(), &bundles(2));
    let path = place(directory.path(), (&store, &journal));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("epochs", &link).unwrap();
    let report = check(&link, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
    assert!(report.is_clean() && report.seals == 2, "{report:?}");
    assert_eq!(count(&RedbStore::open(&link, lazy()).unwrap()), 2);
    assert!(!journal_of(&link).exists() && !journal_of(&path).exists());

    // A journal next to the link may have acknowledged uploads, but does not belong to the store.
    fs::write(journal_of(&link), &journal).unwrap();
    let error = RedbStore::open(&link, lazy()).unwrap_err();
    assert_eq!(error.name(), "JournalMisplaced");
    assert!(error.to_string().contains("link-journal"), "{error}");
    fs::remove_file(journal_of(&link)).unwrap();

    // A hard link cannot be followed to the other name, and with it to the journal.
    let path = place(directory.path(), (&store, &journal));
    let second = directory.path().join("second");
    fs::hard_link(&path, &second).unwrap();
    let error = RedbStore::open(&second, lazy()).unwrap_err();
    assert_eq!(error.name(), "JournalMissing");

    // A link to a store that does not exist is not replaced by a new store.
    let dangling = directory.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert_eq!(RedbStore::open(&dangling, lazy()).unwrap_err().name(), "StoreNotFound");
    assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
}

#[test]
fn a_discarded_journal_is_kept_and_the_store_opens_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let made = bundles(2);
    let (store, journal) = killed(directory.path(), &made);
    for number in 1..3 {
        let path = place(directory.path(), (&store, &journal));
        let DiscardedJournal { was_needed, kept } = discard_journal(&path).unwrap();
        let kept = kept.unwrap();
        assert!(was_needed);
        assert!(kept.ends_with(format!("epochs-journal.discarded-{number}")), "{kept:?}");
        assert_eq!(fs::read(kept).unwrap(), journal);
        let nothing = DiscardedJournal { was_needed: false, kept: None };
        assert_eq!(discard_journal(&path).unwrap(), nothing);
        let store = RedbStore::open(&path, lazy()).unwrap();
        assert_eq!(count(&store), 0);
        assert_eq!(discard_journal(&path).unwrap_err().name(), "StoreLocked");
        assert_eq!(store.put(vec![made[0].bundle.clone()]).unwrap().stored, 1);
    }
}
