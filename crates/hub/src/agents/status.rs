//! What the hub reports about an agent.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Why the hub stopped an agent or went back to the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StopReason {
    /// The agent used more processor time than its share.
    CpuExceeded,
    /// The agent's processes together used more memory than allowed.
    MemoryExceeded,
    /// The agent's data folder is larger than allowed.
    StorageExceeded,
    /// The file system with the data folders is nearly full.
    DiskNearlyFull,
    /// The agent had more processes than allowed.
    TooManyProcesses,
    /// The new version delivered no line within the start timeout.
    NoLineInTime,
    /// The new version exited three times before it delivered a line.
    ExitedRepeatedly,
}

impl StopReason {
    /// Returns the stable name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuExceeded => "CpuExceeded",
            Self::MemoryExceeded => "MemoryExceeded",
            Self::StorageExceeded => "StorageExceeded",
            Self::DiskNearlyFull => "DiskNearlyFull",
            Self::TooManyProcesses => "TooManyProcesses",
            Self::NoLineInTime => "NoLineInTime",
            Self::ExitedRepeatedly => "ExitedRepeatedly",
        }
    }
}

/// What an agent does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was started and has delivered no line yet.
    #[default]
    Starting,
    /// It runs and has delivered a line.
    Running,
    /// It exited, and is started again after a delay.
    Waiting,
    /// It cannot be started: `error` states why.
    Failed,
    /// The hub does not run it.
    Stopped,
}

/// The status of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The agent.
    pub name: String,
    /// The version that runs.
    pub version: u64,
    /// What it does.
    pub state: State,
    /// The process id, while it runs.
    pub process: Option<u32>,
    /// When that process started: the start of the system, as a random text, and the time since then in
    /// hundredths of a second.
    pub process_started: Option<(String, u64)>,
    /// The number of exits since the hub started.
    pub exits: u64,
    /// How the last process ended.
    pub last_exit: Option<String>,
    /// Why the hub stopped the last process.
    pub stopped: Option<StopReason>,
    /// The version that did not come up, and why.
    pub fell_back: Option<(u64, String)>,
    /// Why the agent cannot be started.
    pub error: Option<String>,
    /// The last line on standard error.
    pub last_error_line: String,
    /// The number of lines that are recorded.
    pub lines: u64,
    /// The number of lines that were refused, too long, cut, or that no source receives.
    pub lines_refused: u64,
    /// Of these, lines that were too long.
    pub lines_too_long: u64,
}

impl Status {
    /// Writes the status to a file, for `moteseal hub agent list`. It need not be durable.
    pub(super) fn write(&self, path: &Path) {
        if let Ok(bytes) = serde_json::to_vec(self)
            && let Ok(made) = moteseal_files::Temporary::create(path, moteseal_files::PRIVATE)
            && let Ok(mut file) = made.file()
            && std::io::Write::write_all(&mut file, &bytes).is_ok()
        {
            let _ = made.replace(path);
        }
    }

    /// Reads the status that the hub wrote last, if there is one.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}
