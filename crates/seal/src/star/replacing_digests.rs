//! The digests in the part of a star. They replace the blocks that are not in the part
//! (spec/answers.md, section 1).

use crate::level::{Counters, below, lowest};
use crate::statement::Statement;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, Framing, Level, MAX_LEVELS, SealIndex};

use super::{chain_start, link};

/// The digests of column groups that a verifier has computed. Without the feature `alloc`, none are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDigests {
    #[cfg(feature = "alloc")]
    digests: alloc::vec::Vec<Digest>,
}

impl GroupDigests {
    /// Returns the digests.
    #[must_use]
    pub fn as_slice(&self) -> &[Digest] {
        #[cfg(feature = "alloc")]
        return &self.digests;
        #[cfg(not(feature = "alloc"))]
        &[]
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn extend(&mut self, digests: impl IntoIterator<Item = Digest>) {
        #[cfg(feature = "alloc")]
        self.digests.extend(digests);
        #[cfg(not(feature = "alloc"))]
        let _ = digests;
    }
}

/// The content of a star's part, and the digests that a verifier computes from it.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// The number of events of each level.
    pub counters: Counters,
    /// The levels whose blocks exist, as a bit mask.
    pub surviving: u32,
    /// The levels whose blocks are in the part, as a bit mask.
    pub mask: u32,
    /// The digests that replace the other blocks, 32 bytes each, in the order of spec/answers.md,
    /// section 1.
    pub evidence: &'a [u8],
    /// The blocks as encoded in the part, by level; empty for a level that is not in the part.
    pub blocks: [&'a [u8]; MAX_LEVELS],
    /// Output: the digest `D_i` of each block; null for an empty block.
    pub digests: [Digest; MAX_LEVELS],
    /// Output: for each level in the part, ascending, the digest `D_ig` of each column group that the part
    /// shows, ascending. Empty if there are no column groups.
    pub groups: GroupDigests,
    /// Output: the root.
    pub root: Digest,
}

impl<'a> Served<'a> {
    /// Divides the events of a star's part into blocks. The sizes of `evidence` and `events` must
    /// have been checked.
    pub(crate) fn new(
        statement: &Statement,
        mask: u32,
        framing: Framing,
        evidence: &'a [u8],
        events: &'a [u8],
    ) -> Self {
        let counters = statement.counters;
        let mut blocks = [&[][..]; MAX_LEVELS];
        let mut rest = events;
        for level in (0..counters.levels()).rev().filter(|level| mask >> level & 1 == 1) {
            let length = framing.length_of(rest, counters.at(Level(level))).unwrap_or(rest.len());
            (blocks[usize::from(level)], rest) = rest.split_at(length);
        }
        let (device, index, surviving) = (statement.device, statement.index, statement.surviving());
        let (digests, root) = ([Digest::NULL; MAX_LEVELS], Digest::NULL);
        Self {
            device,
            index,
            counters,
            surviving,
            mask,
            evidence,
            blocks,
            digests,
            groups: GroupDigests::default(),
            root,
        }
    }

    /// Returns the root, computed from the digests of the blocks.
    #[must_use]
    pub fn link_all(&self) -> Digest {
        let (from, above, blocks) = self.chain();
        let levels = self.counters.as_slice().iter().zip(&blocks).skip(usize::from(from));
        levels.fold(above, |above, (&count, block)| link(&above, count, block))
    }

    /// Returns what is needed to compute the root: the level at which the computation starts, the
    /// chain over the levels below it, and the block digest of each level from there on. `digests`
    /// must have been computed.
    #[must_use]
    pub fn chain(&self) -> (u8, Digest, [Digest; MAX_LEVELS]) {
        let levels = self.counters.levels();
        let lowest = lowest(self.mask, levels);
        let mut given = self.evidence.chunks_exact(32).map(digest);
        let (from, above) = if self.surviving & below(lowest) != 0 {
            (lowest, given.next().unwrap_or(Digest::NULL))
        } else {
            (0, chain_start())
        };
        let mut blocks = [Digest::NULL; MAX_LEVELS];
        for level in lowest..levels {
            let is_here = self.mask >> level & 1 == 1 || self.surviving >> level & 1 == 0;
            let level = usize::from(level);
            blocks[level] =
                if is_here { self.digests[level] } else { given.next().unwrap_or(Digest::NULL) };
        }
        (from, above, blocks)
    }
}

/// Returns the number of digests in the part of a star. There is one digest for all levels below
/// the lowest selected level, if any of their blocks exists, and one for each existing block above
/// it that is not selected.
#[must_use]
pub fn star_digests(surviving: u32, mask: u32) -> u32 {
    let lowest = lowest(mask, 32);
    let under = surviving & below(lowest) != 0;
    let above = surviving & !mask & !below(lowest);
    u32::from(under) + above.count_ones()
}

/// Writes the digests of a star's part that contains the levels `mask` to `out`, and returns their
/// number. `blocks` are the digests `D_i` of all levels.
pub fn star_evidence(
    statement: &Statement,
    blocks: &[Digest],
    mask: u32,
    out: &mut [Digest; MAX_LEVELS],
) -> usize {
    pruned_evidence(statement, (0, chain_start()), blocks, mask, out)
}

/// Does the same as [`star_evidence`] if the digests `D_i` are known only from a level `b` on.
/// `from` contains `b` and `A_{b-1}`, the chain over the lower levels. `mask` must not contain a
/// level below `b`.
pub fn pruned_evidence(
    statement: &Statement,
    from: (u8, Digest),
    blocks: &[Digest],
    mask: u32,
    out: &mut [Digest; MAX_LEVELS],
) -> usize {
    let levels = statement.counters.levels();
    let surviving = statement.surviving();
    let lowest = lowest(mask, levels);
    let mut count = 0;
    if surviving & below(lowest) != 0 {
        out[0] = (from.0..lowest).fold(from.1, |above, level| {
            link(&above, statement.counters.at(Level(level)), &blocks[usize::from(level)])
        });
        count = 1;
    }
    for level in (lowest..levels).filter(|level| surviving & !mask & 1 << level != 0) {
        out[count] = blocks[usize::from(level)];
        count += 1;
    }
    count
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::NULL;
    digest.0.copy_from_slice(bytes);
    digest
}
