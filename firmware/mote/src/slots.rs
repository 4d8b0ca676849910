//! Two slots for firmware images, and the record of an installation (spec/update.md, section 3).
//!
//! The *run slot* has the image that runs; it is built for this address. The *staging slot* has a
//! received image, and after an installation the image that ran before. To install an image, the
//! boot stage exchanges the contents of the slots, page by page. To fall back, it exchanges them
//! again. The power may fail at any word: before each page is erased, its content is also in another
//! page, and a mark in the record states which pages were copied.
//!
//! The application writes the staging slot and begins an installation. Only the boot stage writes
//! the run slot.

use crate::flash::{Flash, FlashFailed, program};
use crate::journal::Crc;

/// The first word of the record of an installation.
const MAGIC: [u8; 4] = *b"MSU\x01";
/// The number of words of the record before the marks: magic, version, length of the image, CRC-32
/// of the image, and CRC-32 of these words.
const HEAD: usize = 5;

/// An installation that was begun: the version of the image, its length in bytes, and its CRC-32.
#[derive(Clone, Copy)]
struct Installation {
    version: u32,
    length: usize,
    crc: u32,
}

/// How far an installation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The boot stage has not exchanged the slots yet.
    Begun,
    /// The new image runs and is not confirmed.
    Trial,
    /// The new image has passed its self-test.
    Confirmed,
    /// The boot stage has restored the image that ran before.
    FellBack,
}

/// The region of flash with the slots: pages of the record, the run slot, a spare page for the
/// exchange, and the staging slot.
#[derive(Debug)]
pub struct Slots<F> {
    flash: F,
}

impl<F: Flash> Slots<F> {
    /// Takes a region of flash. It must have at least five pages.
    pub const fn new(flash: F) -> Self {
        Self { flash }
    }

    /// Returns the flash.
    pub fn into_flash(self) -> F {
        self.flash
    }

    /// Returns the number of pages of the record, and of each slot.
    #[inline(never)]
    fn layout(&self) -> (usize, usize) {
        let total = self.flash.bytes().len() / F::PAGE;
        // An exchange has three marks for each page, and a slot has fewer pages than half of the
        // region.
        let record = (4 * (HEAD + 2 + 3 * total)).div_ceil(F::PAGE);
        (record, total.saturating_sub(record + 1) / 2)
    }

