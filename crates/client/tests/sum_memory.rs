//! Measures the memory of a querier with many sources: at most 72 bytes per source, including the
//! memory for building and opening. This test is a separate binary, because its global allocator
//! counts every allocation.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "it/sum_support/mod.rs"]
mod sum_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use moteseal_client::sum::{Querier, Question};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_lanes::Host;
use moteseal_sum::engine::Scalar;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{KeyTotals, Master, Psr, Slot};
use sum_support::{Contribution, frame, opened, plan};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed unchanged to the system's allocator; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller guarantees that the layout is valid.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `alloc` returned this pointer for this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EPOCH: u64 = 77;
const GROUP: GroupId = GroupId([1; 8]);
/// One reading in the counts of a first slot (spec/queries.md, section 4.1).
const COUNTED: u128 = 1 << 56;

fn question(key_group: u32, floor: u32) -> Question {
    let plan = plan("SELECT SUM(light) FROM sensors EPOCH DURATION 30s");
    Question {
        group: GROUP,
        roster: Digest([2; 32]),
        nonce: [3; 16],
        plan,
        key_group,
        floor,
        min_count: 1,
        masked: None,
    }
}

fn devices(sources: u32) -> Vec<DeviceId> {
    (0..u64::from(sources)).map(|number| DeviceId(number.to_be_bytes())).collect()
}

/// Returns one share over many sources, and the sum of their values. The value of each source is
/// its position modulo 1000.
fn total(sources: u32, key_group: u32, query: QueryId) -> (Vec<u8>, u128) {
    let master = Master::new(sum_support::MASTER);
    let (mut share, mut sum) =
        (Contribution { participants: (0..sources).collect(), ..Contribution::default() }, 0);
    for (position, device) in (0..sources).zip(devices(sources)) {
        let key = master.source(GROUP, device, position / key_group).for_query(query);
        let mut permit = EpochGuard::default().advance(query, 1000, EPOCH).unwrap();
        let value = u128::from(position % 1000);
        let psr = key.encrypt(&mut permit, Slot(0), COUNTED + value).unwrap();
        let place = share.psrs.entry((position / key_group, 0)).or_insert(Psr::ZERO);
        *place = place.merge(&psr);
        sum += value;
    }
    (frame(query.reference(), EPOCH, &share.participation(sources), &share.records()), sum)
}

#[test]
fn a_querier_needs_at_most_72_bytes_for_each_source() {
    const SOURCES: u32 = 60_000;
    let (key_group, floor) = (SOURCES / 7, SOURCES / 2);
    let question = question(key_group, floor);
    let (bytes, sum) = total(SOURCES, key_group, question.id());
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut querier = {
        let devices = devices(SOURCES);
        Querier::new(question, &Master::new(sum_support::MASTER), &devices, Host::detect(), &|_| ())
            .unwrap()
    };
    let found = querier.open(EPOCH, &opened(&bytes)).expect("an honest sum");
    let most = MOST.load(Ordering::Relaxed) - before;
    assert_eq!(
        found.values()[0].and_then(|value| value.number()?.digits()),
        i128::try_from(sum).ok()
    );
    assert!(most <= 72 * SOURCES as usize, "{} bytes per source", most / SOURCES as usize);
    // The keys alone need 32 bytes per source. A smaller number would mean that the measurement
    // missed them.
    assert!(most >= 32 * SOURCES as usize);
}

#[test]
fn a_key_table_has_the_same_keys_as_the_single_sources() {
    // The key groups begin inside a block of sixteen, are smaller than a block, or are one block.
    for (sources, key_group) in
        [(2, 1), (15, 15), (16, 5), (33, 16), (100, 7), (100, 33), (130, 130)]
    {
        let question = question(key_group, 2);
        let id = question.id();
        let master = Master::new(sum_support::MASTER);
        let (bytes, sum) = total(sources, key_group, id);
        let mut derived = std::sync::Mutex::new(0);
        let progress = |done| *derived.lock().unwrap() += done;
        let mut querier =
            Querier::new(question.clone(), &master, &devices(sources), Scalar, &progress).unwrap();
        let found = querier
            .open(EPOCH, &opened(&bytes))
            .unwrap_or_else(|error| panic!("{sources}/{key_group}: {error}"));
        assert_eq!(
            found.values()[0].and_then(|value| value.number()?.digits()),
            i128::try_from(sum).ok(),
            "{sources}/{key_group}"
        );
        assert_eq!(*derived.get_mut().unwrap(), sources as usize);
        // Open the same sum with the keys of one source at a time.
        let mut one_by_one = 0;
        for group in 0..sources.div_ceil(key_group) {
            let mut totals = KeyTotals::default();
            for (position, device) in (0..sources)
                .zip(devices(sources))
                .filter(|(position, _)| position / key_group == group)
            {
                totals.add(
                    &master.source(GROUP, device, position / key_group).for_query(id),
                    Slot(0),
                    EPOCH,
                );
            }
            let psr = opened(&bytes).psrs.iter().nth(group as usize).unwrap().unwrap();
            one_by_one += totals
                .open(
                    &psr,
                    &master.key_group(GROUP, group).for_query(id),
                    Slot(0),
                    EPOCH,
                    COUNTED + 65_535,
                )
                .unwrap();
        }
        assert_eq!(one_by_one % COUNTED, sum);
        let mut fast =
            Querier::new(question, &master, &devices(sources), Host::detect(), &|_| ()).unwrap();
        assert_eq!(
            fast.open(EPOCH, &opened(&bytes)).map(|found| found.groups().to_vec()),
            Ok(found.groups().to_vec())
        );
    }
}
