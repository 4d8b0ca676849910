//! The data application: ask a cloud for a part of what devices sealed, verify it, and hand out rows.
//!
//! [`Session`] judges the bytes of an answer without any I/O: rows come out of a proven run whose choice was forced, and at the
//! end a [`Report`] says how complete each device is. [`get()`] asks a cloud over HTTP, feeds the session, and lets the cloud
//! explain what failed; [`proof::verify`] reads the same bytes from a file, later and elsewhere. [`output`] writes rows as tables,
//! CSV, JSON lines, Arrow and Parquet, and [`estimate`] turns them into means, shares and quantiles with intervals. [`mod@audit`]
//! says whether a group's coordinator kept what its budget asks for.

#![forbid(unsafe_code)]

pub mod audit;
pub mod estimate;
mod explain;
mod get;
mod judge;
pub mod memory;
pub mod output;
pub mod proof;
mod refusal;
mod report;
mod rows;
mod session;
pub mod sum;

pub use explain::{Disagreement, Finding};
pub use get::{Failure, get};
pub use memory::Memory;
pub use refusal::{Refusal, Refused};
pub use report::{DeviceReport, Outage, Report, Standing};
pub use rows::{Rows, Sink};
pub use session::{PIECE, Session, Stop};
