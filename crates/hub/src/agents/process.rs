//! The process of an agent: its start, its pipes and its end.
//!
//! Each process has threads of its own for its output, its standard error, its input and its end.
//! All processes are started by one thread that never ends, because the kernel kills an agent when
//! the thread that started it ends.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as sync_mpsc};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::sync::{mpsc, oneshot};

use super::output::{Forwarder, Output, log};

/// The number of lines that wait to be written to an agent.
const INPUT: usize = 1;

/// A line to write to an agent.
pub(super) struct Input {
    /// The line, with its end.
    pub(super) line: Vec<u8>,
    /// Decides, at the last moment, whether the line may still be written.
    pub(super) is_due: Box<dyn Fn() -> bool + Send>,
    /// Receives whether the line was written.
    pub(super) done: oneshot::Sender<bool>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

/// The process id, until the process is waited for.
#[derive(Debug)]
struct Leader(Mutex<Option<Pid>>);

impl Leader {
    /// Sends a signal to the process group.
    fn signal(&self, signal: Signal) {
        let leader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // While the lock is held, no other process can get this id.
        if let Some(pid) = *leader {
            // The launcher may not have a process group of its own yet.
            if kill_process_group(pid, signal).is_err() {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// A running agent. The process group is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    /// The process id of the leader of the process group.
    pub(super) id: u32,
    /// The state of the output.
    pub(super) output: Arc<Output>,
    /// Receives the status when the process has exited and its group is killed.
    pub(super) exit: oneshot::Receiver<io::Result<ExitStatus>>,
    /// Lines for the agent's standard input.
    pub(super) input: mpsc::Sender<Input>,
    leader: Arc<Leader>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.output.is_abandoned.store(true, std::sync::atomic::Ordering::Release);
        self.leader.signal(Signal::KILL);
    }
}

type Start = (Command, oneshot::Sender<io::Result<Child>>);

/// Returns the thread that starts all processes.
fn starter() -> &'static sync_mpsc::Sender<Start> {
    static STARTER: OnceLock<sync_mpsc::Sender<Start>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (starter, starts) = sync_mpsc::channel::<Start>();
        // Without the thread, every start fails with an error.
        let _ = std::thread::Builder::new().name("agents".to_owned()).spawn(move || {
            while let Ok((mut command, started)) = starts.recv() {
                let _ = started.send(command.spawn());
            }
        });
        starter
    })
}

/// Starts a thread.
fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(1 << 18).spawn(run).map(drop)
}

impl Process {
    /// Starts the command, and passes its lines to `forwarder`.
    pub(super) async fn start(
        name: &str,
        mut command: Command,
        forwarder: Forwarder,
    ) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (started, child) = oneshot::channel();
        let ended = || io::Error::other("the thread that starts agents has ended");
        starter().send((command, started)).map_err(|_| ended())?;
        let mut child = child.await.map_err(|_| ended())??;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(ended)?;
        let output = Arc::clone(&forwarder.output);
        let leader = Arc::new(Leader(Mutex::new(Some(pid))));
        let (input, lines) = mpsc::channel(INPUT);
        let (exited, exit) = oneshot::channel();
        let process = Self {
            id: child.id(),
            output: Arc::clone(&output),
            exit,
            input,
            leader: Arc::clone(&leader),
        };
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(ended());
        };
        // If a thread cannot be started, dropping `process` kills the agent; its status is then never
        // read until the hub ends.
        thread("agent-exit", move || drop(exited.send(wait(child, pid, &leader))))?;
        thread("agent-lines", move || forwarder.run(stdout))?;
        let name = name.to_owned();
        thread("agent-log", move || log(&name, stderr, &output))?;
        thread("agent-input", move || write(stdin, lines))?;
        Ok(process)
    }

    /// Asks the agent to exit.
    pub(super) fn terminate(&self) {
        self.leader.signal(Signal::TERM);
    }

    /// Kills the process group.
    pub(super) fn kill(&self) {
        self.leader.signal(Signal::KILL);
    }
}

/// Waits for the end of a process, and kills the rest of its group before its id can be used again.
fn wait(mut child: Child, pid: Pid, leader: &Leader) -> io::Result<ExitStatus> {
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    leader.signal(Signal::KILL);
    *leader.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    child.wait()
}

/// Writes lines to an agent until it closes its standard input or exits.
fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Input>) {
    while let Some(Input { line, is_due, done }) = lines.blocking_recv() {
        let is_due = is_due();
        let is_written = is_due && stdin.write_all(&line).and_then(|()| stdin.flush()).is_ok();
        let _ = done.send(is_written);
        if is_due && !is_written {
            return;
        }
    }
}
