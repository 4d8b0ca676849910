//! The flash memory that the mote needs: two pages. Erasing sets all bits of a page, and
//! programming a word clears bits.
//!
//! A loss of power may interrupt both. After an interrupted programming, any of the bits to clear
//! may be cleared; after an interrupted erasure, the page may contain anything. The journal is safe
//! in both cases.

/// Two pages of flash.
pub trait Flash {
    /// Bytes of a page, a multiple of 4.
    const PAGE: usize;

    /// The content of both pages, one after the other.
    fn bytes(&self) -> &[u8];

    /// Sets all bits of a page (0 or 1).
    ///
    /// # Errors
    /// [`FlashFailed`].
    fn erase(&mut self, page: usize) -> Result<(), FlashFailed>;

    /// Clears those bits of a word that are clear in `word`. `offset` counts bytes from the start
    /// of the first page, and is a multiple of 4.
    ///
    /// # Errors
    /// [`FlashFailed`].
    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed>;
}

/// The flash failed: it is worn out, or the address is invalid.
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
