//! The stream schema: the named fields of a device's records, with units, types and scales
//! (spec/objects.md, section 5).
//!
//! A record contains the values of its fields in order, big-endian and without padding. The value
//! of an integer field is `(raw + offset) / divisor`. It is exact: [`Decimal`] stores the numerator
//! and the divisor. [`Field::write`] accepts a decimal text only if the scale can represent it.
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

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::digest::Digest;

mod unit;
mod value;

pub use unit::{is_secondary_unit, is_unit};
pub use value::{Decimal, Value, ValueError};

/// The largest number of fields in a schema.
pub const MAX_FIELDS: usize = 64;
/// The longest name of a field, in bytes.
pub const MAX_NAME: usize = 64;
/// Length of the longest schema in bytes.
pub const MAX_SCHEMA: usize = 8 + MAX_FIELDS * (MAX_NAME + 32);

/// The encoding of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldType {
    /// 1 byte, unsigned.
    U8,
    /// 1 byte, two's complement.
    I8,
    /// 2 bytes, unsigned.
    U16,
    /// 2 bytes, two's complement.
    I16,
    /// 4 bytes, unsigned.
    U32,
    /// 4 bytes, two's complement.
    I32,
    /// 8 bytes, unsigned.
    U64,
    /// 8 bytes, two's complement.
    I64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// 4 bytes, unsigned: milliseconds since the epoch's start.
    Time,
}

impl FieldType {
    /// All types, in the order of their numbers in encoded schemas.
    pub const ALL: [Self; 11] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Time,
    ];

    /// Returns the number of the type in an encoded schema.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the type with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the name of the type on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Time => "time",
        }
    }

    /// Returns the type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the length of a value in a record, in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::Time => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns whether the type may have a divisor and an offset.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F64 | Self::Time)
    }

    /// Returns whether the type has negative values.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        match self {
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::F32 | Self::F64 => true,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::Time => false,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

named_errors! {
    /// Why a schema was rejected.
    SchemaError {
        /// The bytes are not a schema.
        Decode(error: DecodeError) => from,
        /// There are more than [`MAX_FIELDS`] fields.
        TooManyFields => "a schema has at most 64 fields",
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
            u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, time",
        /// A divisor is 0 or above 2^32-1, or a float or time field has a scale.
        ScaleOutOfRange => "a divisor must be 1 to 4294967295, an offset must fit 64 bits, \
            and only integer types may have them",
        /// The text is not `name:unit:type`, with or without `/divisor` and `+offset`.
        MalformedField => "a field must have the form NAME:UNIT:TYPE[/DIVISOR][+OFFSET], \
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

/// One field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, distinct within its schema.
    pub name: &'a str,
    /// A SenML unit (RFC 8428, RFC 8798), or empty.
    pub unit: &'a str,
    /// The type of the field, which determines its encoding.
    pub kind: FieldType,
    /// The divisor, by which the sum of raw value and offset is divided.
    pub divisor: u32,
    /// The offset, added to the raw value.
    pub offset: i64,
    /// The byte offset of the field in a record. It is 0 for a field that does not come from a
    /// schema.
    start: usize,
}

impl<'a> Field<'a> {
    /// Creates a field with divisor 1 and offset 0.
    #[must_use]
    pub const fn new(name: &'a str, unit: &'a str, kind: FieldType) -> Self {
        Self { name, unit, kind, divisor: 1, offset: 0, start: 0 }
    }

    /// Returns the same field with a scale: `value = (raw + offset) / divisor`.
    #[must_use]
    pub const fn scaled(self, divisor: u32, offset: i64) -> Self {
        Self { divisor, offset, ..self }
    }

    /// Returns the field without its name and unit. It can still read and write values.
    #[must_use]
    pub const fn unnamed(self) -> Field<'static> {
        Field {
            name: "",
            unit: "",
            kind: self.kind,
            divisor: self.divisor,
            offset: self.offset,
            start: self.start,
        }
    }

    /// Parses `name:unit:type[/divisor][+offset]`, such as `temperature:Cel:i16/100` or
    /// `pressure:hPa:u16/10+9000`. The name may contain colons.
    ///
    /// # Errors
    /// `MalformedField`, `InvalidFieldName`, `UnknownUnit`, `UnknownFieldType` or
    /// `ScaleOutOfRange`.
    pub fn parse(text: &'a str) -> Result<Self, SchemaError> {
        let (rest, packing) = text.rsplit_once(':').ok_or(SchemaError::MalformedField)?;
        let (name, unit) = rest.rsplit_once(':').ok_or(SchemaError::MalformedField)?;
        let (packing, offset) = match packing.find(['+', '-']) {
            // The integer parser accepts a leading sign.
            Some(at) => {
                (&packing[..at], packing[at..].parse().map_err(|_| SchemaError::ScaleOutOfRange)?)
            }
            None => (packing, 0),
        };
        let (kind, divisor) = match packing.split_once('/') {
            Some((kind, divisor)) => {
                (kind, divisor.parse().map_err(|_| SchemaError::ScaleOutOfRange)?)
            }
            None => (packing, 1),
        };
        let kind = FieldType::from_name(kind).ok_or(SchemaError::UnknownFieldType)?;
        let field = Self::new(name, unit, kind).scaled(divisor, offset);
        field.check()?;
        Ok(field)
    }

    /// Returns the byte offset of the field in a record; 0 if the field does not come from a
    /// schema.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    fn check(&self) -> Result<(), SchemaError> {
        check_words(self.name, self.unit)?;
        if self.divisor == 0 || (!self.kind.is_integer() && (self.divisor, self.offset) != (1, 0)) {
            return Err(SchemaError::ScaleOutOfRange);
        }
        Ok(())
    }

    /// Reads a field of a schema that has been checked before.
    fn resume(reader: &mut Reader<'a>) -> Option<Self> {
        let shape = Shape::read(reader).ok()?;
        Some(
            Self::new(shape.name, shape.unit, FieldType::from_number(shape.kind)?)
                .scaled(u32::try_from(shape.divisor).ok()?, shape.offset),
        )
    }
}

