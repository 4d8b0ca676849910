//! What a caller decides by when an operation of a host crate fails.

use std::fmt;

use moteseal_core::error::Named;

/// The kind of an error: what its caller does next.
///
/// Every error type of a host crate that reaches a user has `name()`, the stable name of
/// `spec/errors.md`, which identifies the cause, and `kind()`, which says how to react. A command
/// maps each kind to one exit code; a library caller matches on it.
///
/// ```
/// use moteseal_api::{ErrorKind, Query};
///
/// let error = Query::from_json(b"{}").unwrap_err();
/// assert_eq!((error.name(), error.kind()), ("BadQuery", ErrorKind::Usage));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments, a file or the configuration are wrong: correct them and call again.
    Usage,
    /// A cryptographic or protocol check failed: reject the data and do not use it.
    Refused,
    /// All that arrived is authentic, but a part of what was requested is missing.
    Incomplete,
    /// A peer or service did not respond, or is overloaded: retry later.
    Unreachable,
    /// The machine failed (disk full, no permission), or the program has a defect.
    Internal,
}

impl ErrorKind {
    /// The kind in lower case: `usage`, `refused`, `incomplete`, `unreachable` or `internal`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Incomplete => "incomplete",
            Self::Unreachable => "unreachable",
            Self::Internal => "internal",
        }
    }
}

/// An error with a stable name (`spec/errors.md`), a sentence and a kind.
///
/// `Display` writes the sentence alone: what happened, to which thing, and what to do. Programs
/// decide by [`kind`](Self::kind) and tell errors apart by [`name`](Self::name).
pub trait NamedError: std::error::Error {
    /// The stable name of the error.
    fn name(&self) -> &str;

    /// What the caller does next.
    fn kind(&self) -> ErrorKind;

    /// The error with its name, displayed as `Name: sentence`.
    fn named(&self) -> Named<'_, &Self>
    where
        Self: Sized,
    {
        Named { name: self.name(), error: self }
    }
}

/// Implements [`NamedError`] for types that have the methods `name()` and `kind()`.
#[macro_export]
macro_rules! named_error {
    ($($error:ty),+ $(,)?) => {
        $(
            impl $crate::NamedError for $error {
                fn name(&self) -> &str {
                    <$error>::name(self)
                }

                fn kind(&self) -> $crate::ErrorKind {
                    <$error>::kind(self)
                }
            }
        )+
    };
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
