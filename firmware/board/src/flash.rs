//! A page of flash, simulated in RAM that the start-up code does not initialise. Erasing sets all
//! bits of a sector; programming clears bits of one word; a reset may happen between two words. The
//! page keeps its content across resets of the board. At power-on its content is undefined, as on a
//! chip that was never erased; in QEMU it is all zeros.

use core::ptr;

/// The length of a sector in bytes. A sector is the unit of erasing.
pub const SECTOR: usize = 1024;
/// The number of sectors of the page.
pub const SECTORS: usize = 8;
/// The length of the page in bytes.
pub const LENGTH: usize = SECTOR * SECTORS;

/// The flash page.
pub struct Flash(());

/// The number of words of the page.
const WORDS: usize = LENGTH / 4;

/// The error of an access whose address is outside the page or is not the start of a word. Nothing
/// was programmed or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Flash {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Returns the content of the page.
    #[must_use]
    pub fn bytes(&self) -> &[u8; LENGTH] {
        // SAFETY: the linker script reserves this region, with this length, for the page; its
        // content changes only through `&mut self`.
        unsafe { &*start().cast::<[u8; LENGTH]>() }
    }

    /// Sets all bits of a sector, word by word from the first to the last.
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

    /// Clears the bits of the word at `offset` that are 0 in `word`, as programming flash does.
    /// `offset` must be a multiple of 4; the bytes of `word` are in the order of their addresses.
    ///
    /// # Errors
    /// [`OutOfRange`] if `offset` is outside the page or not a multiple of 4.
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

/// Changes one word of the page. The caller must pass a number below [`WORDS`] and must have
/// mutable access to the only `Flash`.
fn write(word: usize, change: impl FnOnce(u32) -> u32) {
    // SAFETY: the word is in the reserved region, and nothing else refers to it during the call.
    // The access is volatile, so that the compiler writes the words one by one and in program
    // order, as in flash.
    unsafe {
        let place = start().add(word);
        ptr::write_volatile(place, change(ptr::read_volatile(place)));
    }
}
