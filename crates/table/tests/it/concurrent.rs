//! Several processes use one keyspace at the same time, and are killed at any moment.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use moteseal_core::record::{Scheme, SealIndex, Sequence};
use moteseal_store::conformance::{Made, Mote, assert_reads_back};
use moteseal_store::{EpochStore, StoredUrgent, UrgentKey, UrgentLimits, UrgentPlace};
use moteseal_table::Address;

use crate::equal::random;
use crate::node::{open, shared};

#[test]
fn stores_that_put_overlapping_bundles_agree() {
    const SEALS: u64 = 24;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address), open(&address)];
    let mut mote = Mote::new("shared", false);
    let made: Vec<Made> = (0..SEALS)
        .map(|epoch| {
            let scheme = if epoch % 3 == 0 { Scheme::Tree } else { Scheme::Star };
            mote.seal_some(scheme, epoch, if epoch == 7 { 20_000 } else { 40 })
        })
        .collect();
    let pruned = made[7].pruned(3, mote.schema());
    let receipts: Vec<_> = thread::scope(|scope| {
        let putting = (0..6).map(|writer: usize| {
            let (store, made, pruned) = (&stores[writer % 3], &made, &pruned);
            scope.spawn(move || {
                let mut state = writer as u64 + 77;
                let mut stored = 0;
                for _ in 0..12 {
                    let mut batch: Vec<_> = (0..random(&mut state) % 5)
                        .map(|_| made[random(&mut state) as usize % made.len()].bundle.clone())
                        .collect();
                    batch.push(pruned.bundle.clone());
                    stored += store.put(batch).unwrap().stored;
                }
                stored
                    + store
                        .put(made.iter().map(|made| made.bundle.clone()).collect())
                        .unwrap()
                        .stored
            })
        });
        putting.collect::<Vec<_>>().into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    // Two processes may both count a seal as new, but none is lost.
    assert!(receipts.iter().sum::<u64>() >= SEALS);
    for store in &stores {
        let seals = store.seals(mote.device(), SealIndex(0), 1_000).unwrap();
        assert_eq!(seals.len() as u64, SEALS, "every seal is listed once");
        made.iter().for_each(|made| assert_reads_back(store, made));
        assert_eq!(store.equivocations(None, 10).unwrap(), []);
        let known = store.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
        assert_eq!((known.stored, known.known), (0, SEALS));
    }
}

/// Two stores that put two seals of one index at the same time: at least one reports it, and every
/// store lists it afterwards.
#[test]
fn equivocations_that_are_put_at_the_same_time_are_listed() {
    const INDICES: u32 = 24;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address)];
    let (mut one, mut other) = (Mote::new("forger", false), Mote::new("forger", false));
    let pairs: Vec<[Made; 2]> = (0..u64::from(INDICES))
        .map(|epoch| {
            [one.seal_some(Scheme::Star, epoch, 3), other.seal_some(Scheme::Star, epoch, 4)]
        })
        .collect();
    for pair in &pairs {
        let reported: usize = thread::scope(|scope| {
            let putting: Vec<_> = stores
                .iter()
                .zip(pair)
                .map(|(store, made)| scope.spawn(|| store.put(vec![made.bundle.clone()]).unwrap()))
                .collect();
            putting.into_iter().map(|put| put.join().unwrap().equivocations.len()).sum()
        });
        assert!((1..=2).contains(&reported), "{reported} reports");
    }
    for store in &stores {
        let listed = store.equivocations(None, 100).unwrap();
        assert_eq!(listed.len() as u32, INDICES);
        assert!(listed.iter().all(|listed| listed.digests.len() == 2));
    }
}

