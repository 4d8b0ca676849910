//! The terminal side of every command (`moteseal`, `moteseal-demo`, `moteseal-lab`): output that
//! cannot be forged by what it prints, progress bars, exit codes, and clean-up on Ctrl-C.
//!
//! Data goes to stdout, diagnostics to stderr. Nothing here knows what a command does.

#![forbid(unsafe_code)]

mod diagnostic;
pub mod failure;
pub mod interrupt;
pub mod output;
pub mod progress;
