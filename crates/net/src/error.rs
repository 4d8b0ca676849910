//! The errors of requests to a cloud.

use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::record::DeviceId;

/// Why a request to a cloud failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address is invalid, or its scheme is neither `http` nor `https`.
    #[error("{url:?} is not the address of a cloud ({cause}); an example is http://127.0.0.1:8080")]
    BadAddress {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A file with certificates, a key, a token or a password cannot be used.
    #[error("{}: {cause}", .path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A token would be sent unencrypted to another machine.
    #[error("the token would be sent unencrypted to {url}; use https, or omit the token")]
    TokenInClear {
        /// The address.
        url: String,
    },
    /// A password would be sent unencrypted to another machine.
    #[error("the password would be sent unencrypted to {url}; use https, or omit the user")]
    PasswordInClear {
        /// The address.
        url: String,
    },
    /// The user's name is empty, or has a colon or a control character (RFC 7617, section 2).
    #[error("{user:?} is not the name of a user; use one without colons and control characters")]
    BadUser {
        /// The name.
        user: String,
    },
    /// The cloud did not respond: there is no route or no listener, no TLS version in common, or a
    /// timeout expired.
    #[error("{url}: {cause}; check that the cloud is running there and that the address is right")]
    Unreachable {
        /// The address.
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// The connection broke while the response was arriving.
    #[error("{url}: the response ended early ({cause}); no part of it was used, try again")]
    Interrupted {
        /// The address.
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// The cloud was busy at every attempt.
    #[error(
        "{url} responded {status} to {attempts} attempts; try again later, or ask for less; last cause: {detail}"
    )]
    Busy {
        /// The address.
        url: String,
        /// The last status code.
        status: u16,
        /// The number of attempts.
        attempts: u32,
        /// The name of the last problem, if the cloud gave one.
        problem: Option<String>,
        /// The last cause that the cloud gave.
        detail: String,
    },
    /// The cloud rejected the request and gave a reason (RFC 9457).
    #[error("{url} responded {status}: {detail}")]
    Refused {
        /// The address.
        url: String,
        /// The status code.
        status: u16,
        /// The problem's name, such as `UnknownDevice`. If there is none, the text of the status.
        name: String,
        /// What happened and what to do.
        detail: String,
        /// The device whose data the problem concerns, if the problem names one.
        device: Option<DeviceId>,
    },
    /// The service at the address does not follow the contract of a Moteseal cloud.
    #[error("{url}: {cause}; check that this is the address of a Moteseal cloud")]
    NotACloud {
        /// The address.
        url: String,
        /// What is unexpected about the response.
        cause: String,
    },
}

impl NetError {
    /// Returns the error's name (spec/errors.md). For a rejection, this is the name that the cloud
    /// reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::BadAddress { .. } => "BadAddress",
            Self::BadFile { .. } => "BadFile",
            Self::TokenInClear { .. } => "TokenInClear",
            Self::PasswordInClear { .. } => "PasswordInClear",
            Self::BadUser { .. } => "BadUser",
            Self::Unreachable { .. } => "Unreachable",
            Self::Interrupted { .. } => "Interrupted",
            Self::Busy { .. } => "Busy",
            Self::Refused { name, .. } => name,
            Self::NotACloud { .. } => "NotACloud",
        }
    }

    /// Returns the category by which an uploading program decides what to do next:
    /// [`Unreachable`](ErrorKind::Unreachable) if [`is_no_cloud`](Self::is_no_cloud),
    /// [`Refused`](ErrorKind::Refused) if the cloud rejects the data, and
    /// [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            error if error.is_no_cloud() => ErrorKind::Unreachable,
            Self::Refused { status: 400 | 409 | 422, .. } => ErrorKind::Refused,
            _ => ErrorKind::Usage,
        }
    }

    /// Returns whether there is no working cloud at the address: nothing responds, another service
    /// responds, or the cloud reports an internal error. Whether a retry may help is a different
    /// question; see [`is_unreachable`](Self::is_unreachable).
    #[must_use]
    pub fn is_no_cloud(&self) -> bool {
        match self {
            // Every cloud has the requested paths. The address therefore belongs to another
            // service, or contains a wrong path.
            Self::Refused { status: 404 | 405, name, .. } => {
                matches!(name.as_str(), "NotFound" | "MethodNotAllowed")
            }
            Self::Refused { status, .. } => *status >= 500,
            Self::NotACloud { .. } => true,
            _ => self.is_unreachable(),
        }
    }

    /// Returns whether the cloud could not be reached or the connection broke, so that a retry may
    /// help.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Interrupted { .. } | Self::Busy { .. })
    }
}

moteseal_api::named_error!(NetError);

/// The path of a file that cannot be used, and why.
pub(crate) struct BadFile {
    pub(crate) path: PathBuf,
    pub(crate) cause: String,
}

impl BadFile {
    pub(crate) fn new(path: &Path, cause: impl Into<String>) -> Self {
        Self { path: path.to_owned(), cause: cause.into() }
    }
}

impl From<BadFile> for NetError {
    fn from(BadFile { path, cause }: BadFile) -> Self {
        Self::BadFile { path, cause }
    }
}

/// Returns the innermost cause of an error. The outer errors add nothing that helps a user.
#[must_use]
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    match text.find(" (os error ") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}
