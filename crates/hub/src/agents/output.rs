//! The output of an agent: lines of bounded length, which the hub records one after the other.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use moteseal_service::LogLimit;
use moteseal_service::log_limit::{cut, log_suppressed};
use tokio::sync::{Notify, oneshot};
use tracing::{info, warn};

use crate::line::{Done, Line, Lines, MAX_LINE, MAX_WAITING, Outcome};

/// The maximum length of a line on standard error that is logged, in bytes.
const MAX_LOG_LINE: usize = 1024;
/// The maximum number of log lines per [`LOG_INTERVAL`].
const LOG_LINES: u32 = 20;
/// The number of bytes that are read at once.
const BUFFER: usize = 1 << 15;
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The delay before a line that was not recorded is passed on again.
const AGAIN: Duration = Duration::from_millis(200);

/// What a [`LineReader`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A whole line.
    Line,
    /// A line that is longer than allowed. Its content is discarded.
    TooLong,
    /// The end, after a line without an end.
    Cut,
    /// The end.
    End,
}

/// Reads lines of bounded length with bounded memory.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    input: BufReader<R>,
    longest: usize,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(input: R, longest: usize) -> Self {
        Self { input: BufReader::with_capacity(BUFFER, input), longest }
    }

    /// Returns whether the next line, or a part of it, is already in memory.
    fn has_more(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    /// Reads the next line into `line`, without its end.
    pub(super) fn read(&mut self, line: &mut Vec<u8>) -> io::Result<Part> {
        line.clear();
        let mut is_too_long = false;
        loop {
            let bytes = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if bytes.is_empty() {
                let is_whole = line.is_empty() && !is_too_long;
                return Ok(if is_whole { Part::End } else { Part::Cut });
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if line.len() + part.len() > self.longest {
                is_too_long = true;
                line.clear();
            }
            if !is_too_long {
                line.extend_from_slice(part);
            }
            let used = end.map_or(part.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(if is_too_long { Part::TooLong } else { Part::Line });
            }
        }
    }
}

/// What became of the lines of an agent, since the hub started.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Lines that are recorded, and empty lines.
    pub(super) accepted: AtomicU64,
    /// Lines that the receiver refused.
    pub(super) refused: AtomicU64,
    /// Lines longer than [`MAX_LINE`].
    pub(super) too_long: AtomicU64,
    /// Lines without an end, when the agent exited.
    pub(super) cut: AtomicU64,
    /// Lines that no source of the configuration receives.
    pub(super) unused: AtomicU64,
    /// Lines that were not recorded when the hub stopped waiting for their devices.
    pub(super) lost: AtomicU64,
}

/// The state of the output of one process.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Whether the hub has accepted a line.
    pub(super) is_alive: AtomicBool,
    /// The number of lines whose outcome is not known.
    pub(super) waiting: AtomicU64,
    /// The number of parts that were read.
    pub(super) parts: AtomicU64,
    /// Whether the output is closed and everything before is recorded.
    pub(super) is_drained: AtomicBool,
    /// Whether to stop although the output is not closed.
    pub(super) is_abandoned: AtomicBool,
    /// The last line on standard error.
    pub(super) last_error: Mutex<String>,
    /// Signals a change of `is_alive` or `is_drained`.
    pub(super) changed: Notify,
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A line whose outcome is not known.
struct Waiting {
    text: Bytes,
    /// The outcomes, each with the position of its receiver.
    outcomes: Vec<(usize, oneshot::Receiver<Outcome>)>,
}

/// Passes the lines of an agent to their receivers.
pub(super) struct Forwarder {
    pub(super) lines: Vec<Lines>,
    pub(super) counts: Arc<Counts>,
    pub(super) output: Arc<Output>,
}

impl Forwarder {
    /// Passes on every line until the output ends. Waits while [`MAX_WAITING`] lines are not
    /// recorded, so that the agent waits when its pipe is full. Call this on a thread of its own.
    pub(super) fn run(&self, stdout: impl Read) {
        let mut reader = LineReader::new(stdout, MAX_LINE);
        let (mut line, mut waiting) = (Vec::new(), VecDeque::new());
        while !self.output.is_abandoned.load(Ordering::Acquire) {
            let Ok(part) = reader.read(&mut line) else { break };
            one_more(&self.output.parts);
            match part {
                Part::End => break,
                Part::Cut => {
                    one_more(&self.counts.cut);
                    break;
                }
                Part::TooLong => one_more(&self.counts.too_long),
                // An empty line only says that the agent has come up.
                Part::Line if line.is_empty() => self.accept(),
                Part::Line if self.lines.is_empty() => {
                    one_more(&self.counts.unused);
                    self.alive();
                }
                Part::Line => {
                    let Some(sent) = self.send(Bytes::copy_from_slice(&line), 0..self.lines.len())
                    else {
                        break;
                    };
                    waiting.push_back(sent);
                    self.output.waiting.fetch_add(1, Ordering::AcqRel);
                }
            }
            // While more lines are in memory, wait only if too many are not recorded: their receiver
            // can record them together. Before the agent is waited for, all are.
            while waiting.len() >= MAX_WAITING
                || !reader.has_more()
                || waiting.front_mut().is_some_and(is_known)
            {
                let Some(first) = waiting.pop_front() else { break };
                self.settle(first);
            }
        }
        for first in waiting {
            self.settle(first);
        }
        self.output.is_drained.store(true, Ordering::Release);
        self.output.changed.notify_waiters();
    }

