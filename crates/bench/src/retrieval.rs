//! What an application pays for a sample: an eighth of a million readings against all of them, and a fixed sample from stores of
//! growing size. Everything is verified, over HTTP, from a cloud in a process of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_api::Query;
use moteseal_client::output::{Format, OutputError, Writer};
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
    let eighth: Rate = "1/8".parse()?;
    let (mut as_csv, mut as_rows, mut all_csv, mut all_rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0.0;
    for pair in 0..=PAIRS {
        let csv = [application.get_csv(range, Rate::ALL)?, application.get_csv(range, eighth)?];
        let rows = [application.get(range, Rate::ALL)?, application.get(range, eighth)?];
        if rows[0].rows != 1_000_000 {
            return Err(format!("{} rows of 1,000,000", rows[0].rows).into());
        }
        bytes = rows[1].bytes as f64 / rows[0].bytes as f64;
        if pair > 0 {
            let seconds = |got: &Got| got.time.as_secs_f64();
            as_csv.push(seconds(&csv[1]) / seconds(&csv[0]));
            as_rows.push(seconds(&rows[1]) / seconds(&rows[0]));
            all_csv.push(seconds(&csv[0]) * 1e3);
            all_rows.push(seconds(&rows[0]) * 1e3);
        }
    }
    report.add("all of 1,000,000 readings, verified and written as CSV", median(all_csv), "ms", None);
    report.add("an eighth of them, time against all", median(as_csv), "x", Bar::AtMost(0.25));
    report.add("an eighth of them, bytes against all", bytes, "x", Bar::AtMost(1.0 / 6.0));
    report.add("all of 1,000,000 readings, verified, not written", median(all_rows), "ms", None);
    report.add("an eighth of them, time against all", median(as_rows), "x", None);
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

    fn query(&self, (since, until): (u64, u64), rate: Rate) -> Query {
        let (since, until) = (EpochNumber(since), Some(EpochNumber(until)));
        Query { devices: vec![self.device], since, until, choice: Choice::Rate(rate) }
    }

    /// What `moteseal get --format csv` does, but for the disk.
    fn get_csv(&self, range: (u64, u64), rate: Rate) -> Result<Got, Failed> {
        let query = self.query(range, rate);
        let mut writer = Writer::new(Format::Csv, std::io::sink());
        let start = Instant::now();
        let report = self.runtime.block_on(get(&self.client, self.roster, &query, None, None, &mut writer))?;
        writer.finish()?;
        Ok(Got { time: start.elapsed(), rows: report.rows(), bytes: report.bytes })
    }

    fn get(&self, range: (u64, u64), rate: Rate) -> Result<Got, Failed> {
        let query = self.query(range, rate);
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
