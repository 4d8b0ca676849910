//! Transport of bytes: the HTTP client of the [`moteseal_api`] contract, and the links between
//! devices, gateways and queriers.
//!
//! This crate is for programs that connect to a cloud, or that run a device, a gateway or a
//! querier. It transports bytes and does not interpret them.
//!
//! - [`link`] defines the link between one parent (a coordinator, an aggregator or a querier) and
//!   its children. [`in_memory`] implements it within a process, [`mqtt`] over a broker, [`coap`]
//!   from host to host, [`any`] by the scheme of an address.
//! - [`broadcast`] is for media on which every participant receives every frame.
//! - [`health`] serves the health of a node, and of the nodes below a gateway, over CoAP.
//! - [`replica`] finds and fetches what a cloud stores, for other clouds and for backups.
//! - [`serial`] connects one mote to its gateway.
//! - `dtls` encrypts and authenticates datagrams (DTLS 1.2), without sockets and without a clock.
//! - A [`Client`] connects to one cloud. If the cloud is busy, the client waits and repeats the
//!   request. It does not follow redirects, because an untrusted cloud could use them to obtain the
//!   token for another server. Its errors state the address that failed, the cause, and what to do.
//!
//! # Example
//! Two ends of a link within this process:
//!
//! ```
//! use bytes::Bytes;
//! use moteseal_net::in_memory::{Faults, Network};
//! use moteseal_net::{ChildLink as _, Down, ParentLink as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), moteseal_net::LinkError> {
//! let network = Network::new(0, Faults::default());
//! let (parent, mut child) = (network.parent(), network.child(*b"device-1"));
//!
//! child.send(Bytes::from_static(b"events")).await?;
//! let up = parent.receive().await?;
//! assert_eq!((&up.device, &up.frame[..]), (b"device-1", &b"events"[..]));
//!
//! parent.send(up.device, Bytes::from_static(b"acknowledged")).await?;
//! assert_eq!(child.receive().await?, Down::Frame(Bytes::from_static(b"acknowledged")));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod any;
pub mod broadcast;
mod child_inbox;
mod client;
pub mod coap;
mod credentials;
#[cfg(feature = "tls")]
pub mod dtls;
mod error;
mod fair;
mod file;
pub mod health;
pub mod in_memory;
pub mod link;
pub mod mqtt;
pub mod replica;
pub mod serial;
#[cfg(feature = "tls")]
mod tls;

pub use any::{AnyChild, AnyParent, ParentAddress};
pub use broadcast::{Broadcast, BroadcastLink};
pub use client::{Client, DeviceKey, Options, Response, Retry};
pub use credentials::{Credential, Identity, Login, Password, Token};
pub use error::{NetError, innermost};
pub use link::{ChildLink, Down, LinkError, ParentLink, Up};
pub use serial::SerialLine;
