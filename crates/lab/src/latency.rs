//! Latency from the sensor to the store: the experiments of Mishra et al., "Trade-offs involved in the
//! choice of Cloud Service Configurations when Building Secure, Scalable, and Efficient IoT Networks"
//! (sections V and VI, tables I to IV, figures 4 to 6), with real processes.
//!
//! The wireless part publishes strings through a Mosquitto ([`wireless`]), directly and through a link
//! that has the delays of a telephone's hotspot ([`link`]). The wired part uploads sealed messages to
//! `moteseal cloud run` in the paper's four configurations ([`wired`]). A NATS JetStream, workers and a
//! Cassandra take the place of Kinesis, Lambda and DynamoDB in configuration 4.
//!
//! All processes run on one machine and use one clock, so times of different processes can be compared.
//! Every file is on the disk of the output folder: a store on a temporary file system syncs in no time.

mod broker;
mod clouds;
pub mod costs;
mod engines;
mod execution;
mod fleet;
pub mod link;
mod log;
mod mqtt;
pub mod paper;
mod process;
mod profile;
pub mod spread;
mod uploads;
pub mod wired;
pub mod wireless;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use broker::{Broker, IN_FLIGHT};
pub use execution::Execution;
pub use fleet::{Fleet, byte_sum};
pub use process::Process;

use crate::chance::Seed;

/// Why an experiment failed: one line that states what failed and, if the user can mend it, how.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The programs of an experiment.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The program `moteseal`.
    pub moteseal: PathBuf,
    /// The script `tools/engines.sh` of a checkout.
    pub engines: PathBuf,
    /// The store of configuration 4.
    pub table: wired::TableKind,
}

/// What is measured, and with which programs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The folder in which stores, engines and logs are while the experiment runs. It must exist.
    pub folder: PathBuf,
    /// The programs.
    pub programs: Programs,
    /// The length of a run of the wired part. The paper's runs last about 300 s.
    pub time: Duration,
    /// The strings of a trial of the wireless part. The paper sends 10,000.
    pub strings: u32,
    /// The trials of each combination of the wireless part. The paper has five.
    pub trials: u32,
    /// The configurations of the wired part.
    pub configurations: Vec<wired::Configuration>,
    /// The seed of the strings, the keys and the delays of the link.
    pub seed: Seed,
}

/// The results of both parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Study {
    /// The machine and how this program was built.
    pub machine: String,
    /// The length of a run of the wired part, in seconds.
    pub seconds: f64,
    /// The executions that measured the results, if they are known.
    #[serde(default)]
    pub executions: Vec<Execution>,
    /// The wireless part; empty if the plan has no trials.
    pub wireless: Vec<wireless::Outcome>,
    /// The wired part.
    pub wired: Vec<wired::Run>,
    /// The store of configuration 4.
    pub table: wired::TableKind,
}

/// Runs both parts. Calls `progress` before each step. The caller adds the [`Execution`].
///
/// # Errors
/// A program is missing or does not start, or a message is lost or arrives altered.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Study, Failed> {
    let wireless = if plan.trials == 0 { Vec::new() } else { wireless::measure(plan, progress)? };
    let wired = wired::measure(plan, progress)?;
    let (seconds, machine) = (plan.time.as_secs_f64(), machine());
    let executions = Vec::new();
    Ok(Study { machine, seconds, executions, wireless, wired, table: plan.programs.table })
}

/// Describes the machine and the build of this program, which should be that of `moteseal`, too.
fn machine() -> String {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let build = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    format!("{model}, {cores} cores, {build}")
}

/// A limit that the results must keep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// What is limited, with its unit.
    pub what: String,
    /// The result.
    pub value: f64,
    /// The largest allowed result.
    pub most: f64,
}

impl Bar {
    /// Returns whether the result keeps the limit.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.value <= self.most
    }
}

/// The limit of the 99th percentile of the end-to-end latency of configuration 4 at the low rate, in ms.
pub const FOUR_MS: f64 = 60.0;
/// How much slower the slowest of configurations 1 to 3 may be than the fastest, at the median.
pub const GRADES: f64 = 1.3;

