//! Compares durable appends and verified reads with Tessera, a transparency log. Tessera uses its
//! POSIX storage on the same disk. Both systems use the same readings, once within the process and
//! once over HTTP. The runs alternate and are measured in wall-clock time.
//!
//! Moteseal stores bundles of 1,000 readings that devices have sealed, after it has verified every
//! signature and digest. Tessera stores entries without verification and signs the tree over all of
//! them. Tessera is measured twice: with one entry per reading, and with one entry per bundle. Both
//! systems acknowledge only when all data is synced to the disk (see docs/performance.md).

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_device::seal::Bundle;
use moteseal_seal::sample::Rate;

use crate::Outcome;
use crate::application::Application;
use crate::in_process::Direct;
use crate::load::{Failed, Fleet, Service, byte_sum, record, requests, upload};
use crate::measure::{Bar, Report, Spread};
use crate::tessera::{Answer, Built, Driver, How, Server, Source, build};

const DEVICES: u16 = 8;
/// The number of readings in a bundle.
const EVENTS: u32 = 1000;
const RUNS: usize = 5;
/// The number of bundles that a device uploads in each measurement.
const BUNDLES: u64 = 400;
/// The number of these bundles whose readings are used as single Tessera entries. More bundles take
/// longer without changing the rate. Over HTTP, [`ENTRIES_POSTED`] limits the number of entries
/// further.
const BUNDLES_OF_ENTRIES: u64 = 25;
const ENTRIES_POSTED: usize = 20_000;
/// The number of bundles of a device that are read: a million readings in total.
const BUNDLES_READ: u64 = 125;

/// The maximum number of entries that Tessera sequences together, and the maximum time that an
/// entry waits. Within the process, a batch consists of the entries that arrived while the previous
/// batch was written. Over HTTP the time is short, because clients that wait send no more entries.
/// These values were the fastest of those tried.
const BATCH: (u32, Duration) = (1 << 18, Duration::from_millis(20));
const BATCH_HTTP: (u32, Duration) = (4096, Duration::from_millis(10));
const POSTERS: u32 = 2048;
/// The number of files that a reader of a log fetches at a time.
const READERS: u32 = 4;
/// Inclusion proofs are measured for a part of the log only, because each takes the same time.
const PROOFS: How = How::Proofs { every: 8, limit: 20_480 };

pub(crate) fn run() -> Result<Outcome, Failed> {
    // Use the disk of the target directory: syncs on a temporary file system take no time.
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let program = match build(folder.path())? {
        Built::Program(program) => program,
        Built::Absent(why) => return Ok(Outcome::Skipped(why)),
    };
    let ingest = ingest(&program, &subfolder(folder.path(), "ingest")?)?;
    let reads = reads(&program, &subfolder(folder.path(), "reads")?)?;
    Ok(Outcome::Measured(vec![ingest, reads]))
}

fn subfolder(folder: &Path, name: &str) -> Result<PathBuf, Failed> {
    let path = folder.join(name);
    std::fs::create_dir_all(path.join("logs"))?;
    Ok(path)
}

