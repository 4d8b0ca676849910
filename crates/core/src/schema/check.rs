//! Checks of records against their schema (spec/objects.md, section 5.3).

use super::{Field, FieldType, MAX_FIELDS, Schema};

/// The raw coordinate of 90 degrees.
const RIGHT_ANGLE: i32 = 900_000_000;
/// The length byte of a text that is null.
pub(super) const NULL_TEXT: u8 = 0xff;

named_errors! {
    /// Why a record does not fit its schema.
    RecordError {
        /// The record does not have the length that the schema requires.
        RecordLength => "the record's length does not fit the schema",
        /// A cell is not a value of its column.
        RecordValue => "a cell of the record is not a value of its column",
    }
}

/// The check of many records of one schema. It reads the schema once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordCheck {
    size: Size,
    cells: [Cell; MAX_FIELDS],
    count: u8,
}

impl RecordCheck {
    /// Creates the check of a schema's sealed records ([`Schema::check_record`]). Returns `None` if
    /// every record of the right length is valid, as under all schemas of version 1, and no record
    /// contains lengths.
    #[must_use]
    pub fn of(schema: &Schema<'_>) -> Option<Self> {
        let is_needed = schema.cells(State::Sealed).next().is_some();
        is_needed.then(|| Self::new(schema))
    }

    /// Creates the check of a schema's records in plaintext ([`Schema::check_plain_record`]). Returns
    /// `None` under the same condition as [`of`](Self::of).
    #[must_use]
    pub fn of_plain(schema: &Schema<'_>) -> Option<Self> {
        let is_needed = schema.cells(State::Plain).next().is_some();
        is_needed.then(|| Self::create(schema, State::Plain))
    }

    /// Creates the check of a schema's sealed records.
    #[must_use]
    pub fn new(schema: &Schema<'_>) -> Self {
        Self::create(schema, State::Sealed)
    }

    fn create(schema: &Schema<'_>, state: State) -> Self {
        let none = Cell { start: 0, kind: CellKind::Bool, most: 0, nullable: false };
        let mut out = Self { size: schema.size(), cells: [none; MAX_FIELDS], count: 0 };
        for (cell, place) in schema.cells(state).zip(&mut out.cells) {
            *place = cell;
            out.count += 1;
        }
        out
    }

    /// Checks a record.
    ///
    /// # Errors
    /// `RecordLength` or `RecordValue`.
    #[inline]
    pub fn check(&self, record: &[u8]) -> Result<(), RecordError> {
        self.size.check(record)?;
        check_cells(self.cells.iter().take(self.count.into()).copied(), self.size, record)
    }
}

impl Schema<'_> {
    /// Checks a sealed record. Of the encrypted columns only the lengths of texts are checked, because
    /// every ciphertext is valid. If there are many records, [`RecordCheck`] is faster.
    ///
    /// # Errors
    /// `RecordLength` or `RecordValue`.
    pub fn check_record(&self, record: &[u8]) -> Result<(), RecordError> {
        self.size().check(record)?;
        check_cells(self.cells(State::Sealed), self.size(), record)
    }

    /// Checks a record in plaintext: before its encryption, or after the decryption of all encrypted
    /// columns. For a schema without encrypted columns this is [`check_record`](Self::check_record).
    ///
    /// # Errors
    /// `RecordLength` or `RecordValue`.
    pub fn check_plain_record(&self, record: &[u8]) -> Result<(), RecordError> {
        self.size().check(record)?;
        check_cells(self.cells(State::Plain), self.size(), record)
    }

    /// Returns the length in bytes of the record at the start of `bytes`, or `None` if it extends
    /// past their end. An opaque record has the length of `bytes`.
    ///
    /// With text columns, this is the length of a record that [`Field::write`] has written to a
    /// buffer of [`longest_record`](Self::longest_record) bytes.
    #[must_use]
    pub fn record_length(&self, bytes: &[u8]) -> Option<usize> {
        self.size().length(bytes)
    }

    /// Returns the length of the longest record, in bytes.
    #[must_use]
    pub fn longest_record(&self) -> usize {
        match self.size() {
            Size::Opaque => crate::record::MAX_PAYLOAD,
            Size::Fixed { size } => size.into(),
            Size::Texts { fixed, .. } => {
                let texts = self.fields().filter(|field| field.kind == FieldType::Text);
                usize::from(fixed)
                    + texts.map(|field| 1 + usize::from(field.longest)).sum::<usize>()
            }
        }
    }

    /// Returns the cells whose values must be checked, in the order of the fields.
    fn cells(&self, state: State) -> impl Iterator<Item = Cell> + use<'_> {
        // Every value of a type of version 1 is valid.
        let fields = if self.is_in_version_1() { None } else { Some(self.fields()) };
        fields.into_iter().flatten().filter_map(move |field| Cell::of(&field, state))
    }
}

