//! A node of Cassandra for tests. `tools/engines.sh` runs it. It ends with this process, also if the
//! process is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use moteseal_table::{Address, Password, init};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

/// The node, and the folder with its data.
pub(crate) struct Cassandra {
    folder: tempfile::TempDir,
    port: u16,
    internal: u16,
    running: Mutex<Option<Running>>,
    /// The settings of every start.
    settings: &'static [&'static str],
    user: Option<&'static str>,
}

/// A node that the tests of a program share. It starts when the first test needs it.
pub(crate) struct Shared {
    node: OnceLock<RwLock<Cassandra>>,
    settings: &'static [&'static str],
    user: Option<&'static str>,
}

impl Shared {
    pub(crate) const fn new(settings: &'static [&'static str], user: Option<&'static str>) -> Self {
        Self { node: OnceLock::new(), settings, user }
    }

    fn node(&self) -> &RwLock<Cassandra> {
        self.node.get_or_init(|| RwLock::new(Cassandra::new(self.settings, self.user)))
    }

    /// Returns the node, for a test that neither stops nor pauses it.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, Cassandra> {
        self.node().read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node, for a test that stops or pauses it. No other test runs at the same time.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, Cassandra> {
        self.node().write().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running {
    shell: Child,
    /// The shell ends the node when this end of its input is closed.
    input: ChildStdin,
    pid: u32,
}

impl Running {
    /// Ends the shell. The folder stays.
    fn end(mut self) {
        self.input.write_all(b"\n").unwrap();
        self.shell.wait().unwrap();
    }
}

pub(crate) fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

impl Cassandra {
    /// Starts a new node. `user` is the superuser, if the settings enable authentication.
    pub(crate) fn new(settings: &'static [&'static str], user: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [port, internal] = free_ports();
        let running = Mutex::new(None);
        let node = Self { folder, port, internal, running, settings, user };
        node.start(&[]);
        node
    }

    /// Starts the node with these settings, and waits until clients can connect.
    pub(crate) fn start(&self, settings: &[&str]) {
        // Without a line of input, the test process has ended, and nobody needs the folder any more.
        let script = "tools/engines.sh run cassandra \"$@\" >&2 & echo $!; \
                      if read -r _; then kill -9 $!; else kill -9 $!; wait; rm -rf \"$1\"; fi";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(self.folder.path()).arg(self.port.to_string());
        command.arg(format!("storage_port={}", self.internal));
        command.args(self.settings).args(settings);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        command.current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let running = Running {
            input: shell.stdin.take().unwrap(),
            shell,
            pid: line.trim().parse().unwrap(),
        };
        let pid = running.pid;
        *self.running.lock().unwrap() = Some(running);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            let has_time = started.elapsed() < Duration::from_secs(180);
            assert!(has_time && !has_ended(pid), "no start:\n{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
        // The first start creates the user `cassandra` after it accepts connections.
        while let Err(error) = init(&self.address("ready"), 1) {
            assert!(started.elapsed() < Duration::from_secs(180), "{error}");
            std::thread::sleep(Duration::from_millis(100));
            if error.name() == "TableNotDurable" {
                break;
            }
        }
    }

    /// Kills the node, as a loss of its machine would.
    pub(crate) fn kill(&self) {
        let Some(running) = self.running.lock().unwrap().take() else { return };
        self.signal_pid(running.pid, "KILL");
        running.end();
    }

    /// Stops the node, which writes its tables to disk first.
    pub(crate) fn drain(&self) {
        let Some(running) = self.running.lock().unwrap().take() else { return };
        self.signal_pid(running.pid, "TERM");
        while !has_ended(running.pid) {
            std::thread::sleep(Duration::from_millis(100));
        }
        running.end();
    }

    /// Returns the folder with the node's data.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a signal to the node.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.running.lock().unwrap().as_ref().unwrap().pid;
        self.signal_pid(pid, name);
    }

    fn signal_pid(&self, pid: u32, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Connects to a keyspace as its superuser, for statements that the store has not.
    pub(crate) async fn session(&self, address: &Address) -> Session {
        let mut builder = SessionBuilder::new()
            .known_node(&address.hosts[0])
            .use_keyspace(&address.keyspace, false);
        if let Some(user) = self.user {
            builder = builder.user(user, user);
        }
        builder.build().await.unwrap()
    }

    /// Returns the processor time that the node has used, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let pid = self.running.lock().unwrap().as_ref().unwrap().pid;
        processor_seconds(&pid.to_string())
    }

    /// Returns the address of a keyspace for the superuser.
    pub(crate) fn address(&self, keyspace: &str) -> Address {
        match self.user {
            Some(user) => self.address_of(user, user, keyspace),
            None => {
                let port = self.port;
                Address::parse(&format!("cassandra://127.0.0.1:{port}/{keyspace}")).unwrap()
            }
        }
    }

    pub(crate) fn address_of(&self, user: &str, password: &str, keyspace: &str) -> Address {
        let port = self.port;
        let mut address =
            Address::parse(&format!("cassandra://{user}@127.0.0.1:{port}/{keyspace}")).unwrap();
        address.password = Some(Password(password.to_owned()));
        address
    }
}

/// Returns whether a process has ended. Its shell may not have waited for it yet.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.starts_with(" Z"))
}

/// Returns the processor time of a process, in seconds: `/proc/PID/stat`, fields 14 and 15.
pub(crate) fn processor_seconds(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: Vec<u32> =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    f64::from(ticks[0] + ticks[1]) / 100.0
}
