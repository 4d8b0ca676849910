//! The types of fields: their numbers, names and sizes.

use core::fmt;

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
    /// 1 byte: 0 is false, 1 is true. This type and those below exist in schema version 2 only.
    Bool,
    /// 1 byte: the position of a label in the field's list of labels, from 0.
    Enum,
    /// 1 byte, the length, and then as many bytes of UTF-8 without control characters.
    Text,
    /// 8 bytes, two's complement: milliseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// 4 bytes latitude, 4 bytes longitude, both two's complement: 10^-7 degrees (WGS 84).
    Point,
}

impl FieldType {
    /// All types, in the order of their numbers in encoded schemas.
    pub const ALL: [Self; 16] = [
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
        Self::Bool,
        Self::Enum,
        Self::Text,
        Self::Timestamp,
        Self::Point,
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

    /// Returns whether schema version 1 has the type.
    #[must_use]
    pub const fn is_in_version_1(self) -> bool {
        self as u8 <= Self::Time as u8
    }

    /// Returns the name of the type on command lines. There, `enum` is followed by the labels, and
    /// `text` by the length of the longest text.
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
            Self::Bool => "bool",
            Self::Enum => "enum",
            Self::Text => "text",
            Self::Timestamp => "timestamp",
            Self::Point => "point",
        }
    }

    /// Returns the type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the length of a cell in a record, in bytes. For [`Text`](Self::Text), returns the
    /// length of the shortest cell, which is 1.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool | Self::Enum | Self::Text => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::Time => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Timestamp | Self::Point => 8,
        }
    }

    /// Returns whether the type may have a divisor and an offset.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        (self as u8) < Self::F32 as u8
    }

    /// Returns whether the values are quantities, so that they have means and sums: integers,
    /// floats and `time`.
    #[must_use]
    pub const fn is_numeric(self) -> bool {
        self.is_in_version_1()
    }

    /// Returns whether the type has negative values.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        match self {
            Self::I8
            | Self::I16
            | Self::I32
            | Self::I64
            | Self::F32
            | Self::F64
            | Self::Timestamp
            | Self::Point => true,
            Self::U8
            | Self::U16
            | Self::U32
            | Self::U64
            | Self::Time
            | Self::Bool
            | Self::Enum
            | Self::Text => false,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
