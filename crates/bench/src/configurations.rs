//! Tables III and IV of Mishra et al., "Trade-offs involved in the choice of Cloud Service
//! Configurations when Building Secure, Scalable, and Efficient IoT Networks" (section VI): the
//! latency of messages of 24 and 1,024 bytes at three configurations of a cloud: HTTP, HTTPS, and
//! HTTPS with a user name and a password. Configuration 4 is a commercial infrastructure, which is
//! not repeated here.

use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_device::seal::Bundle;
use moteseal_lab::report::page::{Entry, Shown};
use moteseal_lab::table::Table;

use crate::grades::{Clouds, Grade};
use crate::load::{Failed, Fleet};

/// The paper's configurations 1 to 3.
const CONFIGURATIONS: [Grade; 3] = [Grade::Plain, Grade::Tls, Grade::Password];
/// The lengths of the paper's messages, and the number of readings of four bytes with this length.
const LENGTHS: [(u32, u32); 2] = [(24, 6), (1024, 256)];
/// The time between two messages at the paper's low rate.
const LOW_RATE: Duration = Duration::from_millis(200);

/// The paper's average end-to-end latency in ms, by configuration: at the low rate with 24 and 1,024
/// bytes, then at the maximum rate.
const PAPER_TOTAL: [[f64; 4]; 3] =
    [[20.8, 20.6, 18.8, 19.2], [20.8, 23.0, 18.4, 23.3], [21.8, 20.2, 25.6, 29.9]];
/// The paper's average processing latency in ms.
const PAPER_PROCESSING: [[f64; 4]; 3] =
    [[0.11, 0.09, 0.06, 0.05], [0.06, 0.07, 0.04, 0.06], [0.23, 0.63, 0.16, 0.25]];

/// The number of messages at each rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    low: u64,
    maximum: u64,
}

impl Effort {
    /// The paper's runs last 300 s. These last 10 s at the low rate.
    pub(crate) const FULL: Self = Self { low: 50, maximum: 1000 };
    pub(crate) const QUICK: Self = Self { low: 2, maximum: 10 };
}

/// The average latencies in ms of one configuration, in the order of the paper's columns.
#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    total: [f64; 4],
    processing: [f64; 4],
}

/// Measures both tables and writes their data to `out`.
pub(crate) fn entries(out: &Path, effort: Effort) -> Result<Vec<Entry>, String> {
    let measured = measure(effort).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(out).map_err(|error| error.to_string())?;
    let total = measured.map(|of| of.total);
    let processing = measured.map(|of| of.processing);
    let tables = [
        (
            entry("cloud-table-3", "Table III: average end-to-end latency", &PAPER_TOTAL, &total)
                .why(
                    "The paper's messages cross the Internet from a Raspberry Pi to a data centre, which \
                     takes nearly all of its time. Ours stay on one machine, over connections that stay \
                     open. Our time ends when the sender has the acknowledgement, so it includes the \
                     way back. Each of our messages is a signed seal, which the cloud verifies and \
                     syncs to its disk before it acknowledges it; this is most of our time. The paper \
                     sends the password with each message and looks it up in MySQL; our cloud hashes \
                     it once and then compares a keyed digest.",
                ),
            total,
        ),
        (
            entry(
                "cloud-table-4",
                "Table IV: average processing latency",
                &PAPER_PROCESSING,
                &processing,
            )
            .why(
                "The paper's time ends when MySQL has accepted the row, which need not be on the disk. \
                 Our time is between the head of the request and that of the response: it includes \
                 the verification of the seal's signature and digests, and the sync of the store's \
                 journal to the disk.",
            ),
            processing,
        ),
    ];
    let mut entries = Vec::new();
    for (entry, values) in tables {
        let name = format!("{}.csv", entry.id);
        std::fs::write(out.join(&name), csv(&values)).map_err(|error| error.to_string())?;
        entries.push(entry.data(&name));
    }
    Ok(entries)
}

