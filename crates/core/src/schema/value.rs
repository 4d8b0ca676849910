//! Reading and writing field values. Scaled integers are exact.

use core::fmt;

use super::check::{NULL_TEXT, is_point, split_text, text_of};
use super::number::Number;
use super::{Field, FieldType, timestamp};

/// The divisor of the coordinates of a point.
const POINT_DIVISOR: u32 = 10_000_000;

named_errors! {
    /// Why a value was not read from or written to a record.
    ValueError {
        /// The value is not a finite decimal number.
        NotANumber => "the value is not a finite decimal number",
        /// The field's scale cannot represent the number exactly.
        NotRepresentable =>
            "the number has more digits than the field's scale; choose a larger divisor",
        /// The number is outside the range of the field's type, or is the number that stands for
        /// null in a nullable field.
        OutOfRange => "the number is outside the range of the field's type; choose a wider type",
        /// The record ends before the end of the field.
        RecordTooShort => "the record ends before the end of the field",
        /// The field cannot be null.
        NotNullable => "the value is missing; to allow this, declare the column as nullable (?)",
        /// The value is not a boolean.
        NotABoolean => "the value is not true or false",
        /// The text is not one of the field's labels.
        UnknownLabel => "the text is not one of the column's labels",
        /// The text is longer than the field's longest text.
        TextTooLong => "the text is longer than the column's longest text",
        /// The text contains control characters.
        InvalidText => "the text contains control characters",
        /// The text is not a time.
        NotATimestamp => "the value is not a time such as 2026-03-01T07:00:00Z",
        /// The text is not a latitude and a longitude.
        NotAPoint => "the value is not a latitude and a longitude in degrees, such as 59.33,18.07",
        /// The value is of another type than the field.
        WrongValueType => "the value is of another type than the column",
        /// The column is encrypted, and the record has not been decrypted.
        Encrypted => "the column is encrypted; ask the owner for a grant that covers it",
        /// The cell is not a value of its type.
        RecordValue => "a cell of the record is not a value of its column",
    }
}

/// An exact quotient `numerator / divisor`.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// The raw value plus the offset.
    pub numerator: i128,
    /// The divisor, at least 1.
    pub divisor: u32,
}

impl Decimal {
    /// Returns the nearest `f64`. A numerator above 2^53 is first rounded to an `f64`, so the
    /// result is then rounded twice.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        // Convert from `i64` if the numerator fits, as almost every numerator does. This conversion
        // takes one instruction, and one from `i128` takes many. The result is the same.
        let numerator = i64::try_from(self.numerator)
            .map_or_else(|_| self.numerator as f64, |numerator| numerator as f64);
        numerator / f64::from(self.divisor)
    }

    /// Returns the quotient times `divisor` if that is an integer.
    fn times(self, divisor: u32) -> Result<i128, ValueError> {
        let own = i128::from(self.divisor);
        let product = self.numerator.checked_mul(divisor.into()).ok_or(ValueError::OutOfRange)?;
        if own == 0 || product % own != 0 {
            return Err(ValueError::NotRepresentable);
        }
        Ok(product / own)
    }

    /// Returns the number of digits after the point that suffices to represent every quotient with
    /// this divisor exactly. Returns `None` if no number of digits suffices.
    pub fn places(self) -> Option<u32> {
        let twos = self.divisor.trailing_zeros();
        let (mut rest, mut fives) = (self.divisor >> twos, 0);
        while rest % 5 == 0 {
            rest /= 5;
            fives += 1;
        }
        (rest == 1).then_some(twos.max(fives))
    }
}

impl PartialEq for Decimal {
    /// Compares the quotients.
    fn eq(&self, other: &Self) -> bool {
        // Numerators have at most 65 bits and divisors at most 32, so the products do not overflow.
        self.numerator * i128::from(other.divisor) == other.numerator * i128::from(self.divisor)
    }
}

impl fmt::Display for Decimal {
    /// Writes the value exactly if possible. The number of digits after the point depends only on
    /// the divisor, so all values of a field have the same number of digits. If the divisor has
    /// prime factors other than 2 and 5, no number of digits suffices. The text is then the
    /// shortest one that reads back as the same `f64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(places) = self.places() else { return self.to_f64().fmt(f) };
        if self.numerator < 0 {
            f.write_str("-")?;
        }
        let (numerator, divisor) = (self.numerator.unsigned_abs(), u128::from(self.divisor));
        write!(f, "{}", numerator / divisor)?;
        let mut rest = numerator % divisor;
        for place in 0..places {
            rest *= 10;
            write!(f, "{}{}", if place == 0 { "." } else { "" }, rest / divisor)?;
            rest %= divisor;
        }
        Ok(())
    }
}

