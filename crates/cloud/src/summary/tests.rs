//! When the whole store is read, and which fingerprints are used meanwhile. Times are arguments.
#![allow(clippy::unwrap_used)]

use moteseal_core::record::Scheme::Star;
use moteseal_store::conformance::Mote;
use moteseal_store::{Options, RedbStore};

use super::*;

struct Bed {
    store: RedbStore,
    of: Arc<Summaries>,
    /// The time at which the test starts.
    start: Instant,
    _directory: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&directory.path().join("s.redb"), Options::default()).unwrap();
        Self {
            store,
            of: Arc::new(Summaries::new(1 << 22)),
            start: Instant::now(),
            _directory: directory,
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    /// Plans a request to a store to which others write.
    fn plan(&self, seconds: u64, fresh: Option<&str>) -> Plan {
        self.of.plan(true, fresh, self.at(seconds)).unwrap()
    }

    /// Reads the whole store until a time.
    fn run(&self, reading: Reading, until: u64) {
        reading.run(&self.store, || self.at(until)).unwrap();
    }

    /// Reads the whole store for the first time, in no time.
    fn first(&self) {
        self.run(self.plan(0, None).reading.unwrap(), 0);
    }

    /// Stores a seal as another process does.
    fn put(&self, mote: &mut Mote, epoch: u64) -> Bundle {
        let bundle = mote.seal_some(Star, epoch, 3).bundle;
        self.store.put(vec![bundle.clone()]).unwrap();
        bundle
    }

    /// Stores a seal as this process does.
    fn upload(&self, mote: &mut Mote, epoch: u64) {
        let bundle = self.put(mote, epoch);
        let mut mark = Mark::of_bundles(&self.of, &[bundle]);
        mark.replied(&Ok(Receipt { stored: 1, ..Receipt::default() }));
    }

    /// Returns the number of seals in the summary.
    fn seals(&self) -> u64 {
        self.of.refresh(&self.store).unwrap();
        self.of.totals().seals.count
    }
}

#[test]
fn the_pause_between_readings_counts_from_the_end_and_grows_with_the_duration() {
    let bed = Bed::new();
    let plan = bed.plan(0, None);
    assert!(!plan.is_ready);
    // A reading that takes longer than the shortest pause.
    bed.run(plan.reading.unwrap(), 1000);
    for seconds in [1000, 1301, 10_999] {
        let plan = bed.plan(seconds, None);
        assert!(plan.is_ready && plan.reading.is_none(), "after {seconds} s");
    }
    let plan = bed.plan(11_000, None);
    assert!(plan.is_ready);
    bed.run(plan.reading.unwrap(), 11_001);
    assert!(bed.plan(11_300, None).reading.is_none());
    assert!(bed.plan(11_301, None).reading.is_some());
}

#[test]
fn a_store_without_other_writers_is_read_once() {
    let bed = Bed::new();
    bed.run(bed.of.plan(false, Some("a"), bed.at(0)).unwrap().reading.unwrap(), 1);
    for fresh in [None, Some("a"), Some("b")] {
        let plan = bed.of.plan(false, fresh, bed.at(1_000_000)).unwrap();
        assert!(plan.is_ready && plan.reading.is_none());
    }
}

#[test]
fn the_previous_fingerprints_are_used_while_the_store_is_read_again() {
    let bed = Bed::new();
    let (mut one, mut two) = (Mote::new("one", false), Mote::new("two", false));
    bed.put(&mut one, 1);
    bed.first();
    bed.put(&mut two, 1);
    let reading = bed.plan(300, None).reading.unwrap();
    let plan = bed.plan(301, None);
    assert!(plan.is_ready && plan.reading.is_none(), "one reading at a time");
    assert_eq!(bed.seals(), 1);
    bed.upload(&mut one, 2);
    assert_eq!(bed.seals(), 2, "what this process stored is always part of the summary");
    bed.run(reading, 302);
    assert_eq!(bed.seals(), 3);
}

#[test]
fn an_upload_that_a_reading_missed_stays_in_the_summary() {
    let bed = Bed::new();
    let mut mote = Mote::new("one", false);
    bed.first();
    let reading = bed.plan(300, None).reading.unwrap();
    let kept = read_all(&bed.store, 1 << 22);
    bed.upload(&mut mote, 1);
    assert_eq!(bed.seals(), 1);
    reading.end(&bed.store, kept, bed.at(301)).unwrap();
    assert_eq!(bed.of.totals().seals.count, 1);
    assert_eq!(bed.seals(), 1);
}

#[test]
fn a_token_demands_a_reading_that_began_after_its_first_request() {
    let bed = Bed::new();
    bed.first();
    // A reading is in progress when the token is used first, so it does not suffice.
    let earlier = bed.plan(300, None).reading.unwrap();
    let plan = bed.plan(301, Some("a"));
    assert!(!plan.is_ready && plan.reading.is_none());
    bed.run(earlier, 310);
    let plan = bed.plan(310, Some("a"));
    assert!(!plan.is_ready);
    assert!(bed.plan(311, None).is_ready, "other requests do not wait");
    bed.run(plan.reading.unwrap(), 320);
    for seconds in [320, 400] {
        let plan = bed.plan(seconds, Some("a"));
        assert!(plan.is_ready && plan.reading.is_none(), "after {seconds} s");
    }
    let plan = bed.plan(401, Some("b"));
    assert!(!plan.is_ready && plan.reading.is_some());
}

#[test]
fn a_failed_reading_is_reported_and_repeated_after_the_pause() {
    let bed = Bed::new();
    let mut ends = bed.of.ends();
    drop(bed.plan(0, None).reading.unwrap());
    let ended = ends.borrow_and_update().clone().unwrap();
    assert!(matches!(ended.result, Err(NoSummary::Interrupted)));
    assert!(matches!(bed.of.refresh(&bed.store), Err(NoSummary::Interrupted)));
    bed.first();
    let reading = bed.plan(300, None).reading.unwrap();
    let failed = Err(ReadError::Closed.into());
    assert!(reading.end(&bed.store, failed, bed.at(330)).is_err());
    assert!(ends.has_changed().unwrap());
    assert_eq!(bed.seals(), 0, "the previous fingerprints are used");
    assert!(bed.plan(629, None).reading.is_none());
    assert!(bed.plan(630, None).reading.is_some());
}
