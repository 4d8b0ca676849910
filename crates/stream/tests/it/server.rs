//! A nats-server for tests. It ends with this process, also if the process is killed.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running nats-server. It ends when the value is dropped, and when the test program ends in any way.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) monitor: String,
    folder: TempDir,
    program: Option<Child>,
}

pub(crate) const SYNCED: &str = "sync_interval: always";
/// What a server's log says if a port is not free.
const TAKEN: &str = "address already in use";

impl Server {
    /// Starts a server that syncs each message.
    pub(crate) fn start() -> Self {
        Self::with(SYNCED, "")
    }

    /// Starts a server whose messages are short, so that batches with more than 16,000 readings travel in
    /// pieces.
    pub(crate) fn with_short_messages() -> Self {
        Self::with(SYNCED, "max_payload: 65536")
    }

    /// Starts a server with these lines in its block `jetstream`, or without JetStream if they are
    /// `disabled`, and further lines. With a block `tls` among them, the monitoring endpoint uses TLS, too.
    pub(crate) fn with(jetstream: &str, more: &str) -> Self {
        Self::in_folder(folder(), jetstream, more)
    }

    /// Starts a server whose files are in this folder.
    pub(crate) fn in_folder(folder: TempDir, jetstream: &str, more: &str) -> Self {
        let mut server = Self { url: String::new(), monitor: String::new(), folder, program: None };
        loop {
            server.configure(jetstream, more);
            match server.try_start() {
                Ok(()) => return server,
                // Another program has taken one of the ports.
                Err(log) if log.contains(TAKEN) => server.kill(),
                Err(log) => panic!("the server does not start: {log}"),
            }
        }
    }

    /// Writes the server's configuration, with free ports.
    fn configure(&mut self, jetstream: &str, more: &str) {
        let (port, monitor) = (free_port(), free_port());
        let path = self.folder.path().display();
        let jetstream = match jetstream {
            "disabled" => String::new(),
            lines => format!(
                "jetstream {{ store_dir: \"{path}/data\", max_file_store: 4GB, {lines} }}\n"
            ),
        };
        let scheme = if more.contains("tls {") { "https" } else { "http" };
        let config = format!(
            "listen: 127.0.0.1:{port}\n{scheme}: 127.0.0.1:{monitor}\npid_file: \"{path}/pid\"\n\
             {jetstream}{more}\n"
        );
        fs::write(self.folder.path().join("nats.conf"), config).unwrap();
        self.url = format!("nats://127.0.0.1:{port}");
        self.monitor = format!("{scheme}://127.0.0.1:{monitor}");
    }

    /// Starts the server again after it was killed.
    pub(crate) fn restart(&mut self) {
        self.try_start().unwrap_or_else(|log| panic!("the server does not start: {log}"));
    }

    /// Starts the server. Returns its log if it does not start.
    fn try_start(&mut self) -> Result<(), String> {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let _ = fs::remove_file(self.folder.path().join("pid"));
        // The shell kills the server when its standard input ends, which the end of this process causes.
        let script = r#""$0" -c "$1" & server=$!; read -r _; kill -9 $server; wait"#;
        let program = Command::new("sh")
            .args(["-c", script])
            .arg(executable())
            .arg(self.folder.path().join("nats.conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.program = Some(program);
        let address = self.url.trim_start_matches("nats://").to_owned();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(&address).is_err() || self.pid().is_none() {
            let log = self.log();
            if Instant::now() > until || log.contains(TAKEN) {
                return Err(log);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the folder with the server's files. Those of the streams are in its folder `data`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the arguments of `moteseal` for a stream on this server.
    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--stream", &self.url, "--stream-monitor", &self.monitor]
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(fs::read_to_string(self.folder.path().join("pid")).ok()?.trim().parse().ok()?)
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.pid().unwrap();
        kill_process(pid, signal).unwrap();
        // A stopped process still runs until each of its threads has stopped.
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        let start = Instant::now();
        while signal == Signal::STOP && !is_stopped(Path::new(&tasks)) {
            assert!(start.elapsed() < Duration::from_secs(10), "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the server as a power loss would.
    pub(crate) fn kill(&mut self) {
        // A server that ended by itself has no process.
        let _ = self.pid().map(|pid| kill_process(pid, Signal::KILL));
        if let Some(mut program) = self.program.take() {
            drop(program.stdin.take());
            program.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut program) = self.program.take() {
            drop(program.stdin.take());
            let _ = program.wait();
        }
    }
}

/// Returns a new folder, in memory if possible. A kill loses nothing that was written, so these tests do
/// not need a disk, and need not wait for it.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn executable() -> PathBuf {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/engines/bin/nats-server");
    assert!(installed.exists(), "nats-server is missing; run tools/engines.sh install nats");
    installed
}

/// Returns a port that nothing uses, and that no other call returns.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// Returns whether all threads of a process are stopped.
fn is_stopped(tasks: &Path) -> bool {
    fs::read_dir(tasks).unwrap().all(|task| {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
    })
}
