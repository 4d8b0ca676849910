//! The tests of private sums.

#![allow(clippy::unwrap_used, missing_docs)]

mod key_files;
mod policy;
mod query;
mod query_language;
mod reference;
mod schedules;
mod sums;
