//! Samples: events of a part, and the choice that made them (spec/formats.md, section 5).
//!
//! A [`Sample`] hands out events only once its seal is authentic. [`Choice`] computes which levels or events an answer must
//! hold, so that whoever answers has none: a sample whose choice was forced is [`UniformSample`].

pub mod audit;
mod buffer;
pub mod choice;
pub mod coordinator;
pub mod epoch;
pub mod existing;
pub mod forward;
mod kept;
pub mod permutation;
mod word;

use core::fmt;
use core::marker::PhantomData;

pub use audit::{Doubt, Finding, Tally, Verdict};
pub use choice::{Choice, ChoiceError, Rate, UniformSample};
pub use coordinator::{Coordinator, Offer};
pub use epoch::{EpochError, WholeEpoch};
pub use forward::{Followed, Forwarder, Heard, Noted};
pub use kept::Kept;
pub use word::{Announcement, AnnouncementError, MAX_ANNOUNCEMENT, Manifest, ManifestDraft};

use crate::engine::Engine;
use crate::level::Salt;
use crate::stream::Select;
use crate::{Authentic, Seal, Unverified};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{Framing, Level, MAX_LEVELS, Sequence};

/// The events of one part. `S` says what has been proven of its seal.
pub struct Sample<'a, S> {
    seal: Digest,
    scheme: Scheme,
    salt: Salt,
    counts: crate::level::Counters,
    framing: Framing,
    select: Select<'a>,
    events: &'a [u8],
    proven: PhantomData<S>,
}

impl<S> fmt::Debug for Sample<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("seal", &self.seal)
            .field("select", &self.select)
            .finish_non_exhaustive()
    }
}

impl<S> Sample<'_, S> {
    /// Which events these are.
    #[must_use]
    pub const fn select(&self) -> &Select<'_> {
        &self.select
    }

    /// How many events these are.
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.select {
            Select::Levels(mask) => crate::follow::masked(&self.counts, *mask),
            Select::Events(gaps) => gaps.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, S> Sample<'a, S> {
    /// The events of a part whose sizes [`Follower`](crate::Follower) has checked, bound to the seal rebuilt from them.
    pub(crate) fn new(
        seal: &Seal<S>,
        select: Select<'a>,
        events: &'a [u8],
        framing: Framing,
    ) -> Self {
        let statement = seal.statement();
        Self {
            seal: seal.digest(),
            scheme: statement.scheme,
            salt: statement.salt,
            counts: statement.counters,
            framing,
            select,
            events,
            proven: PhantomData,
        }
    }
}

impl<'a> Sample<'a, Unverified> {
    /// The same events, authentic: `seal` is the proven form of the seal that was rebuilt from them. `None` if it is another.
    #[must_use]
    pub fn proven(self, seal: &Seal<Authentic>) -> Option<Sample<'a, Authentic>> {
        (seal.digest() == self.seal).then_some(Sample {
            seal: self.seal,
            scheme: self.scheme,
            salt: self.salt,
            counts: self.counts,
            framing: self.framing,
            select: self.select,
            events: self.events,
            proven: PhantomData,
        })
    }
}

