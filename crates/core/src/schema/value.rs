//! Reading and writing field values. Scaled integers are exact.

use core::fmt;

use super::{Field, FieldType};

named_errors! {
    /// Why a value was not read from or written to a record.
    ValueError {
        /// The value is not a finite decimal number.
        NotANumber => "the value is not a finite decimal number",
        /// The field's scale cannot represent the number exactly.
        NotRepresentable =>
            "the number has more digits than the field's scale; choose a larger divisor",
        /// The number is outside the range of the field's type.
        OutOfRange => "the number is outside the range of the field's type; choose a wider type",
        /// The record ends before the end of the field.
        RecordTooShort => "the record ends before the end of the field",
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
pub enum Value {
    /// A value of an integer type.
    Integer(Decimal),
    /// A value of `f32` or `f64`.
    Float(f64),
    /// A value of `time`: milliseconds since the start of the epoch.
    TimeMs(u32),
}

impl Value {
    /// Returns the nearest `f64`; for `time`, milliseconds.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Integer(decimal) => decimal.to_f64(),
            Self::Float(float) => float,
            Self::TimeMs(ms) => f64::from(ms),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(decimal) => decimal.fmt(f),
            Self::Float(float) => float.fmt(f),
            Self::TimeMs(ms) => ms.fmt(f),
        }
    }
}

