//! What an agent cannot reach: other agents, the hub, and services of the same machine.
//!
//! The attacks are scripts, because most of them are system calls that no safe function makes. Perl is
//! part of each Debian system.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::agents::example;

/// The users of the hub, of the agent and of another agent if this test runs as root.
///
/// No scene shares them with another one: the limit of processes counts all processes of a user, and tests
/// run at the same time.
#[derive(Clone, Copy, Debug)]
struct Users {
    hub: u32,
    agent: u32,
    other: u32,
}

impl Users {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(64_000);
        let hub = NEXT.fetch_add(3, Ordering::Relaxed);
        Self { hub, agent: hub + 1, other: hub + 2 }
    }
}

/// How an agent is started.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Whether the agent has a user of its own. This needs root.
    has_own_user: bool,
    processes: u32,
    network: bool,
    landlock: u32,
    is_required: bool,
}

const START: Start = Start {
    has_own_user: false,
    processes: 1,
    network: false,
    landlock: u32::MAX,
    is_required: true,
};

/// A folder like that of a hub, and a process in the place of the hub.
struct Scene {
    folder: tempfile::TempDir,
    users: Users,
    hub: Child,
    service: UnixDatagram,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.hub.kill();
        let _ = self.hub.wait();
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Creates a file with its folder, which belong to a user.
fn place(path: &Path, content: &[u8], mode: u32, user: u32) {
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(path, content).unwrap();
    for (path, mode) in [(path, mode), (folder, mode | 0o100 | (mode & 0o044) >> 2)] {
        if is_root() {
            chown(path, Some(user), Some(user)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

impl Scene {
    fn new(start: Start) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let users = Users::new();
        let other = if start.has_own_user { users.other } else { users.hub };
        let agent = if start.has_own_user { users.agent } else { users.hub };
        place(&at("keys/op.key.pem"), b"key", 0o600, users.hub);
        place(&at("other/secret"), b"secret", 0o600, other);
        place(&at("data/before"), b"", 0o600, agent);
        place(&at("package/attack.pl"), include_bytes!("attacks/reach.pl"), 0o644, users.hub);
        place(&at("package/library"), b"library", 0o644, users.hub);
        fs::copy(example("launch"), at("launch")).unwrap();
        let service = UnixDatagram::bind(at("service")).unwrap();
        fs::set_permissions(at("service"), Permissions::from_mode(0o777)).unwrap();
        service.set_nonblocking(true).unwrap();
        let mut hub = Command::new("/usr/bin/perl");
        hub.args(["-e", "$| = 1; $SIG{URG} = sub { exit(1) }; print qq(1); sleep(60)"]);
        hub.process_group(0).stdout(Stdio::piped());
        if is_root() {
            hub.uid(users.hub).gid(users.hub);
        }
        let mut hub = hub.spawn().unwrap();
        hub.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self { folder, users, hub, service }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Starts the attack and waits for its end.
    fn attack(&self, start: Start) -> Output {
        let mut arguments = vec![
            self.at("package/attack.pl").display().to_string(),
            self.folder.path().display().to_string(),
            self.hub.id().to_string(),
        ];
        let calls = [
            ("fcntl", libc::SYS_fcntl),
            ("kill", libc::SYS_kill),
            ("tkill", libc::SYS_tkill),
            ("tgkill", libc::SYS_tgkill),
            ("pidfd_open", libc::SYS_pidfd_open),
            ("sched_setscheduler", libc::SYS_sched_setscheduler),
            ("sched_setaffinity", libc::SYS_sched_setaffinity),
            ("setpriority", libc::SYS_setpriority),
            ("ioprio_set", libc::SYS_ioprio_set),
            ("prlimit64", libc::SYS_prlimit64),
            ("prctl", libc::SYS_prctl),
            ("setsid", libc::SYS_setsid),
            ("openat2", libc::SYS_openat2),
        ];
        for (name, number) in calls {
            arguments.extend([name.to_owned(), number.to_string()]);
        }
        let plan = serde_json::json!({
            "name": "attack", "parent": std::process::id(), "hub": self.hub.id(),
            "program": "/usr/bin/perl", "arguments": arguments,
            "files": self.at("package"), "data": self.at("data"),
            "readable": [], "writable": [], "memory": 1u64 << 29, "storage": 1 << 20,
            "processes": start.processes, "network": start.network,
            "user": start.has_own_user.then_some(self.users.agent), "is_required": start.is_required,
            "landlock": start.landlock, "is_guard": start.processes > 1,
        });
        // A shell in the place of the hub, which passes on what it has opened.
        let mut launcher = Command::new("/bin/sh");
        launcher.args(["-c", "exec 9<keys/op.key.pem && exec ./launch \"$0\""]);
        launcher.arg(plan.to_string()).current_dir(self.folder.path()).env("SECRET", "1");
        if is_root() && !start.has_own_user {
            launcher.uid(self.users.hub).gid(self.users.hub);
        }
        let output = launcher.output().unwrap();
        assert!(!output.stderr.ends_with(b"Permission denied\n"), "{output:?}");
        output
    }
}

/// Checks that an attack reaches nothing.
#[track_caller]
fn is_contained(start: Start) {
    if start.has_own_user && !is_root() {
        return;
    }
    let mut scene = Scene::new(start);
    let priority = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned()
    };
    let before = priority(scene.hub.id());
    let output = scene.attack(start);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut expected = vec![
        "environment HOME LANG MOTESEAL_AGENT MOTESEAL_DATA PATH TMPDIR",
        "write own data",
        "make a pair of streams",
    ];
    if start.network {
        expected.push("make a socket");
    }
    if start.processes > 1 {
        expected.push("start a process");
    }
    expected.push("end");
    assert_eq!(stdout.lines().collect::<Vec<_>>(), expected, "{start:?}: {stderr}");
    assert!(output.status.success(), "{start:?}: {stderr}");
    assert!(scene.hub.try_wait().unwrap().is_none(), "the hub runs");
    assert_eq!(priority(scene.hub.id()), before);
    for (path, content) in
        [("keys/op.key.pem", "key"), ("other/secret", "secret"), ("package/library", "library")]
    {
        assert_eq!(fs::read_to_string(scene.at(path)).unwrap(), content, "{start:?}: {path}");
    }
    assert!(scene.service.recv(&mut [0; 100]).is_err(), "nothing arrives at the service");
}

#[test]
fn an_agent_reaches_nothing_as_the_user_of_the_hub() {
    is_contained(START);
    is_contained(Start { processes: 3, ..START });
    is_contained(Start { network: true, ..START });
}

#[test]
fn an_agent_reaches_nothing_as_a_user_of_its_own() {
    let own = Start { has_own_user: true, ..START };
    is_contained(own);
    is_contained(Start { processes: 3, network: true, ..own });
}

/// Landlock of Linux 5.19 to 6.1 covers neither truncation nor signals.
#[test]
fn an_agent_reaches_nothing_on_an_old_kernel() {
    let old = Start { landlock: 2, ..START };
    is_contained(old);
    let own = Start { has_own_user: true, processes: 3, ..old };
    is_contained(own);
    // The hub and the guard are protected, but not other processes of this user.
    is_contained(Start { processes: 3, is_required: false, ..old });
}

#[test]
fn an_old_kernel_confines_several_processes_only_with_a_user_of_their_own() {
    let start = Start { landlock: 5, processes: 3, ..START };
    let output = Scene::new(start).attack(start);
    assert_eq!(output.status.code(), Some(126));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("ConfinementUnavailable") && stderr.contains("root"), "{stderr}");
    assert!(output.stdout.is_empty(), "it was not started");
}

#[test]
fn without_landlock_no_agent_is_started() {
    let start = Start { landlock: 0, ..START };
    let output = Scene::new(start).attack(start);
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no landlock"));
    let mut hub = crate::agents::Hub::new();
    hub.settings.landlock = 0;
    assert_eq!(hub.refusal(), "ConfinementUnavailable");
}