/// The value of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value, in a nullable field.
    Null,
    /// A value of an integer type.
    Integer(Decimal),
    /// A value of `f32` or `f64`.
    Float(f64),
    /// A value of `time`: milliseconds since the start of the epoch.
    TimeMs(u32),
    /// A value of `bool`.
    Bool(bool),
    /// A value of `enum`: a label of the field.
    Label(&'a str),
    /// A value of `text`.
    Text(&'a str),
    /// A value of `timestamp`: milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// A value of `point`.
    Point {
        /// Degrees north of the equator.
        latitude: Decimal,
        /// Degrees east of Greenwich.
        longitude: Decimal,
    },
}

impl Value<'_> {
    /// Returns the nearest `f64`; for `time`, milliseconds. Returns `None` for null, and for a type
    /// that is not numeric ([`FieldType::is_numeric`]).
    #[must_use]
    pub fn to_f64(self) -> Option<f64> {
        match self {
            Self::Integer(decimal) => Some(decimal.to_f64()),
            Self::Float(float) => Some(float),
            Self::TimeMs(ms) => Some(f64::from(ms)),
            _ => None,
        }
    }
}

impl fmt::Display for Value<'_> {
    /// Writes the text that [`Field::write`] reads. Null is the empty text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Integer(decimal) => decimal.fmt(f),
            Self::Float(float) => float.fmt(f),
            Self::TimeMs(ms) => ms.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Label(text) | Self::Text(text) => text.fmt(f),
            Self::Timestamp(ms) => timestamp::Shown(*ms).fmt(f),
            Self::Point { latitude, longitude } => write!(f, "{latitude},{longitude}"),
        }
    }
}

impl<'a> Field<'a> {
    /// Returns the raw value that stands for null, or `None` if the field is not nullable. It is
    /// the largest value of an unsigned type, the least value of a signed type, and all ones for a
    /// float. For `text`, it is the value of the length byte.
    #[must_use]
    pub const fn null(&self) -> Option<i128> {
        if !self.nullable {
            return None;
        }
        Some(match self.kind {
            FieldType::U8 | FieldType::Bool | FieldType::Enum | FieldType::Text => 0xff,
            FieldType::U16 => 0xffff,
            FieldType::U32 | FieldType::F32 | FieldType::Time => 0xffff_ffff,
            FieldType::U64 | FieldType::F64 => 0xffff_ffff_ffff_ffff,
            FieldType::I8 => -0x80,
            FieldType::I16 => -0x8000,
            FieldType::I32 => -0x8000_0000,
            FieldType::I64 | FieldType::Timestamp => -0x8000_0000_0000_0000,
            // The least value of both coordinates.
            FieldType::Point => 0x8000_0000_8000_0000,
        })
    }

