//! The interface to a region of the mote's flash memory, which consists of pages. Erasing sets all
//! bits of a page; programming clears bits of one word.
//!
//! A loss of power may interrupt either operation. After interrupted programming, any subset of the
//! bits to be cleared may be cleared. After an interrupted erasure, the page may contain anything.
//! The journal detects both cases and remains correct.

/// A region of flash: two pages for the journal, or the pages of the slots for firmware.
pub trait Flash {
    /// The length of a page in bytes, a multiple of 4.
    const PAGE: usize;

    /// Returns the content of all pages, each directly after the one before it.
    fn bytes(&self) -> &[u8];

    /// Sets all bits of a page, counted from 0.
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

/// The region of a board without slots for firmware. No value of this type exists.
#[derive(Clone, Copy, Debug)]
pub enum NoFlash {}

impl Flash for NoFlash {
    const PAGE: usize = 4;

    fn bytes(&self) -> &[u8] {
        match *self {}
    }

    fn erase(&mut self, _: usize) -> Result<(), FlashFailed> {
        match *self {}
    }

    fn program(&mut self, _: usize, _: [u8; 4]) -> Result<(), FlashFailed> {
        match *self {}
    }
}

/// Programs a word, and checks it by reading it back.
pub(crate) fn program<F: Flash>(
    flash: &mut F,
    offset: usize,
    word: [u8; 4],
) -> Result<(), FlashFailed> {
    flash.program(offset, word)?;
    let read = flash.bytes().get(offset..).and_then(|rest| rest.first_chunk());
    if read == Some(&word) { Ok(()) } else { Err(FlashFailed) }
}
