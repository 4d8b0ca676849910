//! Tests of a mote on a host, with simulated flash that loses power, links that lose frames, and a
//! time that the tests set.
#![allow(clippy::unwrap_used, missing_docs)]

mod addressed;
mod answerer;
mod durable;
mod encrypted;
mod faulty_flash;
mod journal;
mod listener;
mod policies;
mod rollback;
mod signed_time;
mod updates;
mod whole_mote;
