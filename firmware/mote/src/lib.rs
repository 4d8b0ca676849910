//! A whole mote without a heap: it seals star and tree epochs within its group's budget, answers private sums, acts on authenticated broadcasts,
//! and keeps in two pages of flash what a reboot must not forget (spec/mote.md).
//!
//! Generic over flash and readings, so that hosts test it word by word; `main.rs` runs it on a board. The protocols are `moteseal_core`'s: here is what
//! drives them with fixed memory, as `moteseal_device` does on Linux.

#![no_std]
#![forbid(unsafe_code)]

pub mod answerer;
pub mod command;
pub mod durable;
pub mod flash;
pub mod journal;
pub mod listener;
pub mod mote;
pub mod notice;
mod open_seal;
pub mod readings;
mod retry;

pub use mote::{Fault, Mote};
