//! A gateway in the tree of private sums: it receives its children's sums of an epoch, adds them,
//! and sends the result to its parent (docs/design.md, sums; spec/sums.md, section 6).
//!
//! It holds no key of any source and can read nothing. It is not trusted: if it drops, adds or
//! modifies something, the querier rejects the sum. It keeps its children's records for a while, so
//! that the querier can localise the fault. [`Aggregator`] makes all decisions without I/O: frames
//! and times go in, frames come out. [`service`] adds links, a clock and a disk.

mod aggregator;
mod error;
mod gather;
mod metrics;
pub mod number;
pub mod service;

pub use aggregator::{Aggregator, Ended, FrameOutcome, Member, Outgoing, Unusable};
pub use error::Refused;
pub use gather::{KEPT_EPOCHS, OPEN_EPOCHS, kept_epochs};
