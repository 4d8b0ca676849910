//! Tests of `moteseal-bench`. They regenerate the pages of sizes and footprints, and check the bars
//! of these pages.
#![allow(clippy::unwrap_used, missing_docs)]

mod footprint;
mod sizes;
