//! Epoch stores behind one trait, and the durable journal.
//!
//! A store needs no trust, only durability: what it acknowledged survives a kill and a power loss. It is a grow-only set of
//! bundles keyed by device, index and seal digest (DESIGN section 9), so that nothing in it is ever overwritten and writing
//! something again changes nothing. [`EpochStore`] is the contract, [`RedbStore`] the embedded store in one file with a journal,
//! [`archive`] what a node of authenticated broadcast keeps, [`conformance`] the suite that every implementation has to pass, [`check`] what finds and names damage.
//!
//! What is written has been verified first, and [`Bundle`] is the type that says so. What is read back is
//! [`Unverified`](moteseal_seal::Unverified) again: disks lie too, and whoever receives it verifies anyway.

#![forbid(unsafe_code)]

pub mod archive;
mod batch;
mod bundle;

pub mod check;
#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod epochs;
pub mod journal;
mod manifest;
mod pages;
mod stored;
mod tiles;

pub use archive::{Archive, ArchiveError};
pub use bundle::{Bundle, BundleError, SealKey};
pub use embedded::{OpenError, Options, RedbStore};
pub use epochs::{EpochStore, Equivocation, Head, PutError, ReadError, Receipt, Reply};
pub use journal::Journal;
pub use manifest::{ManifestKey, StoredManifest};
pub use stored::StoredSeal;
pub use tiles::TreePart;
