//! Encryption of the records of one seal, and reading of what has been decrypted
//! (spec/confidential.md, section 4).

use super::key_stream::{KeyStream, KeyStreamError};
use super::{MAX_ENCRYPTED, Suite};
use crate::record::Sequence;
use crate::schema::{Field, FieldType, RecordError, Schema, Value, ValueError};

/// The length byte of a text that is null.
const NULL_TEXT: u8 = 0xff;

named_errors! {
    /// Why a record was not encrypted or decrypted.
    CipherError {
        /// The number of keys is not the number of encrypted columns.
        KeyCount => "the number of keys is not that of the schema's encrypted columns",
        /// A key is for another suite than that of its column.
        WrongSuite => "a key is for another cipher than that of its column",
        /// The record does not fit its schema.
        Record(error: RecordError) => from,
        /// The key stream is not available.
        KeyStream(error: KeyStreamError) => from,
    }
}

/// The place of an encrypted column in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Fixed {
        start: u16,
        width: u8,
    },
    /// The text cell that follows `skip` other ones after the first `start` bytes.
    Text {
        start: u16,
        skip: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    place: Place,
    suite: Suite,
    /// The position of the field in the schema, counted from 1.
    position: u8,
}

/// The encrypted columns of a schema: where their cells are in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedColumns {
    /// The columns, and then copies of [`NO_COLUMN`].
    columns: [Column; MAX_ENCRYPTED],
    count: u8,
}

/// Fills the places after the last column.
const NO_COLUMN: Column =
    Column { place: Place::Fixed { start: 0, width: 0 }, suite: Suite::ChaCha20, position: 0 };

impl EncryptedColumns {
    /// Returns the encrypted columns of a schema.
    #[must_use]
    pub fn of(schema: &Schema<'_>) -> Self {
        let (mut columns, mut count) = ([NO_COLUMN; MAX_ENCRYPTED], 0);
        let encrypted = schema.fields().filter_map(|field| {
            #[allow(clippy::cast_possible_truncation)]
            let start = field.start() as u16;
            let place = match field.kind {
                FieldType::Text => Place::Text { start, skip: field.skip },
                kind => Place::Fixed { start, width: u8::try_from(kind.size()).ok()? },
            };
            Some(Column { place, suite: field.suite?, position: field.position })
        });
        for (column, place) in encrypted.zip(&mut columns) {
            *place = column;
            count += 1;
        }
        Self { columns, count }
    }

    fn as_slice(&self) -> &[Column] {
        self.columns.get(..self.count.into()).unwrap_or_default()
    }

    /// Returns the number of encrypted columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns whether no column is encrypted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the byte offset in a record, the width and the suite of each encrypted column, in the
    /// order of the schema; `None` for a text.
    pub fn fixed_cells(&self) -> impl Iterator<Item = Option<(usize, usize, Suite)>> + '_ {
        self.as_slice().iter().map(|column| match column.place {
            Place::Fixed { start, width } => Some((start.into(), width.into(), column.suite)),
            Place::Text { .. } => None,
        })
    }

    /// Encrypts all encrypted columns of a record, in place. `streams` are the key streams of the
    /// seal's columns, in the order of the schema. The record must be in plaintext and valid
    /// ([`Schema::check_plain_record`]), and `seq` must be its place in the seal. An event must not be
    /// encrypted a second time with other values.
    ///
    /// # Errors
    /// [`CipherError`]. The record is unchanged for `KeyCount` and `WrongSuite`. It is otherwise
    /// unspecified and must not be sealed.
    pub fn encrypt(
        &self,
        seq: Sequence,
        record: &mut [u8],
        streams: &mut [KeyStream],
    ) -> Result<(), CipherError> {
        if streams.len() != self.len() {
            return Err(CipherError::KeyCount);
        }
        let fits = |(column, stream): (&Column, &KeyStream)| column.suite == stream.key().suite();
        if !self.as_slice().iter().zip(&*streams).all(fits) {
            return Err(CipherError::WrongSuite);
        }
        self.encrypt_checked(seq, record, streams)
    }

    /// Encrypts a record as [`encrypt`](Self::encrypt) does, for a caller that has checked once for all
    /// records that there is a key stream for each column, with its suite. With other key streams, some
    /// columns stay plaintext or are encrypted with another cipher.
    ///
    /// # Errors
    /// [`CipherError`]. The record is then unspecified and must not be sealed.
    #[inline]
    pub fn encrypt_checked(
        &self,
        seq: Sequence,
        record: &mut [u8],
        streams: &mut [KeyStream],
    ) -> Result<(), CipherError> {
        // Without the loop, one column takes less time. On motes, flash is scarcer.
        if cfg!(feature = "host")
            && let ([column], [stream]) = (self.as_slice(), &mut *streams)
        {
            return column.apply(seq, record, stream);
        }
        for (column, stream) in self.as_slice().iter().zip(streams) {
            column.apply(seq, record, stream)?;
        }
        Ok(())
    }

    /// Decrypts the columns of a record for which there are key streams, in place. `streams` has an
    /// element for each encrypted column, in the order of the schema.
    ///
    /// The caller must have verified the seal of the record, and must have checked each key against
    /// the seal's commitment ([`SealKey::check`](super::SealKey::check)).
    ///
    /// # Errors
    /// [`CipherError`]. The record is then unspecified.
    pub fn decrypt<'r>(
        &self,
        seq: Sequence,
        record: &'r mut [u8],
        streams: &mut [Option<KeyStream>],
    ) -> Result<Decrypted<'r>, CipherError> {
        if streams.len() != self.len() {
            return Err(CipherError::KeyCount);
        }
        let mut decrypted = 0;
        for (column, stream) in self.as_slice().iter().zip(streams) {
            let Some(stream) = stream else { continue };
            if column.suite != stream.key().suite() {
                return Err(CipherError::WrongSuite);
            }
            column.apply(seq, record, stream)?;
            decrypted |= bit(column.position);
        }
        Ok(Decrypted { record, decrypted })
    }
}

