//! Processes that end together with this one, however it ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Failed;

/// Runs the command of the arguments, and kills it when the standard input ends, which the end of this
/// process causes. The shell keeps no copy of the standard output, so that the output ends with the
/// command. It ignores Ctrl-C, which would otherwise end it before the command.
const SCRIPT: &str = r#"trap '' INT; "$@" & child=$!; exec >&-; read -r _; kill -9 "$child"; wait"#;

/// A running process.
#[derive(Debug)]
pub struct Process {
    shell: Child,
    /// The first line of the standard output. It ends with the process.
    lines: Receiver<String>,
    /// The file with the standard error output.
    log: PathBuf,
}

impl Process {
    /// Starts a program. `log` gets its standard error output.
    ///
    /// # Errors
    /// The shell cannot be started, or the log cannot be created.
    pub fn start(
        program: &Path,
        arguments: &[String],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self, Failed> {
        let file = File::create(log)?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(program).args(arguments);
        command.envs(variables.iter().copied()).stderr(file);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = shell.stdout.take().ok_or("a process without output")?;
        let (send, lines) = sync_channel(1);
        // The output is read to its end, so that the process never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = send.try_send(line);
            }
        });
        Ok(Self { shell, lines, log: log.to_owned() })
    }

    /// Returns the name of its log without the ending.
    #[must_use]
    pub fn name(&self) -> String {
        self.log.file_stem().unwrap_or_default().display().to_string()
    }

    /// Waits for the first line of the standard output, and returns it.
    ///
    /// # Errors
    /// The process ended before, or printed none within the time.
    pub fn line(&self, within: Duration) -> Result<String, Failed> {
        let reason = |error| match error {
            RecvTimeoutError::Disconnected => self.reason("it ended"),
            RecvTimeoutError::Timeout => self.reason("it printed nothing"),
        };
        Ok(self.lines.recv_timeout(within).map_err(reason)?)
    }

    /// Waits until a port of this machine accepts connections.
    ///
    /// # Errors
    /// The process ended, or the port accepts none within the time.
    pub fn accepts(&self, port: u16, within: Duration) -> Result<(), Failed> {
        let until = Instant::now() + within;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if self.lines.try_recv() == Err(TryRecvError::Disconnected) {
                return Err(self.reason("it ended").into());
            }
            if Instant::now() > until {
                return Err(self.reason("it does not start").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the processor time that the process has used in all its threads, in seconds.
    ///
    /// # Errors
    /// The process has ended, or the system is not Linux.
    pub fn processor_seconds(&self) -> Result<f64, Failed> {
        processor_time(self.id()?).map(|time| time.as_secs_f64())
    }

    /// Asks the process to stop, and waits until it has ended.
    ///
    /// # Errors
    /// It does not end within the time.
    pub fn stop(&self, within: Duration) -> Result<(), Failed> {
        Command::new("kill").args(["-TERM", &self.id()?.to_string()]).status()?;
        let until = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.reason("it does not stop").into());
                }
            }
        }
    }

    /// Returns the id of the process, which is the only child of the shell.
    pub(super) fn id(&self) -> Result<i32, Failed> {
        let shell = self.shell.id();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        let id = children.split_whitespace().next().ok_or_else(|| self.reason("it ended"))?;
        Ok(id.parse()?)
    }

    /// Describes why the process is of no use: with the last line of its log.
    #[must_use]
    pub fn reason(&self, what: &str) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let name = self.name();
        format!("{name}: {what}: {}", text.lines().last().unwrap_or("it wrote nothing"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Returns a port of this machine that no program uses, and that no other call returns.
pub(super) fn free_port() -> Result<u16, Failed> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}

#[cfg(target_os = "linux")]
fn processor_time(id: i32) -> Result<Duration, Failed> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(id))?;
    Ok(clock.now()?.into())
}

#[cfg(not(target_os = "linux"))]
fn processor_time(_: i32) -> Result<Duration, Failed> {
    Err("the processor time of other processes is measured only on Linux".into())
}
