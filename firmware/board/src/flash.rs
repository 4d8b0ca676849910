//! Regions of flash, simulated in RAM that the start-up code does not initialise. Erasing sets all
//! bits of a sector; programming clears bits of one word; a reset may happen between two words. A
//! region keeps its content across resets of the board. At power-on its content is undefined, as on a
//! chip that was never erased; in QEMU it is all zeros.
//!
//! With the feature `power-cuts`, the power can fail at any word, as a test chooses ([`cut`]).

use core::ptr;

/// The length of a sector of the flash page in bytes. A sector is the unit of erasing.
pub const SECTOR: usize = 1024;
/// The length of the flash page in bytes.
pub const LENGTH: usize = 8 * SECTOR;
/// The length of a sector of the slots for firmware in bytes.
#[cfg(feature = "slots")]
pub const SLOTS_SECTOR: usize = 4096;

/// A region of flash.
pub struct Flash {
    start: *mut u32,
    length: usize,
    sector: usize,
}

/// The error of an access whose address is outside the region or is not the start of a word. Nothing
/// was programmed or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Flash {
    /// Returns the flash page. The caller must be the only one.
    pub(crate) fn page() -> Self {
        unsafe extern "C" {
            static mut __flashpage_start: u32;
        }
        Self { start: &raw mut __flashpage_start, length: LENGTH, sector: SECTOR }
    }

    /// Returns the two pages for the keys of encrypted columns. The caller must be the only one.
    #[cfg(feature = "mps2-an385")]
    pub(crate) fn keys() -> Self {
        unsafe extern "C" {
            static mut __keypages_start: u32;
        }
        Self { start: &raw mut __keypages_start, length: LENGTH, sector: SECTOR }
    }

    /// Returns the region for provisioning. The caller must be the only one.
    pub(crate) fn provision() -> Self {
        unsafe extern "C" {
            static mut __provision_start: u32;
            static __provision_end: u32;
        }
        let start = &raw mut __provision_start;
        let length = (&raw const __provision_end).addr() - start.addr();
        Self { start, length, sector: length }
    }

    /// Removes bytes from the start of the region, and returns them. The region then consists of the
    /// bytes after them only, and has no sectors. `length` is rounded down to a multiple of 4, and is at
    /// most the length of the region.
    pub fn split_front(&mut self, length: usize) -> &'static [u8] {
        let length = length.min(self.length) / 4 * 4;
        let front = self.start.cast::<u8>();
        self.start = front.wrapping_add(length).cast();
        (self.length, self.sector) = (self.length - length, usize::MAX);
        // SAFETY: the linker script reserves these bytes, and no other value can change them from now
        // on, because this region no longer has them.
        unsafe { core::slice::from_raw_parts(front, length) }
    }

    /// Returns the region with the slots for firmware. The caller must be the only one.
    #[cfg(feature = "slots")]
    pub(crate) fn slots() -> Self {
        unsafe extern "C" {
            static mut __slots_start: u32;
            static __slots_end: u32;
        }
        let start = &raw mut __slots_start;
        let length = (&raw const __slots_end).addr() - start.addr();
        Self { start, length, sector: SLOTS_SECTOR }
    }

    /// Returns the length of a sector in bytes.
    #[must_use]
    pub const fn sector(&self) -> usize {
        self.sector
    }

    /// Returns the content of the region.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the linker script reserves this region, with this length; its content changes only
        // through `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start.cast(), self.length) }
    }

    /// Sets all bits of a sector, word by word from the first to the last.
    ///
    /// # Errors
    /// [`OutOfRange`] if the region has no such sector.
    pub fn erase(&mut self, sector: usize) -> Result<(), OutOfRange> {
        if sector >= self.length / self.sector {
            return Err(OutOfRange);
        }
        for word in sector * self.sector / 4..(sector + 1) * self.sector / 4 {
            self.write(word, |_| u32::MAX);
        }
        Ok(())
    }

    /// Clears the bits of the word at `offset` that are 0 in `word`, as programming flash does.
    /// `offset` must be a multiple of 4; the bytes of `word` are in the order of their addresses.
    ///
    /// # Errors
    /// [`OutOfRange`] if `offset` is outside the region or not a multiple of 4.
    pub fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), OutOfRange> {
        if !offset.is_multiple_of(4) || offset >= self.length {
            return Err(OutOfRange);
        }
        self.write(offset / 4, |held| held & u32::from_le_bytes(word));
        Ok(())
    }

    /// Changes one word of the region, which must have this word.
    fn write(&mut self, word: usize, change: impl FnOnce(u32) -> u32) {
        // SAFETY: the word is in the reserved region, and nothing else refers to it during the call.
        // The access is volatile, so that the compiler writes the words one by one and in program
        // order, as in flash.
        unsafe {
            let place = self.start.add(word);
            let old = ptr::read_volatile(place);
            let new = change(old);
            #[cfg(feature = "power-cuts")]
            cut::before(place, old, new);
            ptr::write_volatile(place, new);
        }
    }
}

/// Losses of power that a test chooses. Two words before the end of the board's RAM file have the
/// number of words after which the power fails (0 for never), and a seed. A loss of power leaves any
/// of the bits that were to be changed unchanged, and ends QEMU with the status [`STATUS`](cut::STATUS).
#[cfg(feature = "power-cuts")]
pub mod cut {
    use core::ptr;

    /// QEMU's exit status after a loss of power.
    pub const STATUS: u8 = 7;

    /// Counts a word that is about to change from `old` to `new`, and fails the power if a test has
    /// chosen this word.
    pub(super) fn before(place: *mut u32, old: u32, new: u32) {
        unsafe extern "C" {
            static mut __cuts: [u32; 2];
        }
        let count = (&raw mut __cuts).cast::<u32>();
        // SAFETY: the linker script reserves both words, and only this function accesses them. The
        // caller may write to `place`.
        unsafe {
            let left = ptr::read_volatile(count);
            if left == 0 {
                return;
            }
            ptr::write_volatile(count, left - 1);
            if left == 1 {
                // The mixing function of xxHash32.
                let seed = ptr::read_volatile(count.add(1)) ^ place.addr() as u32;
                let mixed = (seed ^ seed >> 15).wrapping_mul(0x85eb_ca77);
                let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae3d);
                let mask = mixed ^ mixed >> 16;
                ptr::write_volatile(place, old & mask | new & !mask);
                crate::host::exit(STATUS);
            }
        }
    }
}
