//! Errors that stop a gateway service: the coordinator's, the aggregator's, or that of serial
//! lines.

use std::fmt;

use moteseal_net::LinkError;
use moteseal_service::ListenError;

use crate::station::StationError;

/// Why a gateway cannot start, or why it stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The HTTP pages for the operator (metrics and health) cannot be served.
    Listen(ListenError),
    /// The station's thread cannot be started, or failed.
    Thread(std::io::Error),
    /// The station cannot continue.
    Station(StationError),
    /// A link was refused or closed, or its address is invalid.
    Link(LinkError),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the station's thread failed: {error}"),
            Self::Station(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServiceError {}

impl From<ListenError> for ServiceError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}
