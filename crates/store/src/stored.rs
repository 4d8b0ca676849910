//! A seal that was read from a store, in the layout of [`Bundle`](crate::Bundle), and the positions
//! of its events in the body.
//!
//! Decoding checks only that the head is well formed and belongs to its key. For this it computes
//! the digest again. Clients and [`check`](crate::check) verify that the seal is authentic and that
//! the events are the ones that it covers.

use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, MAX_LEVELS, Round};
use moteseal_seal::Unverified;
use moteseal_seal::level::lowest;
use moteseal_seal::{Seal, star};
use moteseal_verify::{kept_from, write};

use crate::bundle::{PRUNED, SealKey, VERSION, trees};
use crate::tiles::{Geometry, Pruned};

/// A stored seal without its events.
#[derive(Clone, Debug)]
pub struct StoredSeal {
    seal: Seal<Unverified>,
    sign1: Vec<u8>,
    signature: Range<usize>,
    blocks: Vec<Digest>,
    /// The levels whose events are stored.
    kept: u32,
    /// For a pruned star, `A_{b-1}`: the digest of the levels below the lowest kept level `b`.
    above: Option<Digest>,
    /// For a pruned tree, which records are stored and how many digests stand in for the others.
    pruned: Option<Pruned>,
    framing: Framing,
    /// The lengths in bytes of a star's blocks, by level.
    lengths: [u64; MAX_LEVELS],
    events: u64,
    body: u64,
    /// The body, if the store keeps it in the same row as the head.
    inline: Option<Vec<u8>>,
}

impl StoredSeal {
    /// Decodes the head of the seal `key`, and the body if it follows the head. Returns `None` if
    /// `bytes` is not such a row.
    #[must_use]
    pub fn decode(key: &SealKey, bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_at_checked(1 + 8 + 2 + 8 + 2)?;
        let record_size = u16::from_be_bytes([fixed[9], fixed[10]]);
        let events = u64::from_be_bytes(fixed[11..19].try_into().ok()?);
        let (sign1, rest) =
            rest.split_at_checked(usize::from(u16::from_be_bytes([fixed[19], fixed[20]])))?;
        let (seal, signature) = Seal::decode(sign1).ok()?;
        if !matches!(fixed[0], VERSION | PRUNED)
            || SealKey::of(&seal) != *key
            || epoch(bytes)? != seal.statement().epoch
        {
            return None;
        }
        // The signature is at the end of the signed object.
        let signature = sign1.len() - signature.len()..sign1.len();
        let framing = Framing::fixed(usize::from(record_size)).unwrap_or(Framing::Prefixed);
        let statement = seal.statement();
        let counters = &statement.counters;
        let levels = counters.levels();
        let (mut kept, mut above, mut pruned, mut rest) = (statement.surviving(), None, None, rest);
        if fixed[0] == PRUNED {
            let (levels, tail) = rest.split_first_chunk()?;
            kept = u32::from_be_bytes(*levels);
            let from = kept_from(statement, kept)?;
            rest = match statement.scheme {
                Scheme::Star => {
                    let (digest, tail) = tail.split_first_chunk()?;
                    above = Some(Digest(*digest)).filter(|_| from.0 > 0);
                    above?;
                    tail
                }
                Scheme::Tree => {
                    let (count, tail) = tail.split_first_chunk()?;
                    let count = u64::from_be_bytes(*count);
                    pruned = Some(Pruned::new(statement, kept, count))
                        .filter(|_| count <= counters.total());
                    pruned?;
                    tail
                }
            };
        }
        // A tree has either every record, or digests that stand in for the missing ones.
        let lacks = u64::from(counters.masked(kept)) < counters.total();
        if statement.scheme == Scheme::Tree && lacks != pruned.is_some() {
            return None;
        }
        let mut stored = Self {
            sign1: sign1.to_vec(),
            signature,
            blocks: Vec::new(),
            kept,
            above,
            pruned,
            framing,
            lengths: [0; MAX_LEVELS],
            events,
            body: events,
            inline: None,
            seal: seal.clone(),
        };
        match statement.scheme {
            Scheme::Star => {
                stored.blocks = vec![Digest::NULL; usize::from(levels)];
                for level in (0..levels).filter(|level| kept >> level & 1 == 1) {
                    let (digest, tail) = rest.split_first_chunk()?;
                    stored.blocks[usize::from(level)] = Digest(*digest);
                    rest = tail;
                }
                for level in (0..levels).rev().filter(|level| kept >> level & 1 == 1) {
                    stored.lengths[usize::from(level)] = match framing {
                        Framing::Fixed(size) => {
                            u64::from(counters.at(Level(level))) * u64::from(size.get())
                        }
                        Framing::Prefixed => {
                            let (length, tail) = rest.split_first_chunk()?;
                            rest = tail;
                            u64::from_be_bytes(*length)
                        }
                    };
                }
                if stored.lengths.iter().try_fold(0u64, |sum, &length| sum.checked_add(length))
                    != Some(events)
                {
                    return None;
                }
            }
            Scheme::Tree => {
                let records = u64::from(counters.masked(kept));
                let exact = match framing {
                    Framing::Fixed(size) => events == records * u64::from(size.get()),
                    Framing::Prefixed => events <= records * (2 + u64::from(u16::MAX)),
                };
                if !exact {
                    return None;
                }
                stored.body = stored.geometry().body_length();
            }
        }
        if !rest.is_empty() || stored.body == 0 {
            if rest.len() as u64 != stored.body {
                return None;
            }
            stored.inline = Some(rest.to_vec());
        }
        Some(stored)
    }

