//! The same puts lead to the same answers as those of the embedded store.

use std::collections::BTreeSet;

use moteseal_core::record::{DeviceId, EpochNumber, Scheme, SealIndex};
use moteseal_store::conformance::{Made, Mote, assert_reads_back, manifest};
use moteseal_store::{EpochStore, Options, RedbStore, StoredSeal, UrgentLimits};

use crate::node::{open, shared};

/// Makes the seals of three devices. The third one forks its chain, skips indices, and has epochs that do
/// not ascend with its indices. Between some indices there are several partitions.
fn pool() -> Vec<Made> {
    let mut made = Vec::new();
    for name in ["steady", "opaque", "forked"] {
        let mut mote = Mote::new(name, name == "opaque");
        let mut fork = mote.position;
        for i in 0..12u64 {
            let scheme = if i % 4 == 3 { Scheme::Tree } else { Scheme::Star };
            let n = if i == 6 { 3_000 } else { i as u32 * 3 };
            if i % 3 == 2 {
                mote.position.last =
                    mote.position.last.map(|(index, epoch)| (SealIndex(index.0 + 254), epoch));
            }
            made.push(mote.seal_some(scheme, i / 2 * 3, n));
            if i == 6 {
                let whole = made.last().unwrap().clone();
                made.extend([2, 5].map(|round| whole.pruned(round, mote.schema())));
            }
            if i == 4 {
                fork = mote.position;
            }
        }
        if name == "forked" {
            mote.position = fork;
            made.extend([900, 901, 7, 8].map(|epoch| {
                mote.position.last =
                    mote.position.last.map(|(index, _)| (index, EpochNumber(epoch.min(7))));
                mote.seal_some(Scheme::Star, epoch, 5)
            }));
        }
    }
    made
}

/// Returns everything that a read of seals returns, except their bodies.
fn shown(seals: &[StoredSeal]) -> Vec<String> {
    let all = seals.iter().map(|seal| {
        format!("{:?} {:x} {:?} {:?}", seal.key(), seal.kept(), seal.sign1(), seal.explaining())
    });
    all.collect()
}

fn agree(table: &dyn EpochStore, redb: &dyn EpochStore, devices: &BTreeSet<DeviceId>, step: usize) {
    assert_eq!(table.devices(None, 100), redb.devices(None, 100));
    let first = devices.first().copied();
    assert_eq!(table.devices(first, 1), redb.devices(first, 1));
    let equivocations = table.equivocations(None, 100).unwrap();
    assert_eq!(equivocations, redb.equivocations(None, 100).unwrap());
    let place = equivocations.first().map(|first| (first.device, first.index));
    assert_eq!(table.equivocations(place, 1), redb.equivocations(place, 1));
    for &device in devices {
        for index in
            [0, 1, 3, 4, 5, 6, 255, 256, 257, 258, 512, 513, 800, 1100].into_iter().step_by(step)
        {
            let index = SealIndex(index);
            assert_eq!(
                shown(&table.seals(device, index, 4).unwrap()),
                shown(&redb.seals(device, index, 4).unwrap())
            );
            assert_eq!(
                shown(&table.seals_at(device, index).unwrap()),
                shown(&redb.seals_at(device, index).unwrap())
            );
        }
        for epoch in [0, 1, 3, 7, 8, 9, 12, 15, 16, 900, 901, 902].into_iter().step_by(step) {
            let (found, expected) = (
                table.seals_since(device, EpochNumber(epoch), 3).unwrap(),
                redb.seals_since(device, EpochNumber(epoch), 3).unwrap(),
            );
            assert_eq!(shown(&found), shown(&expected), "epoch {epoch}");
        }
    }
}

