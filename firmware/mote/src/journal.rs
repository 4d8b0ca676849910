//! A journal of records that survives a loss of power at any word. It uses two pages of flash. One
//! of them is in force, which means that it holds the current records (spec/mote.md, section 3).
//!
//! A page begins with a head that contains the page's generation twice. The head is written last,
//! and puts the page in force. The records follow the page's head. Each record consists of a head
//! with a check value, its content, and a CRC-32. A loss of power can cut only the last record
//! short. The journal ignores an incomplete record, and moves to the other page before it writes
//! anything else. If anything else is unreadable, the journal is damaged and cannot be opened:
//! without the unreadable records, the mote might use an index twice.

use crate::flash::{Flash, FlashFailed, program};

/// The length of a page's head, in bytes.
const PAGE_HEAD: usize = 8;
/// The length of a record's head and checksum together, in bytes.
const AROUND: usize = 8;
/// The exclusive or of the two words of a valid page's head.
const MARK: u32 = 0x4d6f_7465;

/// Why a journal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalError {
    /// The flash failed.
    Flash,
    /// The flash contains neither a valid journal nor a journal that a loss of power has cut short.
    Damaged,
    /// The records do not fit in one page.
    Full,
}

impl JournalError {
    /// The error's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flash => "FlashFailed",
            Self::Damaged => "JournalDamaged",
            Self::Full => "JournalFull",
        }
    }
}

impl From<FlashFailed> for JournalError {
    fn from(_: FlashFailed) -> Self {
        Self::Flash
    }
}

/// A log of records in two pages of flash.
#[derive(Debug)]
pub struct Journal<F> {
    flash: F,
    page: usize,
    generation: u32,
    /// The offset in the page at which the next record begins.
    end: usize,
}

/// A page of flash to which records are appended, by [`Journal::write`] and by snapshots.
pub struct Page<'f, F> {
    flash: &'f mut F,
    page: usize,
    end: usize,
}

impl<F: Flash> Page<'_, F> {
    /// Writes a record: its kind, which is below 128, and less than 4 KiB of content. The record
    /// takes effect only once it is written completely.
    ///
    /// # Errors
    /// `Full` if the page has no room for the record; then nothing was written. `Flash` if the
    /// flash failed.
    pub fn record(&mut self, kind: u8, content: &[&[u8]]) -> Result<(), JournalError> {
        let length: usize = content.iter().map(|part| part.len()).sum();
        let padded = length.next_multiple_of(4);
        if length >= 1 << 12 || kind >= 0x80 || self.end + AROUND + padded > F::PAGE {
            return Err(JournalError::Full);
        }
        let head = head(kind, length);
        let mut crc = Crc::new();
        self.word(head.to_be_bytes(), &mut crc)?;
        let (mut word, mut filled) = ([0; 4], 0);
        for &byte in content.iter().flat_map(|part| part.iter()) {
            word[filled] = byte;
            filled += 1;
            if filled == 4 {
                self.word(word, &mut crc)?;
                (word, filled) = ([0; 4], 0);
            }
        }
        if filled > 0 {
            self.word(word, &mut crc)?;
        }
        let sum = crc.finish();
        self.word(sum.to_be_bytes(), &mut crc)
    }

    fn word(&mut self, word: [u8; 4], crc: &mut Crc) -> Result<(), JournalError> {
        crc.add(&word);
        program(self.flash, self.page * F::PAGE + self.end, word)?;
        self.end += 4;
        Ok(())
    }
}

/// Returns a record's head: kind (8 bits), length (12 bits), and a check value of both (12 bits). A
/// head is never all ones, which is the value of erased flash.
fn head(kind: u8, length: usize) -> u32 {
    let front = u32::from(kind) << 12 | (length as u32 & 0xfff);
    front << 12 | check(front)
}

