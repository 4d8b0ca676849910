//! The launcher: a short process between the hub and an agent. It confines itself and then becomes
//! the agent's program (spec/agents.md, section 4).
//!
//! The hub starts the launcher with a [`Plan`]. An agent that may start further processes has a
//! *guard*: the launcher starts a second launcher and waits for it. If the hub ends, the kernel
//! signals the guard, and the guard kills the whole process group. An agent with one process needs
//! no guard, because the kernel kills it directly.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What the launcher does. The hub passes it as one argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The name of the agent.
    pub name: String,
    /// The process id of the parent.
    pub parent: u32,
    /// The program, as an absolute path.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The folder with the files of the package, in which the program starts.
    pub files: PathBuf,
    /// The folder that the agent may write.
    pub data: PathBuf,
    /// Further paths that the agent may read.
    pub readable: Vec<PathBuf>,
    /// Further paths that the agent may read and write.
    pub writable: Vec<PathBuf>,
    /// The limit of the memory of a process, in bytes.
    pub memory: u64,
    /// The limit of the length of a file, in bytes.
    pub storage: u64,
    /// The limit of the number of processes.
    pub processes: u32,
    /// Whether the agent may use the network.
    pub network: bool,
    /// The user and group id of the agent, if the hub runs as root.
    pub user: Option<u32>,
    /// Whether the agent must not run without landlock and seccomp.
    pub is_required: bool,
    /// Whether this launcher is the guard.
    pub is_guard: bool,
}

/// Why an agent was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The plan is malformed.
    #[error("the plan of the launcher is malformed: {0}")]
    Plan(#[from] serde_json::Error),
    /// The hub has ended.
    #[error("the hub has ended")]
    HubEnded,
    /// The system lacks a part of the confinement.
    #[error("this system cannot confine agents: {0}")]
    ConfinementUnavailable(String),
    /// A limit could not be set.
    #[error("{0}: {1}")]
    Limit(&'static str, io::Error),
    /// The program could not be executed.
    #[error("{}: {}", .0.display(), .1)]
    Execute(PathBuf, io::Error),
}

impl LaunchError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Plan(_) => "MalformedLaunchPlan",
            Self::HubEnded => "HubEnded",
            Self::ConfinementUnavailable(_) => "ConfinementUnavailable",
            Self::Limit(..) => "LimitNotSet",
            Self::Execute(..) => "AgentStartFailed",
        }
    }
}

/// The exit code of a launcher that could not start the agent.
pub const NOT_STARTED: u8 = 126;

/// Runs the launcher: confines this process and becomes the program of the plan. Call it at the start
/// of a process that has one thread. `again` is the command, without the plan, that starts a further
/// launcher.
///
/// # Errors
/// [`LaunchError`]. If it returns, the process must exit with [`NOT_STARTED`].
pub fn launch(plan: &str, again: &[OsString]) -> Result<Infallible, LaunchError> {
    let plan: Plan = serde_json::from_str(plan)?;
    confine(&plan, again)?;
    Err(LaunchError::Execute(plan.program.clone(), command(&plan).exec()))
}

/// Returns the command of the agent: its own environment, in the folder of the package.
fn command(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.arguments)
        .current_dir(&plan.files)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("HOME", &plan.data)
        .env("TMPDIR", &plan.data)
        .env("MOTESEAL_AGENT", &plan.name)
        .env("MOTESEAL_DATA", &plan.data);
    command
}

/// Returns the parts of the confinement that this system lacks, as sentences.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    #[cfg(target_os = "linux")]
    return linux::missing();
    #[cfg(not(target_os = "linux"))]
    vec!["only Linux can confine agents"]
}

