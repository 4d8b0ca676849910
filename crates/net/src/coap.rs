//! CoAP (RFC 7252) with transfers in blocks (RFC 7959), observers (RFC 7641) and No-Response (RFC
//! 7967).
//!
//! [`Endpoint`] is the protocol without I/O, client and server at once: datagrams and the time are
//! arguments, and datagrams and events are results.

mod blocks;
pub mod config;
pub mod endpoint;
pub mod exchange;
pub mod message;
mod peer;
mod transfer;

pub use config::{Config, Limits, Owner, Peer, Transmission};
pub use endpoint::{Counters, Endpoint, Event, Output};
pub use exchange::{ExchangeId, Request, RequestError, RequestId, Response};
pub use message::{Code, Format, MAX_MESSAGE};
