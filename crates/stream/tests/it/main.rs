//! Tests with a real nats-server and a real embedded store.

mod checks;
mod credentials;
mod dead_letters;
mod faults;
mod intake;
mod limits;
mod permissions;
mod pieces;
mod testbed;
