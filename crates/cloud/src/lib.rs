//! The untrusted store as a service: HTTP over an [`EpochStore`](moteseal_store::EpochStore).
//!
//! This crate is for operators, and for tests that need a cloud in their own process. The cloud
//! verifies an upload, makes it durable and then acknowledges it. It responds to a query with
//! exactly the events that the query determines, and their proof. Clients verify every response, so
//! they do not have to trust the cloud. The cloud verifies uploads so that only devices of the
//! group can fill its store.
//!
//! [`Cloud::bind`] needs a [`Config`] and a store. [`Cloud::run`] serves until the given future
//! completes. [`Response`] produces the items of a response without HTTP.
//!
//! ```
//! use std::sync::Arc;
//!
//! use moteseal_cloud::{Cloud, Config};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_store::{Options, RedbStore};
//! use moteseal_verify::Roster;
//! use moteseal_verify::issue::FirstRoster;
//! use tokio::sync::oneshot;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let device = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//! let devices = [("dev1", device.public())];
//! let first =
//!     FirstRoster { group: "home", epoch_ms: 60_000, levels: 8, budget: None, devices: &devices };
//! let roster = Roster::open(&first.issue(&operator)?, &operator.public())?;
//!
//! let directory = tempfile::tempdir()?;
//! let store = RedbStore::open(&directory.path().join("epochs.redb"), Options::default())?;
//! let cloud = Cloud::bind(Config::new(roster), Arc::new(store)).await?;
//! let url = cloud.url();
//! let (stop, stopped) = oneshot::channel::<()>();
//! let running = tokio::spawn(cloud.run(async { drop(stopped.await) }));
//!
//! assert_eq!(reqwest::get(format!("{url}/healthz")).await?.text().await?, "alive\n");
//! drop(stop);
//! running.await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod access;
pub mod coap;
pub mod config;
pub mod conflicts;
mod credential_file;
pub mod follow;
mod handlers;
mod ingest;
pub mod limits;
mod metrics;
mod parameters;
pub mod password;
pub mod queue;
mod refusal;
mod request_body;
pub mod response;
pub mod rights;
mod router;
mod service;
mod state;
mod streaming;
mod summary;
mod throttle;
pub mod token;
mod turns;
pub mod users;
mod verified;

pub use config::Config;
pub use handlers::query::explained;
pub use limits::Limits;
pub use response::{PartOutput, Response, ResponseItem, Selected};
pub use router::OPENAPI;
pub use service::{Cloud, StartError};
