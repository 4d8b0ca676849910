//! Links between the rooms: the HTTP client of the [`moteseal_api`] contract, and the links between devices and their parent.
//!
//! [`link`] is what a link between devices and parent promises; [`memory`] carries within a process, [`mqtt`] over a broker.
//! [`broadcast`] is for media on which everybody hears everybody. [`serial`] carries all of that to one mote. None of them knows what the
//! bytes mean.
//!
//! A [`Client`] speaks to one cloud. It waits and tries again where the cloud asks it to, follows no redirects (an untrusted
//! cloud must not send a token elsewhere), and its errors say which address failed, how, and what to do.

#![forbid(unsafe_code)]

pub mod broadcast;
mod client;
mod error;
mod fair;
mod file;
pub mod in_memory;
pub mod link;
pub mod mqtt;
pub mod serial;
#[cfg(feature = "tls")]
mod tls;

pub use broadcast::{Broadcast, BroadcastLink};
pub use client::{Client, Options, Response, Retry, Token};
pub use error::NetError;
pub use link::{ChildLink, Down, LinkError, ParentLink, Up};
pub use serial::SerialLine;
