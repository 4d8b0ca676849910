//! The stream schema: the named fields of a device's records, with units, types and scales
//! (spec/objects.md, section 5).
//!
//! A record contains the cells of its fields in order, big-endian and without padding; texts come
//! after all other cells. The value of an integer field is `(raw + offset) / divisor`. It is exact:
//! [`Decimal`] stores the numerator and the divisor. [`Field::write`] accepts a decimal text only if
//! the scale can represent it.
//!
//! [`Schema::encode`] writes version 1 of the format for fields that it can express, and version 2
//! for all others. Only version 2 has nullable fields, ids other than the position, encrypted
//! columns, and the types from `bool` on. A cell of these types may have an invalid value:
//! [`Schema::check_record`].
//!
//! # Encrypted columns
//!
//! A sealed record has ciphertext in the cells of encrypted columns
//! ([`confidential`](crate::confidential)). The fields of a schema are for sealed records, so
//! [`Field::read`] and its relatives return [`ValueError::Encrypted`] for an encrypted column. There
//! are two ways to read its values, and a caller must name one of them:
//!
//! - A reader decrypts the record. The result is a [`Decrypted`](crate::confidential::Decrypted)
//!   record, which reads exactly the columns that were decrypted.
//! - A device reads a record that it has not encrypted yet through [`Field::in_plaintext`]. The caller
//!   asserts that the record is plaintext there; nothing checks it.
//!
//! [`Schema::check_record`] checks sealed records, and [`Schema::check_plain_record`] checks records
//! before encryption and after the decryption of all columns.
//!
//! ```
//! use moteseal_core::schema::{Field, MAX_SCHEMA, Schema, ValueError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fields = [Field::parse("temperature:Cel:i16/100")?, Field::parse("humidity:%RH:u16/100")?];
//! let mut buffer = [0; MAX_SCHEMA];
//! let schema = Schema::encode(&fields, &mut buffer)?;
//!
//! let mut record = [0; 4];
//! for (field, text) in schema.fields().zip(["27.97", "41.5"]) {
//!     field.write(text, &mut record)?;
//! }
//! assert_eq!(record, [0x0a, 0xed, 0x10, 0x36]);
//! assert_eq!(fields[0].read(&record)?.to_string(), "27.97");
//! assert_eq!(fields[0].write("27.971", &mut record), Err(ValueError::NotRepresentable));
//! # Ok(())
//! # }
//! ```

use core::fmt;

use crate::cbor::{self, BufferTooSmall, DecodeError, Reader, Writer};
use crate::confidential::{ColumnId, MAX_ENCRYPTED};
use crate::digest::Digest;

mod check;
mod encoding;
mod field;
mod field_type;
mod groups;
mod labels;
mod number;
mod timestamp;
mod unit;
mod value;

pub use check::{RecordCheck, RecordError};
pub use field::{Field, MAX_NAME, MAX_TEXT, check_words};
pub use field_type::FieldType;
pub use groups::{
    Cells, Column, ColumnError, GroupLayout, Groups, HiddenColumn, MAX_GROUPS, Projection,
};
pub use labels::{Labels, MAX_LABEL, MAX_LABELS};
pub use unit::{is_secondary_unit, is_unit};
pub use value::{Decimal, Value, ValueError};

use check::Size;
use encoding::{Shape, Version};

/// The largest number of fields in a schema.
pub const MAX_FIELDS: usize = 64;
/// Length of the longest schema in bytes.
pub const MAX_SCHEMA: usize = 8 + MAX_FIELDS * (MAX_NAME + 32);

