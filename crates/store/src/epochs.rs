//! The contract of an epoch store, which is a grow-only set of verified seals with their events,
//! and of the coordinator's manifests.

use std::ops::Range;
use std::sync::mpsc;

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{GroupLayout, Schema};
use moteseal_lanes::Host;

use crate::bundle::{Bundle, SealKey};
use crate::manifest::{ManifestKey, StoredManifest};
use crate::stored::StoredSeal;
use crate::tiles::{self, Leaves, TreePart};
use crate::urgent::{StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace};

/// A callback that receives the result of a batch. It runs on the store's thread and must return at
/// once: it should only pass the result to another thread or task.
pub type Reply = Box<dyn FnOnce(Result<Receipt, PutError>) + Send>;

/// A grow-only set of bundles, keyed by device, index and seal digest.
///
/// Every implementation promises the following; `conformance::run` tests it.
///
/// - A batch that is acknowledged with a [`Receipt`] MUST survive any end of the process and a
///   power loss. It MUST be visible to every read that starts afterwards.
/// - A bundle is atomic: a read MUST NOT show only a part of it, even after a restart. A batch is
///   atomic too, except in a store that several processes share at the same time. There a read MAY
///   show some bundles of a batch that is being stored or that was not acknowledged. It MUST show
///   all of them once the batch is acknowledged.
/// - A store MUST NOT remove or overwrite data. There is one exception: a bundle that has more
///   levels of a seal replaces the stored bundle with the same key, and the receipt counts it as
///   `stored`. Any other bundle whose key is already stored changes nothing, and the receipt counts
///   it as `known`. If two bundles of one key differ only in their signature, the store keeps the
///   first. If a device signed two different seals under one index, a store MUST keep both, and
///   [`equivocations`](Self::equivocations) MUST report the index from then on.
/// - If two processes that share a store put the same bundle, both receipts MAY count it as
///   `stored`. If the two bundles differ in their signature, the store MAY
///   keep any of them. If such a process is killed before it acknowledges the second seal of an index,
///   [`equivocations`](Self::equivocations) MAY lack the index until a bundle of it is put again.
/// - A batch that is not acknowledged MAY be stored nevertheless. Sending it again is always
///   correct.
/// - A read MUST return the bytes that were put, or an error. If they are damaged, it MUST return
///   [`ReadError::Damaged`].
/// - A store MUST NOT acknowledge data that is only in memory, and MUST NOT queue without bound: it
///   returns [`PutError::Busy`] instead.
/// - The cost of a read MUST grow at most logarithmically with the number of stored seals.
pub trait EpochStore: Send + Sync {
    /// Submits a batch. `reply` is called exactly once, after the batch is durable or has failed,
    /// unless this function returns an error.
    ///
    /// # Errors
    /// [`PutError::Busy`] and [`PutError::Closed`]; the batch is not stored and `reply` is not
    /// called.
    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError>;

    /// Submits manifests. The promises of [`submit`](Self::submit) apply. If two manifests of one
    /// epoch are submitted, the store keeps both and reports the epoch in the receipt of the
    /// second, and of each of them that is submitted again.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError>;

    /// Submits urgent events. The promises of [`submit`](Self::submit) apply. If a device signed two
    /// different events for one place of a seal, the store keeps both and reports the place in the
    /// receipt of the second, and of each of them that is submitted again.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError>;

    /// Returns whether other processes may write to the same store. If so, nothing that was derived
    /// from the content of the store may be kept for ever.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns whether a read may wait for other machines. If so, it must not run on a thread that also serves
    /// other requests.
    fn waits(&self) -> bool {
        false
    }

    /// Checks whether batches can be submitted, as far as this process knows. Does not wait.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`], for example while there is no connection.
    fn accepts(&self) -> Result<(), ReadError> {
        Ok(())
    }

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

    /// Stores urgent events and waits until they are durable.
    ///
    /// # Errors
    /// [`PutError`].
    fn put_urgent(&self, events: Vec<StoredUrgent>) -> Result<Receipt, PutError> {
        awaited(|reply| self.submit_urgent(events, reply))
    }

    /// Returns the urgent events after a place that `select` selects by device and epoch, in the
    /// order in which they were stored, as far as the limits permit. If the store does not have the
    /// place, it starts with its first event. A reader that continues from its last place MUST get
    /// every event that is acknowledged afterwards. If several processes share the store, two events
    /// MAY have the same number, and a reader MAY get an event twice if two processes stored events at
    /// the same time or one of them was killed.
    ///
    /// # Errors
    /// [`ReadError`].
    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError>;

    /// Returns at most `limit` urgent events for one place of a seal, ascending by digest. Each consists
    /// of the signed object. If the device signed two of them, they are evidence of an equivocation.
    ///
    /// # Errors
    /// [`ReadError`].
    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError>;

    /// Returns the number of bytes of the urgent events of a device. If several processes share the store,
    /// the number MAY lack what other processes have stored in the last 10 s, and it MAY count events twice that
    /// were being stored at the same time.
    ///
    /// # Errors
    /// [`ReadError`].
    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError>;

