//! Section VI of the paper: messages from a sensor agent to a store, by four configurations of a cloud.
//!
//! The paper takes three times of each message: t1, when it is sent; t2, when the web service receives it;
//! and t3, when the store has it. Here t1 is taken by the sender. In configurations 1 to 3, t2 is when the
//! cloud has read the head of the request, and t3 when its store has synced the message to the disk. In
//! configuration 4, t2 is when the worker begins the write that has the message, and t3 when Cassandra has
//! acknowledged it, after the sync of its commit log. The wait of a message between its arrival at the
//! worker and the write is before t2. All messages of a write have the same t2 and t3. The services state
//! t2 and t3 in their logs.
//!
//! Each message is a seal of its own: the cloud stores nothing else. Configurations 1 to 3 take turns, so
//! that a slow machine slows all of them.

use std::fmt;
use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_terminal::interrupt;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::clouds::{Cloud, Site};
use super::log::{Done, Work, Write};
use super::spread::{Histogram, Spread};
use super::uploads::{Sender, Sent, send};
use super::{Failed, Fleet, Plan};

/// The messages per second of the paper's low rate.
pub const PER_SECOND: u32 = 5;
/// The devices of [`Rate::Parallel`], each of which has one message in progress.
pub const AT_ONCE: usize = 16;
/// The most points of a [`Run::timeline`].
const POINTS: usize = 500;
/// The number of messages in a row of which [`Run::detail`] has each.
const DETAIL: usize = 300;
/// The time of each configuration before the first run, at most.
const WARM_UP: Duration = Duration::from_secs(10);
/// How long the worker may take for what is in the stream at the end of a run.
const DRAIN: Duration = Duration::from_secs(900);

/// The configurations of the paper, section VI.A to D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Configuration {
    /// HTTP; one process with the embedded store.
    One,
    /// The same with HTTPS.
    Two,
    /// The same with HTTPS and a user's password.
    Three,
    /// HTTPS and a password; an intake, a stream, a worker and a table, with TLS and users for both engines.
    Four,
}

impl Configuration {
    /// All configurations.
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Three, Self::Four];
    /// Those of one process.
    pub const GRADES: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// Returns the paper's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
        }
    }

    /// Returns what it adds.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::One => "1: HTTP",
            Self::Two => "2: HTTPS",
            Self::Three => "3: HTTPS, password",
            Self::Four => "4: HTTPS, password, stream, worker, table",
        }
    }
}

impl TryFrom<u8> for Configuration {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        let found = Self::ALL.into_iter().find(|one| one.number() == number);
        found.ok_or("the configurations are 1 to 4")
    }
}

impl From<Configuration> for u8 {
    fn from(configuration: Configuration) -> Self {
        configuration.number()
    }
}

/// The store of configuration 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// A node of Cassandra.
    Cassandra,
    /// The embedded store in the worker's process, for a check without Java.
    Embedded,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// 24 bytes, 6 readings.
    Short,
    /// 1,024 bytes, 256 readings.
    Long,
    /// An epoch of 298 readings, 1,192 bytes: what a device uploads in normal use.
    Epoch,
}

impl Message {
    /// The two lengths of the paper, and ours.
    pub const ALL: [Self; 3] = [Self::Short, Self::Long, Self::Epoch];

    /// Returns the number of readings of four bytes.
    #[must_use]
    pub const fn readings(self) -> u32 {
        match self {
            Self::Short => 6,
            Self::Long => 256,
            Self::Epoch => 298,
        }
    }

    /// Returns the length of the readings in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        4 * self.readings()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short | Self::Long => {
                write!(f, "{} bytes", crate::table::thousands(self.bytes().into()))
            }
            Self::Epoch => write!(f, "bundle of {} readings", self.readings()),
        }
    }
}

/// How fast the messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rate {
    /// Five messages a second.
    Low,
    /// Each message as soon as the previous one is acknowledged.
    Maximum,
    /// The same from 16 devices at once. The paper has no such run.
    Parallel,
}

impl Rate {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low rate",
            Self::Maximum => "maximum rate",
            Self::Parallel => "16 devices at once",
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the time of a message of configuration 4 goes. The sum of the three is the end-to-end latency.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stages {
    /// From t1 until the intake has the head of the request.
    pub request: Spread,
    /// Until the worker begins to write the message (t2): the intake verifies it, the stream syncs it and
    /// delivers it, and it waits at the worker for the writes in progress.
    pub stream: Spread,
    /// Until Cassandra has acknowledged it (t3).
    pub table: Spread,
    /// From t1 until the sender has the acknowledgement of the stream.
    pub acknowledged: Spread,
}

/// How many messages the worker writes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// The number of writes.
    pub writes: u64,
    /// The number of messages of the median write.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The most messages of a write.
    pub max: u64,
}

