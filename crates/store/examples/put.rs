//! Measures how fast the embedded store accepts bundles, compared with a loop that appends the same
//! number of bytes to a file and syncs after each append.
//!
//! `cargo run --release -p moteseal-store --example put [DIRECTORY]` runs five interleaved pairs
//! with 8 callers and prints medians. The callers put bundles of 1,000 four-byte events from 8
//! devices. The bundles are made and verified in advance, so only the store is measured.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use moteseal_core::record::Scheme;
use moteseal_store::conformance::Mote;
use moteseal_store::{Bundle, EpochStore, Options, RedbStore};

const CALLERS: usize = 8;
const EACH: usize = 500;
const PAIRS: usize = 5;
/// The approximate length of an uploaded bundle of 1,000 four-byte events, in bytes.
const WIRE_BYTES: usize = 4_200;

/// Returns the processor time that this process has used, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| {
        fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    (ticks(11) + ticks(12)) / 100.0
}

#[derive(Clone, Copy)]
struct Cost {
    wall_us: f64,
    processor_us: f64,
}

fn measure(bundles: usize, run: impl FnOnce()) -> Cost {
    let (started, used) = (Instant::now(), processor_seconds());
    run();
    let each = 1e6 / bundles as f64;
    Cost {
        wall_us: started.elapsed().as_secs_f64() * each,
        processor_us: (processor_seconds() - used) * each,
    }
}

fn bare_loop(path: &Path, bundles: usize) -> Cost {
    let mut file = File::create(path).unwrap();
    let bytes = [0x5a; WIRE_BYTES];
    measure(bundles, || {
        for _ in 0..bundles {
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
        }
    })
}

fn store(path: &Path, sync: bool, bundles: &[Vec<Bundle>]) -> Cost {
    let store = RedbStore::open(path, Options { sync, ..Options::default() }).unwrap();
    let cost = measure(CALLERS * EACH, || {
        thread::scope(|scope| {
            for bundles in bundles {
                let store = &store;
                scope.spawn(move || {
                    bundles
                        .iter()
                        .for_each(|bundle| drop(store.put(vec![bundle.clone()]).unwrap()));
                });
            }
        });
    });
    drop(store);
    let file = std::fs::metadata(path).unwrap().len();
    let stored: usize = bundles.iter().flatten().map(Bundle::stored_bytes).sum();
    println!(
        "    file: {:.2} bytes for each byte stored ({stored} bytes)",
        file as f64 / stored as f64
    );
    cost
}

/// Measures the store with a deep queue: bundles are submitted without waiting for replies, as in a
/// service with many connections.
fn store_flooded(path: &Path, bundles: &[Vec<Bundle>]) -> Cost {
    let store =
        RedbStore::open(path, Options { queue_bytes: 1 << 30, ..Options::default() }).unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    measure(CALLERS * EACH, || {
        for bundle in bundles.iter().flatten() {
            let answered = Arc::clone(&answered);
            let reply = move |result: Result<_, _>| {
                result.unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            };
            store.submit(vec![bundle.clone()], Box::new(reply)).unwrap();
        }
        while answered.load(Ordering::Relaxed) < CALLERS * EACH {
            thread::yield_now();
        }
    })
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.wall_us.total_cmp(&b.wall_us));
    let wall_us = costs[costs.len() / 2].wall_us;
    costs.sort_by(|a, b| a.processor_us.total_cmp(&b.processor_us));
    Cost { wall_us, processor_us: costs[costs.len() / 2].processor_us }
}

fn main() {
    let directory = env::args_os()
        .nth(1)
        .map_or_else(env::temp_dir, PathBuf::from)
        .join(format!("put-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let events: Vec<Vec<u8>> = (0..1_000u32)
        .map(|event| event.wrapping_mul(2_654_435_761).to_be_bytes().to_vec())
        .collect();
    let bundles: Vec<Vec<Bundle>> = (0..CALLERS)
        .map(|caller| {
            let mut mote = Mote::new(&format!("caller {caller}"), false);
            (0..EACH as u64)
                .map(|epoch| mote.seal(Scheme::Star, epoch, events.clone()).bundle)
                .collect()
        })
        .collect();
    let (mut bare, mut synced, mut unsynced, mut flooded) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        bare.push(bare_loop(&directory.join("bare"), CALLERS * EACH / 4));
        synced.push(store(&directory.join(format!("synced {pair}")), true, &bundles));
        unsynced.push(store(&directory.join(format!("unsynced {pair}")), false, &bundles));
        flooded.push(store_flooded(&directory.join(format!("flooded {pair}")), &bundles));
        let line = |name: &str, cost: &Cost| {
            println!("  {name:9} {:8.1} us  {:6.1} us processor", cost.wall_us, cost.processor_us);
        };
        println!("pair {pair}, each bundle:");
        for (name, costs) in [
            ("bare loop", &bare),
            ("synced", &synced),
            ("unsynced", &unsynced),
            ("flooded", &flooded),
        ] {
            line(name, &costs[pair]);
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
    let (bare, synced, unsynced, flooded) =
        (median(bare), median(synced), median(unsynced), median(flooded));
    println!(
        "median of {PAIRS}: bare loop {:.1} us per bundle, store {:.1} us: {:.2}x as fast",
        bare.wall_us,
        synced.wall_us,
        bare.wall_us / synced.wall_us
    );
    println!(
        "processor time per bundle: store {:.1} us, without syncing {:.1} us, \
         with a deep queue {:.1} us",
        synced.processor_us, unsynced.processor_us, flooded.processor_us
    );
    println!(
        "without syncing {:.1} us per bundle: with syncing {:.2} of that speed",
        unsynced.wall_us,
        unsynced.wall_us / synced.wall_us
    );
}
