//! The tests of verification on hosts.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod aggregation;
mod column_groups;
mod large_roster;
mod mutation;
mod run_limits;
mod succession;
mod threads;
