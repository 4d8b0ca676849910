//! The key stream of one column of one seal (spec/confidential.md, section 4).
//!
//! A key stream is computed in *chunks* of 64 bytes: a block of ChaCha20, or four of AES. The key
//! stream of a column of fixed width is one string of bytes, of which the cell of event `seq` takes
//! `width` bytes from byte `seq * width`. A text has a key stream of its own.

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use super::{SealKey, Suite};
use crate::chacha;
use crate::record::Sequence;

/// The length of a chunk of key stream in bytes.
const CHUNK: usize = 64;

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
    /// The number of the chunk in `chunk`.
    at: Option<u64>,
    chunk: [u8; CHUNK],
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
        Self { key, at: None, chunk: [0; CHUNK] }
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
        let width = cell.len() as u64;
        let mut position = seq.0.checked_mul(width).ok_or(KeyStreamError::KeyStreamEnd)?;
        let mut rest = cell;
        while !rest.is_empty() {
            let (number, skip) = (position / CHUNK as u64, (position % CHUNK as u64) as usize);
            if self.at != Some(number) {
                self.at = None;
                fixed_chunk(&self.key, number, &mut self.chunk)?;
                self.at = Some(number);
            }
            let stream = &self.chunk[skip..];
            let (now, later) = rest.split_at_mut(stream.len().min(rest.len()));
            add(now, stream);
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
        let mut chunk = Zeroizing::new([0; CHUNK]);
        for (number, bytes) in (0..).zip(text.chunks_mut(CHUNK)) {
            text_chunk(&self.key, seq, number, &mut chunk)?;
            add(bytes, &*chunk);
        }
        Ok(())
    }
}

fn add(bytes: &mut [u8], stream: &[u8]) {
    for (byte, stream) in bytes.iter_mut().zip(stream) {
        *byte ^= stream;
    }
}

/// Computes a chunk of the key stream of a column of fixed width.
fn fixed_chunk(key: &SealKey, number: u64, out: &mut [u8; CHUNK]) -> Result<(), KeyStreamError> {
    match key.suite() {
        #[allow(clippy::cast_possible_truncation)]
        Suite::ChaCha20 => {
            chacha_chunk(key, [number as u32, (number >> 32) as u32, 0, 0], out);
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
    out: &mut [u8; CHUNK],
) -> Result<(), KeyStreamError> {
    if number >= TEXT_CHUNKS {
        return Err(KeyStreamError::KeyStreamEnd);
    }
    match key.suite() {
        #[allow(clippy::cast_possible_truncation)]
        Suite::ChaCha20 => {
            chacha_chunk(key, [number, 1, seq as u32, (seq >> 32) as u32], out);
            Ok(())
        }
        Suite::Aes128Ctr => {
            let first = seq.checked_mul(TEXT_CHUNKS.into());
            let number = first.and_then(|first| first.checked_add(number.into()));
            aes_chunk(key, number.ok_or(KeyStreamError::KeyStreamEnd)?, out)
        }
    }
}

fn chacha_chunk(key: &SealKey, tail: [u32; 4], out: &mut [u8; CHUNK]) {
    let words = chacha::block::<{ chacha::BLOCK_WORDS }>(key.expose(), tail);
    for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words.iter()) {
        *bytes = word.to_le_bytes();
    }
}

/// Computes the AES blocks `4 * number` to `4 * number + 3`. The counter of the blocks has 32 bits, so
/// the key stream ends after 2^32 blocks.
#[cfg(feature = "aes128")]
fn aes_chunk(key: &SealKey, number: u64, out: &mut [u8; CHUNK]) -> Result<(), KeyStreamError> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    let first = number.checked_mul(4).and_then(|first| u32::try_from(first).ok());
    let first = first.ok_or(KeyStreamError::KeyStreamEnd)?;
    let (aes_key, rest) = key.expose().split_at(16);
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    let aes = aes::Aes128::new_from_slice(aes_key).expect("the key has 16 bytes");
    for (number, block) in (first..=first | 3).zip(out.as_chunks_mut::<16>().0) {
        block[..12].copy_from_slice(&rest[..12]);
        block[12..].copy_from_slice(&number.to_be_bytes());
        aes.encrypt_block(block.into());
    }
    Ok(())
}

#[cfg(not(feature = "aes128"))]
fn aes_chunk(_: &SealKey, _: u64, _: &mut [u8; CHUNK]) -> Result<(), KeyStreamError> {
    Err(KeyStreamError::UnsupportedSuite)
}
