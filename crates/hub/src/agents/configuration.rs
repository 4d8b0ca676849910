//! The settings of the agents of one hub.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// Whether agents run on a system that cannot confine them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// No agent runs without landlock and seccomp.
    #[default]
    Required,
    /// Agents run with what the system has, and the hub reports what is missing.
    BestEffort,
}

/// What the owner of the hub permits one agent beyond its package and its data folder, as in the
/// table `[[agent]]` of the hub's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The name of the agent.
    pub name: String,
    /// Files, devices and folders that the agent may read and write, for example `/dev/ttyUSB0`.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Files and folders that the agent may read and execute, for example an interpreter outside of
    /// `/usr`.
    #[serde(default)]
    pub read: Vec<PathBuf>,
}

/// The delays and intervals of a supervisor.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The delay before an agent that exited is started again. It doubles with each exit.
    pub backoff_first: Duration,
    /// The maximum of that delay.
    pub backoff_longest: Duration,
    /// After this time without an exit, the delay starts from `backoff_first` again.
    pub stable: Duration,
    /// How long an agent may take to exit after SIGTERM before it is killed.
    pub stop: Duration,
    /// The interval at which the installed versions and the inbox are looked up.
    pub poll: Duration,
    /// The interval at which the use of memory, storage and processes is measured.
    pub measure: Duration,
    /// The time over which the use of the processor is averaged.
    pub cpu_window: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            backoff_first: Duration::from_secs(1),
            backoff_longest: Duration::from_secs(300),
            stable: Duration::from_secs(60),
            stop: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            measure: Duration::from_secs(1),
            cpu_window: Duration::from_secs(30),
        }
    }
}

/// The user id of the first agent if the hub runs as root.
pub const FIRST_UID: u32 = 64_000;

/// The settings of all agents of a hub.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command that calls [`launch`](super::launcher::launch) with its last argument.
    pub launcher: Vec<OsString>,
    /// Whether agents run on a system that cannot confine them.
    pub confinement: Confinement,
    /// If the hub runs as root, the agent with the number `n` runs as the user `first_uid + n`.
    pub first_uid: u32,
    /// The highest version of landlock to use. A lower version is for tests, which run as on an older
    /// kernel.
    pub landlock: u32,
    /// The free space of the file system with the data folders below which no agent runs, in bytes.
    /// `None` is 3 % of the file system, and at most 64 MiB.
    pub reserve: Option<u64>,
    /// What single agents may use in addition.
    pub agents: BTreeMap<String, AgentSettings>,
    /// The delays and intervals.
    pub timing: Timing,
}

impl Settings {
    /// Returns settings with the default values.
    #[must_use]
    pub fn new(launcher: Vec<OsString>) -> Self {
        Self {
            launcher,
            confinement: Confinement::Required,
            first_uid: FIRST_UID,
            landlock: u32::MAX,
            reserve: None,
            agents: BTreeMap::new(),
            timing: Timing::default(),
        }
    }
}
