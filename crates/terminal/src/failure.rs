//! How a command fails: one line on stderr that names the thing and what to do, and an exit code
//! for scripts.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use moteseal_api::{ErrorKind, NamedError};

use crate::diagnostic::diagnostic;

/// The exit codes of every command; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A defect of the program, or the machine failed (disk full, no permission).
    Internal = 1,
    /// The command line or an input file is wrong.
    Usage = 2,
    /// A proof was rejected.
    Refused = 3,
    /// What was requested is not completely available.
    Incomplete = 4,
    /// An audit has a finding.
    Finding = 5,
    /// A service does not respond.
    Unreachable = 6,
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::Incomplete => Self::Incomplete,
            ErrorKind::Unreachable => Self::Unreachable,
            _ => Self::Internal,
        }
    }
}

/// Why a command stopped: a message and an exit code.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// The command line or an input file is wrong.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A proof was rejected.
    pub fn refused(message: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// The program or the machine failed.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// A file that could not be read or written. [`Exit::Usage`] if it does not exist, exists
    /// already or is a directory; [`Exit::Internal`] otherwise.
    pub fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory => Exit::Usage,
            _ => Exit::Internal,
        };
        Self::new(exit, format_args!("cannot {action} {}: {error}", path.display()))
    }

    /// The same failure, with the file that it concerns.
    #[must_use]
    pub fn about(self, path: &Path) -> Self {
        Self { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    /// The same failure, with the configuration file and the key that it concerns.
    #[must_use]
    pub fn about_key(self, file: &Path, key: &str) -> Self {
        Self { message: format!("{}: {key}: {}", file.display(), self.message), ..self }
    }

    /// Prints `{program}: {message}` on stderr and returns the exit code.
    pub fn report(&self, program: &str) -> ExitCode {
        diagnostic(format_args!("{program}: {}", self.message));
        ExitCode::from(self.exit as u8)
    }
}

impl<E: NamedError> From<E> for Failure {
    /// `Name: sentence`, with the exit code of the error's kind.
    fn from(error: E) -> Self {
        Self::new(error.kind().into(), error.named())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