/// The length of a schema's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Opaque,
    Fixed {
        size: u16,
    },
    /// `fixed` bytes, followed by this many text cells.
    Texts {
        fixed: u16,
        texts: u8,
    },
}

impl Size {
    fn length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Opaque => Some(bytes.len()),
            Self::Fixed { size } => Some(size.into()).filter(|&size: &usize| size <= bytes.len()),
            Self::Texts { fixed, texts } => {
                let mut rest = bytes.get(fixed.into()..)?;
                for _ in 0..texts {
                    rest = split_text(rest)?.1;
                }
                Some(bytes.len() - rest.len())
            }
        }
    }

    #[inline]
    fn check(self, record: &[u8]) -> Result<(), RecordError> {
        if self.length(record) == Some(record.len()) {
            Ok(())
        } else {
            Err(RecordError::RecordLength)
        }
    }
}

/// Splits the first text cell off `bytes`. Returns its bytes without the length, `None` if it is
/// null, and the remaining bytes.
pub(super) fn split_text(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    if length == NULL_TEXT {
        return Some((None, rest));
    }
    rest.split_at_checked(length.into()).map(|(text, rest)| (Some(text), rest))
}

/// Returns the text of a cell if it is valid.
pub(super) fn text_of(bytes: &[u8], longest: u8) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    (bytes.len() <= longest.into() && !text.contains(char::is_control)).then_some(text)
}

/// Returns whether a latitude and a longitude are in range.
pub(super) fn is_point(latitude: i32, longitude: i32) -> bool {
    latitude.unsigned_abs() <= RIGHT_ANGLE.unsigned_abs()
        && longitude.unsigned_abs() <= 2 * RIGHT_ANGLE.unsigned_abs()
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The cells of encrypted columns are ciphertext.
    Sealed,
    /// No cell is ciphertext.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellKind {
    Bool,
    Enum,
    Point,
    Text,
    /// A text whose bytes are ciphertext. Its length is in the clear.
    EncryptedText,
}

/// A cell whose type has invalid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    start: u16,
    kind: CellKind,
    /// The number of labels, or the length of the longest text.
    most: u8,
    nullable: bool,
}

impl Cell {
    fn of(field: &Field<'_>, state: State) -> Option<Self> {
        let is_ciphertext = field.suite.is_some() && state == State::Sealed;
        let (kind, most) = match field.kind {
            FieldType::Text if is_ciphertext => (CellKind::EncryptedText, field.longest),
            _ if is_ciphertext => return None,
            FieldType::Bool => (CellKind::Bool, 2),
            FieldType::Enum => (CellKind::Enum, u8::try_from(field.labels.len()).unwrap_or(0)),
            FieldType::Point => (CellKind::Point, 0),
            FieldType::Text => (CellKind::Text, field.longest),
            _ => return None,
        };
        Some(Self { start: field.start, kind, most, nullable: field.nullable })
    }

    /// Returns whether the cell has a value of its column. `texts` are the text cells that follow;
    /// a text is removed from them.
    fn is_valid(self, record: &[u8], texts: &mut &[u8]) -> bool {
        let cell = record.get(self.start.into()..).unwrap_or(&[]);
        match self.kind {
            CellKind::Bool | CellKind::Enum => cell
                .first()
                .is_some_and(|&raw| raw < self.most || (self.nullable && raw == u8::MAX)),
            CellKind::Point => cell.first_chunk::<8>().is_some_and(|&[a, b, c, d, e, f, g, h]| {
                let point = (i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]));
                is_point(point.0, point.1) || (self.nullable && point == (i32::MIN, i32::MIN))
            }),
            CellKind::Text => split_text(texts).is_some_and(|(text, rest)| {
                *texts = rest;
                text.map_or(self.nullable, |text| text_of(text, self.most).is_some())
            }),
            CellKind::EncryptedText => split_text(texts).is_some_and(|(text, rest)| {
                *texts = rest;
                text.map_or(self.nullable, |text| text.len() <= self.most.into())
            }),
        }
    }
}

/// Checks the cells of a record that has the right length.
fn check_cells(
    mut cells: impl Iterator<Item = Cell>,
    size: Size,
    record: &[u8],
) -> Result<(), RecordError> {
    let mut texts = match size {
        Size::Texts { fixed, .. } => record.get(fixed.into()..).unwrap_or(&[]),
        Size::Opaque | Size::Fixed { .. } => &[],
    };
    if cells.all(|cell| cell.is_valid(record, &mut texts)) {
        Ok(())
    } else {
        Err(RecordError::RecordValue)
    }
}
