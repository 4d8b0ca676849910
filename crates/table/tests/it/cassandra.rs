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

/// Writes a node's key and certificate for 127.0.0.1 into a folder, and returns their file. `ca.pem` is the
/// authority that signed the certificate.
pub(crate) type Certify = fn(&Path) -> PathBuf;

/// The address of the first node of a cluster, which the others ask for the rest of the cluster.
const SEED: &str = "127.0.0.1";
/// The time within which a node is ready.
const START: Duration = Duration::from_secs(180);

/// The node, and the folder with its data.
pub(crate) struct Cassandra {
    folder: tempfile::TempDir,
    host: &'static str,
    port: u16,
    /// The port for the other nodes.
    internode: u16,
    /// The port at which clients must use TLS.
    tls: Option<u16>,
    running: Mutex<Option<Running>>,
    /// The settings of every start.
    settings: Vec<String>,
    user: Option<&'static str>,
    /// Whether it is one of several nodes.
    is_member: bool,
}

/// A node that the tests of a program share. It starts when the first test needs it.
pub(crate) struct Shared {
    node: OnceLock<RwLock<Cassandra>>,
    settings: &'static [&'static str],
    user: Option<&'static str>,
    certify: Option<Certify>,
}

impl Shared {
    pub(crate) const fn new(settings: &'static [&'static str], user: Option<&'static str>) -> Self {
        Self { node: OnceLock::new(), settings, user, certify: None }
    }

    /// Like [`new`](Self::new), with a second port, at which clients must use TLS.
    pub(crate) const fn with_tls(
        settings: &'static [&'static str],
        user: Option<&'static str>,
        certify: Certify,
    ) -> Self {
        Self { node: OnceLock::new(), settings, user, certify: Some(certify) }
    }

    fn node(&self) -> &RwLock<Cassandra> {
        self.node.get_or_init(|| {
            let mut node = Cassandra::at(SEED, free_ports(), self.settings, self.user);
            if let Some(certify) = self.certify {
                node.require_tls(certify);
            }
            node.start(&[]);
            RwLock::new(node)
        })
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
    pub(crate) fn new(settings: &[&str], user: Option<&'static str>) -> Self {
        let node = Self::at(SEED, free_ports(), settings, user);
        node.start(&[]);
        node
    }

    /// Starts the nodes of one cluster, one after the other, at these addresses of the loopback interface. The
    /// first one is 127.0.0.1. Each node has a replica of the users. The nodes use TLS among themselves, all with
    /// the key and the certificate that `certify` writes into the folder of the first one.
    pub(crate) fn cluster(
        hosts: &[&'static str],
        settings: &[&str],
        user: &'static str,
        certify: Certify,
    ) -> Vec<Self> {
        assert_eq!(hosts[0], SEED);
        let ports = free_ports();
        // The driver expects all nodes at one port.
        let node = |host: &&'static str| Self::at(host, ports, settings, Some(user));
        let mut nodes: Vec<Self> = hosts.iter().map(node).collect();
        let own = certify(nodes[0].folder());
        let authority = nodes[0].folder().join("ca.pem");
        for node in &mut nodes {
            node.settings.push(format!("internode={}", own.display()));
            node.settings.push(format!("authority={}", authority.display()));
        }
        nodes[0].start(&[]);
        runtime().block_on(async {
            // From here on, a login needs two of three replicas of the users, and there is one node. A driver that
            // reads the cluster again after the change could log in again.
            let builder = nodes[0].builder().refresh_metadata_on_auto_schema_agreement(false);
            let session = builder.build().await.unwrap();
            let alter = format!(
                "ALTER KEYSPACE system_auth WITH replication = \
                 {{'class': 'NetworkTopologyStrategy', 'datacenter1': {}}}",
                hosts.len()
            );
            session.query_unpaged(alter, &[]).await.unwrap();
        });
        for node in &mut nodes {
            node.is_member = true;
        }
        // The others copy the users when they join. A node that starts again needs the time for its handshakes.
        for node in &mut nodes[1..] {
            node.settings.push("join=5000".to_owned());
            node.start(&[]);
        }
        nodes
    }

    /// Returns a node that is not started yet.
    fn at(
        host: &'static str,
        [port, internode]: [u16; 2],
        settings: &[&str],
        user: Option<&'static str>,
    ) -> Self {
        let mut all = vec![
            format!("storage_port={internode}"),
            format!("listen_address={host}"),
            format!("rpc_address={host}"),
        ];
        all.extend(settings.iter().map(|&setting| setting.to_owned()));
        Self {
            folder: tempfile::tempdir().unwrap(),
            host,
            port,
            internode,
            tls: None,
            running: Mutex::new(None),
            settings: all,
            user,
            is_member: false,
        }
    }

    /// Adds a port at which clients must use TLS.
    fn require_tls(&mut self, certify: Certify) {
        let [port, _] = free_ports();
        let file = certify(self.folder.path());
        self.tls = Some(port);
        self.settings.push(format!("native_transport_port_ssl={port}"));
        self.settings.push(format!("cql={}", file.display()));
    }

    /// Starts the node with these settings, and waits until clients can connect.
    pub(crate) fn start(&self, settings: &[&str]) {
        // Without a line of input, the test process has ended, and nobody needs the folder any more.
        let script = "tools/engines.sh run cassandra \"$@\" >&2 & echo $!; \
                      if read -r _; then kill -9 $!; else kill -9 $!; wait; rm -rf \"$1\"; fi";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(self.folder.path()).arg(self.port.to_string());
        command.args(&self.settings).args(settings);
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
        let ports = [Some(self.port), self.tls];
        for port in ports.into_iter().flatten() {
            while TcpStream::connect((self.host, port)).is_err() {
                let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
                let has_time = started.elapsed() < START;
                assert!(has_time && !has_ended(pid), "no start:\n{}", log());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        while let Err(error) = self.ready() {
            assert!(started.elapsed() < START, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns an error if the node does not serve its user yet.
    fn ready(&self) -> Result<(), String> {
        if self.is_member {
            // Its keyspaces may lack replicas, but a quorum has the users.
            return runtime().block_on(self.builder().build()).map(drop).map_err(|e| e.to_string());
        }
        // The first start creates the user `cassandra` after it accepts connections.
        match init(&self.address("ready"), 1) {
            Err(error) if error.name() != "TableNotDurable" => Err(error.to_string()),
            _ => Ok(()),
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
        self.builder().use_keyspace(&address.keyspace, false).build().await.unwrap()
    }

    fn builder(&self) -> SessionBuilder {
        let builder = SessionBuilder::new().known_node(format!("{}:{}", self.host, self.port));
        match self.user {
            Some(user) => builder.user(user, user),
            None => builder,
        }
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
                let (host, port) = (self.host, self.port);
                Address::parse(&format!("cassandra://{host}:{port}/{keyspace}")).unwrap()
            }
        }
    }

    pub(crate) fn address_of(&self, user: &str, password: &str, keyspace: &str) -> Address {
        let (host, port) = (self.host, self.port);
        let mut address =
            Address::parse(&format!("cassandra://{user}@{host}:{port}/{keyspace}")).unwrap();
        address.password = Some(Password(password.to_owned()));
        address
    }

    /// Returns the address to which the other nodes connect.
    pub(crate) fn internode(&self) -> (&'static str, u16) {
        (self.host, self.internode)
    }

    /// Returns the port at which clients must use TLS.
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls.unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
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
