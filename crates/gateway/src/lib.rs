//! The edge of a group: takes events from devices, keeps a sample within the budget, and hands on what it kept with proof.
//!
//! DESIGN section 6; section V of the paper. Nobody has to trust it: what it kept follows from what the devices sign, and anyone
//! can check that ([`moteseal_seal::sample::audit`]). What decides is sans-IO: [`GroupCoordinator`] takes frames and gives frames.

#![forbid(unsafe_code)]

pub mod broadcast;
mod clock;
pub mod coordinator;
mod error;
mod group_time;
mod ledger;
mod metrics;
pub mod outbox;
mod pruned;
pub mod queues;
mod quota;
pub mod serial;
pub mod service;
pub mod station;
pub mod sum;
mod uplink;

use std::net::SocketAddr;

use moteseal_service::Monitor;

pub use coordinator::{Ended, GroupCoordinator, News, Refused};
pub use error::ServiceError;
pub use outbox::Outbox;
pub use queues::Queues;
pub use service::{Gateway, Settings, Time};
pub use station::{Station, StationError};

/// The operator's pages on `address`; without an address there are none.
async fn monitor(address: Option<SocketAddr>) -> Result<Option<Monitor>, ServiceError> {
    let Some(address) = address else { return Ok(None) };
    Ok(Some(Monitor::bind(address).await?))
}