/// A generator of Marsaglia's xorshift family; the tests need no better one.
pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn any_order_of_batches_agrees_with_the_embedded_store() {
    let cassandra = shared();
    let pool = pool();
    let devices: BTreeSet<DeviceId> = pool.iter().map(|made| made.statement.device).collect();
    for seed in 1..=3u64 {
        let address = cassandra.keyspace();
        let folder = tempfile::tempdir().unwrap();
        let redb = RedbStore::open(&folder.path().join("epochs"), Options::default()).unwrap();
        let mut table = open(&address);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for round in 0..14 {
            let size = random(&mut state) % 6;
            let batch: Vec<usize> =
                (0..size).map(|_| random(&mut state) as usize % pool.len()).collect();
            let bundles = || batch.iter().map(|&at| pool[at].bundle.clone()).collect::<Vec<_>>();
            let (mut found, mut expected) =
                (table.put(bundles()).unwrap(), redb.put(bundles()).unwrap());
            found.equivocations.sort_unstable();
            expected.equivocations.sort_unstable();
            assert_eq!(found, expected, "seed {seed}, batch {round} {batch:?}");
            if round % 5 == 4 {
                drop(table);
                table = open(&address);
            }
            agree(&table, &redb, &devices, 5);
        }
        let rest = || pool.iter().map(|made| made.bundle.clone()).collect::<Vec<_>>();
        assert_eq!(table.put(rest()).unwrap().stored, redb.put(rest()).unwrap().stored);
        agree(&table, &redb, &devices, 1);
        for made in &pool {
            let same = pool.iter().filter(|other| other.bundle.key() == made.bundle.key());
            let fullest = same.max_by_key(|made| made.bundle.kept().count_ones()).unwrap();
            assert_reads_back(&table, fullest);
        }
    }
}

#[test]
fn manifests_and_urgent_events_agree_with_the_embedded_store() {
    let cassandra = shared();
    let folder = tempfile::tempdir().unwrap();
    let redb = RedbStore::open(&folder.path().join("epochs"), Options::default()).unwrap();
    let table = open(&cassandra.keyspace());
    let mut mote = Mote::new("source", false);
    let seals: Vec<Made> = (0..400).map(|epoch| mote.seal_some(Scheme::Star, epoch, 1)).collect();
    let all: Vec<&Made> = seals.iter().collect();
    let mut manifests: Vec<_> = [0, 63, 64, 65, 1_000, u64::MAX]
        .map(|epoch| manifest(epoch, 1, &all[..3]))
        .into_iter()
        .collect();
    // A manifest in several pieces, and a second one of an epoch.
    let motes: Vec<Made> = (0..2_500)
        .map(|i| Mote::new(&format!("m{i}"), false).seal_some(Scheme::Star, 9, 0))
        .collect();
    manifests.push(manifest(64, 2, &motes.iter().collect::<Vec<_>>()));
    assert!(manifests.last().unwrap().bytes().len() > 64 << 10);
    let events: Vec<_> = (0..30).map(|i| mote.urgent(i % 7, 5, u64::from(i), i)).collect();
    for store in [&table as &dyn EpochStore, &redb] {
        store.put_manifests(manifests.clone()).unwrap();
        store.put_urgent(events.clone()).unwrap();
        store.put_urgent(events[..7].to_vec()).unwrap();
    }
    for since in [0, 1, 64, 65, 66, 2_000, u64::MAX] {
        for until in [None, Some(64), Some(65), Some(1_000)] {
            for limit in [0, 1, 3, 10] {
                let (since, until) = (EpochNumber(since), until.map(EpochNumber));
                let read = |store: &dyn EpochStore| store.manifests(since, until, None, limit);
                assert!(read(&table) == read(&redb), "since {since:?} until {until:?}");
            }
        }
    }
    let limits = UrgentLimits { read: 7, events: 5, bytes: 1 << 20 };
    let mut after = None;
    loop {
        let read =
            |store: &dyn EpochStore| store.urgent(after, limits, &|_, epoch| epoch.0 == 5).unwrap();
        let page = read(&table);
        assert_eq!(page, read(&redb));
        after = page.last.or(after);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(table.urgent_bytes(mote.device()), redb.urgent_bytes(mote.device()));
}
