//! The failure of a command: one line on stderr that states what failed and what to do, and an exit
//! code for scripts. With `--json` also an object on stdout.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use moteseal_api::{ErrorKind, Named, NamedError};
use serde_json::{Value, json};

use crate::diagnostic::diagnostic;
use crate::output::{Stdout, is_json};

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

impl Exit {
    /// The name of a failure that is not a named error of a library.
    const fn name(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::Usage => "Usage",
            Self::Refused => "Refused",
            Self::Incomplete => "Incomplete",
            Self::Finding => "Finding",
            Self::Unreachable => "Unreachable",
        }
    }
}

/// Why a command stopped: a message and an exit code.
///
/// The message has the form `subject: Name: what failed; what to do`. The subject, the name and
/// what to do may be absent.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// The file, key or device that the failure is about.
    subject: Option<String>,
    /// The stable name of the error.
    name: Option<String>,
    text: String,
}

impl Failure {
    /// Creates a failure with this exit code.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, subject: None, name: None, text: message.to_string() }
    }

    /// Creates the failure for a named error, with this exit code instead of that of its kind.
    pub fn named(exit: Exit, error: Named<'_, impl fmt::Display>) -> Self {
        Self { name: Some(error.name.to_owned()), ..Self::new(exit, error.error) }
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

    /// Adds a subject: the file that caused the failure.
    #[must_use]
    pub fn about(self, path: &Path) -> Self {
        self.of(path.display())
    }

    /// Adds a subject: the configuration file and its wrong key.
    #[must_use]
    pub fn about_key(self, file: &Path, key: &str) -> Self {
        self.of(format_args!("{}: {key}", file.display()))
    }

    /// Adds a subject. A subject that the failure has already is part of this one.
    #[must_use]
    pub fn of(self, subject: impl fmt::Display) -> Self {
        let subject = match &self.subject {
            Some(inner) => format!("{subject}: {inner}"),
            None => subject.to_string(),
        };
        Self { subject: Some(subject), ..self }
    }

    /// Gives the failure the name of an error.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Returns the stable name of the error, if the failure is a named error.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the exit code.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// Replaces the exit code.
    #[must_use]
    pub fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Adds text to the end of the message.
    pub fn add(&mut self, more: impl fmt::Display) {
        self.text += &more.to_string();
    }

    /// Adds text to the end of the message.
    #[must_use]
    pub fn with(mut self, more: impl fmt::Display) -> Self {
        self.add(more);
        self
    }

    /// Returns the failure as a JSON object with the members `name`, `subject`, `message`, `remedy`
    /// and `exit`. `subject` and `remedy` may be null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (message, remedy) = match self.text.split_once("; ") {
            Some((message, remedy)) => (message, Some(remedy)),
            None => (self.text.as_str(), None),
        };
        json!({
            "name": self.name.as_deref().unwrap_or(self.exit.name()),
            "subject": self.subject,
            "message": message,
            "remedy": remedy,
            "exit": self.exit as u8,
        })
    }

    /// Prints the failure as a line of JSON on stdout, an object with the member `error`.
    ///
    /// # Errors
    ///
    /// Fails if stdout cannot be written.
    pub fn print_json(&self) -> Result<(), Self> {
        Stdout::lock().line(json!({ "error": self.to_json() }))
    }

    /// Prints `{program}: {message}` on stderr and, with `--json`, an object with the member `error`
    /// on stdout. Returns the exit code.
    pub fn report(&self, program: &str) -> ExitCode {
        if is_json() {
            // If stdout cannot be written either, the line on stderr still tells the user.
            let _ = self.print_json();
        }
        diagnostic(format_args!("{program}: {self}"));
        ExitCode::from(self.exit as u8)
    }
}

impl<E: NamedError> From<E> for Failure {
    /// Converts an error to a failure with the message `Name: message` and the exit code of the
    /// error's kind.
    fn from(error: E) -> Self {
        Self::named(error.kind().into(), error.named())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.subject, &self.name].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_the_parts_of_the_message() {
        let failure = Failure::usage("the file is empty; name another one")
            .about_key(Path::new("gw.toml"), "roster");
        assert_eq!(failure.to_string(), "gw.toml: roster: the file is empty; name another one");
        assert_eq!(
            failure.to_json(),
            json!({
                "name": "Usage",
                "subject": "gw.toml: roster",
                "message": "the file is empty",
                "remedy": "name another one",
                "exit": 2,
            })
        );
    }
}