/// Returns the check value of a record's head, which shows whether the head was written completely.
fn check(front: u32) -> u32 {
    let mut crc = Crc::new();
    crc.add(&front.to_be_bytes());
    crc.finish() & 0xfff
}

/// Returns the kind and the length that a record's head contains, if the head is valid.
fn parsed(word: u32) -> Option<(u8, usize)> {
    let front = word >> 12;
    let kind = (front >> 12) as u8;
    (kind < 0x80 && check(front) == word & 0xfff).then_some((kind, (front & 0xfff) as usize))
}

/// The state in which a page is found.
enum Found {
    /// All bits are 1.
    Erased,
    /// The page is in force, or was in force before the other page. The field is its generation.
    Valid(u32),
    /// Anything else: power was lost while the page was being erased or written.
    Unfinished,
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|word| word.first_chunk())
        .map_or(u32::MAX, |word| u32::from_be_bytes(*word))
}

fn look(page: &[u8]) -> Found {
    let (generation, copy) = (word_at(page, 0), word_at(page, 4));
    if generation ^ MARK == copy {
        Found::Valid(generation)
    } else if page.iter().all(|byte| *byte == 0xff) {
        Found::Erased
    } else {
        Found::Unfinished
    }
}

impl<F: Flash> Journal<F> {
    /// Opens the journal in flash and calls `replay` with every record, in order. If a loss of
    /// power cut the last record short, calls `snapshot` to write the whole state to the other
    /// page. Erased flash is a valid journal without records.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open<S>(
        flash: F,
        state: &mut S,
        mut replay: impl FnMut(&mut S, u8, &[u8]) -> Result<(), JournalError>,
        snapshot: impl FnOnce(&S, &mut Page<'_, F>) -> Result<(), JournalError>,
    ) -> Result<Self, JournalError> {
        let mut journal = Self { flash, page: 0, generation: 0, end: PAGE_HEAD };
        let bytes = journal.flash.bytes();
        let (Some(first), Some(second)) = (bytes.get(..F::PAGE), bytes.get(F::PAGE..2 * F::PAGE))
        else {
            return Err(JournalError::Flash);
        };
        let old = match (look(first), look(second)) {
            (Found::Valid(a), Found::Valid(b)) => {
                // The page with the later generation is in force. The other page is its
                // predecessor, which was not erased yet. If the generations are not consecutive,
                // the journal is damaged.
                (journal.page, journal.generation) = match (a.wrapping_sub(b), b.wrapping_sub(a)) {
                    (1, _) => (0, a),
                    (_, 1) => (1, b),
                    _ => return Err(JournalError::Damaged),
                };
                true
            }
            (Found::Valid(generation), rest) => {
                (journal.page, journal.generation) = (0, generation);
                !matches!(rest, Found::Erased)
            }
            (rest, Found::Valid(generation)) => {
                (journal.page, journal.generation) = (1, generation);
                !matches!(rest, Found::Erased)
            }
            // This is a new journal whose first page may have an incomplete head. It is safe to
            // begin again, because the mote has not used this journal yet.
            (Found::Erased | Found::Unfinished, Found::Erased)
                if first[PAGE_HEAD..].iter().all(|byte| *byte == 0xff) =>
            {
                journal.flash.erase(0)?;
                journal.set_in_force()?;
                return Ok(journal);
            }
            _ => return Err(JournalError::Damaged),
        };
        // Erase the old page only after all records of the page in force were read without an
        // error.
        let is_cut = journal.replay(state, &mut replay)?;
        if old {
            journal.retire(1 - journal.page)?;
        }
        if is_cut {
            journal.rewrite(state, snapshot)?;
        }
        Ok(journal)
    }

