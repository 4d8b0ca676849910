//! The contract of an epoch store: a grow-only set of verified seals with their events, and of the manifests of epochs
//! (DESIGN section 9).

use std::fmt;
use std::ops::Range;
use std::sync::mpsc;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_lanes::Host;

use crate::bundle::{Bundle, SealKey};
use crate::manifest::{ManifestKey, StoredManifest};
use crate::stored::StoredSeal;
use crate::tiles::{self, TreePart};

/// Says what became of a batch. It runs on the store's own thread and must return at once: hand the result on, nothing more.
pub type Reply = Box<dyn FnOnce(Result<Receipt, PutError>) + Send>;

/// A grow-only set of bundles, keyed by device, index and seal digest.
///
/// What every implementation promises; `conformance::run` tests it.
///
/// - Once a batch is acknowledged with a [`Receipt`], all of it MUST survive the end of the process by any means, and a power
///   loss. It MUST be visible to every read that starts afterwards.
/// - A batch is all or nothing: no read, and no restart, MUST ever show a part of it.
/// - Nothing MUST ever be removed, or overwritten with other than itself and more. A bundle whose key is there already changes
///   nothing and is reported as `known`, unless it keeps more levels of its seal than are there: then it takes the place of the
///   other, and is reported as `stored`. One of fewer levels never does. Of two signatures for one key that are not replaced so
///   the first is kept. Two different seals under one index MUST both be kept, and
///   reported by [`equivocations`](Self::equivocations) from then on.
/// - A batch that is not acknowledged MAY be there or not. Sending it again is always right.
/// - A read MUST return what was put or an error. It MUST NOT return other bytes: damage is [`ReadError::Damaged`].
/// - A store MUST NOT acknowledge what it keeps in memory only, and MUST NOT queue without bound: it answers
///   [`PutError::Busy`] instead.
/// - The cost of a read MUST NOT grow with the number of seals stored, but for a logarithm.
pub trait EpochStore: Send + Sync {
    /// Hands in a batch. `reply` is called exactly once, after the batch is durable or has failed, unless this returns an error.
    ///
    /// # Errors
    /// [`PutError::Busy`] and [`PutError::Closed`]; the batch is not stored and `reply` is not called.
    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError>;

    /// Hands in manifests, with the promises of [`submit`](Self::submit). Two of one epoch are both kept, and reported by the
    /// receipt of the second.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError>;

    /// Stores a batch and waits until it is durable.
    ///
    /// # Errors
    /// [`PutError`].
    fn put(&self, batch: Vec<Bundle>) -> Result<Receipt, PutError> {
        awaited(|reply| self.submit(batch, reply))
    }

    /// Stores manifests and waits until they are durable.
    ///
    /// # Errors
    /// [`PutError`].
    fn put_manifests(&self, manifests: Vec<StoredManifest>) -> Result<Receipt, PutError> {
        awaited(|reply| self.submit_manifests(manifests, reply))
    }

    /// The manifests of the epochs from `since` on that lie before `until` (`None`: all), ascending by epoch and digest, those
    /// behind `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError>;

    /// The devices that have seals, ascending, each with its newest; those after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError>;

    /// The seals of a device from an index on, ascending, at most `limit`. Several under one index come by ascending digest.
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError>;

    /// The seals of a device from the first on whose epoch is not before `since`, in order of index, at most `limit`. Go on
    /// with [`seals`](Self::seals).
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError>;

    /// The seals of a device under one index: none, one, or the evidence of an equivocation.
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError>;

    /// A range of the body of a seal: see [`Bundle::rows`].
    ///
    /// # Errors
    /// [`ReadError`]; `Damaged` also for a range that ends behind the body.
    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError>;

    /// The encoding of a schema that a stored seal names.
    ///
    /// # Errors
    /// [`ReadError`].
    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError>;

    /// Indices under which a device signed more than one seal, ascending, those after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError>;

