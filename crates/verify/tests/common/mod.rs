//! What the integration tests share.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

pub mod value;
pub mod world;
