//! Encryption and decryption of many records of one size (spec/confidential.md, section 4).

use moteseal_core::confidential::{CipherError, EncryptedColumns, KeyStream, Suite};
use moteseal_core::record::Sequence;
use moteseal_core::schema::RecordError;
use zeroize::Zeroizing;

use crate::Host;

/// The number of bytes of key stream that are computed at once.
const BATCH: usize = 1024;

/// The fewest cells of a batch for which it is computed in lanes.
const DENSE: u64 = 4;

impl Host {
    /// Encrypts or decrypts records of one seal, in place. `sequences` are their sequence numbers, in any
    /// order; ascending ones are fastest. Each record has `size` bytes, so the schema has no texts. `streams`
    /// has an element for each encrypted column, in the order of the schema; a column without a key stream is
    /// not changed. The result is that of [`EncryptedColumns::decrypt`] for each record.
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
        streams: &mut [Option<KeyStream>],
    ) -> Result<(), CipherError> {
        if streams.len() != columns.len() {
            return Err(CipherError::KeyCount);
        }
        for (cell, stream) in columns.fixed_cells().zip(streams) {
            let Some(stream) = stream else { continue };
            let (start, width, suite) = cell.ok_or(RecordError::RecordLength)?;
            if suite != stream.key().suite() {
                return Err(CipherError::WrongSuite);
            }
            if size < start + width || Some(records.len()) != sequences.len().checked_mul(size) {
                return Err(RecordError::RecordLength.into());
            }
            let is_in_lanes =
                stream.key().suite() == Suite::ChaCha20 && is_dense(sequences, width as u64);
            let cells = (start, size, &mut *records);
            match width {
                1 if is_in_lanes => self.apply_column::<1>(stream, sequences, cells),
                2 if is_in_lanes => self.apply_column::<2>(stream, sequences, cells),
                4 if is_in_lanes => self.apply_column::<4>(stream, sequences, cells),
                8 if is_in_lanes => self.apply_column::<8>(stream, sequences, cells),
                _ => apply_each(stream, width, sequences, cells),
            }?;
        }
        Ok(())
    }

    /// Encrypts or decrypts the cells of one column, which begin at byte `start` of each record. Their width
    /// divides a block, so no cell is in two batches.
    fn apply_column<const WIDTH: usize>(
        &self,
        stream: &mut KeyStream,
        mut sequences: &[Sequence],
        (start, size, mut records): (usize, usize, &mut [u8]),
    ) -> Result<(), CipherError> {
        let mut batch = Zeroizing::new([0; BATCH]);
        while let Some(seq) = sequences.first() {
            let position = seq.0.checked_mul(WIDTH as u64);
            // The end of the key stream is an error of the scalar loop.
            let Some(position) = position.filter(|start| *start <= u64::MAX - BATCH as u64) else {
                return apply_each(stream, WIDTH, sequences, (start, size, records));
            };
            if !self.key_stream(stream.key().expose(), position / 64, &mut batch) {
                return apply_each(stream, WIDTH, sequences, (start, size, records));
            }
            let base = position / 64 * 64 / WIDTH as u64;
            let cells = batch.as_chunks::<WIDTH>().0;
            let place = |seq: &Sequence| usize::try_from(seq.0.wrapping_sub(base)).ok();
            let mut done = 0;
            for (seq, record) in sequences.iter().zip(records.chunks_exact_mut(size)) {
                let Some(key) = place(seq).and_then(|place| cells.get(place)) else { break };
                let cell = record.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<WIDTH>);
                for (byte, key) in cell.ok_or(RecordError::RecordLength)?.iter_mut().zip(key) {
                    *byte ^= key;
                }
                done += 1;
            }
            sequences = &sequences[done..];
            records = &mut std::mem::take(&mut records)[done * size..];
        }
        Ok(())
    }

    /// Computes sixteen blocks of ChaCha20 from block `first` on. Returns `false` if this processor
    /// supports only the scalar loop.
    fn key_stream(&self, key: &[u8; 32], first: u64, out: &mut [u8; BATCH]) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.x86.key_stream(key, first, out);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (key, first, out);
            false
        }
    }
}

/// Returns whether so many of the cells are close to one another that whole batches are worthwhile.
fn is_dense(sequences: &[Sequence], width: u64) -> bool {
    let [first, .., last] = sequences else { return false };
    let batches = last.0.abs_diff(first.0).saturating_mul(width) / BATCH as u64 + 1;
    sequences.len() as u64 / DENSE >= batches
}

fn apply_each(
    stream: &mut KeyStream,
    width: usize,
    sequences: &[Sequence],
    (start, size, records): (usize, usize, &mut [u8]),
) -> Result<(), CipherError> {
    for (seq, record) in sequences.iter().zip(records.chunks_exact_mut(size)) {
        let cell = record.get_mut(start..start + width).ok_or(RecordError::RecordLength)?;
        stream.apply_cell(*seq, cell)?;
    }
    Ok(())
}
