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

/// Not the number of a chunk: a chunk with this number would end after the last byte of a key stream.
const NO_CHUNK: u64 = u64::MAX;

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
/// events of a column of fixed width compute each chunk once.
pub struct KeyStream {
    key: SealKey,
    /// The number of the chunk in `chunk`, or [`NO_CHUNK`].
    at: u64,
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
        Self { key, at: NO_CHUNK, chunk: [0; BLOCK_WORDS] }
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
    pub fn apply_cell(&mut self, seq: Sequence, cell: &mut [u8]) -> Result<(), KeyStreamError> {
        let position = seq.0.checked_mul(cell.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
        let (number, skip) = place(position);
        // Nearly every cell is in the chunk that was used last.
        if number == self.at && skip + cell.len() <= CHUNK {
            add(cell, &self.chunk, skip);
            return Ok(());
        }
        self.apply_across(position, cell)
    }

    /// Encrypts or decrypts a cell that starts at this byte of the key stream and may be in several
    /// chunks.
    #[inline(never)]
    fn apply_across(&mut self, position: u64, cell: &mut [u8]) -> Result<(), KeyStreamError> {
        let (mut position, mut rest) = (position, cell);
        while !rest.is_empty() {
            let (number, skip) = place(position);
            if number != self.at {
                self.at = NO_CHUNK;
                fixed_chunk(&self.key, number, &mut self.chunk)?;
                self.at = number;
            }
            let (now, later) = rest.split_at_mut(rest.len().min(CHUNK - skip));
            add(now, &self.chunk, skip);
            position =
                position.checked_add(now.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
            rest = later;
        }
        Ok(())
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

/// Returns the number of the chunk with this byte of a key stream, and the bytes of the chunk before it.
#[allow(clippy::cast_possible_truncation)]
const fn place(position: u64) -> (u64, usize) {
    (position / CHUNK as u64, position as usize % CHUNK)
}

/// Adds the bytes of a chunk from `skip` on, of which there must be as many as in `bytes`.
#[inline]
fn add(bytes: &mut [u8], chunk: &Chunk, skip: usize) {
    let (mut rest, mut at) = (bytes, skip);
    // Cells of 4 and of 8 bytes, and texts, start at a word.
    if skip.is_multiple_of(4) {
        let (whole, last) = rest.as_chunks_mut();
        for (bytes, word) in whole.iter_mut().zip(chunk.iter().skip(skip / 4)) {
            *bytes = (u32::from_le_bytes(*bytes) ^ word).to_le_bytes();
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
