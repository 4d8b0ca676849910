//! Encryption and decryption of many records of one size (spec/confidential.md, section 4).

use moteseal_core::confidential::{CipherError, EncryptedColumns, KeyStream, Suite};
use moteseal_core::record::Sequence;
use moteseal_core::schema::RecordError;
use zeroize::Zeroizing;

use crate::Host;

/// The number of bytes of key stream that are computed at once.
const BATCH: usize = 1024;

impl Host {
    /// Encrypts or decrypts the events `first, first + 1, ...` of one seal, in place. Each record has
    /// `size` bytes, so the schema has no texts. `streams` has an element for each encrypted column, in
    /// the order of the schema; a column without a key stream is not changed. The result is that of
    /// [`EncryptedColumns::decrypt`] for each record.
    ///
    /// This is for readers. A device encrypts with `moteseal_seal::encryption::SealCipher`, which does
    /// not encrypt an event twice.
    ///
    /// # Errors
    /// [`CipherError`]. The records are then unspecified.
    pub fn apply_key_streams(
        &self,
        columns: &EncryptedColumns,
        first: Sequence,
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
            if size < start + width || !records.len().is_multiple_of(size) {
                return Err(RecordError::RecordLength.into());
            }
            let cells =
                records.chunks_exact_mut(size).map(|record| &mut record[start..start + width]);
            self.apply_column(stream, first, width, cells)?;
        }
        Ok(())
    }

    /// Encrypts or decrypts the cells of one column.
    fn apply_column<'r>(
        &self,
        stream: &mut KeyStream,
        first: Sequence,
        width: usize,
        cells: impl ExactSizeIterator<Item = &'r mut [u8]>,
    ) -> Result<(), CipherError> {
        let is_in_lanes = stream.key().suite() == Suite::ChaCha20 && BATCH.is_multiple_of(width);
        let start = first.0.checked_mul(width as u64);
        let end = (cells.len() as u64)
            .checked_mul(width as u64)
            .and_then(|length| start?.checked_add(length)?.checked_add(BATCH as u64));
        let mut batch = Zeroizing::new([0; BATCH]);
        let mut cells = (first.0..).map(Sequence).zip(cells);
        if is_in_lanes && let (Some(start), Some(_)) = (start, end) {
            // A batch begins with the block of the first cell, and widths divide the batch.
            let mut at = (start % 64) as usize;
            let mut position = start - at as u64;
            if !self.key_stream(stream.key().expose(), position / 64, &mut batch) {
                return apply_each(stream, cells);
            }
            for (_, cell) in cells.by_ref() {
                if at == BATCH {
                    position += BATCH as u64;
                    self.key_stream(stream.key().expose(), position / 64, &mut batch);
                    at = 0;
                }
                for (byte, stream) in cell.iter_mut().zip(&batch[at..at + width]) {
                    *byte ^= stream;
                }
                at += width;
            }
            return Ok(());
        }
        apply_each(stream, cells)
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

fn apply_each<'r>(
    stream: &mut KeyStream,
    cells: impl Iterator<Item = (Sequence, &'r mut [u8])>,
) -> Result<(), CipherError> {
    for (seq, cell) in cells {
        stream.apply_cell(seq, cell)?;
    }
    Ok(())
}
