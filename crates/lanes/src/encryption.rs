//! Encryption and decryption of many records of one size (spec/confidential.md, section 4).

use moteseal_core::confidential::{CipherError, EncryptedColumns, KeyStream, SealKey, Suite};
use moteseal_core::record::Sequence;
use moteseal_core::schema::RecordError;
use zeroize::optimization_barrier;

use crate::Host;

/// The number of bytes of key stream that are computed at once: sixteen blocks of ChaCha20.
const BATCH: usize = 1024;

/// The fewest cells of a batch for which it is computed in lanes.
const DENSE: u64 = 4;

impl Host {
    /// Encrypts or decrypts records of one seal, in place. `sequences` are their sequence numbers, in any
    /// order; ascending ones are fastest. Each record has `size` bytes, so the schema has no texts. `keys`
    /// has an element for each encrypted column, in the order of the schema; a column without a key is not
    /// changed. The result is that of [`EncryptedColumns::decrypt`] for each record.
    ///
    /// This is for readers. A device encrypts with `moteseal_seal::encryption::SealCipher`, which does
    /// not encrypt an event twice.
    ///
    /// # Errors
    /// [`CipherError`]. The records are then unspecified.
    pub fn apply_key_streams(
        &self,
        columns: &EncryptedColumns,
        sequences: &[Sequence],
        (size, records): (usize, &mut [u8]),
        keys: &[Option<SealKey>],
    ) -> Result<(), CipherError> {
        if keys.len() != columns.len() {
            return Err(CipherError::KeyCount);
        }
        for (cell, key) in columns.fixed_cells().zip(keys) {
            let Some(key) = key else { continue };
            let (start, width, suite) = cell.ok_or(RecordError::RecordLength)?;
            if suite != key.suite() {
                return Err(CipherError::WrongSuite);
            }
            if size < start + width || Some(records.len()) != sequences.len().checked_mul(size) {
                return Err(RecordError::RecordLength.into());
            }
            let is_in_lanes = suite == Suite::ChaCha20 && is_dense(sequences, width as u64);
            let cells = (start, size, &mut *records);
            match width {
                1 if is_in_lanes => self.apply_column::<1>(key, sequences, cells),
                2 if is_in_lanes => self.apply_column::<2>(key, sequences, cells),
                4 if is_in_lanes => self.apply_column::<4>(key, sequences, cells),
                8 if is_in_lanes => self.apply_column::<8>(key, sequences, cells),
                _ => apply_each(key, width, sequences, cells),
            }?;
        }
        Ok(())
    }

    /// Encrypts or decrypts the cells of one column, which begin at byte `start` of each record. Their width
    /// divides a block, so no cell is in two batches.
    fn apply_column<const WIDTH: usize>(
        &self,
        key: &SealKey,
        mut sequences: &[Sequence],
        (start, size, mut records): (usize, usize, &mut [u8]),
    ) -> Result<(), CipherError> {
        let mut batch = Batch([0; BATCH]);
        while let [seq, ..] = sequences {
            let position = seq.0.checked_mul(WIDTH as u64);
            // The end of the key stream is an error of the scalar loop.
            let Some(position) = position.filter(|start| *start <= u64::MAX - BATCH as u64) else {
                return apply_each(key, WIDTH, sequences, (start, size, records));
            };
            #[allow(clippy::cast_possible_truncation)]
            let skip = (position % 64) as usize;
            let last = sequences.last().unwrap_or(seq);
            let cells = last.0.checked_sub(seq.0).and_then(|more| usize::try_from(more).ok());
            let length = cells.map_or(BATCH, |cells| {
                skip.saturating_add(cells.saturating_add(1).saturating_mul(WIDTH))
            });
            let blocks = length.div_ceil(64).min(BATCH / 64);
            if !self.key_stream(key.expose(), position / 64, blocks, &mut batch.0) {
                return apply_each(key, WIDTH, sequences, (start, size, records));
            }
            let stream = batch.0[..blocks * 64].as_chunks().0;
            let done = self.add_cells::<WIDTH>(
                &stream[skip / WIDTH..],
                sequences,
                (start, size, &mut *records),
            )?;
            sequences = &sequences[done..];
            records = &mut std::mem::take(&mut records)[done * size..];
        }
        Ok(())
    }