    /// Returns at most `limit` manifests whose epoch is in `since..until` and whose key is greater
    /// than `after`, ascending by epoch and digest. If `until` is `None`, the epochs have no upper
    /// bound.
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

    /// Returns at most `limit` devices that have seals and whose id is greater than `after`, in
    /// ascending order, each with its newest seal.
    ///
    /// # Errors
    /// [`ReadError`].
    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError>;

    /// Returns at most `limit` seals of a device from an index on, ascending by index and digest.
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError>;

    /// Returns at most `limit` seals of a device in the order of their indices, starting with the
    /// first seal whose epoch is at least `since`. Use [`seals`](Self::seals) to continue after
    /// them.
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError>;

    /// Returns the seals of a device under one index. If the device signed two of them, they are
    /// evidence of an equivocation.
    ///
    /// # Errors
    /// [`ReadError`].
    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError>;

    /// Returns a byte range of the body of a seal (see [`Bundle::rows`]).
    ///
    /// # Errors
    /// [`ReadError`], including `Damaged` for a range that ends after the body.
    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError>;

    /// Returns the encoding of a schema to which a stored seal refers, or `None` if the store does
    /// not have it.
    ///
    /// # Errors
    /// [`ReadError`].
    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError>;

    /// Returns at most `limit` indices greater than `after` under which a device signed more than
    /// one seal, in ascending order.
    ///
    /// # Errors
    /// [`ReadError`].
    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError>;

    /// Returns all stored events of a seal, in the same order as in a part of a stream. For a star
    /// these are the blocks from the highest level to the lowest; for a tree, the records in the
    /// order of `seq`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn events(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError> {
        self.body(seal, 0..seal.events_length())
    }

    /// Returns the blocks of a star's levels in `mask` (bit L selects level L), from the highest
    /// level to the lowest. An empty level has no block. Other levels are not read.
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

    /// Returns all stored records of a tree and their compact multiproof, which is empty if every
    /// record of the tree is stored.
    ///
    /// # Errors
    /// [`ReadError`].
    fn kept_part(&self, seal: &StoredSeal) -> Result<TreePart, ReadError> {
        debug_assert_eq!(seal.seal().statement().scheme, Scheme::Tree);
        let siblings = seal.siblings();
        let siblings = if siblings.is_empty() { Vec::new() } else { self.body(seal, siblings)? };
        Ok(TreePart { records: self.events(seal)?, siblings })
    }

    /// Returns selected records of a tree and their compact multiproof. `selected` must be strictly
    /// ascending and contain only stored records. Each selected record that has no selected
    /// neighbours costs a read of about one chunk of 256 records and one tile of 256 hashes.
    ///
    /// # Errors
    /// [`ReadError`], including `Damaged` for records that do not exist.
    fn tree_part(&self, seal: &StoredSeal, selected: &[Sequence]) -> Result<TreePart, ReadError> {
        debug_assert_eq!(seal.seal().statement().scheme, Scheme::Tree);
        let geometry = seal.geometry();
        let damaged =
            || ReadError::damaged(seal.key(), "its records and hashes do not form a tree");
        let layout = if geometry.trees == 1 { None } else { Some(self.layout(seal)?) };
        tiles::part(
            &Host::detect(),
            &Leaves::new(layout.as_ref()),
            geometry,
            selected,
            &mut |range| self.body(seal, range),
            damaged,
        )
    }

    /// Returns the places of the column groups in the records of a seal whose schema has groups.
    ///
    /// # Errors
    /// [`ReadError`], including `Damaged` if the store does not have the schema.
    fn layout(&self, seal: &StoredSeal) -> Result<GroupLayout, ReadError> {
        let statement = seal.seal().statement();
        let bytes = self.schema(&statement.schema)?.unwrap_or_default();
        let schema =
            Schema::decode(&bytes).ok().filter(|schema| schema.digest() == statement.schema);
        let layout = schema.and_then(|schema| GroupLayout::new(&schema, statement.groups));
        layout.ok_or_else(|| ReadError::damaged(seal.key(), "its schema is missing"))
    }
}

/// Calls `submit` and waits for its reply.
fn awaited(submit: impl FnOnce(Reply) -> Result<(), PutError>) -> Result<Receipt, PutError> {
    let (send, receive) = mpsc::sync_channel(1);
    submit(Box::new(move |result| {
        let _ = send.send(result);
    }))?;
    receive.recv().unwrap_or(Err(PutError::Closed))
}

