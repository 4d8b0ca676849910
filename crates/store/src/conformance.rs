//! The test suite that every [`EpochStore`] has to pass. It tests the promises of the trait with
//! real seals.
//!
//! The tests of a store call [`run`] with a function that opens a store by name. If the function is
//! called again with the same name after the earlier handle was dropped, it must open the same
//! store.

mod coordinator;
mod coordinator_key;
pub mod mote;
mod urgent;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_seal::Position;

pub use coordinator::manifest;
pub use mote::{LEVELS, Made, Mote, Motes};

use crate::epochs::{EpochStore, Equivocation, Receipt};
use crate::manifest::StoredManifest;
use crate::tiles::TreePart;

/// A function that opens the store with this name, or creates it if it does not exist.
pub type Open<'o> = &'o dyn Fn(&str) -> Arc<dyn EpochStore>;

/// Runs the whole suite.
///
/// # Panics
/// If the store breaks a promise. The message states which promise.
pub fn run(open: Open<'_>) {
    an_empty_store_has_nothing(open);
    bundles_read_back(open);
    putting_again_changes_nothing(open);
    two_seals_of_one_index_are_both_kept(open);
    ranges_of_indices_and_epochs_are_found(open);
    seals_in_any_order_are_found(open);
    devices_are_listed_with_their_newest_seal(open);
    concurrent_callers_each_get_one_reply(open);
    acknowledged_bundles_survive_reopening(open);
    manifests_are_kept_by_epoch_and_digest(open);
    pruned_seals_read_back(open);
    the_upload_with_the_most_levels_is_kept(open);
    urgent::events_are_kept_in_their_order(open);
}

#[allow(clippy::expect_used)]
fn put(store: &dyn EpochStore, made: &[&Made]) -> Receipt {
    store
        .put(made.iter().map(|made| made.bundle.clone()).collect())
        .expect("the store accepts the batch")
}

/// Asserts that the store returns a seal as it was put: its head, every event, and samples with
/// their proofs.
///
/// # Panics
/// If the store returns anything else.
#[allow(clippy::expect_used, clippy::missing_panics_doc)]
pub fn assert_reads_back(store: &dyn EpochStore, made: &Made) {
    let key = made.bundle.key();
    let found = store.seals_at(key.device, key.index).expect("the seals of an index are read");
    let seal = found.iter().find(|seal| seal.key() == key).expect("the seal is stored");
    assert_eq!(seal.seal().statement(), &made.statement);
    assert_eq!(seal.seal().digest(), key.digest);
    let schema = store.schema(&made.statement.schema).expect("the schema is read");
    assert_eq!(schema.as_ref(), Some(&made.bundle.schema().bytes), "the schema");
    match made.statement.scheme {
        Scheme::Star => {
            for mask in [u32::MAX, 0, 1, 0b10, 0xfff8, 0b1010_1010, 0xfffe] {
                assert_eq!(
                    store.star_blocks(seal, mask).expect("blocks are read"),
                    made.blocks(mask),
                    "levels {mask:#b}"
                );
            }
            assert_eq!(store.events(seal).expect("the events are read"), made.blocks(u32::MAX));
            assert_eq!(seal.kept(), made.bundle.kept());
            for mask in [u32::MAX, 0, 1, 0b10, 0xfff8, 0b1010_1010_0000_0000]
                .map(|mask| mask & made.bundle.kept())
            {
                assert_eq!(
                    seal.evidence(mask),
                    made.evidence(mask),
                    "the evidence of the levels {mask:#b}"
                );
            }
        }
        Scheme::Tree => {
            let (kept, leaves) = (made.kept(made.bundle.kept()), made.leaves());
            let framed = |selected: &[Sequence]| {
                made.framed(|seq| selected.binary_search(&Sequence(seq)).is_ok())
            };
            assert_eq!(seal.kept(), made.bundle.kept());
            assert_eq!(store.events(seal).expect("the events are read"), framed(&kept));
            let expected =
                TreePart { records: framed(&kept), siblings: mote::multiproof(&leaves, &kept) };
            assert!(
                store.kept_part(seal).expect("the kept part is read") == expected,
                "the kept part"
            );
            for step in [1, 2, 7, 255, 256, 257, 1000, 70_000] {
                let mut selected: Vec<Sequence> =
                    kept.iter().copied().step_by(step).chain(kept.last().copied()).collect();
                selected.dedup();
                let part = store.tree_part(seal, &selected).expect("a part of a tree is read");
                let expected = TreePart {
                    records: framed(&selected),
                    siblings: mote::multiproof(&leaves, &selected),
                };
                assert!(
                    part == expected,
                    "every {step}th of {} of {} records",
                    kept.len(),
                    made.records.len()
                );
            }
            for mask in [0, 1, 0b10, 0xfff8, 0b1010_1010_0000_0000, 1 << (LEVELS - 1)]
                .map(|mask| mask & made.bundle.kept())
            {
                let selected = made.kept(mask);
                let part = store.tree_part(seal, &selected).expect("levels of a tree are read");
                let expected = TreePart {
                    records: framed(&selected),
                    siblings: mote::multiproof(&leaves, &selected),
                };
                assert!(part == expected, "the levels {mask:#b} of {} records", made.records.len());
            }
            let lost = (0..made.records.len() as u64)
                .map(Sequence)
                .find(|seq| kept.binary_search(seq).is_err());
            if let Some(lost) = lost {
                assert!(
                    store.tree_part(seal, &[lost]).is_err(),
                    "a record that is not kept must not be returned"
                );
            }
        }
    }
}

