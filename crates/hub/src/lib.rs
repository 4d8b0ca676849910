//! The hub: sensors of other systems become devices of a group.
//!
//! A sensor that does not know the protocols of this project sends messages of its own, for example
//! JSON over MQTT. The hub turns each message into a row of the schema of one device and seals it
//! with the key of that device. The hub's signature states what the hub received: the columns are
//! marked as relayed, because the sensor itself proves nothing.
//!
//! A message is acknowledged to its sender only after its reading is durable ([`line`]).

#![forbid(unsafe_code)]

pub mod agents;
mod coap;
pub mod column_ids;
mod command;
mod http;
mod hub;
mod intake;
mod json;
pub mod line;
pub mod mapping;
mod mqtt;
mod udp;

pub use coap::Resource;
pub use command::Program;
pub use hub::{Broker, From, Hub, HubError, Settings, Source};
pub use mapping::Mapping;