/// A message in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When it was sent, in seconds since the first one.
    pub at_s: f64,
    /// The end-to-end latency, in milliseconds.
    pub total: f64,
    /// The processing latency, in milliseconds.
    pub processing: f64,
}

/// The results of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The configuration.
    pub configuration: Configuration,
    /// The messages.
    pub message: Message,
    /// Their rate.
    pub rate: Rate,
    /// The mean length of an upload, in bytes.
    pub upload_bytes: f64,
    /// The messages per second.
    pub per_second: f64,
    /// The mean time for sealing one message, which is before t1, in milliseconds.
    pub sealing_ms: f64,
    /// The end-to-end latency of the first message, which opens the connection, in milliseconds.
    pub first: f64,
    /// The end-to-end latency, t3 - t1.
    pub total: Spread,
    /// The transmission latency, t2 - t1.
    pub transmission: Spread,
    /// The processing latency, t3 - t2.
    pub processing: Spread,
    /// The parts of configuration 4's latency; absent with several messages in progress.
    pub stages: Option<Stages>,
    /// The writes of configuration 4's worker.
    pub batches: Option<Batches>,
    /// The end-to-end latencies.
    pub histogram: Histogram,
    /// The processing latencies.
    pub processing_histogram: Histogram,
    /// Messages over the time of the run, if a figure needs them ([`Run::is_drawn`]). Of many messages, each
    /// interval has the one with the longest end-to-end latency.
    pub timeline: Vec<Point>,
    /// The same for figure 6 ([`Run::is_of_figure_6`]), with the longest processing latency of each interval.
    #[serde(default)]
    pub processing_timeline: Vec<Point>,
    /// Messages in a row from the middle of the run.
    pub detail: Vec<Point>,
}

impl Run {
    /// Returns whether the figures show the messages of such a run over time.
    #[must_use]
    pub fn is_drawn(configuration: Configuration, message: Message, rate: Rate) -> bool {
        let is_of_figure_5 = message != Message::Epoch && rate != Rate::Low;
        is_of_figure_5 || Self::is_of_figure_6(configuration, message)
    }

    /// Returns whether figure 6 shows such a run.
    #[must_use]
    pub fn is_of_figure_6(configuration: Configuration, message: Message) -> bool {
        (configuration, message) == (Configuration::Four, Message::Short)
    }
}

/// The times of a message in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Times {
    sent: i64,
    request: Option<i64>,
    received: i64,
    stored: i64,
    acknowledged: i64,
}

/// A configuration that runs, with its devices.
struct Target {
    configuration: Configuration,
    cloud: Cloud,
    fleet: Fleet,
}