impl Study {
    /// Reads the results of an earlier execution.
    ///
    /// # Errors
    /// If the file cannot be read, or does not have results of this version.
    pub fn read(path: &Path) -> Result<Self, Failed> {
        let name = path.display();
        let text = std::fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let study = serde_json::from_slice(&text);
        Ok(study.map_err(|error| format!("{name} has no results of this study ({error})"))?)
    }

    /// Adds the results of another execution on the same machine, which has other runs.
    ///
    /// # Errors
    /// If the machine, the length of the runs or the store differ, or both have the same runs.
    pub fn add(&mut self, other: Self) -> Result<(), Failed> {
        if self.machine != other.machine {
            let (one, other) = (&self.machine, &other.machine);
            return Err(format!("results of two machines: {one}, and {other}").into());
        }
        if self.seconds.total_cmp(&other.seconds).is_ne() {
            let (one, other) = (self.seconds, other.seconds);
            return Err(format!("runs of {one} s and of {other} s cannot be compared").into());
        }
        if self.table != other.table {
            return Err("the stores of configuration 4 are not the same".into());
        }
        if !self.wireless.is_empty() && !other.wireless.is_empty() {
            return Err("both executions have the wireless part".into());
        }
        let known =
            |run: &&wired::Run| self.wired_run(run.configuration, run.message, run.rate).is_some();
        if let Some(run) = other.wired.iter().find(known) {
            let number = run.configuration.number();
            return Err(format!("both executions have configuration {number}").into());
        }
        for execution in other.executions {
            if !self.executions.contains(&execution) {
                self.executions.push(execution);
            }
        }
        self.wireless.extend(other.wireless);
        self.wired.extend(other.wired);
        self.wired.sort_by_key(|run| run.configuration == wired::Configuration::Four);
        Ok(())
    }

    /// Returns the run of a configuration with these messages at a rate.
    #[must_use]
    pub fn wired_run(
        &self,
        configuration: wired::Configuration,
        message: wired::Message,
        rate: wired::Rate,
    ) -> Option<&wired::Run> {
        self.wired.iter().find(|run| {
            (run.configuration, run.message, run.rate) == (configuration, message, rate)
        })
    }

    /// Compares the results with the limits. A limit whose runs are not in the plan is left out.
    #[must_use]
    pub fn bars(&self) -> Vec<Bar> {
        use wired::{Configuration, Message, Rate};
        let mut bars = Vec::new();
        for message in Message::ALL {
            let four = self.wired_run(Configuration::Four, message, Rate::Low);
            bars.extend(four.map(|run| Bar {
                what: format!(
                    "configuration 4, {} messages a second, {message}: end-to-end latency, 99th \
                     percentile, ms",
                    wired::PER_SECOND
                ),
                value: run.total.p99,
                most: FOUR_MS,
            }));
            // Within a write of several messages, the latency falls from the first one to the last one: a tooth.
            bars.extend(four.and_then(|run| run.batches).map(|batches| Bar {
                what: format!(
                    "configuration 4, {} messages a second, {message}: most messages of a write",
                    wired::PER_SECOND
                ),
                value: batches.max as f64,
                most: 1.0,
            }));
        }
        for rate in [Rate::Low, Rate::Maximum] {
            for message in Message::ALL {
                let of = |one| self.wired_run(one, message, rate).map(|run| run.total.p50);
                let grades: Option<Vec<f64>> = Configuration::GRADES.into_iter().map(of).collect();
                let Some(grades) = grades else { continue };
                let fastest = grades.iter().copied().fold(f64::INFINITY, f64::min);
                let slowest = grades.iter().copied().fold(0.0, f64::max);
                bars.push(Bar {
                    what: format!(
                        "configurations 1 to 3, {rate}, {message}: slowest median / fastest median"
                    ),
                    value: slowest / fastest,
                    most: GRADES,
                });
            }
        }
        bars
    }

    /// Returns one sentence for each limit that the results miss.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let missed = self.bars().into_iter().filter(|bar| !bar.passes());
        missed
            .map(|Bar { what, value, most }| format!("{what}: {value:.2} exceeds {most}"))
            .collect()
    }
}