impl<'a> Sample<'a, Authentic> {
    /// Calls `each` with every event: sequence number, level and record, in order of sequence.
    pub fn for_each(&self, engine: &impl Engine, mut each: impl FnMut(Sequence, Level, &'a [u8])) {
        self.for_each_chunk(engine, |chunk| {
            for (place, (seq, record)) in chunk.seqs.iter().zip(chunk.records).enumerate() {
                each(*seq, chunk.level(place), record);
            }
        });
    }

    /// Calls `each` with some hundred events at a time, in order of sequence: for whoever makes columns of them.
    pub fn for_each_chunk(&self, engine: &impl Engine, each: impl FnMut(&Chunk<'_, 'a>)) {
        match self.framing {
            Framing::Fixed(size) => {
                let size = usize::from(size.get());
                self.chunks(
                    engine,
                    |at| Some((self.events.get(at..at.checked_add(size)?)?, at + size)),
                    each,
                );
            }
            Framing::Prefixed => self.chunks(
                engine,
                |at| {
                    let (record, rest) = self.framing.split_first(self.events.get(at..)?)?;
                    Some((record, self.events.len() - rest.len()))
                },
                each,
            ),
        }
    }

    /// `record_at` gives the record that starts at a place of the part's events, and where the next one starts.
    #[inline]
    fn chunks(
        &self,
        engine: &impl Engine,
        record_at: impl Fn(usize) -> Option<(&'a [u8], usize)>,
        mut each: impl FnMut(&Chunk<'_, 'a>),
    ) {
        let levels = self.counts.levels();
        let mut seqs = [Sequence(0); CHUNK];
        let mut records: [&'a [u8]; CHUNK] = [&[]; CHUNK];
        match &self.select {
            Select::Events(gaps) => {
                let (mut gaps, mut at, mut count) = (gaps.iter(), 0, CHUNK);
                while count == CHUNK {
                    count = 0;
                    for ((place, record), seq) in seqs.iter_mut().zip(&mut records).zip(&mut gaps) {
                        let Some((found, next)) = record_at(at) else { break };
                        (*place, *record, at) = (seq, found, next);
                        count += 1;
                    }
                    if count > 0 {
                        let levels = ChunkLevels::Hashed(&self.salt, levels);
                        each(&Chunk { seqs: &seqs[..count], records: &records[..count], levels });
                    }
                }
            }
            Select::Levels(mask) => {
                let (mut cursors, row) = (
                    self.cursors(*mask),
                    if self.scheme == Scheme::Star { MAX_LEVELS - 1 } else { 0 },
                );
                #[allow(clippy::cast_possible_truncation)]
                let total = self.counts.total() as u32;
                let mut chunks = selected(engine, &self.salt, levels, total, *mask);
                while chunks.advance() {
                    let found = &chunks.found[..chunks.count];
                    for ((seq, record), place) in seqs.iter_mut().zip(&mut records).zip(found) {
                        let cursor =
                            &mut cursors[usize::from(chunks.chunk[usize::from(*place)]) & row];
                        let Some((next, behind)) = record_at(*cursor) else { return };
                        (*record, *cursor) = (next, behind);
                        *seq = Sequence(chunks.start + u64::from(*place));
                    }
                    let levels = ChunkLevels::Known(&chunks.chunk, found);
                    each(&Chunk {
                        seqs: &seqs[..found.len()],
                        records: &records[..found.len()],
                        levels,
                    });
                }
            }
        }
    }

    /// Where the first record of each level in `mask` lies: blocks lie one behind the other in a star, all events in one row in a tree.
    fn cursors(&self, mask: u32) -> [usize; MAX_LEVELS] {
        let mut cursors = [0; MAX_LEVELS];
        if self.scheme == Scheme::Star {
            let mut at = 0;
            for level in (0..self.counts.levels()).rev().filter(|level| mask >> level & 1 == 1) {
                cursors[usize::from(level)] = at;
                let rest = self.events.get(at..).unwrap_or(&[]);
                at += self
                    .framing
                    .length_of(rest, self.counts.at(Level(level)))
                    .unwrap_or(rest.len());
            }
        }
        cursors
    }
}

/// Some events of a part that follow each other.
#[derive(Debug)]
pub struct Chunk<'r, 'a> {
    /// Their sequence numbers, ascending. At least one.
    pub seqs: &'r [Sequence],
    /// The record of each.
    pub records: &'r [&'a [u8]],
    levels: ChunkLevels<'r>,
}

/// What the levels of a chunk follow from.
#[derive(Debug)]
enum ChunkLevels<'r> {
    /// The levels of a chunk of events, and the places in it that were asked for.
    Known(&'r [u8; CHUNK], &'r [u8]),
    /// Salt and number of levels.
    Hashed(&'r Salt, u8),
}

impl Chunk<'_, '_> {
    /// The level of the event at `place`, below the number of events.
    // Inlined, it is not computed where nobody asks.
    #[inline]
    fn level(&self, place: usize) -> Level {
        match self.levels {
            ChunkLevels::Known(chunk, found) => Level(chunk[usize::from(found[place])]),
            ChunkLevels::Hashed(salt, levels) => salt.level(self.seqs[place], levels),
        }
    }
}

/// The sequence numbers below `n` whose level is in `mask`, ascending.
pub(crate) fn members<'e, E: Engine>(
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u32,
    mask: u32,
) -> impl Iterator<Item = Sequence> + Clone + use<'e, E> {
    selected(engine, salt, levels, n, mask)
}

