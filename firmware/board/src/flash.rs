//! A page of flash, simulated in memory that no start-up code touches. Erasing sets all bits of a
//! sector, programming clears bits of one word, and a reset may come between two words. The page
//! survives every reset of the board. At power-on its content is undefined, as on a chip that was
//! never erased; in QEMU it is zeros.

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

/// The address is outside the page, or is not the start of a word. Nothing was programmed or
/// erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Flash {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// The content of the page.
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

    /// Clears those bits of the word at `offset` that are clear in `word`, as programming does to
    /// flash. `offset` is a multiple of 4; the bytes of `word` are in the order of their addresses.
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

/// Changes one word. Callers pass a number below [`WORDS`] and have mutable access to the only
/// `Flash`.
fn write(word: usize, change: impl FnOnce(u32) -> u32) {
    // SAFETY: the word is in the reserved region, and nothing else refers to it during the call.
    // The access is volatile, so that the words are written one by one and in this order, as in
    // flash.
    unsafe {
        let place = start().add(word);
        ptr::write_volatile(place, change(ptr::read_volatile(place)));
    }
}
