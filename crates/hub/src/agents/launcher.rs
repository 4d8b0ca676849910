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
    /// The highest version of landlock to use. The version of the kernel may be lower.
    pub landlock: u32,
    /// The process id of the hub.
    pub hub: u32,
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

/// A part of the confinement that this system lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// A sentence that states what is not confined.
    pub what: &'static str,
    /// Whether no agent runs without it if the confinement is required.
    pub is_vital: bool,
}

/// Returns the parts of the confinement that this system lacks. `landlock` is the highest version of
/// landlock to use.
#[must_use]
pub fn missing(landlock: u32) -> Vec<Missing> {
    #[cfg(target_os = "linux")]
    return linux::missing(landlock);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = landlock;
        vec![Missing { what: "only Linux can confine agents", is_vital: true }]
    }
}

#[cfg(not(target_os = "linux"))]
fn confine(plan: &Plan, _: &[OsString]) -> Result<(), LaunchError> {
    rustix::process::setsid().map_err(|error| LaunchError::Limit("setsid", error.into()))?;
    if plan.is_required {
        return Err(LaunchError::ConfinementUnavailable("only Linux can confine agents".into()));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn can_inspect() -> bool {
    false
}

#[cfg(target_os = "linux")]
pub(super) use linux::can_inspect;
#[cfg(target_os = "linux")]
use linux::confine;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
    };
    use rustix::process::{
        Gid, Resource, Rlimit, Signal, Uid, WaitOptions, WaitStatus, getpid, getppid, getuid,
        kill_current_process_group, nice, set_child_subreaper, set_parent_process_death_signal,
        setrlimit, setsid, wait,
    };
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

    use super::super::system_calls;
    use super::*;

    /// The versions of landlock whose access rights are used.
    const VERSIONS: [ABI; 7] = [ABI::V1, ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];
    /// The first version that covers truncation, TCP, and signals.
    const TRUNCATION: u32 = 3;
    const TCP: u32 = 4;
    const SIGNALS: u32 = 6;
    /// What every agent may read and execute.
    const SYSTEM: [&str; 11] = [
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/sbin",
        "/etc/ld.so.cache",
        "/etc/localtime",
        // Not all of /etc/ssl, which has private keys.
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
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
    /// The number of threads of an agent with one process, in addition to the first.
    const THREADS: u64 = 64;
    /// The preference of the kernel to kill an agent when memory is short: the highest.
    const KILLED_FIRST: &str = "1000";
    /// The priority of agents relative to the hub.
    const NICE: i32 = 5;

    /// Agents with several processes can signal others of their user.
    const SIGNALS_MISSING: &str = "landlock of this kernel does not cover signals (Linux 6.12 or later \
        does), so that agents with several processes need a hub that runs as root";

    pub(super) fn missing(landlock: u32) -> Vec<Missing> {
        let mut missing = Vec::new();
        let version = landlock_version(landlock);
        if version == 0 {
            missing.push(Missing { what: "the kernel has no landlock", is_vital: true });
        } else if version < SIGNALS && !getuid().is_root() {
            missing.push(Missing { what: SIGNALS_MISSING, is_vital: false });
        }
        if !system_calls::IS_SUPPORTED {
            let what = "there is no filter of system calls for this processor";
            missing.push(Missing { what, is_vital: true });
        }
        if !Path::new("/proc/self/stat").exists() {
            let what = "without /proc, the sums over the processes of an agent are not measured";
            missing.push(Missing { what, is_vital: true });
        } else if !can_inspect() {
            let what = "the hub may not inspect other processes (CAP_SYS_PTRACE), so that deleted \
                files which an agent keeps open are not counted";
            missing.push(Missing { what, is_vital: false });
        }
        missing
    }

    /// Returns the highest version of landlock, of those with a difference for agents, that the kernel
    /// has, or 0, and at most `limit`. Does not restrict this process.
    fn landlock_version(limit: u32) -> u32 {
        let ruleset = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let is_covered = |version: u32| match version {
            SIGNALS => ruleset().scope(Scope::Signal).and_then(|ruleset| ruleset.create()).is_ok(),
            TCP => {
                let access = AccessNet::ConnectTcp;
                ruleset().handle_access(access).and_then(|ruleset| ruleset.create()).is_ok()
            }
            _ => {
                let access =
                    if version == TRUNCATION { AccessFs::Truncate } else { AccessFs::Execute };
                ruleset().handle_access(access).and_then(|ruleset| ruleset.create()).is_ok()
            }
        };
        [SIGNALS, TCP, TRUNCATION, 1]
            .into_iter()
            .find(|version| is_covered(*version))
            .unwrap_or(0)
            .min(limit)
    }

    /// Returns whether this is the id of the parent process.
    fn is_parent(id: u32) -> bool {
        getppid().is_some_and(|parent| u32::try_from(parent.as_raw_pid()) == Ok(id))
    }

    pub(super) fn confine(plan: &Plan, again: &[OsString]) -> Result<(), LaunchError> {
        let limit = |what| move |error: rustix::io::Errno| LaunchError::Limit(what, error.into());
        // Descriptors that the hub has inherited from the program that started it, and that this process
        // would pass on to the agent.
        close_fds::set_fds_cloexec(3, &[]);
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
        // The limit counts threads, and all processes of the user.
        let (tasks, threads) = match plan.user {
            Some(_) if plan.processes > 1 => (0, 0),
            Some(_) => (0, THREADS),
            None => (own_tasks(), THREADS),
        };
        set("processes", Resource::Nproc, tasks + u64::from(plan.processes) + threads)?;
        let _ = nice(NICE);
        std::fs::write("/proc/self/oom_score_adj", KILLED_FIRST)
            .or_else(|error| if plan.is_required { Err(error) } else { Ok(()) })
            .map_err(|error| LaunchError::Limit("oom_score_adj", error))?;
        let landlock = landlock_version(plan.landlock);
        // Programs that run as root need a user of their own for the confinement, so there is none
        // for root without one.
        let has_own_user = plan.user.is_some() || getuid().is_root();
        if plan.is_required && plan.processes > 1 && landlock < SIGNALS && !has_own_user {
            return Err(LaunchError::ConfinementUnavailable(SIGNALS_MISSING.into()));
        }
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
        let is_absent = landlock == 0 || status.ruleset == RulesetStatus::NotEnforced;
        if is_absent && plan.is_required {
            return Err(LaunchError::ConfinementUnavailable("the kernel has no landlock".into()));
        }
        let own = system_calls::Rules {
            has_processes: plan.processes > 1,
            has_network: plan.network,
            has_own_user,
            may_truncate: landlock >= TRUNCATION,
            may_signal: landlock >= SIGNALS || has_own_user,
            process: std::process::id(),
            parent: plan.parent,
            hub: plan.hub,
        };
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
    /// Rights that the kernel does not know are left out, too.
    fn rules(plan: &Plan) -> Result<landlock::RulesetCreated, LaunchError> {
        let version = VERSIONS.get(plan.landlock as usize).copied().unwrap_or(ABI::V6);
        let read = AccessFs::from_read(version);
        let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock;
        let all = AccessFs::from_all(version);
        let own: BitFlags<AccessFs> =
            all & !(BitFlags::from(AccessFs::Execute) | special | AccessFs::IoctlDev);
        let writable = own | (all & AccessFs::IoctlDev);
        let build = || {
            let mut ruleset =
                Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(all)?;
            if plan.landlock >= SIGNALS {
                ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
            }
            if !plan.network && plan.landlock >= TCP {
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

    /// Returns whether this process may inspect the processes of agents: as their user, or as root with
    /// the capability to do so.
    pub(in super::super) fn can_inspect() -> bool {
        const SYS_PTRACE: u64 = 1 << 19;
        if !getuid().is_root() {
            // The files of a process that may not be inspected belong to root.
            let own = Path::new("/proc/self").metadata();
            return own.is_ok_and(|own| own.uid() == getuid().as_raw());
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        effective.is_some_and(|effective| effective & SYS_PTRACE != 0)
    }

    /// Runs the guard: starts the launcher of the agent, and kills the process group when the hub ends.
    /// Orphans become children of the guard, so that it knows how much processor time they used.
    fn guard(plan: &Plan, again: &[OsString]) -> Result<(), LaunchError> {
        use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
        let limit = |what| move |error| LaunchError::Limit(what, error);
        let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM])
            .map_err(limit("signals"))?;
        setsid().map_err(|error| LaunchError::Limit("setsid", error.into()))?;
        set_child_subreaper(Some(getpid()))
            .map_err(|error| LaunchError::Limit("orphans", error.into()))?;
        set_parent_process_death_signal(Some(Signal::HUP))
            .map_err(|error| LaunchError::Limit("parent", error.into()))?;
        if !is_parent(plan.parent) {
            return Err(LaunchError::HubEnded);
        }
        let inner = Plan { is_guard: false, parent: std::process::id(), ..plan.clone() };
        let [program, arguments @ ..] = again else {
            return Err(LaunchError::HubEnded);
        };
        let child = Command::new(program)
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
                    while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
                        if u32::try_from(ended.as_raw_pid()) == Ok(child.id()) {
                            std::process::exit(code(status));
                        }
                    }
                }
                // The hub sends SIGTERM to the whole group. The guard waits for the agent.
                _ => {}
            }
        }
        Err(LaunchError::HubEnded)
    }

    /// Returns the exit code of a shell for a status.
    fn code(status: WaitStatus) -> i32 {
        let signal = || status.terminating_signal().map(|signal| 128 + signal);
        status.exit_status().or_else(signal).unwrap_or(1)
    }
}