/// Reads the events after a place, a few at a time, until the writers have ended and there are no more.
fn read_meanwhile(
    address: &Address,
    mut after: Option<UrgentPlace>,
    writers: Vec<thread::ScopedJoinHandle<'_, ()>>,
) -> Vec<UrgentKey> {
    let limits = UrgentLimits { read: 10, events: 10, bytes: 1 << 20 };
    let (reader, mut seen) = (open(address), Vec::new());
    loop {
        let ended = writers.iter().all(thread::ScopedJoinHandle::is_finished);
        let page = reader.urgent(after, limits, &|_, _| true).unwrap();
        seen.extend(page.events.iter().map(|(key, _)| *key));
        after = page.last.or(after);
        if ended && !page.has_more {
            break;
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    seen
}

/// A reader that continues from its last place while two stores put events misses none.
#[test]
fn a_reader_misses_no_urgent_event_of_concurrent_writers() {
    const EACH: u32 = 25;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address)];
    let seen = thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                scope.spawn(move || {
                    let mote = Mote::new(&format!("alarm {number}"), false);
                    for i in 0..EACH {
                        let event = mote.urgent(i, 1, 0, i);
                        assert_eq!(store.put_urgent(vec![event]).unwrap().stored, 1);
                    }
                })
            })
            .collect();
        read_meanwhile(&address, None, writers)
    });
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len() as u32, 2 * EACH, "of {} that were read", seen.len());
    // Afterwards each event has one place.
    let all = UrgentLimits { read: 1_000, events: 1_000, bytes: 1 << 24 };
    let page = stores[0].urgent(None, all, &|_, _| true).unwrap();
    assert_eq!(page.events.len() as u32, 2 * EACH);
}

/// The same with batches, some of which are continued in the next bucket. Within a batch, the events keep their
/// order.
#[test]
fn a_reader_misses_no_urgent_event_of_concurrent_batches() {
    const WRITERS: usize = 4;
    const BATCHES: u32 = 20;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address)];
    // The first bucket has 1,024 places.
    let before = Mote::new("before", false);
    let events: Vec<_> = (0..900).map(|i| before.urgent(0, 1, u64::from(i), i)).collect();
    assert_eq!(stores[0].put_urgent(events.clone()).unwrap().stored, 900);
    let batches: Vec<Vec<Vec<StoredUrgent>>> = (0..WRITERS)
        .map(|number| {
            let mote = Mote::new(&format!("batches {number}"), false);
            let batch = |batch: u32| {
                let of = |i: u32| mote.urgent(batch * 100 + i, 1, 0, i);
                (0..1 + batch % 7).map(of).collect()
            };
            (0..BATCHES).map(batch).collect()
        })
        .collect();
    let seen = thread::scope(|scope| {
        let writers: Vec<_> = batches
            .iter()
            .enumerate()
            .map(|(number, batches)| {
                let store = &stores[number % stores.len()];
                scope.spawn(move || {
                    for batch in batches {
                        let receipt = store.put_urgent(batch.clone()).unwrap();
                        assert_eq!((receipt.stored, receipt.known), (batch.len() as u64, 0));
                    }
                })
            })
            .collect();
        let digest = events.last().unwrap().key().digest;
        read_meanwhile(&address, Some(UrgentPlace { number: 900, digest }), writers)
    });
    let all: BTreeSet<_> = batches.iter().flatten().flatten().map(StoredUrgent::key).collect();
    assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), all, "of {}", seen.len());
    // Afterwards each event has one place, and the events of a batch follow in its order.
    let limits = UrgentLimits { read: 10_000, events: 10_000, bytes: 1 << 24 };
    let page = open(&address).urgent(None, limits, &|_, _| true).unwrap();
    assert_eq!(page.events.len(), 900 + all.len());
    assert!(page.events.iter().zip(&events).all(|((key, _), event)| *key == event.key()));
    for batch in batches.iter().flatten() {
        let place = |event: &StoredUrgent| {
            page.events.iter().position(|(key, _)| *key == event.key()).unwrap()
        };
        assert!(batch.iter().map(place).is_sorted());
    }
}

/// Two threads of one process that put the same events at the same time: each event is stored once.
#[test]
fn urgent_events_that_are_put_twice_at_the_same_time_are_stored_once() {
    const EVENTS: u32 = 100;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let store = open(&address);
    let mote = Mote::new("twice", false);
    let events: Vec<_> = (0..EVENTS).map(|i| mote.urgent(i, 1, 0, i)).collect();
    let receipts: Vec<_> = thread::scope(|scope| {
        let puts: Vec<_> = (0..3)
            .map(|put| {
                let events = &events;
                let store = &store;
                scope.spawn(move || {
                    let puts = events.chunks(1 + 6 * put);
                    let puts = puts.map(|events| store.put_urgent(events.to_vec()).unwrap());
                    puts.fold((0, 0), |sum, receipt| {
                        assert_eq!(receipt.doubled_events, []);
                        (sum.0 + receipt.stored, sum.1 + receipt.known)
                    })
                })
            })
            .collect();
        puts.into_iter().map(|put| put.join().unwrap()).collect()
    });
    let sum = |of: fn(&(u64, u64)) -> u64| receipts.iter().map(of).sum::<u64>();
    assert_eq!((sum(|one| one.0), sum(|one| one.1)), (u64::from(EVENTS), 2 * u64::from(EVENTS)));
    // An event twice in a batch, and two events for one place.
    let [one, two] = [1, 2].map(|value| mote.urgent(EVENTS, 1, 0, value));
    let batch = vec![one.clone(), one.clone(), two.clone(), one, two];
    let receipt = store.put_urgent(batch).unwrap();
    assert_eq!((receipt.stored, receipt.known), (2, 3));
    assert_eq!(receipt.doubled_events, [(mote.device(), SealIndex(EVENTS), Sequence(0))]);
}

