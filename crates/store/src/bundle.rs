//! A bundle: one verified seal with its events, in a layout from which any sample can be read with
//! few reads.
//!
//! Every store keeps two byte strings per seal, the head and the body. The **head** contains the
//! signed object and, for a star, the digests `D_i`. The **body** contains the events in the order
//! of a part with every surviving level. For a star these are the blocks from the highest level to
//! the lowest, so that the blocks of any level and of all higher levels are a prefix of the body.
//! For a tree they are the records in the order of `seq`, followed by the hashes that prove any
//! selection of them (see [`tiles`](crate::tiles)). A store may split the body anywhere.
//!
//! A star that was pruned to a budget has only the surviving levels from some level `b` on. Its
//! head contains the mask of these levels, their `D_i`, and `A_{b-1}`, the digest of all lower
//! levels. Its body is a prefix of the whole star's body, so a bundle of the same seal with more
//! levels only extends it.
//!
//! A tree that was pruned to a budget has the records of the surviving levels from `b` on and their
//! compact multiproof. Its head contains the mask of the levels and the number of digests. A bundle
//! of the same seal with more levels has a different body.

use std::fmt;
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, Round, SealIndex};
use moteseal_lanes::Host;
use moteseal_seal::level::lowest;
use moteseal_seal::stream::Select;
use moteseal_seal::{Authentic, Seal, Statement, star};
use moteseal_verify::{Proven, SchemaEntry, kept_from, write};

use crate::tiles::{self, Geometry, Leaves, Pruned};

/// The key of a seal. It includes the digest of the signed object, because a device can sign two
/// seals under one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealKey {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// The digest of the signed object: [`Seal::digest`].
    pub digest: Digest,
}

impl SealKey {
    /// The length of the array that [`to_bytes`](Self::to_bytes) returns.
    pub const LENGTH: usize = 8 + 4 + 32;

    /// Returns the key of a seal.
    #[must_use]
    pub fn of<S>(seal: &Seal<S>) -> Self {
        Self {
            device: seal.statement().device,
            index: seal.statement().index,
            digest: seal.digest(),
        }
    }

    /// Encodes the key as device, index (big-endian) and digest. The encodings sort in the same
    /// order as the keys.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.device.0);
        bytes[8..12].copy_from_slice(&self.index.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.digest.0);
        bytes
    }

    /// Decodes a key that [`to_bytes`](Self::to_bytes) encoded.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut key = Self { device: DeviceId([0; 8]), index: SealIndex(0), digest: Digest::NULL };
        key.device.0.copy_from_slice(&bytes[..8]);
        key.index.0 = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        key.digest.0.copy_from_slice(&bytes[12..]);
        key
    }
}

impl fmt::Display for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seal {} of device {}", self.index, self.device)
    }
}

/// Why a seal and its events cannot be stored. Every one of these errors is a mistake of the
/// caller: a verified upload never causes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The schema is not the one that the seal refers to.
    #[error("the schema is not the one that the seal refers to")]
    SchemaMismatch,
    /// The part has no signature; a store keeps only signed seals.
    #[error("only parts with their own signature can be stored; sign each part before its upload")]
    Unsigned,
    /// The events are neither all surviving events nor all surviving events from some round on, or
    /// the digests and events do not lead to the root.
    #[error(
        "only seals with all events that survived, or all from some round on, can be stored; \
         upload every surviving level"
    )]
    Partial,
}

impl BundleError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SchemaMismatch => "SchemaMismatch",
            Self::Unsigned => "Unsigned",
            Self::Partial => "Partial",
        }
    }

    /// Returns [`ErrorKind::Usage`] for every error.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        ErrorKind::Usage
    }
}

/// One verified seal, ready to be stored, with all its surviving events or with all surviving
/// events from some round on. The constructors do all expensive work in the thread of the caller,
/// so the store's threads need not do it.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub(crate) key: SealKey,
    pub(crate) epoch: EpochNumber,
    /// The levels whose events are included.
    pub(crate) kept: u32,
    /// The levels from this round on are included.
    pub(crate) from: Round,
    /// For a pruned tree, the round `j` for which the events of levels `>= j` are included.
    pub(crate) tree_from: Option<Round>,
    pub(crate) schema: Arc<SchemaEntry>,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The first byte of the head of a whole seal.
