//! Tests of the hashing loops: every loop that this machine can run returns the results of the
//! scalar loop.

#![allow(clippy::unwrap_used, missing_docs)]

mod encryption;
mod equal;
mod pruned_sizes;
mod recall;