#[allow(clippy::expect_used)]
fn an_empty_store_has_nothing(open: Open<'_>) {
    let store = open("empty");
    let device = Mote::new("nobody", false).device();
    assert_eq!(store.devices(None, 10).expect("a list"), []);
    assert!(store.seals(device, SealIndex(0), 10).expect("a list").is_empty());
    assert!(store.seals_since(device, EpochNumber(0), 10).expect("a list").is_empty());
    assert_eq!(store.schema(&Digest::NULL).expect("an answer"), None);
    assert_eq!(store.equivocations(None, 10).expect("a list"), []);
    assert_eq!(store.manifests(EpochNumber(0), None, None, 10).expect("a list"), []);
    assert_eq!(store.put(Vec::new()).expect("an empty batch is accepted"), Receipt::default());
}

fn bundles_read_back(open: Open<'_>) {
    let store = open("shapes");
    for (name, kind) in KINDS {
        let mut mote = kind(name);
        for scheme in [Scheme::Star, Scheme::Tree] {
            mote.position.last = Some((SealIndex(scheme as u32 * 100), EpochNumber(0)));
            // The sizes of tiles and pieces do not depend on groups.
            let sizes = [0, 1, 2, 100, 255, 256, 257, 1_000, 5_000, 70_000];
            let most = if mote.has_groups() { 5_000 } else { 70_000 };
            for n in sizes.into_iter().filter(|n| *n <= most) {
                mote.round = u8::from(n == 1_000) * 2;
                let made = mote.seal_some(scheme, 1 + u64::from(n), n);
                assert_eq!(put(&*store, &[&made]), Receipt { stored: 1, ..Receipt::default() });
                assert_reads_back(&*store, &made);
            }
        }
    }
}

