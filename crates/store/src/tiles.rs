//! The layout of a tree's body in a store, which allows single events to be proven without reading
//! the whole tree. It has chunks of 256 records, and tiles of 256 hashes above them.
//!
//! The body of a tree contains, in this order:
//!
//! - the records in the order of `seq`
//! - for records of variable size, the end of each chunk of 256 records (u64, big-endian)
//! - the root of each whole chunk (level 1)
//! - the root of each group of 256 whole chunks (level 2), and so on for higher levels
//!
//! Every subtree of the RFC 9162 tree is within one chunk, within one tile of 256 hashes of a
//! level, or at the right edge. A subtree at the right edge is split into subtrees of the first two
//! kinds. A multiproof for `m` scattered records therefore reads about `m` chunks and as many
//! tiles.
//!
//! A **pruned** tree has only the records of some levels and their compact multiproof. A place is
//! the position of a record in the tree: its sequence number. The number of places per chunk of a
//! pruned tree is such that a chunk has 256 stored records on average. The records are followed by
//! two u64 per chunk: the end of the chunk's records, and the number of digests of the multiproof
//! up to the end of the chunk. After these numbers follow the multiproof and the hashes of levels
//! 1, 2 and so on, as above. Every subtree that has a stored record, or whose root is in the
//! multiproof, can be rebuilt from this data. The compact multiproof of any smaller selection can
//! therefore be computed. If a subtree whose root is in the multiproof spans several chunks, the
//! stored hash of its first chunk is that root, and the stored hashes of its other chunks are null.
//! A node whose right child is null equals its left child.
//!
//! With **column groups**, a seal has a tree for each group over the same records (spec/groups.md,
//! section 4). The multiproofs of the trees have the same shape and follow each other, in ascending
//! order of the groups. So do the hashes: all those of the first tree, then all those of the second.

use std::collections::HashMap;
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, Sequence};
use moteseal_lanes::merkle;
use moteseal_seal::Statement;
use moteseal_seal::engine::Engine;
use moteseal_seal::level::Salt;
use moteseal_seal::level::lowest;
use moteseal_seal::tree::{self, geometry};

pub(crate) use leaves::Leaves;

/// The number of records in a chunk, and of hashes in a tile.
pub(crate) const WIDTH: u64 = 1 << WIDTH_BITS;
const WIDTH_BITS: u32 = 8;

/// Selected records of a tree and their proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePart {
    /// The records in ascending order of `seq`, encoded as in a part of a stream.
    pub records: Vec<u8>,
    /// The compact multiproof: 32-byte digests, concatenated. With column groups, that of each group, or
    /// the root of the seal if no record is selected.
    pub siblings: Vec<u8>,
}

/// The layout of the body of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) n: u64,
    pub(crate) framing: Framing,
    pub(crate) events: u64,
    /// The number of trees over the records: that of the column groups, or 1.
    pub(crate) trees: u64,
    /// For a pruned tree, which records are stored.
    pub(crate) pruned: Option<Pruned>,
}

/// Which records of a pruned tree are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pruned {
    salt: Salt,
    levels: u8,
    /// The levels whose records are stored.
    kept: u32,
    /// The number of digests in the compact multiproof of these records, in each tree.
    siblings: u64,
    /// The base-2 logarithm of the number of places that a chunk covers.
    chunk_bits: u32,
}

impl Pruned {
    /// Describes a tree with only the records of the levels `kept`, and with a multiproof of
    /// `siblings` digests in each tree.
    pub(crate) fn new(statement: &Statement, kept: u32, siblings: u64) -> Self {
        let levels = statement.counters.levels();
        // On average one record in 2^i is at level i or above, and one in 2^(levels - 1) is at the
        // last level.
        let chunk_bits = WIDTH_BITS + u32::from(lowest(kept, levels).min(levels.saturating_sub(1)));
        Self { salt: statement.salt, levels, kept, siblings, chunk_bits }
    }

    /// Returns the places in `range` that have stored records, counted from the start of `range`.
    fn places(&self, engine: &impl Engine, range: Range<u64>) -> Vec<Sequence> {
        let (mut places, mut chunk) = (Vec::new(), [0; 1024]);
        let mut first = if self.kept == 0 { range.end } else { range.start };
        while first < range.end {
            #[allow(clippy::cast_possible_truncation)]
            let length = (range.end - first).min(chunk.len() as u64) as usize;
            engine.levels(&self.salt, self.levels, first, &mut chunk[..length]);
            let kept =
                (first..).zip(&chunk[..length]).filter(|(_, level)| self.kept >> **level & 1 == 1);
            places.extend(kept.map(|(seq, _)| Sequence(seq - range.start)));
            first += length as u64;
        }
        places
    }
}

