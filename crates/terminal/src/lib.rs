//! The terminal interface of every command (`moteseal`, `moteseal-demo`, `moteseal-lab`): escaped
//! output, progress bars, exit codes, and clean-up on Ctrl-C.
//!
//! Data goes to stdout, diagnostics to stderr. This crate contains no logic of any specific
//! command.

#![forbid(unsafe_code)]

mod diagnostic;
pub mod failure;
pub mod interrupt;
pub mod output;
pub mod progress;
pub mod secret;
