//! The key stream of one column of one seal (spec/confidential.md, section 4).
//!
//! A key stream is computed in *chunks* of 64 bytes: a block of ChaCha20, or four of AES. The key
//! stream of a column of fixed width is one string of bytes, of which the cell of event `seq` takes
//! `width` bytes from byte `seq * width`. A text has a key stream of its own.
//!
//! On hosts (feature `host`), consecutive events compute a batch of chunks ahead with the vector
//! instructions of the processor. Single events, texts and motes compute one chunk at a time.

use core::fmt;

use zeroize::{Zeroizing, optimization_barrier};

use super::{SealKey, Suite};
use crate::chacha::{self, BLOCK_WORDS};
use crate::record::Sequence;

/// The length of a chunk of key stream in bytes.
const CHUNK: usize = 4 * BLOCK_WORDS;

/// The largest number of chunks that are computed at once.
const BATCH: usize = if cfg!(feature = "host") { 16 } else { 1 };

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

/// The key stream of one column of one seal. It keeps the chunks that were computed last, so
/// consecutive events of a column compute each chunk once if the width of its cells divides the length
/// of a chunk, as the widths of all types do. It takes 120 bytes of memory on a mote, and about 1.1 KiB
/// with the feature `host`.
pub struct KeyStream {
    key: SealKey,
    /// The width of the cells in `buffer`.
    width: u8,
    /// The number of cells in `buffer`, 0 if there are none.
    cells: u16,
    /// The event of the first cell in `buffer`.
    first: u32,
    /// Chunks. Their bytes are the little-endian encodings of the words.
    buffer: [u32; BATCH * BLOCK_WORDS],
}

impl fmt::Debug for KeyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStream").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        erase(&mut self.buffer);
    }
}