    /// Returns the length of each slot in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.layout().1 * F::PAGE
    }

    /// Returns the offset of the run slot in the region, in bytes.
    #[must_use]
    pub fn run_slot(&self) -> usize {
        self.layout().0 * F::PAGE
    }

    /// Returns the offset of the staging slot in the region, in bytes.
    fn staging(&self) -> usize {
        let (record, pages) = self.layout();
        (record + pages + 1) * F::PAGE
    }

    /// Returns the start of the content of the run slot.
    #[must_use]
    pub fn running(&self, length: usize) -> &[u8] {
        let start = self.run_slot();
        self.flash.bytes().get(start..start + length).unwrap_or_default()
    }

    /// Returns the start of the content of the staging slot.
    #[must_use]
    pub fn staged(&self, length: usize) -> &[u8] {
        let start = self.staging();
        self.flash.bytes().get(start..start + length).unwrap_or_default()
    }

    /// Writes bytes to the staging slot. Each page is erased when its first byte is written, so
    /// bytes must be written in order; `offset` must be a multiple of 4.
    ///
    /// # Errors
    /// [`FlashFailed`], also if the bytes do not fit into the slot.
    pub fn stage(&mut self, offset: usize, bytes: &[u8]) -> Result<(), FlashFailed> {
        if offset + bytes.len() > self.length() {
            return Err(FlashFailed);
        }
        let mut at = self.staging() + offset;
        for chunk in bytes.chunks(4) {
            if at.is_multiple_of(F::PAGE) {
                self.flash.erase(at / F::PAGE)?;
            }
            let mut word = [0xff; 4];
            word.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
            program(&mut self.flash, at, word)?;
            at += 4;
        }
        Ok(())
    }

    /// Records that the boot stage is to install the image in the staging slot. The caller must
    /// have checked the image, and then must restart.
    ///
    /// # Errors
    /// [`FlashFailed`]: the installation was not begun.
    pub fn begin(&mut self, version: u32, length: usize) -> Result<(), FlashFailed> {
        self.clear()?;
        let crc = crc_of(self.staged(length)).to_be_bytes();
        #[allow(clippy::cast_possible_truncation)]
        let words = [MAGIC, version.to_be_bytes(), (length as u32).to_be_bytes(), crc];
        for (place, word) in words.iter().enumerate() {
            program(&mut self.flash, 4 * place, *word)?;
        }
        // The record is in force when its last word is written.
        program(&mut self.flash, 4 * (HEAD - 1), crc_of(words.as_flattened()).to_be_bytes())
    }

    /// Removes the record of an installation that has ended.
    ///
    /// # Errors
    /// [`FlashFailed`].
    pub fn clear(&mut self) -> Result<(), FlashFailed> {
        // An interrupted erasure may restore words, so destroy the head first.
        program(&mut self.flash, 0, [0; 4])?;
        program(&mut self.flash, 4 * (HEAD - 1), [0; 4])?;
        (0..self.layout().0).rev().try_for_each(|page| self.flash.erase(page))
    }

    fn word(&self, place: usize) -> [u8; 4] {
        let word = self.flash.bytes().get(4 * place..).and_then(|rest| rest.first_chunk());
        word.copied().unwrap_or_default()
    }

    /// Returns the installation in the record, if there is one.
    fn installation(&self) -> Option<Installation> {
        let (words, _) = self.flash.bytes().as_chunks::<4>();
        let [magic, version, length, crc, sum] = *words.first_chunk::<HEAD>()?;
        let is_whole = magic == MAGIC
            && crc_of(words.get(..HEAD - 1)?.as_flattened()) == u32::from_be_bytes(sum);
        is_whole.then_some(Installation {
            version: u32::from_be_bytes(version),
            length: u32::from_be_bytes(length) as usize,
            crc: u32::from_be_bytes(crc),
        })
    }

    /// Returns whether a mark is set. A mark that a loss of power has cut short is not set.
    fn is_marked(&self, mark: usize) -> bool {
        self.word(HEAD + mark) == [0; 4]
    }

    fn mark(&mut self, mark: usize) -> Result<(), FlashFailed> {
        program(&mut self.flash, 4 * (HEAD + mark), [0; 4])
    }

    /// Returns the marks of the trial and of its confirmation. The marks of the first exchange are
    /// before them, and those of the second exchange after them.
    fn trial(&self) -> (usize, usize) {
        let steps = 3 * self.layout().1;
        (steps, steps + 1)
    }

    /// Returns the version of the image whose installation is in the record, and how far the
    /// installation has come.
    #[must_use]
    #[inline(never)]
    pub fn phase(&self) -> Option<(u32, Phase)> {
        let installation = self.installation()?;
        let (tried, confirmed) = self.trial();
        let phase = if self.is_marked(confirmed) {
            Phase::Confirmed
        } else if self.is_marked(confirmed + tried) {
            Phase::FellBack
        } else if self.is_marked(tried) {
            Phase::Trial
        } else {
            Phase::Begun
        };
        Some((installation.version, phase))
    }

    /// Records that the new image has passed its self-test: the boot stage does not fall back.
    ///
    /// # Errors
    /// [`FlashFailed`].
    pub fn confirm(&mut self) -> Result<(), FlashFailed> {
        self.mark(self.trial().1)
    }

    /// Does what the boot stage does before it starts the image in the run slot: installs an image,
    /// or falls back if the new image was started once and did not confirm itself. Returns whether
    /// the image that starts now is on trial.
    ///
    /// # Errors
    /// [`FlashFailed`]: start the boot stage again.
    pub fn boot(&mut self) -> Result<bool, FlashFailed> {
        let Some(installation) = self.installation() else { return Ok(false) };
        let (tried, confirmed) = self.trial();
        if self.is_marked(confirmed) {
            return Ok(false);
        }
        if !self.is_marked(tried) {
            self.exchange(0)?;
            // The trial must be durable before it begins, so that it happens once.
            self.mark(tried)?;
            if crc_of(self.running(installation.length)) == installation.crc {
                return Ok(true);
            }
        }
        self.exchange(confirmed + 1)?;
        Ok(false)
    }

    /// Exchanges the contents of the slots. `first` is the mark of the first step.
    ///
    /// The first steps move each page of the run slot up by one page, from the last to the first.
    /// Then, for each page, one step copies the page of the staging slot to the run slot, and the
    /// next step copies the moved page to the staging slot. A step erases only a page whose content
    /// an earlier step has copied to another page.
    fn exchange(&mut self, first: usize) -> Result<(), FlashFailed> {
        let (run, pages) = self.layout();
        let staging = run + pages + 1;
        for step in 0..3 * pages {
            if self.is_marked(first + step) {
                continue;
            }
            let (to, from) = match step.checked_sub(pages) {
                None => (run + pages - step, run + pages - step - 1),
                Some(rest) if rest % 2 == 0 => (run + rest / 2, staging + rest / 2),
                Some(rest) => (staging + rest / 2, run + rest / 2 + 1),
            };
            self.copy(to, from)?;
            self.mark(first + step)?;
        }
        Ok(())
    }

    /// Copies a page, unless both pages are equal already.
    fn copy(&mut self, to: usize, from: usize) -> Result<(), FlashFailed> {
        let (to, from) = (to * F::PAGE, from * F::PAGE);
        if self.is_equal(to, from) {
            return Ok(());
        }
        self.flash.erase(to / F::PAGE)?;
        for at in (0..F::PAGE).step_by(4) {
            let word = self.word((from + at) / 4);
            if word != [0xff; 4] {
                self.flash.program(to + at, word)?;
            }
        }
        if self.is_equal(to, from) { Ok(()) } else { Err(FlashFailed) }
    }

    /// Returns whether two pages are equal. Compares words, because a board may have nothing else to
    /// compare longer values.
    fn is_equal(&self, one: usize, other: usize) -> bool {
        (0..F::PAGE / 4).all(|place| self.word(one / 4 + place) == self.word(other / 4 + place))
    }
}

#[inline(never)]
fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.add(bytes);
    crc.finish()
}
