//! The tests of authenticated broadcast.

#![allow(clippy::unwrap_used, missing_docs)]

mod address;
mod certificates;
mod chain;
mod evidence;
mod firmware;
mod freshness;
mod node_memory;
mod revocations;
