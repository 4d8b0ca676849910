//! Proofs of single events of a stored tree without reading all of it: chunks of 256 records, and above them tiles of 256 hashes.
//!
//! The body of a tree is its records by `seq`; then, for records of no fixed size, where each chunk of 256 records ends (u64,
//! big-endian); then of each whole chunk its root (level 1), of each 256 whole chunks theirs (level 2), and so on. A subtree
//! of the RFC 9162 tree lies within one chunk, or within one tile of 256 hashes of some level, or on the ragged right edge,
//! which is split into such. So a multiproof for `m` scattered records reads about `m` chunks and as many tiles.

use std::collections::HashMap;
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::engine::Engine;
use moteseal_core::record::{Framing, Sequence};
use moteseal_core::seal::tree::{self, geometry};
use moteseal_lanes::merkle;

/// Records of a chunk and hashes of a tile.
pub(crate) const WIDTH: u64 = 1 << WIDTH_BITS;
const WIDTH_BITS: u32 = 8;

/// Selected records of a tree and what proves them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePart {
    /// The records by ascending `seq`, as a part carries them.
    pub records: Vec<u8>,
    /// The compact multiproof: 32-byte digests, joined.
    pub siblings: Vec<u8>,
}

/// Where everything lies in the body of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) n: u64,
    pub(crate) framing: Framing,
    pub(crate) events: u64,
}

impl Geometry {
    /// The number of hashes at a level, from 1.
    const fn hashes(&self, level: u32) -> u64 {
        if WIDTH_BITS * level >= 64 { 0 } else { self.n >> (WIDTH_BITS * level) }
    }

    fn ends(&self) -> Range<u64> {
        let chunks = if self.framing == Framing::Prefixed { self.n.div_ceil(WIDTH) } else { 0 };
        self.events..self.events + 8 * chunks
    }

    /// Where one hash of a level stands.
    fn hash_at(&self, level: u32, number: u64) -> u64 {
        self.ends().end + 32 * ((1..level).map(|level| self.hashes(level)).sum::<u64>() + number)
    }

    /// The length of the whole body.
    pub(crate) fn body_length(&self) -> u64 {
        self.ends().end + 32 * (1..=8).map(|level| self.hashes(level)).sum::<u64>()
    }
}

/// The body of a tree of `n` records, and the root they lead to. The records must be `n` of the framing, and nothing more.
pub(crate) fn lay_out(engine: &impl Engine, framing: Framing, n: u64, records: &[u8]) -> (Vec<u8>, Digest) {
    let geometry = Geometry { n, framing, events: records.len() as u64 };
    let mut body = Vec::with_capacity(usize::try_from(geometry.body_length()).unwrap_or(0));
    body.extend_from_slice(records);
    let mut hashes = match framing {
        Framing::Fixed(size) => merkle::leaves(engine, usize::from(size.get()), records),
        Framing::Prefixed => {
            let mut hashes = Vec::new();
            let mut rest = records;
            while let Some((record, tail)) = framing.split_first(rest) {
                hashes.push(tree::leaf(record));
                rest = tail;
                if (hashes.len() as u64).is_multiple_of(WIDTH) || rest.is_empty() {
                    body.extend_from_slice(&((records.len() - rest.len()) as u64).to_be_bytes());
                }
            }
            hashes
        }
    };
    let root = merkle::root(engine, &hashes);
    loop {
        // Only whole tiles have a root of their own; the ragged edge is rebuilt from what lies below.
        #[allow(clippy::cast_possible_truncation)]
        hashes.truncate(hashes.len() / WIDTH as usize * WIDTH as usize);
        if hashes.is_empty() {
            return (body, root);
        }
        for _ in 0..WIDTH_BITS {
            let mut parents = vec![Digest::NULL; hashes.len() / 2];
            engine.nodes(&hashes, &mut parents);
            hashes = parents;
        }
        body.extend(hashes.iter().flat_map(|hash| hash.0));
    }
}

/// Reads a range of a body.
pub(crate) type ReadRange<'r, E> = &'r mut dyn FnMut(Range<u64>) -> Result<Vec<u8>, E>;

/// Reads selected records and their multiproof. `selected` must ascend strictly and lie below `n`.
///
/// # Errors
/// What `read` returns, or `damaged` where what was read cannot be a tree's body.
pub(crate) fn part<E>(
    engine: &impl Engine,
    geometry: Geometry,
    selected: &[Sequence],
    read: ReadRange<'_, E>,
    damaged: impl Fn() -> E,
) -> Result<TreePart, E> {
    let mut proof = Proof { engine, geometry, read, damaged, chunk: None, tiles: HashMap::new() };
    let mut out = TreePart::default();
    // Records and siblings are taken in one walk from left to right, so that each chunk is read once.
    let mut pending = selected.iter().copied().peekable();
    for range in geometry::siblings(geometry.n, selected.iter().copied()) {
        while let Some(seq) = pending.next_if(|seq| seq.0 < range.start) {
            proof.record(seq, &mut out.records)?;
        }
        out.siblings.extend_from_slice(&proof.subtree(range)?.0);
    }
    for seq in pending {
        proof.record(seq, &mut out.records)?;
    }
    Ok(out)
}

struct Proof<'r, G, E, F> {
    engine: &'r G,
    geometry: Geometry,
    read: ReadRange<'r, E>,
    damaged: F,
    /// The chunk read last.
    chunk: Option<Chunk>,
    /// The hash trees over the tiles read so far, by level and number.
    tiles: HashMap<(u32, u64), Heights>,
}

