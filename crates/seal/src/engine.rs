//! The few hashing loops that dominate a verifier's time, behind one trait, so that a host can run several lanes at once
//! (crate `moteseal-lanes`) and a mote one. Every implementation gives the same bytes as [`Scalar`].

use crate::level::LevelKey;
use crate::level::{Counters, Salt};
use crate::star::{self, Served};
use crate::tree::{self, MultiproofError};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, Framing, Level, SealIndex, Sequence};

/// Hashing loops over many independent inputs. The provided methods are the reference.
pub trait Engine {
    /// The levels of events `first, first + 1, ...`, one a byte of `out`, in a group of `levels` levels.
    fn levels(&self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) {
        let key = LevelKey::new(salt);
        for (seq, level) in (first..).zip(out) {
            *level = key.level(seq, levels).0;
        }
    }

    /// The counts of `level(0) .. level(n - 1)`.
    fn counters(&self, salt: &Salt, levels: u8, n: u32) -> Counters {
        Counters::of(salt, levels, n)
    }

    /// The digests `D_i` of a star's blocks, `blocks[i]` that of level `i` as it lies in a bundle; null where a block is empty.
    /// As many as `out` holds.
    fn block_digests(
        &self,
        device: DeviceId,
        index: SealIndex,
        blocks: &[&[u8]],
        out: &mut [Digest],
    ) {
        for ((level, block), digest) in (0..).map(Level).zip(blocks).zip(out) {
            *digest = if block.is_empty() {
                Digest::NULL
            } else {
                star::block_digest(device, index, level, block)
            };
        }
    }

    /// The digests of the blocks of each star, and its root.
    fn star_roots<'s, 'a: 's>(&self, stars: &mut dyn Iterator<Item = &'s mut Served<'a>>) {
        for star in stars {
            self.block_digests(star.device, star.index, &star.blocks, &mut star.digests);
            star.root = star.link_all();
        }
    }

    /// RFC 9162 leaf hashes of the records of `size` bytes (at least 1) in `records`, as many as `out` holds.
    fn leaves(&self, size: usize, records: &[u8], out: &mut [Digest]) {
        for (record, leaf) in records.chunks_exact(size).zip(out) {
            *leaf = tree::leaf(record);
        }
    }

    /// The root of a tree of `n` leaves from the records at the positions `selected`, ascending, as they lie in `records`, and the
    /// multiproof of the rest: [`multiproof_root`](tree::multiproof_root).
    ///
    /// # Errors
    /// [`MultiproofError`], either one where two things are wrong; a missing record counts as an empty one.
    fn multiproof_root(
        &self,
        n: u64,
        framing: Framing,
        records: &[u8],
        selected: &mut dyn Iterator<Item = Sequence>,
        siblings: &[u8],
    ) -> Result<Digest, MultiproofError> {
        let mut rest = records;
        let leaves = selected.map(|seq| {
            let (record, tail) = framing.split_first(rest).unwrap_or((&[], &[]));
            rest = tail;
            (seq, tree::leaf(record))
        });
        tree::multiproof_root(n, leaves, siblings)
    }

    /// RFC 9162 node hashes of neighbouring pairs: `children` holds twice as many as `out`.
    fn nodes(&self, children: &[Digest], out: &mut [Digest]) {
        for (pair, node) in children.chunks_exact(2).zip(out) {
            *node = tree::node(&pair[0], &pair[1]);
        }
    }
}

/// One lane: the reference, and what a mote runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl Engine for Scalar {}