    /// Computes up to sixteen blocks of ChaCha20 from block `first` on. Returns `false` if this
    /// processor supports only the scalar loop.
    fn key_stream(&self, key: &[u8; 32], first: u64, blocks: usize, out: &mut [u8; BATCH]) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.x86.key_stream(key, first, blocks, out);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (key, first, blocks, out);
            false
        }
    }

    /// Does what [`add_cells`] does, with the vector instructions of the processor.
    fn add_cells<const WIDTH: usize>(
        &self,
        keys: &[[u8; WIDTH]],
        sequences: &[Sequence],
        cells: Cells<'_>,
    ) -> Result<usize, RecordError> {
        #[cfg(target_arch = "x86_64")]
        return self.x86.add_cells(keys, sequences, cells);
        #[cfg(not(target_arch = "x86_64"))]
        add_cells(keys, sequences, cells)
    }
}

/// The cells of a column in records: the byte at which they begin, the size of a record, and the
/// records.
pub(crate) type Cells<'r> = (usize, usize, &'r mut [u8]);

/// Adds key stream to the cells of records, from the first record on, up to the first one whose key
/// stream is not in `keys`. `keys` begins with the key stream of the first record. Returns the number of
/// records done.
#[inline(always)]
pub(crate) fn add_cells<const WIDTH: usize>(
    keys: &[[u8; WIDTH]],
    sequences: &[Sequence],
    (start, size, records): Cells<'_>,
) -> Result<usize, RecordError> {
    let run = sequences.len().min(keys.len());
    if are_consecutive(&sequences[..run]) {
        let records = &mut records[..run * size];
        if size == WIDTH {
            for (byte, key) in records.iter_mut().zip(keys.as_flattened()) {
                *byte ^= key;
            }
        } else {
            for (record, key) in records.chunks_exact_mut(size).zip(keys) {
                add(record, start, key)?;
            }
        }
        return Ok(run);
    }
    let first = sequences[0];
    let mut done = 0;
    for (seq, record) in sequences.iter().zip(records.chunks_exact_mut(size)) {
        let place = usize::try_from(seq.0.wrapping_sub(first.0)).ok();
        let Some(key) = place.and_then(|place| keys.get(place)) else { break };
        add(record, start, key)?;
        done += 1;
    }
    Ok(done)
}

/// Returns whether each sequence number is one more than the one before. The loop has no branch, so
/// the compiler uses vector instructions.
#[inline(always)]
fn are_consecutive(sequences: &[Sequence]) -> bool {
    let Some(first) = sequences.first() else { return true };
    let pairs = sequences.iter().zip(0_u64..);
    pairs.fold(0, |differ, (seq, at)| differ | (seq.0 ^ first.0.wrapping_add(at))) == 0
}

/// Adds key stream to the cell of a record that begins at byte `start`.
#[inline(always)]
fn add<const WIDTH: usize>(
    record: &mut [u8],
    start: usize,
    key: &[u8; WIDTH],
) -> Result<(), RecordError> {
    let cell = record.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<WIDTH>);
    for (byte, key) in cell.ok_or(RecordError::RecordLength)?.iter_mut().zip(key) {
        *byte ^= key;
    }
    Ok(())
}

/// A batch of key stream, which is erased when it is dropped.
#[repr(align(64))]
struct Batch([u8; BATCH]);

impl Drop for Batch {
    fn drop(&mut self) {
        // `zeroize` writes single bytes, which takes as long as the computation of the batch.
        self.0.fill(0);
        optimization_barrier(&self.0);
    }
}

/// Returns whether so many of the cells are close to one another that whole batches are worthwhile.
fn is_dense(sequences: &[Sequence], width: u64) -> bool {
    let [first, .., last] = sequences else { return false };
    let batches = last.0.abs_diff(first.0).saturating_mul(width) / BATCH as u64 + 1;
    sequences.len() as u64 / DENSE >= batches
}

/// Applies the key stream to one record after the other, of every suite and every width.
fn apply_each(
    key: &SealKey,
    width: usize,
    sequences: &[Sequence],
    (start, size, records): (usize, usize, &mut [u8]),
) -> Result<(), CipherError> {
    let mut stream = KeyStream::new(key.clone());
    for (seq, record) in sequences.iter().zip(records.chunks_exact_mut(size)) {
        let cell = record.get_mut(start..start + width).ok_or(RecordError::RecordLength)?;
        stream.apply_cell(*seq, cell)?;
    }
    Ok(())
}
