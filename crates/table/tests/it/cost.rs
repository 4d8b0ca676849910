//! Measures what bundles and urgent events cost in processor time and on disk. Not a test; run it with
//!
//! ```text
//! cargo test -p moteseal-table --release --locked -- --ignored --nocapture cost::
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use moteseal_core::record::Scheme;
use moteseal_store::conformance::{Made, Mote};
use moteseal_store::{EpochStore, RedbStore, StoredUrgent};

use crate::cassandra::{Cassandra, processor_seconds};
use crate::node::open;

const READINGS: u32 = 298;
const DEVICES: usize = 200;
const EACH: u64 = 40;
const AT_ONCE: usize = 32;

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => bytes_in(&entry.path()),
        metadata => metadata.len(),
    });
    bytes.sum()
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_bundle() {
    // The virtual machine of a server, not the one that starts fast.
    let cassandra = Cassandra::new(&["jvm=-Xms512m -Xmx512m -XX:+UseSerialGC"], None);
    let address = cassandra.address("ready");
    let made: Vec<Vec<Made>> = (0..DEVICES)
        .map(|device| {
            let mut mote = Mote::new(&format!("device {device}"), false);
            (0..EACH).map(|epoch| mote.seal_some(Scheme::Star, epoch, READINGS)).collect()
        })
        .collect();
    let body = made[0][0].bundle.stored_bytes();
    let store = open(&address);
    // The first quarter warms up both processes.
    let (one, many) = (1, EACH as usize * 3 / 8);
    for (epochs, each, what) in [
        (0..EACH / 4, one, "warming up"),
        (EACH / 4..EACH * 5 / 8, one, "one bundle in each put"),
        (EACH * 5 / 8..EACH, many, "15 bundles of a device in each put"),
    ] {
        let (own, nodes) = (processor_seconds("self"), cassandra.seconds());
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let device = next.fetch_add(1, Ordering::Relaxed);
                        let Some(made) = made.get(device) else { break };
                        let made = &made[epochs.start as usize..epochs.end as usize];
                        for made in made.chunks(each) {
                            let batch: Vec<_> =
                                made.iter().map(|made| made.bundle.clone()).collect();
                            assert_eq!(store.put(batch).unwrap().stored, made.len() as u64);
                        }
                    }
                });
            }
        });
        let bundles = (DEVICES as u64 * (epochs.end - epochs.start)) as f64;
        println!(
            "{what}: {bundles} bundles of {READINGS} readings ({body} bytes), {:.0} a second; \
             {:.0} us of processor time of the client and {:.0} us of Cassandra a bundle",
            bundles / started.elapsed().as_secs_f64(),
            (processor_seconds("self") - own) / bundles * 1e6,
            (cassandra.seconds() - nodes) / bundles * 1e6
        );
    }
    drop(store);
    let readings = (DEVICES as u64 * EACH * u64::from(READINGS)) as f64;
    // Cassandra writes its tables to disk when it stops.
    cassandra.drain();
    let table = bytes_in(&cassandra.folder().join("data").join("ready"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epochs.redb");
    let redb = RedbStore::open(&path, moteseal_store::Options::default()).unwrap();
    let own = processor_seconds("self");
    for made in &made {
        redb.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
    }
    drop(redb);
    println!(
        "on disk: {:.2} bytes a reading in Cassandra (one replica), {:.2} in redb ({:.0} us a bundle)",
        table as f64 / readings,
        std::fs::metadata(&path).unwrap().len() as f64 / readings,
        (processor_seconds("self") - own) / (DEVICES as u64 * EACH) as f64 * 1e6
    );
}

/// The events in one put.
const BATCH: usize = 64;
const PUTS: u32 = 100;

#[test]
#[ignore = "a measurement"]
fn cost_of_an_urgent_event() {
    let cassandra = Cassandra::new(&["jvm=-Xms512m -Xmx512m -XX:+UseSerialGC"], None);
    let address = cassandra.address("ready");
    let store = open(&address);
    let motes: Vec<Mote> =
        (0..BATCH).map(|device| Mote::new(&format!("urgent {device}"), false)).collect();
    // The first row warms up both processes.
    for (row, (devices, count, at_once, what)) in (0..).zip([
        (BATCH, BATCH, 1, "warming up"),
        (BATCH, BATCH, 1, "64 devices in each put, one put at a time"),
        (1, BATCH, 1, "one device in each put, one put at a time"),
        (BATCH, BATCH, 2, "64 devices in each put, two puts at a time"),
        (BATCH, 1, 32, "one event in each put, 32 puts at a time"),
    ]) {
        let event = |number: u32| {
            let mote = &motes[number as usize % devices];
            mote.urgent(row * PUTS * BATCH as u32 + number, 1, 0, number)
        };
        let puts: Vec<Vec<StoredUrgent>> = (0..PUTS * if count == 1 { 16 } else { 1 })
            .map(|put| (0..count as u32).map(|i| event(put * count as u32 + i)).collect())
            .collect();
        let (own, nodes) = (processor_seconds("self"), cassandra.seconds());
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some(events) = puts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let receipt = store.put_urgent(events.clone()).unwrap();
                        assert_eq!(receipt.stored, events.len() as u64);
                    }
                });
            }
        });
        let events = (puts.len() * count) as f64;
        println!(
            "{what}: {events} urgent events, {:.0} a second; {:.0} us of processor time of the client and \
             {:.0} us of Cassandra an event",
            events / started.elapsed().as_secs_f64(),
            (processor_seconds("self") - own) / events * 1e6,
            (cassandra.seconds() - nodes) / events * 1e6
        );
    }
}
