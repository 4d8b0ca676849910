//! Runs a base station, a sender and watchers as processes, on a multicast group of the loopback
//! interface that no other test uses.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The timeout of an operation: longer than any successful operation takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 83, 7, 2);

/// A folder with the keys of two base stations and of a sender that the first base station has
/// certified.
pub(crate) struct Network {
    directory: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Network {
    pub(crate) fn new() -> Self {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let network = Self { directory: tempfile::tempdir().unwrap(), port };
        for name in ["base", "other", "ops"] {
            network.done(&["key", "new", "--out", &format!("keys/{name}")]);
        }
        network.done(&[
            "key",
            "request",
            "--key",
            "keys/ops.key.pem",
            "--sender",
            "ops",
            "--out",
            "ops.request",
        ]);
        network.certify("base", 7, &[], "ops.cert");
        network
    }

    pub(crate) fn certify(&self, base: &str, serial: u64, more: &[&str], out: &str) {
        let (ca, serial) = (format!("keys/{base}.key.pem"), serial.to_string());
        let arguments =
            ["key", "certify", "ops.request", "--ca", &ca, "--serial", &serial, "--out", out];
        self.done(&[&arguments[..], more].concat());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the group's address with further query parameters.
    pub(crate) fn url(&self, more: &str) -> String {
        format!("udp://{GROUP}:{}?interface=127.0.0.1{more}", self.port)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output
    }

    /// Returns a command that sends to the group.
    pub(crate) fn send(&self, url: &str, more: &[&str]) -> Command {
        let certificate: &[&str] =
            if more.contains(&"--cert") { &[] } else { &["--cert", "ops.cert"] };
        self.command(
            &[&["broadcast", "send", "--key", "keys/ops.key.pem", "--to", url], certificate, more]
                .concat(),
        )
    }

    /// Sends a line with further arguments, and returns what the command prints.
    pub(crate) fn send_line(&self, line: &str, more: &[&str]) -> Output {
        self.start_line(line, more).wait_with_output().unwrap()
    }

    /// Starts to send a line with further arguments.
    pub(crate) fn start_line(&self, line: &str, more: &[&str]) -> Child {
        let mut process = self
            .send(&self.url(""), &[&["--lines", "-", "--linger", "0.5"], more].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        process
    }

    /// Starts a watcher that prints JSON, and waits until it listens.
    pub(crate) fn watch(&self, name: &str, urls: &[&str], more: &[&str]) -> Watcher {
        let (state, save) = (format!("{name}.state"), format!("{name}.saved"));
        let mut arguments = vec![
            "broadcast",
            "watch",
            "--ca",
            "keys/base.pub.pem",
            "--state",
            &state,
            "--save",
            &save,
            "--json",
        ];
        urls.iter().for_each(|url| arguments.extend(["--on", url]));
        arguments.extend(more);
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut process =
            self.command(&arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (put, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if put.send(event).is_err() {
                    return;
                }
            }
        });
        let watcher = Watcher { process, events };
        watcher.until("listening");
        watcher
    }

    pub(crate) fn saved(&self, name: &str, file: &str) -> Vec<u8> {
        fs::read(self.path(&format!("{name}.saved")).join(file)).unwrap()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running watcher, which is killed when this is dropped.
pub(crate) struct Watcher {
    process: Child,
    events: mpsc::Receiver<Value>,
}

impl Watcher {
    /// Waits for the next event with this name.
    #[track_caller]
    pub(crate) fn until(&self, name: &str) -> Value {
        self.find(|event| event["event"] == name)
    }

    /// Waits for the next event for which `is` returns true.
    #[track_caller]
    pub(crate) fn find(&self, is: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Vec::new();
        loop {
            match self.events.recv_timeout(LONG) {
                Ok(event) if is(&event) => return event,
                Ok(event) => seen.push(event),
                Err(error) => panic!("{error}; seen: {seen:?}"),
            }
        }
    }

    /// Returns the events that were printed but not returned yet.
    pub(crate) fn rest(&self) -> Vec<Value> {
        self.events.try_iter().collect()
    }

    /// Kills the watcher with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the end of the process and returns its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(start.elapsed() < LONG, "the watcher does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns pseudo-random bytes.
pub(crate) fn image(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}
