//! The tests of the hashing loops: every loop of this machine returns what the scalar loop returns.

#![allow(clippy::unwrap_used, missing_docs)]

mod equal;
mod pruned_sizes;
mod recall;
