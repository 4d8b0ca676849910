//! What an application pays for a sample: an eighth of a million readings against all of them, and a fixed sample from stores of
//! growing size. Everything is verified, over HTTP, from a cloud in a process of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_api::Query;
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, get};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::sample::{Choice, Rate};
use moteseal_core::seal::Scheme;
use moteseal_net::{Client, Options};
use moteseal_verify::Roster;

use crate::load::{Failed, Fleet, Service, requests, upload};
use crate::measure::{Bar, Report, median};

const EVENTS: u32 = 1000;
const PAIRS: usize = 7;

pub(crate) fn run() -> Result<Report, Failed> {
    let folder = tempfile::tempdir_in(std::env::current_exe()?.parent().ok_or("no folder to measure in")?)?;
    let mut report = Report::new(format!(
        "verified retrieval over HTTP, seals of {EVENTS} readings of 4 bytes, medians of {PAIRS} interleaved runs"
    ));
    share(&folder.path().join("share"), &mut report)?;
    growth(folder.path(), &mut report)?;
    Ok(report)
}

/// An eighth against everything.
fn share(folder: &Path, report: &mut Report) -> Result<(), Failed> {
    std::fs::create_dir_all(folder)?;
    let mut fleet = Fleet::new(1, Scheme::Star)?;
    fleet.write(folder)?;
    let service = Service::start(folder, true)?;
    let first = fleet.next_epoch();
    fill(&mut fleet, &service, 1000)?;
    let application = Application::new(&fleet.roster, &service)?;
    let range = (first, first + 1000);
    let (mut times, mut bytes) = (Vec::new(), (0, 0));
    let mut alls = Vec::new();
    for pair in 0..=PAIRS {
        let all = application.get(range, Rate::ALL)?;
        let eighth = application.get(range, "1/8".parse()?)?;
        if pair > 0 {
            times.push(eighth.time.as_secs_f64() / all.time.as_secs_f64());
            alls.push(all.time.as_secs_f64() * 1e3);
        }
        bytes = (eighth.bytes, all.bytes);
        if all.rows != 1_000_000 {
            return Err(format!("{} rows of 1,000,000", all.rows).into());
        }
    }
    report.add("all of 1,000,000 readings", median(alls), "ms", None);
    report.add("an eighth, time against all", median(times), "x", Bar::AtMost(0.25));
    report.add("an eighth, bytes against all", bytes.0 as f64 / bytes.1 as f64, "x", Bar::AtMost(1.0 / 6.0));
    Ok(())
}

/// The newest ten epochs of one device at an eighth, from stores of 10^5 to 10^7 readings.
fn growth(folder: &Path, report: &mut Report) -> Result<(), Failed> {
    let mut medians = Vec::new();
    for (epochs, name) in [(10, "100,000"), (100, "1,000,000"), (1000, "10,000,000")] {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let mut fleet = Fleet::new(10, Scheme::Star)?;
        fleet.write(&folder)?;
        let service = Service::start(&folder, true)?;
        fill(&mut fleet, &service, epochs)?;
        let application = Application::new(&fleet.roster, &service)?;
        let range = (fleet.next_epoch() - 10, fleet.next_epoch());
        let mut times = Vec::new();
        for run in 0..=31 {
            let got = application.get(range, "1/8".parse()?)?;
            if run > 0 {
                times.push(got.time.as_secs_f64() * 1e3);
            }
        }
        let time = median(times);
        report.add(format!("ten epochs at an eighth, from a store of {name} readings"), time, "ms", None);
        medians.push(time);
    }
    report.add("largest store against smallest", medians[2] / medians[0], "x", Bar::AtMost(1.5));
    Ok(())
}

/// Seals and uploads `epochs` epochs of every device.
fn fill(fleet: &mut Fleet, service: &Service, epochs: u64) -> Result<(), Failed> {
    let mut left = epochs;
    while left > 0 {
        let now = left.min(200);
        let uploads: Vec<_> = fleet.seal(now, EVENTS)?.iter().map(|bundles| requests(bundles, 50)).collect();
        upload(&service.address, &uploads)?;
        left -= now;
    }
    Ok(())
}

struct Application<'r> {
    roster: &'r Roster,
    device: DeviceId,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

struct Got {
    time: Duration,
    rows: u64,
    bytes: u64,
}

impl<'r> Application<'r> {
    fn new(roster: &'r Roster, service: &Service) -> Result<Self, Failed> {
        let device = roster.devices().next().ok_or("an empty roster")?.id;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&format!("http://{}", service.address), &Options::default())?;
        Ok(Self { roster, device, client, runtime })
    }

    fn get(&self, (since, until): (u64, u64), rate: Rate) -> Result<Got, Failed> {
        let (since, until) = (EpochNumber(since), Some(EpochNumber(until)));
        let query = Query { devices: vec![self.device], since, until, choice: Choice::Rate(rate) };
        let (mut rows, mut sum) = (0, 0u64);
        let start = Instant::now();
        let mut sink = |part: &Rows<'_>| -> Result<(), OutputError> {
            part.for_each(|_, _, record| {
                rows += 1;
                sum = sum.wrapping_add(record.iter().map(|&byte| u64::from(byte)).sum());
            });
            Ok(())
        };
        let report = self.runtime.block_on(get(&self.client, self.roster, &query, None, None, &mut sink))?;
        std::hint::black_box(sum);
        Ok(Got { time: start.elapsed(), rows, bytes: report.bytes })
    }
}
