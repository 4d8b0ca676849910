//! Tests with a real nats-server and a real embedded store.

#![allow(clippy::unwrap_used)]

mod checks;
mod credentials;
mod dead_letters;
mod faults;
mod intake;
mod limits;
mod permissions;
mod pieces;
mod testbed;
