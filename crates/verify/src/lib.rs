//! Verification on hosts: an owned roster with prepared keys, and streams read run by run. No I/O.
//!
//! [`StreamReader`] is the one way in for everything that arrives: uploads, answers, bundles and proofs are the same items
//! (spec/formats.md, section 4). It hands out [`Proven`] parts and nothing else that has to be believed.

#![forbid(unsafe_code)]

pub mod aggregation;
mod ahead;
pub mod explain;
pub mod issue;
pub mod manifest;
pub mod reader;
pub mod receipt;
mod refused;
pub mod roster;
pub mod succession;
pub mod write;

pub use aggregation::{AggregationTree, TreeError};
pub use explain::{Explained, Finding, RunFinding, explain_run};
pub use manifest::ManifestError;
pub use reader::{Bundles, Event, Proven, SchemaEntry, StreamReader, Suspect, kept_from};
pub use refused::{ReadError, ReadErrorKind};
pub use roster::Roster;
pub use succession::SuccessionError;
