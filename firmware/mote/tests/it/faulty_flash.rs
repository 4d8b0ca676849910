//! Simulated flash whose power fails after a chosen number of words, while the next word is
//! written.

use std::cell::Cell;
use std::rc::Rc;

use moteseal_mote::flash::{Flash, FlashFailed};

/// Pseudorandom numbers that are the same in every run (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The number of words or erasures that succeed before the power fails; `None` if it does not fail.
pub(crate) type Fuse = Rc<Cell<Option<u64>>>;

/// Simulated flash with pages of `PAGE` bytes: two pages for a journal, or the pages of slots.
#[derive(Clone, Debug)]
pub(crate) struct Simulated<const PAGE: usize = 4096> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fuse: Fuse,
    /// The number of words and erasures so far.
    pub(crate) writes: Rc<Cell<u64>>,
    chance: Chance,
    /// The offset of a word that cannot be programmed.
    pub(crate) broken: Option<usize>,
}

impl Simulated {
    pub(crate) fn new() -> Self {
        Self::pages(2)
    }
}

impl<const PAGE: usize> Simulated<PAGE> {
    pub(crate) fn pages(pages: usize) -> Self {
        Self {
            bytes: vec![0xff; pages * PAGE],
            fuse: Rc::default(),
            writes: Rc::default(),
            chance: Chance(1),
            broken: None,
        }
    }

    /// Returns the same flash with the power supply of another one: their writes are counted
    /// together, and the power fails for both.
    pub(crate) fn powered_as<const OTHER: usize>(self, other: &Simulated<OTHER>) -> Self {
        Self { fuse: other.fuse.clone(), writes: other.writes.clone(), ..self }
    }

    /// Returns the same flash after the power has returned.
    pub(crate) fn repowered(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            fuse: Rc::default(),
            writes: Rc::default(),
            chance: self.chance.clone(),
            broken: self.broken,
        }
    }

    /// Counts a write, or fails if the power is off. If the power fails during this write, `torn`
    /// changes the bytes as an interrupted write does.
    fn write(&mut self, torn: impl FnOnce(&mut Vec<u8>, &mut Chance)) -> Result<(), FlashFailed> {
        match self.fuse.get() {
            None => {}
            Some(0) => {
                // The power fails only once. Nothing is written after that.
                if self.writes.get() != u64::MAX {
                    torn(&mut self.bytes, &mut self.chance);
                    self.writes.set(u64::MAX);
                }
                return Err(FlashFailed);
            }
            Some(left) => self.fuse.set(Some(left - 1)),
        }
        self.writes.set(self.writes.get() + 1);
        Ok(())
    }
}

impl<const PAGE: usize> Flash for Simulated<PAGE> {
    const PAGE: usize = PAGE;

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn erase(&mut self, page: usize) -> Result<(), FlashFailed> {
        let range = page * Self::PAGE..(page + 1) * Self::PAGE;
        let of = range.clone();
        self.write(|bytes, chance| {
            // An interrupted erasure leaves some bytes erased, some unchanged, and some with only
            // some of their bits set.
            for byte in &mut bytes[of] {
                *byte |= match chance.below(3) {
                    0 => 0,
                    1 => 0xff,
                    _ => chance.next() as u8,
                };
            }
        })?;
        self.bytes[range].fill(0xff);
        Ok(())
    }

    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed> {
        assert_eq!(offset % 4, 0);
        if self.broken == Some(offset) {
            return Err(FlashFailed);
        }
        self.write(|bytes, chance| {
            for (byte, to) in bytes[offset..].iter_mut().zip(word) {
                *byte &= to | chance.next() as u8;
            }
        })?;
        for (byte, to) in self.bytes[offset..].iter_mut().zip(word) {
            *byte &= to;
        }
        Ok(())
    }
}
