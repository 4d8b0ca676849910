//! The errors of fetching and verifying data. [`Error::name()`] states what failed, and
//! [`Error::kind()`] tells the caller how to react.

use std::fmt;
use std::io;
use std::path::Path;

use moteseal_api::{ErrorKind, QueryError};
use moteseal_net::NetError;
use moteseal_verify::ReadError;

use crate::bundles::BundleFault;
use crate::pinned::RosterNotLater;
use crate::redact::{RedactError, SanitiseError};
use crate::rejection::{Rejected, Rejection};
use crate::urgent::UrgentRejected;

/// Why a request returned no verified rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query is invalid. Nothing was sent to the cloud.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The roster has no device with this name.
    #[error("the roster has no device {name:?}; it has {known}")]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The names of the roster's devices: the first eight in alphabetical order.
        known: String,
    },
    /// An audit was requested of a group without a budget.
    #[error(transparent)]
    NoBudget(#[from] NoBudget),
    /// The client has used a later version of the roster, or one that does not belong to the history
    /// of this one.
    #[error(transparent)]
    RosterNotLater(Box<RosterNotLater>),
    /// The cloud could not be reached, or it rejected the request.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The response was rejected, because it is not authentic, not complete or not what was
    /// requested.
    #[error(transparent)]
    Rejected(Box<Rejected>),
    /// An answer with urgent events was rejected.
    #[error(transparent)]
    Urgent(#[from] UrgentRejected),
    /// A file is not a bundle, or it cannot be read.
    #[error(transparent)]
    Bundle(Box<BundleFault>),
    /// Proofs cannot be redacted or merged as requested.
    #[error(transparent)]
    Redact(#[from] RedactError),
    /// A proof cannot be sanitised.
    #[error(transparent)]
    Sanitise(#[from] SanitiseError),
    /// The verified rows, the proof or the pinned seals could not be written or read.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Error {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Query(error) => error.name(),
            Self::UnknownDevice { .. } => "UnknownDevice",
            Self::NoBudget(error) => error.name(),
            Self::RosterNotLater(error) => error.name(),
            Self::Net(error) => error.name(),
            Self::Rejected(rejected) => rejected.name(),
            Self::Urgent(error) => error.name(),
            Self::Bundle(fault) => fault.name(),
            Self::Redact(error) => error.name(),
            Self::Sanitise(error) => error.name(),
            Self::Output(error) => error.name(),
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Query(_)
            | Self::UnknownDevice { .. }
            | Self::NoBudget(_)
            | Self::RosterNotLater(_) => ErrorKind::Usage,
            Self::Net(error) => net_kind(error),
            Self::Rejected(rejected) => rejected.kind(),
            Self::Urgent(error) => error.kind(),
            Self::Bundle(fault) => fault.kind(),
            Self::Redact(error) => error.kind(),
            Self::Sanitise(error) => error.kind(),
            Self::Output(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(Error, OutputError);

/// Returns the kind of a network error.
fn net_kind(error: &NetError) -> ErrorKind {
    match error {
        error if error.is_no_cloud() => ErrorKind::Unreachable,
        // The cloud would accept a different query or token.
        NetError::Refused { status: 400 | 401 | 403 | 422, .. } => ErrorKind::Usage,
        NetError::Refused { .. } => ErrorKind::Incomplete,
        _ => ErrorKind::Usage,
    }
}

impl From<RosterNotLater> for Error {
    fn from(error: RosterNotLater) -> Self {
        Self::RosterNotLater(Box::new(error))
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Rejected(rejection) => rejection.into(),
            Stop::Output(error) => Self::Output(error),
        }
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(Box::new(rejection.into()))
    }
}

impl From<BundleFault> for Error {
    fn from(fault: BundleFault) -> Self {
        Self::Bundle(Box::new(fault))
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Rejection::from(error).into()
    }
}

/// The roster has no budget, so there is no coordinator to audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the roster has no budget, so no coordinator decides what is kept; `moteseal get` proves \
     completeness"
)]
pub struct NoBudget;

impl NoBudget {
    /// Returns the stable name of the error, `NoBudget`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "NoBudget"
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(NoBudget);

/// Why a [`Session`](crate::Session) stopped.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The response is rejected.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The sink failed.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Rejected(error.into())
    }
}

/// Why rows could not be written, or a file of this crate could not be read. The message names the
/// file and states what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct OutputError {
    name: &'static str,
    message: String,
    is_misuse: bool,
}

/// The name of an error about an output.
const OUTPUT_FAILED: &str = "OutputFailed";

impl OutputError {
    const fn internal(message: String) -> Self {
        Self { name: OUTPUT_FAILED, message, is_misuse: false }
    }

    /// Creates the error `ColumnEncrypted`: a value of a column is needed that is not readable.
    pub(crate) fn column_encrypted(text: impl fmt::Display) -> Self {
        Self { name: "ColumnEncrypted", ..Self::unfit(text) }
    }

    /// Creates the error `ColumnHidden`: a value of a column is needed that is not in the data.
    pub(crate) fn column_hidden(text: impl fmt::Display) -> Self {
        Self { name: "ColumnHidden", ..Self::unfit(text) }
    }

    /// Creates the error `NotUniform`: an estimate needs a uniform sample.
    pub(crate) fn not_uniform(text: impl fmt::Display) -> Self {
        Self { name: "NotUniform", ..Self::unfit(text) }
    }