/// The result of a durable batch.
///
/// A store that passes batches on, such as a stream with workers, does not know yet whether they are
/// new. It counts them as `queued` and as nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The number of new bundles, manifests or urgent events, including bundles that add levels to a stored seal.
    pub stored: u64,
    /// The number of bundles, manifests or urgent events that were already stored.
    pub known: u64,
    /// The number of bundles, manifests or urgent events that are durable in a queue before the store.
    /// Whether they are new, and whether they conflict with others, is not known yet.
    pub queued: u64,
    /// The position in the queue of what was queued last. Everything up to it is readable once the
    /// workers have stored that position.
    pub position: Option<u64>,
    /// The indices of seals in this batch under which the store has another seal of the device, each once. Like the
    /// next two fields, it is the same if the batch is put again, so a conflict is not lost with a receipt.
    pub equivocations: Vec<(DeviceId, SealIndex)>,
    /// The epochs of manifests in this batch of which the store has another manifest, each once.
    pub doubled: Vec<EpochNumber>,
    /// The places of urgent events in this batch for which the store has another event, each once.
    pub doubled_events: Vec<(DeviceId, SealIndex, Sequence)>,
}

impl Receipt {
    /// Adds an index under which the store has several seals.
    pub fn add_equivocation(&mut self, device: DeviceId, index: SealIndex) {
        add_once(&mut self.equivocations, (device, index));
    }

    /// Adds an epoch of which the store has several manifests.
    pub fn add_doubled(&mut self, epoch: EpochNumber) {
        add_once(&mut self.doubled, epoch);
    }

    /// Adds a place for which the store has several urgent events.
    pub fn add_doubled_event(&mut self, device: DeviceId, index: SealIndex, seq: Sequence) {
        add_once(&mut self.doubled_events, (device, index, seq));
    }

    /// Returns whether the store has a second row for the index, epoch or place of something in this
    /// batch. Only the signatures of these rows show whether somebody signed two of them.
    #[must_use]
    pub const fn has_conflicts(&self) -> bool {
        !(self.equivocations.is_empty()
            && self.doubled.is_empty()
            && self.doubled_events.is_empty())
    }
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// A device and its newest seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The key of the seal with the highest index. If the device signed several seals under that
    /// index, the key with the highest digest.
    pub key: SealKey,
    /// The epoch of that seal.
    pub epoch: EpochNumber,
}

/// An index under which a device signed more than one seal. The seals are the evidence;
/// [`EpochStore::seals_at`] returns them.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The store's queue is full. Wait a moment, then send the batch again.
    #[error("the store's queue is full; wait a moment, then send the same data again")]
    Busy,
    /// The store is closing.
    #[error("the store is closing; send the same data again when it is open")]
    Closed,
    /// A store on other machines, or a queue before it, does not answer or does not accept data at the
    /// moment. Whether the batch was stored is unknown.
    #[error("{store} is unavailable ({what}); send the same data again later")]
    Unavailable {
        /// The address of the store, or the name of the queue.
        store: String,
        /// What failed.
        what: String,
    },
    /// The disk is full.
    #[error(
        "no space left for {store}; free some space, then send the same data again (stored data is not \
         affected)"
    )]
    DiskFull {
        /// The path of the store.
        store: String,
    },
    /// The store could not be written.
    #[error("{store} could not be written ({what}); check the disk, then send the same data again")]
    Failed {
        /// The path of the store.
        store: String,
        /// What failed.
        what: String,
    },
}

impl PutError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Busy => "Busy",
            Self::Closed => "Closed",
            Self::Unavailable { .. } => "Unavailable",
            Self::DiskFull { .. } => "DiskFull",
            Self::Failed { .. } => "StoreFailed",
        }
    }

    /// Returns [`ErrorKind::Unreachable`] if the caller can send the batch again later, otherwise
    /// [`ErrorKind::Internal`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy | Self::Closed | Self::Unavailable { .. } => ErrorKind::Unreachable,
            Self::DiskFull { .. } | Self::Failed { .. } => ErrorKind::Internal,
        }
    }
}

/// Why a read of a store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store is closing, or its file could not be opened again after a failed write.
    #[error("the store is closed")]
    Closed,
    /// A store on other machines does not answer, or too few of its replicas do.
    #[error("the store is unavailable ({what}); try again when it answers")]
    Unavailable {
        /// What failed.
        what: String,
    },
    /// Stored data is damaged.
    #[error(
        "{}{what}; stop the service and run `moteseal store check`",
        key.map_or_else(String::new, |key| format!("{key}: "))
    )]
    Damaged {
        /// The seal to which the damaged data belongs, if known.
        key: Option<SealKey>,
        /// A description of the damage.
        what: String,
    },
    /// The disk could not be read.
    #[error("the store could not be read ({what}); check the disk")]
    Failed {
        /// What failed.
        what: String,
    },
}

impl ReadError {
    pub(crate) fn damaged(key: SealKey, what: &str) -> Self {
        Self::Damaged { key: Some(key), what: what.to_owned() }
    }

    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Unavailable { .. } => "Unavailable",
            Self::Damaged { .. } => "StoreDamaged",
            Self::Failed { .. } => "StoreFailed",
        }
    }

    /// Returns [`ErrorKind::Unreachable`] if the store is closed or unavailable, otherwise
    /// [`ErrorKind::Internal`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Closed | Self::Unavailable { .. } => ErrorKind::Unreachable,
            Self::Damaged { .. } | Self::Failed { .. } => ErrorKind::Internal,
        }
    }
}
