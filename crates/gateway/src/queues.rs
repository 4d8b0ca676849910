//! The events that a coordinator keeps of one epoch: a queue for each device and level (the paper's
//! `Q_i^k`). A whole level is dropped at once, for all devices.
//!
//! All queues of a level share one arena of chunks, so that dropping a level frees its chunks. An
//! event is stored once, after a header of 10 bytes: the position of the device's previous event,
//! its sequence number and its length. Withdrawn events stay as garbage until they are half of the
//! arena, which is then rewritten.

use moteseal_core::record::{Level, MAX_LEVELS, Sequence};

/// A device's position among those of the epoch: a small number, assigned by the owner of the list
/// of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Bytes of the header before each record.
const HEAD: usize = 10;
/// The low bits of a position, which give the offset in the chunk.
const WITHIN: u32 = 15;
/// The size of a chunk, unless one record needs more.
const CHUNK: usize = 1 << WITHIN;
/// The size of a level's first chunk. It is small, because most levels have few events.
const FIRST_CHUNK: usize = 1 << 10;
/// The maximum number of chunks of a level, limited by the remaining bits of a position.
const CHUNKS: usize = 1 << (32 - WITHIN);
/// The position that means "no event".
const NONE: u32 = u32::MAX;

/// The queues of one epoch.
#[derive(Debug)]
pub struct Queues {
    levels: u8,
    arenas: Vec<Arena>,
    /// The newest event for each slot and level, or `NONE`; meaningless for dropped levels.
    newest: Vec<u32>,
}

/// The event does not fit the addresses of its level, which has 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug, Default)]
struct Arena {
    chunks: Vec<Vec<u8>>,
    /// Bytes of all events, and of those that were withdrawn.
    used: usize,
    garbage: usize,
    forgotten: bool,
}

impl Arena {
    fn push(&mut self, before: u32, seq: u32, record: &[u8]) -> Option<u32> {
        let length = u16::try_from(record.len()).ok()?;
        let needed = HEAD + record.len();
        let fits =
            |chunk: &Vec<u8>| chunk.len() + needed <= chunk.capacity() && chunk.len() < CHUNK;
        if !self.chunks.last().is_some_and(fits) {
            let usual = (FIRST_CHUNK << self.chunks.len().min(WITHIN as usize)).min(CHUNK);
            self.chunks.push(Vec::with_capacity(usual.max(needed)));
        }
        let number = u32::try_from(self.chunks.len() - 1).ok()?;
        let chunk = self.chunks.last_mut()?;
        #[allow(clippy::cast_possible_truncation)]
        let place = number.checked_mul(1 << WITHIN)? | chunk.len() as u32;
        if place == NONE {
            return None;
        }
        chunk.extend_from_slice(&before.to_le_bytes());
        chunk.extend_from_slice(&seq.to_le_bytes());
        chunk.extend_from_slice(&length.to_le_bytes());
        chunk.extend_from_slice(record);
        self.used += needed;
        Some(place)
    }

    /// The position of the event before the one at `place`, the sequence number of the one at
    /// `place`, and its record.
    fn at(&self, place: u32) -> Option<(u32, u32, &[u8])> {
        let chunk = self.chunks.get((place >> WITHIN) as usize)?;
        let (head, rest) =
            chunk.get((place & ((1 << WITHIN) - 1)) as usize..)?.split_first_chunk::<HEAD>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = usize::from(u16::from_le_bytes([head[8], head[9]]));
        Some((word(0), word(4), rest.get(..length)?))
    }

    /// The events from the newest to the oldest.
    fn back_from(&self, newest: u32) -> impl Iterator<Item = (u32, &[u8])> {
        let mut place = newest;
        std::iter::from_fn(move || {
            let (before, seq, record) = self.at(place)?;
            place = before;
            Some((seq, record))
        })
    }
}

impl Queues {
    /// Creates empty queues for a group of `levels` levels (1 to 32).
    #[must_use]
    pub fn new(levels: u8) -> Self {
        debug_assert!(
            (1..=MAX_LEVELS).contains(&usize::from(levels)),
            "a group has 1 to 32 levels"
        );
        Self { levels, arenas: (0..levels).map(|_| Arena::default()).collect(), newest: Vec::new() }
    }

    /// The number of levels.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Whether every level has room for 64 KiB more of events, in records of any length.
    #[must_use]
    pub fn has_room(&self) -> bool {
        // With headers, 64 KiB of events take at most 352 KiB, in eleven chunks. Records that fill
        // a chunk by themselves are few.
        self.arenas.iter().all(|arena| arena.chunks.len() + 16 < CHUNKS)
    }

