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
// The tests of the command line use the rest of it.
#[allow(dead_code)]
mod server;
mod testbed;