fn ingest(program: &Path, folder: &Path) -> Result<Report, Failed> {
    let mut fleet = Fleet::new(DEVICES, Scheme::Star)?;
    fleet.write(folder)?;
    let roster = moteseal_verify::Roster::open(fleet.roster.bytes(), &fleet.operator_key())?;
    let service = Service::start(folder, true)?;
    let direct = Direct::open(&roster, &folder.join("direct.redb"))?;
    let logs = folder.join("logs");
    let mut driver = Driver::start(program)?;
    let server = Server::start(program, &logs, BATCH_HTTP)?;
    let mut bare = File::create(folder.join("bare"))?;
    let mut rates: [Vec<f64>; 10] = Default::default();
    for run in 0..=RUNS {
        let first = fleet.next_epoch();
        let one = fleet.seal(BUNDLES, EVENTS)?;
        let many = fleet.seal(BUNDLES, EVENTS)?;
        let plain = fleet.seal(BUNDLES, EVENTS)?;
        let bundles: Vec<Vec<u8>> =
            one.iter().flatten().map(|bundle| bundle.bytes.clone()).collect();
        let readings: Vec<[u8; 4]> = (0..DEVICES)
            .flat_map(|_| {
                (first..first + BUNDLES_OF_ENTRIES)
                    .flat_map(|epoch| (0..EVENTS).map(move |at| record(epoch, at)))
            })
            .collect();
        let (entries, posted, whole) =
            (folder.join("entries"), folder.join("posted"), folder.join("whole"));
        write_entries(&entries, &readings)?;
        write_entries(&posted, &readings[..ENTRIES_POSTED])?;
        write_entries(&whole, &bundles)?;
        let requests_of = |fleet: &[Vec<Bundle>], size| {
            fleet.iter().map(|of| requests(of, size)).collect::<Vec<_>>()
        };
        let bodies_of = |fleet: &[Vec<Bundle>], size| {
            fleet.iter().map(|of| bodies(of, size)).collect::<Vec<_>>()
        };
        let appended = |answer: Answer| answer.entries as f64 / answer.time.as_secs_f64();
        let uploaded = |time: Duration| bundles.len() as f64 / time.as_secs_f64();
        let measured = [
            synced_a_second(&mut bare, &bundles[..200])?,
            uploaded(direct.upload(bodies_of(&one, 1))?),
            uploaded(direct.upload(bodies_of(&many, 16))?),
            appended(driver.append(&logs.join("entries"), &entries, BATCH)?),
            appended(driver.append(&logs.join("whole"), &whole, BATCH)?),
            uploaded(upload(&service.address, &requests_of(&one, 1))?),
            uploaded(upload(&service.address, &requests_of(&many, 16))?),
            appended(driver.post(&server, &posted, POSTERS)?),
            appended(driver.post(&server, &whole, POSTERS)?),
            uploaded(direct.store(bodies_of(&plain, 1))?),
        ];
        // The first run only warms caches and grows files.
        if run > 0 {
            rates.iter_mut().zip(measured).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let mut report = Report::new(format!(
        "durable ingest compared with Tessera: {DEVICES} uploaders, bundles of {EVENTS} readings of 4 bytes, {RUNS} runs in turns"
    ));
    let readings =
        |of: usize| rates[of].iter().map(|rate| rate * f64::from(EVENTS)).collect::<Vec<_>>();
    let factor = |ours: &[f64], theirs: &[f64]| {
        Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
    };
    report.add_spread(
        "a bundle appended to a file and synced, one after the other",
        Spread::of(rates[0].clone()),
        "/s",
        None,
    );
    for (place, [one, many, entries, whole]) in
        [("in process", [1, 2, 3, 4]), ("over HTTP", [5, 6, 7, 8])]
    {
        report.add_spread(
            format!("{place}, readings a second: ours, 16 bundles at a time"),
            Spread::of(readings(many)),
            "/s",
            None,
        );
        report.add_spread(
            "  Tessera, an entry a reading",
            Spread::of(rates[entries].clone()),
            "/s",
            None,
        );
        report.add_spread(
            "    ours against it",
            factor(&readings(many), &rates[entries]),
            "x",
            Bar::AtLeast(10.0),
        );
        report.add_spread(
            format!("{place}, bundles a second: ours, one at a time"),
            Spread::of(rates[one].clone()),
            "/s",
            None,
        );
        report.add_spread("  ours, 16 at a time", Spread::of(rates[many].clone()), "/s", None);
        report.add_spread(
            "  Tessera, an entry a bundle",
            Spread::of(rates[whole].clone()),
            "/s",
            None,
        );
        report.add_spread(
            "    ours, one at a time, against it",
            factor(&rates[one], &rates[whole]),
            "x",
            None,
        );
        report.add_spread(
            "    ours, 16 at a time, against it",
            factor(&rates[many], &rates[whole]),
            "x",
            None,
        );
    }
    report.add_spread(
        "in process, bundles a second: ours, one at a time, verified before",
        Spread::of(rates[9].clone()),
        "/s",
        None,
    );
    report.add_spread(
        "    against Tessera's, which verifies nothing",
        factor(&rates[9], &rates[4]),
        "x",
        None,
    );
    Ok(report)
}

/// Returns the bodies of upload requests, each with `size` concatenated bundles.
fn bodies(bundles: &[Bundle], size: usize) -> Vec<Vec<u8>> {
    bundles
        .chunks(size)
        .map(|chunk| chunk.iter().flat_map(|bundle| bundle.bytes.iter().copied()).collect())
        .collect()
}

/// Writes entries to a file in the format that the Go program reads: each entry is preceded by its
/// length.
fn write_entries(path: &Path, entries: &[impl AsRef<[u8]>]) -> Result<(), Failed> {
    let mut file = BufWriter::new(File::create(path)?);
    for entry in entries {
        let entry = entry.as_ref();
        file.write_all(&u32::try_from(entry.len())?.to_be_bytes())?;
        file.write_all(entry)?;
    }
    Ok(file.flush()?)
}

/// Returns the number of bundles per second when each bundle is synced separately.
fn synced_a_second(file: &mut File, bundles: &[Vec<u8>]) -> Result<f64, Failed> {
    let start = Instant::now();
    for bundle in bundles {
        file.write_all(bundle)?;
        file.sync_data()?;
    }
    Ok(bundles.len() as f64 / start.elapsed().as_secs_f64())
}

fn reads(program: &Path, folder: &Path) -> Result<Report, Failed> {
    let mut fleet = Fleet::new(DEVICES, Scheme::Star)?;
    fleet.write(folder)?;
    let service = Service::start(folder, true)?;
    let first = fleet.next_epoch();
    let uploads: Vec<_> =
        fleet.seal(BUNDLES_READ, EVENTS)?.iter().map(|bundles| requests(bundles, 16)).collect();
    upload(&service.address, &uploads)?;
    let range = (first, fleet.next_epoch());
    let application = Application::new(&fleet.roster, &service.address, DEVICES.into())?;

    let logs = folder.join("logs");
    let mut driver = Driver::start(program)?;
    let server = Server::start(program, &logs, BATCH_HTTP)?;
    let readings: Vec<[u8; 4]> = (0..DEVICES)
        .flat_map(|_| {
            (range.0..range.1).flat_map(|epoch| (0..EVENTS).map(move |at| record(epoch, at)))
        })
        .collect();
    let (total, sealed) = (
        readings.len() as u64,
        u64::from(DEVICES) * (range.0..range.1).map(|epoch| byte_sum(epoch, EVENTS)).sum::<u64>(),
    );
    let (log, entries) = (logs.join("read"), folder.join("entries"));
    write_entries(&entries, &readings)?;
    let key = driver.append(&log, &entries, BATCH)?.key;

    let (files, http) = (
        Source::Files { folder: &log, workers: READERS },
        Source::Http { url: format!("http://{}/read/", server.address), connections: READERS },
    );
    let eighth: Rate = "1/8".parse()?;
    // Nanoseconds per reading, in this order: ours, all readings and an eighth; Tessera from files,
    // all entries, in clumps and with proofs; Tessera over HTTP, all entries and in clumps.
    let mut times: [Vec<f64>; 7] = Default::default();
    let mut bytes = [0.0; 4];
    for run in 0..=RUNS {
        let (all, part) = (application.get(range, Rate::ALL)?, application.get(range, eighth)?);
        if (all.rows, all.sum) != (total, sealed) {
            return Err(format!(
                "the cloud returned {} rows instead of {total}, or rows with other content",
                all.rows
            )
            .into());
        }
        let theirs = [
            driver.read(&files, &key, How::All)?,
            driver.read(&files, &key, How::Clumps(8))?,
            driver.read(&files, &key, PROOFS)?,
            driver.read(&http, &key, How::All)?,
            driver.read(&http, &key, How::Clumps(8))?,
        ];
        for whole in [&theirs[0], &theirs[3]] {
            if (whole.entries, whole.sum) != (total, sealed) {
                return Err(format!(
                    "Tessera read {} entries instead of {total}, or entries with other content",
                    whole.entries
                )
                .into());
            }
        }
        bytes =
            [all.bytes as f64, part.bytes as f64, theirs[3].bytes as f64, theirs[4].bytes as f64];
        if run > 0 {
            let ours = [(all.time, all.rows), (part.time, part.rows)];
            let measured =
                ours.into_iter().chain(theirs.iter().map(|answer| (answer.time, answer.entries)));
            for (times, (time, count)) in times.iter_mut().zip(measured) {
                times.push(time.as_secs_f64() * 1e9 / count as f64);
            }
        }
    }
    let mut report = Report::new(format!(
        "verified reads compared with Tessera: {total} readings of 4 bytes of {DEVICES} devices, warm, {RUNS} runs in turns; ours over HTTP throughout"
    ));
    let spread = |at: usize| Spread::of(times[at].clone());
    let factor = |theirs: usize, ours: usize| {
        Spread::of(times[theirs].iter().zip(&times[ours]).map(|(a, b)| a / b).collect())
    };
    // A scattered eighth costs Tessera at least as much as the complete log, because it needs
    // entries of every bundle of 256.
    let eighth_of_all = |theirs: usize, ours: usize| {
        Spread::of(times[theirs].iter().zip(&times[ours]).map(|(a, b)| a * 8.0 / b).collect())
    };
    report.add_spread("all, a reading: ours", spread(0), "ns", None);
    report.add_spread("  Tessera, over HTTP", spread(5), "ns", None);
    report.add_spread("    ours faster", factor(5, 0), "x", Bar::AtLeast(1.0));
    report.add_spread("  Tessera, from files", spread(2), "ns", None);
    report.add_spread("    ours faster, over HTTP as it is", factor(2, 0), "x", Bar::AtLeast(1.0));
    report.add_spread("a scattered eighth, a reading of it: ours", spread(1), "ns", None);
    report.add_spread(
        "  Tessera, all of it read over HTTP",
        Spread::of(times[5].iter().map(|time| time * 8.0).collect()),
        "ns",
        None,
    );
    report.add_spread("    ours faster", eighth_of_all(5, 1), "x", Bar::AtLeast(1.0));
    report.add_spread(
        "  Tessera, its client's inclusion proofs, from files",
        spread(4),
        "ns",
        None,
    );
    report.add_spread("    ours faster, over HTTP as it is", factor(4, 1), "x", Bar::AtLeast(1.0));
    report.add_spread(
        "an eighth in clumps of 256 neighbours, a reading of it: Tessera, over HTTP",
        spread(6),
        "ns",
        None,
    );
    report.add_spread("    our scattered eighth faster", factor(6, 1), "x", None);
    report.add_spread("  Tessera, from files", spread(3), "ns", None);
    report.add_spread(
        "    our scattered eighth faster, over HTTP as it is",
        factor(3, 1),
        "x",
        None,
    );
    report.add("bytes fetched a reading: ours, all", bytes[0] / total as f64, "B", None);
    report.add("  ours, an eighth", bytes[1] * 8.0 / total as f64, "B", None);
    report.add("  Tessera, all", bytes[2] / total as f64, "B", None);
    report.add("  Tessera, an eighth in clumps", bytes[3] * 8.0 / total as f64, "B", None);
    Ok(report)
}