    /// All stored events of a seal, as a part carries them: of a star the blocks from the finest to the coarsest, of a tree the
    /// records by `seq`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn events(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError> {
        self.body(seal, 0..seal.events_length())
    }

    /// The blocks of a star's levels `mask`, from the finest to the coarsest; null levels have none. Reads no other levels.
    ///
    /// # Errors
    /// [`ReadError`].
    fn star_blocks(&self, seal: &StoredSeal, mask: u32) -> Result<Vec<u8>, ReadError> {
        debug_assert_eq!(seal.seal().statement().scheme, Scheme::Star);
        let mut ranges = seal.block_ranges(mask).into_iter();
        let mut blocks = ranges.next().map_or(Ok(Vec::new()), |range| self.body(seal, range))?;
        for range in ranges {
            blocks.extend(self.body(seal, range)?);
        }
        Ok(blocks)
    }

    /// All stored records of a tree, with the compact multiproof that they have together: empty if every record is stored.
    ///
    /// # Errors
    /// [`ReadError`].
    fn kept_part(&self, seal: &StoredSeal) -> Result<TreePart, ReadError> {
        debug_assert_eq!(seal.seal().statement().scheme, Scheme::Tree);
        let siblings = seal.siblings();
        let siblings = if siblings.is_empty() { Vec::new() } else { self.body(seal, siblings)? };
        Ok(TreePart { records: self.events(seal)?, siblings })
    }

    /// Selected records of a tree, with the compact multiproof. `selected` must ascend strictly and name stored records only.
    /// Reads about one chunk of 256 records, and one tile of 256 hashes, for each scattered record.
    ///
    /// # Errors
    /// [`ReadError`]; `Damaged` also for records that there are not.
    fn tree_part(&self, seal: &StoredSeal, selected: &[Sequence]) -> Result<TreePart, ReadError> {
        debug_assert_eq!(seal.seal().statement().scheme, Scheme::Tree);
        let geometry = seal.geometry();
        let damaged =
            || ReadError::damaged(seal.key(), "its records and hashes do not make a tree");
        tiles::part(
            &Host::detect(),
            geometry,
            selected,
            &mut |range| self.body(seal, range),
            damaged,
        )
    }
}

/// Waits for the reply to what `submit` hands in.
fn awaited(submit: impl FnOnce(Reply) -> Result<(), PutError>) -> Result<Receipt, PutError> {
    let (send, receive) = mpsc::sync_channel(1);
    submit(Box::new(move |result| {
        let _ = send.send(result);
    }))?;
    receive.recv().unwrap_or(Err(PutError::Closed))
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Bundles, or manifests, that are new, and bundles that brought more levels of a seal.
    pub stored: u64,
    /// Bundles, or manifests, that were there already.
    pub known: u64,
    /// Indices under which the device has now signed more than one seal, where this batch brought another one.
    pub equivocations: Vec<(DeviceId, SealIndex)>,
    /// Epochs of which the coordinator has now signed more than one manifest, where this batch brought another one.
    pub doubled: Vec<EpochNumber>,
}

/// A device and its newest seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The seal with the highest index; of several under that index the one with the highest digest.
    pub key: SealKey,
    /// Its epoch.
    pub epoch: EpochNumber,
}

/// An index under which a device signed more than one seal. The seals themselves, from [`EpochStore::seals_at`], are evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equivocation {
    /// The device.
    pub device: DeviceId,
    /// The index.
    pub index: SealIndex,
    /// The digests of the seals, ascending.
    pub digests: Vec<Digest>,
}

/// Why a batch was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError {
    /// Too much is queued: wait a moment and send the batch again.
    Busy,
    /// The store is closing.
    Closed,
    /// The disk is full.
    DiskFull {
        /// The store.
        store: String,
    },
    /// The store could not be written: what failed.
    Failed {
        /// The store.
        store: String,
        /// What failed.
        what: String,
    },
}

impl PutError {
    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Busy => "Busy",
            Self::Closed => "Closed",
            Self::DiskFull { .. } => "DiskFull",
            Self::Failed { .. } => "StoreFailed",
        }
    }
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str(
                "Busy: the store's queue is full; wait a moment and send the same again",
            ),
            Self::Closed => {
                f.write_str("Closed: the store is closing; send the same again when it is back")
            }
            Self::DiskFull { store } => {
                write!(
                    f,
                    "DiskFull: no space left for {store}; free some and send the same again, nothing stored is affected"
                )
            }
            Self::Failed { store, what } => {
                write!(
                    f,
                    "StoreFailed: {store} could not be written ({what}); look at the disk, then send the same again"
                )
            }
        }
    }
}

impl std::error::Error for PutError {}

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The store is closing, or could not be opened again after a failed write.
    Closed,
    /// What was stored is damaged.
    Damaged {
        /// The seal, where it is known.
        key: Option<SealKey>,
        /// What is wrong.
        what: String,
    },
    /// The disk could not be read.
    Failed {
        /// What failed.
        what: String,
    },
}

impl ReadError {
    pub(crate) fn damaged(key: SealKey, what: &str) -> Self {
        Self::Damaged { key: Some(key), what: what.to_owned() }
    }

    /// The error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Damaged { .. } => "StoreDamaged",
            Self::Failed { .. } => "StoreFailed",
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed: the store is closed"),
            Self::Damaged { key: Some(key), what } => {
                write!(
                    f,
                    "StoreDamaged: {key}: {what}; stop the service and run `moteseal store check`"
                )
            }
            Self::Damaged { key: None, what } => {
                write!(f, "StoreDamaged: {what}; stop the service and run `moteseal store check`")
            }
            Self::Failed { what } => {
                write!(f, "StoreFailed: the store could not be read ({what}); look at the disk")
            }
        }
    }
}

impl std::error::Error for ReadError {}
