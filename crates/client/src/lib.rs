//! The client: requests sealed readings from an untrusted cloud and verifies them.
//!
//! This crate is for programs that use sensor data, such as analysis scripts, dashboards and
//! archives. It needs a roster, the operator's public key and the address of a cloud. Verified rows
//! are authentic (signed by their device) and not chosen by the cloud. They are also complete: no
//! seal of the requested range is missing, or the report states which part may be missing.
//!
//! ```
//! use std::sync::Arc;
//!
//! use moteseal_client::Client;
//! use moteseal_client::output::{Format, RowOutput};
//! use moteseal_cloud::{Cloud, Config};
//! use moteseal_core::record::{EpochNumber, Scheme};
//! use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_device::push::Push;
//! use moteseal_device::{Chain, Profile, Sealer};
//! use moteseal_seal::level::SaltKey;
//! use moteseal_store::{Options, RedbStore};
//! use moteseal_verify::Roster;
//! use moteseal_verify::issue::FirstRoster;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let folder = directory.path();
//! // The operator signs a roster of one device.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//! let devices = [("dev1", key.public())];
//! let first =
//!     FirstRoster { group: "home", epoch_ms: 60_000, levels: 8, budget: None, devices: &devices };
//! let roster = Roster::open(&first.issue(&operator)?, &operator.public())?;
//!
//! // The device seals two readings of the epoch 0.
//! let mut buffer = [0; MAX_SCHEMA];
//! let schema = Schema::encode(&[Field::parse("celsius:Cel:i16/10")?], &mut buffer)?;
//! let profile = Profile::new(&roster, "dev1", Scheme::Star, &schema)?;
//! let chain = Chain::start(profile.certificate);
//! let mut sealer = Sealer::new(profile, key, SaltKey::new([3; 32]), chain);
//! sealer.push(EpochNumber(0), &215_i16.to_be_bytes())?;
//! sealer.push(EpochNumber(0), &217_i16.to_be_bytes())?;
//! let bundle = sealer.close(true)?.ok_or("nothing was sealed")?;
//! std::fs::write(folder.join("0.mseal"), &bundle.bytes)?;
//!
//! // A cloud in this process stores them.
//! let store = RedbStore::open(&folder.join("epochs.redb"), Options::default())?;
//! let service = Cloud::bind(Config::new(roster.clone()), Arc::new(store)).await?;
//! let cloud = moteseal_net::Client::new(&service.url(), &Default::default())?;
//! tokio::spawn(service.run(std::future::pending()));
//! Push::open(folder)?.to(&cloud, &mut |_| {}).await?;
//!
//! // The application gets every reading and verifies it.
//! let mut rows = RowOutput::to_file(&folder.join("rows.csv"), Format::Csv)?;
//! let verified = Client::new(&cloud, &roster).get().device("dev1").run(&mut rows).await?;
//! rows.finish()?.release()?;
//! verified.keep()?.require_complete(&roster)?;
//! let rows = std::fs::read_to_string(folder.join("rows.csv"))?;
//! assert!(rows.lines().count() == 3 && rows.contains("21.7"), "{rows}");
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | get verified rows | [`Client::get`]; [`Session`] verifies bytes without I/O |
//! | get verified urgent events, and wait for new ones | [`Client::urgent`] |
//! | decrypt the columns that a grant opens | [`decrypt`], [`Session::with_keys`] |
//! | write rows | [`output`]: tables, CSV, JSON lines, Arrow, Parquet |
//! | verify a saved response or bundles offline | [`proof`], [`bundles`] |
//! | show less of a saved response or of bundles, or merge two | [`redact`](mod@redact) |
//! | estimate means, shares and quantiles from a sample | [`estimate`] |
//! | audit the coordinator of a group with a budget | [`Client::audit`], [`mod@audit`] |
//! | query exact sums over encrypted readings | [`sum`] |
//! | read a device's newest reading or urgent events from the device | [`reading`] |
//! | serve signed time to motes | [`time_server`] |
//!
//! Errors have a stable [`name`](Error::name), and a [`kind`](Error::kind) that tells the caller
//! how to react.

#![forbid(unsafe_code)]

pub mod audit;
pub mod backup;
pub mod bundles;
mod checker;
mod cloud_roster;
mod completeness;
pub mod decrypt;
mod error;
pub mod estimate;
mod explain;
mod get;
pub mod health;
pub mod input;
mod newest;
pub mod output;
pub mod pinned;
pub mod proof;
mod proof_scope;
pub mod reading;
pub mod redact;
mod rejection;
mod rows;
mod sanitised;
mod session;
pub mod sum;
pub mod time_server;
pub mod urgent;

pub use cloud_roster::CloudRoster;
pub use completeness::{
    DeviceReport, Incomplete, Lack, Omission, Outage, Redaction, Report, SanitisedColumn, SealGap,
    Standing, start_text,
};
pub use error::{Error, Stop};
pub use explain::{Disagreement, Finding};
pub use get::{Client, Get, Verified, known_devices};
pub use input::InputError;
pub use pinned::{OlderReading, PinnedSeals, RosterNotLater};
pub use rejection::{Rejected, Rejection};
pub use rows::{NoRows, Rows, Sink};
pub use sanitised::Origin;
pub use session::{PIECE, Session};
pub use urgent::{UrgentAnswer, UrgentCheck, UrgentConflict, UrgentRequest};
