//! Measures the service from end to end: durable ingest, compared with a bare loop that appends and
//! syncs.
//!
//! The bare loop is the physical limit of storing one bundle after the other. It appends the same
//! bytes to a growing file and calls fdatasync after each bundle. The service also verifies every
//! signature and digest, and responds over HTTP.
//!
//! It also measures the latency of one small upload over plain HTTP, over TLS, and over TLS with
//! each kind of credential.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_device::seal::Bundle;

use crate::grades::{Clouds, Grade};
use crate::load::{Failed, Fleet, Service, requests, upload};
use crate::measure::{Bar, Report, Spread, median};

const UPLOADERS: u8 = 8;
const EVENTS: u32 = 1000;
const PAIRS: usize = 7;
/// Number of uploads whose latency is measured, and of uploads before these.
const UPLOADS: u64 = 1000;
const WARM_UP: u64 = 20;
/// Number of bundles that an uploader sends in each measurement.
const BUNDLES: u64 = 400;

pub(crate) fn run() -> Result<Report, Failed> {
    // Use the disk of the target directory: syncs on a temporary file system take no time.
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let mut report = Report::new(format!(
        "durable ingest: {UPLOADERS} uploaders, bundles of {EVENTS} readings of 4 bytes, every signature and digest verified, medians of {PAIRS} interleaved runs"
    ));
    ingest(folder.path(), &mut report)?;
    latencies(folder.path(), UPLOADS, &mut report)?;
    Ok(report)
}

/// Measures the latency of one durable upload of a small bundle by each grade, over connections
/// that stay open. The grades take turns.
fn latencies(folder: &Path, uploads: u64, report: &mut Report) -> Result<(), Failed> {
    let mut fleet = Fleet::new(1, Scheme::Star)?;
    let folder = tempfile::tempdir_in(folder)?;
    let clouds = Clouds::start(folder.path(), &fleet.roster, &Grade::ALL)?;
    let mut times = Grade::ALL.map(|_| Vec::new());
    for (upload, bundle) in fleet.seal(WARM_UP + uploads, 6)?.iter().flatten().enumerate() {
        for place in 0..Grade::ALL.len() {
            // Each grade follows each other grade equally often.
            let place = (place * (1 + upload % 4) + upload) % Grade::ALL.len();
            let took = clouds.upload(Grade::ALL[place], &bundle.bytes)?;
            if upload as u64 >= WARM_UP {
                times[place].push(took.as_secs_f64());
            }
        }
    }
    let medians = times.map(median);
    for (grade, seconds) in Grade::ALL.into_iter().zip(medians) {
        report.add(
            format!("one durable upload of 6 readings, {}", grade.name()),
            seconds * 1e6,
            "us",
            None,
        );
    }
    for (grade, seconds) in Grade::ALL.into_iter().zip(medians).skip(1) {
        report.add(
            format!("{}, against plain HTTP", grade.name()),
            seconds / medians[0],
            "x",
            Bar::AtMost(1.3),
        );
    }
    Ok(())
}

fn ingest(folder: &Path, report: &mut Report) -> Result<(), Failed> {
    let mut fleet = Fleet::new(UPLOADERS.into(), Scheme::Star)?;
    fleet.write(folder)?;
    let synced = Service::start(folder, true)?;
    let unsynced = Service::start(folder, false)?;
    let bundles = BUNDLES * u64::from(UPLOADERS);
    let mut bare_file = File::create(folder.join("bare"))?;
    let mut ratios = vec![Vec::new(); 4];
    let (mut rates, mut processor) = (vec![Vec::new(); 4], [Vec::new(), Vec::new()]);
    for pair in 0..=PAIRS {
        let one = fleet.seal(BUNDLES, EVENTS)?;
        let many = fleet.seal(BUNDLES, EVENTS)?;
        let single: Vec<_> = one.iter().map(|bundles| requests(bundles, 1)).collect();
        let batched: Vec<_> = many.iter().map(|bundles| requests(bundles, 16)).collect();
        let bare = bare_loop(&mut bare_file, &one)?;
        let mut used = [synced.processor_time()?; 3];
        let durable = upload(&synced.address, &single)?;
        used[1] = synced.processor_time()?;
        let durable_batched = upload(&synced.address, &batched)?;
        used[2] = synced.processor_time()?;
        let not_durable = upload(&unsynced.address, &single)?;
        upload(&unsynced.address, &batched)?;
        // The first repetition only warms caches and grows files.
        if pair == 0 {
            continue;
        }
        let rate = |time: Duration| bundles as f64 / time.as_secs_f64();
        let against = |time: Duration, base: Duration| base.as_secs_f64() / time.as_secs_f64();
        for (slot, time) in rates.iter_mut().zip([bare, durable, durable_batched, not_durable]) {
            slot.push(rate(time));
        }
        ratios[0].push(against(durable, bare));
        ratios[1].push(against(durable_batched, bare));
        ratios[2].push(against(durable, not_durable));
        for (processor, used) in processor.iter_mut().zip(used.windows(2)) {
            processor.push((used[1] - used[0]).as_secs_f64() * 1e6 / bundles as f64);
        }
    }
    for (name, rates) in [
        "bare loop",
        "service, a bundle a request",
        "service, 16 bundles a request",
        "service, not syncing",
    ]
    .into_iter()
    .zip(rates)
    {
        report.add_spread(format!("{name}: bundles a second"), Spread::of(rates), "/s", None);
    }
    let [single, batched, synced_share, _] = ratios.try_into().map_err(|_| "four ratios")?;
    report.add("a bundle a request, against the bare loop", median(single), "x", Bar::AtLeast(1.0));
    report.add(
        "16 bundles a request, against the bare loop",
        median(batched),
        "x",
        Bar::AtLeast(1.0),
    );
    report.add(
        "a bundle a request, against not syncing",
        median(synced_share),
        "x",
        Bar::AtLeast(0.5),
    );
    let [single, batched] = processor;
    report.add(
        "server's processor time a bundle, one a request",
        median(single),
        "us",
        Bar::AtMost(120.0),
    );
    report.add(
        "server's processor time a bundle, 16 a request",
        median(batched),
        "us",
        Bar::AtMost(120.0),
    );
    Ok(())
}

/// Appends and syncs each bundle, one after another.
fn bare_loop(file: &mut File, fleet: &[Vec<Bundle>]) -> Result<Duration, Failed> {
    let start = Instant::now();
    for bundle in fleet.iter().flatten() {
        file.write_all(&bundle.bytes)?;
        file.sync_data()?;
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_latency_of_each_grade_is_measured_and_compared_with_plain_http() {
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let mut report = Report::new("latencies".to_owned());
        latencies(folder.path(), 50, &mut report).unwrap();
        let text = report.to_string();
        println!("{text}");
        for grade in Grade::ALL {
            assert!(text.contains(&format!("one durable upload of 6 readings, {}", grade.name())));
        }
        assert_eq!(text.matches("against plain HTTP").count(), 4, "{text}");
    }
}
