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
pub mod line;