impl Geometry {
    /// Returns the base-2 logarithm of the number of places that a chunk covers.
    fn chunk_bits(&self) -> u32 {
        self.pruned.map_or(WIDTH_BITS, |pruned| pruned.chunk_bits)
    }

    fn chunks(&self) -> u64 {
        self.n.div_ceil(1 << self.chunk_bits())
    }

    /// Returns the number of stored hashes of a level. The lowest level is 1.
    fn hashes(&self, level: u32) -> u64 {
        self.n.checked_shr(self.chunk_bits() + WIDTH_BITS * (level - 1)).unwrap_or(0)
    }

    /// Returns the range of the body that contains the ends of the chunks.
    fn ends(&self) -> Range<u64> {
        let each = match (self.pruned, self.framing) {
            (Some(_), _) => 16,
            (None, Framing::Prefixed) => 8,
            (None, Framing::Fixed(_)) => 0,
        };
        self.events..self.events + each * self.chunks()
    }

    /// Returns the range of the body that contains a pruned tree's multiproof, or those of all trees.
    pub(crate) fn siblings(&self) -> Range<u64> {
        let start = self.ends().end;
        start..start + 32 * self.trees * self.pruned.map_or(0, |pruned| pruned.siblings)
    }

    /// Returns the position in the body of the digest with number `number` of a tree's multiproof.
    fn sibling_at(&self, tree: usize, number: u64) -> u64 {
        let before = self.pruned.map_or(0, |pruned| pruned.siblings) * tree as u64;
        self.siblings().start + 32 * (before + number)
    }

    /// Returns the number of stored hashes of a tree.
    fn hashes_of_tree(&self) -> u64 {
        (1..=8).map(|level| self.hashes(level)).sum()
    }

    /// Returns the position in the body of one hash of a level of a tree.
    fn hash_at(&self, tree: usize, level: u32, number: u64) -> u64 {
        let lower = (1..level).map(|level| self.hashes(level)).sum::<u64>();
        self.siblings().end + 32 * (self.hashes_of_tree() * tree as u64 + lower + number)
    }

    /// Returns the length of the whole body, in bytes.
    pub(crate) fn body_length(&self) -> u64 {
        self.siblings().end + 32 * self.trees * self.hashes_of_tree()
    }
}

/// Returns the body of a tree of `n` records, and the root of the seal. `records` must be exactly `n`
/// records of the framing.
pub(crate) fn lay_out(
    engine: &impl Engine,
    leaves: &Leaves<'_>,
    (framing, n): (Framing, u64),
    records: &[u8],
) -> (Vec<u8>, Digest) {
    let (events, trees) = (records.len() as u64, leaves.trees() as u64);
    let geometry = Geometry { n, framing, events, trees, pruned: None };
    let mut body = Vec::with_capacity(usize::try_from(geometry.body_length()).unwrap_or(0));
    body.extend_from_slice(records);
    if framing == Framing::Prefixed {
        let (mut rest, mut count) = (records, 0_u64);
        while let Some((_, tail)) = framing.split_first(rest) {
            (rest, count) = (tail, count + 1);
            if count.is_multiple_of(WIDTH) || rest.is_empty() {
                body.extend_from_slice(&((records.len() - rest.len()) as u64).to_be_bytes());
            }
        }
    }
    let mut roots = Vec::new();
    for tree in 0..leaves.trees() {
        let mut hashes = leaves.hashes(engine, tree, framing, records);
        roots.push(merkle::root(engine, &hashes));
        whole_tiles(&mut hashes);
        lay_out_hashes(engine, roots_of_tiles(engine, hashes), &mut body);
    }
    (body, leaves.join(&roots))
}

