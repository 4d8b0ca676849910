//! What following costs. Run it alone and optimised:
//! `cargo test --release -p moteseal-cloud --test it follow_cost -- --ignored --nocapture`

use std::fs;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_cloud::Config;
use moteseal_core::record::Scheme::Star;

use crate::follow::{equal, following};
use crate::testbed::{Running, group};

/// Returns the processor time of this process.
fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Times in user and kernel mode, in hundredths of a second.
    Duration::from_millis(
        10 * fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>(),
    )
}

/// Measures a group of `devices` devices with `seals` seals each, of `readings` readings.
async fn measure(devices: usize, seals: u64, readings: u32) {
    let names: Vec<String> = (0..devices).map(|at| format!("d{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (roster, motes) = group(&names);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..readings).collect();
    for mut mote in motes {
        for from in (0..seals).step_by(500) {
            let batch = from..seals.min(from + 500);
            let body = batch.flat_map(|epoch| mote.seal(Star, epoch, true, &events)).collect();
            assert_eq!(first.put(body).await.status(), 200);
        }
    }
    let all = devices as u64 * seals;
    let (start, used) = (Instant::now(), processor());
    while first.get(paths::SUMMARY).await.status() != 200 {}
    println!(
        "{all} seals: first summary {:?}, processor {:?}",
        start.elapsed(),
        processor() - used
    );
    let (start, used) = (Instant::now(), processor());
    let second = following(two.path(), &roster, &[&first.url]).await;
    equal(&[&first, &second]).await;
    println!(
        "{all} seals of {readings} readings: replicated in {:?}, processor of both {:?}",
        start.elapsed(),
        processor() - used
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = processor();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let length = first.get(paths::SUMMARY).await.bytes().await.unwrap().len();
    println!(
        "200 periods of equal clouds: processor of both {:?}, body {length} bytes",
        processor() - used
    );
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes"]
async fn following_a_hundred_thousand_seals() {
    measure(100, 1000, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes"]
async fn replicating_ten_thousand_bundles_of_298_readings() {
    measure(10, 1000, 298).await;
}
