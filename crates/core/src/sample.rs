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
pub use word::{Announcement, MAX_ANNOUNCEMENT, Manifest, ManifestDraft, WordError};

use crate::digest::Digest;
use crate::engine::Engine;
use crate::level::Salt;
use crate::record::{Framing, Level, MAX_LEVELS, Sequence};
use crate::seal::{Authentic, Scheme, Seal, Unverified};
use crate::wire::stream::Select;

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
        f.debug_struct("Sample").field("seal", &self.seal).field("select", &self.select).finish_non_exhaustive()
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
            Select::Levels(mask) => crate::seal::follow::masked(&self.counts, *mask),
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
    /// The events of a part whose sizes [`Follower`](crate::seal::Follower) has checked, bound to the seal rebuilt from them.
    pub(crate) fn new(seal: &Seal<S>, select: Select<'a>, events: &'a [u8], framing: Framing) -> Self {
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
        let levels = self.counts.levels();
        match &self.select {
            Select::Events(gaps) => {
                let mut rest = self.events;
                for seq in gaps.iter() {
                    let Some((record, tail)) = self.framing.split_first(rest) else { return };
                    each(seq, self.salt.level(seq, levels), record);
                    rest = tail;
                }
            }
            Select::Levels(mask) => {
                // One cursor a level: blocks lie one behind the other in a star, all events in one row in a tree.
                let mut cursors = [self.events; MAX_LEVELS];
                if self.scheme == Scheme::Star {
                    let mut rest = self.events;
                    for level in (0..levels).rev().filter(|level| mask >> level & 1 == 1) {
                        cursors[usize::from(level)] = rest;
                        let length = self.framing.length_of(rest, self.counts.at(Level(level))).unwrap_or(rest.len());
                        rest = &rest[length..];
                    }
                }
                let row = |level: Level| if self.scheme == Scheme::Star { usize::from(level.0) } else { 0 };
                #[allow(clippy::cast_possible_truncation)]
                let total = self.counts.total() as u32;
                for (seq, level) in selected(engine, &self.salt, levels, total, *mask) {
                    let cursor = &mut cursors[row(level)];
                    let Some((record, tail)) = self.framing.split_first(cursor) else { return };
                    each(seq, level, record);
                    *cursor = tail;
                }
            }
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
    selected(engine, salt, levels, n, mask).map(|(seq, _)| seq)
}

/// The events below `n` whose level is in `mask`, with their levels, ascending.
pub(crate) fn selected<'e, E: Engine>(engine: &'e E, salt: &'e Salt, levels: u8, n: u32, mask: u32) -> Selected<'e, E> {
    let n = if mask == 0 { 0 } else { n };
    #[allow(clippy::cast_possible_truncation)]
    let selects = core::array::from_fn(|level| (mask >> level & 1) as u8);
    Selected { engine, salt, levels, n: u64::from(n), selects, next: 0, chunk: [0; CHUNK], found: [0; CHUNK], at: 0, count: 0 }
}

const CHUNK: usize = 256;

/// Computes levels a chunk at a time, so that the engine can use its lanes.
pub(crate) struct Selected<'e, E> {
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u64,
    /// Whether a level is selected: 1, or 0. Looking that up is quicker than shifting a mask.
    selects: [u8; MAX_LEVELS],
    /// Where the next chunk starts.
    next: u64,
    /// The levels of the chunk before.
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

impl<E: Engine> Iterator for Selected<'_, E> {
    type Item = (Sequence, Level);

    fn next(&mut self) -> Option<(Sequence, Level)> {
        while self.at == self.count {
            if self.next >= self.n {
                return None;
            }
            #[allow(clippy::cast_possible_truncation)]
            let length = (self.n - self.next).min(CHUNK as u64) as usize;
            let chunk = &mut self.chunk[..length];
            self.engine.levels(self.salt, self.levels, self.next, chunk);
            self.at = 0;
            // Without a branch: at a low rate few of many are selected, and nobody can guess which.
            let mut count = 0;
            for (place, level) in (0..=u8::MAX).zip(chunk) {
                self.found[count % CHUNK] = place;
                count += usize::from(self.selects[usize::from(*level) % MAX_LEVELS]);
            }
            self.count = count;
            self.next += length as u64;
        }
        let place = self.found[self.at];
        self.at += 1;
        // The chunk before the next one; only the last is shorter.
        let start = (self.next - 1) / CHUNK as u64 * CHUNK as u64;
        Some((Sequence(start + u64::from(place)), Level(self.chunk[usize::from(place)])))
    }
}