impl Field<'_> {
    /// Returns the bytes of the field in a record.
    fn bytes<const N: usize>(&self, record: &[u8]) -> Result<[u8; N], ValueError> {
        record
            .get(self.start..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or(ValueError::RecordTooShort)
    }

    /// Returns the raw integer in a record, without applying offset and divisor. For a float field,
    /// returns its bits.
    ///
    /// # Errors
    /// `RecordTooShort`.
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
    /// `RecordTooShort`; the contents of `out` are then unspecified.
    pub fn raws<T>(
        &self,
        records: &[&[u8]],
        out: &mut [T],
        of: impl Fn(i128) -> T,
    ) -> Result<(), ValueError> {
        macro_rules! read {
            ($int:ty) => {
                for (record, out) in records.iter().zip(out) {
                    *out = of(<$int>::from_be_bytes(self.bytes(record)?).into());
                }
            };
        }
        match self.kind {
            FieldType::U8 => read!(u8),
            FieldType::I8 => read!(i8),
            FieldType::U16 => read!(u16),
            FieldType::I16 => read!(i16),
            FieldType::U32 | FieldType::F32 | FieldType::Time => read!(u32),
            FieldType::I32 => read!(i32),
            FieldType::U64 | FieldType::F64 => read!(u64),
            FieldType::I64 => read!(i64),
        }
        Ok(())
    }

    /// Returns the value in a record.
    ///
    /// # Errors
    /// `RecordTooShort`.
    pub fn read(&self, record: &[u8]) -> Result<Value, ValueError> {
        Ok(match self.kind {
            FieldType::F32 => Value::Float(f32::from_be_bytes(self.bytes(record)?).into()),
            FieldType::F64 => Value::Float(f64::from_be_bytes(self.bytes(record)?)),
            FieldType::Time => Value::TimeMs(u32::from_be_bytes(self.bytes(record)?)),
            _ => {
                let numerator = self.raw(record)? + i128::from(self.offset);
                Value::Integer(Decimal { numerator, divisor: self.divisor })
            }
        })
    }

    /// Returns the value in a record as the nearest `f64`.
    ///
    /// # Errors
    /// `RecordTooShort`.
    pub fn read_f64(&self, record: &[u8]) -> Result<f64, ValueError> {
        self.read(record).map(Value::to_f64)
    }

    /// Writes a decimal text, such as `27.97`, `-3` or `1.5e3`, to a record. An integer field
    /// stores the number exactly; a float field stores the nearest number of its type.
    ///
    /// # Errors
    /// `NotANumber`, `NotRepresentable`, `OutOfRange` or `RecordTooShort`.
    pub fn write(&self, text: &str, record: &mut [u8]) -> Result<(), ValueError> {
        match self.kind {
            FieldType::F32 => {
                Text::parse(text)?;
                self.put(
                    &finite_f32(text.parse().map_err(|_| ValueError::NotANumber)?)?.to_be_bytes(),
                    record,
                )
            }
            FieldType::F64 => {
                Text::parse(text)?;
                self.put(
                    &finite(text.parse().map_err(|_| ValueError::NotANumber)?)?.to_be_bytes(),
                    record,
                )
            }
            _ => self.write_numerator(Text::parse(text)?.times(self.divisor)?, record),
        }
    }

    /// Writes a number to a record. An integer field stores the nearest number on its scale, if
    /// that number differs from `value` by at most a few units in the last place of an `f64`. For
    /// example, with divisor 100, `27.97` is accepted and `27.971` is rejected.
    ///
    /// # Errors
    /// `NotANumber`, `NotRepresentable`, `OutOfRange` or `RecordTooShort`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    pub fn write_f64(&self, value: f64, record: &mut [u8]) -> Result<(), ValueError> {
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

    /// Writes `numerator / divisor` to a record, for an integer or time field.
    fn write_numerator(&self, numerator: i128, record: &mut [u8]) -> Result<(), ValueError> {
        let raw = numerator.checked_sub(self.offset.into()).ok_or(ValueError::OutOfRange)?;
        macro_rules! put {
            ($int:ty) => {
                self.put(
                    &<$int>::try_from(raw).map_err(|_| ValueError::OutOfRange)?.to_be_bytes(),
                    record,
                )
            };
        }
        match self.kind {
            FieldType::U8 => put!(u8),
            FieldType::I8 => put!(i8),
            FieldType::U16 => put!(u16),
            FieldType::I16 => put!(i16),
            FieldType::U32 | FieldType::F32 | FieldType::Time => put!(u32),
            FieldType::I32 => put!(i32),
            FieldType::U64 | FieldType::F64 => put!(u64),
            FieldType::I64 => put!(i64),
        }
    }

    fn put(&self, bytes: &[u8], record: &mut [u8]) -> Result<(), ValueError> {
        let place = record
            .get_mut(self.start..self.start + bytes.len())
            .ok_or(ValueError::RecordTooShort)?;
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

/// The largest number of digits after the point that a divisor below 2^32 can represent: 31, for
/// 2^31.
const MAX_PLACES: u32 = 31;

/// The exact parts of a decimal text: the sign, and the absolute value `whole + fraction /
/// 10^places`.
struct Text {
    negative: bool,
    whole: u128,
    fraction: u128,
    places: u32,
    /// Whether there were nonzero digits after the first [`MAX_PLACES`] decimal places.
    finer: bool,
    /// Whether `whole` overflowed.
    larger: bool,
}

impl Text {
    /// Parses `[+-]digits[.digits][e[+-]digits]`, with a digit on at least one side of the point.
    fn parse(text: &str) -> Result<Self, ValueError> {
        let (negative, rest) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (mantissa, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&rest[..at], exponent(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
        let (before, after) = (&mantissa[..point], mantissa.get(point + 1..).unwrap_or(&[]));
        let digits = before.len() + after.len();
        if digits == 0 || digits > 1000 || !before.iter().chain(after).all(u8::is_ascii_digit) {
            return Err(ValueError::NotANumber);
        }
        let mut out =
            Self { negative, whole: 0, fraction: 0, places: 0, finer: false, larger: false };
        // The power of ten of each digit.
        let first = i32::try_from(before.len()).unwrap_or(0) + exponent - 1;
        for (power, digit) in (0..)
            .map(|i| first - i)
            .zip(before.iter().chain(after).map(|byte| u128::from(byte - b'0')))
        {
            out.digit(power, digit);
        }
        Ok(out)
    }

    fn digit(&mut self, power: i32, digit: u128) {
        if digit == 0 {
            return;
        }
        if let Ok(power) = u32::try_from(power) {
            let added = 10u128
                .checked_pow(power)
                .and_then(|unit| unit.checked_mul(digit))
                .and_then(|d| self.whole.checked_add(d));
            match added {
                Some(whole) => self.whole = whole,
                None => self.larger = true,
            }
            return;
        }
        let place = power.unsigned_abs();
        if place > MAX_PLACES {
            self.finer = true;
            return;
        }
        // The fraction has at most 31 digits, so it stays below 2^103.
        self.fraction = self.fraction * 10u128.pow(place - self.places) + digit;
        self.places = place;
    }

    /// Returns the number times `divisor` if that is an integer.
    fn times(&self, divisor: u32) -> Result<i128, ValueError> {
        if self.larger {
            return Err(ValueError::OutOfRange);
        }
        // Compute fraction * divisor / 10^places one prime factor at a time, so that nothing
        // overflows. The result is below the divisor.
        let (mut fraction, mut rest) = (self.fraction, u128::from(divisor));
        for prime in [2, 5] {
            for _ in 0..self.places {
                if fraction % prime == 0 {
                    fraction /= prime;
                } else if rest % prime == 0 {
                    rest /= prime;
                } else {
                    return Err(ValueError::NotRepresentable);
                }
            }
        }
        if self.finer {
            return Err(ValueError::NotRepresentable);
        }
        let sum = self
            .whole
            .checked_mul(divisor.into())
            .and_then(|whole| whole.checked_add(fraction * rest));
        let magnitude =
            sum.and_then(|sum| i128::try_from(sum).ok()).ok_or(ValueError::OutOfRange)?;
        Ok(if self.negative { -magnitude } else { magnitude })
    }
}

/// Parses an exponent with an optional sign. An absolute value above 99,999 is replaced by 99,999,
/// which does not change the result of parsing the number.
fn exponent(bytes: &[u8]) -> Result<i32, ValueError> {
    let (sign, digits) = match bytes {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ValueError::NotANumber);
    }
    Ok(sign
        * digits
            .iter()
            .fold(0, |value: i32, byte| (value * 10 + i32::from(byte - b'0')).min(99_999)))
}
