//! All that a mote runs and all that a verifier needs, without an operating system, a heap or `unsafe`.
//!
//! A device assigns every event a level ([`level`]), folds it into a running [`seal::Star`] or [`seal::Tree`], and signs
//! once at the end of the epoch. Whoever receives any part of the epoch rebuilds the seal from what it got and checks the
//! one signature. What a check has proven is a type: [`Seal<Unverified>`](seal::Seal) becomes `Seal<Authentic>` only by a
//! signature or by the hash chain of a signed successor, and events come out of an authentic sample only.
//!
//! The byte formats are those of `spec/formats.md`; the algorithms are of Li et al., "Toward Secure and Efficient
//! Communication for the Internet of Things" (ToN 2019), sections IV and VI.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod digest;
pub mod engine;
pub mod identity;
pub mod level;
pub mod record;
pub mod roster;
pub mod sample;
pub mod schema;
pub mod seal;
pub mod signature;
pub mod wire;

pub use digest::Digest;
pub use record::{DeviceId, EpochNumber, GroupId, Level, Round, SealIndex, Sequence};
pub use seal::{Authentic, Seal, Unverified};
