//! The tests of private sums.

#![allow(clippy::unwrap_used, missing_docs)]

mod automated_querier;
mod hostile_plans;
mod key_files;
mod noise;
mod policy;
mod query;
mod query_language;
mod reference;
mod schedules;
mod sums;
