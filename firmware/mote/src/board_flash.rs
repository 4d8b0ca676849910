//! A region of a board's flash, divided into pages that consist of one or more sectors.

use moteseal_board::flash::Flash as BoardFlash;

use crate::flash::{Flash, FlashFailed};

/// A region of flash with pages of `PAGE` bytes, a multiple of the length of the region's sectors.
pub struct Paged<const PAGE: usize>(pub BoardFlash);

impl<const PAGE: usize> Flash for Paged<PAGE> {
    const PAGE: usize = PAGE;

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn erase(&mut self, page: usize) -> Result<(), FlashFailed> {
        let sectors = PAGE / self.0.sector();
        (page * sectors..(page + 1) * sectors)
            .try_for_each(|sector| self.0.erase(sector))
            .map_err(|_| FlashFailed)
    }

    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed> {
        self.0.program(offset, word).map_err(|_| FlashFailed)
    }
}
