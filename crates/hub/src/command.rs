//! Lines of a program's output. Each line is one message. The program cannot learn what became of
//! it, so a line is lost if the hub is killed before it is recorded.

use std::io::{self, BufRead, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tracing::warn;

use crate::intake::Intake;
use crate::line::{Done, Line, MAX_LINE, MAX_WAITING};

/// The first wait before a program that has ended is started again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a program that has ended is started again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The interval at which the thread checks whether the hub has stopped.
const TICK: Duration = Duration::from_millis(100);

/// A program whose output is a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// How often to run a program that ends after it has printed its readings. Without it, the
    /// program is expected to run for ever.
    pub every: Option<Duration>,
}

/// The process that runs now. It is killed when this value is dropped, and no other is started.
#[derive(Debug)]
struct Running(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_over = true;
        if let Some(child) = &mut state.child {
            // The thread that reads its output waits for it.
            let _ = child.kill();
        }
    }
}

/// Runs a program, and starts it again when it ends. Kills it when the future is dropped.
pub(crate) async fn run(program: Program, intake: Arc<Intake>) {
    let (send, mut lines) = mpsc::channel::<Option<Line>>(MAX_WAITING);
    let state = Arc::new(Mutex::new(State::default()));
    let _running = Running(Arc::clone(&state));
    let name = intake.name.clone();
    // The thread ends soon after this future is dropped, because its process is killed.
    std::thread::spawn(move || supervise(&program, &name, &state, &send));
    while let Some(line) = lines.recv().await {
        match line {
            Some(line) => intake.take(&line.text, line.done).await,
            None => intake.too_long(Done::ignored()),
        }
    }
}

fn supervise(
    program: &Program,
    source: &str,
    state: &Arc<Mutex<State>>,
    send: &mpsc::Sender<Option<Line>>,
) {
    let mut wait = FIRST_WAIT;
    loop {
        let start = Instant::now();
        let ended = once(program, state, send);
        if send.is_closed() {
            return;
        }
        let failed = match ended {
            Ok(true) => None,
            Ok(false) => Some("it ended with an error".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let pause = match (program.every, &failed) {
            (Some(every), None) => every.saturating_sub(start.elapsed()),
            (every, _) => {
                if start.elapsed() > LONGEST_WAIT {
                    wait = FIRST_WAIT;
                }
                let pause = wait.max(every.unwrap_or_default());
                let why = failed.as_deref().unwrap_or("it ended");
                let command = program.command.first().map_or("", String::as_str);
                warn!(source, command, again_in = ?pause, "the program does not run: {why}");
                wait = (wait * 2).min(LONGEST_WAIT);
                pause
            }
        };
        let until = Instant::now() + pause;
        while Instant::now() < until {
            std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
            if send.is_closed() {
                return;
            }
        }
    }
}

/// Runs the program once. Returns whether it ended without an error.
fn once(
    program: &Program,
    state: &Arc<Mutex<State>>,
    send: &mpsc::Sender<Option<Line>>,
) -> io::Result<bool> {
    let Some((path, arguments)) = program.command.split_first() else { return Ok(false) };
    let mut command = Command::new(path);
    command
        .args(arguments)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let output = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return Ok(true);
        }
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        state.child = Some(child);
        output
    };
    let read = output.map_or(Ok(()), |output| pass_lines(&mut BufReader::new(output), send));
    let child = state.lock().unwrap_or_else(PoisonError::into_inner).child.take();
    let Some(mut child) = child else { return Ok(false) };
    if read.is_err() || send.is_closed() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    read.map(|()| status.success())
}

/// Passes each line on. A line that is too long is skipped and reported as `None`.
fn pass_lines(from: &mut impl BufRead, send: &mpsc::Sender<Option<Line>>) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(MAX_LINE as u64 + 2).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let has_ended = line.pop_if(|last| *last == b'\n').is_some();
        if has_ended {
            line.pop_if(|last| *last == b'\r');
        }
        let next = if line.len() > MAX_LINE {
            if !has_ended {
                from.skip_until(b'\n')?;
            }
            None
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else {
            Some(Line { text: Bytes::copy_from_slice(&line), done: Done::ignored() })
        };
        if send.blocking_send(next).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_memory_for_a_line_of_any_length() {
        let text = format!("1\r\n\n{}\n{}\n2", "x".repeat(MAX_LINE), "y".repeat(MAX_LINE * 20));
        let (send, mut lines) = mpsc::channel(8);
        pass_lines(&mut BufReader::with_capacity(7, text.as_bytes()), &send).unwrap();
        drop(send);
        let mut lengths = Vec::new();
        while let Some(line) = lines.blocking_recv() {
            lengths.push(line.map(|line| line.text.len()));
        }
        assert_eq!(lengths, [Some(1), Some(MAX_LINE), None, Some(1)]);
    }
}