/// The name of a kind of devices, and the function that makes a device with a name.
type Kind = (&'static str, fn(&str) -> Mote);

/// Devices with records of fixed and of variable size, without and with column groups.
const KINDS: [Kind; 4] = [
    ("fixed", |name| Mote::new(name, false)),
    ("opaque", |name| Mote::new(name, true)),
    ("grouped", |name| Mote::grouped(name, false)),
    ("texts", |name| Mote::grouped(name, true)),
];

fn putting_again_changes_nothing(open: Open<'_>) {
    let store = open("idempotent");
    let mut mote = Mote::new("again", false);
    let made: Vec<Made> = (0..4).map(|epoch| mote.seal_some(Scheme::Star, epoch, 300)).collect();
    let all: Vec<&Made> = made.iter().collect();
    assert_eq!(put(&*store, &all[..2]), Receipt { stored: 2, ..Receipt::default() });
    assert_eq!(put(&*store, &all), Receipt { stored: 2, known: 2, ..Receipt::default() });
    assert_eq!(put(&*store, &[all[1], all[1]]), Receipt { known: 2, ..Receipt::default() });
    made.iter().for_each(|made| assert_reads_back(&*store, made));
}

#[allow(clippy::expect_used)]
fn two_seals_of_one_index_are_both_kept(open: Open<'_>) {
    let store = open("equivocation");
    let mut mote = Mote::new("twin", false);
    let first = mote.seal_some(Scheme::Star, 1, 100);
    let fork = mote.position;
    let (one, later) = (mote.seal_some(Scheme::Star, 2, 100), mote.seal_some(Scheme::Star, 3, 100));
    mote.position = fork;
    let other = mote.seal_some(Scheme::Star, 9, 50);
    put(&*store, &[&first, &one, &later]);
    assert_eq!(store.equivocations(None, 10).expect("a list"), []);
    let receipt = put(&*store, &[&other]);
    let place = (mote.device(), SealIndex(1));
    assert_eq!(receipt, Receipt { stored: 1, equivocations: vec![place], ..Receipt::default() });
    let mut digests = vec![one.bundle.key().digest, other.bundle.key().digest];
    digests.sort_unstable();
    let expected = Equivocation { device: place.0, index: place.1, digests };
    assert_eq!(store.equivocations(None, 10).expect("a list"), [expected]);
    assert_eq!(store.equivocations(Some(place), 10).expect("a list"), []);
    // A receipt may be lost, so the next one states the conflict, too.
    let receipt = put(&*store, &[&first, &other, &one]);
    assert_eq!(receipt, Receipt { known: 3, equivocations: vec![place], ..Receipt::default() });
    for made in [&first, &one, &later, &other] {
        assert_reads_back(&*store, made);
    }
    // Seals after the equivocation are still found by epoch.
    let found = store.seals_since(mote.device(), EpochNumber(3), 10).expect("a list");
    assert!(
        found.iter().any(|seal| seal.key() == later.bundle.key()),
        "a seal after a fork is found by its epoch"
    );
}

#[allow(clippy::expect_used)]
fn ranges_of_indices_and_epochs_are_found(open: Open<'_>) {
    let store = open("ranges");
    let mut mote = Mote::new("ranger", false);
    let mut made = Vec::new();
    for i in 0..200u32 {
        if i % 50 == 49 {
            // Skip some indices.
            let Position { last: Some((index, epoch)), .. } = mote.position else { continue };
            mote.position.last = Some((SealIndex(index.0 + i), epoch));
        }
        // Some epochs have several seals, and others have none.
        made.push(mote.seal_some(Scheme::Star, u64::from(i / 3 * 2 + i / 100 * 1000), 3));
    }
    // Other devices with neighbouring keys, which must not appear in the results.
    let mut others = [Mote::new("a", false), Mote::new("b", false), Mote::new("c", false)];
    let unrelated: Vec<Made> =
        others.iter_mut().map(|mote| mote.seal_some(Scheme::Star, 77, 3)).collect();
    put(&*store, &unrelated.iter().collect::<Vec<_>>());
    put(&*store, &made.iter().collect::<Vec<_>>());
    for since in (0..150).chain(1100..1140).chain([u64::MAX]) {
        let expected: Vec<_> = made
            .iter()
            .filter(|made| made.statement.epoch.0 >= since)
            .take(7)
            .map(|made| made.bundle.key())
            .collect();
        let found = store.seals_since(mote.device(), EpochNumber(since), 7).expect("a list");
        assert_eq!(
            found.iter().map(|seal| seal.key()).collect::<Vec<_>>(),
            expected,
            "from epoch {since}"
        );
    }
    for from in [0, 1, 48, 49, 60, 199, 100_000, u32::MAX] {
        let expected: Vec<_> = made
            .iter()
            .filter(|made| made.statement.index.0 >= from)
            .take(9)
            .map(|made| made.bundle.key())
            .collect();
        let found = store.seals(mote.device(), SealIndex(from), 9).expect("a list");
        assert_eq!(
            found.iter().map(|seal| seal.key()).collect::<Vec<_>>(),
            expected,
            "from index {from}"
        );
    }
}

#[allow(clippy::expect_used)]
fn seals_in_any_order_are_found(open: Open<'_>) {
    let store = open("disorder");
    let mut mote = Mote::new("scrambled", false);
    let made: Vec<Made> = (0..64).map(|epoch| mote.seal_some(Scheme::Star, epoch * 5, 4)).collect();
    // Puts every seal once, out of order, because 23 and 64 have no common divisor.
    for i in 0..64 {
        assert_eq!(put(&*store, &[&made[i * 23 % 64]]).stored, 1);
    }
    for (i, expected) in made.iter().enumerate() {
        let since = EpochNumber(i as u64 * 5);
        let found = store.seals_since(mote.device(), since, 1).expect("a list");
        assert_eq!(found.first().map(|seal| seal.key()), Some(expected.bundle.key()));
    }
    assert_eq!(store.equivocations(None, 10).expect("a list"), []);
}

#[allow(clippy::expect_used)]
fn devices_are_listed_with_their_newest_seal(open: Open<'_>) {
    let store = open("devices");
    let mut expected = Vec::new();
    for i in 0..20 {
        let mut mote = Mote::new(&format!("device {i}"), false);
        let made: Vec<Made> =
            (0..=i % 3).map(|epoch| mote.seal_some(Scheme::Star, epoch, 2)).collect();
        put(&*store, &made.iter().collect::<Vec<_>>());
        expected.extend(made.last().map(|made| (made.bundle.key(), made.bundle.epoch())));
    }
    expected.sort_unstable();
    let mut found = Vec::new();
    loop {
        let after = found.last().map(|(key, _): &(crate::SealKey, _)| key.device);
        let heads = store.devices(after, 7).expect("a list");
        assert!(heads.len() <= 7);
        if heads.is_empty() {
            break;
        }
        found.extend(heads.iter().map(|head| (head.key, head.epoch)));
    }
    assert_eq!(found, expected);
}

#[allow(clippy::expect_used)]
fn concurrent_callers_each_get_one_reply(open: Open<'_>) {
    const CALLERS: usize = 8;
    const EACH: u64 = 40;
    let store = open("callers");
    let barrier = Arc::new(Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, barrier) = (Arc::clone(&store), Arc::clone(&barrier));
            thread::spawn(move || {
                let mut mote = Mote::new(&format!("caller {caller}"), false);
                let made: Vec<Made> =
                    (0..EACH).map(|epoch| mote.seal_some(Scheme::Star, epoch, 20)).collect();
                barrier.wait();
                for made in &made {
                    assert_eq!(put(&*store, &[made]).stored, 1);
                    // A read that starts after the acknowledgement returns the seal.
                    assert_reads_back(&*store, made);
                }
                made
            })
        })
        .collect();
    let made: Vec<Made> =
        callers.into_iter().flat_map(|caller| caller.join().expect("no caller panics")).collect();
    made.iter().for_each(|made| assert_reads_back(&*store, made));

    // Submit without waiting for replies. There is one reply per batch, and it counts the bundle as
    // known.
    let (send, receive) = mpsc::channel();
    let replies = Arc::new(AtomicUsize::new(0));
    for made in &made {
        let (send, replies) = (send.clone(), Arc::clone(&replies));
        let reply = move |result: Result<Receipt, _>| {
            replies.fetch_add(1, Ordering::Relaxed);
            let _ = send.send(result.map(|receipt| receipt.known));
        };
        store
            .submit(vec![made.bundle.clone()], Box::new(reply))
            .expect("the queue has room for 320 small bundles");
    }
    drop(send);
    let known: u64 = receive.iter().map(|known| known.expect("an answer")).sum();
    assert_eq!((known, replies.load(Ordering::Relaxed)), (made.len() as u64, made.len()));
}

