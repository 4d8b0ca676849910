//! What all of Moteseal's protocols share, without an operating system, a heap or `unsafe`: identifiers, digests, signatures,
//! identities, rosters, schemas, deterministic CBOR and COSE, and the keys of links.
//!
//! The protocols are crates of their own: `moteseal-seal`, `moteseal-sum`, `moteseal-broadcast` and `moteseal-serial`.
//! The byte formats are those of `spec/formats.md`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[macro_use]
pub mod error;

pub mod cbor;
pub mod cose;
pub mod digest;
pub mod identity;
pub mod link;
pub mod provision;
pub mod record;
pub mod roster;
pub mod schema;
pub mod signature;
pub mod siphash;

pub use digest::Digest;
pub use record::{DeviceId, EpochNumber, GroupId, Level, Round, SealIndex, Sequence};
