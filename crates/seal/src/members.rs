//! Finds the events of selected levels by computing the levels of all sequence numbers, in chunks.

use crate::engine::Engine;
use crate::level::Salt;
use moteseal_core::record::{MAX_LEVELS, Sequence};

/// Returns the sequence numbers below `n` whose level is in `mask`, ascending.
pub(crate) fn members<'e, E: Engine>(
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u32,
    mask: u32,
) -> impl Iterator<Item = Sequence> + Clone + use<'e, E> {
    selected(engine, salt, levels, n, mask)
}

/// Does the same as [`members`], but the caller can also read the levels of each chunk.
pub(crate) fn selected<'e, E: Engine>(
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

/// The number of events per chunk: the number of positions that one byte can represent.
pub(crate) const CHUNK: usize = 256;

/// All positions in a chunk, 0 to 255.
const PLACES: [u8; CHUNK] = {
    let mut places = [0; CHUNK];
    let mut place = u8::MAX;
    while place > 0 {
        places[place as usize] = place;
        place -= 1;
    }
    places
};

/// Iterates over the events of selected levels. It computes levels in chunks, so that the engine
/// can use all its lanes.
pub(crate) struct Selected<'e, E> {
    engine: &'e E,
    salt: &'e Salt,
    levels: u8,
    n: u64,
    /// 1 for each selected level, 0 for the others. Looking up a table is faster than shifting the
    /// mask.
    selects: [u8; MAX_LEVELS],
    /// Whether all levels are selected. If so, every position is selected.
    selects_all: bool,
    /// The first sequence number of the current chunk, and the first of the next chunk.
    pub(crate) start: u64,
    next: u64,
    /// The levels of the events of the current chunk.
    pub(crate) chunk: [u8; CHUNK],
    /// The selected positions of the current chunk. There are `count` positions. The iterator has
    /// returned the first `at` positions.
    pub(crate) found: [u8; CHUNK],
    at: usize,
    pub(crate) count: usize,
}

impl<E> Clone for Selected<'_, E> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<E: Engine> Selected<'_, E> {
    /// Advances to the next chunk with selected events. Returns `false` if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        (self.at, self.count) = (0, 0);
        while self.count == 0 && self.next < self.n {
            #[allow(clippy::cast_possible_truncation)]
            let length = (self.n - self.next).min(CHUNK as u64) as usize;
            let chunk = &mut self.chunk[..length];
            self.engine.levels(self.salt, self.levels, self.next, chunk);
            self.count = if self.selects_all {
                length
            } else {
                // This loop has no branch, because branch prediction fails if few positions are
                // selected.
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
