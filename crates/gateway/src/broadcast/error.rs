//! The reasons for which a broadcast could not be sent completely.

use std::io;

use moteseal_api::ErrorKind;
use moteseal_broadcast::DraftError;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_core::identity::IssueError;
use moteseal_net::LinkError;

use super::content::ContentError;

/// Why a chain could not be sent completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The chain is invalid.
    #[error("{0}")]
    Draft(DraftError),
    /// Signing the head failed.
    #[error("{0}")]
    Issue(IssueError),
    /// Receivers would reject the broadcast.
    #[error("{0}")]
    Refused(RefusedBroadcast),
    /// A message differs from the message that was signed. The chain ends before it; the messages
    /// that were sent earlier are valid.
    #[error("{}; send it again, and do not change it until it is sent", changed(*.message))]
    ContentChanged {
        /// The number of the message in the chain, from 0. `None` if the file as a whole was
        /// modified or replaced.
        message: Option<u32>,
    },
    /// The content cannot be sent to the addressed receivers.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// A message cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl SendError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Draft(error) => error.name(),
            Self::Issue(_) => "NotSigned",
            Self::Refused(refused) => refused.name(),
            Self::ContentChanged { .. } => "ContentChanged",
            Self::Content(error) => error.name(),
            Self::Read(_) => "Unreadable",
            Self::Link(error) => error.name(),
        }
    }

    /// Returns the error's kind: the kind of the link's error, [`Usage`](ErrorKind::Usage) for a
    /// broadcast that no receiver would accept, [`Refused`](ErrorKind::Refused) for content that
    /// has changed, and [`Internal`](ErrorKind::Internal) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Link(error) => error.kind(),
            Self::Content(error) => error.kind(),
            Self::Draft(_) => ErrorKind::Usage,
            Self::Refused(_) | Self::ContentChanged { .. } => ErrorKind::Refused,
            Self::Issue(_) | Self::Read(_) => ErrorKind::Internal,
        }
    }
}

fn changed(message: Option<u32>) -> String {
    match message {
        Some(message) => {
            format!("message {message} has changed since it was signed; the chain ends before it")
        }
        None => "the file changed while it was being sent".to_owned(),
    }
}

moteseal_api::named_error!(SendError);
