//! A gateway in the aggregation tree of private sums. For each epoch it receives the sums of its
//! children, adds them, and sends the result to its parent (docs/design.md, sums; spec/sums.md,
//! section 6).
//!
//! The gateway holds no key of any source, so it cannot decrypt any value. Nobody needs to trust
//! it: if it drops, adds or modifies a value, the querier rejects the sum. It keeps the records of
//! its children for some time, so that the querier can localise such a fault. [`Aggregator`] makes
//! all decisions and does no I/O: it receives frames and times, and returns frames. [`service`]
//! adds links, a clock and storage on disk.

mod aggregator;
mod error;
mod gather;
mod metrics;
pub mod number;
pub mod service;

pub use aggregator::{Aggregator, Ended, FrameOutcome, Member, Outgoing, Unusable};
pub use error::Refused;
pub use gather::{KEPT_EPOCHS, OPEN_EPOCHS, kept_epochs};
