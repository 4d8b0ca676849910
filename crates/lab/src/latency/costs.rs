//! What the uploads of many devices cost in configuration 4: the processor time of each process and the
//! bytes on disk. The costs of a small fleet predict those of a large one (docs/scale.md, Sizing).
//!
//! A request has [`Plan::per_request`] bundles: each of another device, as those of a gateway, or several of
//! one device, as those of a device that was offline.

mod scale;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_api::{CBOR_SEQ, paths};
use moteseal_core::record::Scheme;
use moteseal_net::{Client, Options};
use moteseal_terminal::interrupt;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::clouds::{Cloud, Site};
use super::profile::Recordings;
use super::wired::{Configuration, Message};
use super::{Failed, Fleet, Programs};

pub use scale::{Results, Scale, Total};

/// The default of [`Plan::per_request`].
pub const PER_REQUEST: u32 = 16;
/// The requests in progress.
const AT_ONCE: usize = 4;
/// The default of [`Plan::small`].
pub const SMALL: u32 = 10_000;
/// The default of [`Plan::large`].
pub const LARGE: u32 = 100_000;
/// The default of [`Plan::warm_up`].
pub const WARM_UP: u32 = 40_000;
/// The bundles between two lines of progress.
const TELL: u32 = 10_000;
/// How long the worker may take for what is in the stream.
const DRAIN: Duration = Duration::from_secs(900);
/// How long an engine may take to stop.
const STOP: Duration = Duration::from_secs(120);
/// The processor time of intake and worker together for a bundle should not exceed this, in microseconds.
pub const BAR_US: f64 = 150.0;
/// The largest deviation of a large fleet from the prediction.
pub const DEVIATION: f64 = 0.3;

/// What is measured, and with which programs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The folder in which stores, engines and logs are while the experiment runs. It must exist.
    pub folder: PathBuf,
    /// The programs.
    pub programs: Programs,
    /// The devices of the small fleet, from whose costs the model predicts.
    pub small: u32,
    /// The devices of the large fleet.
    pub large: u32,
    /// The bundles of a request.
    pub per_request: u32,
    /// The bundles of a device in a request. The bundles of a request must be divisible by it.
    pub each: u32,
    /// The bundles that are uploaded before anything is measured, so that the virtual machine of
    /// Cassandra has compiled its code; at least one for each device, because the first bundle of a
    /// device costs more than those that it uploads for years.
    pub warm_up: u32,
    /// The nats-servers, each of which stores every message: 1, 3 or 5.
    pub replicas: usize,
    /// Record where the processes spend their time with `perf`, into files of the folder, during the
    /// measurement of the large fleet. That costs time in each process.
    pub profile: bool,
}

/// The processor time of each process in microseconds a bundle, and the bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The devices, which is the number of bundles that were measured.
    pub devices: u32,
    /// The readings of a bundle.
    pub readings: u32,
    /// The mean length of a bundle in bytes.
    pub bundle_bytes: f64,
    /// The time until all bundles were stored, in seconds.
    pub seconds: f64,
    /// The intake: HTTPS, verification, and publishing.
    pub intake_us: f64,
    /// The nats-server; with several replicas, the one that used most, which leads the stream.
    pub stream_us: f64,
    /// With several replicas, the mean of the other nats-servers.
    pub followers_us: Option<f64>,
    /// The worker, with the client of the table or the embedded store.
    pub worker_us: f64,
    /// Cassandra, if it is the store.
    pub cassandra_us: Option<f64>,
    /// The bundles in the store at the end, with those that were uploaded before the measurement.
    pub stored: u64,
    /// The bytes of a reading on the disk of the store, after it was stopped.
    pub disk_bytes: f64,
}

