//! Builds, starts and controls the Go program in `tessera/`, which runs a Tessera log on the same
//! disk as Moteseal. The source of that program documents what it does and how it verifies.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Failed;

/// The folder of the Go program.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tessera");

/// The built Go program, or a message that states why it is missing.
pub(crate) enum Built {
    Program(PathBuf),
    Absent(String),
}

/// Builds the program into a folder, with the versions pinned in `go.sum`.
pub(crate) fn build(folder: &Path) -> Result<Built, Failed> {
    let needed = std::fs::read_to_string(format!("{SOURCE}/go.mod"))?;
    let needed = needed
        .lines()
        .find_map(|line| line.strip_prefix("go "))
        .ok_or("go.mod states no version of Go")?;
    let found = match go(&["env", "GOVERSION"]).output() {
        Ok(output) => {
            String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("go").to_owned()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Built::Absent(format!(
                "Tessera: Go is not installed; install Go {needed} or newer and run this again"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if version(&found) < version(needed) {
        return Ok(Built::Absent(format!(
            "Tessera: Go {found} is too old; install Go {needed} or newer and run this again"
        )));
    }
    let fetched = go(&["mod", "download"]).output()?;
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        return Ok(Built::Absent(format!(
            "Tessera: its modules cannot be fetched ({})",
            why.trim()
        )));
    }
    let program = folder.join("moteseal-peer-tessera");
    let built = go(&["build", "-o", &program.display().to_string()]).output()?;
    if !built.status.success() {
        return Err(format!(
            "the Go program does not build: {}",
            String::from_utf8_lossy(&built.stderr)
        )
        .into());
    }
    Ok(Built::Program(program))
}

fn go(arguments: &[&str]) -> Command {
    let mut go = Command::new("go");
    go.args(arguments)
        .current_dir(SOURCE)
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath");
    go
}

/// Splits a version such as `1.24.0` into numbers. A component that is not a number counts as 0.
fn version(text: &str) -> Vec<u32> {
    text.split('.')
        .map(|number| {
            number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
        })
        .collect()
}

/// The result of a command: its duration and counts.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) time: Duration,
    /// Number of entries that were appended or verified.
    pub(crate) entries: u64,
    /// The sum of all bytes of the entries that were verified.
    pub(crate) sum: u64,
    /// Number of bytes that were fetched.
    pub(crate) bytes: u64,
    /// The public key of the log to which the entries were appended.
    pub(crate) key: String,
}

/// The running Go program, which appends and reads on command.
pub(crate) struct Driver {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    pub(crate) fn start(program: &Path) -> Result<Self, Failed> {
        let mut child = Command::new(program)
            .arg("drive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers =
            BufReader::new(child.stdout.take().ok_or("the Go program has no stdout")?).lines();
        let commands = child.stdin.take();
        Ok(Self { child, commands, answers })
    }

    /// Appends the entries of a file durably. At most `batch` entries are sequenced together, and
    /// no entry waits longer than `wait`.
    pub(crate) fn append(
        &mut self,
        log: &Path,
        entries: &Path,
        (batch, wait): (u32, Duration),
    ) -> Result<Answer, Failed> {
        let wait = u64::try_from(wait.as_millis())?;
        self.ask(&json!({ "do": "append", "log": log, "entries": entries, "batch": batch, "batch_ms": wait }))
    }

    /// Sends the entries of a file to a server, each in a separate POST request, over `connections`
    /// connections.
    pub(crate) fn post(
        &mut self,
        server: &Server,
        entries: &Path,
        connections: u32,
    ) -> Result<Answer, Failed> {
        let url = format!("http://{}/add", server.address);
        self.ask(&json!({ "do": "post", "url": url, "entries": entries, "workers": connections }))
    }

    /// Reads and verifies a log from files, or from a URL over a number of connections.
    pub(crate) fn read(
        &mut self,
        from: &Source<'_>,
        key: &str,
        how: How,
    ) -> Result<Answer, Failed> {
        let (how, every, limit) = match how {
            How::All => ("all", 1, 0),
            How::Clumps(every) => ("clumps", every, 0),
            How::Proofs { every, limit } => ("proofs", every, limit),
        };
        let mut command =
            json!({ "do": "read", "key": key, "how": how, "every": every, "limit": limit });
        match from {
            Source::Files { folder, workers } => {
                command["log"] = json!(folder);
                command["workers"] = json!(workers);
            }
            Source::Http { url, connections } => {
                command["url"] = json!(url);
                command["workers"] = json!(connections);
            }
        }
        self.ask(&command)
    }

    fn ask(&mut self, command: &Value) -> Result<Answer, Failed> {
        let commands = self.commands.as_mut().ok_or("the Go program has no stdin")?;
        writeln!(commands, "{command}")?;
        let answer: Value =
            serde_json::from_str(&self.answers.next().ok_or("the Go program has stopped")??)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(format!("the log: {error}").into());
        }
        let number = |name: &str| {
            answer[name].as_u64().ok_or_else(|| format!("the log's answer lacks {name}"))
        };
        Ok(Answer {
            time: Duration::from_nanos(number("nanoseconds")?),
            entries: number("entries")?,
            sum: number("sum")?,
            bytes: number("bytes")?,
            key: answer["key"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The program stops when its stdin is closed.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

/// The place from which the files of a log are read.
pub(crate) enum Source<'a> {
    Files { folder: &'a Path, workers: u32 },
    Http { url: String, connections: u32 },
}

/// How a log is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// Reads every entry, and verifies the root over all entries.
    All,
    /// Reads every `n`th bundle of 256 neighbouring entries. Verifies the root over these entries
    /// and over the tiles for the other entries.
    Clumps(u64),
    /// Reads every `every`th of the first `limit` entries, and verifies a separate inclusion proof
    /// for each.
    Proofs { every: u64, limit: u64 },
}

/// A log in a separate process, served over HTTP.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts a server for all logs under `root`. It appends posted entries to `root/http`.
    pub(crate) fn start(
        program: &Path,
        root: &Path,
        (batch, wait): (u32, Duration),
    ) -> Result<Self, Failed> {
        let mut child = Command::new(program)
            .arg("serve")
            .arg(root)
            .args([batch.to_string(), wait.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("the log's server has no stdout")?)
            .read_line(&mut address)?;
        let address = address.trim().to_owned();
        if address.is_empty() {
            return Err("the log's server did not start".into());
        }
        Ok(Self { child, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
