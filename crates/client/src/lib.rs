//! The data application.

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
