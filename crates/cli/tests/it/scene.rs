//! A group of two devices in a temporary directory, in which tests run the `moteseal` binary.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The columns of the tables in a scene.
pub(crate) const COLUMNS: [&str; 6] =
    ["--time", "ts", "--column", "temperature:Cel:i16/100", "--column", "humidity:%RH:u16/100"];
pub(crate) const GROUP_ARGUMENTS: [&str; 4] =
    ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];

/// The exit code and output of a run of the binary.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code().unwrap(), out: text(stdout), stderr: text(stderr) }
    }

    /// Asserts that the run failed with this exit code, and that no library wrote a warning or an error. Returns the line
    /// that states the reason.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        let lines: Vec<&str> =
            self.stderr.lines().filter(|line| line.starts_with("moteseal: ")).collect();
        assert_eq!(lines.len(), 1, "there must be one line with the reason: {self:?}");
        let foreign = self.stderr.lines().find(|line| is_of_a_library(line));
        assert_eq!(foreign, None, "a warning that is not ours: {self:?}");
        assert_eq!(
            self.stderr.lines().last(),
            lines.first().copied(),
            "the reason must be the last line: {self:?}"
        );
        lines[0]
    }

    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Returns the first line of stdout. If the run failed, the error follows in the last line.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.out.lines().next().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Returns whether a line of the log is a warning or an error of a library.
fn is_of_a_library(line: &str) -> bool {
    let rest = [" WARN ", " ERROR "].iter().find_map(|level| line.split_once(level));
    rest.is_some_and(|(time, target)| {
        // Other lines may have these words, but do not begin with a time.
        time.trim_end().ends_with('Z') && !target.trim_start().starts_with("moteseal")
    })
}

/// Runs a command that must succeed, with its output discarded. Returns the processor time of all its
/// threads. Other programs, which may hold processors and disks, do not change it.
pub(crate) fn own_time(command: &mut Command) -> Duration {
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    let stat = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        // The name of the program, which is in brackets, may contain spaces.
        stat.rsplit_once(") ").unwrap().1.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    // A process that has ended keeps its files in /proc until `wait`.
    while stat()[0] != "Z" {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Times in user and kernel mode, in hundredths of a second.
    let ticks: u64 = stat()[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    assert!(process.wait().unwrap().success(), "{command:?}");
    Duration::from_millis(10 * ticks)
}

pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    /// Makes the keys of an operator and two devices, and their roster with epochs of an hour and
    /// 16 levels.
    pub(crate) fn new() -> Self {
        let scene = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["op", "dev1", "dev2", "stranger"] {
            scene.run(&["key", "new", "--out", &format!("keys/{name}")]).done();
        }
        scene.roster("home", "keys/op.key.pem", "roster.cbor");
        scene
    }

    pub(crate) fn roster(&self, group: &str, operator: &str, out: &str) {
        let arguments = [
            "roster",
            "new",
            "--operator",
            operator,
            "--group",
            group,
            "--epoch",
            "1h",
            "--levels",
            "16",
        ];
        let devices = [
            "--device",
            "dev1=keys/dev1.pub.pem",
            "--device",
            "dev2=keys/dev2.pub.pem",
            "--out",
            out,
        ];
        self.run(&[&arguments[..], &devices[..]].concat()).done();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes a table of `count` readings, one per minute from 2026-01-01 on.
    pub(crate) fn table(&self, name: &str, count: u32) {
        let mut text = String::from("ts,humidity,temperature\n");
        for i in 0..count {
            let (hundredths, minute) = (2000 + i * 7 % 400, 1_767_225_600 + u64::from(i) * 60);
            text += &format!(
                "{minute},{}.5,{}.{:02}\n",
                40 + i % 9,
                hundredths / 100,
                hundredths % 100
            );
        }
        self.write(name, &text);
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.path("state")).env_remove("RUST_LOG");
        // That of the superuser of the tests' node, unless the test has written another one.
        let password = self.path("cassandra.password");
        if password.exists() {
            command.env("MOTESEAL_CASSANDRA_PASSWORD_FILE", password);
        } else {
            command.env("MOTESEAL_CASSANDRA_PASSWORD", "cassandra");
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    /// Runs a command with the options for roster and operator.
    pub(crate) fn with_roster(&self, arguments: &[&str]) -> Run {
        self.run(&[arguments, &GROUP_ARGUMENTS[..]].concat())
    }

    pub(crate) fn seal(&self, table: &str, device: &str, more: &[&str]) -> Run {
        let key = format!("keys/{device}.key.pem");
        let arguments = ["seal", table, "--device", device, "--key", &key, "--out", "bundles"];
        self.with_roster(&[&arguments[..], &COLUMNS[..], more].concat())
    }

    /// Returns the names in a directory, sorted. Returns no names if the directory does not exist.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Starts a cloud on a free port.
    pub(crate) fn cloud(&self, store: &str) -> Cloud {
        self.cloud_with(store, &[])
    }

    /// Starts a cloud on a free port, with further options.
    pub(crate) fn cloud_with(&self, store: &str, more: &[&str]) -> Cloud {
        self.serve(store, "127.0.0.1:0", more)
    }

    /// Starts a cloud at this address.
    pub(crate) fn cloud_at(&self, store: &str, address: &str) -> Cloud {
        self.serve(store, address, &[])
    }

    fn serve(&self, store: &str, address: &str, more: &[&str]) -> Cloud {
        let arguments = ["cloud", "run", "--store", store, "--listen", address];
        let mut command = self.command(&[&arguments[..], &GROUP_ARGUMENTS[..], more].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.contains("://127.0.0.1:"), "{url}");
        Cloud { process, url }
    }
}

/// A running cloud, which is killed when this is dropped.
pub(crate) struct Cloud {
    process: Child,
    pub(crate) url: String,
}

impl Cloud {
    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }
}

impl Cloud {
    /// Asks the cloud to stop and waits until it has stopped.
    pub(crate) fn stop(&mut self) {
        let kill = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(kill.success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of a file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
