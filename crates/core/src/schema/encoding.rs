//! The CBOR encoding of fields (spec/objects.md, sections 5.1 and 5.2).

use super::{Field, FieldType, Labels, MAX_GROUPS, SchemaError, check_words};
use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::confidential::Suite;

/// A version of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A field is an array of five elements.
    One,
    /// A field is a map.
    Two,
}

impl Version {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Reads the version number.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u64()? {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            _ => Err(DecodeError::UnsupportedVersion),
        }
    }
}

/// A field of an encoded schema. Its elements have the right CBOR types, but their values have not
/// been checked.
pub(super) struct Shape<'a> {
    id: u64,
    name: &'a str,
    unit: &'a str,
    kind: u64,
    divisor: u64,
    offset: i64,
    nullable: bool,
    labels: Labels<'a>,
    longest: u64,
    relayed: bool,
    /// The number of the suite; 0 for a plain column.
    suite: u64,
    group: u64,
}

impl<'a> Shape<'a> {
    /// Reads a field. `position` counts from 1.
    pub(super) fn read(
        reader: &mut Reader<'a>,
        version: Version,
        position: usize,
    ) -> Result<Self, SchemaError> {
        match version {
            Version::One => Self::read_array(reader, position).map_err(SchemaError::Decode),
            Version::Two => Self::read_map(reader),
        }
    }

    fn read_array(reader: &mut Reader<'a>, position: usize) -> Result<Self, DecodeError> {
        reader.array(5)?;
        Ok(Self {
            id: position as u64,
            name: reader.text()?,
            unit: reader.text()?,
            kind: reader.u64()?,
            divisor: reader.u64()?,
            offset: reader.i64()?,
            nullable: false,
            labels: Labels::NONE,
            longest: 0,
            relayed: false,
            suite: 0,
            group: 0,
        })
    }

    fn read_map(reader: &mut Reader<'a>) -> Result<Self, SchemaError> {
        let (mut id, mut name, mut kind) = (None, None, None);
        let mut shape = Self {
            id: 0,
            name: "",
            unit: "",
            kind: 0,
            divisor: 1,
            offset: 0,
            nullable: false,
            labels: Labels::NONE,
            longest: 0,
            relayed: false,
            suite: 0,
            group: 0,
        };
        for _ in 0..reader.map()? {
            // A value that a field has without the key is not encoded.
            let is_default = match reader.u64()? {
                0 => {
                    id = Some(reader.u64()?);
                    false
                }
                1 => {
                    name = Some(reader.text()?);
                    false
                }
                2 => {
                    shape.unit = reader.text()?;
                    shape.unit.is_empty()
                }
                3 => {
                    kind = Some(reader.u64()?);
                    false
                }
                4 => {
                    shape.divisor = reader.u64()?;
                    shape.divisor == 1
                }
                5 => {
                    shape.offset = reader.i64()?;
                    shape.offset == 0
                }
                6 => {
                    shape.nullable = reader.bool()?;
                    !shape.nullable
                }
                7 => {
                    let labels = reader.rest();
                    for _ in 0..reader.array_any()? {
                        reader.text()?;
                    }
                    let length = labels.len() - reader.rest().len();
                    shape.labels = Labels::encoded(&labels[..length]);
                    false
                }
                8 => {
                    shape.longest = reader.u64()?;
                    shape.longest == 0
                }
                9 => {
                    shape.relayed = reader.bool()?;
                    !shape.relayed
                }
                12 => {
                    shape.suite = reader.u64()?;
                    shape.suite == 0
                }
                16 => {
                    shape.group = reader.u64()?;
                    shape.group == 0
                }
                key if key % 2 == 0 => return Err(SchemaError::UnsupportedField { key }),
                _ => {
                    reader.raw()?;
                    false
                }
            };
            if is_default {
                return Err(DecodeError::NonCanonical.into());
            }
        }
        let (Some(id), Some(name), Some(kind)) = (id, name, kind) else {
            return Err(DecodeError::UnexpectedType.into());
        };
        Ok(Self { id, name, kind, ..shape })
    }

