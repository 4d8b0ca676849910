//! The key stream of one column of one seal (spec/confidential.md, section 4).
//!
//! A key stream is computed in *chunks* of 64 bytes: a block of ChaCha20, or four of AES. The key
//! stream of a column of fixed width is one string of bytes, of which the cell of event `seq` takes
//! `width` bytes from byte `seq * width`. A text has a key stream of its own.

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use super::{SealKey, Suite};
use crate::chacha::{self, BLOCK_WORDS};
use crate::record::Sequence;

/// The length of a chunk of key stream in bytes.
const CHUNK: usize = 4 * BLOCK_WORDS;

/// A chunk. Its bytes are the little-endian encodings of the words.
type Chunk = [u32; BLOCK_WORDS];

/// The number of chunks of the key stream of a text, which has at most 254 bytes.
const TEXT_CHUNKS: u32 = 4;

named_errors! {
    /// Why a cell was not encrypted or decrypted.
    KeyStreamError {
        /// The key stream of the suite ends before the cell.
        KeyStreamEnd => "the seal has too many events for the cipher; seal more often",
        /// The suite is not part of this build.
        UnsupportedSuite => "this build does not support the cipher of the column",
    }
}

/// The key stream of one column of one seal. It keeps the chunk that was used last, so consecutive
/// events of a column compute each chunk once if the width of its cells divides the length of a chunk,
/// as the widths of all types do.
pub struct KeyStream {
    key: SealKey,
    /// The width of the cells in `chunk`.
    width: u8,
    /// The number of cells in `chunk`, 0 if there is no chunk.
    cells: u8,
    /// The event of the first cell in `chunk`.
    first: u32,
    chunk: Chunk,
}

impl fmt::Debug for KeyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStream").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        self.chunk.zeroize();
    }
}

impl KeyStream {
    /// Creates the key stream of a key.
    #[must_use]
    pub const fn new(key: SealKey) -> Self {
        Self { key, width: 0, cells: 0, first: 0, chunk: [0; BLOCK_WORDS] }
    }

    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &SealKey {
        &self.key
    }

    /// Encrypts or decrypts the cell of an event, in place. All cells of a column have the same
    /// length.
    ///
    /// # Errors
    /// [`KeyStreamError`]. The cell is then unspecified.
    #[inline]
    pub fn apply_cell(&mut self, seq: Sequence, cell: &mut [u8]) -> Result<(), KeyStreamError> {
        if let Ok(event) = u32::try_from(seq.0)
            && cell.len() == usize::from(self.width)
        {
            let place = event.wrapping_sub(self.first);
            if place < self.cells.into() {
                let place = place as usize;
                match cell.as_mut_array() {
                    Some(cell) => add_word(cell, &self.chunk, place),
                    None => add(cell, &self.chunk, place * cell.len()),
                }
                return Ok(());
            }
        }
        self.apply_next(seq, cell)
    }

