//! A page of flash, simulated in memory that no start-up code touches: erasing sets all bits of a
//! sector, programming clears bits of one word, and a reset between two words leaves the one
//! written and the other not. It survives every reset of the board; at power-on it is whatever
//! memory is, zeros in QEMU, as a chip that was never erased may hold anything.

use core::ptr;

/// Bytes that are erased together.
pub const SECTOR: usize = 1024;
/// Sectors of the page.
pub const SECTORS: usize = 8;
/// Bytes of the page.
pub const LENGTH: usize = SECTOR * SECTORS;

/// The flash page.
pub struct Flash(());

/// Words of the page.
const WORDS: usize = LENGTH / 4;

/// Nothing was programmed or erased: the place is not in the page, or not at a word's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Flash {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// The page as it is.
    #[must_use]
    pub fn bytes(&self) -> &[u8; LENGTH] {
        // SAFETY: the linker script reserves the region, of this length, for this purpose; it
        // changes only through `&mut self`.
        unsafe { &*start().cast::<[u8; LENGTH]>() }
    }

    /// Sets all bits of a sector, from its first word to its last.
    ///
    /// # Errors
    /// [`OutOfRange`] if the page has no such sector.
    pub fn erase(&mut self, sector: usize) -> Result<(), OutOfRange> {
        if sector >= SECTORS {
            return Err(OutOfRange);
        }
        for word in sector * SECTOR / 4..(sector + 1) * SECTOR / 4 {
            write(word, |_| u32::MAX);
        }
        Ok(())
    }

    /// Clears those bits of the word at `offset`, a multiple of 4, that `word` has not set: what
    /// programming does to flash, whatever the word held before. The bytes come to lie in the order
    /// given.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), OutOfRange> {
        if !offset.is_multiple_of(4) || offset / 4 >= WORDS {
            return Err(OutOfRange);
        }
        write(offset / 4, |held| held & u32::from_le_bytes(word));
        Ok(())
    }
}

fn start() -> *mut u32 {
    unsafe extern "C" {
        static mut __flashpage_start: u32;
    }
    &raw mut __flashpage_start
}

/// Changes one word. Callers give a number below [`WORDS`] and hold the only `Flash` mutably.
fn write(word: usize, change: impl FnOnce(u32) -> u32) {
    // SAFETY: the word lies in the reserved region, and nothing else refers to it meanwhile.
    // Volatile, so that the words are written one by one and in this order, as flash is.
    unsafe {
        let place = start().add(word);
        ptr::write_volatile(place, change(ptr::read_volatile(place)));
    }
}