    /// Returns the field after checking all of its values.
    pub(super) fn check(&self, version: Version) -> Result<Field<'a>, SchemaError> {
        if self.id == 0 || self.id > u64::from(u16::MAX) {
            return Err(SchemaError::InvalidFieldId);
        }
        check_words(self.name, self.unit)?;
        let field = self.field(version)?;
        field.check()?;
        if self.suite != 0 && field.suite.is_none() {
            return Err(SchemaError::UnknownSuite);
        }
        if usize::from(field.group) >= MAX_GROUPS {
            return Err(SchemaError::InvalidGroup);
        }
        Ok(field)
    }

    /// Returns the field. Checks only that its values fit the types of [`Field`].
    pub(super) fn field(&self, version: Version) -> Result<Field<'a>, SchemaError> {
        let kind = FieldType::from_number(self.kind)
            .filter(|kind| version == Version::Two || kind.is_in_version_1())
            .ok_or(SchemaError::UnknownFieldType)?;
        let divisor = u32::try_from(self.divisor).map_err(|_| SchemaError::ScaleOutOfRange)?;
        let longest = u8::try_from(self.longest).map_err(|_| SchemaError::InvalidTextLength)?;
        Ok(Field {
            id: u16::try_from(self.id).map_err(|_| SchemaError::InvalidFieldId)?,
            nullable: self.nullable,
            relayed: self.relayed,
            labels: self.labels,
            longest,
            suite: Suite::from_number(self.suite),
            group: u8::try_from(self.group).unwrap_or(u8::MAX),
            ..Field::new(self.name, self.unit, kind).scaled(divisor, self.offset)
        })
    }
}

/// Writes a field. `position` counts from 1.
pub(super) fn write(
    field: &Field<'_>,
    version: Version,
    position: usize,
    out: &mut Writer<'_>,
) -> Result<(), BufferTooSmall> {
    match version {
        Version::One => write_array(field, out),
        Version::Two => write_map(field, position, out),
    }
}

fn write_array(field: &Field<'_>, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
    out.array(5)?
        .text(field.name)?
        .text(field.unit)?
        .uint(field.kind.number())?
        .uint(field.divisor)?
        .int(field.offset)?;
    Ok(())
}

fn write_map(
    field: &Field<'_>,
    position: usize,
    out: &mut Writer<'_>,
) -> Result<(), BufferTooSmall> {
    let optional = [
        !field.unit.is_empty(),
        field.divisor != 1,
        field.offset != 0,
        field.nullable,
        !field.labels.is_empty(),
        field.longest != 0,
        field.relayed,
        field.suite.is_some(),
        field.group != 0,
    ];
    let [unit, divisor, offset, nullable, labels, longest, relayed, _, group] = optional;
    let id = if field.id == 0 { position as u64 } else { field.id.into() };
    out.map(3 + optional.iter().filter(|&&is_present| is_present).count() as u64)?;
    out.uint(0u8)?.uint(id)?.uint(1u8)?.text(field.name)?;
    if unit {
        out.uint(2u8)?.text(field.unit)?;
    }
    out.uint(3u8)?.uint(field.kind.number())?;
    if divisor {
        out.uint(4u8)?.uint(field.divisor)?;
    }
    if offset {
        out.uint(5u8)?.int(field.offset)?;
    }
    if nullable {
        out.uint(6u8)?.bool(true)?;
    }
    if labels {
        field.labels.write(out.uint(7u8)?)?;
    }
    if longest {
        out.uint(8u8)?.uint(field.longest)?;
    }
    if relayed {
        out.uint(9u8)?.bool(true)?;
    }
    if let Some(suite) = field.suite {
        out.uint(12u8)?.uint(suite.number())?;
    }
    if group {
        out.uint(16u8)?.uint(field.group)?;
    }
    Ok(())
}
