//! Measures the flash, instructions and stack of each part of a mote on a Cortex-M3. This library
//! contains the meter, and functions that call the parts as a mote does. The folder `bin` has one
//! program for each part.
//!
//! Only the board `mps2-an385` has a timer that QEMU can read. For the other board, this crate is
//! empty.

#![no_std]

#[cfg(feature = "mps2-an385")]
pub mod big;
#[cfg(feature = "mps2-an385")]
pub mod broadcast;
#[cfg(feature = "mps2-an385")]
mod measure;
#[cfg(feature = "mps2-an385")]
pub mod paper;
#[cfg(feature = "mps2-an385")]
pub mod seal;
#[cfg(feature = "mps2-an385")]
pub mod star;
#[cfg(feature = "mps2-an385")]
pub mod suite;
#[cfg(feature = "mps2-an385")]
pub mod tree;

#[cfg(feature = "mps2-an385")]
pub use measure::{Input, Meter, Of, failed, opaque};
