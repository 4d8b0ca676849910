//! The failure of a command: one line on stderr that states what failed and what to do, and an exit
//! code for scripts.

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
    /// The program has a bug, or the machine failed (disk full, no permission).
    Internal = 1,
    /// The command line or an input file is wrong.
    Usage = 2,
    /// A cryptographic or protocol check rejected the data.
    Refused = 3,
    /// A part of the requested data is not available.
    Incomplete = 4,
    /// The audit has at least one finding.
    Finding = 5,
    /// A service does not respond, or is overloaded.
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
    /// Creates a failure with this exit code.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// Creates the failure for a wrong command line or input file.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates the failure for data that a check rejected.
    pub fn refused(message: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// Creates the failure for a bug in the program or a failure of the machine.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// Creates the failure for a file that the command could not read or write. The exit code is
    /// [`Exit::Usage`] if the file does not exist, exists already or is a directory, and
    /// [`Exit::Internal`] otherwise.
    pub fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory => Exit::Usage,
            _ => Exit::Internal,
        };
        Self::new(exit, format_args!("cannot {action} {}: {error}", path.display()))
    }

    /// Puts the name of the file that caused the failure before the message.
    #[must_use]
    pub fn about(self, path: &Path) -> Self {
        Self { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    /// Puts the name of the configuration file and its wrong key before the message.
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
    /// Converts an error to a failure with the message `Name: message` and the exit code of the
    /// error's kind.
    fn from(error: E) -> Self {
        Self::new(error.kind().into(), error.named())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
