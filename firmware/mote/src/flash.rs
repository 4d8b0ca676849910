//! What the mote needs of flash memory: two pages that erase to ones, and words whose bits
//! programming clears.
//!
//! Programming a word may be cut short by a loss of power: then any of the bits that it clears may
//! be cleared. So may erasing: then the page holds anything. What makes that safe is the journal's.

/// Two pages of flash.
pub trait Flash {
    /// Bytes of a page, a multiple of 4.
    const PAGE: usize;

    /// What both pages hold, one behind the other.
    fn bytes(&self) -> &[u8];

    /// Sets all bits of a page (0 or 1).
    ///
    /// # Errors
    /// [`FlashFailed`].
    fn erase(&mut self, page: usize) -> Result<(), FlashFailed>;

    /// Clears the bits of the word at `offset` from the start of both pages, a multiple of 4, that
    /// are clear in `word`.
    ///
    /// # Errors
    /// [`FlashFailed`].
    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed>;
}

/// The flash did not do what it was told: it is worn out, or the place is none.
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