named_errors! {
    /// Why a schema was rejected.
    SchemaError {
        /// The bytes are not a schema.
        Decode(error: DecodeError) => from,
        /// The schema is longer than [`MAX_SCHEMA`].
        SchemaTooLong => "the encoded schema is longer than 6152 bytes; shorten names or labels",
        /// There are more than [`MAX_FIELDS`] fields.
        TooManyFields => "a schema has at most 64 fields",
        /// A field has a key that is unknown, and that a reader must understand.
        UnsupportedField {
            /// The key in the field's map.
            key: u64,
        } => "a field has the key {key}, which this version of the software does not know; \
            update the software",
        /// A field's id is not 1 to 65535.
        InvalidFieldId => "a field's id must be 1 to 65535",
        /// Two fields have the same id.
        DuplicateFieldId => "two fields have the same id; a field without #ID has its position, \
            counted from 1, as its id",
        /// A field's name is empty, longer than [`MAX_NAME`] bytes, or has control characters.
        InvalidFieldName =>
            "a field's name must be 1 to 64 bytes of UTF-8 without control characters",
        /// Two fields have the same name.
        DuplicateField => "two fields have the same name",
        /// A unit is neither empty nor in the SenML registries.
        UnknownUnit =>
            "the unit is not a SenML unit such as Cel, %RH or V; leave it empty for no unit",
        /// The type of a field does not exist.
        UnknownFieldType => "the type is not one of \
            u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, time, \
            bool, enum(LABEL,...), text32, timestamp, point",
        /// A divisor is 0 or above 2^32-1, or a field that is not an integer has a scale.
        ScaleOutOfRange => "a divisor must be 1 to 4294967295, an offset must fit 64 bits, \
            and only integer types may have them",
        /// An enumeration has no labels, too many or invalid ones, or another type has labels.
        InvalidLabels => "an enum must have 1 to 254 distinct labels of 1 to 64 bytes, without \
            control characters, commas and brackets, such as enum(off,on)",
        /// The longest length of a text is not 1 to 254, or another type has such a length.
        InvalidTextLength => "a text must state the length of the longest value, 1 to 254 bytes, \
            such as text32",
        /// The suite of an encrypted column does not exist.
        UnknownSuite => "the suite of an encrypted column is unknown; the marks are ! and !aes, or update \
            the software",
        /// There are more than [`MAX_ENCRYPTED`](crate::confidential::MAX_ENCRYPTED) encrypted columns.
        TooManyEncryptedFields => "a schema has at most 16 encrypted columns",
        /// A group is not 0 to 7.
        InvalidGroup => "the group of a column must be 0 to 7, such as temperature:Cel:i16/100!@1",
        /// The schema has groups, but no column is in group 0.
        NoFirstGroup => "a schema with column groups must have a column in group 0, which is always \
            shown",
        /// A group other than 0 has a column that is not encrypted.
        PlainGroup => "every column of a group other than 0 must be encrypted in this version; \
            encrypt the column, or move it to group 0",
        /// The text is not `name:unit:type`, with or without `/divisor`, `+offset`, `?`, `~`, `!`,
        /// `@group` and `#id`.
        MalformedField => "a field must have the form NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!|!aes][@GROUP][#ID], \
            such as temperature:Cel:i16/100",
        /// The output buffer is too small.
        BufferTooSmall => "the schema does not fit the buffer",
    }
}

impl From<BufferTooSmall> for SchemaError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// A schema that has been checked completely. It borrows its encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Schema<'a> {
    bytes: &'a [u8],
    version: Version,
    fields: u8,
    /// The number of text fields.
    texts: u8,
    /// The length of all cells that are not texts, in bytes.
    fixed: u16,
    /// The number of encrypted fields.
    encrypted: u8,
    /// The groups of the fields; empty if all are in group 0.
    groups: Groups,
}

impl Schema<'static> {
    /// The schema without fields. Its records are opaque and of any length.
    pub const OPAQUE: Self = Schema {
        bytes: &[0x82, 0x01, 0x80],
        version: Version::One,
        fields: 0,
        texts: 0,
        fixed: 0,
        encrypted: 0,
        groups: Groups::NONE,
    };
}

