//! Errors that stop a gateway service: the coordinator, the aggregator, or the service for serial
//! lines.

use moteseal_api::ErrorKind;
use moteseal_net::LinkError;
use moteseal_service::ListenError;

use crate::station::StationError;

/// Why a gateway cannot start, or why it stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The HTTP pages for the operator (metrics and health) cannot be served.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The station's thread cannot be started, or failed.
    #[error("the station's thread failed: {0}")]
    Thread(std::io::Error),
    /// The station cannot continue.
    #[error(transparent)]
    Station(StationError),
    /// A link was refused or closed, or its address is invalid.
    #[error(transparent)]
    Link(LinkError),
}

impl ServiceError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Listen(error) => error.name(),
            Self::Thread(_) => "Failed",
            Self::Station(error) => error.name(),
            Self::Link(error) => error.name(),
        }
    }

    /// Returns the error's kind: [`Usage`](ErrorKind::Usage) if the service cannot listen on the
    /// address.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen(_) => ErrorKind::Usage,
            Self::Thread(_) => ErrorKind::Internal,
            Self::Station(error) => error.kind(),
            Self::Link(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(ServiceError);
