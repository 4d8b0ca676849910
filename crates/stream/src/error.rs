//! Why a stream cannot be used.

use moteseal_api::ErrorKind;

/// Why a stream cannot be used. Each message is one line that states what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A setting is wrong.
    #[error("{0}")]
    BadSetting(String),
    /// No server answers, or the servers do not answer in time.
    #[error("{servers}: {what}; check that the servers run and the URLs are right")]
    Unreachable {
        /// The servers, without credentials.
        servers: String,
        /// What happened.
        what: String,
    },
    /// A server's certificate was rejected, or the server does not use TLS.
    #[error("the connection to {servers} is not secure ({what}); {remedy}")]
    Tls {
        /// The servers, without credentials.
        servers: String,
        /// What happened.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The servers reject the credentials, or the user lacks a permission.
    #[error(
        "the NATS servers refuse it ({what}); use other credentials, or give this user the permission \
         (docs/scale.md lists what each role needs)"
    )]
    NotPermitted {
        /// The refusal of the server.
        what: String,
    },
    /// The servers, or the user's account, have no JetStream.
    #[error(
        "JetStream is not enabled on {servers} for this account; add `jetstream {{ store_dir: ..., \
         sync_interval: always }}` to the servers' configuration, or enable it for the account"
    )]
    NoJetStream {
        /// The servers, without credentials.
        servers: String,
    },
    /// A stream or its consumer does not exist.
    #[error("there is no {what}; create it with `moteseal stream init`")]
    StreamMissing {
        /// The stream or consumer.
        what: String,
    },
    /// A stream or its consumer has another configuration.
    #[error("{of}: {setting} is {found}, but must be {expected}; {remedy}")]
    StreamMismatch {
        /// The stream or consumer.
        of: String,
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The value that it must have.
        expected: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A server acknowledges messages before they are on disk, or it is not known whether it does.
    #[error("{server}: {what}")]
    NotSynced {
        /// The server's monitoring endpoint, or the names of servers.
        server: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The servers answered with an error.
    #[error("the NATS servers answered: {what}")]
    StreamFailed {
        /// The answer.
        what: String,
    },
}

impl StreamError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BadSetting(_) => "Usage",
            Self::Unreachable { .. } => "Unreachable",
            Self::Tls { .. } => "StreamTls",
            Self::NotPermitted { .. } => "NotPermitted",
            Self::NoJetStream { .. } => "NoJetStream",
            Self::StreamMissing { .. } => "StreamMissing",
            Self::StreamMismatch { .. } => "StreamMismatch",
            Self::NotSynced { .. } => "NotSynced",
            Self::StreamFailed { .. } => "StreamFailed",
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::StreamFailed { .. } => ErrorKind::Unreachable,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(StreamError);