/// The events below `n` whose level is in `mask`, ascending.
fn selected<'e, E: Engine>(
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u32,
    mask: u32,
) -> Selected<'e, E> {
    let n = if mask == 0 { 0 } else { n };
    let selects_all = (0..levels).all(|level| mask >> level & 1 == 1);
    #[allow(clippy::cast_possible_truncation)]
    let selects = core::array::from_fn(|level| (mask >> level & 1) as u8);
    let (n, chunk, found) = (u64::from(n), [0; CHUNK], PLACES);
    Selected {
        engine,
        salt,
        levels,
        n,
        selects,
        selects_all,
        start: 0,
        next: 0,
        chunk,
        found,
        at: 0,
        count: 0,
    }
}

/// As many as a byte numbers.
const CHUNK: usize = 256;

/// The places of a chunk.
const PLACES: [u8; CHUNK] = {
    let mut places = [0; CHUNK];
    let mut place = u8::MAX;
    while place > 0 {
        places[place as usize] = place;
        place -= 1;
    }
    places
};

/// Computes levels a chunk at a time, so that the engine can use its lanes.
struct Selected<'e, E> {
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u64,
    /// Whether a level is selected: 1, or 0. Looking that up is quicker than shifting a mask.
    selects: [u8; MAX_LEVELS],
    /// Whether all are: then every place of every chunk is found, from the start.
    selects_all: bool,
    /// Where the chunk starts, and where the next one does.
    start: u64,
    next: u64,
    /// The levels of the chunk.
    chunk: [u8; CHUNK],
    /// Which places of it are selected, how many have been handed out, and how many there are.
    found: [u8; CHUNK],
    at: usize,
    count: usize,
}

impl<E> Clone for Selected<'_, E> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<E: Engine> Selected<'_, E> {
    /// Goes on to the next chunk that has selected events; whether there is one.
    fn advance(&mut self) -> bool {
        (self.at, self.count) = (0, 0);
        while self.count == 0 && self.next < self.n {
            #[allow(clippy::cast_possible_truncation)]
            let length = (self.n - self.next).min(CHUNK as u64) as usize;
            let chunk = &mut self.chunk[..length];
            self.engine.levels(self.salt, self.levels, self.next, chunk);
            self.count = if self.selects_all {
                length
            } else {
                // Without a branch: at a low rate few of many are selected, and nobody can guess which.
                let mut count = 0;
                for (place, level) in PLACES.iter().zip(chunk) {
                    self.found[count % CHUNK] = *place;
                    count += usize::from(self.selects[usize::from(*level) % MAX_LEVELS]);
                }
                count
            };
            (self.start, self.next) = (self.next, self.next + length as u64);
        }
        self.count > 0
    }
}

impl<E: Engine> Iterator for Selected<'_, E> {
    type Item = Sequence;

    fn next(&mut self) -> Option<Sequence> {
        if self.at == self.count && !self.advance() {
            return None;
        }
        let place = self.found[self.at];
        self.at += 1;
        Some(Sequence(self.start + u64::from(place)))
    }
}