impl KeyStream {
    /// Creates the key stream of a key.
    #[must_use]
    pub const fn new(key: SealKey) -> Self {
        Self { key, width: 0, cells: 0, first: 0, buffer: [0; BATCH * BLOCK_WORDS] }
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
                    Some(cell) => add_word(cell, &self.buffer, place),
                    None => add(cell, &self.buffer, place * cell.len()),
                }
                return Ok(());
            }
        }
        self.apply_next(seq, cell)
    }

    /// Does the same for a cell that is not in the buffer.
    #[inline(never)]
    fn apply_next(&mut self, seq: Sequence, cell: &mut [u8]) -> Result<(), KeyStreamError> {
        let width = cell.len();
        let mut position = seq.0.checked_mul(width as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
        let chunks = if self.begins_batch(position / CHUNK as u64, width) { BATCH } else { 1 };
        self.cells = 0;
        let mut rest = cell;
        // A cell whose width does not divide the length of a chunk can be in several chunks.
        while !rest.is_empty() {
            let (number, skip) = (position / CHUNK as u64, (position % CHUNK as u64) as usize);
            fixed_chunks(&self.key, number, &mut self.buffer[..chunks * BLOCK_WORDS])?;
            let (now, later) = rest.split_at_mut(rest.len().min(CHUNK - skip));
            add(now, &self.buffer, skip);
            if !later.is_empty() {
                position =
                    position.checked_add(now.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
            }
            rest = later;
        }
        self.keep(seq, width, chunks);
        Ok(())
    }

    /// Returns whether a batch is computed from this chunk on: if it follows the chunks in the buffer,
    /// and the key stream does not end in the batch.
    fn begins_batch(&self, number: u64, width: usize) -> bool {
        let next = (u64::from(self.first) + u64::from(self.cells)) * width as u64;
        BATCH > 1
            && self.cells > 0
            && width == usize::from(self.width)
            && number == next / CHUNK as u64
            && number <= last_chunk(self.key.suite()).saturating_sub(BATCH as u64 - 1)
    }

    /// Keeps the chunks in the buffer, the first of which has the cell of this event, for other cells.
    #[inline]
    fn keep(&mut self, seq: Sequence, width: usize, chunks: usize) {
        let Some(of_chunk) = CHUNK.checked_div(width).filter(|cells| cells * width == CHUNK) else {
            return;
        };
        if let (Ok(event), Ok(of_chunk), Ok(cells), Ok(width)) = (
            u32::try_from(seq.0),
            u32::try_from(of_chunk),
            u16::try_from(of_chunk * chunks),
            u8::try_from(width),
        ) {
            let first = event - event % of_chunk;
            // No event before the first one may seem to be in the buffer.
            if first.checked_add(u32::from(cells) - 1).is_some() {
                (self.width, self.cells, self.first) = (width, cells, first);
            }
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

/// Adds the bytes of the words from byte `skip` on, of which there must be as many as in `bytes`.
#[cfg_attr(feature = "host", inline)]
#[cfg_attr(not(feature = "host"), inline(never))]
fn add<const N: usize>(bytes: &mut [u8], words: &[u32; N], skip: usize) {
    let (mut rest, mut at) = (bytes, skip);
    if skip.is_multiple_of(4) {
        let (whole, last) = rest.as_chunks_mut();
        for word in whole {
            add_word(word, words, at / 4);
            at += 4;
        }
        rest = last;
    }
    for byte in rest {
        #[allow(clippy::cast_possible_truncation)]
        let stream = (words[at / 4 % N] >> (at % 4 * 8)) as u8;
        *byte ^= stream;
        at += 1;
    }
}

/// Adds a word.
#[inline]
fn add_word<const N: usize>(bytes: &mut [u8; 4], words: &[u32; N], place: usize) {
    *bytes = (u32::from_le_bytes(*bytes) ^ words[place % N]).to_le_bytes();
}

/// Returns the number of the last chunk of the key stream of a column of fixed width.
const fn last_chunk(suite: Suite) -> u64 {
    match suite {
        Suite::ChaCha20 => u64::MAX / CHUNK as u64,
        // The counter of the blocks has 32 bits, and a chunk has four blocks.
        Suite::Aes128Ctr => u32::MAX as u64 / 4,
    }
}

/// Computes the chunks of the key stream of a column of fixed width, from chunk `first` on.
fn fixed_chunks(key: &SealKey, first: u64, out: &mut [u32]) -> Result<(), KeyStreamError> {
    match key.suite() {
        Suite::ChaCha20 => {
            chacha_chunks(key, first, out);
            Ok(())
        }
        Suite::Aes128Ctr => aes_chunks(key, first, out),
    }
}

/// Computes a chunk of the key stream of a text.
fn text_chunk(
    key: &SealKey,
    Sequence(seq): Sequence,
    number: u32,
    out: &mut [u32; BLOCK_WORDS],
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
            aes_chunks(key, number.ok_or(KeyStreamError::KeyStreamEnd)?, out)
        }
    }
}

/// Computes blocks of ChaCha20 with a counter of 64 bits, from block `first` on.
#[allow(clippy::cast_possible_truncation)]
fn chacha_chunks(key: &SealKey, first: u64, out: &mut [u32]) {
    #[cfg(feature = "host")]
    if out.len() > BLOCK_WORDS {
        use chacha20::ChaCha20Legacy;
        use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

        let mut cipher = ChaCha20Legacy::new(key.expose().into(), &[0; 8].into());
        cipher.seek(first * CHUNK as u64);
        let mut bytes = [0; BATCH * CHUNK];
        cipher.write_keystream(&mut bytes);
        move_words(&mut bytes, out);
        return;
    }
    for (number, chunk) in (first..).zip(out.as_chunks_mut().0) {
        chacha::block(key.expose(), [number as u32, (number >> 32) as u32, 0, 0], chunk);
    }
}

/// Computes blocks of AES, from block `4 * first` on. The counter of the blocks has 32 bits, so the key
/// stream ends after 2^32 blocks.
#[cfg(feature = "aes128")]
fn aes_chunks(key: &SealKey, first: u64, out: &mut [u32]) -> Result<(), KeyStreamError> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    let first = first.checked_mul(4).ok_or(KeyStreamError::KeyStreamEnd)?;
    let end = first.checked_add(out.len() as u64 / 4);
    if end.is_none_or(|end| end > 1 << 32) {
        return Err(KeyStreamError::KeyStreamEnd);
    }
    let (aes_key, rest) = key.expose().split_at(16);
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    let aes = aes::Aes128::new_from_slice(aes_key).expect("the key has 16 bytes");
    let mut bytes = [0; BATCH * CHUNK];
    let blocks = bytes[..4 * out.len()].as_chunks_mut::<16>().0;
    for (number, block) in (first..).zip(&mut *blocks) {
        block[..12].copy_from_slice(&rest[..12]);
        #[allow(clippy::cast_possible_truncation)]
        block[12..].copy_from_slice(&(number as u32).to_be_bytes());
    }
    if cfg!(feature = "host") {
        aes.encrypt_blocks(aes::Block::cast_slice_from_core_mut(blocks));
    } else {
        // This takes less flash.
        blocks.iter_mut().for_each(|block| aes.encrypt_block(block.into()));
    }
    move_words(&mut bytes, out);
    Ok(())
}

#[cfg(not(feature = "aes128"))]
fn aes_chunks(_: &SealKey, _: u64, _: &mut [u32]) -> Result<(), KeyStreamError> {
    Err(KeyStreamError::UnsupportedSuite)
}

/// Reads little-endian words, and erases the bytes.
#[cfg(feature = "aes128")]
fn move_words(bytes: &mut [u8; BATCH * CHUNK], out: &mut [u32]) {
    for (word, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    erase(bytes);
}

/// Overwrites key stream with zeros. The trait `Zeroize` writes single bytes, which takes as long as the
/// computation of a batch.
fn erase<T: Copy + Default, const N: usize>(secret: &mut [T; N]) {
    secret.fill(T::default());
    optimization_barrier(secret);
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::confidential::ColumnId;

    /// The key stream of a cell, one chunk at a time: the oracle.
    fn slow(key: &SealKey, position: u64, length: usize) -> Result<Vec<u8>, KeyStreamError> {
        let positions = (0..length as u64).map(|at| position.checked_add(at));
        let byte = |position: Option<u64>| {
            let position = position.ok_or(KeyStreamError::KeyStreamEnd)?;
            let mut chunk = [0; BLOCK_WORDS];
            fixed_chunks(key, position / CHUNK as u64, &mut chunk)?;
            let place = (position % CHUNK as u64) as usize;
            Ok(chunk[place / 4].to_le_bytes()[place % 4])
        };
        positions.map(byte).collect()
    }

    /// A position near the start of the key stream, near the end of that of AES, near the place where the
    /// lower half of the counter of ChaCha20 starts again, or near the end.
    fn position() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..3000,
            (1_u64 << 36) - 3000..(1 << 36),
            (1_u64 << 38) - 3000..(1 << 38),
            u64::MAX - 3000..=u64::MAX
        ]
    }

    /// The place of an event in the buffer is a difference modulo 2^32.
    #[test]
    fn the_first_events_are_not_among_those_before_event_2_to_the_32() {
        let key = SealKey::from_bytes(ColumnId([3; 16]), Suite::ChaCha20, [5; 32]);
        let mut stream = KeyStream::new(key.clone());
        for last in (1_u64 << 32) - 300..1 << 32 {
            for seq in (last - 40..=last).chain([last & 0xff]) {
                let mut cell = [0; 4];
                assert_eq!(stream.apply_cell(Sequence(seq), &mut cell), Ok(()));
                assert_eq!(Ok(cell.to_vec()), slow(&key, 4 * seq, 4), "{seq}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn events_in_any_order_have_the_key_stream_of_single_chunks(
            suite in prop::sample::select(&Suite::ALL),
            width in 1_usize..=16,
            position in position(),
            steps in prop::collection::vec(prop_oneof![8 => Just(1_u64), 1 => 0..90_u64], 1..400),
        ) {
            let key = SealKey::from_bytes(ColumnId([3; 16]), suite, [5; 32]);
            let mut stream = KeyStream::new(key.clone());
            let mut seq = position / width as u64;
            for step in steps {
                let mut cell = [0; 16];
                let found = stream.apply_cell(Sequence(seq), &mut cell[..width]);
                let position = seq.checked_mul(width as u64).ok_or(KeyStreamError::KeyStreamEnd);
                match position.and_then(|position| slow(&key, position, width)) {
                    Ok(expected) => {
                        prop_assert_eq!(found, Ok(()));
                        prop_assert_eq!(&cell[..width], &expected[..]);
                    }
                    Err(error) => prop_assert_eq!(found, Err(error)),
                }
                seq = seq.saturating_add(step);
            }
        }
    }
}
