//! Tests that every lie and every attack can be applied and is rejected.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcaster;
mod lies;