#[cfg(not(target_os = "linux"))]
fn confine(plan: &Plan, _: &[OsString]) -> Result<(), LaunchError> {
    rustix::process::setsid().map_err(|error| LaunchError::Limit("setsid", error.into()))?;
    if plan.is_required {
        return Err(LaunchError::ConfinementUnavailable("only Linux can confine agents".into()));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
use linux::confine;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::process::ExitStatus;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
    };
    use rustix::process::{
        Gid, Resource, Rlimit, Signal, Uid, getppid, getuid, kill_current_process_group, nice,
        set_parent_process_death_signal, setrlimit, setsid,
    };
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

    use super::super::system_calls;
    use super::*;

    /// The version of landlock whose access rights are used.
    const VERSION: ABI = ABI::V6;
    /// What every agent may read and execute.
    const SYSTEM: [&str; 10] = [
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/sbin",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/ssl",
        "/etc/passwd",
        "/etc/group",
    ];
    /// What agents with the network may read in addition.
    const NETWORK: [&str; 4] =
        ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services"];
    /// The devices that every agent may read and write.
    const DEVICES: [&str; 5] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"];
    /// The number of files that a process of an agent may have open.
    const OPEN_FILES: u64 = 256;
    /// The number of threads, in addition to one for each process.
    const THREADS: u64 = 64;
    /// The priority of agents relative to the hub.
    const NICE: i32 = 5;

    pub(super) fn missing() -> Vec<&'static str> {
        let mut missing = Vec::new();
        match landlock_version() {
            0 => missing.push("the kernel has no landlock"),
            1 | 2 => missing.push(
                "landlock of this kernel does not cover truncation (Linux 6.2 or later does)",
            ),
            3..6 => missing
                .push("landlock of this kernel does not cover signals (Linux 6.12 or later does)"),
            _ => {}
        }
        if !system_calls::IS_SUPPORTED {
            missing.push("there is no filter of system calls for this processor");
        }
        missing
    }

    /// Returns the highest version of landlock, of those with a difference for agents, that the kernel
    /// has, or 0. Does not restrict this process.
    fn landlock_version() -> u32 {
        let ruleset = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let has = |access: BitFlags<AccessFs>| {
            ruleset().handle_access(access).and_then(|ruleset| ruleset.create().map(drop)).is_ok()
        };
        if ruleset().scope(Scope::Signal).and_then(|ruleset| ruleset.create().map(drop)).is_ok() {
            6
        } else if has(AccessFs::Truncate.into()) {
            3
        } else {
            u32::from(has(AccessFs::Execute.into()))
        }
    }

    /// Returns whether this is the id of the parent process.
    fn is_parent(id: u32) -> bool {
        getppid().is_some_and(|parent| u32::try_from(parent.as_raw_pid()) == Ok(id))
    }

    pub(super) fn confine(plan: &Plan, again: &[OsString]) -> Result<(), LaunchError> {
        let limit = |what| move |error: rustix::io::Errno| LaunchError::Limit(what, error.into());
        if plan.is_guard {
            return guard(plan, again);
        }
        // Within a guard, the session is the guard's.
        if plan.processes == 1 {
            setsid().map_err(limit("setsid"))?;
        }
        let set = |what, resource, value| {
            let value = Rlimit { current: Some(value), maximum: Some(value) };
            setrlimit(resource, value).map_err(limit(what))
        };
        set("core files", Resource::Core, 0)?;
        set("open files", Resource::Nofile, OPEN_FILES)?;
        set("length of files", Resource::Fsize, plan.storage)?;
        let tasks = if plan.user.is_some() { 0 } else { own_tasks() };
        set("processes", Resource::Nproc, tasks + u64::from(plan.processes) + THREADS)?;
        let _ = nice(NICE);
        let rules = rules(plan)?;
        if let Some(user) = plan.user {
            set_thread_groups(&groups(&plan.writable)).map_err(limit("groups"))?;
            set_thread_gid(Gid::from_raw(user)).map_err(limit("group"))?;
            set_thread_uid(Uid::from_raw(user)).map_err(limit("user"))?;
        }
        // After the change of the user, which clears it.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(limit("parent"))?;
        if !is_parent(plan.parent) {
            return Err(LaunchError::HubEnded);
        }
        let status = rules.restrict_self().map_err(|error| unavailable(&error))?;
        if status.ruleset == RulesetStatus::NotEnforced && plan.is_required {
            return Err(LaunchError::ConfinementUnavailable("the kernel has no landlock".into()));
        }
        let mut own = system_calls::Rules {
            has_processes: plan.processes > 1,
            has_network: plan.network,
            has_own_user: plan.user.is_some(),
            may_truncate: landlock_version() >= 3,
            process: std::process::id(),
        };
        // Programs that run as root need a user of their own for the confinement, so there is none
        // for root without one.
        own.has_own_user |= getuid().is_root();
        if let Err(error) = system_calls::restrict(&own)
            && plan.is_required
        {
            return Err(LaunchError::ConfinementUnavailable(error));
        }
        // The launcher may have more memory than the agent is allowed. What it still allocates before
        // the program replaces it comes from memory that it frees here.
        drop((0..64).map(|_| Vec::<u8>::with_capacity(1024)).collect::<Vec<_>>());
        set("memory", Resource::As, plan.memory)
    }

    fn unavailable(error: &impl ToString) -> LaunchError {
        LaunchError::ConfinementUnavailable(error.to_string())
    }

    /// Returns the landlock rules of a plan. Paths that do not exist are left out.
    fn rules(plan: &Plan) -> Result<landlock::RulesetCreated, LaunchError> {
        let read = AccessFs::from_read(VERSION);
        let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock;
        let own: BitFlags<AccessFs> =
            AccessFs::from_all(VERSION) & !(BitFlags::from(AccessFs::Execute) | special);
        let writable = own | AccessFs::IoctlDev;
        let build = || {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(VERSION))?
                .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
            if !plan.network {
                ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
            }
            let network: &[&str] = if plan.network { &NETWORK } else { &[] };
            ruleset
                .create()?
                .add_rules(path_beneath_rules(SYSTEM, read))?
                .add_rules(path_beneath_rules(network, read))?
                .add_rules(path_beneath_rules([&plan.files], read))?
                .add_rules(path_beneath_rules(&plan.readable, read))?
                .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
                .add_rules(path_beneath_rules([&plan.data], own))?
                .add_rules(path_beneath_rules(&plan.writable, writable))
        };
        build().map_err(|error: landlock::RulesetError| unavailable(&error))
    }

    /// Returns the groups of the devices that the agent may use, so that its own user may open them.
    fn groups(paths: &[PathBuf]) -> Vec<Gid> {
        let group = |path: &PathBuf| Some(Path::metadata(path).ok()?.gid()).filter(|gid| *gid > 0);
        paths.iter().filter_map(group).map(Gid::from_raw).collect()
    }

    /// Returns the number of threads of this user, which count towards the limit of processes.
    fn own_tasks() -> u64 {
        let user = getuid().as_raw();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let own = processes.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == user));
        let tasks = |path: PathBuf| std::fs::read_dir(path.join("task")).map_or(0, Iterator::count);
        own.map(|entry| tasks(entry.path()) as u64).sum()
    }

    /// Runs the guard: starts the launcher of the agent, and kills the process group when the hub ends.
    fn guard(plan: &Plan, again: &[OsString]) -> Result<(), LaunchError> {
        use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
        let limit = |what| move |error| LaunchError::Limit(what, error);
        let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM])
            .map_err(limit("signals"))?;
        setsid().map_err(|error| LaunchError::Limit("setsid", error.into()))?;
        set_parent_process_death_signal(Some(Signal::HUP))
            .map_err(|error| LaunchError::Limit("parent", error.into()))?;
        if !is_parent(plan.parent) {
            return Err(LaunchError::HubEnded);
        }
        let inner = Plan { is_guard: false, parent: std::process::id(), ..plan.clone() };
        let [program, arguments @ ..] = again else {
            return Err(LaunchError::HubEnded);
        };
        let mut child = Command::new(program)
            .args(arguments)
            .arg(serde_json::to_string(&inner)?)
            .spawn()
            .map_err(|error| LaunchError::Execute(program.into(), error))?;
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    let _ = kill_current_process_group(Signal::KILL);
                }
                SIGCHLD => {
                    if let Ok(Some(status)) = child.try_wait() {
                        std::process::exit(code(status));
                    }
                }
                // The hub sends SIGTERM to the whole group. The guard waits for the agent.
                _ => {}
            }
        }
        Err(LaunchError::HubEnded)
    }

    /// Returns the exit code of a shell for a status.
    fn code(status: ExitStatus) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
    }
}