    /// Returns the key of the seal.
    #[must_use]
    pub fn key(&self) -> SealKey {
        SealKey::of(&self.seal)
    }

    /// Returns the seal. Its statement contains the epoch, the counters and the digest of the
    /// schema.
    #[must_use]
    pub const fn seal(&self) -> &Seal<Unverified> {
        &self.seal
    }

    /// Returns the seal's signature.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.sign1[self.signature.clone()]
    }

    /// Returns the whole signed object, a tagged `COSE_Sign1`. The explaining form contains it
    /// unchanged.
    #[must_use]
    pub fn sign1(&self) -> &[u8] {
        &self.sign1
    }

    /// Returns a star's `D_0 .. D_{L-1}`, with null digests for the levels that are not kept. Empty
    /// for a tree.
    #[must_use]
    pub fn blocks(&self) -> &[Digest] {
        &self.blocks
    }

    /// Returns the levels whose events are stored, as a bit mask.
    #[must_use]
    pub const fn kept(&self) -> u32 {
        self.kept
    }

    /// Returns the lowest round `j` for which every surviving level `>= j` is stored. It is 0 if
    /// all surviving levels are stored.
    #[must_use]
    pub fn kept_from(&self) -> Round {
        kept_from(self.seal.statement(), self.kept).unwrap_or(Round(0))
    }

    /// For a pruned tree, returns the round `j` for which the events of levels `>= j` are stored.
    pub(crate) fn tree_from(&self) -> Option<Round> {
        (self.seal.statement().scheme == Scheme::Tree).then(|| self.kept_from())
    }

    /// For a pruned star, returns the lowest kept level `b` (the number of levels if none is kept)
    /// and `A_{b-1}`, the digest of all lower levels. Otherwise returns 0 and `A_{-1}`, the start
    /// value of the chain of digests.
    #[must_use]
    pub fn above(&self) -> (u8, Digest) {
        let levels = self.seal.statement().counters.levels();
        self.above.map_or((0, star::chain_start()), |above| (lowest(self.kept, levels), above))
    }

    /// Returns the concatenated digests that a star's part with the levels in `mask` carries. All
    /// levels in `mask` must be kept.
    #[must_use]
    pub fn evidence(&self, mask: u32) -> Vec<u8> {
        write::pruned_evidence(&self.seal, self.above(), &self.blocks, mask)
    }

    /// Returns the digests of the explaining form (`spec/answers.md`, section 5.3): for a star `D_0
    /// .. D_{L-1}`, preceded by `A_{b-1}` if it is pruned; for a tree none.
    #[must_use]
    pub fn explaining(&self) -> Vec<Digest> {
        self.above.iter().chain(&self.blocks).copied().collect()
    }

    /// Returns the framing of the seal's records.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the number of stored events, which are those of the kept levels.
    #[must_use]
    pub fn stored_events(&self) -> u32 {
        self.seal.statement().counters.masked(self.kept)
    }

    /// Returns the length of the stored events, in bytes.
    #[must_use]
    pub const fn events_length(&self) -> u64 {
        self.events
    }

    /// Returns the length of the body, in bytes.
    #[must_use]
    pub const fn body_length(&self) -> u64 {
        self.body
    }

    /// Returns the body if it is stored in the same row as the head.
    #[must_use]
    pub fn inline_body(&self) -> Option<&[u8]> {
        self.inline.as_deref()
    }

    /// Returns where the blocks of the levels in `mask` are in the body of a star, highest level
    /// first. Adjacent ranges are joined.
    pub(crate) fn block_ranges(&self, mask: u32) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        for level in (0..self.seal.statement().counters.levels()).rev() {
            let end = at + self.lengths[usize::from(level)];
            if mask >> level & 1 == 1 && at < end {
                match ranges.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => ranges.push(at..end),
                }
            }
            at = end;
        }
        ranges
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let Self { framing, events, pruned, kept, .. } = *self;
        let statement = self.seal.statement();
        let (n, trees) = (statement.counters.total(), trees(statement, kept));
        Geometry { n, framing, events, trees, pruned }
    }

    /// Returns where the compact multiproof of all stored records is in the body of a tree. With column
    /// groups, those of all groups follow each other. The
    /// range is empty if every record is stored.
    pub(crate) fn siblings(&self) -> Range<u64> {
        self.geometry().siblings()
    }

    /// Returns an upper bound on the length of the records and digests of a part with all stored
    /// events, in bytes.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        match self.seal.statement().scheme {
            Scheme::Star => self.events,
            Scheme::Tree => self.siblings().end - self.siblings().start + self.events,
        }
    }
}

/// Returns the kept levels of a pruned seal's head, without decoding the rest, or `None` if the
/// seal is not pruned.
pub(crate) fn kept(head: &[u8]) -> Option<u32> {
    let sign1 = u16::from_be_bytes(*head.get(19..)?.first_chunk()?);
    let kept = head.get(21 + usize::from(sign1)..)?.first_chunk()?;
    (head[0] == PRUNED).then(|| u32::from_be_bytes(*kept))
}

/// Returns the epoch of a head, without decoding the rest.
pub(crate) fn epoch(head: &[u8]) -> Option<EpochNumber> {
    Some(EpochNumber(u64::from_be_bytes(head.get(1..9)?.try_into().ok()?)))
}
