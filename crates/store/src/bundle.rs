//! What goes into a store: one verified seal with the events it covers, laid out so that any sample is a few ranges.
//!
//! Every store keeps two byte strings a seal. The **head** holds the signed object and the digests `D_i` of a star. The **body**
//! holds the events as they stand in a part with every surviving level: of a star the blocks from the finest to the coarsest,
//! so that all levels from one up are a prefix; of a tree the records by `seq`, followed by what proves them in parts (see
//! [`tiles`](crate::tiles)). A store may cut the body wherever it likes.
//!
//! Of a star that was kept within a budget only the surviving levels from some level `b` on are there: the head holds which, their
//! `D_i`, and the digest `A_{b-1}` of all above them; the body is the prefix that they are. So a bundle of more levels of the same
//! seal goes on where one of fewer ends.
//!
//! Of a tree within a budget the records of the surviving levels from `b` on are there, with the compact multiproof that they
//! have together: the head holds which levels and how many digests. A bundle of more levels has another body.

use std::fmt;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, Round, SealIndex};
use moteseal_lanes::Host;
use moteseal_seal::level::lowest;
use moteseal_seal::stream::Select;
use moteseal_seal::{Authentic, Seal, star};
use moteseal_verify::{Proven, SchemaEntry, kept_from, write};

use crate::tiles::{self, Geometry, Pruned};

/// What addresses a seal: device, index, and the digest of the signed object, because a device can sign two under one index.
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
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 8 + 4 + 32;

    /// The key of a seal.
    #[must_use]
    pub fn of<S>(seal: &Seal<S>) -> Self {
        Self {
            device: seal.statement().device,
            index: seal.statement().index,
            digest: seal.digest(),
        }
    }

    /// Device, index (big-endian), digest: bytes that sort as keys do.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.device.0);
        bytes[8..12].copy_from_slice(&self.index.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.digest.0);
        bytes
    }

    /// The key of [`to_bytes`](Self::to_bytes).
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

/// Why a seal and its events cannot be stored. All of these are faults of the caller: a verified upload has none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BundleError {
    /// The schema is not the one that the seal names.
    SchemaMismatch,
    /// The part carries no signature; a store keeps signed seals only.
    Unsigned,
    /// The events are not all of the surviving ones, or digests and events do not lead to the root.
    Partial,
}

impl BundleError {
    /// The error's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SchemaMismatch => "SchemaMismatch",
            Self::Unsigned => "Unsigned",
            Self::Partial => "Partial",
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SchemaMismatch => "SchemaMismatch: the schema is not the one that the seal names",
            Self::Unsigned => "Unsigned: only parts with their own signature can be stored; upload each part signed",
            Self::Partial => {
                "Partial: only whole seals, and those whole from a round on, can be stored; upload every surviving level"
            }
        })
    }
}

impl std::error::Error for BundleError {}

/// One verified seal with all its surviving events, or with those from a round on, ready to be stored. All that costs time has
/// been done by whoever made it.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub(crate) key: SealKey,
    pub(crate) epoch: EpochNumber,
    /// The levels whose events are here.
    pub(crate) kept: u32,
    /// Of a tree, the round from which on they are here.
    pub(crate) tree_from: Option<Round>,
    pub(crate) schema: Arc<SchemaEntry>,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The first byte of the head of a whole seal.
pub(crate) const VERSION: u8 = 1;
/// The first byte of the head of a seal of which only the levels from a round on are kept.
pub(crate) const PRUNED: u8 = 2;

/// What stands for the events that are not here.
#[derive(Clone, Copy)]
enum Beside<'b> {
    /// All that survived are.
    Nothing,
    /// Of a star, the digest of all levels above the lowest one that is here.
    Above(Digest),
    /// Of a tree, the compact multiproof.
    Siblings(&'b [u8]),
}

