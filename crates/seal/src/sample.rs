//! Samples: the events of a part, and the check that they are the requested ones (spec/answers.md,
//! section 4).
//!
//! A [`Sample`] returns events only if its seal is authentic. A [`Choice`] determines exactly which
//! levels or events a response must contain, so that the sender cannot choose them. A sample that
//! has been checked against a choice is a [`UniformSample`].

mod announcement;
pub mod audit;
mod buffer;
pub mod choice;
pub mod coordinator;
pub mod epoch;
pub mod existing;
pub mod forward;
mod manifest;
mod memory;
mod owned;
pub mod permutation;
pub mod readings;

use core::fmt;
use core::marker::PhantomData;

pub use announcement::{Announcement, AnnouncementError, MAX_ANNOUNCEMENT};
pub use audit::{Doubt, Finding, Tally, Verdict};
pub use choice::{Choice, ChoiceError, Rate, UniformSample};
pub use coordinator::{Coordinator, Offer};
pub use epoch::{EpochError, WholeEpoch};
pub use forward::{Followed, Forwarder, FrameOutcome, Noted};
pub use manifest::{Manifest, ManifestDraft};
pub use owned::Kept;
pub use readings::{ReadingRun, Readings};

use crate::engine::Engine;
use crate::level::{Counters, Salt};
use crate::members::{CHUNK, selected};
use crate::seal::{Authentic, Seal, Unverified};
use crate::stream::Select;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{Framing, Level, MAX_LEVELS, Sequence};

/// The events of one part. `S` states whether the part's seal has been verified.
pub struct Sample<'a, S> {
    seal: Digest,
    scheme: Scheme,
    salt: Salt,
    counts: Counters,
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
    /// Returns the selection of the events.
    #[must_use]
    pub const fn select(&self) -> &Select<'_> {
        &self.select
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.select {
            Select::Levels(mask) => self.counts.masked(*mask),
            Select::Events(gaps) => gaps.len(),
        }
    }

    /// Returns whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, S> Sample<'a, S> {
    /// Creates the sample of a part whose sizes [`Follower`](crate::Follower) has checked, and
    /// binds it to the seal that was rebuilt from the part.
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
    /// Returns the same events as an authentic sample. `seal` must be the verified form of the seal
    /// that was rebuilt from this part; otherwise the result is `None`.
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
    /// Calls `each` with the sequence number, level and record of every event, by ascending
    /// sequence number.
    pub fn for_each(&self, engine: &impl Engine, mut each: impl FnMut(Sequence, Level, &'a [u8])) {
        self.for_each_chunk(engine, |chunk| {
            for (place, (seq, record)) in chunk.seqs.iter().zip(chunk.records).enumerate() {
                each(*seq, chunk.level(place), record);
            }
        });
    }

    /// Calls `each` with up to 256 events at a time, by ascending sequence number. This is faster
    /// than [`for_each`](Self::for_each).
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

    /// Implements `for_each_chunk`. `record_at` must return the record at a byte offset of the
    /// part's events, and the offset of the next record.
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
                        let Some((next, after)) = record_at(*cursor) else { return };
                        (*record, *cursor) = (next, after);
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

    /// Returns the offset of the first record of each level in `mask`. A star has one block after
    /// the other. A tree has the events of all levels in one sequence, so all offsets are 0.
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

/// Up to 256 consecutive selected events of a part.
#[derive(Debug)]
pub struct Chunk<'r, 'a> {
    /// The sequence numbers of the events, ascending. There is at least one.
    pub seqs: &'r [Sequence],
    /// The record of each event.
    pub records: &'r [&'a [u8]],
    levels: ChunkLevels<'r>,
}

/// How the levels of a chunk are determined.
#[derive(Debug)]
enum ChunkLevels<'r> {
    /// The levels of all events in the range of the chunk, and the positions of the selected events
    /// in this range.
    Known(&'r [u8; CHUNK], &'r [u8]),
    /// The salt and the number of levels.
    Hashed(&'r Salt, u8),
}

impl Chunk<'_, '_> {
    /// Returns the level of the event at `place`, which must be below the number of events.
    // Inlined, so that the level is not computed for callers that do not use it.
    #[inline]
    fn level(&self, place: usize) -> Level {
        match self.levels {
            ChunkLevels::Known(chunk, found) => Level(chunk[usize::from(found[place])]),
            ChunkLevels::Hashed(salt, levels) => salt.level(self.seqs[place], levels),
        }
    }
}
