//! What following costs. Run it alone and optimised:
//! `cargo test --release -p moteseal-cloud --test it follow_cost -- --ignored --nocapture`

use std::fs;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_cloud::Config;
use moteseal_core::record::Scheme::Star;

use crate::follow::{equal_within, following};
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

/// Measures a group of `devices` devices with `seals` seals each, of `readings` readings. They are
/// uploaded to both clouds, or fetched by the second.
async fn measure(devices: usize, seals: u64, readings: u32, to_both: bool) {
    let names: Vec<String> = (0..devices).map(|at| format!("d{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (roster, motes) = group(&names);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(one.path(), Config::new(roster.clone())).await;
    let both = if to_both {
        Some(Running::start(two.path(), Config::new(roster.clone())).await)
    } else {
        None
    };
    let events: Vec<u32> = (0..readings).collect();
    for mut mote in motes {
        for from in (0..seals).step_by(500) {
            let batch = from..seals.min(from + 500);
            let body: Vec<u8> =
                batch.flat_map(|epoch| mote.seal(Star, epoch, true, &events)).collect();
            if let Some(second) = &both {
                assert_eq!(second.put(body.clone()).await.status(), 200);
            }
            assert_eq!(first.put(body).await.status(), 200);
        }
    }
    if let Some(second) = both {
        second.stop().await;
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
    equal_within(&[&first, &second], Duration::from_secs(600)).await;
    println!(
        "{all} seals of {readings} readings: equal after {:?}, processor of both {:?}",
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
    measure(100, 1000, 3, true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes"]
async fn replicating_ten_thousand_bundles_of_298_readings() {
    measure(10, 1000, 298, false).await;
}
