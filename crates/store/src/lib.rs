//! Durable storage for clouds, gateways and devices: epoch stores behind one trait, an append-only
//! journal, and the archive of a broadcast node.
//!
//! An epoch store is a grow-only set of bundles, keyed by device, index and seal digest; writing a
//! bundle again changes nothing. The users of a store need not trust it, because clients verify
//! what they receive. But the users rely on its durability: data that the store acknowledged
//! survives a kill of the process and a power loss.
//!
//! - [`EpochStore`] is the contract. [`RedbStore`] is the embedded store: one file and a journal.
//! - [`Archive`] stores the chains of a broadcast node.
//! - [`conformance`] is the test suite that every implementation of [`EpochStore`] has to pass.
//! - [`check`] verifies a whole store and reports all damage.
//!
//! A [`Bundle`] has been verified before it is stored. A seal that is read back is
//! [`Unverified`](moteseal_seal::Unverified) again, because a disk may return other data.
//!
//! ```
//! # #[cfg(feature = "conformance")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use moteseal_core::record::Scheme;
//! use moteseal_store::conformance::Mote;
//! use moteseal_store::{EpochStore as _, Options, RedbStore};
//!
//! let directory = tempfile::tempdir()?;
//! let store = RedbStore::open(&directory.path().join("epochs.redb"), Options::default())?;
//! // A device of the test suite; a cloud makes bundles of uploads with `Bundle::from_proven`.
//! let made = Mote::new("dev1", false).seal_some(Scheme::Star, 7, 100);
//! let receipt = store.put(vec![made.bundle.clone()])?;
//! assert_eq!(receipt.stored, 1);
//!
//! let key = made.bundle.key();
//! let seals = store.seals_at(key.device, key.index)?;
//! assert_eq!(seals[0].key(), key);
//! assert_eq!(store.events(&seals[0])?.len() as u64, seals[0].events_length());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "conformance"))]
//! # fn main() {}
//! ```

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
pub mod lock;
mod manifest;
mod pages;
mod stored;
mod tiles;
mod urgent;

pub use archive::{Archive, ArchiveError};
pub use batch::Batch;
pub use bundle::{Bundle, BundleError, SealKey};
pub use embedded::{DiscardedJournal, OpenError, Options, RedbStore, discard_journal, resolve};
pub use epochs::{EpochStore, Equivocation, Head, PutError, ReadError, Receipt, Reply};
pub use journal::Journal;
pub use manifest::{ManifestKey, StoredManifest};
pub use stored::StoredSeal;
pub use tiles::TreePart;
pub use urgent::{StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace};
