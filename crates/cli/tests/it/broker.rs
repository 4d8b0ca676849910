//! Runs a Mosquitto broker for one test, on a free loopback port, with its configuration in the
//! test's folder.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The maximum time that the broker may take to start.
const LONG: Duration = Duration::from_secs(60);

/// Mosquitto, which `tools/setup.sh` installs, on a free port of the loopback interface.
pub(crate) struct Broker {
    process: Child,
    pub(crate) port: u16,
}

impl Broker {
    /// Starts the broker. `more` are further lines of its configuration.
    pub(crate) fn start(folder: &Path, more: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(folder, more, port)
    }

    /// Starts the broker at this port.
    pub(crate) fn start_at(folder: &Path, more: &str, port: u16) -> Self {
        let config = folder.join("mosquitto.conf");
        let listener = format!(
            "user root\nmax_queued_messages 0\nset_tcp_nodelay true\nlistener {port} 127.0.0.1\n{more}"
        );
        fs::write(&config, listener).unwrap();
        // Debian installs it here, which is not in every user's PATH.
        let program = if Path::new("/usr/sbin/mosquitto").exists() {
            "/usr/sbin/mosquitto"
        } else {
            "mosquitto"
        };
        let mut command = Command::new(program);
        let process =
            command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect("mosquitto is missing: run tools/setup.sh test");
        let (broker, start) = (Self { process, port }, Instant::now());
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LONG, "mosquitto does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        broker
    }

    pub(crate) fn open(folder: &Path) -> Self {
        Self::start(folder, "allow_anonymous true\n")
    }

    /// Asks the broker to stop, so that it stores what must persist. Waits until it has stopped.
    pub(crate) fn stop(mut self) {
        let kill = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(kill.success());
        self.process.wait().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
