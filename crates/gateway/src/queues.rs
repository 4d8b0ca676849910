//! The events that a coordinator keeps for one epoch, in one queue for each device and level (the
//! paper's `Q_i^k`). A level is always dropped as a whole, for all devices.
//!
//! All queues of a level share one arena of chunks, so that dropping the level frees its chunks. An
//! event is stored once, after a header of 10 bytes: the position of the device's previous event (4
//! bytes), the sequence number (4) and the length of the record (2). Withdrawn events stay in the
//! arena as garbage. When garbage makes up more than half of the arena, the arena is rewritten.

use moteseal_core::record::{Level, MAX_LEVELS, Sequence};

/// A device's position in the list of the group's devices. The owner of the list assigns the
/// numbers, which are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The size of the header before each record, in bytes.
const HEAD: usize = 10;
/// The number of low bits of a position that contain the offset in the chunk.
const WITHIN: u32 = 15;
/// The size of a chunk in bytes, unless a single record needs more.
const CHUNK: usize = 1 << WITHIN;
/// The size of a level's first chunk in bytes. It is small, because most levels have few events.
const FIRST_CHUNK: usize = 1 << 10;
/// The maximum number of chunks of a level. The high bits of a position contain the chunk's number.
const CHUNKS: usize = 1 << (32 - WITHIN);
/// The position that means "no event".
const NONE: u32 = u32::MAX;

/// The queues of one epoch.
#[derive(Clone, Debug)]
pub struct Queues {
    levels: u8,
    arenas: Vec<Arena>,
    /// The position of the newest event for each slot and level, or `NONE`. Not valid for dropped
    /// levels.
    newest: Vec<u32>,
}

/// The level has no room for the event: all queues of a level hold at most 4 GiB together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Debug, Default)]
struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The size of all stored events, and the part of it that withdrawn events use, in bytes.
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

    /// Returns the position of the device's event before the one at `place`, and the sequence
    /// number and the record of the event at `place`.
    fn at(&self, place: u32) -> Option<(u32, u32, &[u8])> {
        let chunk = self.chunks.get((place >> WITHIN) as usize)?;
        let (head, rest) =
            chunk.get((place & ((1 << WITHIN) - 1)) as usize..)?.split_first_chunk::<HEAD>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = usize::from(u16::from_le_bytes([head[8], head[9]]));
        Some((word(0), word(4), rest.get(..length)?))
    }

    /// Returns a device's events from the newest to the oldest. `newest` is the position of the
    /// newest.
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

    /// Returns the number of levels.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns whether every level has room for another 64 KiB of events, in records of any length.
    #[must_use]
    pub fn has_room(&self) -> bool {
        // The worst case is records of one byte, which take two bytes each in a frame: the level
        // and the record. In the queues, each takes eleven bytes with its header. A frame's 64 KiB
        // therefore become 352 KiB, which is eleven chunks. Longer records may leave the end of a
        // chunk unused, but there are few of them in 64 KiB.
        self.arenas.iter().all(|arena| arena.chunks.len() + 16 < CHUNKS)
    }

    /// Marks a level as full, as if it stored four gibibytes of events.
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
    /// [`Full`] if the level has no room.
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

    /// Drops a level for all devices, permanently.
    pub fn forget(&mut self, level: Level) {
        if let Some(arena) = self.arenas.get_mut(usize::from(level.0)) {
            *arena = Arena { forgotten: true, ..Arena::default() };
        }
    }

    /// Returns a device's events of a level, newest first.
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

    /// Returns a device's events of a level, oldest first.
    #[must_use]
    pub fn events(&self, slot: Slot, level: Level) -> Vec<(Sequence, &[u8])> {
        let mut events: Vec<_> = self.newest_first(slot, level).collect();
        events.reverse();
        events
    }

    /// Removes a device's events of a level, because their seal was closed or abandoned, or because
    /// the device raised its round. Returns the number of removed events.
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
            // The events fit, because the old arena held all of them.
            *newest = events.iter().rev().fold(NONE, |before, (seq, record)| {
                fresh.push(before, *seq, record).unwrap_or(before)
            });
        }
        self.arenas[usize::from(level.0)] = fresh;
    }

    /// Returns the number of slots for which events were kept.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.newest.len() / usize::from(self.levels)).unwrap_or(u32::MAX)
    }

    /// Returns how many bytes of memory the queues use.
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