    /// Does the same for a cell that is not in the chunk.
    #[inline(never)]
    fn apply_next(&mut self, seq: Sequence, cell: &mut [u8]) -> Result<(), KeyStreamError> {
        self.cells = 0;
        let width = cell.len();
        let mut position = seq.0.checked_mul(width as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
        let mut rest = cell;
        while !rest.is_empty() {
            let (number, skip) = (position / CHUNK as u64, (position % CHUNK as u64) as usize);
            fixed_chunk(&self.key, number, &mut self.chunk)?;
            let (now, later) = rest.split_at_mut(rest.len().min(CHUNK - skip));
            add(now, &self.chunk, skip);
            position =
                position.checked_add(now.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
            rest = later;
        }
        self.keep(seq, width);
        Ok(())
    }

    /// Keeps the chunk, which has the cell of this event, for the other cells in it.
    fn keep(&mut self, seq: Sequence, width: usize) {
        let cells = CHUNK.checked_div(width).filter(|cells| cells * width == CHUNK);
        let cells = cells.and_then(|cells| u8::try_from(cells).ok());
        if let (Some(cells), Ok(event), Ok(width)) =
            (cells, u32::try_from(seq.0), u8::try_from(width))
        {
            (self.width, self.cells, self.first) = (width, cells, event - event % u32::from(cells));
        }
    }

    /// Encrypts or decrypts the bytes of a text, without its length, in place.
    ///
    /// # Errors
    /// [`KeyStreamError`], also if the text is longer than 256 bytes. The text is then unspecified.
    pub fn apply_text(&self, seq: Sequence, text: &mut [u8]) -> Result<(), KeyStreamError> {
        let mut chunk = Zeroizing::new([0; BLOCK_WORDS]);
        for (number, bytes) in (0..).zip(text.chunks_mut(CHUNK)) {
            text_chunk(&self.key, seq, number, &mut chunk)?;
            add(bytes, &chunk, 0);
        }
        Ok(())
    }
}

/// Adds the bytes of a chunk from `skip` on, of which there must be as many as in `bytes`.
#[inline(never)]
fn add(bytes: &mut [u8], chunk: &Chunk, skip: usize) {
    let (mut rest, mut at) = (bytes, skip);
    if skip.is_multiple_of(4) {
        let (words, last) = rest.as_chunks_mut();
        for word in words {
            add_word(word, chunk, at / 4);
            at += 4;
        }
        rest = last;
    }
    for byte in rest {
        #[allow(clippy::cast_possible_truncation)]
        let stream = (chunk[at / 4 % BLOCK_WORDS] >> (at % 4 * 8)) as u8;
        *byte ^= stream;
        at += 1;
    }
}

/// Adds a word of a chunk.
#[inline]
fn add_word(bytes: &mut [u8; 4], chunk: &Chunk, place: usize) {
    *bytes = (u32::from_le_bytes(*bytes) ^ chunk[place % BLOCK_WORDS]).to_le_bytes();
}

/// Computes a chunk of the key stream of a column of fixed width.
fn fixed_chunk(key: &SealKey, number: u64, out: &mut Chunk) -> Result<(), KeyStreamError> {
    match key.suite() {
        #[allow(clippy::cast_possible_truncation)]
        Suite::ChaCha20 => {
            let tail = [number as u32, (number >> 32) as u32, 0, 0];
            chacha::block(key.expose(), tail, out);
            Ok(())
        }
        Suite::Aes128Ctr => aes_chunk(key, number, out),
    }
}

/// Computes a chunk of the key stream of a text.
fn text_chunk(
    key: &SealKey,
    Sequence(seq): Sequence,
    number: u32,
    out: &mut Chunk,
) -> Result<(), KeyStreamError> {
    if number >= TEXT_CHUNKS {
        return Err(KeyStreamError::KeyStreamEnd);
    }
    match key.suite() {
        #[allow(clippy::cast_possible_truncation)]
        Suite::ChaCha20 => {
            let tail = [number, 1, seq as u32, (seq >> 32) as u32];
            chacha::block(key.expose(), tail, out);
            Ok(())
        }
        Suite::Aes128Ctr => {
            let first = seq.checked_mul(TEXT_CHUNKS.into());
            let number = first.and_then(|first| first.checked_add(number.into()));
            aes_chunk(key, number.ok_or(KeyStreamError::KeyStreamEnd)?, out)
        }
    }
}

/// Computes the AES blocks `4 * number` to `4 * number + 3`. The counter of the blocks has 32 bits, so
/// the key stream ends after 2^32 blocks.
#[cfg(feature = "aes128")]
fn aes_chunk(key: &SealKey, number: u64, out: &mut Chunk) -> Result<(), KeyStreamError> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    let first = number.checked_mul(4).and_then(|first| u32::try_from(first).ok());
    let first = first.ok_or(KeyStreamError::KeyStreamEnd)?;
    let (aes_key, rest) = key.expose().split_at(16);
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    let aes = aes::Aes128::new_from_slice(aes_key).expect("the key has 16 bytes");
    let mut block = Zeroizing::new([0; 16]);
    for (number, words) in (first..=first | 3).zip(out.as_chunks_mut::<4>().0) {
        block[..12].copy_from_slice(&rest[..12]);
        block[12..].copy_from_slice(&number.to_be_bytes());
        aes.encrypt_block((&mut *block).into());
        for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    Ok(())
}

#[cfg(not(feature = "aes128"))]
fn aes_chunk(_: &SealKey, _: u64, _: &mut Chunk) -> Result<(), KeyStreamError> {
    Err(KeyStreamError::UnsupportedSuite)
}