impl Costs {
    /// Returns the medians of the costs of a fleet in several repetitions. `None` without any.
    fn medians<'c>(repetitions: impl Iterator<Item = &'c Self>) -> Option<Self> {
        let all: Vec<&Self> = repetitions.collect();
        let of = |cost: fn(&Self) -> f64| {
            scale::median(&mut all.iter().map(|costs| cost(costs)).collect::<Vec<_>>())
        };
        let first = **all.first()?;
        Some(Self {
            bundle_bytes: of(|costs| costs.bundle_bytes),
            seconds: of(|costs| costs.seconds),
            intake_us: of(|costs| costs.intake_us),
            stream_us: of(|costs| costs.stream_us),
            followers_us: first.followers_us.map(|_| of(|costs| costs.followers_us.unwrap_or(0.0))),
            worker_us: of(|costs| costs.worker_us),
            cassandra_us: first.cassandra_us.map(|_| of(|costs| costs.cassandra_us.unwrap_or(0.0))),
            disk_bytes: of(|costs| costs.disk_bytes),
            ..first
        })
    }

    /// Returns the costs that the large fleet is compared by, with their names.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let mut named = vec![
            ("intake, us a bundle", self.intake_us),
            ("stream, us a bundle", self.stream_us),
            ("worker, us a bundle", self.worker_us),
        ];
        named.extend(self.followers_us.map(|us| ("other replicas, us a bundle", us)));
        named.extend(self.cassandra_us.map(|us| ("Cassandra, us a bundle", us)));
        named.push(("disk, bytes a reading", self.disk_bytes));
        named
    }

    /// Returns the processor time of all nats-servers, the leader of the stream first, in microseconds a
    /// bundle, and of the other processes.
    fn processes(&self, replicas: usize) -> Vec<(&'static str, f64)> {
        let mut processes = vec![("intake", self.intake_us)];
        match self.followers_us {
            None => processes.push(("stream", self.stream_us)),
            Some(us) => {
                processes.push(("leader of the stream", self.stream_us));
                #[allow(clippy::cast_precision_loss)]
                let others = replicas.saturating_sub(1) as f64;
                processes.push(("other nats-servers", us * others));
            }
        }
        processes.push(("worker", self.worker_us));
        processes.extend(self.cassandra_us.map(|us| ("Cassandra", us)));
        processes
    }
}

/// Measures both fleets. Calls `progress` before each step.
///
/// # Errors
/// A program is missing or does not start, or a bundle is lost.
pub fn measure(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Scale, Failed> {
    let small = fleet(plan, plan.small, false, progress)?;
    let large = fleet(plan, plan.large, plan.profile, progress)?;
    Ok(Scale {
        machine: super::machine(),
        processors: std::thread::available_parallelism()?.get(),
        replicas: plan.replicas,
        per_request: plan.per_request,
        each: plan.each,
        small,
        large,
        totals: Vec::new(),
    }
    .with_totals())
}

/// The processor time that each process has used so far, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) intake: f64,
    /// The time of each nats-server.
    pub(super) stream: Vec<f64>,
    pub(super) worker: f64,
    pub(super) cassandra: Option<f64>,
}

