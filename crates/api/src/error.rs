//! How the host crates classify their errors: each error has a stable name, and a kind that tells
//! the caller how to react.

use std::fmt;

pub use moteseal_core::error::Named;

/// The kind of an error: how its caller should react.
///
/// Every error type of a host crate that reaches a user has two methods. `name()` returns the
/// stable name of `spec/errors.md`, which identifies the cause. `kind()` returns the kind, which
/// tells the caller how to react. A command maps each kind to one exit code; a library caller
/// matches on it.
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
    /// All data that arrived is authentic, but a part of the requested data is missing.
    Incomplete,
    /// A peer or service did not respond, or is overloaded: retry later.
    Unreachable,
    /// The machine failed (disk full, no permission), or the program has a bug.
    Internal,
}

impl ErrorKind {
    /// Returns the kind in lower case: `usage`, `refused`, `incomplete`, `unreachable` or
    /// `internal`.
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

/// An error with a stable name (`spec/errors.md`), a message and a kind.
///
/// `Display` writes only the message, which states what happened, to which thing, and what to do. A
/// program chooses its reaction by [`kind`](Self::kind) and identifies the error by
/// [`name`](Self::name).
pub trait NamedError: std::error::Error {
    /// Returns the stable name of the error.
    fn name(&self) -> &str;

    /// Returns the kind, which tells the caller how to react.
    fn kind(&self) -> ErrorKind;

    /// Returns a wrapper that displays the error with its name, as `Name: message`.
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

#[cfg(test)]
mod tests {
    use super::ErrorKind::{self, Incomplete, Internal, Refused, Unreachable, Usage};

    #[test]
    fn every_kind_is_written_as_its_name_in_lower_case() {
        for kind in [Usage, Refused, Incomplete, Unreachable, Internal] {
            let text: fn(ErrorKind) -> &'static str = ErrorKind::as_str;
            assert_eq!(text(kind), format!("{kind:?}").to_lowercase());
            assert_eq!(kind.to_string(), text(kind));
        }
    }
}