    /// Uses up the room of a level, as four gibibytes of events would.
    #[cfg(test)]
    pub(crate) fn exhaust(&mut self, level: Level) {
        self.arenas[usize::from(level.0)].chunks.resize(CHUNKS - 16, Vec::new());
    }

    fn place(&self, slot: Slot, level: Level) -> Option<usize> {
        (level.0 < self.levels)
            .then(|| slot.0 as usize * usize::from(self.levels) + usize::from(level.0))
    }

    /// Appends an event to the device's queue of its level. Does nothing if the level was dropped
    /// or does not exist.
    ///
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn keep(
        &mut self,
        slot: Slot,
        level: Level,
        seq: Sequence,
        record: &[u8],
    ) -> Result<(), Full> {
        let Some(place) = self.place(slot, level) else { return Ok(()) };
        if place >= self.newest.len() {
            self.newest.resize((slot.0 as usize + 1) * usize::from(self.levels), NONE);
        }
        let arena = &mut self.arenas[usize::from(level.0)];
        if arena.forgotten {
            return Ok(());
        }
        let seq = u32::try_from(seq.0).map_err(|_| Full)?;
        self.newest[place] = arena.push(self.newest[place], seq, record).ok_or(Full)?;
        Ok(())
    }

    /// Drops a level, for all devices and permanently.
    pub fn forget(&mut self, level: Level) {
        if let Some(arena) = self.arenas.get_mut(usize::from(level.0)) {
            *arena = Arena { forgotten: true, ..Arena::default() };
        }
    }

    /// A device's events of a level, the newest first.
    pub fn newest_first(
        &self,
        slot: Slot,
        level: Level,
    ) -> impl Iterator<Item = (Sequence, &[u8])> {
        let newest = self
            .place(slot, level)
            .and_then(|place| self.newest.get(place))
            .copied()
            .unwrap_or(NONE);
        let arena = self.arenas.get(usize::from(level.0)).filter(|arena| !arena.forgotten);
        let events = arena.into_iter().flat_map(move |arena| arena.back_from(newest));
        events.map(|(seq, record)| (Sequence(u64::from(seq)), record))
    }

    /// A device's events of a level, the oldest first.
    #[must_use]
    pub fn events(&self, slot: Slot, level: Level) -> Vec<(Sequence, &[u8])> {
        let mut events: Vec<_> = self.newest_first(slot, level).collect();
        events.reverse();
        events
    }

    /// Removes a device's events of a level, because their seal was abandoned or the device raised
    /// its round. Returns their number.
    pub fn withdraw(&mut self, slot: Slot, level: Level) -> u64 {
        let (mut count, mut bytes) = (0, 0);
        for (_, record) in self.newest_first(slot, level) {
            count += 1;
            bytes += HEAD + record.len();
        }
        if let Some(newest) = self.place(slot, level).and_then(|place| self.newest.get_mut(place)) {
            *newest = NONE;
        }
        if count > 0 {
            let arena = &mut self.arenas[usize::from(level.0)];
            arena.garbage += bytes;
            if arena.garbage * 2 > arena.used {
                self.compact(level);
            }
        }
        count
    }

    /// Rewrites a level's arena without the garbage.
    fn compact(&mut self, level: Level) {
        let mut fresh = Arena::default();
        let levels = usize::from(self.levels);
        let arena = &self.arenas[usize::from(level.0)];
        for newest in self.newest.iter_mut().skip(usize::from(level.0)).step_by(levels) {
            let events: Vec<_> = arena.back_from(*newest).collect();
            // It fits, because the old arena had all of it.
            *newest = events.iter().rev().fold(NONE, |before, (seq, record)| {
                fresh.push(before, *seq, record).unwrap_or(before)
            });
        }
        self.arenas[usize::from(level.0)] = fresh;
    }

    /// Bytes of memory that the queues hold.
    #[must_use]
    pub fn memory(&self) -> usize {
        let arena = |arena: &Arena| {
            size_of::<Arena>()
                + arena.chunks.capacity() * size_of::<Vec<u8>>()
                + arena.chunks.iter().map(Vec::capacity).sum::<usize>()
        };
        self.arenas.iter().map(arena).sum::<usize>() + self.newest.capacity() * size_of::<u32>()
    }
}