impl Bundle {
    /// Lays out an authentic seal, its signature, and its events as they stand in a part with every surviving level. `blocks` are
    /// a star's `D_0 .. D_{L-1}`, of which those of null levels are not looked at; a tree has none.
    ///
    /// Checks what costs little: lengths, the schema's digest, that the digests of a star lead to its root; of a tree
    /// everything, because its hashes are needed. That a star's events have these digests is what the caller has verified.
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
            (seal.statement().surviving(), Beside::Nothing),
            blocks,
            events,
        )
    }

    /// The same of a tree of which only the records of the levels `kept` are here, those from a round on that survived, with their
    /// compact multiproof.
    ///
    /// # Errors
    /// [`BundleError`]; `Partial` also if `kept` is no such mask, or every record is here.
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
        Self::lay_out(seal, signature, schema, (kept, Beside::Siblings(siblings)), &[], events)
    }

    /// The same of a star of which only the surviving levels `kept` are here: those from a round on. `above` is `A_{b-1}`, `b` the
    /// lowest of them (the number of levels if there is none, so that `above` is the root).
    ///
    /// # Errors
    /// [`BundleError`]; `Partial` also if `kept` is no such mask, or is all that survived.
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
        Self::lay_out(seal, signature, schema, (kept, Beside::Above(above)), blocks, events)
    }

    fn lay_out(
        seal: &Seal<Authentic>,
        signature: &[u8],
        schema: &Arc<SchemaEntry>,
        (kept, beside): (u32, Beside<'_>),
        blocks: &[Digest],
        events: &[u8],
    ) -> Result<Self, BundleError> {
        let statement = seal.statement();
        if statement.schema != schema.digest {
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
        head.push(if matches!(beside, Beside::Nothing) { VERSION } else { PRUNED });
        head.extend_from_slice(&statement.epoch.0.to_be_bytes());
        head.extend_from_slice(&record_size(framing).to_be_bytes());
        head.extend_from_slice(&(events.len() as u64).to_be_bytes());
        // The longest signed object is a statement of 800 bytes and a signature of 2,420.
        #[allow(clippy::cast_possible_truncation)]
        head.extend_from_slice(&(sign1.len() as u16).to_be_bytes());
        head.extend_from_slice(&sign1);
        match beside {
            Beside::Nothing => {}
            Beside::Above(above) => {
                head.extend_from_slice(&kept.to_be_bytes());
                head.extend_from_slice(&above.0);
            }
            Beside::Siblings(siblings) => {
                head.extend_from_slice(&kept.to_be_bytes());
                head.extend_from_slice(&(siblings.len() as u64 / 32).to_be_bytes());
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
                let (from, above) = match beside {
                    Beside::Above(above) => (lowest(kept, levels), above),
                    Beside::Nothing | Beside::Siblings(_) => (0, star::chain_start()),
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
                let (body, root) = match beside {
                    Beside::Siblings(siblings) => {
                        let pruned = Some(Pruned::new(statement, kept, siblings.len() as u64 / 32));
                        let geometry = Geometry { n, framing, events: events.len() as u64, pruned };
                        tiles::lay_out_pruned(&Host::detect(), geometry, events, siblings)
                            .ok_or(BundleError::Partial)?
                    }
                    // Where records are missing, the multiproof is as well.
                    _ if u64::from(statement.counters.masked(kept)) < n => {
                        return Err(BundleError::Partial);
                    }
                    _ => tiles::lay_out(&Host::detect(), framing, n, events),
                };
                if root != *seal.root() {
                    return Err(BundleError::Partial);
                }
                body
            }
        };
        let tree_from = kept_from(statement, kept).filter(|_| statement.scheme == Scheme::Tree);
        Ok(Self {
            key: SealKey::of(seal),
            epoch: statement.epoch,
            kept,
            tree_from,
            schema: Arc::clone(schema),
            head,
            body,
        })
    }

    /// A place for a bundle that is yet to be made.
    #[cfg(feature = "conformance")]
    pub(crate) fn empty() -> Self {
        let key = SealKey { device: DeviceId([0; 8]), index: SealIndex(0), digest: Digest::NULL };
        let schema =
            SchemaEntry { bytes: Vec::new(), digest: Digest::NULL, framing: Framing::Prefixed };
        let (kept, tree_from, head, body) = (0, None, Vec::new(), Vec::new());
        Self { key, epoch: EpochNumber(0), kept, tree_from, schema: Arc::new(schema), head, body }
    }

    /// Lays out a part that a [`StreamReader`](moteseal_verify::StreamReader) has proven.
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
                // Where levels below the lowest one selected survived, the first digest of a part is that of all of them.
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

    /// The levels whose events are here, as a bit mask: all that survived, or those of them from a round on.
    #[must_use]
    pub const fn kept(&self) -> u32 {
        self.kept
    }

    /// What addresses it.
    #[must_use]
    pub const fn key(&self) -> SealKey {
        self.key
    }

    /// The bytes a store keeps of it, schema and index aside.
    #[must_use]
    pub const fn stored_bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// What a store has to keep: the head and the body. [`StoredSeal`](crate::StoredSeal) reads them back.
    #[must_use]
    pub fn rows(&self) -> (&[u8], &[u8]) {
        (&self.head, &self.body)
    }

    /// The seal's epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// The schema of its records.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.schema
    }
}

/// A framing in two bytes: the records' size, 0 for records behind their length.
fn record_size(framing: Framing) -> u16 {
    match framing {
        Framing::Fixed(size) => size.get(),
        Framing::Prefixed => 0,
    }
}