/// Returns the body of a pruned tree, and the root of the seal that follows from its records and their
/// multiproofs. Returns `None` if the number of records or digests does not match `geometry`.
pub(crate) fn lay_out_pruned(
    engine: &impl Engine,
    leaves: &Leaves<'_>,
    geometry: Geometry,
    records: &[u8],
    siblings: &[u8],
) -> Option<(Vec<u8>, Digest)> {
    let pruned = geometry.pruned?;
    let mut body = Vec::with_capacity(usize::try_from(geometry.body_length()).ok()?);
    body.extend_from_slice(records);
    let length = usize::try_from(32 * pruned.siblings).ok()?;
    if siblings.len() != leaves.trees().checked_mul(length)? {
        return None;
    }
    let of_tree = |tree: usize| &siblings[tree * length..(tree + 1) * length];
    let mut digests: Vec<&[u8]> = (0..leaves.trees()).map(of_tree).collect();
    let mut rest = records;
    let mut roots = vec![Vec::new(); leaves.trees()];
    // `spanned`: the end of the last subtree of the multiproof that spans several chunks. `empty`:
    // no record is stored between the current chunk and this place.
    let (mut spanned, mut empty) = (0, 0);
    let width = 1u64 << geometry.chunk_bits();
    for start in (0..geometry.chunks()).map(|chunk| chunk * width) {
        let end = geometry.n.min(start + width);
        let is_whole = end - start == width;
        if end <= spanned {
            // The chunk is inside a subtree whose root is in the multiproof. It has no records, and
            // its own root is unknown.
            roots.iter_mut().for_each(|roots| roots.extend(is_whole.then_some(Digest::NULL)));
        } else {
            let places = pruned.places(engine, start..end);
            if places.is_empty() && empty < end {
                empty = empty_to(engine, &pruned, geometry, end);
            }
            let spans = if places.is_empty() {
                geometry::widest(geometry.n, start, empty).end
            } else {
                end
            };
            if spans > end {
                spanned = spans;
                // An incomplete subtree at the right edge is not a subtree of any tile, so its root
                // is only in the multiproof.
                let perfect = (spans - start).is_power_of_two();
                for (digests, roots) in digests.iter_mut().zip(&mut roots) {
                    let (first, tail) = digests.split_first_chunk()?;
                    *digests = tail;
                    let root = if perfect { Digest(*first) } else { Digest::NULL };
                    roots.extend(is_whole.then_some(root));
                }
            } else {
                let length = geometry.framing.length_of(rest, u32::try_from(places.len()).ok()?)?;
                let (mine, others) = rest.split_at_checked(length)?;
                let count = geometry::siblings(end - start, places.iter().copied()).count();
                rest = others;
                for (tree, (digests, roots)) in digests.iter_mut().zip(&mut roots).enumerate() {
                    let (proof, tail) = digests.split_at_checked(32 * count)?;
                    *digests = tail;
                    if is_whole {
                        let (shape, places) = ((width, geometry.framing), places.iter().copied());
                        roots.push(leaves.root_of(engine, tree, shape, mine, places, proof)?);
                    }
                }
            }
        }
        body.extend_from_slice(&((records.len() - rest.len()) as u64).to_be_bytes());
        let left = digests.first().map_or(0, |digests| digests.len());
        body.extend_from_slice(&((length - left) as u64 / 32).to_be_bytes());
    }
    if !rest.is_empty() || digests.iter().any(|digests| !digests.is_empty()) {
        return None;
    }
    body.extend_from_slice(siblings);
    roots.into_iter().for_each(|roots| lay_out_hashes(engine, roots, &mut body));
    let read = |range: Range<u64>| {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        body.get(range).map(<[u8]>::to_vec)
    };
    let mut read = |range| read(range).ok_or(());
    let root = Proof::new(engine, leaves, geometry, &mut read, || ()).root().ok()?;
    Some((body, root))
}

/// Returns the start of the first chunk, from `start` on, that has a stored record, or the end of
/// the tree if there is none.
fn empty_to(engine: &impl Engine, pruned: &Pruned, geometry: Geometry, start: u64) -> u64 {
    let width = 1 << geometry.chunk_bits();
    let mut at = start;
    while at < geometry.n && pruned.places(engine, at..geometry.n.min(at + width)).is_empty() {
        at += width;
    }
    at.min(geometry.n)
}

/// Drops the last hashes if they do not fill a tile.
fn whole_tiles(hashes: &mut Vec<Digest>) {
    #[allow(clippy::cast_possible_truncation)]
    hashes.truncate(hashes.len() / WIDTH as usize * WIDTH as usize);
}

/// Returns the roots of whole tiles.
fn roots_of_tiles(engine: &impl Engine, mut hashes: Vec<Digest>) -> Vec<Digest> {
    for _ in 0..WIDTH_BITS {
        hashes = parents(engine, &hashes);
    }
    hashes
}

