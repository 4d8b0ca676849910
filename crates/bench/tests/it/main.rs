//! The tests of `moteseal-bench`: they regenerate the pages of sizes and footprints, and check their
//! bars.
#![allow(clippy::unwrap_used, missing_docs)]

mod footprint;
mod sizes;