/// Checks that a schema may contain this name and unit.
///
/// # Errors
/// [`SchemaError`].
pub fn check_words(name: &str, unit: &str) -> Result<(), SchemaError> {
    // Names appear in table headers and on terminals, where control characters would take effect.
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(SchemaError::InvalidFieldName);
    }
    if is_unit(unit) { Ok(()) } else { Err(SchemaError::UnknownUnit) }
}

/// A field of an encoded schema. Its elements have the right CBOR types, but their values have not
/// been checked.
struct Shape<'a> {
    name: &'a str,
    unit: &'a str,
    kind: u64,
    divisor: u64,
    offset: i64,
}

impl<'a> Shape<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(5)?;
        Ok(Self {
            name: reader.text()?,
            unit: reader.text()?,
            kind: reader.u64()?,
            divisor: reader.u64()?,
            offset: reader.i64()?,
        })
    }

    fn check(&self) -> Result<Field<'a>, SchemaError> {
        check_words(self.name, self.unit)?;
        let kind = FieldType::from_number(self.kind).ok_or(SchemaError::UnknownFieldType)?;
        let divisor = u32::try_from(self.divisor).map_err(|_| SchemaError::ScaleOutOfRange)?;
        let field = Field::new(self.name, self.unit, kind).scaled(divisor, self.offset);
        field.check()?;
        Ok(field)
    }
}

impl fmt::Display for Field<'_> {
    /// Writes the text form that [`Field::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.unit, self.kind)?;
        if self.divisor != 1 {
            write!(f, "/{}", self.divisor)?;
        }
        if self.offset != 0 {
            write!(f, "{:+}", self.offset)?;
        }
        Ok(())
    }
}

/// A schema that has been checked completely. It borrows its encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Schema<'a> {
    bytes: &'a [u8],
    fields: usize,
    record_size: usize,
}

impl Schema<'static> {
    /// The schema without fields. Its records are opaque and of any length.
    pub const OPAQUE: Self = Schema { bytes: &[0x82, 0x01, 0x80], fields: 0, record_size: 0 };
}

impl<'a> Schema<'a> {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`SchemaError`]: the first check that fails.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SchemaError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(2)?;
        reader.version()?;
        let fields = usize::try_from(reader.array_any()?).unwrap_or(usize::MAX);
        for _ in 0..fields {
            Shape::read(&mut reader)?;
        }
        if fields > MAX_FIELDS {
            return Err(SchemaError::TooManyFields);
        }
        let mut reader = Self::reader(bytes);
        let mut names = [""; MAX_FIELDS];
        let mut record_size = 0;
        for at in 0..fields {
            let field = Shape::read(&mut reader)?.check()?;
            if names[..at].contains(&field.name) {
                return Err(SchemaError::DuplicateField);
            }
            names[at] = field.name;
            record_size += field.kind.size();
        }
        Ok(Self { bytes, fields, record_size })
    }

    /// Writes the schema of these fields to `out` ([`MAX_SCHEMA`] bytes suffice) and checks it. An
    /// empty list of fields results in [`Schema::OPAQUE`].
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn encode(fields: &[Field<'_>], out: &'a mut [u8]) -> Result<Self, SchemaError> {
        let mut out = Writer::new(out);
        out.array(2)?.uint(1u8)?.array(fields.len() as u64)?;
        for field in fields {
            out.array(5)?
                .text(field.name)?
                .text(field.unit)?
                .uint(field.kind.number())?
                .uint(field.divisor)?
                .int(field.offset)?;
        }
        Self::decode(out.finish())
    }

    /// Returns a reader at the first field of a schema that has been read before.
    fn reader(bytes: &'a [u8]) -> Reader<'a> {
        let mut reader = Reader::resume(bytes);
        let _ = reader.array_any().and_then(|_| reader.version()).and_then(|()| reader.array_any());
        reader
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

    /// Returns the length of a record in bytes, or `None` if records are opaque.
    #[must_use]
    pub const fn record_size(&self) -> Option<usize> {
        if self.fields == 0 { None } else { Some(self.record_size) }
    }

    /// Returns the fields, in the order in which a record contains them.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let mut reader = Self::reader(self.bytes);
        let mut start = 0;
        (0..self.fields).map(move |_| {
            // The bytes have been read successfully before, so nothing here fails.
            let field = Field::resume(&mut reader).unwrap_or(Field::new("", "", FieldType::U8));
            start += field.kind.size();
            Field { start: start - field.kind.size(), ..field }
        })
    }

    /// Returns the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.fields().find(|field| field.name == name)
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