/// Returns the parents of pairs of hashes. A last hash without a sibling is its own parent. If the
/// right hash of a pair is null, the left hash is the parent.
fn parents(engine: &impl Engine, below: &[Digest]) -> Vec<Digest> {
    let pairs = below.len() / 2;
    let mut above = vec![Digest::NULL; below.len() - pairs];
    engine.nodes(&below[..2 * pairs], &mut above[..pairs]);
    if below.len() % 2 == 1 {
        above[pairs] = below[2 * pairs];
    }
    for (pair, node) in below.chunks_exact(2).zip(&mut above) {
        if pair[1] == Digest::NULL {
            *node = pair[0];
        }
    }
    above
}

/// Appends the roots of whole chunks, then of whole tiles, level by level. Only whole tiles have a
/// stored root; the roots at the right edge are computed from the levels below.
fn lay_out_hashes(engine: &impl Engine, mut hashes: Vec<Digest>, body: &mut Vec<u8>) {
    while !hashes.is_empty() {
        body.extend(hashes.iter().flat_map(|hash| hash.0));
        whole_tiles(&mut hashes);
        hashes = roots_of_tiles(engine, hashes);
    }
}

/// A function that reads a range of a body.
pub(crate) type ReadRange<'r, E> = &'r mut dyn FnMut(Range<u64>) -> Result<Vec<u8>, E>;

/// Reads selected records and their multiproof. `selected` must be strictly ascending and below
/// `n`.
///
/// # Errors
///
/// The error of `read`, or `damaged` if the bytes read cannot be the body of a tree.
pub(crate) fn part<E>(
    engine: &impl Engine,
    leaves: &Leaves<'_>,
    geometry: Geometry,
    selected: &[Sequence],
    read: ReadRange<'_, E>,
    damaged: impl Fn() -> E,
) -> Result<TreePart, E> {
    let mut proof = Proof::new(engine, leaves, geometry, read, damaged);
    let mut out = TreePart::default();
    if selected.is_empty() {
        if geometry.n > 0 {
            out.siblings = proof.root()?.0.to_vec();
        }
        return Ok(out);
    }
    let mut siblings = vec![Vec::new(); leaves.trees()];
    // Collect records and siblings together from left to right, so that each chunk is read only
    // once.
    let mut pending = selected.iter().copied().peekable();
    for range in geometry::siblings(geometry.n, selected.iter().copied()) {
        while let Some(seq) = pending.next_if(|seq| seq.0 < range.start) {
            proof.record(seq, &mut out.records)?;
        }
        for (tree, siblings) in siblings.iter_mut().enumerate() {
            siblings.extend_from_slice(&proof.subtree(tree, range.clone())?.0);
        }
    }
    for seq in pending {
        proof.record(seq, &mut out.records)?;
    }
    out.siblings = siblings.concat();
    Ok(out)
}

struct Proof<'r, G, E, F> {
    engine: &'r G,
    leaves: &'r Leaves<'r>,
    geometry: Geometry,
    read: ReadRange<'r, E>,
    damaged: F,
    /// The chunk that was read last.
    chunk: Option<Chunk>,
    /// The hashes of the tiles read so far, by tree, level and number of the tile.
    tiles: HashMap<(usize, u32, u64), Heights>,
}

/// A small tree, as the list of hashes at each height, lowest first. A last hash without a sibling
/// is its own parent.
struct Heights(Vec<Vec<Digest>>);

struct Chunk {
    number: u64,
    bytes: Vec<u8>,
    /// The start of each record after its length prefix, and the end of the last record.
    starts: Vec<usize>,
    /// The hashes of each tree, once they are needed.
    heights: Vec<Option<Heights>>,
    /// For a pruned tree, further data of the chunk.
    extra: Option<Extra>,
}

/// The data that a chunk of a pruned tree has in addition to its records.
struct Extra {
    /// The places of the records in the chunk.
    places: Vec<Sequence>,
    /// The first places of the subtrees whose roots are in the multiproof. The next field holds
    /// these roots.
    subtrees: Vec<u64>,
    /// The roots in each tree.
    siblings: Vec<Vec<u8>>,
}

impl Chunk {
    /// Returns the bytes of the record at a place of the chunk.
    fn record(&self, place: u64) -> Option<&[u8]> {
        let number = match &self.extra {
            None => usize::try_from(place).ok()?,
            Some(extra) => extra.places.binary_search(&Sequence(place)).ok()?,
        };
        self.bytes.get(*self.starts.get(number)?..*self.starts.get(number + 1)?)
    }

