//! Decimal numbers of representations, as texts. A number has the same digits in JSON and in CBOR.

use std::fmt;

use moteseal_core::cbor::{DecodeError, Reader, head};

/// The maximum length of a number, in bytes. The longest finite `f64` has 327.
const MAX_NUMBER: usize = 400;
/// The CBOR tag of a decimal fraction (RFC 8949, section 3.4.4).
const DECIMAL_FRACTION: u64 = 4;

/// A decimal number: `-?DIGITS` or `-?DIGITS.DIGITS`, without an exponent and without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Number {
    /// Creates a number from its text. Returns `None` for another spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = match digits.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (digits, None),
        };
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let is_short = whole == "0" || !whole.starts_with('0');
        let is_valid = text.len() <= MAX_NUMBER
            && is_number(whole)
            && is_short
            && fraction.is_none_or(is_number);
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Returns a time in milliseconds as seconds, with as few digits as possible.
    #[must_use]
    pub fn seconds(ms: u64) -> Self {
        let text = format!("{}.{:03}", ms / 1000, ms % 1000);
        Self(text.trim_end_matches('0').trim_end_matches('.').to_owned())
    }

    /// Returns a number of seconds as milliseconds. Returns `None` if it is negative, has more than
    /// three digits after the point, or does not fit.
    #[must_use]
    pub fn to_ms(&self) -> Option<u64> {
        let (whole, fraction) = self.0.split_once('.').unwrap_or((&self.0, ""));
        let fraction = format!("{fraction:0<3}");
        if fraction.len() != 3 {
            return None;
        }
        whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction.parse().ok()?)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number as CBOR writes it: the mantissa and the exponent of 10. A number with more
    /// digits than a 64-bit mantissa has is rounded to the shortest one that reads back as the same
    /// `f64`.
    fn parts(&self) -> Option<(i128, i64)> {
        let (whole, fraction) = self.0.split_once('.').unwrap_or((&self.0, ""));
        let exact = format!("{whole}{fraction}");
        let exponent = i64::try_from(fraction.len()).ok()?;
        let fits = |mantissa: i128| (-(1 << 63)..1 << 64).contains(&mantissa);
        if let Some(mantissa) = exact.parse().ok().filter(|mantissa| fits(*mantissa)) {
            return Some((mantissa, -exponent));
        }
        let shortest = format!("{:e}", self.0.parse::<f64>().ok()?);
        let (digits, exponent) = shortest.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let exponent = exponent.parse::<i64>().ok()? - i64::try_from(fraction.len()).ok()?;
        let mantissa = format!("{whole}{fraction}").parse::<i128>().ok()?;
        // An integer that fits has no exponent, so that each number has one encoding.
        let integer = u32::try_from(exponent).ok().and_then(|places| 10_i128.checked_pow(places));
        let integer = integer.and_then(|power| mantissa.checked_mul(power));
        Some(integer.filter(|integer| fits(*integer)).map_or((mantissa, exponent), |of| (of, 0)))
    }

    /// Returns the CBOR item: an integer, or a decimal fraction.
    pub(super) fn to_cbor(&self) -> Vec<u8> {
        let (mantissa, exponent) = self.parts().unwrap_or_default();
        let mut out = Vec::new();
        if exponent != 0 {
            add_head(&mut out, 6, DECIMAL_FRACTION);
            add_head(&mut out, 4, 2);
            add_int(&mut out, exponent.into());
        }
        add_int(&mut out, mantissa);
        out
    }

    /// Reads a CBOR item that is an integer or a decimal fraction.
    pub(super) fn from_cbor(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let item = reader.raw()?;
        let (mantissa, exponent) = if item.first().is_some_and(|first| first >> 5 == 6) {
            let mut reader = Reader::resume(item);
            if reader.tag()? != DECIMAL_FRACTION {
                return Err(DecodeError::UnexpectedType);
            }
            reader.array(2)?;
            let exponent = reader.i64()?;
            (integer(reader.raw()?)?, exponent)
        } else {
            (integer(item)?, 0)
        };
        let (sign, digits) = (if mantissa < 0 { "-" } else { "" }, mantissa.unsigned_abs());
        let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
        if places > MAX_NUMBER {
            return Err(DecodeError::FieldOutOfRange);
        }
        let text = if exponent < 0 {
            let digits = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            format!("{sign}{whole}.{fraction}")
        } else {
            format!("{sign}{digits}{}", "0".repeat(places))
        };
        Self::parse(&text).ok_or(DecodeError::FieldOutOfRange)
    }
}

/// Reads an integer of at most 64 bits.
fn integer(item: &[u8]) -> Result<i128, DecodeError> {
    let mut reader = Reader::resume(item);
    if item.first().is_some_and(|first| first >> 5 == 0) {
        Ok(reader.u64()?.into())
    } else {
        Ok(reader.i64()?.into())
    }
}

pub(super) fn add_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let (bytes, length) = head(major, argument);
    out.extend_from_slice(&bytes[..length]);
}

/// Writes an integer of at most 64 bits.
fn add_int(out: &mut Vec<u8>, value: i128) {
    let (major, argument) = if value < 0 { (1, -1 - value) } else { (0, value) };
    add_head(out, major, u64::try_from(argument).unwrap_or(u64::MAX));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_read_from_cbor_is_written_as_the_same_bytes() {
        let zeros = "0".repeat(300);
        for (text, read) in [
            (format!("60.{zeros}"), "60".to_owned()),
            ("17446744073709551616.0".to_owned(), "17446744073709552000".to_owned()),
            (format!("-9{}.0", "0".repeat(18)), format!("-9{}", "0".repeat(18))),
            (format!("6{}.0", "0".repeat(30)), format!("6{}", "0".repeat(30))),
            (format!("0.{zeros}"), format!("0.{zeros}")),
            (format!("0.{zeros}12345678901234567890123"), format!("0.{zeros}12345678901234567")),
            ("-3.00".to_owned(), "-3.00".to_owned()),
        ] {
            let cbor = Number::parse(&text).unwrap().to_cbor();
            let number = Number::from_cbor(&mut Reader::resume(&cbor)).unwrap();
            assert_eq!((number.as_str(), number.to_cbor()), (&*read, cbor), "{text}");
        }
    }
}
