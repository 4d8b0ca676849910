//! The untrusted store as a service: HTTP over an [`EpochStore`](moteseal_store::EpochStore).
//!
//! An upload is verified, made durable, and only then acknowledged. A query is answered with exactly the events that it forces,
//! and the proof. Nobody has to trust any of it: clients verify, and the service verifies only so that strangers cannot fill it.
//!
//! [`Cloud::bind`] takes a [`Config`] and a store, [`Cloud::run`] serves until it is told to stop, so that a command, a test and
//! a measurement start the same thing. [`Answer`] makes the items of an answer without any HTTP.

#![forbid(unsafe_code)]

pub mod answer;
mod body;
pub mod config;
mod connection;
pub mod limits;
mod listing;
mod manifest;
mod metrics;
mod query;
mod refusal;
mod router;
mod service;
mod share;
mod tls;
pub mod token;
mod upload;

pub use answer::{Answer, Output, PartOutput, Selected};
pub use config::{Config, TlsFiles};
pub use limits::Limits;
pub use query::explained;
pub use router::OPENAPI;
pub use service::{Cloud, StartError, stop_signal};