    /// Returns the root of the subtree of a tree over `count` places from `start` on.
    fn root(
        &mut self,
        engine: &impl Engine,
        (leaves, tree): (&Leaves<'_>, usize),
        framing: Framing,
        start: u64,
        count: u64,
    ) -> Option<Digest> {
        if let Some(Extra { places, subtrees, siblings }) = &self.extra {
            // A subtree has the same shape as a separate tree of its size.
            let end = start + count;
            let from = places.partition_point(|place| place.0 < start);
            let to = places.partition_point(|place| place.0 < end);
            let first = subtrees.partition_point(|subtree| *subtree < start);
            let last = subtrees.partition_point(|subtree| *subtree < end);
            let records = self.bytes.get(self.starts[from]..self.starts[to])?;
            let within = places[from..to].iter().map(|place| Sequence(place.0 - start));
            let proof = siblings.get(tree)?.get(32 * first..32 * last)?;
            return leaves.root_of(engine, tree, (count, framing), records, within, proof);
        }
        let heights = self.heights.get_mut(tree)?.get_or_insert_with(|| {
            Heights::over(engine, leaves.hashes(engine, tree, framing, &self.bytes))
        });
        heights.root(start, count)
    }
}

impl Heights {
    fn over(engine: &impl Engine, leaves: Vec<Digest>) -> Self {
        let mut heights = vec![leaves];
        while let Some(below) = heights.last().filter(|below| below.len() > 1) {
            heights.push(parents(engine, below));
        }
        Self(heights)
    }

    /// Returns the root of the subtree over `count` hashes from `start` on.
    fn root(&self, start: u64, count: u64) -> Option<Digest> {
        let height = count.next_power_of_two().trailing_zeros();
        self.0.get(height as usize)?.get(usize::try_from(start >> height).ok()?).copied()
    }
}

impl<'r, G: Engine, E, F: Fn() -> E> Proof<'r, G, E, F> {
    fn new(
        engine: &'r G,
        leaves: &'r Leaves<'r>,
        geometry: Geometry,
        read: ReadRange<'r, E>,
        damaged: F,
    ) -> Self {
        Self { engine, leaves, geometry, read, damaged, chunk: None, tiles: HashMap::new() }
    }

    /// Returns the root of the seal.
    fn root(&mut self) -> Result<Digest, E> {
        let n = self.geometry.n;
        let roots: Vec<Digest> = (0..self.leaves.trees())
            .map(|tree| self.subtree(tree, 0..n))
            .collect::<Result<_, E>>()?;
        Ok(self.leaves.join(&roots))
    }

    fn record(&mut self, Sequence(seq): Sequence, out: &mut Vec<u8>) -> Result<(), E> {
        let bits = self.geometry.chunk_bits();
        let record = self
            .chunk(seq >> bits)?
            .record(seq & ((1 << bits) - 1))
            .map(|record| out.extend_from_slice(record));
        record.ok_or_else(&self.damaged)
    }

