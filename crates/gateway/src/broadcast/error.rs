//! Why a broadcast is not sent, or not to its end.

use std::fmt;
use std::io;

use moteseal_broadcast::DraftError;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_core::identity::IssueError;
use moteseal_net::LinkError;

/// Why something was not said, or not to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// It cannot be said.
    Draft(DraftError),
    /// The head was not signed.
    Issue(IssueError),
    /// Receivers would refuse it.
    Refused(RefusedBroadcast),
    /// A message is no longer what was signed. The chain ends here: what was said before is what it
    /// was.
    ContentChanged {
        /// Its number in the chain, from 0; `None` where the file as a whole is another one.
        message: Option<u32>,
    },
    /// A message cannot be read.
    Read(io::Error),
    /// The link does not carry.
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
                "{}: message {message} is not what was signed; the chain ends here, nobody takes the rest of it: send it anew, and leave it \
                 alone until it is sent",
                self.name()
            ),
            Self::ContentChanged { message: None } => {
                write!(
                    f,
                    "{}: the file was written to meanwhile; send it anew, and leave it alone until it is sent",
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
