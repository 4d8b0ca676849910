//! CoAP (RFC 7252) with transfers in blocks (RFC 7959), observers (RFC 7641) and No-Response (RFC
//! 7967).
//!
//! [`Endpoint`] is the protocol without I/O, client and server at once: datagrams and the time are
//! arguments, and datagrams and events are results. A [`Socket`](socket::Socket) drives it, with or
//! without DTLS. [`CoapChild`] and [`CoapParent`] are the ends of a [link](crate::link).

mod address;
mod blocks;
pub mod config;
mod connect;
pub mod endpoint;
pub mod exchange;
mod link;
pub mod links;
pub mod message;
mod peer;
mod places;
pub mod socket;
mod transfer;

pub use address::Address;
pub use config::{Config, Limits, Owner, Peer, Proven, Transmission};
pub use connect::first_responding;
pub use endpoint::{Counters, Endpoint, Event, Output};
pub use exchange::{ExchangeId, Request, RequestError, RequestId, Response};
#[cfg(feature = "tls")]
pub use link::Credentials;
pub use link::{ChildOptions, CoapChild, CoapParent, Resources};
pub use message::{Code, Format};
pub(crate) use places::At;
pub use socket::{Handle, Observation, Security, Service, Socket, SocketCounters, To, refused_by};