/// A small tree: the hashes at every height, the lowest first. A last one without a neighbour is its own parent.
struct Heights(Vec<Vec<Digest>>);

struct Chunk {
    number: u64,
    bytes: Vec<u8>,
    /// Where each record starts, its length before it, and where the last one ends.
    starts: Vec<usize>,
    heights: Option<Heights>,
}

impl Heights {
    fn over(engine: &impl Engine, leaves: Vec<Digest>) -> Self {
        let mut heights = vec![leaves];
        while let Some(below) = heights.last().filter(|below| below.len() > 1) {
            let pairs = below.len() / 2;
            let mut above = vec![Digest::NULL; below.len() - pairs];
            engine.nodes(&below[..2 * pairs], &mut above[..pairs]);
            if below.len() % 2 == 1 {
                above[pairs] = below[2 * pairs];
            }
            heights.push(above);
        }
        Self(heights)
    }

    /// The root of the subtree over `count` hashes from `start` on.
    fn root(&self, start: u64, count: u64) -> Option<Digest> {
        let height = count.next_power_of_two().trailing_zeros();
        self.0.get(height as usize)?.get(usize::try_from(start >> height).ok()?).copied()
    }
}

impl<G: Engine, E, F: Fn() -> E> Proof<'_, G, E, F> {
    fn record(&mut self, Sequence(seq): Sequence, out: &mut Vec<u8>) -> Result<(), E> {
        let chunk = self.chunk(seq / WIDTH)?;
        #[allow(clippy::cast_possible_truncation)]
        let place = (seq % WIDTH) as usize;
        let record = chunk.starts.get(place).zip(chunk.starts.get(place + 1)).map(|(&start, &end)| &chunk.bytes[start..end]);
        record.map(|record| out.extend_from_slice(record)).ok_or_else(&self.damaged)
    }

    fn chunk(&mut self, number: u64) -> Result<&mut Chunk, E> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.number != number) {
            self.chunk = Some(self.load(number)?);
        }
        self.chunk.as_mut().ok_or_else(&self.damaged)
    }

    fn load(&mut self, number: u64) -> Result<Chunk, E> {
        let Geometry { n, framing, events } = self.geometry;
        let (first, last) = (number * WIDTH, n.min((number + 1) * WIDTH));
        let range = match framing {
            Framing::Fixed(size) => first * u64::from(size.get())..last * u64::from(size.get()),
            Framing::Prefixed => {
                let at = self.geometry.ends().start + 8 * number;
                let ends = (self.read)(if number == 0 { at..at + 8 } else { at - 8..at + 8 })?;
                let mut ends = ends.chunks_exact(8).map(|end| u64::from_be_bytes(end.try_into().unwrap_or_default()));
                let start = if number == 0 { 0 } else { ends.next().unwrap_or(0) };
                start..ends.next().unwrap_or(0)
            }
        };
        if range.start > range.end || range.end > events {
            return Err((self.damaged)());
        }
        let bytes = (self.read)(range)?;
        let mut starts = vec![0];
        let mut rest = &bytes[..];
        for _ in first..last {
            rest = framing.split_first(rest).ok_or_else(&self.damaged)?.1;
            starts.push(bytes.len() - rest.len());
        }
        if !rest.is_empty() {
            return Err((self.damaged)());
        }
        Ok(Chunk { number, bytes, starts, heights: None })
    }

    fn subtree(&mut self, range: Range<u64>) -> Result<Digest, E> {
        let count = range.end - range.start;
        let whole = count.is_power_of_two() && range.start.is_multiple_of(count);
        let root = if count < WIDTH && range.start / WIDTH == (range.end - 1) / WIDTH {
            let (engine, framing) = (self.engine, self.geometry.framing);
            let chunk = self.chunk(range.start / WIDTH)?;
            let heights = chunk.heights.get_or_insert_with(|| {
                let leaves = match framing {
                    Framing::Fixed(size) => merkle::leaves(engine, usize::from(size.get()), &chunk.bytes),
                    Framing::Prefixed => {
                        chunk.starts.windows(2).map(|ends| tree::leaf(&chunk.bytes[ends[0] + 2..ends[1]])).collect()
                    }
                };
                Heights::over(engine, leaves)
            });
            heights.root(range.start % WIDTH, count)
        } else if whole {
            let level = count.trailing_zeros() / WIDTH_BITS;
            let each = WIDTH_BITS * level;
            let first = range.start >> each;
            self.tile(level, first / WIDTH)?.root(first % WIDTH, count >> each)
        } else {
            let middle = range.start + geometry::split(count);
            let (left, right) = (self.subtree(range.start..middle)?, self.subtree(middle..range.end)?);
            Some(tree::node(&left, &right))
        };
        root.ok_or_else(&self.damaged)
    }

    fn tile(&mut self, level: u32, number: u64) -> Result<&Heights, E> {
        if !self.tiles.contains_key(&(level, number)) {
            let last = self.geometry.hashes(level).min((number + 1) * WIDTH);
            let range = self.geometry.hash_at(level, number * WIDTH)..self.geometry.hash_at(level, last);
            let hashes = (self.read)(range)?;
            let hashes = hashes.chunks_exact(32).map(|hash| Digest(hash.try_into().unwrap_or_default())).collect();
            self.tiles.insert((level, number), Heights::over(self.engine, hashes));
        }
        self.tiles.get(&(level, number)).ok_or_else(&self.damaged)
    }
}
