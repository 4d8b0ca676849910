//! A home for the tests of the hub: a broker with sensors, a hub, a gateway and a cloud, as processes.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::broker::Broker;

/// The maximum time to wait for anything.
const LONG: Duration = Duration::from_secs(120);

/// A process that is killed with SIGKILL when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Asks the process to stop, and waits until it has stopped.
    pub(crate) fn stop(mut self) {
        let kill = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(kill.success());
        assert!(self.0.wait().unwrap().success());
    }
}

/// A row of the answer to `moteseal get`: the values by column.
pub(crate) type Row = serde_json::Map<String, serde_json::Value>;

pub(crate) struct Home {
    folder: tempfile::TempDir,
    pub(crate) broker: Option<Broker>,
    cloud: Option<(Process, String)>,
    gateway: Option<(Process, String)>,
}

impl Home {
    /// Makes the keys of a group with these devices, and starts a broker, a cloud and a gateway.
    pub(crate) fn new(devices: &[String], epoch: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut home = Self { folder, broker: None, cloud: None, gateway: None };
        for name in ["op", "gateway"] {
            home.done(&["key", "new", "--out", &format!("keys/{name}")]);
        }
        home.write("names.txt", &(devices.join("\n") + "\n"));
        let list = ["--devices-file", "names.txt"];
        let new = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "home"];
        let budget = ["--budget", "100000", "--coordinator", "keys/gateway.pub.pem"];
        let rest = ["--epoch", epoch, "--keys", "keys", "--out", "roster.cbor"];
        home.done(&[&new[..], &budget, &rest, &list].concat());
        home.done(&["key", "link", "--out", "keys/link.key"]);
        let derive = ["key", "link", "--group-secret", "keys/link.key", "--out", "keys"];
        let roster = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
        home.done(&[&derive[..], &roster, &list].concat());
        home.start_broker();
        let run = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        home.cloud = Some(home.service(&[&run[..], &roster].concat()));
        home.write(
            "gateway.toml",
            &format!(
                "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
                 link_secret = \"keys/link.key\"\nstate = \"gateway\"\ngrace = \"1s\"\n\
                 listen_coaps = \"127.0.0.1:0\"\n[cloud]\nurl = \"{}\"\n",
                home.cloud_url()
            ),
        );
        home.gateway = Some(home.service(&["gateway", "run", "--config", "gateway.toml"]));
        home
    }

    /// Starts the broker, with the state that an earlier one has saved.
    pub(crate) fn start_broker(&mut self) {
        let folder = self.path("broker");
        fs::create_dir_all(&folder).unwrap();
        self.broker = Some(Broker::start(&folder, &Self::broker_settings(&folder)));
    }

    /// Stops the broker, and starts it again at the same port. The broker keeps its sessions.
    pub(crate) fn restart_broker(&mut self, port: u16) {
        if let Some(broker) = self.broker.take() {
            broker.stop();
        }
        let folder = self.path("broker");
        self.broker = Some(Broker::start_at(&folder, &Self::broker_settings(&folder), port));
    }

    fn broker_settings(folder: &Path) -> String {
        format!(
            "allow_anonymous true\npersistence true\npersistence_location {}/\n",
            folder.display()
        )
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.path("xdg")).env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Runs a command that must succeed. Returns what it tells people, on stderr.
    #[track_caller]
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let Output { status, stderr, .. } = self.run(arguments);
        let told = String::from_utf8(stderr).unwrap();
        assert!(status.success(), "{arguments:?}: {told}");
        told
    }

    /// Starts a service that prints its address. Its log is appended to a file with its name.
    pub(crate) fn service(&self, arguments: &[&str]) -> (Process, String) {
        let (process, mut urls) = self.service_with(arguments, 1);
        (process, urls.remove(0))
    }

    /// Starts a service that prints `count` addresses.
    pub(crate) fn service_with(&self, arguments: &[&str], count: usize) -> (Process, Vec<String>) {
        let log = self.path(format!("{}.log", arguments[0]));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = self.command(arguments);
        let mut process = Process(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
        let lines = BufReader::new(process.0.stdout.as_mut().unwrap()).lines();
        let urls: Vec<String> = lines.take(count).map(Result::unwrap).collect();
        assert_eq!(urls.len(), count, "{arguments:?}: {}", self.log(arguments[0]));
        (process, urls)
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(format!("{name}.log"))).unwrap_or_default()
    }

    pub(crate) fn cloud_url(&self) -> &str {
        &self.cloud.as_ref().unwrap().1
    }

    pub(crate) fn gateway_url(&self) -> &str {
        &self.gateway.as_ref().unwrap().1
    }

    pub(crate) fn broker_url(&self) -> String {
        self.broker.as_ref().unwrap().url()
    }

    /// Writes hub.toml: the parts that all hubs of a home share, and the given sources.
    pub(crate) fn configure(&self, sources: &str) {
        let text = format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nstate = \"hub\"\nlisten = \"127.0.0.1:0\"\n\
             [link]\nurl = \"{}\"\n[mqtt]\nurl = \"{}\"\n{sources}",
            self.gateway_url(),
            self.broker_url()
        );
        self.write("hub.toml", &text);
    }

    /// Starts the hub, and waits until it has subscribed. Returns the address of its pages as well.
    pub(crate) fn hub(&self) -> (Process, String) {
        self.hub_with("hub.toml")
    }

    /// Like [`hub`](Self::hub), with this configuration.
    pub(crate) fn hub_with(&self, file: &str) -> (Process, String) {
        let (process, url) = self.service(&["hub", "run", file]);
        self.until_ready(&url);
        (process, url)
    }

    /// Waits until the hub with these pages has subscribed.
    pub(crate) fn until_ready(&self, pages: &str) {
        let start = Instant::now();
        while !page(pages, "/readyz").contains("ready\n") {
            assert!(start.elapsed() < LONG, "the hub is not ready: {}", self.log("hub"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Publishes a message with QoS 1. Returns when the broker has it.
    pub(crate) fn publish(&self, topic: &str, payload: &str) {
        let mut command = self.publisher(topic);
        let status = command.args(["-m", payload]).status().unwrap();
        assert!(status.success());
    }

    fn publisher(&self, topic: &str) -> Command {
        let port = self.broker.as_ref().unwrap().port.to_string();
        let mut command = Command::new("mosquitto_pub");
        command.args(["-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", topic]);
        command
    }

    /// Starts a publisher of the lines that are written to it.
    pub(crate) fn publish_lines(&self, topic: &str) -> (Child, ChildStdin) {
        let mut command = self.publisher(topic);
        let mut process = command.arg("-l").stdin(Stdio::piped()).spawn().unwrap();
        let stdin = process.stdin.take().unwrap();
        (process, stdin)
    }

    /// Connects a publisher to the broker that can publish to any topic.
    pub(crate) fn publish_mixed(&self) -> Publisher {
        Publisher::connect(self.broker.as_ref().unwrap().port)
    }

    /// Gets all rows of a device from the cloud, verified.
    pub(crate) fn rows(&self, device: &str) -> Vec<Row> {
        let get = ["get", device, "--from", self.cloud_url(), "--rate", "1"];
        let roster = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
        let format = ["--since", "1970-01-01", "--format", "jsonl"];
        let output = self.run(&[&get[..], &roster, &format].concat());
        // Until the first seal arrives, and until the newest one does, the answer is incomplete.
        let code = output.status.code();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(code, Some(0 | 4)), "{device}: {code:?}: {stderr}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until a device has at least this number of rows at the cloud.
    #[track_caller]
    pub(crate) fn wait_for_rows(&self, device: &str, count: usize) -> Vec<Row> {
        let start = Instant::now();
        loop {
            let rows = self.rows(device);
            if rows.len() >= count {
                return rows;
            }
            let logs = || {
                let mut logs = String::new();
                for name in ["hub", "gateway"] {
                    let _ = writeln!(logs, "{name}:\n{}", self.log(name));
                }
                logs
            };
            assert!(start.elapsed() < LONG, "{} of {count} rows\n{}", rows.len(), logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Gets a page of a service. Returns the response with its head.
pub(crate) fn page(url: &str, path: &str) -> String {
    request(url, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// Sends an HTTP request, and returns the response with its head.
pub(crate) fn request(url: &str, request: &str) -> String {
    use std::io::Read as _;
    let address = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns the value of a metric in a page: of the first line that starts with `name`.
pub(crate) fn metric(page: &str, name: &str) -> Option<f64> {
    page.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

/// A client that publishes with QoS 1. It has one connection, and ignores the acknowledgements.
pub(crate) struct Publisher {
    stream: std::net::TcpStream,
    next: u16,
}

impl Publisher {
    fn connect(port: u16) -> Self {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        // CONNECT of MQTT 3.1.1, a clean session, without keep-alive, client id "sensors".
        stream.write_all(b"\x10\x13\0\x04MQTT\x04\x02\0\0\0\x07sensors").unwrap();
        let mut answers = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            use std::io::Read as _;
            let mut buffer = [0; 4096];
            while answers.read(&mut buffer).is_ok_and(|length| length > 0) {}
        });
        Self { stream, next: 0 }
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: &str) {
        self.next = self.next % u16::MAX + 1;
        let length = 2 + topic.len() + 2 + payload.len();
        assert!(length < 1 << 14);
        let mut packet = vec![0x32];
        if length >= 128 {
            packet.push((length % 128) as u8 | 0x80);
            packet.push((length / 128) as u8);
        } else {
            packet.push(length as u8);
        }
        packet.extend((topic.len() as u16).to_be_bytes());
        packet.extend(topic.as_bytes());
        packet.extend(self.next.to_be_bytes());
        packet.extend(payload.as_bytes());
        self.stream.write_all(&packet).unwrap();
    }
}
