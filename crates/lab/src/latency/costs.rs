//! What the uploads of many devices cost in configuration 4: the processor time of each process and the
//! bytes on disk. The costs of a small fleet predict those of a large one (docs/scale.md, Sizing).
//!
//! Each request has 16 bundles: each of another device, as those of a gateway, or several of one device, as
//! those of a device that was offline.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs};

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

/// The bundles of a request.
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
    /// The bundles of a device in a request: 1 to [`PER_REQUEST`], which must be divisible by it.
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
    /// The nats-server; with several replicas, the one that used most.
    pub stream_us: f64,
    /// With several replicas, the mean of the other nats-servers.
    pub followers_us: Option<f64>,
    /// The worker, with the client of the table or the embedded store.
    pub worker_us: f64,
    /// Cassandra, if it is the store.
    pub cassandra_us: Option<f64>,
    /// The bytes of a reading on the disk of the store, after it was stopped.
    pub disk_bytes: f64,
}

impl Costs {
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
}

/// The costs of both fleets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scale {
    /// The machine and how this program was built.
    pub machine: String,
    /// The nats-servers, each of which stores every message.
    pub replicas: usize,
    /// The small fleet.
    pub small: Costs,
    /// The large fleet.
    pub large: Costs,
}

impl Scale {
    /// Returns each cost of the large fleet, the prediction, and whether they agree within
    /// [`DEVIATION`].
    #[must_use]
    pub fn compared(&self) -> Vec<(&'static str, f64, f64, bool)> {
        let pairs = self.small.named().into_iter().zip(self.large.named());
        pairs
            .map(|((name, small), (_, large))| {
                (name, small, large, (large / small - 1.0).abs() <= DEVIATION)
            })
            .collect()
    }

    /// Returns the processor time of intake and worker together, in microseconds a bundle, of the
    /// small and of the large fleet.
    fn intake_and_worker_us(&self) -> [f64; 2] {
        [self.small, self.large].map(|costs| costs.intake_us + costs.worker_us)
    }

    /// Returns one sentence for each limit that the results miss: [`DEVIATION`] and [`BAR_US`].
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let deviating = self.compared().into_iter().filter(|(.., agrees)| !agrees);
        let mut missed: Vec<String> = deviating
            .map(|(name, small, large, _)| {
                format!(
                    "{name}: {small:.1} and {large:.1} are more than {:.0} % apart",
                    100.0 * DEVIATION
                )
            })
            .collect();
        let [small, large] = self.intake_and_worker_us();
        let most = small.max(large);
        if most > BAR_US {
            missed.push(format!("intake and worker: {most:.1} us a bundle exceeds {BAR_US:.0} us"));
        }
        missed
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousands = |devices: u32| crate::table::thousands(devices.into());
        let (small, large) = (thousands(self.small.devices), thousands(self.large.devices));
        let readings = self.small.readings;
        writeln!(f, "{}, {readings} readings a bundle, {} replicas", self.machine, self.replicas)?;
        writeln!(f, "{:<28} {:>9} {:>9}", "devices", small, large)?;
        for (name, small, large, agrees) in self.compared() {
            let verdict = if agrees { "within 30 %" } else { "MISS: more than 30 % apart" };
            writeln!(f, "{name:<28} {small:>9.1} {large:>9.1}  {verdict}")?;
        }
        let [of_small, of_large] = self.intake_and_worker_us();
        let verdict = if of_small.max(of_large) <= BAR_US { "PASS" } else { "MISS" };
        writeln!(
            f,
            "{:<28} {of_small:>9.1} {of_large:>9.1}  <= {BAR_US:.0}: {verdict}",
            "intake and worker, us"
        )?;
        let rate = |costs: &Costs| f64::from(costs.devices) / costs.seconds;
        let (small, large) = (rate(&self.small), rate(&self.large));
        writeln!(f, "{:<28} {small:>9.0} {large:>9.0}", "bundles a second")
    }
}

/// Measures both fleets. Calls `progress` before each step.
///
/// # Errors
/// A program is missing or does not start, or a bundle is lost.
pub fn measure(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Scale, Failed> {
    let small = fleet(plan, plan.small, false, progress)?;
    let large = fleet(plan, plan.large, plan.profile, progress)?;
    Ok(Scale { machine: super::machine(), replicas: plan.replicas, small, large })
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
    let mut bundles = Bundles { fleet: &mut fleet, devices, each: plan.each, next: 0 };
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
            let last = count.min(sent + PER_REQUEST);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two fleets with the same costs, which keep all limits.
    fn scale() -> Scale {
        let costs = Costs {
            devices: 10,
            readings: 298,
            bundle_bytes: 1366.0,
            seconds: 1.0,
            intake_us: 80.0,
            stream_us: 50.0,
            followers_us: None,
            worker_us: 60.0,
            cassandra_us: Some(700.0),
            disk_bytes: 4.7,
        };
        Scale { machine: "a machine".to_owned(), replicas: 1, small: costs, large: costs }
    }

    #[test]
    fn the_missed_limits_are_those_that_the_table_marks() {
        let kept = scale();
        assert!(kept.missed().is_empty() && !kept.to_string().contains("MISS"), "{kept}");

        let mut apart = scale();
        apart.large.disk_bytes = 6.2;
        assert_eq!(apart.missed(), ["disk, bytes a reading: 4.7 and 6.2 are more than 30 % apart"]);
        assert_eq!(apart.to_string().matches("MISS").count(), 1, "{apart}");

        let mut slow = scale();
        slow.large.intake_us = 90.5;
        assert_eq!(slow.missed(), ["intake and worker: 150.5 us a bundle exceeds 150 us"]);
        assert_eq!(slow.to_string().matches("MISS").count(), 1, "{slow}");
    }
}
