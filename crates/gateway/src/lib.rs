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
mod watch;

pub use coordinator::{Ended, GroupCoordinator, News, Refused};
pub use error::ServiceError;
pub use outbox::Outbox;
pub use queues::Queues;
pub use service::{Gateway, Settings, Time};
pub use station::{Station, StationError};