impl<'a> Schema<'a> {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`SchemaError`]: the first check that fails.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SchemaError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(2)?;
        let version = Version::read(&mut reader)?;
        let fields = usize::try_from(reader.array_any()?).unwrap_or(usize::MAX);
        // Opaque schemas have version 1.
        if version == Version::Two && fields == 0 {
            return Err(DecodeError::UnsupportedVersion.into());
        }
        for at in 0..fields {
            Shape::read(&mut reader, version, at + 1)?;
        }
        if version == Version::Two && bytes.len() > MAX_SCHEMA {
            return Err(SchemaError::SchemaTooLong);
        }
        let count = u8::try_from(fields)
            .ok()
            .filter(|_| fields <= MAX_FIELDS)
            .ok_or(SchemaError::TooManyFields)?;
        let mut schema = Self {
            bytes,
            version,
            fields: count,
            texts: 0,
            fixed: 0,
            encrypted: 0,
            groups: Groups::NONE,
        };
        let (mut groups, mut plain) = (Groups::NONE, Groups::NONE);
        let mut reader = schema.reader();
        let (mut names, mut ids) = ([""; MAX_FIELDS], [0; MAX_FIELDS]);
        for at in 0..fields {
            let field = Shape::read(&mut reader, version, at + 1)?.check(version)?;
            if names[..at].contains(&field.name) {
                return Err(SchemaError::DuplicateField);
            }
            if ids[..at].contains(&field.id) {
                return Err(SchemaError::DuplicateFieldId);
            }
            (names[at], ids[at]) = (field.name, field.id);
            schema.place(&field);
            schema.encrypted += u8::from(field.suite.is_some());
            if usize::from(schema.encrypted) > MAX_ENCRYPTED {
                return Err(SchemaError::TooManyEncryptedFields);
            }
            groups = groups.with(field.group);
            if field.suite.is_none() {
                plain = plain.with(field.group);
            }
        }
        schema.groups = Self::check_groups(groups, plain)?;
        Ok(schema)
    }

    /// Writes the schema of these fields to `out` ([`MAX_SCHEMA`] bytes suffice) and checks it. An
    /// empty list of fields results in [`Schema::OPAQUE`]. Uses version 1 if it can express the
    /// fields.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn encode(fields: &[Field<'_>], out: &'a mut [u8]) -> Result<Self, SchemaError> {
        let is_in_version_1 =
            fields.iter().zip(1..).all(|(field, position)| field.is_in_version_1(position));
        let version = if is_in_version_1 { Version::One } else { Version::Two };
        // In version 2, a schema may be longer than MAX_SCHEMA although its fields are valid.
        let is_short = out.len() < MAX_SCHEMA;
        let mut out = Writer::new(out);
        let written = Self::write(fields, version, &mut out);
        if written.is_err() && version == Version::Two && !is_short {
            return Err(SchemaError::SchemaTooLong);
        }
        written?;
        Self::decode(out.finish())
    }

    fn write(
        fields: &[Field<'_>],
        version: Version,
        out: &mut Writer<'_>,
    ) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(version.number())?.array(fields.len() as u64)?;
        for (field, position) in fields.iter().zip(1..) {
            encoding::write(field, version, position, out)?;
        }
        Ok(())
    }

    /// Returns a reader at the first field. The schema has been read before.
    fn reader(&self) -> Reader<'a> {
        // The array, the version, and the head of the list of fields.
        let head = 2 + cbor::head(4, self.fields.into()).1;
        Reader::resume(self.bytes.get(head..).unwrap_or_default())
    }

    /// Counts the cell of a field. Returns the field with its place in records.
    fn place(&mut self, field: &Field<'a>) -> Field<'a> {
        let start = self.fixed;
        let skip = if field.kind == FieldType::Text {
            self.texts += 1;
            self.texts - 1
        } else {
            // A schema has at most 64 cells of at most 8 bytes.
            self.fixed += u16::try_from(field.kind.size()).unwrap_or(8);
            0
        };
        Field { start, skip, ..*field }
    }

    /// Returns the encoded schema.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the digest that identifies the schema in a seal: `H("moteseal/1/schema" || 0x00 ||
    /// schema)`.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[b"moteseal/1/schema\0", self.bytes])
    }

    /// Returns whether the schema has no fields. Its records are then opaque.
    #[must_use]
    pub const fn is_opaque(&self) -> bool {
        self.fields == 0
    }

    /// Returns the length of a record in bytes, or `None` if records have different lengths: if
    /// they are opaque, or have texts. A record of such a schema follows its length wherever it is
    /// hashed, stored or sent ([`Framing::Prefixed`](crate::record::Framing::Prefixed)).
    #[must_use]
    pub const fn record_size(&self) -> Option<usize> {
        match self.size() {
            Size::Fixed { size } => Some(size as usize),
            Size::Opaque | Size::Texts { .. } => None,
        }
    }

    const fn size(&self) -> Size {
        match (self.fields, self.texts) {
            (0, _) => Size::Opaque,
            (_, 0) => Size::Fixed { size: self.fixed },
            (_, texts) => Size::Texts { fixed: self.fixed, texts },
        }
    }

    const fn is_in_version_1(&self) -> bool {
        matches!(self.version, Version::One)
    }

    /// Returns the fields, in the order of the schema. A record contains the cells of all fields
    /// that are not texts in this order, followed by the texts in this order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let (version, fixed, mut reader) = (self.version, self.fixed, self.reader());
        let mut placed = Self { texts: 0, fixed: 0, ..*self };
        (1..=self.fields).map(move |position| {
            // The bytes have been read successfully before, so nothing here fails.
            let field = Shape::read(&mut reader, version, position.into())
                .and_then(|shape| shape.field(version))
                .unwrap_or(Field::new("", "", FieldType::U8));
            let field = placed.place(&field);
            let start = if field.kind == FieldType::Text { fixed } else { field.start };
            Field { start, position, ..field }
        })
    }

    /// Returns the number of encrypted columns, at most [`MAX_ENCRYPTED`].
    #[must_use]
    pub const fn encrypted_count(&self) -> usize {
        self.encrypted as usize
    }

    /// Returns the encrypted columns in the order of the schema, with their ids in keys and grants.
    pub fn encrypted_columns(&self) -> impl Iterator<Item = (Field<'a>, ColumnId)> + use<'a> {
        let (version, mut reader) = (self.version, self.reader());
        self.fields().filter_map(move |field| {
            let before = reader.rest();
            let read = Shape::read(&mut reader, version, field.position.into());
            let length = before.len() - reader.rest().len();
            (read.is_ok() && field.suite.is_some())
                .then(|| (field, ColumnId::of(&before[..length])))
        })
    }

    /// Returns the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.fields().find(|field| field.name == name)
    }

    /// Returns the field with this id.
    #[must_use]
    pub fn field_with_id(&self, id: u16) -> Option<Field<'a>> {
        self.fields().find(|field| field.id == id)
    }
}

impl fmt::Debug for Schema<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.fields().map(Shown)).finish()
    }
}

struct Shown<'a>(Field<'a>);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
