//! What a part of a mote costs on a Cortex-M3: the parts as a mote uses them, and the meter. There is a program a part in `bin`.
//!
//! Only the board `mps2-an385` has a timer that QEMU can read: for the other there is nothing here.

#![no_std]

#[cfg(feature = "mps2-an385")]
pub mod big;
#[cfg(feature = "mps2-an385")]
pub mod broadcast;
#[cfg(feature = "mps2-an385")]
pub mod each;
#[cfg(feature = "mps2-an385")]
mod meter;
#[cfg(feature = "mps2-an385")]
pub mod paper;
#[cfg(feature = "mps2-an385")]
pub mod seal;
#[cfg(feature = "mps2-an385")]
pub mod star;
#[cfg(feature = "mps2-an385")]
pub mod tree;

#[cfg(feature = "mps2-an385")]
pub use meter::{Input, Meter, Of, failed, opaque};
