//! Reading decimal texts without rounding.

use super::ValueError;

/// The largest number of digits after the point that a divisor below 2^32 can represent: 31, for
/// 2^31.
const MAX_PLACES: u32 = 31;

/// The exact parts of a decimal text: the sign, and the absolute value `whole + fraction /
/// 10^places`.
pub(super) struct Number {
    negative: bool,
    whole: u128,
    fraction: u128,
    places: u32,
    /// Whether there were nonzero digits after the first [`MAX_PLACES`] decimal places.
    finer: bool,
    /// Whether `whole` overflowed.
    larger: bool,
}

impl Number {
    /// Parses `[+-]digits[.digits][e[+-]digits]`, with a digit on at least one side of the point.
    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
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
    pub(super) fn times(&self, divisor: u32) -> Result<i128, ValueError> {
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
