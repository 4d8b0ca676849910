//! A complete mote without a heap: it seals star and tree epochs within its group's budget, answers
//! private sums, acts on authenticated broadcasts, and keeps everything that must survive a reboot
//! in two pages of flash (spec/mote.md).
//!
//! The mote is generic over flash and readings, so that hosts can test it; `main.rs` runs it on a
//! board. The protocols are in the crates `moteseal_seal`, `moteseal_sum` and `moteseal_broadcast`;
//! this crate drives them with fixed memory, as `moteseal_device` does on Linux.

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