pub(crate) const VERSION: u8 = 1;
/// The first byte of the head of a seal with only the levels from a round on.
pub(crate) const PRUNED: u8 = 2;

/// The digests in a bundle that stand in for the events that it omits.
#[derive(Clone, Copy)]
enum Omitted<'b> {
    /// All surviving events are included.
    Nothing,
    /// For a star, `A_{b-1}`: the digest of all levels below the lowest included level `b`.
    Above(Digest),
    /// For a tree, the compact multiproof.
    Siblings(&'b [u8]),
}

impl Bundle {
    /// Makes a bundle from an authentic seal, its signature, and its events in the order of a part
    /// with every surviving level. For a star, `blocks` are the digests `D_0 .. D_{L-1}`; the
    /// digests of empty levels are ignored. For a tree, `blocks` is empty.
    ///
    /// Checks the lengths, the schema's digest, and that the digests of a star lead to its root.
    /// For a tree this verifies all events, because the hashes have to be computed anyway. For a
    /// star the caller must have verified that the events have these digests.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn new(
        seal: &Seal<Authentic>,
        signature: &[u8],
        schema: &Arc<SchemaEntry>,
        blocks: &[Digest],
        events: &[u8],
    ) -> Result<Self, BundleError> {
        Self::lay_out(
            seal,
            signature,
            schema,
            (seal.statement().surviving(), Omitted::Nothing),
            blocks,
            events,
        )
    }

    /// Like [`new`](Self::new), for a pruned tree. `kept` is the mask of the surviving levels from
    /// some round on; `events` are the records of these levels, and `siblings` is their compact
    /// multiproof (concatenated 32-byte digests).
    ///
    /// # Errors
    /// [`BundleError`], including `Partial` if `kept` is not such a mask or includes every record.
    pub fn pruned_tree(
        seal: &Seal<Authentic>,
        signature: &[u8],
        schema: &Arc<SchemaEntry>,
        (kept, siblings): (u32, &[u8]),
        events: &[u8],
    ) -> Result<Self, BundleError> {
        let statement = seal.statement();
        let lacks = kept_from(statement, kept).is_some()
            && u64::from(statement.counters.masked(kept)) < statement.counters.total();
        if statement.scheme != Scheme::Tree || !lacks {
            return Err(BundleError::Partial);
        }
        Self::lay_out(seal, signature, schema, (kept, Omitted::Siblings(siblings)), &[], events)
    }

    /// Like [`new`](Self::new), for a pruned star. `kept` is the mask of the surviving levels from
    /// some round on. `above` is `A_{b-1}`, where `b` is the lowest level of the mask; if the mask
    /// is empty, `b` is the number of levels and `above` is the root.
    ///
    /// # Errors
    /// [`BundleError`], including `Partial` if `kept` is not such a mask or includes every
    /// surviving level.
    pub fn pruned(
        seal: &Seal<Authentic>,
        signature: &[u8],
        schema: &Arc<SchemaEntry>,
        (kept, above): (u32, Digest),
        blocks: &[Digest],
        events: &[u8],
    ) -> Result<Self, BundleError> {
        let statement = seal.statement();
        let from = kept_from(statement, kept)
            .filter(|from| from.0 > 0 && statement.scheme == Scheme::Star);
        from.ok_or(BundleError::Partial)?;
        Self::lay_out(seal, signature, schema, (kept, Omitted::Above(above)), blocks, events)
    }

    fn lay_out(
        seal: &Seal<Authentic>,
        signature: &[u8],
        schema: &Arc<SchemaEntry>,
        (kept, omitted): (u32, Omitted<'_>),
        blocks: &[Digest],
        events: &[u8],
    ) -> Result<Self, BundleError> {
        let statement = seal.statement();
        if statement.schema != schema.digest || statement.groups != schema.groups() {
            return Err(BundleError::SchemaMismatch);
        }
        if signature.len() != seal.algorithm().signature_length() {
            return Err(BundleError::Unsigned);
        }
        let framing = schema.framing;
        if framing.length_of(events, statement.counters.masked(kept)) != Some(events.len()) {
            return Err(BundleError::Partial);
        }
        let sign1 = write::sign1(seal, signature);
        let mut head = Vec::with_capacity(64 + sign1.len() + 32 * (1 + kept.count_ones()) as usize);
        head.push(if matches!(omitted, Omitted::Nothing) { VERSION } else { PRUNED });
        head.extend_from_slice(&statement.epoch.0.to_be_bytes());
        head.extend_from_slice(&record_size(framing).to_be_bytes());
        head.extend_from_slice(&(events.len() as u64).to_be_bytes());
        // The longest signed object is a statement of 800 bytes and a signature of 2,420.
        #[allow(clippy::cast_possible_truncation)]
        head.extend_from_slice(&(sign1.len() as u16).to_be_bytes());
        head.extend_from_slice(&sign1);
        match omitted {
            Omitted::Nothing => {}
            Omitted::Above(above) => {
                head.extend_from_slice(&kept.to_be_bytes());
                head.extend_from_slice(&above.0);
            }
            Omitted::Siblings(siblings) => {
                let each = siblings.len() as u64 / 32 / trees(statement, kept);
                head.extend_from_slice(&kept.to_be_bytes());
                head.extend_from_slice(&each.to_be_bytes());
            }
        }
        let body = match statement.scheme {
            Scheme::Star => {
                let levels = statement.counters.levels();
                let mut all = vec![Digest::NULL; usize::from(levels)];
                for level in (0..levels).filter(|level| kept >> level & 1 == 1) {
                    let digest = blocks.get(usize::from(level)).ok_or(BundleError::Partial)?;
                    all[usize::from(level)] = *digest;
                    head.extend_from_slice(&digest.0);
                }
                let (from, above) = match omitted {
                    Omitted::Above(above) => (lowest(kept, levels), above),
                    Omitted::Nothing | Omitted::Siblings(_) => (0, star::chain_start()),
                };
                if star::root_from(&statement.counters, from, above, &all) != *seal.root() {
                    return Err(BundleError::Partial);
                }
                if framing == Framing::Prefixed {
                    let mut rest = events;
                    for level in (0..levels).rev().filter(|level| kept >> level & 1 == 1) {
                        let length = framing
                            .length_of(rest, statement.counters.at(Level(level)))
                            .ok_or(BundleError::Partial)?;
                        head.extend_from_slice(&(length as u64).to_be_bytes());
                        rest = &rest[length..];
                    }
                }
                events.to_vec()
            }
            Scheme::Tree => {
                let n = statement.counters.total();
                let trees = trees(statement, kept);
                let layout = schema.groups.as_deref().filter(|_| trees > 1);
                let (engine, leaves) = (Host::detect(), Leaves::new(layout));
                let (body, root) = match omitted {
                    Omitted::Siblings(siblings) => {
                        let each = siblings.len() as u64 / 32 / trees;
                        let pruned = Some(Pruned::new(statement, kept, each));
                        let events_length = events.len() as u64;
                        let geometry =
                            Geometry { n, framing, events: events_length, trees, pruned };
                        tiles::lay_out_pruned(&engine, &leaves, geometry, events, siblings)
                            .ok_or(BundleError::Partial)?
                    }
                    // Records are omitted, but there is no multiproof.
                    _ if u64::from(statement.counters.masked(kept)) < n => {
                        return Err(BundleError::Partial);
                    }
                    _ => tiles::lay_out(&engine, &leaves, (framing, n), events),
                };
                if root != *seal.root() {
                    return Err(BundleError::Partial);
                }
                body
            }
        };
        let from = kept_from(statement, kept);
        let tree_from = from.filter(|_| statement.scheme == Scheme::Tree);
        Ok(Self {
            key: SealKey::of(seal),
            epoch: statement.epoch,
            kept,
            from: from.unwrap_or(Round(0)),
            tree_from,
            schema: Arc::clone(schema),
            head,
            body,
        })
    }

    /// Returns an empty placeholder, for `mem::replace`.
    #[cfg(feature = "conformance")]
    pub(crate) fn empty() -> Self {
        let key = SealKey { device: DeviceId([0; 8]), index: SealIndex(0), digest: Digest::NULL };
        Self {
            key,
            epoch: EpochNumber(0),
            kept: 0,
            from: Round(0),
            tree_from: None,
            schema: Arc::new(SchemaEntry::opaque()),
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Makes a bundle from a part that a [`StreamReader`](moteseal_verify::StreamReader) has
    /// proven.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn from_proven(proven: &Proven<'_>) -> Result<Self, BundleError> {
        let signature = proven.part.signature.ok_or(BundleError::Unsigned)?;
        let (seal, schema, blocks, events) =
            (proven.seal, proven.schema, proven.blocks, proven.part.events);
        match &proven.part.select {
            Select::Levels(mask) if seal.statement().scheme == Scheme::Tree => {
                if proven.sample.len() == proven.part.n {
                    return Self::new(seal, signature, schema, blocks, events);
                }
                Self::pruned_tree(seal, signature, schema, (*mask, proven.part.digests), events)
            }
            Select::Levels(mask) if !proven.is_whole() => {
                // The first digest of a part covers the surviving levels that the part does not
                // select.
                let above = proven
                    .part
                    .digests
                    .first_chunk()
                    .map(|above| Digest(*above))
                    .ok_or(BundleError::Partial)?;
                Self::pruned(seal, signature, schema, (*mask, above), blocks, events)
            }
            Select::Levels(_) => Self::new(seal, signature, schema, blocks, events),
            Select::Events(_) => Err(BundleError::Partial),
        }
    }

    /// Returns the levels whose events are included, as a bit mask: all surviving levels, or all
    /// surviving levels from some round on.
    #[must_use]
    pub const fn kept(&self) -> u32 {
        self.kept
    }

    /// Returns the lowest round `j` for which every surviving level `>= j` is included, as
    /// [`StoredSeal::kept_from`](crate::StoredSeal::kept_from) of the stored bundle.
    #[must_use]
    pub const fn kept_from(&self) -> Round {
        self.from
    }

    /// Returns whether the bundle has levels that a stored bundle of the same seal does not have.
    /// `stored` are the levels of the stored bundle, as in [`kept`](Self::kept). If so, a store
    /// replaces the stored bundle; otherwise it ignores this one.
    #[must_use]
    pub const fn adds_to(&self, stored: u32) -> bool {
        self.kept & !stored != 0
    }

    /// Returns the key of the seal.
    #[must_use]
    pub const fn key(&self) -> SealKey {
        self.key
    }

    /// Returns the number of bytes that a store keeps of the bundle, without schema and table
    /// overhead.
    #[must_use]
    pub const fn stored_bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns the head and the body that a store keeps. [`StoredSeal`](crate::StoredSeal) decodes
    /// them.
    #[must_use]
    pub fn rows(&self) -> (&[u8], &[u8]) {
        (&self.head, &self.body)
    }

    /// Returns the seal's epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the schema of the seal's records.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.schema
    }
}

/// Returns the number of trees whose leaves and digests a stored seal has: one for each column group.
/// If no record of a tree is stored, the only digest is the root of the seal, as that of one tree.
pub(crate) fn trees(statement: &Statement, kept: u32) -> u64 {
    let (stored, all) = (statement.counters.masked(kept), statement.counters.total());
    if stored == 0 && all > 0 { 1 } else { statement.groups.len().max(1) as u64 }
}

/// Encodes a framing as two bytes: the fixed size of the records, or 0 if each record has a length
/// prefix.
fn record_size(framing: Framing) -> u16 {
    match framing {
        Framing::Fixed(size) => size.get(),
        Framing::Prefixed => 0,
    }
}
