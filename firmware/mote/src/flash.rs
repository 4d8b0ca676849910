//! The interface to the mote's flash memory, which has two pages. Erasing sets all bits of a page;
//! programming clears bits of one word.
//!
//! A loss of power may interrupt either operation. After interrupted programming, any subset of the
//! bits to be cleared may be cleared. After an interrupted erasure, the page may contain anything.
//! The journal detects both cases and remains correct.

/// Two pages of flash.
pub trait Flash {
    /// The length of a page in bytes, a multiple of 4.
    const PAGE: usize;

    /// Returns the content of both pages, the second directly after the first.
    fn bytes(&self) -> &[u8];

    /// Sets all bits of a page (0 or 1).
    ///
    /// # Errors
    /// [`FlashFailed`] if the flash failed.
    fn erase(&mut self, page: usize) -> Result<(), FlashFailed>;

    /// Clears the bits of the word at `offset` that are 0 in `word`. `offset` is in bytes from the
    /// start of the first page, and must be a multiple of 4.
    ///
    /// # Errors
    /// [`FlashFailed`] if the flash failed.
    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed>;
}

/// The error of a failed access to flash: the flash is worn out, or the address is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashFailed;

impl<F: Flash> Flash for &mut F {
    const PAGE: usize = F::PAGE;

    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    fn erase(&mut self, page: usize) -> Result<(), FlashFailed> {
        (**self).erase(page)
    }

    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed> {
        (**self).program(offset, word)
    }
}
