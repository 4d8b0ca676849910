//! The data application: asks an untrusted cloud for sealed readings and verifies them.
//!
//! This crate is for programs that use sensor data: analysis scripts, dashboards, archives. It
//! needs a roster, the operator's public key and the address of a cloud. Verified rows are
//! authentic (signed by their device), complete (no seal of the range is missing, or the report
//! says so) and not chosen by the cloud.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use moteseal_client::output::{Format, RowOutput};
//! use moteseal_client::{Client, PinnedSeals, input};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let roster = input::roster(Path::new("roster.cbor"), Path::new("op.pub.pem"))?;
//! let cloud = moteseal_net::Client::new("https://cloud.example", &Default::default())?;
//! let mut pinned = PinnedSeals::open(Path::new("pinned.json"))?;
//! let mut rows = RowOutput::to_file(Path::new("rows.csv"), Format::Csv)?;
//!
//! let request = Client::new(&cloud, &roster).get().device("dev1").rate("1/8".parse()?);
//! let request = request.pinned_seals(&mut pinned).proof("rows.mproof");
//! let verified = request.run(&mut rows).await?;
//! let rows = rows.finish()?;
//! let report = verified.keep()?;
//! rows.release()?;
//! report.require_complete(&roster)?;
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | get verified rows | [`Client::get`]; [`Session`] verifies bytes without I/O |
//! | write rows | [`output`]: tables, CSV, JSON lines, Arrow, Parquet |
//! | verify a kept response or bundles offline | [`proof`], [`bundles`] |
//! | estimate means, shares and quantiles from a sample | [`estimate`] |
//! | audit the coordinator of a group with a budget | [`Client::audit`], [`mod@audit`] |
//! | query exact sums over encrypted readings | [`sum`] |
//!
//! Errors have a stable [`name`](Error::name) and a [`kind`](Error::kind), which says what to do
//! next.

#![forbid(unsafe_code)]

pub mod audit;
pub mod bundles;
mod checker;
mod completeness;
mod error;
pub mod estimate;
mod explain;
mod get;
pub mod input;
pub mod output;
pub mod pinned;
pub mod proof;
mod proof_query;
mod rejection;
mod rows;
mod session;
pub mod sum;

pub use completeness::{DeviceReport, Incomplete, Outage, Report, Standing, start_text};
pub use error::{Error, Stop};
pub use explain::{Disagreement, Finding};
pub use get::{Client, Get, Verified, known_devices};
pub use input::InputError;
pub use pinned::PinnedSeals;
pub use rejection::{Rejected, Rejection};
pub use rows::{Rows, Sink};
pub use session::{PIECE, Session};
