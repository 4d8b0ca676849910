//! Why a broadcast could not be sent completely.

use std::fmt;
use std::io;

use moteseal_broadcast::DraftError;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_core::identity::IssueError;
use moteseal_net::LinkError;

/// Why a chain could not be sent completely.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The chain is invalid.
    Draft(DraftError),
    /// Signing the head failed.
    Issue(IssueError),
    /// Receivers would reject it.
    Refused(RefusedBroadcast),
    /// A message differs from the one that was signed. The chain ends here; the messages that were
    /// sent before are valid.
    ContentChanged {
        /// Its number in the chain, from 0; `None` if the whole file was replaced or modified.
        message: Option<u32>,
    },
    /// A message cannot be read.
    Read(io::Error),
    /// The link failed.
    Link(LinkError),
}

impl SendError {
    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Draft(error) => error.name(),
            Self::Issue(_) => "NotSigned",
            Self::Refused(refused) => refused.name(),
            Self::ContentChanged { .. } => "ContentChanged",
            Self::Read(_) => "Unreadable",
            Self::Link(error) => error.name(),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draft(error) => error.named().fmt(f),
            Self::Issue(error) => write!(f, "{}: {error}", self.name()),
            Self::Refused(refused) => refused.named().fmt(f),
            Self::ContentChanged { message: Some(message) } => write!(
                f,
                "{}: message {message} has changed since it was signed; the chain ends here. Send the file again, and do not modify it \
                 until it is sent",
                self.name()
            ),
            Self::ContentChanged { message: None } => {
                write!(
                    f,
                    "{}: the file was modified meanwhile; send it again, and do not modify it until it is sent",
                    self.name()
                )
            }
            Self::Read(error) => write!(f, "{}: {error}", self.name()),
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

impl From<LinkError> for SendError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}
