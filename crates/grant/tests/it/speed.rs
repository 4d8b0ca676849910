//! How long it takes to make and to open a large grant: 1,000 devices, 2 columns, a month of hours.
//!
//! cargo test --release -p moteseal-grant --test it speed -- --ignored --nocapture

use std::hint::black_box;
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_grant::{Identity, OpenGrant, Unlock};

use crate::scene::{alice, device, request, rosters, to};

/// Returns the shortest time of several executions.
fn best<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let start = Instant::now();
        let result = black_box(run());
        (start.elapsed(), result)
    };
    let first = timed();
    (0..20).map(|_| timed()).fold(first, |one, other| if other.0 < one.0 { other } else { one })
}

#[test]
#[ignore = "measures; run it in release"]
fn a_month_of_1000_devices() {
    let (owner, [_, roster, _], reader) = (alice(1000), rosters(), Identity::generate());
    let devices: Vec<_> = (0..1000).map(device).collect();
    let recipients = to(&reader);
    let unlock = Unlock::Identities(vec![reader]);
    // The base epoch is some time ago, and the month is not aligned to a power of two.
    let request = request(&devices, &recipients, 9_763, 9_763 + 719);
    let (compression, _) =
        best(|| (0..10_000).fold(Digest([0; 32]), |last, _| Digest::of(&[&last.0])));
    let d = compression.as_secs_f64() / 10_000.0;
    let (making, file) = best(|| owner.grant(&request, &roster, false).unwrap());
    let (signing, _) = best(|| owner.sign_grant(&request, &roster).unwrap());
    let (opening, grant) = best(|| OpenGrant::open(&file, &unlock, &roster, 0).unwrap());
    let nodes: usize = grant.contents().columns.iter().map(|column| column.nodes).sum();
    println!("D (one dependent SHA-256): {:.1} ns", d * 1e9);
    for (what, time) in [("make", making), ("make, not encrypted", signing), ("open", opening)] {
        println!(
            "{what}: {:.2} ms, {:.1} D a node",
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() / d / nodes as f64
        );
    }
    println!("{nodes} nodes, {} bytes", file.len());
}
