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
use crate::chacha;
use crate::record::Sequence;

/// The length of a chunk of key stream in bytes.
const CHUNK: usize = 64;

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
/// consecutive events of a column of fixed width compute each chunk once. It takes 136 bytes of
/// memory on a mote, and about 1.1 KiB with the feature `host`.
pub struct KeyStream {
    key: SealKey,
    /// The position in the key stream of the first byte of `buffer`.
    start: u64,
    /// The number of bytes of `buffer` that are key stream.
    length: u64,
    buffer: [u8; BATCH * CHUNK],
}

impl fmt::Debug for KeyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStream").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        // `zeroize` writes single bytes, which takes as long as the computation of the buffer.
        self.buffer.fill(0);
        optimization_barrier(&self.buffer);
    }
}

impl KeyStream {
    /// Creates the key stream of a key.
    #[must_use]
    pub const fn new(key: SealKey) -> Self {
        Self { key, start: 0, length: 0, buffer: [0; BATCH * CHUNK] }
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
        let position = seq.0.checked_mul(cell.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
        match self.computed(position).get(..cell.len()) {
            Some(stream) => add(cell, stream),
            None => self.compute_and_apply(position, cell)?,
        }
        Ok(())
    }

    /// Returns the key stream in the buffer from this position on. It is empty if the buffer does not
    /// have the position.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn computed(&self, position: u64) -> &[u8] {
        match position.checked_sub(self.start) {
            Some(skip) if skip < self.length => {
                self.buffer.get(skip as usize..self.length as usize).unwrap_or_default()
            }
            _ => &[],
        }
    }

    #[inline(never)]
    fn compute_and_apply(
        &mut self,
        mut position: u64,
        cell: &mut [u8],
    ) -> Result<(), KeyStreamError> {
        let mut rest = cell;
        loop {
            if self.computed(position).is_empty() {
                self.compute(position / CHUNK as u64)?;
            }
            let stream = self.computed(position);
            let (now, later) = rest.split_at_mut(stream.len().min(rest.len()));
            add(now, stream);
            if later.is_empty() {
                return Ok(());
            }
            position =
                position.checked_add(now.len() as u64).ok_or(KeyStreamError::KeyStreamEnd)?;
            rest = later;
        }
    }

    /// Computes a chunk: with a batch that begins with it if it follows the chunks in the buffer, and
    /// otherwise alone.
    fn compute(&mut self, number: u64) -> Result<(), KeyStreamError> {
        let start = number * CHUNK as u64;
        let is_next = self.length > 0 && start.checked_sub(self.length) == Some(self.start);
        let is_batch =
            is_next && number <= last_chunk(self.key.suite()).saturating_sub(BATCH as u64 - 1);
        let chunks = if is_batch { BATCH } else { 1 };
        let buffer = &mut self.buffer[..chunks * CHUNK];
        self.length = 0;
        fixed_chunks(&self.key, number, buffer)?;
        (self.start, self.length) = (start, buffer.len() as u64);
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

#[inline]
fn add(bytes: &mut [u8], stream: &[u8]) {
    let (words, bytes) = bytes.as_chunks_mut::<4>();
    let (keys, _) = stream.as_chunks::<4>();
    for (word, key) in words.iter_mut().zip(keys) {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(*key)).to_ne_bytes();
    }
    for (byte, key) in bytes.iter_mut().zip(&stream[words.as_flattened().len()..]) {
        *byte ^= key;
    }
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
fn fixed_chunks(key: &SealKey, first: u64, out: &mut [u8]) -> Result<(), KeyStreamError> {
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
            aes_chunks(key, number.ok_or(KeyStreamError::KeyStreamEnd)?, out)
        }
    }
}

/// Computes blocks of ChaCha20 with a counter of 64 bits, from block `first` on.
#[allow(clippy::cast_possible_truncation)]
fn chacha_chunks(key: &SealKey, first: u64, out: &mut [u8]) {
    #[cfg(feature = "host")]
    if out.len() > CHUNK {
        use chacha20::ChaCha20Legacy;
        use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

        let mut cipher = ChaCha20Legacy::new(key.expose().into(), &[0; 8].into());
        cipher.seek(first * CHUNK as u64);
        cipher.write_keystream(out);
        return;
    }
    for (number, chunk) in (first..).zip(out.as_chunks_mut().0) {
        chacha_chunk(key, [number as u32, (number >> 32) as u32, 0, 0], chunk);
    }
}

fn chacha_chunk(key: &SealKey, tail: [u32; 4], out: &mut [u8; CHUNK]) {
    let words = chacha::block::<{ chacha::BLOCK_WORDS }>(key.expose(), tail);
    for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words.iter()) {
        *bytes = word.to_le_bytes();
    }
}

/// Computes blocks of AES, from block `4 * first` on. The counter of the blocks has 32 bits, so the key
/// stream ends after 2^32 blocks.
#[cfg(feature = "aes128")]
fn aes_chunks(key: &SealKey, first: u64, out: &mut [u8]) -> Result<(), KeyStreamError> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    let blocks = out.as_chunks_mut::<16>().0;
    let first = first.checked_mul(4).ok_or(KeyStreamError::KeyStreamEnd)?;
    let end = first.checked_add(blocks.len() as u64);
    if end.is_none_or(|end| end > 1 << 32) {
        return Err(KeyStreamError::KeyStreamEnd);
    }
    let (aes_key, rest) = key.expose().split_at(16);
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    let aes = aes::Aes128::new_from_slice(aes_key).expect("the key has 16 bytes");
    for (number, block) in (first..).zip(&mut *blocks) {
        block[..12].copy_from_slice(&rest[..12]);
        #[allow(clippy::cast_possible_truncation)]
        block[12..].copy_from_slice(&(number as u32).to_be_bytes());
    }
    aes.encrypt_blocks(aes::Block::cast_slice_from_core_mut(blocks));
    Ok(())
}

#[cfg(not(feature = "aes128"))]
fn aes_chunks(_: &SealKey, _: u64, _: &mut [u8]) -> Result<(), KeyStreamError> {
    Err(KeyStreamError::UnsupportedSuite)
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
            let mut chunk = [0; CHUNK];
            fixed_chunks(key, position / CHUNK as u64, &mut chunk)?;
            Ok(chunk[(position % CHUNK as u64) as usize])
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
