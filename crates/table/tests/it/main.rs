//! Tests of the store on a real Cassandra. One node serves all tests; each has a keyspace of its own.

#![allow(clippy::unwrap_used)]

// The tests of the command line use the rest of it.
#[allow(dead_code)]
mod cassandra;
mod concurrent;
mod cost;
mod damage;
mod equal;
mod faults;
mod listing;
mod node;
mod roles;
mod start;
mod suite;