    /// Creates the error for an operating system error about a file.
    pub(crate) fn new(path: &Path, error: &io::Error) -> Self {
        // If `error` already contains an `OutputError`, that error names its file.
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return inner.clone();
        }
        Self::missing_folder(path, error).unwrap_or_else(|| Self::because(path, &cause(error)))
    }

    /// Creates the error for a file with unexpected content.
    pub(crate) fn because(path: &Path, what: &str) -> Self {
        Self::internal(format!("cannot use {}: {what}", path.display()))
    }

    /// Creates the error for a path that the caller must change.
    pub(crate) fn misused(path: &Path, what: &str) -> Self {
        Self { is_misuse: true, ..Self::because(path, what) }
    }

    /// Creates the error for a missing parent folder, if `error` was caused by one.
    fn missing_folder(path: &Path, error: &io::Error) -> Option<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let text = match error.kind() {
            io::ErrorKind::NotFound if !folder.exists() => {
                format!("there is no folder {}; make it first", folder.display())
            }
            io::ErrorKind::NotADirectory => format!("{} is not a folder", folder.display()),
            _ => return None,
        };
        Some(Self::misused(path, &text))
    }

    /// Creates the error for a temporary file that could not be created or read back.
    pub(crate) fn temporary(error: &io::Error) -> Self {
        let folder = std::env::temp_dir();
        let message = format!(
            "cannot use a temporary file in {}: {}; set TMPDIR to use another folder",
            folder.display(),
            cause(error)
        );
        Self::internal(message)
    }

    /// Creates the error for rows that cannot be written as requested. `text` states what to do.
    pub(crate) fn unfit(text: impl fmt::Display) -> Self {
        Self { name: OUTPUT_FAILED, message: text.to_string(), is_misuse: true }
    }

    /// Creates the error for an interrupted caller. A sink returns it to end the session, because
    /// the caller no longer needs the rows.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::unfit("interrupted by the caller")
    }

    /// Creates the error for rows that could not be encoded. It does not name a file.
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self::internal(format!("cannot write the rows: {error}"))
    }

    /// Returns the stable name of the error: `ColumnEncrypted` if a column is needed that is not
    /// readable, `ColumnHidden` if one is needed that is not in the data, `NotUniform` if an estimate is made of readings that are not a uniform sample, and
    /// `OutputFailed` otherwise.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns [`Usage`](ErrorKind::Usage) if other arguments would succeed (a missing folder, rows
    /// that do not fit the format), and [`Internal`](ErrorKind::Internal) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        if self.is_misuse { ErrorKind::Usage } else { ErrorKind::Internal }
    }
}

/// Describes an operating system error and, if possible, what to do about it.
fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            "the disk is full; make room, or name a file on another one".to_owned()
        }
        io::ErrorKind::QuotaExceeded => {
            "your disk quota is used up; make room, or name a file on another disk".to_owned()
        }
        io::ErrorKind::FileTooLarge => {
            "it would exceed the file size limit (ulimit -f); ask for less, or raise the limit"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; name a file in a folder that you may write to".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only; name a file on another one".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_file_names_the_file_and_the_remedy() {
        for (kind, remedy) in [
            (io::ErrorKind::StorageFull, "make room"),
            (io::ErrorKind::QuotaExceeded, "make room"),
            (io::ErrorKind::FileTooLarge, "ulimit -f"),
            (io::ErrorKind::PermissionDenied, "you may write to"),
            (io::ErrorKind::ReadOnlyFilesystem, "on another one"),
        ] {
            let error = OutputError::new(Path::new("rows.csv"), &kind.into());
            let text = error.to_string();
            assert!(text.contains("rows.csv") && text.contains(remedy), "{text}");
            assert_eq!((error.name(), error.kind()), ("OutputFailed", ErrorKind::Internal));
            // The error survives the way through a writer.
            let wrapped = OutputError::new(Path::new("other"), &io::Error::other(error));
            assert_eq!(wrapped.to_string(), text);
            let temporary = OutputError::temporary(&kind.into()).to_string();
            assert!(temporary.contains("TMPDIR") && temporary.contains(remedy), "{temporary}");
        }
        let missing = OutputError::new(Path::new("none/rows.csv"), &io::ErrorKind::NotFound.into());
        assert_eq!(missing.kind(), ErrorKind::Usage);
        assert!(missing.to_string().contains("there is no folder none"), "{missing}");
        let file = OutputError::new(Path::new("a/rows.csv"), &io::ErrorKind::NotADirectory.into());
        assert!(file.to_string().contains("a is not a folder"), "{file}");
    }

    #[test]
    fn an_error_of_the_caller_is_a_usage_error() {
        assert_eq!(OutputError::interrupted().kind(), ErrorKind::Usage);
        assert_eq!(OutputError::unfit("the column is missing").kind(), ErrorKind::Usage);
        let encoding = OutputError::of("the disk");
        assert_eq!(encoding.to_string(), "cannot write the rows: the disk");
        let error = Error::from(encoding);
        assert_eq!((error.name(), error.kind()), ("OutputFailed", ErrorKind::Internal));
        let unknown = Error::UnknownDevice { name: "attic".to_owned(), known: String::new() };
        assert_eq!((unknown.name(), unknown.kind()), ("UnknownDevice", ErrorKind::Usage));
    }
}
