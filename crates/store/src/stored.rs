//! What comes out of a store: a seal as it was laid out by [`Bundle`](crate::Bundle), and where its events lie.
//!
//! Nothing here is trusted for more than it is: the head decodes and belongs to its key (the digest is recomputed), which is
//! what a cloud needs to serve it. Whether the seal is authentic and the events are the sealed ones is for whoever receives
//! them, and for [`check`](crate::check), to verify.

use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, MAX_LEVELS, Round};
use moteseal_seal::Unverified;
use moteseal_seal::level::lowest;
use moteseal_seal::{Seal, star};
use moteseal_verify::{kept_from, write};

use crate::bundle::{PRUNED, SealKey, VERSION};
use crate::tiles::{Geometry, Pruned};

/// A stored seal: all but its events.
#[derive(Clone, Debug)]
pub struct StoredSeal {
    seal: Seal<Unverified>,
    sign1: Vec<u8>,
    signature: Range<usize>,
    blocks: Vec<Digest>,
    /// The levels whose events are stored.
    kept: u32,
    /// Where not all that survived is: the digest of what stands above the lowest level that is kept.
    above: Option<Digest>,
    /// The same of a tree: which records are, and how many digests stand for the others.
    pruned: Option<Pruned>,
    framing: Framing,
    /// Bytes of a star's block, by level.
    lengths: [u64; MAX_LEVELS],
    events: u64,
    body: u64,
    /// The body, where the store keeps it with the head.
    inline: Option<Vec<u8>>,
}

impl StoredSeal {
    /// Reads the head of the seal `key`, and the body where that follows. `None` if the bytes are not that.
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
        // The signature stands at the end of the object.
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
        // Of a tree every record is there, or there is what stands for the others.
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

    /// What addresses it.
    #[must_use]
    pub fn key(&self) -> SealKey {
        SealKey::of(&self.seal)
    }

    /// The seal. Its statement says what there is to know: epoch, counters, schema.
    #[must_use]
    pub const fn seal(&self) -> &Seal<Unverified> {
        &self.seal
    }

    /// The seal's signature.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.sign1[self.signature.clone()]
    }

    /// The whole signed object, a tagged `COSE_Sign1`, as the explaining form carries it.
    #[must_use]
    pub fn sign1(&self) -> &[u8] {
        &self.sign1
    }

    /// A star's `D_0 .. D_{L-1}`, null where the events are not kept; of a tree none.
    #[must_use]
    pub fn blocks(&self) -> &[Digest] {
        &self.blocks
    }

    /// The levels whose events are stored, as a bit mask.
    #[must_use]
    pub const fn kept(&self) -> u32 {
        self.kept
    }

    /// The round with regard to which the seal is whole: every level that survived from it on is stored. 0 if all are.
    #[must_use]
    pub fn kept_from(&self) -> Round {
        kept_from(self.seal.statement(), self.kept).unwrap_or(Round(0))
    }

    /// Of a tree, the round from which on it is kept.
    pub(crate) fn tree_from(&self) -> Option<Round> {
        (self.seal.statement().scheme == Scheme::Tree).then(|| self.kept_from())
    }

    /// Where not every level is kept: the lowest one that is (the number of levels if there is none) and the digest of all above
    /// it, `A_{b-1}`. Else 0 and the start of the chain.
    #[must_use]
    pub fn above(&self) -> (u8, Digest) {
        let levels = self.seal.statement().counters.levels();
        self.above.map_or((0, star::chain_start()), |above| (lowest(self.kept, levels), above))
    }

    /// The digests that a star's part of the levels `mask` carries, all of them kept, joined.
    #[must_use]
    pub fn evidence(&self, mask: u32) -> Vec<u8> {
        write::pruned_evidence(&self.seal, self.above(), &self.blocks, mask)
    }

    /// The digests of the explaining form (spec/formats.md, section 6): of a star `D_0 .. D_{L-1}`, where not every level is kept
    /// behind `A_{b-1}`; of a tree none.
    #[must_use]
    pub fn explaining(&self) -> Vec<Digest> {
        self.above.iter().chain(&self.blocks).copied().collect()
    }

    /// How its records lie next to each other.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// How many events are stored: those of the levels that are kept.
    #[must_use]
    pub fn stored_events(&self) -> u32 {
        self.seal.statement().counters.masked(self.kept)
    }

    /// How many bytes of events are stored.
    #[must_use]
    pub const fn events_length(&self) -> u64 {
        self.events
    }

    /// The length of the body.
    #[must_use]
    pub const fn body_length(&self) -> u64 {
        self.body
    }

    /// The body, where it was stored together with the head.
    #[must_use]
    pub fn inline_body(&self) -> Option<&[u8]> {
        self.inline.as_deref()
    }

    /// Where the blocks of the levels `mask` lie in the body of a star, finest first; neighbours are joined.
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
        let Self { framing, events, pruned, .. } = *self;
        Geometry { n: self.seal.statement().counters.total(), framing, events, pruned }
    }

    /// Where in the body of a tree the compact multiproof stands that all its stored records have together; empty if every record is
    /// stored.
    pub(crate) fn siblings(&self) -> Range<u64> {
        self.geometry().siblings()
    }

    /// How many bytes a part of all that is stored has at most, its records and digests.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        match self.seal.statement().scheme {
            Scheme::Star => self.events,
            Scheme::Tree => self.siblings().end - self.siblings().start + self.events,
        }
    }
}

/// The levels that a head keeps, without reading the rest of it; `None` for all that survived.
pub(crate) fn kept(head: &[u8]) -> Option<u32> {
    let sign1 = u16::from_be_bytes(*head.get(19..)?.first_chunk()?);
    let kept = head.get(21 + usize::from(sign1)..)?.first_chunk()?;
    (head[0] == PRUNED).then(|| u32::from_be_bytes(*kept))
}

/// The epoch that a head names, without reading the rest of it.
pub(crate) fn epoch(head: &[u8]) -> Option<EpochNumber> {
    Some(EpochNumber(u64::from_be_bytes(head.get(1..9)?.try_into().ok()?)))
}