    /// Returns the bytes of the field in a record.
    fn bytes<const N: usize>(&self, record: &[u8]) -> Result<[u8; N], ValueError> {
        record
            .get(self.start()..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or(ValueError::RecordTooShort)
    }

    /// Returns the raw integer in a record, without applying offset and divisor. It may be the one
    /// that stands for [`null`](Self::null). For a float field, returns its bits; for `point`, the
    /// latitude's bits followed by the longitude's.
    ///
    /// # Errors
    /// `Encrypted`; `RecordTooShort`; `WrongValueType` for `text`.
    pub fn raw(&self, record: &[u8]) -> Result<i128, ValueError> {
        let mut raw = 0;
        self.raws(&[record], core::slice::from_mut(&mut raw), |raw| raw)?;
        Ok(raw)
    }

    /// Applies `of` to the [`raw`](Self::raw) value of each record and writes the results to `out`.
    /// Stops at the end of `records` or of `out`, whichever is shorter. The type of the field is
    /// examined only once, which is faster than calling `raw` for each record.
    ///
    /// # Errors
    /// The errors of [`raw`](Self::raw); the contents of `out` are then unspecified.
    pub fn raws<T>(
        &self,
        records: &[&[u8]],
        out: &mut [T],
        of: impl Fn(i128) -> T,
    ) -> Result<(), ValueError> {
        if self.is_ciphertext() {
            return Err(ValueError::Encrypted);
        }
        macro_rules! read {
            ($int:ty) => {
                for (record, out) in records.iter().zip(out) {
                    *out = of(<$int>::from_be_bytes(self.bytes(record)?).into());
                }
            };
        }
        match self.kind {
            FieldType::U8 | FieldType::Bool | FieldType::Enum => read!(u8),
            FieldType::I8 => read!(i8),
            FieldType::U16 => read!(u16),
            FieldType::I16 => read!(i16),
            FieldType::U32 | FieldType::F32 | FieldType::Time => read!(u32),
            FieldType::I32 => read!(i32),
            FieldType::U64 | FieldType::F64 | FieldType::Point => read!(u64),
            FieldType::I64 | FieldType::Timestamp => read!(i64),
            FieldType::Text => return Err(ValueError::WrongValueType),
        }
        Ok(())
    }

    /// Returns the bytes of a record from this field's text cell on.
    fn texts<'r>(&self, record: &'r [u8]) -> Result<&'r [u8], ValueError> {
        let mut rest = record.get(self.start()..).ok_or(ValueError::RecordTooShort)?;
        for _ in 0..self.skip {
            rest = split_text(rest).ok_or(ValueError::RecordTooShort)?.1;
        }
        Ok(rest)
    }

    /// Returns the bytes of the field's cell in a record, with the length byte of a text. They are
    /// ciphertext if the column is encrypted.
    ///
    /// # Errors
    /// `RecordTooShort`.
    pub fn cell<'r>(&self, record: &'r [u8]) -> Result<&'r [u8], ValueError> {
        if self.kind == FieldType::Text {
            let texts = self.texts(record)?;
            let (_, after) = split_text(texts).ok_or(ValueError::RecordTooShort)?;
            return Ok(&texts[..texts.len() - after.len()]);
        }
        let end = self.start() + self.kind.size();
        record.get(self.start()..end).ok_or(ValueError::RecordTooShort)
    }

    /// Returns the value in a record.
    ///
    /// # Errors
    /// `Encrypted` if the column is encrypted; `RecordTooShort`; `RecordValue` if the cell is not a
    /// value of the field.
    pub fn read<'r>(&self, record: &'r [u8]) -> Result<Value<'r>, ValueError>
    where
        'a: 'r,
    {
        if self.is_ciphertext() {
            return Err(ValueError::Encrypted);
        }
        if self.kind == FieldType::Text {
            let (text, _) = split_text(self.texts(record)?).ok_or(ValueError::RecordTooShort)?;
            return match text {
                None if self.nullable => Ok(Value::Null),
                text => text
                    .and_then(|text| text_of(text, self.longest))
                    .map(Value::Text)
                    .ok_or(ValueError::RecordValue),
            };
        }
        if self.nullable && Some(self.raw(record)?) == self.null() {
            return Ok(Value::Null);
        }
        Ok(match self.kind {
            FieldType::F32 => Value::Float(f32::from_be_bytes(self.bytes(record)?).into()),
            FieldType::F64 => Value::Float(f64::from_be_bytes(self.bytes(record)?)),
            FieldType::Time => Value::TimeMs(u32::from_be_bytes(self.bytes(record)?)),
            FieldType::Bool => match self.bytes(record)? {
                [value @ 0..=1] => Value::Bool(value == 1),
                _ => return Err(ValueError::RecordValue),
            },
            FieldType::Enum => {
                let [position] = self.bytes(record)?;
                Value::Label(self.labels.get(position).ok_or(ValueError::RecordValue)?)
            }
            FieldType::Timestamp => Value::Timestamp(i64::from_be_bytes(self.bytes(record)?)),
            FieldType::Point => {
                let [a, b, c, d, e, f, g, h] = self.bytes(record)?;
                let point = (i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]));
                if !is_point(point.0, point.1) {
                    return Err(ValueError::RecordValue);
                }
                let degrees = |raw: i32| Decimal { numerator: raw.into(), divisor: POINT_DIVISOR };
                Value::Point { latitude: degrees(point.0), longitude: degrees(point.1) }
            }
            _ => {
                let numerator = self.raw(record)? + i128::from(self.offset);
                Value::Integer(Decimal { numerator, divisor: self.divisor })
            }
        })
    }

    /// Returns the value in a record as the nearest `f64` ([`Value::to_f64`]).
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_f64(&self, record: &[u8]) -> Result<Option<f64>, ValueError> {
        self.read(record).map(Value::to_f64)
    }

    /// Writes a text to a record. The text has the form that a value is displayed in: a decimal
    /// number, such as `27.97`, `-3` or `1.5e3`; `true` or `false`; a label; a time such as
    /// `2026-03-01T07:00:00Z`; or a latitude and a longitude, such as `59.33,18.07`. An integer
    /// field stores a number exactly; a float field stores the nearest number of its type. The
    /// empty text is null if the field is nullable.
    ///
    /// The texts of a record must be written after each other, in the order of the fields. The
    /// record must be zeros before, and long enough for the texts
    /// ([`Schema::longest_record`](super::Schema::longest_record)); afterwards
    /// [`Schema::record_length`](super::Schema::record_length) returns the length of the record.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn write(&self, text: &str, record: &mut [u8]) -> Result<(), ValueError> {
        if self.nullable && text.is_empty() {
            return self.write_null(record);
        }
        match self.kind {
            FieldType::F32 => {
                Number::parse(text)?;
                self.put(
                    &finite_f32(text.parse().map_err(|_| ValueError::NotANumber)?)?.to_be_bytes(),
                    record,
                )
            }
            FieldType::F64 => {
                Number::parse(text)?;
                self.put(
                    &finite(text.parse().map_err(|_| ValueError::NotANumber)?)?.to_be_bytes(),
                    record,
                )
            }
            FieldType::Bool => {
                let value = match text {
                    "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(ValueError::NotABoolean),
                };
                self.write_raw(value.into(), record)
            }
            FieldType::Enum => {
                let position = self.labels.position(text).ok_or(ValueError::UnknownLabel)?;
                self.write_raw(position.into(), record)
            }
            FieldType::Text => self.write_text(text, record),
            FieldType::Timestamp => self.write_raw(timestamp::parse(text)?.into(), record),
            FieldType::Point => {
                let (latitude, longitude) = text.split_once(',').ok_or(ValueError::NotAPoint)?;
                let degrees = |text: &str| {
                    Number::parse(text).map_err(|_| ValueError::NotAPoint)?.times(POINT_DIVISOR)
                };
                self.write_point(degrees(latitude)?, degrees(longitude)?, record)
            }
            _ => self.write_numerator(Number::parse(text)?.times(self.divisor)?, record),
        }
    }

    /// Writes a number to a record. An integer field stores the nearest number on its scale, if
    /// that number differs from `value` by at most a few units in the last place of an `f64`. For
    /// example, with divisor 100, `27.97` is accepted and `27.971` is rejected.
    ///
    /// # Errors
    /// `NotANumber`, `NotRepresentable`, `OutOfRange` or `RecordTooShort`; `WrongValueType` for a
    /// type that is not numeric.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    pub fn write_f64(&self, value: f64, record: &mut [u8]) -> Result<(), ValueError> {
        if !self.kind.is_numeric() {
            return Err(ValueError::WrongValueType);
        }
        if !value.is_finite() {
            return Err(ValueError::NotANumber);
        }
        match self.kind {
            FieldType::F32 => self.put(&finite_f32(value as f32)?.to_be_bytes(), record),
            FieldType::F64 => self.put(&value.to_be_bytes(), record),
            _ => {
                let scaled = value * f64::from(self.divisor);
                // Reject 2^66 and above, because the cast below would saturate. The sum of a raw
                // value and an offset is always smaller.
                if scaled.abs() >= 7.378_697_629_483_821e19 {
                    return Err(ValueError::OutOfRange);
                }
                let down = scaled as i128;
                let nearest = [down - 1, down, down + 1]
                    .into_iter()
                    .min_by(|a, b| {
                        (*a as f64 - scaled).abs().total_cmp(&(*b as f64 - scaled).abs())
                    })
                    .unwrap_or(down);
                if (nearest as f64 - scaled).abs() > scaled.abs() * 4.0 * f64::EPSILON {
                    return Err(ValueError::NotRepresentable);
                }
                self.write_numerator(nearest, record)
            }
        }
    }

    /// Writes a value to a record. A number of any kind may be written to a field of any numeric
    /// type that can represent it.
    ///
    /// # Errors
    /// [`ValueError`]; `WrongValueType` if the value is of another type than the field.
    pub fn write_value(&self, value: Value<'_>, record: &mut [u8]) -> Result<(), ValueError> {
        match (self.kind, value) {
            (_, Value::Null) => self.write_null(record),
            (FieldType::Bool, Value::Bool(value)) => self.write_raw(value.into(), record),
            (FieldType::Enum, Value::Label(text) | Value::Text(text)) => {
                let position = self.labels.position(text).ok_or(ValueError::UnknownLabel)?;
                self.write_raw(position.into(), record)
            }
            (FieldType::Text, Value::Text(text)) => self.write_text(text, record),
            (FieldType::Timestamp, Value::Timestamp(ms)) => self.write_raw(ms.into(), record),
            (FieldType::Point, Value::Point { latitude, longitude }) => {
                let degrees = |decimal: Decimal| decimal.times(POINT_DIVISOR);
                self.write_point(degrees(latitude)?, degrees(longitude)?, record)
            }
            (FieldType::F32 | FieldType::F64, _) => {
                self.write_f64(value.to_f64().ok_or(ValueError::WrongValueType)?, record)
            }
            (_, Value::Integer(decimal)) if self.kind.is_numeric() => {
                self.write_numerator(decimal.times(self.divisor)?, record)
            }
            (_, Value::TimeMs(ms)) if self.kind.is_numeric() => {
                self.write_numerator(i128::from(ms) * i128::from(self.divisor), record)
            }
            (_, Value::Float(float)) => self.write_f64(float, record),
            _ => Err(ValueError::WrongValueType),
        }
    }

    /// Writes null to a record.
    ///
    /// # Errors
    /// `NotNullable` or `RecordTooShort`.
    pub fn write_null(&self, record: &mut [u8]) -> Result<(), ValueError> {
        match self.null() {
            None => Err(ValueError::NotNullable),
            Some(_) if self.kind == FieldType::Text => self.put_text(NULL_TEXT, &[], record),
            Some(raw) => self.put_raw(raw, record),
        }
    }

    /// Writes `numerator / divisor` to a record, for an integer or time field.
    fn write_numerator(&self, numerator: i128, record: &mut [u8]) -> Result<(), ValueError> {
        let raw = numerator.checked_sub(self.offset.into()).ok_or(ValueError::OutOfRange)?;
        self.write_raw(raw, record)
    }

    /// Writes 10^-7 degrees to a record, for a field of points.
    fn write_point(
        &self,
        latitude: i128,
        longitude: i128,
        record: &mut [u8],
    ) -> Result<(), ValueError> {
        let coordinate = |raw| i32::try_from(raw).map_err(|_| ValueError::OutOfRange);
        let (latitude, longitude) = (coordinate(latitude)?, coordinate(longitude)?);
        if !is_point(latitude, longitude) {
            return Err(ValueError::OutOfRange);
        }
        let [a, b, c, d] = latitude.to_be_bytes();
        let [e, f, g, h] = longitude.to_be_bytes();
        self.put(&[a, b, c, d, e, f, g, h], record)
    }

    /// Writes a value of a text field to a record.
    fn write_text(&self, text: &str, record: &mut [u8]) -> Result<(), ValueError> {
        if text.len() > self.longest.into() {
            return Err(ValueError::TextTooLong);
        }
        if text.contains(char::is_control) {
            return Err(ValueError::InvalidText);
        }
        let length = u8::try_from(text.len()).map_err(|_| ValueError::TextTooLong)?;
        self.put_text(length, text.as_bytes(), record)
    }

    fn put_text(&self, length: u8, text: &[u8], record: &mut [u8]) -> Result<(), ValueError> {
        let start = record.len() - self.texts(record)?.len();
        let place = record.get_mut(start..=start + text.len()).ok_or(ValueError::RecordTooShort)?;
        place[0] = length;
        place[1..].copy_from_slice(text);
        Ok(())
    }

    /// Writes a raw value that is not null.
    fn write_raw(&self, raw: i128, record: &mut [u8]) -> Result<(), ValueError> {
        if self.null() == Some(raw) {
            return Err(ValueError::OutOfRange);
        }
        self.put_raw(raw, record)
    }

    fn put_raw(&self, raw: i128, record: &mut [u8]) -> Result<(), ValueError> {
        macro_rules! put {
            ($int:ty) => {
                self.put(
                    &<$int>::try_from(raw).map_err(|_| ValueError::OutOfRange)?.to_be_bytes(),
                    record,
                )
            };
        }
        match self.kind {
            FieldType::U8 | FieldType::Bool | FieldType::Enum => put!(u8),
            FieldType::I8 => put!(i8),
            FieldType::U16 => put!(u16),
            FieldType::I16 => put!(i16),
            FieldType::U32 | FieldType::F32 | FieldType::Time => put!(u32),
            FieldType::I32 => put!(i32),
            FieldType::U64 | FieldType::F64 | FieldType::Point => put!(u64),
            FieldType::I64 | FieldType::Timestamp => put!(i64),
            FieldType::Text => Err(ValueError::WrongValueType),
        }
    }

    fn put(&self, bytes: &[u8], record: &mut [u8]) -> Result<(), ValueError> {
        let start = self.start();
        let place = record.get_mut(start..start + bytes.len()).ok_or(ValueError::RecordTooShort)?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

fn finite(value: f64) -> Result<f64, ValueError> {
    if value.is_finite() { Ok(value) } else { Err(ValueError::OutOfRange) }
}

fn finite_f32(value: f32) -> Result<f32, ValueError> {
    if value.is_finite() { Ok(value) } else { Err(ValueError::OutOfRange) }
}