/// A store knows the sum of many lengths for 10 s. What it stores itself counts at once.
#[test]
fn the_bytes_of_urgent_events_of_other_processes_count_after_a_while() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address)];
    let mote = Mote::new("many", false);
    let events: Vec<_> = (0..1_200).map(|i| mote.urgent(i / 50, 1, u64::from(i), i)).collect();
    let bytes =
        |events: &[StoredUrgent]| -> u64 { events.iter().map(StoredUrgent::counted_bytes).sum() };
    let used = |store: usize| stores[store].urgent_bytes(mote.device()).unwrap();
    let put = |store: usize, events: &[StoredUrgent]| {
        let receipt = stores[store].put_urgent(events.to_vec()).unwrap();
        assert_eq!(receipt.stored, events.len() as u64);
    };
    put(0, &events[..500]);
    assert_eq!((used(0), used(1)), (bytes(&events[..500]), bytes(&events[..500])));
    put(0, &events[500..600]);
    assert_eq!((used(0), used(1)), (bytes(&events[..600]), bytes(&events[..600])), "few events");
    put(0, &events[600..1_100]);
    assert_eq!((used(0), used(1)), (bytes(&events[..1_100]), bytes(&events[..1_100])));
    put(0, &events[1_100..]);
    assert_eq!(used(0), bytes(&events), "it has stored them itself");
    let until = Instant::now() + Duration::from_secs(15);
    while used(1) < bytes(&events) {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((used(0), used(1)), (bytes(&events), bytes(&events)));
}

const URL: &str = "MOTESEAL_TABLE_TEST_URL";

fn crashing() -> Vec<Made> {
    let mut mote = Mote::new("crashing", false);
    let mut made: Vec<Made> = Vec::new();
    for epoch in 0..60 {
        let n = if epoch % 4 == 1 { 30_000 } else { 50 };
        made.push(mote.seal_some(Scheme::Star, epoch, n));
    }
    made
}

/// The process that the next test kills. It does nothing without the environment variable.
#[test]
fn the_process_that_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let address = Address::parse(&url).unwrap();
    let store = open(&address);
    let mut out = std::io::stdout();
    for (number, made) in crashing().into_iter().enumerate() {
        store.put(vec![made.bundle]).unwrap();
        writeln!(out, "\nacknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_process_that_is_killed_between_two_writes_leaves_no_half_a_seal() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let made = crashing();
    let (mut acknowledged, mut state) = (BTreeSet::new(), 5);
    for _ in 0..5 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "concurrent::the_process_that_is_killed", "--nocapture"])
            .env(URL, address.to_string())
            .env("MOTESEAL_CASSANDRA_PASSWORD", "cassandra")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut read = 0;
        let stop_after = random(&mut state) % 8;
        while let Some(Ok(line)) = lines.next() {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged.insert(number.parse::<usize>().unwrap());
                read += 1;
                if read > stop_after {
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(random(&mut state) % 30));
        process.kill().unwrap();
        process.wait().unwrap();
        while let Some(Ok(line)) = lines.next() {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged.insert(number.parse::<usize>().unwrap());
            }
        }
        let store = open(&address);
        let seals = store.seals(made[0].statement.device, SealIndex(0), 1_000).unwrap();
        for seal in &seals {
            assert_reads_back(&store, &made[seal.key().index.0 as usize]);
        }
        let visible: BTreeSet<usize> =
            seals.iter().map(|seal| seal.key().index.0 as usize).collect();
        assert!(visible.is_superset(&acknowledged), "{acknowledged:?} of {visible:?}");
    }
    assert!(!acknowledged.is_empty() && acknowledged.len() < made.len(), "{}", acknowledged.len());
    let store = open(&address);
    store.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
    made.iter().for_each(|made| assert_reads_back(&store, made));
}
