//! A trait for the hashing loops that take most of a verifier's time. Hosts compute several hashes
//! at once (crate `moteseal-lanes`), and motes compute one hash at a time. Every implementation
//! must return the same bytes as [`Scalar`].

use crate::level::LevelKey;
use crate::level::{Counters, Salt};
use crate::star::{self, Served};
use crate::tree::{self, MultiproofError, Tree, TreeFull};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, Framing, Level, SealIndex, Sequence};
use moteseal_core::schema::GroupLayout;

/// Hashing loops over many independent inputs. The provided methods are the reference
/// implementation.
pub trait Engine {
    /// Writes the levels of the events `first, first + 1, ...` to `out`, one per byte, in a group
    /// of `levels` levels.
    fn levels(&self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) {
        let key = LevelKey::new(salt);
        for (seq, level) in (first..).zip(out) {
            *level = key.level(seq, levels).0;
        }
    }

    /// Counts the events `0 .. n` of each level.
    fn counters(&self, salt: &Salt, levels: u8, n: u32) -> Counters {
        Counters::of(salt, levels, n)
    }

    /// Writes the digests `D_i` of a star's blocks to `out`, from level 0 up, until `out` is full.
    /// `blocks[i]` is the block of level `i` as encoded in a bundle; the digest of an empty block
    /// is null.
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

    /// Computes the block digests and the root of each star.
    fn star_roots<'s, 'a: 's>(&self, stars: &mut dyn Iterator<Item = &'s mut Served<'a>>) {
        for star in stars {
            self.block_digests(star.device, star.index, &star.blocks, &mut star.digests);
            star.root = star.link_all();
        }
    }

    /// Writes the digests `D_i` of the blocks in the part of a star with column groups to the part, and the
    /// digests `D_ig` of the groups that it shows. [`join_groups`](star::join_groups) does so.
    /// `framing` delimits the records. `hidden` has the digests of the hidden groups, 32 bytes each:
    /// of each selected level, ascending, and of each hidden group, ascending.
    fn grouped_digests(
        &self,
        layout: &GroupLayout,
        framing: Framing,
        hidden: &[u8],
        star: &mut Served<'_>,
    ) {
        star::hash_groups(layout, framing, hidden, star);
    }

    /// Writes the RFC 9162 leaf hashes of `records`, each of `size` bytes (at least 1), to `out`,
    /// until `out` is full.
    fn leaves(&self, size: usize, records: &[u8], out: &mut [Digest]) {
        for (record, leaf) in records.chunks_exact(size).zip(out) {
            *leaf = tree::leaf(record);
        }
    }

    /// Computes the root of a tree of `n` leaves from some of its records and the multiproof of the
    /// other leaves. `selected` are the positions of the records, ascending, and `records` is their
    /// encoding. See [`multiproof_root`](tree::multiproof_root).
    ///
    /// # Errors
    /// [`MultiproofError`]. If there are several errors, an implementation may return any of them.
    /// A missing record is treated as an empty record.
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

    /// Writes the RFC 9162 node hashes of neighbouring pairs of `children` to `out`. `children`
    /// must be twice as long as `out`.
    fn nodes(&self, children: &[Digest], out: &mut [Digest]) {
        for (pair, node) in children.chunks_exact(2).zip(out) {
            *node = tree::node(&pair[0], &pair[1]);
        }
    }
}

/// The engine that computes one hash at a time: the reference implementation, and the engine of
/// motes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl Engine for Scalar {}

/// Number of leaves that [`Tree::extend`] hashes at a time. It is large enough to fill a host's
/// vector lanes, and the buffers take 6 KiB of stack.
const BATCH: usize = 128;

impl<const H: usize> Tree<H> {
    /// Adds all records in `records`, each of `size` bytes (at least 1), as if they were pushed one
    /// by one. A remainder of fewer than `size` bytes is ignored.
    ///
    /// # Errors
    /// [`TreeFull`] if not all records fit. The tree is then unchanged.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn extend(
        &mut self,
        engine: &impl Engine,
        size: usize,
        records: &[u8],
    ) -> Result<(), TreeFull> {
        let mut left = records.len() / size;
        if left as u64 > Self::CAPACITY - self.len() {
            return Err(TreeFull);
        }
        let mut records = records;
        let (mut lower, mut upper) = ([Digest::NULL; BATCH], [Digest::NULL; BATCH / 2]);
        while left > 0 {
            // Choose the largest perfect subtree that can start at this position and that the
            // remaining records can fill.
            let height = self.len().trailing_zeros().min(left.ilog2()).min(BATCH.ilog2());
            let count = 1 << height;
            let (batch, rest) = records.split_at(count * size);
            engine.leaves(size, batch, &mut lower[..count]);
            self.0.append(height, perfect_root(engine, &mut lower, &mut upper, count));
            (records, left) = (rest, left - count);
        }
        Ok(())
    }
}

/// Returns the root over the first `count` digests of `lower`. `count` must be a power of two.
/// Overwrites both buffers.
fn perfect_root(
    engine: &impl Engine,
    lower: &mut [Digest],
    upper: &mut [Digest],
    count: usize,
) -> Digest {
    let (mut from, mut to, mut count) = (lower, upper, count);
    while count > 1 {
        engine.nodes(&from[..count], &mut to[..count / 2]);
        (from, to, count) = (to, from, count / 2);
    }
    from[0]
}