impl Column {
    #[inline]
    fn apply(
        &self,
        seq: Sequence,
        record: &mut [u8],
        stream: &mut KeyStream,
    ) -> Result<(), CipherError> {
        match self.place {
            Place::Fixed { start, width } => {
                let start = usize::from(start);
                let cell = record.get_mut(start..start + usize::from(width));
                stream.apply_cell(seq, cell.ok_or(RecordError::RecordLength)?)?;
                Ok(())
            }
            Place::Text { start, skip } => apply_text(seq, record, (start, skip), stream),
        }
    }
}

/// Encrypts or decrypts the text cell that follows `skip` other ones after the first `start` bytes.
#[inline(never)]
fn apply_text(
    seq: Sequence,
    record: &mut [u8],
    (start, skip): (u16, u8),
    stream: &KeyStream,
) -> Result<(), CipherError> {
    let mut rest = record.get_mut(start.into()..).ok_or(RecordError::RecordLength)?;
    for _ in 0..skip {
        rest = split_text(rest).ok_or(RecordError::RecordLength)?.1;
    }
    let (text, _) = split_text(rest).ok_or(RecordError::RecordLength)?;
    stream.apply_text(seq, text)?;
    Ok(())
}

/// Splits the first text cell off `bytes`. Returns its bytes without the length, and the remaining
/// bytes. A null has no bytes.
fn split_text(bytes: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    let (length, rest) = bytes.split_first_mut()?;
    let length = if *length == NULL_TEXT { 0 } else { usize::from(*length) };
    rest.split_at_mut_checked(length)
}

/// Returns the bit of a field in a set of fields. `position` counts from 1.
const fn bit(position: u8) -> u64 {
    1_u64.unbounded_shl(position.wrapping_sub(1) as u32)
}

/// A record of which some encrypted columns have been decrypted. [`EncryptedColumns::decrypt`]
/// creates it, so a value of an encrypted column exists only where its key does.
#[derive(Clone, Copy)]
pub struct Decrypted<'r> {
    record: &'r [u8],
    /// The decrypted fields: bit `i` is the field at position `i`, from 0.
    decrypted: u64,
}

impl<'r> Decrypted<'r> {
    /// Returns the value of a field. `field` must come from the schema of the record.
    ///
    /// # Errors
    /// `Encrypted` if the column is encrypted and has not been decrypted; otherwise the errors of
    /// [`Field::read`].
    pub fn read<'a: 'r>(&self, field: &Field<'a>) -> Result<Value<'r>, ValueError> {
        self.readable(field)?.read(self.record)
    }

    /// Returns the field, for reading this record with [`Field::read`] or its relatives.
    ///
    /// # Errors
    /// `Encrypted`.
    fn readable<'a>(&self, field: &Field<'a>) -> Result<Field<'a>, ValueError> {
        if field.suite.is_some() && self.decrypted & bit(field.position) == 0 {
            return Err(ValueError::Encrypted);
        }
        Ok(field.in_plaintext())
    }

    /// Returns the record, in which the columns that have not been decrypted are ciphertext.
    #[must_use]
    pub const fn as_bytes(&self) -> &'r [u8] {
        self.record
    }
}

impl core::fmt::Debug for Decrypted<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Decrypted").field("decrypted", &self.decrypted).finish_non_exhaustive()
    }
}