#[allow(clippy::expect_used)]
fn acknowledged_bundles_survive_reopening(open: Open<'_>) {
    let mut mote = Mote::new("lasting", false);
    let mut made = Vec::new();
    for round in 0..3 {
        let store = open("lasting");
        made.iter().for_each(|made| assert_reads_back(&*store, made));
        for i in 0..5 {
            let scheme = if i % 2 == 0 { Scheme::Star } else { Scheme::Tree };
            made.push(mote.seal_some(scheme, round * 5 + i, 100 * (1 + round as u32 * 30)));
            put(&*store, &[made.last().expect("one was just made")]);
        }
    }
    let store = open("lasting");
    made.iter().for_each(|made| assert_reads_back(&*store, made));
    assert_eq!(put(&*store, &made.iter().collect::<Vec<_>>()).known, made.len() as u64);
}

#[allow(clippy::expect_used)]
fn manifests_are_kept_by_epoch_and_digest(open: Open<'_>) {
    let mut mote = Mote::new("budgeted", false);
    let seals: Vec<Made> = (0..6).map(|epoch| mote.seal_some(Scheme::Star, epoch, 50)).collect();
    let mut made: Vec<StoredManifest> =
        (0..6).map(|epoch| manifest(epoch, 2, &[&seals[epoch as usize]])).collect();
    // Add a manifest that is several pages long, and a second manifest for epoch 3.
    let many: Vec<Made> = (0..300)
        .map(|i| Mote::new(&format!("mote {i}"), false).seal_some(Scheme::Star, 9, 1))
        .collect();
    made.push(manifest(9, 4, &many.iter().collect::<Vec<_>>()));
    let other = manifest(3, 3, &[&seals[3]]);
    {
        let store = open("manifests");
        let put = |manifests: &[StoredManifest]| {
            store.put_manifests(manifests.to_vec()).expect("the store accepts manifests")
        };
        // Put manifests out of order, and one of them twice.
        assert_eq!(put(&made[3..]), Receipt { stored: 4, ..Receipt::default() });
        assert_eq!(put(&made[..4]), Receipt { stored: 3, known: 1, ..Receipt::default() });
        let doubled = vec![EpochNumber(3)];
        assert_eq!(
            put(std::slice::from_ref(&other)),
            Receipt { stored: 1, doubled, ..Receipt::default() }
        );
        assert_eq!(
            put(&[other.clone(), made[3].clone(), made[4].clone()]),
            Receipt { known: 3, doubled: vec![EpochNumber(3)], ..Receipt::default() }
        );
    }
    made.push(other);
    made.sort_by_key(StoredManifest::key);
    let store = open("manifests");
    for since in [0, 1, 3, 4, 6, 9, 10, u64::MAX] {
        for until in [None, Some(0), Some(3), Some(4), Some(9), Some(10)] {
            for after in [None, Some(made[2].key()), Some(made[3].key()), Some(made[6].key())] {
                let expected = made.iter().filter(|manifest| {
                    let epoch = manifest.epoch().0;
                    epoch >= since
                        && until.is_none_or(|until| epoch < until)
                        && after.is_none_or(|after| manifest.key() > after)
                });
                let expected: Vec<StoredManifest> = expected.take(3).cloned().collect();
                let found = store
                    .manifests(EpochNumber(since), until.map(EpochNumber), after, 3)
                    .expect("a list");
                assert_eq!(found, expected, "from {since} until {until:?} after {after:?}");
            }
        }
    }
}

