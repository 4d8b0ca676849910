//! The tests of the serial line.

#![allow(clippy::unwrap_used, missing_docs)]

mod line;
mod reference;
