//! A complete mote that needs no heap. It seals its readings as stars or trees within its group's
//! budget, answers private sums, and acts on authenticated broadcasts. It stores everything that
//! must survive a reboot in two pages of flash, and the keys of encrypted columns in two others
//! (spec/mote.md). If its board has slots for firmware,
//! it receives and installs images of itself (spec/update.md).
//!
//! The mote is generic over its flash and its source of readings, so that tests can run it on a
//! host; `main.rs` runs it on a board. The crates `moteseal_seal`, `moteseal_sum` and
//! `moteseal_broadcast` implement the protocols. This crate runs these protocols in memory of fixed
//! size; `moteseal_device` does the same on Linux, with a heap.

#![no_std]
#![forbid(unsafe_code)]

pub mod answerer;
#[cfg(feature = "board")]
pub mod board_flash;
pub mod column_keys;
pub mod command;
pub mod durable;
mod fault;
pub mod flash;
mod health;
pub mod journal;
pub mod listener;
pub mod mote;
pub mod notice;
mod open_seal;
pub mod readings;
pub mod receipt;
mod retry;
pub mod slots;
pub mod trusted_clock;
pub mod updates;

pub use mote::{Fault, Mote};
