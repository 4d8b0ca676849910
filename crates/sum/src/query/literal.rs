//! Exact decimal numbers in a query's text, and their conversion to the scale of a column.

/// A decimal number as written in a query: `±mantissa / 10^places`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal<'a> {
    negative: bool,
    mantissa: u128,
    places: u32,
    /// The number as written, with its sign.
    pub(super) text: &'a str,
    /// The number's offset in the query, in bytes.
    pub(super) start: usize,
}

/// The largest power of ten that fits in 127 bits is `10^MAX_PLACES`.
const MAX_PLACES: usize = 38;

impl<'a> Literal<'a> {
    /// Reads `digits[.digits]`; `None` if there are more than 38 digits.
    pub(super) fn read(negative: bool, digits: &str, text: &'a str, start: usize) -> Option<Self> {
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.len() + fraction.len() > MAX_PLACES {
            return None;
        }
        let places = u32::try_from(fraction.len()).ok()?;
        // There are at most 38 digits, so the number is below 2^127.
        let mantissa = whole
            .bytes()
            .chain(fraction.bytes())
            .fold(0, |value, digit| value * 10 + u128::from(digit - b'0'));
        Some(Self { negative, mantissa, places, text, start })
    }

    /// Returns the highest numerator on the scale of `divisor` that is not above the number; `None`
    /// if it does not fit in 128 bits.
    pub(super) fn floor(&self, divisor: u32) -> Option<i128> {
        Some(self.times(divisor)?.div_euclid(10i128.pow(self.places)))
    }

    /// Returns the lowest numerator on the scale of `divisor` that is not below the number; `None`
    /// if it does not fit in 128 bits.
    pub(super) fn ceil(&self, divisor: u32) -> Option<i128> {
        Some(-(-self.times(divisor)?).div_euclid(10i128.pow(self.places)))
    }

    /// Returns the number times `divisor` times `10^places`, which is an integer; `None` if it does
    /// not fit in 128 bits.
    fn times(&self, divisor: u32) -> Option<i128> {
        let product = i128::try_from(self.mantissa.checked_mul(divisor.into())?).ok()?;
        Some(if self.negative { -product } else { product })
    }
}
