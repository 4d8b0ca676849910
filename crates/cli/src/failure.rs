//! How a command fails: one line on stderr that names the thing and the way out, and an exit code that scripts can use.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::terminal::talk;

/// The exit codes of DESIGN section 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code)]
pub(crate) enum Exit {
    /// Something that should not happen, or the machine failed (disk full, no permission).
    Internal = 1,
    /// The command or its input is wrong.
    Usage = 2,
    /// A proof was refused.
    Refused = 3,
    /// What was asked is not there as a whole.
    Incomplete = 4,
    /// An audit found something.
    Finding = 5,
    /// A service does not answer.
    Unreachable = 6,
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// A file that could not be read or written: the caller's mistake if it is not there, the machine's otherwise.
    pub(crate) fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory => Exit::Usage,
            _ => Exit::Internal,
        };
        Self::new(exit, format_args!("cannot {action} {}: {error}", path.display()))
    }

    /// The same failure, said of a file.
    pub(crate) fn about(self, path: &Path) -> Self {
        Self { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    /// The same failure, said of a key of a configuration.
    pub(crate) fn about_key(self, file: &Path, key: &str) -> Self {
        Self { message: format!("{}: {key}: {}", file.display(), self.message), ..self }
    }

    /// Says why, and with which exit code.
    pub(crate) fn report(&self) -> ExitCode {
        talk(format_args!("moteseal: {}", self.message));
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
