//! The output of a command on stdout.
//!
//! Every line is escaped by [`Plain`]. Rows of data are not escaped: they are verified, and column
//! names cannot contain control characters (spec/objects.md, section 5).

use std::fmt;
use std::io::{self, Read, StdoutLock, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

pub use crate::diagnostic::{Plain, diagnostic};
use crate::failure::Failure;

/// Whether the command was run with `--json`.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes the command print JSON on stdout: every line is a JSON value, and if the command fails, the
/// last line is an object with the member `error` ([`Failure::to_json`]).
pub fn print_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Returns whether the command prints JSON.
#[must_use]
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Reports what a command did: a line of text on stderr, or with `--json` a line of JSON on stdout.
///
/// # Errors
///
/// Fails if stdout cannot be written.
pub fn report(text: impl fmt::Display, value: impl FnOnce() -> Value) -> Result<(), Failure> {
    report_lines([text], value)
}

/// Like [`report`], with several lines of text.
///
/// # Errors
///
/// Fails if stdout cannot be written.
pub fn report_lines(
    lines: impl IntoIterator<Item = impl fmt::Display>,
    value: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    if is_json() {
        return Stdout::lock().line(value());
    }
    lines.into_iter().for_each(diagnostic);
    Ok(())
}

/// Stdout. If its reader closes the pipe (`moteseal ... | head`), the rest of the output is
/// discarded without an error, and the command ends with its own exit code.
#[derive(Debug)]
pub struct Stdout {
    out: StdoutLock<'static>,
    is_open: bool,
}

impl Stdout {
    /// Locks stdout for the lifetime of the returned value.
    #[must_use]
    pub fn lock() -> Self {
        Self { out: io::stdout().lock(), is_open: true }
    }

    /// Returns whether stdout still has a reader. Returns false once a write has failed because the
    /// pipe was closed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the number of lines of the terminal, if stdout is one and states it.
    #[must_use]
    pub fn rows(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(&self.out).ok()?;
        (size.ws_row > 0).then_some(size.ws_row.into())
    }

    /// Writes a line of text or JSON, escaped by [`Plain`].
    ///
    /// # Errors
    ///
    /// Fails if stdout cannot be written, for a reason other than a closed pipe.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.attempt(|out| writeln!(out, "{}", Plain(line)))
    }

    /// Copies all bytes of `from` to stdout unchanged.
    ///
    /// # Errors
    ///
    /// Fails if `from` cannot be read, or if stdout cannot be written for a reason other than a
    /// closed pipe.
    pub fn copy(&mut self, mut from: impl Read) -> Result<(), Failure> {
        let mut chunk = vec![0; 64 << 10];
        while self.is_open {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => self.attempt(|out| out.write_all(&chunk[..length]))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::internal(format_args!(
                        "cannot read a temporary file: {error}"
                    )));
                }
            }
        }
        self.attempt(StdoutLock::flush)
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if !self.is_open {
            return Ok(());
        }
        match write(&mut self.out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_open = false;
                Ok(())
            }
            Err(error) => Err(Failure::internal(format_args!("cannot write the output: {error}"))),
        }
    }
}
