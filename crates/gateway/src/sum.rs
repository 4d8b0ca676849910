//! A gateway in the tree that adds up private sums: takes what its children say of an epoch, adds, and says the sum to the parent.
//!
//! DESIGN section 7; spec/sums.md, section 6. It holds no key of any source and can read nothing. Nobody has to trust it: what it drops,
//! adds or bends makes a sum that the querier refuses, and what its children said is kept for a while so that the querier can find the
//! edge. What decides is sans-IO: [`Aggregator`] takes frames and times and gives frames; [`service`] gives it links, a clock and a disk.

mod aggregator;
mod error;
mod gather;
mod metrics;
pub mod number;
pub mod service;

pub use aggregator::{Aggregator, Ended, Heard, Member, Said, Unusable};
pub use error::Refused;
pub use gather::{KEPT_EPOCHS, OPEN_EPOCHS, kept_epochs};