    fn alive(&self) {
        if !self.output.is_alive.swap(true, Ordering::AcqRel) {
            self.output.changed.notify_waiters();
        }
    }

    fn accept(&self) {
        one_more(&self.counts.accepted);
        self.alive();
    }

    /// Passes a line on to the receivers at the positions `to`. Returns `None` if none is left.
    fn send(&self, text: Bytes, to: impl Iterator<Item = usize>) -> Option<Waiting> {
        let mut outcomes = Vec::with_capacity(self.lines.len());
        for position in to {
            let (done, outcome) = Done::new();
            let line = Line { text: text.clone(), done };
            if self.lines.get(position).is_some_and(|lines| lines.blocking_send(line).is_ok()) {
                outcomes.push((position, outcome));
            }
        }
        (!outcomes.is_empty()).then_some(Waiting { text, outcomes })
    }

    /// Waits for the outcome of a line. A receiver that could not record it gets it again.
    fn settle(&self, mut waiting: Waiting) {
        let (mut is_recorded, mut is_refused) = (false, false);
        loop {
            let mut lost = Vec::new();
            for (position, outcome) in waiting.outcomes {
                match outcome.blocking_recv() {
                    Ok(Outcome::Durable) => is_recorded = true,
                    Ok(Outcome::Ignored) => {}
                    Ok(Outcome::Refused(_) | Outcome::Stopped) => is_refused = true,
                    Err(_) => lost.push(position),
                }
            }
            if lost.is_empty() || self.output.is_abandoned.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(AGAIN);
            match self.send(waiting.text, lost.into_iter()) {
                Some(sent) => waiting = sent,
                None => break,
            }
        }
        self.output.waiting.fetch_sub(1, Ordering::AcqRel);
        if is_recorded {
            self.accept();
        } else if is_refused {
            one_more(&self.counts.refused);
        } else {
            one_more(&self.counts.unused);
        }
    }
}

/// Returns whether the outcome of a line is known.
fn is_known(waiting: &mut Waiting) -> bool {
    waiting.outcomes.iter().all(|(_, outcome)| !outcome.is_empty() || outcome.is_terminated())
}

/// Logs the lines of an agent's standard error until it ends. Call this on a thread of its own.
pub(super) fn log(agent: &str, stderr: impl Read, output: &Output) {
    let limit = LogLimit::new(LOG_LINES, LOG_INTERVAL);
    let mut reader = LineReader::new(stderr, MAX_LOG_LINE);
    let mut line = Vec::new();
    loop {
        let part = match reader.read(&mut line) {
            Ok(Part::End) | Err(_) => break,
            Ok(part) => part,
        };
        log_suppressed(&limit.suppressed());
        let text: String = String::from_utf8_lossy(&line)
            .chars()
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        let text = if part == Part::TooLong { "(a long line)" } else { &*cut(&text) };
        text.clone_into(&mut output.last_error.lock().unwrap_or_else(PoisonError::into_inner));
        if limit.allows(agent.to_owned()) {
            info!(agent, "{text}");
        }
    }
    let suppressed = limit.finish();
    if !suppressed.is_empty() {
        warn!(agent, "further lines of this agent's standard error were suppressed");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(input: &[u8], longest: usize) -> Vec<(Part, String)> {
        let mut reader = LineReader::new(input, longest);
        let (mut parts, mut line) = (Vec::new(), Vec::new());
        loop {
            let part = reader.read(&mut line).unwrap();
            if part == Part::End {
                return parts;
            }
            let is_last = part == Part::Cut;
            parts.push((part, String::from_utf8_lossy(&line).into_owned()));
            if is_last {
                return parts;
            }
        }
    }

    #[test]
    fn lines_end_with_a_line_feed_and_a_rest_is_no_line() {
        let text = |text: &str| text.to_owned();
        let found = parts(b"a\n\nbc\r\nd", 3);
        let expected = [(Part::Line, "a"), (Part::Line, ""), (Part::Line, "bc"), (Part::Cut, "d")];
        assert_eq!(found, expected.map(|(part, line)| (part, text(line))));
        assert_eq!(parts(b"", 3), []);
    }

    /// A line of a gigabyte, from a reader that makes it up.
    #[test]
    fn a_line_of_a_gigabyte_is_discarded_with_bounded_memory() {
        let long = io::repeat(b'x').take(1 << 30).chain(&b"\nnext\n"[..]);
        let mut reader = LineReader::new(long, MAX_LINE);
        let mut line = Vec::new();
        assert_eq!(reader.read(&mut line).unwrap(), Part::TooLong);
        assert!(line.capacity() <= 2 * MAX_LINE, "{}", line.capacity());
        assert_eq!(reader.read(&mut line).unwrap(), Part::Line);
        assert_eq!(line, b"next");
    }
}
