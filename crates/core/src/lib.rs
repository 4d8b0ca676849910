//! The foundation that all of Moteseal's protocols share: identifiers, digests, signatures,
//! identities, rosters, schemas, deterministic CBOR and COSE, and the keys of links.
//!
//! This crate is for programs that make or read keys, certificates, rosters and schemas, and for
//! the protocol crates: `moteseal-seal`, `moteseal-sum`, `moteseal-broadcast` and
//! `moteseal-serial`. It needs no operating system and no heap. [`manual`] explains the protocols.
//! The byte formats are in `spec/objects.md`.
//!
//! # Example: certify a device's key and check the certificate
//!
//! ```
//! use moteseal_core::identity::{Certificate, CertificateDraft, MAX_CERTIFICATE};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_core::{DeviceId, GroupId, SealIndex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, take the seeds from a source of randomness.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let device = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//!
//! let draft = CertificateDraft {
//!     group: GroupId::of("home"),
//!     device: DeviceId::of("home", "thermometer"),
//!     serial: 0,
//!     key: &device.public(),
//!     first_index: SealIndex(0),
//! };
//! let mut buffer = [0; MAX_CERTIFICATE];
//! let bytes = draft.issue(&operator, &mut buffer)?;
//!
//! let certificate = Certificate::open(bytes, &operator.public())?;
//! assert_eq!(certificate.device, DeviceId::of("home", "thermometer"));
//!
//! // Another operator's key does not open it.
//! let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32])?;
//! let error = Certificate::open(bytes, &stranger.public()).unwrap_err();
//! assert_eq!(error.name(), "NotAuthentic");
//! # Ok(())
//! # }
//! ```
//!
//! [`roster`] has an example of a whole roster.

#![no_std]
#![forbid(unsafe_code)]

// Only keys of ML-DSA-44, which motes do not have, are on the heap.
#[cfg(feature = "host")]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod error;

pub mod cbor;
pub mod chacha;
pub mod confidential;
pub mod cose;
pub mod digest;
pub mod health;
pub mod identity;
pub mod link;
pub mod manual;
pub mod participation;
pub mod provision;
pub mod record;
pub mod roster;
pub mod schema;
pub mod signature;
pub mod signed_time;
pub mod siphash;

pub use digest::Digest;
pub use record::{DeviceId, EpochNumber, GroupId, Level, Round, SealIndex, Sequence};