    fn chunk(&mut self, number: u64) -> Result<&mut Chunk, E> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.number != number) {
            self.chunk = Some(self.load(number)?);
        }
        self.chunk.as_mut().ok_or_else(&self.damaged)
    }

    /// Returns two numbers for each chunk from `first` to `last`: the end of its records, and the
    /// end of its digests in the multiproof. These are preceded by the two numbers of the chunk
    /// before `first`.
    fn ends(&mut self, first: u64, last: u64) -> Result<Vec<(u64, u64)>, E> {
        let each = if self.geometry.pruned.is_some() { 16 } else { 8 };
        let start = self.geometry.ends().start;
        let read = (self.read)(start + each * first.saturating_sub(1)..start + each * (last + 1))?;
        let number =
            |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let ends = read
            .chunks_exact(usize::try_from(each).unwrap_or(8))
            .map(|end| (number(end), number(&end[8..])));
        Ok((first == 0).then_some((0, 0)).into_iter().chain(ends).collect())
    }

    fn load(&mut self, number: u64) -> Result<Chunk, E> {
        let Geometry { n, framing, events, pruned, .. } = self.geometry;
        let width = 1 << self.geometry.chunk_bits();
        let (first, last) = (number * width, n.min((number + 1) * width));
        let (range, proof) = match (framing, pruned) {
            (Framing::Fixed(size), None) => {
                (first * u64::from(size.get())..last * u64::from(size.get()), 0..0)
            }
            _ => match self.ends(number, number)?[..] {
                [before, end] => (before.0..end.0, before.1..end.1),
                _ => return Err((self.damaged)()),
            },
        };
        if range.start > range.end || range.end > events {
            return Err((self.damaged)());
        }
        let bytes = (self.read)(range)?;
        let extra = match pruned {
            None => None,
            Some(pruned) => {
                if proof.start > proof.end || proof.end > pruned.siblings {
                    return Err((self.damaged)());
                }
                let places = pruned.places(self.engine, first..last);
                let subtrees = geometry::siblings(last - first, places.iter().copied())
                    .map(|range| range.start)
                    .collect();
                let mut siblings = Vec::new();
                for tree in 0..self.leaves.trees() {
                    let at = |number| self.geometry.sibling_at(tree, number);
                    siblings.push((self.read)(at(proof.start)..at(proof.end))?);
                }
                Some(Extra { places, subtrees, siblings })
            }
        };
        let count = extra.as_ref().map_or(last - first, |extra| extra.places.len() as u64);
        let mut starts = vec![0];
        let mut rest = &bytes[..];
        for _ in 0..count {
            rest = framing.split_first(rest).ok_or_else(&self.damaged)?.1;
            starts.push(bytes.len() - rest.len());
        }
        let fits = extra.as_ref().is_none_or(|extra| {
            extra.siblings.iter().all(|siblings| siblings.len() == 32 * extra.subtrees.len())
        });
        if !rest.is_empty() || !fits {
            return Err((self.damaged)());
        }
        let heights = (0..self.leaves.trees()).map(|_| None).collect();
        Ok(Chunk { number, bytes, starts, heights, extra })
    }

    fn subtree(&mut self, tree: usize, range: Range<u64>) -> Result<Digest, E> {
        let count = range.end - range.start;
        let (bits, whole) = (
            self.geometry.chunk_bits(),
            count.is_power_of_two() && range.start.is_multiple_of(count),
        );
        let width = 1 << bits;
        let root = if count < width && range.start >> bits == (range.end - 1) >> bits {
            let (engine, framing) = (self.engine, self.geometry.framing);
            let (of_tree, start) = ((self.leaves, tree), range.start & (width - 1));
            self.chunk(range.start >> bits)?.root(engine, of_tree, framing, start, count)
        } else if whole {
            let level = 1 + (count.trailing_zeros() - bits) / WIDTH_BITS;
            let each = bits + WIDTH_BITS * (level - 1);
            let first = range.start >> each;
            self.tile(tree, level, first / WIDTH)?.root(first % WIDTH, count >> each)
        } else if let Some(root) = self.ragged(tree, &range)? {
            Some(root)
        } else {
            let middle = range.start + geometry::split(count);
            let (left, right) =
                (self.subtree(tree, range.start..middle)?, self.subtree(tree, middle..range.end)?);
            Some(tree::node(&left, &right))
        };
        root.ok_or_else(&self.damaged)
    }

    /// Returns the root of a subtree at the right edge of a pruned tree, if the subtree has no
    /// stored records: the multiproof then contains its root.
    fn ragged(&mut self, tree: usize, range: &Range<u64>) -> Result<Option<Digest>, E> {
        let Some(pruned) = self.geometry.pruned else { return Ok(None) };
        let bits = self.geometry.chunk_bits();
        let (first, last) = (range.start >> bits, (range.end - 1) >> bits);
        let (before, end) =
            (self.ends(first, first)?.first().copied(), self.ends(last, last)?.last().copied());
        match (before, end) {
            (Some(before), Some(end)) if before.0 == end.0 && before.1 < pruned.siblings => {
                let at = self.geometry.sibling_at(tree, before.1);
                Ok((self.read)(at..at + 32)?.first_chunk().map(|digest| Digest(*digest)))
            }
            _ => Ok(None),
        }
    }

    fn tile(&mut self, tree: usize, level: u32, number: u64) -> Result<&Heights, E> {
        if !self.tiles.contains_key(&(tree, level, number)) {
            let last = self.geometry.hashes(level).min((number + 1) * WIDTH);
            let at = |number| self.geometry.hash_at(tree, level, number);
            let range = at(number * WIDTH)..at(last);
            let hashes = (self.read)(range)?;
            let hashes = hashes
                .chunks_exact(32)
                .map(|hash| Digest(hash.try_into().unwrap_or_default()))
                .collect();
            self.tiles.insert((tree, level, number), Heights::over(self.engine, hashes));
        }
        self.tiles.get(&(tree, level, number)).ok_or_else(&self.damaged)
    }
}

mod leaves;
#[cfg(test)]
mod tests;
