//! The processes of the cloud and its engines. Each one runs below a shell that kills it when the demo ends,
//! in whatever way.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use moteseal_terminal::failure::Failure;

use crate::internal;

/// Ends the server with SIGKILL when a line or the end of the input arrives.
const GUARD: &str =
    r#""$@" & server=$!; read -r _; kill -9 $server 2>/dev/null; wait $server 2>/dev/null"#;

/// A process, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub name: String,
    guard: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Process {
    /// Starts a command. What it prints on standard error goes to `NAME.log` in a folder.
    pub(super) fn start(
        folder: &Path,
        name: impl Into<String>,
        command: &[String],
    ) -> Result<Self, Failure> {
        let name = name.into();
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(|error| Failure::file("create", &log, &error))?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh"]).args(command);
        guard.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let guard = guard.spawn().map_err(|error| {
            internal(format_args!("cannot start {name} with the shell sh: {error}"))
        })?;
        Ok(Self { name, guard, log })
    }

    /// Waits for a line on standard output that begins with a prefix, and returns it.
    pub(super) fn line(
        &mut self,
        prefix: &'static str,
        limit: Duration,
    ) -> Result<String, Failure> {
        let out = self.guard.stdout.take();
        let out = out.ok_or_else(|| internal("the output of a process is read twice"))?;
        let (sender, line) = mpsc::channel();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line.starts_with(prefix) {
                    let _ = sender.send(line);
                }
            }
        });
        line.recv_timeout(limit)
            .map_err(|_| self.failed(format_args!("it printed no line with {prefix}")))
    }

    /// Returns the failure of this process, with the last lines that it printed.
    pub(super) fn failed(&self, why: impl std::fmt::Display) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = log.lines().rev().take(5).collect();
        last.reverse();
        internal(format_args!(
            "{} does not work: {why}; it printed: {}",
            self.name,
            last.join(" | ")
        ))
    }
}

/// Runs a command to its end.
pub(super) fn run(command: &[String]) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns ports of the loopback interface that are free now.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let fail = |error| internal(format_args!("there is no free port: {error}"));
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").map_err(fail));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|of| Ok(of.local_addr().map_err(fail)?.port())).collect()
}
