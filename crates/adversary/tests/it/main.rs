//! The tests of the adversary: every lie and every attack is applied and rejected.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcaster;
mod lies;