    /// Passes every record to `replay`. Returns whether the last record was cut short.
    fn replay<S>(
        &mut self,
        state: &mut S,
        replay: &mut impl FnMut(&mut S, u8, &[u8]) -> Result<(), JournalError>,
    ) -> Result<bool, JournalError> {
        let start = self.page * F::PAGE;
        let page = self.flash.bytes().get(start..start + F::PAGE).ok_or(JournalError::Flash)?;
        let used = page.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
        let is_free_from = |at: usize| at >= used;
        loop {
            if is_free_from(self.end) {
                return Ok(false);
            }
            let word = word_at(page, self.end);
            let Some((kind, length)) = parsed(word) else {
                // A record's head that was cut short must be the last word that was written.
                return if is_free_from(self.end + 4) {
                    Ok(true)
                } else {
                    Err(JournalError::Damaged)
                };
            };
            let content_end = self.end + 4 + length.next_multiple_of(4);
            let content = page.get(self.end + 4..content_end).ok_or(JournalError::Damaged);
            let is_last = is_free_from(content_end + 4);
            let Ok(content) = content else {
                return if is_free_from(self.end + 4) {
                    Ok(true)
                } else {
                    Err(JournalError::Damaged)
                };
            };
            let mut crc = Crc::new();
            crc.add(&word.to_be_bytes());
            crc.add(content);
            if content_end + 4 > F::PAGE || crc.finish() != word_at(page, content_end) {
                return if is_last { Ok(true) } else { Err(JournalError::Damaged) };
            }
            replay(state, kind, content.get(..length).unwrap_or_default())?;
            self.end = content_end + 4;
        }
    }

    /// Makes a record durable. If the page in force has no room for the record, writes a snapshot
    /// of `state` to the other page instead; `state` must already include the record's change.
    ///
    /// # Errors
    /// [`JournalError`]: it is unknown whether the next start will find the record. Do not write
    /// anything more.
    pub fn write<S>(
        &mut self,
        kind: u8,
        content: &[&[u8]],
        state: &S,
        snapshot: impl FnOnce(&S, &mut Page<'_, F>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let mut page = Page { flash: &mut self.flash, page: self.page, end: self.end };
        match page.record(kind, content) {
            Err(JournalError::Full) => self.rewrite(state, snapshot),
            written => {
                self.end = page.end;
                written
            }
        }
    }

    /// Writes a snapshot to the other page and puts that page in force by writing its head. Then
    /// erases the old page, so that nothing of its content is left.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn rewrite<S>(
        &mut self,
        state: &S,
        snapshot: impl FnOnce(&S, &mut Page<'_, F>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let old = self.page;
        let mut page = Page { flash: &mut self.flash, page: 1 - old, end: PAGE_HEAD };
        snapshot(state, &mut page)?;
        self.end = page.end;
        self.page = 1 - old;
        self.generation = self.generation.wrapping_add(1);
        self.set_in_force()?;
        self.retire(old)
    }

    /// Erases a page that was in force. First it destroys the page's head, because an interrupted
    /// erasure may set bits in both words of the head, and the page could then appear to have a
    /// later generation than the page in force.
    fn retire(&mut self, page: usize) -> Result<(), JournalError> {
        program(&mut self.flash, page * F::PAGE + 4, [0; 4])?;
        Ok(self.flash.erase(page)?)
    }

    fn set_in_force(&mut self) -> Result<(), JournalError> {
        let start = self.page * F::PAGE;
        program(&mut self.flash, start, self.generation.to_be_bytes())?;
        Ok(program(&mut self.flash, start + 4, (self.generation ^ MARK).to_be_bytes())?)
    }

    /// Returns the flash.
    pub fn into_flash(self) -> F {
        self.flash
    }
}

/// CRC-32 (IEEE), computed bit by bit without a table, because records are short and rare, and
/// images are rarer.
pub(crate) struct Crc(u32);

impl Crc {
    pub(crate) const fn new() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 ^= u32::from(byte);
            for _ in 0..8 {
                self.0 = self.0 >> 1 ^ if self.0 & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
    }

    pub(crate) const fn finish(&self) -> u32 {
        !self.0
    }
}
