//! Measures the cost of a sample for an application: an eighth of a million readings compared with
//! all of them, and a sample of fixed size from stores of growing size. All data is fetched over
//! HTTP from a cloud in a separate process, and verified.

use std::path::Path;

use moteseal_client::output::Format;
use moteseal_core::record::Scheme;
use moteseal_seal::sample::Rate;

use crate::application::{Application, Got};
use crate::load::{Failed, Fleet, Service, byte_sum, requests, upload};
use crate::measure::{Bar, Report, median};

const EVENTS: u32 = 1000;
const PAIRS: usize = 7;

pub(crate) fn run() -> Result<Report, Failed> {
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let mut report = Report::new(format!(
        "verified retrieval over HTTP, seals of {EVENTS} readings of 4 bytes, medians of {PAIRS} interleaved runs"
    ));
    share(&folder.path().join("share"), &mut report)?;
    Ok(report)
}

/// Compares an eighth of the readings with all readings.
fn share(folder: &Path, report: &mut Report) -> Result<(), Failed> {
    std::fs::create_dir_all(folder)?;
    let mut fleet = Fleet::new(1, Scheme::Star)?;
    fleet.write(folder)?;
    let service = Service::start(folder, true)?;
    let first = fleet.next_epoch();
    fill(&mut fleet, &service, 1000)?;
    let application = Application::new(&fleet.roster, &service.address, 1)?;
    let range = (first, first + 1000);
    let sealed = (range.0..range.1).map(|epoch| byte_sum(epoch, EVENTS)).sum::<u64>();
    let eighth: Rate = "1/8".parse()?;
    let file = folder.join("rows");
    let mut written: Vec<Pairs> = FORMATS.iter().map(|_| Pairs::default()).collect();
    let (mut seen, mut bytes) = (Pairs::default(), 0.0);
    for pair in 0..=PAIRS {
        for (&(_, format), times) in FORMATS.iter().zip(&mut written) {
            let get = |rate| application.get_file(range, rate, format, &file);
            times.add(pair, &get(Rate::ALL)?, &get(eighth)?);
        }
        let (all, part) = (application.get(range, Rate::ALL)?, application.get(range, eighth)?);
        if all.rows != 1_000_000 {
            return Err(format!("the cloud returned {} of 1,000,000 rows", all.rows).into());
        }
        if all.sum != sealed {
            return Err("the returned rows differ from the sealed rows".into());
        }
        bytes = part.bytes as f64 / all.bytes as f64;
        seen.add(pair, &all, &part);
    }
    for ((name, _), times) in FORMATS.iter().zip(written) {
        report.add(
            format!("all of 1,000,000 readings, verified, to a file ({name})"),
            median(times.all_ms),
            "ms",
            None,
        );
        report.add(
            "  an eighth of them, time against all",
            median(times.ratios),
            "x",
            Bar::AtMost(0.25),
        );
    }
    report.add(
        "all of 1,000,000 readings, verified, read and not written",
        median(seen.all_ms),
        "ms",
        None,
    );
    report.add(
        "  an eighth of them, time against all",
        median(seen.ratios),
        "x",
        Bar::AtMost(0.25),
    );
    report.add("an eighth of them, bytes against all", bytes, "x", Bar::AtMost(1.0 / 6.0));
    Ok(())
}

/// The file formats, with their names in the table.
const FORMATS: [(&str, Format); 4] = [
    ("CSV", Format::Csv),
    ("JSON lines", Format::JsonLines),
    ("Arrow", Format::Arrow),
    ("Parquet", Format::Parquet),
];

/// The times of pairs of queries. Each pair gets all events and then a sample.
#[derive(Default)]
struct Pairs {
    ratios: Vec<f64>,
    all_ms: Vec<f64>,
}

impl Pairs {
    /// Adds the times of a pair. Ignores the first pair, which only warms caches.
    fn add(&mut self, pair: usize, all: &Got, part: &Got) {
        if pair > 0 {
            self.ratios.push(part.time.as_secs_f64() / all.time.as_secs_f64());
            self.all_ms.push(all.time.as_secs_f64() * 1e3);
        }
    }
}

/// Measures fetching the newest ten epochs of one device at a rate of 1/8, in milliseconds, from
/// stores of 10^5 to 10^7 readings.
pub(crate) fn growth(report: &mut Report) -> Result<Vec<(f64, f64)>, Failed> {
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let folder = folder.path();
    let mut points = Vec::new();
    for (epochs, name) in [(10, "100,000"), (100, "1,000,000"), (1000, "10,000,000")] {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let mut fleet = Fleet::new(10, Scheme::Star)?;
        fleet.write(&folder)?;
        let service = Service::start(&folder, true)?;
        fill(&mut fleet, &service, epochs)?;
        let application = Application::new(&fleet.roster, &service.address, 1)?;
        let range = (fleet.next_epoch() - 10, fleet.next_epoch());
        let mut times = Vec::new();
        for run in 0..=31 {
            let got = application.get(range, "1/8".parse()?)?;
            if run > 0 {
                times.push(got.time.as_secs_f64() * 1e3);
            }
        }
        let time = median(times);
        report.add(
            format!("ten epochs at an eighth, from a store of {name} readings"),
            time,
            "ms",
            None,
        );
        #[allow(clippy::cast_precision_loss)]
        points.push((10.0 * epochs as f64 * f64::from(EVENTS), time));
    }
    report.add("largest store against smallest", points[2].1 / points[0].1, "x", Bar::AtMost(1.5));
    Ok(points)
}

/// Seals and uploads `epochs` epochs of every device.
fn fill(fleet: &mut Fleet, service: &Service, epochs: u64) -> Result<(), Failed> {
    let mut left = epochs;
    while left > 0 {
        let now = left.min(200);
        let uploads: Vec<_> =
            fleet.seal(now, EVENTS)?.iter().map(|bundles| requests(bundles, 50)).collect();
        upload(&service.address, &uploads)?;
        left -= now;
    }
    Ok(())
}