fn pruned_seals_read_back(open: Open<'_>) {
    let mut all = Vec::new();
    {
        let store = open("pruned");
        for (name, kind) in KINDS {
            let mut mote = kind(&format!("pruned {name}"));
            let most = if mote.has_groups() { 5_000 } else { 40_000 };
            let sizes = [(1, 1), (2, 7), (3, 300), (4, 5_000), (5, 40_000)];
            for (epoch, n) in sizes.into_iter().filter(|(_, n)| *n <= most) {
                for (round, scheme) in [1, 3, 6, LEVELS]
                    .into_iter()
                    .flat_map(|round| [(round, Scheme::Star), (round, Scheme::Tree)])
                {
                    mote.round = u8::from(n == 300) * 2;
                    let whole = mote.seal_some(scheme, epoch, n);
                    let lacking = whole.statement.surviving() & ((1u32 << round) - 1);
                    let made =
                        if lacking == 0 { whole } else { whole.pruned(round, mote.schema()) };
                    assert_eq!(put(&*store, &[&made]), Receipt { stored: 1, ..Receipt::default() });
                    assert_reads_back(&*store, &made);
                    all.push(made);
                }
            }
        }
    }
    let store = open("pruned");
    all.iter().for_each(|made| assert_reads_back(&*store, made));
}

fn the_upload_with_the_most_levels_is_kept(open: Open<'_>) {
    let of_kind = |kind| [(kind, Scheme::Star), (kind, Scheme::Tree)];
    for ((kind_name, kind), scheme) in KINDS.into_iter().flat_map(of_kind) {
        // Large seals are in several pieces. Two kinds are enough to test that.
        let is_grouped = matches!(kind_name, "grouped" | "texts");
        let sizes = if is_grouped { &[40, 1_500][..] } else { &[40, 1_500, 60_000] };
        for &n in sizes {
            let name = format!("levels of {n}, {kind_name}, {}", scheme.as_str());
            let mut mote = kind(&name);
            let (whole, later) = (mote.seal_some(scheme, 1, n), mote.seal_some(scheme, 2, n));
            let of = |round: u8| {
                if round == 0 { whole.clone() } else { whole.pruned(round, mote.schema()) }
            };
            let mut best = None;
            for round in [LEVELS, 2, 4, 2, 1, 1, 3, 0, 2, 0] {
                let store = open(&name);
                let made = of(round);
                let adds = best.is_none_or(|best: u8| round < best);
                let expected = if adds {
                    Receipt { stored: 1, ..Receipt::default() }
                } else {
                    Receipt { known: 1, ..Receipt::default() }
                };
                assert_eq!(put(&*store, &[&made]), expected, "levels from {round} on, of {n}");
                best = Some(best.map_or(round, |best: u8| best.min(round)));
                assert_reads_back(&*store, &of(best.unwrap_or(0)));
                if round == 4 {
                    put(&*store, &[&later]);
                }
            }
            // Two seals under one index can also be in one batch.
            let mut mote = kind(&format!("{name}, at once"));
            let whole = mote.seal_some(scheme, 1, n);
            let fewer = whole.pruned(2, mote.schema());
            let store = open(&name);
            assert_eq!(
                put(&*store, &[&fewer, &whole, &fewer]),
                Receipt { stored: 2, known: 1, ..Receipt::default() }
            );
            assert_reads_back(&*store, &whole);
        }
    }
}