fn measure(effort: Effort) -> Result<[Latencies; 3], Failed> {
    // Use the disk of the target directory: syncs on a temporary file system take no time.
    let program = std::env::current_exe()?;
    let folder = tempfile::tempdir_in(program.parent().ok_or("this program is in no folder")?)?;
    let mut fleet = Fleet::new(1, Scheme::Star)?;
    let clouds = Clouds::start(folder.path(), &fleet.roster, &CONFIGURATIONS)?;
    let mut one = |readings: u32, count: u64| -> Result<Vec<Bundle>, Failed> {
        fleet.seal(count, readings)?.pop().ok_or_else(|| "no device".into())
    };
    // The first message opens the connection. The paper's averages include it, among thousands.
    for bundle in one(1, 1)? {
        for grade in CONFIGURATIONS {
            clouds.upload(grade, &bundle.bytes)?;
        }
    }
    let mut measured = [Latencies::default(); 3];
    for (column, (_, readings)) in LENGTHS.into_iter().enumerate() {
        for (column, count, pause) in
            [(column, effort.low, Some(LOW_RATE)), (column + 2, effort.maximum, None)]
        {
            let bundles = one(readings, count)?;
            let before = processing(&clouds)?;
            let mut sums = [Duration::ZERO; 3];
            for bundle in &bundles {
                let start = Instant::now();
                for (grade, sum) in CONFIGURATIONS.into_iter().zip(&mut sums) {
                    *sum += clouds.upload(grade, &bundle.bytes)?;
                }
                let rest = pause.and_then(|pause| pause.checked_sub(start.elapsed()));
                std::thread::sleep(rest.unwrap_or_default());
            }
            let after = processing(&clouds)?;
            for (place, of) in measured.iter_mut().enumerate() {
                let ((from, first), (to, last)) = (before[place], after[place]);
                of.total[column] = sums[place].as_secs_f64() * 1e3 / bundles.len() as f64;
                of.processing[column] = (to - from) * 1e3 / (last - first);
            }
        }
    }
    Ok(measured)
}

fn processing(clouds: &Clouds) -> Result<[(f64, f64); 3], Failed> {
    let mut all = [(0.0, 0.0); 3];
    for (grade, of) in CONFIGURATIONS.into_iter().zip(&mut all) {
        *of = clouds.processing(grade)?;
    }
    Ok(all)
}

fn entry(id: &str, title: &str, paper: &[[f64; 4]; 3], ours: &[[f64; 4]; 3]) -> Entry {
    let mut table = Table::new([
        "configuration",
        "low rate, 24 B: paper",
        "ours",
        "low rate, 1,024 B: paper",
        "ours",
        "maximum rate, 24 B: paper",
        "ours",
        "maximum rate, 1,024 B: paper",
        "ours",
    ]);
    for ((grade, paper), ours) in CONFIGURATIONS.into_iter().zip(paper).zip(ours) {
        let pair = |column: usize| [format!("{} ms", paper[column]), ms(ours[column])];
        let [[a, b], [c, d], [e, f], [g, h]] = [0, 1, 2, 3].map(pair);
        table.row([grade.name().to_owned(), a, b, c, d, e, f, g, h]);
    }
    let summary = |values: &[[f64; 4]; 3], shown: fn(f64) -> String| {
        let [plain, tls, login] = values.map(|of| shown(of[3]));
        format!("1,024 bytes at the maximum rate: {plain}, with TLS {tls}, with a password {login}")
    };
    Entry::new(id, title, "moteseal-bench lab")
        .paper(summary(paper, |value| format!("{value} ms")))
        .ours(summary(ours, ms))
        .replacement("one machine instead of a Raspberry Pi and a data centre")
        .show(Shown::Table(table))
}

fn ms(value: f64) -> String {
    format!("{value:.2} ms")
}

fn csv(ours: &[[f64; 4]; 3]) -> String {
    let mut text = "configuration,low_24_ms,low_1024_ms,maximum_24_ms,maximum_1024_ms\n".to_owned();
    for (grade, [a, b, c, d]) in CONFIGURATIONS.into_iter().zip(ours) {
        text += &format!("{},{a:.4},{b:.4},{c:.4},{d:.4}\n", grade.name());
    }
    text
}
