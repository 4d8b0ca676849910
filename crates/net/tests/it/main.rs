//! Tests of links, broadcast media, the serial line, and the HTTP client.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast;
mod broker;
mod client;
#[cfg(feature = "tls")]
mod coap_link;
mod coap_lossy;
mod coap_places;
mod coap_rules;
#[cfg(feature = "tls")]
mod dtls;
mod health;
#[cfg(feature = "tls")]
mod hostile;
mod in_process;
mod mqtt;
mod peer;
mod serial;
mod subscriber;