fn fleet(
    plan: &Plan,
    devices: u32,
    profile: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Costs, Failed> {
    progress(&format!("{devices} devices: making their keys"));
    let folder = tempfile::tempdir_in(&plan.folder)?;
    let path = std::path::absolute(folder.path())?;
    let remove = path.clone();
    interrupt::on_stop(move || drop(fs::remove_dir_all(remove)));
    let mut fleet = Fleet::new(devices, Scheme::Star)?;
    let site = Site::new(&plan.programs, &path, &fleet)?.without_times();
    let site = site.with_replicas(plan.replicas).profiled(profile);
    progress(&format!("{devices} devices: starting the cloud"));
    let cloud = site.start(Configuration::Four)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    progress(&format!("{devices} devices: warming up"));
    let (per_request, each) = (plan.per_request.max(1), plan.each);
    let mut bundles = Bundles { fleet: &mut fleet, devices, per_request, each, next: 0 };
    let warm_up = plan.warm_up.max(devices);
    runtime.block_on(bundles.upload(&cloud, warm_up, &mut |_| {}))?;
    runtime.block_on(drained(&cloud, warm_up.into()))?;
    let recordings = profile.then(|| cloud.record(&plan.folder)).transpose()?;
    let (before, start) = (cloud.used()?, Instant::now());
    let bytes = runtime.block_on(bundles.upload(&cloud, devices, &mut |done| {
        progress(&format!("{devices} devices: {done} bundles uploaded"));
    }))?;
    let stored = u64::from(warm_up) + u64::from(devices);
    runtime.block_on(drained(&cloud, stored))?;
    let (after, seconds) = (cloud.used()?, start.elapsed().as_secs_f64());
    recordings.map_or(Ok(()), Recordings::end)?;
    let readings = Message::Epoch.readings();
    let disk = cloud.stop_store(&path, STOP)?;
    let each = |after: f64, before: f64| (after - before) / f64::from(devices) * 1e6;
    let servers = after.stream.iter().zip(&before.stream);
    let (busiest, followers) = busiest(servers.map(|(after, before)| each(*after, *before)));
    #[allow(clippy::cast_precision_loss)]
    Ok(Costs {
        devices,
        readings,
        bundle_bytes: bytes as f64 / f64::from(devices),
        seconds,
        intake_us: each(after.intake, before.intake),
        stream_us: busiest,
        followers_us: followers,
        worker_us: each(after.worker, before.worker),
        cassandra_us: after.cassandra.zip(before.cassandra).map(|(after, of)| each(after, of)),
        stored,
        disk_bytes: disk as f64 / (stored as f64 * f64::from(readings)),
    })
}

/// Returns the largest of the servers' times, and the mean of the others if there are any.
fn busiest(times: impl Iterator<Item = f64>) -> (f64, Option<f64>) {
    let mut times: Vec<f64> = times.collect();
    times.sort_unstable_by(f64::total_cmp);
    let most = times.pop().unwrap_or(0.0);
    let others: f64 = times.iter().sum();
    #[allow(clippy::cast_precision_loss)]
    let mean = (!times.is_empty()).then(|| others / times.len() as f64);
    (most, mean)
}

/// The bundles of a fleet, in the order of their uploads: `each` of the first device, as many of the next
/// one, and after all devices again of the first.
struct Bundles<'f> {
    fleet: &'f mut Fleet,
    devices: u32,
    per_request: u32,
    each: u32,
    /// The number of the next bundle.
    next: u32,
}

impl Bundles<'_> {
    fn seal(&mut self) -> Result<Vec<u8>, Failed> {
        let (turn, place) = (self.next / (self.devices * self.each), self.next % self.each);
        let device = usize::try_from(self.next / self.each % self.devices)?;
        let epoch = self.fleet.next_epoch() + u64::from(turn * self.each + place);
        self.next += 1;
        Ok(self.fleet.seal_epoch(device, epoch, Message::Epoch.readings())?.bytes)
    }

    /// Uploads `count` bundles, and returns their length.
    async fn upload(
        &mut self,
        cloud: &Cloud,
        count: u32,
        tell: &mut dyn FnMut(u32),
    ) -> Result<u64, Failed> {
        let client = cloud.client()?;
        let mut uploads = JoinSet::new();
        let (mut length, mut sent) = (0, 0);
        while sent < count {
            let mut request = Vec::new();
            let last = count.min(sent + self.per_request);
            while sent < last {
                request.extend_from_slice(&self.seal()?);
                sent += 1;
                if sent % TELL == 0 {
                    tell(sent);
                }
            }
            length += request.len() as u64;
            if uploads.len() >= AT_ONCE
                && let Some(done) = uploads.join_next().await
            {
                done??;
            }
            let client = client.clone();
            uploads.spawn(async move {
                let response = client.put(paths::BUNDLES, CBOR_SEQ, request.into()).await?;
                response.bytes(4096).await?;
                Ok::<(), Failed>(())
            });
        }
        while let Some(done) = uploads.join_next().await {
            done??;
        }
        Ok(length)
    }
}

/// Waits until the worker has stored this many bundles.
async fn drained(cloud: &Cloud, count: u64) -> Result<(), Failed> {
    let url = cloud.worker.as_deref().ok_or("there is no worker")?;
    let client = Client::new(url, &Options::default())?;
    let until = Instant::now() + DRAIN;
    loop {
        let page = client.get(paths::METRICS).await?.bytes(1 << 20).await?;
        let page = String::from_utf8(page)?;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix("moteseal_worker_stored_total "))
            .ok_or("the worker does not state what it has stored")?;
        let stored: u64 = value.trim().parse()?;
        if stored >= count {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("the worker has stored {stored} of {count} bundles").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the length of all files in a folder.
pub(super) fn bytes_in(folder: &Path) -> Result<u64, Failed> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
