//! The edge of a group. A gateway receives events from devices, keeps a sample within the group's
//! budget, and uploads the sample to the cloud with its proof (docs/design.md, sampling; section V
//! of the paper).
//!
//! This crate is for gateway programs. Nobody needs to trust a gateway: the signed seals determine
//! which events it must keep, and [`moteseal_seal::sample::audit`] checks that it kept them.
//!
//! [`GroupCoordinator`] makes all decisions and does no I/O: it receives frames and returns frames.
//! [`Station`] adds storage on disk; [`Gateway`] adds links, a clock and an uplink. [`sum`]
//! aggregates private sums, [`broadcast`] sends authenticated broadcasts, and [`serial`] connects
//! motes on serial lines.
//!
//! # Example
//! A coordinator that answers a device over a link within this process:
//!
//! ```
//! use moteseal_core::link::{LinkKey, MAX_FRAME};
//! use moteseal_core::record::EpochNumber;
//! use moteseal_core::roster::Directory as _;
//! use moteseal_core::schema::Schema;
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_gateway::GroupCoordinator;
//! use moteseal_net::in_memory::{Faults, Network};
//! use moteseal_net::{ChildLink as _, Down, ParentLink as _};
//! use moteseal_seal::device_session::DeviceSession;
//! use moteseal_verify::Roster;
//! use moteseal_verify::issue::{Budget, FirstRoster};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = |seed| SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]);
//! let (operator, coordinator, device) = (key(1)?, key(2)?, key(3)?);
//! let budget = Some(Budget { events: 1000, coordinator: coordinator.public() });
//! let devices = [("sensor", device.public())];
//! let first = FirstRoster { group: "field", epoch_ms: 60_000, levels: 8, budget, devices: &devices };
//! let roster = Roster::open(&first.issue(&operator)?, &operator.public())?;
//! let id = roster.id("sensor").ok_or("no such device")?;
//!
//! let group_secret = [7; 32];
//! let secret = LinkKey::secret_of(&group_secret, roster.group(), id);
//! let mut coordinator = GroupCoordinator::new(roster, group_secret).ok_or("no budget")?;
//! let network = Network::new(0, Faults::default());
//! let (parent, mut child) = (network.parent(), network.child(id.0));
//!
//! // The first frames of a device's session are its challenge and its schema.
//! let challenge = 1 << 32; // Use a random number.
//! let mut session = DeviceSession::new(id, LinkKey::new(&secret), challenge);
//! let schema = (Schema::OPAQUE.as_bytes(), Schema::OPAQUE.digest());
//! let mut out = [0; MAX_FRAME];
//! for is_durable in [false, true] {
//!     let frame = session.next_frame::<1024>(schema, None, &mut [], &mut out);
//!     let frame = frame.map_err(|_| "no room")?.ok_or("no frame")?;
//!     child.send(frame.to_vec().into()).await?;
//!
//!     let up = parent.receive().await?;
//!     let news = coordinator.receive(&up.frame, EpochNumber(0))?;
//!     // Store a durable frame before it is acknowledged.
//!     assert_eq!(news.durable, is_durable);
//!     let reply = coordinator.acknowledgement(id).ok_or("an unknown device")?;
//!     parent.send(up.device, reply.into()).await?;
//!     let Down::Frame(reply) = child.receive().await? else { return Err("no reply".into()) };
//!     assert!(session.open_acknowledgement(&reply)?.is_some());
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod broadcast;
mod clock;
pub mod coordinator;
mod error;
mod group_time;
pub mod health;
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
mod trees;
mod uplink;
mod urgent;

use std::net::SocketAddr;

use moteseal_service::Monitor;

pub use coordinator::{
    Ended, EventRefused, FrameEffect, GroupCoordinator, Newest, Refused, Standing,
};
pub use error::ServiceError;
pub use health::GatewayHealth;
pub use outbox::Outbox;
pub use queues::Queues;
pub use service::{Gateway, Settings, Time};
pub use station::{Station, StationError};

/// Serves the operator's HTTP pages (metrics and health) on `address`, if an address is configured.
async fn monitor(address: Option<SocketAddr>) -> Result<Option<Monitor>, ServiceError> {
    let Some(address) = address else { return Ok(None) };
    Ok(Some(Monitor::bind(address).await?))
}