pub(super) fn measure(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Vec<Run>, Failed> {
    let folder = tempfile::tempdir_in(&plan.folder)?;
    let path = std::path::absolute(folder.path())?;
    let remove = path.clone();
    interrupt::on_stop(move || drop(std::fs::remove_dir_all(remove)));
    let site = Site::new(&plan.programs, &path, &fleet()?)?;
    let target = |configuration: Configuration| -> Result<Target, Failed> {
        // Each has the same devices, which start from their first seal.
        Ok(Target { configuration, cloud: site.start(configuration)?, fleet: fleet()? })
    };
    let (grades, four): (Vec<_>, Vec<_>) =
        plan.configurations.iter().partition(|one| **one != Configuration::Four);
    let mut runs = Vec::new();
    if !grades.is_empty() {
        progress("wired: starting configurations 1 to 3");
        let mut targets = grades.into_iter().map(target).collect::<Result<Vec<_>, _>>()?;
        runs.extend(all(&mut targets, plan, &[Rate::Low, Rate::Maximum], progress)?);
    }
    if !four.is_empty() {
        progress("wired: starting configuration 4");
        let mut targets = [target(Configuration::Four)?];
        let rates = [Rate::Low, Rate::Maximum, Rate::Parallel];
        runs.extend(all(&mut targets, plan, &rates, progress)?);
    }
    Ok(runs)
}

#[allow(clippy::cast_possible_truncation)]
fn fleet() -> Result<Fleet, Failed> {
    Fleet::new(AT_ONCE as u32, Scheme::Star)
}

/// Runs all messages at all rates.
fn all(
    targets: &mut [Target],
    plan: &Plan,
    rates: &[Rate],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Run>, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut runs = Vec::new();
    // The services and engines get as warm as those that have run for a while.
    progress("wired: warming up");
    run(&runtime, targets, (Message::Long, Rate::Maximum), plan.time.min(WARM_UP))?;
    for &rate in rates {
        for message in Message::ALL {
            let names: Vec<_> =
                targets.iter().map(|one| one.configuration.number().to_string()).collect();
            progress(&format!(
                "wired: configurations {}, {rate}, {message}: {} s each",
                names.join(", "),
                plan.time.as_secs_f64()
            ));
            runs.extend(run(&runtime, targets, (message, rate), plan.time)?);
        }
    }
    Ok(runs)
}

/// Runs one kind of messages at one rate, each configuration for this time.
fn run(
    runtime: &Runtime,
    targets: &mut [Target],
    (message, rate): (Message, Rate),
    time: Duration,
) -> Result<Vec<Run>, Failed> {
    let mut senders = Vec::new();
    for Target { cloud, fleet, .. } in targets.iter_mut() {
        senders.push((Sender::new(cloud.client()?), fleet));
    }
    runtime.block_on(send(&mut senders, message, rate, time))?;
    let senders: Vec<Sender> = senders.into_iter().map(|(sender, _)| sender).collect();
    let mut runs = Vec::new();
    for (target, sender) in targets.iter_mut().zip(senders) {
        let (times, batches) = times(&mut target.cloud, &sender.sent, rate)?;
        let kind = (target.configuration, message, rate);
        runs.push(summary(kind, &sender, &times, batches));
    }
    Ok(runs)
}

/// Returns the times of the messages that were sent, from the logs of the services.
fn times(
    cloud: &mut Cloud,
    sent: &[Sent],
    rate: Rate,
) -> Result<(Vec<Times>, Option<Batches>), Failed> {
    let uploads: Vec<Work> = cloud.uploads.news()?.into_iter().filter_map(upload).collect();
    if uploads.len() != sent.len() {
        let (sent, served) = (sent.len(), uploads.len());
        return Err(format!("{sent} uploads were acknowledged, but the log has {served}").into());
    }
    let Some(log) = &mut cloud.writes else {
        let times = sent.iter().zip(&uploads).map(|(sent, upload)| Times {
            sent: sent.sent_us,
            request: Some(upload.from_us),
            received: upload.from_us,
            stored: upload.to_us,
            acknowledged: sent.acknowledged_us,
        });
        let times: Vec<Times> = times.collect();
        check_order(&times)?;
        return Ok((times, None));
    };
    let until = Instant::now() + DRAIN;
    let last = sent.iter().filter_map(|sent| sent.position).max().ok_or("no upload was queued")?;
    let mut writes: Vec<Write> = Vec::new();
    let mut stored = 0;
    // Two writes may be in progress, so the last position may be stored before an earlier one.
    while stored < sent.len() as u64 || writes.iter().all(|write| write.positions.1 < last) {
        if Instant::now() > until {
            return Err(format!("the worker has stored {stored} of {} messages", sent.len()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
        for done in log.news()? {
            let Done::Write(write) = done else { continue };
            stored += write.messages;
            writes.push(write);
        }
    }
    writes.sort_unstable_by_key(|write| write.positions.0);
    let find = |position: u64| {
        let after = writes.partition_point(|write| write.positions.0 <= position);
        writes.get(after.checked_sub(1)?).filter(|write| write.positions.1 >= position)
    };
    let mut times = Vec::with_capacity(sent.len());
    for (sent, upload) in sent.iter().zip(&uploads) {
        let position = sent.position.ok_or("an upload was not queued")?;
        let write = find(position).ok_or_else(|| format!("no write has position {position}"))?;
        times.push(Times {
            sent: sent.sent_us,
            request: (rate != Rate::Parallel).then_some(upload.from_us),
            received: write.work.from_us,
            stored: write.work.to_us,
            acknowledged: sent.acknowledged_us,
        });
    }
    times.sort_unstable_by_key(|times| times.sent);
    check_order(&times)?;
    Ok((times, Some(batches(&writes))))
}

/// Checks that t1 <= t2 <= t3 for each message.
fn check_order(times: &[Times]) -> Result<(), Failed> {
    let is_wrong = |of: &&Times| of.received < of.sent || of.stored < of.received;
    let Some(Times { sent, received, stored, .. }) = times.iter().find(is_wrong) else {
        return Ok(());
    };
    Err(format!(
        "the times of a message are not in order: sent at {sent}, received at {received}, stored at {stored} us; did \
         the clock of this machine change?"
    )
    .into())
}

fn upload(done: Done) -> Option<Work> {
    match done {
        Done::Upload(work) => Some(work),
        Done::Write(_) => None,
    }
}

fn batches(writes: &[Write]) -> Batches {
    let mut sizes: Vec<u64> = writes.iter().map(|write| write.messages).collect();
    sizes.sort_unstable();
    let rank = |percent: usize| {
        let place = (sizes.len() * percent).div_ceil(100).max(1) - 1;
        sizes.get(place).copied().unwrap_or_default()
    };
    Batches { writes: sizes.len() as u64, p50: rank(50), p99: rank(99), max: rank(100) }
}

/// Returns the milliseconds between two times.
#[allow(clippy::cast_precision_loss)]
fn ms(from: i64, to: i64) -> f64 {
    (to - from) as f64 / 1e3
}

#[allow(clippy::cast_precision_loss)]
fn summary(
    (configuration, message, rate): (Configuration, Message, Rate),
    sender: &Sender,
    times: &[Times],
    batches: Option<Batches>,
) -> Run {
    let each = |of: fn(&Times) -> f64| times.iter().map(of).collect::<Vec<f64>>();
    let total = each(|of| ms(of.sent, of.stored));
    let processing = each(|of| ms(of.received, of.stored));
    let stages = (configuration == Configuration::Four && rate != Rate::Parallel).then(|| Stages {
        request: Spread::of(each(|of| ms(of.sent, of.request.unwrap_or(of.sent)))),
        stream: Spread::of(each(|of| ms(of.request.unwrap_or(of.sent), of.received))),
        table: Spread::of(processing.clone()),
        acknowledged: Spread::of(each(|of| ms(of.sent, of.acknowledged))),
    });
    let start = times.first().map_or(0, |first| first.sent);
    let point = |of: &Times| Point {
        at_s: ms(start, of.sent) / 1e3,
        total: ms(of.sent, of.stored),
        processing: ms(of.received, of.stored),
    };
    let longest = |times: &[Times], of: fn(&Point) -> f64| {
        let intervals = times.chunks(times.len().div_ceil(POINTS).max(1));
        let longest =
            |part: &[Times]| part.iter().map(point).max_by(|a, b| of(a).total_cmp(&of(b)));
        intervals.filter_map(longest).collect::<Vec<Point>>()
    };
    let count = times.len().max(1) as f64;
    let kept = |is_kept: bool| if is_kept { times } else { &[] };
    let drawn = kept(Run::is_drawn(configuration, message, rate));
    let of_figure_6 = kept(Run::is_of_figure_6(configuration, message));
    Run {
        configuration,
        message,
        rate,
        upload_bytes: sender.bytes as f64 / count,
        per_second: count / sender.busy.as_secs_f64(),
        sealing_ms: sender.sealing.as_secs_f64() * 1e3 / count,
        first: total.first().copied().unwrap_or_default(),
        histogram: Histogram::of(&total),
        processing_histogram: Histogram::of(&processing),
        total: Spread::of(total),
        transmission: Spread::of(each(|of| ms(of.sent, of.received))),
        processing: Spread::of(processing),
        stages,
        batches,
        timeline: longest(drawn, |point| point.total),
        processing_timeline: longest(of_figure_6, |point| point.processing),
        detail: drawn
            .iter()
            .skip(times.len().saturating_sub(DETAIL) / 2)
            .take(DETAIL)
            .map(point)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn times(sent: i64, received: i64, stored: i64) -> Times {
        Times { sent, request: None, received, stored, acknowledged: stored }
    }

    #[test]
    fn a_message_whose_times_are_not_in_order_is_an_error() {
        let kept = [times(5, 5, 9), times(7, 8, 8)];
        check_order(&kept).unwrap();
        for wrong in [times(6, 5, 9), times(5, 9, 8)] {
            let [first, second] = kept;
            let error = check_order(&[first, wrong, second]).unwrap_err().to_string();
            assert!(error.contains(&format!("received at {}", wrong.received)), "{error}");
        }
    }

    #[test]
    fn each_interval_of_figure_6_has_its_longest_processing_latency() {
        // Of the first two messages, one has the longer end-to-end latency, and the other one the longer
        // processing latency.
        let mut all = vec![times(0, 8_000, 9_000), times(1_000, 2_000, 7_000)];
        let count = i64::try_from(2 * POINTS).unwrap();
        all.extend((2..count).map(|at| times(at * 1_000, at * 1_000 + 1, at * 1_000 + 2)));
        let client =
            moteseal_net::Client::new("http://127.0.0.1:1", &moteseal_net::Options::default());
        let sender = Sender::new(client.unwrap());
        let of = |configuration, message, rate| {
            summary((configuration, message, rate), &sender, &all, None)
        };
        let run = of(Configuration::Four, Message::Short, Rate::Low);
        assert_eq!((run.timeline.len(), run.processing_timeline.len()), (POINTS, POINTS));
        assert!((run.timeline[0].total - 9.0).abs() < 1e-9);
        assert!((run.processing_timeline[0].processing - 5.0).abs() < 1e-9);
        // Figure 5 has no messages at the low rate, and figure 6 only those of configuration 4.
        let grade = of(Configuration::One, Message::Short, Rate::Maximum);
        assert_eq!((grade.timeline.len(), grade.processing_timeline.len()), (POINTS, 0));
        let low = of(Configuration::Four, Message::Long, Rate::Low);
        assert!(low.timeline.is_empty() && low.detail.is_empty());
    }
}
