//! Converts the formats of times in tables to milliseconds since 1970.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// The format of a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeFormat {
    /// Seconds since 1970-01-01 UTC, with or without a fraction.
    UnixSeconds,
    /// Milliseconds since 1970-01-01 UTC.
    UnixMilliseconds,
    /// RFC 3339 with an offset from UTC.
    Rfc3339,
    /// `YYYY-MM-DD HH:MM:SS`, interpreted as UTC.
    Utc,
    /// `YYYY-MM-DD`, which means midnight UTC.
    Day,
}

/// Whole numbers from this value on are read as milliseconds. Read as seconds, they would be times
/// after the year 5000.
const FIRST_MILLISECOND: u64 = 100_000_000_000;

impl TimeFormat {
    /// Detects the format of a value.
    #[must_use]
    pub fn detect(value: &str) -> Option<Self> {
        let format = match value.parse::<u64>() {
            Ok(number) if number >= FIRST_MILLISECOND => Self::UnixMilliseconds,
            Ok(_) => Self::UnixSeconds,
            Err(_) => [Self::Rfc3339, Self::Day, Self::Utc, Self::UnixSeconds]
                .into_iter()
                .find(|format| format.parse(value).is_some())?,
        };
        Some(format)
    }

    /// Returns the time of a value in milliseconds since 1970. Returns `None` if the value has
    /// another format or is before 1970.
    #[must_use]
    pub fn parse(self, value: &str) -> Option<u64> {
        let at = |timestamp: Timestamp| u64::try_from(timestamp.as_millisecond()).ok();
        let utc =
            |moment: DateTime| moment.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
        match self {
            Self::UnixSeconds => seconds(value),
            Self::UnixMilliseconds => value.parse().ok(),
            Self::Rfc3339 => value.parse().ok().and_then(at),
            Self::Utc => value.parse().ok().and_then(utc).and_then(at),
            // The parser would also accept a time of day after the date, so check the length.
            Self::Day if value.len() == 10 => value
                .parse::<Date>()
                .ok()
                .map(|date| date.at(0, 0, 0, 0))
                .and_then(utc)
                .and_then(at),
            Self::Day => None,
        }
    }
}

/// Converts decimal seconds to milliseconds. Digits after the milliseconds are ignored.
fn seconds(value: &str) -> Option<u64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let milliseconds = fraction
        .bytes()
        .chain(*b"000")
        .take(3)
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(milliseconds)
}

impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnixSeconds => "Unix seconds",
            Self::UnixMilliseconds => "Unix milliseconds",
            Self::Rfc3339 => "RFC 3339",
            Self::Utc => "YYYY-MM-DD HH:MM:SS (UTC)",
            Self::Day => "YYYY-MM-DD (midnight UTC)",
        })
    }
}

/// Formats a time in milliseconds since 1970 as RFC 3339. After the year 9999, returns the number.
#[must_use]
pub fn display_ms(unix_ms: u64) -> String {
    let timestamp = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| format!("{unix_ms} ms"), |timestamp| timestamp.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parses_the_same_time_in_every_format() {
        for (value, format) in [
            ("1273395605", TimeFormat::UnixSeconds),
            ("1273395605.000", TimeFormat::UnixSeconds),
            ("1273395605000", TimeFormat::UnixMilliseconds),
            ("2010-05-09T09:00:05Z", TimeFormat::Rfc3339),
            ("2010-05-09T11:00:05+02:00", TimeFormat::Rfc3339),
            ("2010-05-09 09:00:05", TimeFormat::Utc),
            ("2010-05-09T09:00:05", TimeFormat::Utc),
        ] {
            assert_eq!(TimeFormat::detect(value), Some(format), "{value}");
            assert_eq!(format.parse(value), Some(1_273_395_605_000), "{value}");
        }
        assert_eq!(TimeFormat::detect("2010-05-09"), Some(TimeFormat::Day));
        assert_eq!(
            TimeFormat::Day.parse("2010-05-09").map(display_ms).as_deref(),
            Some("2010-05-09T00:00:00Z")
        );
        assert_eq!(TimeFormat::UnixSeconds.parse("0.0019"), Some(1));
    }

    #[test]
    fn rejects_values_that_are_not_times() {
        for value in [
            "",
            "yesterday",
            "-5",
            "2010-13-01",
            "1969-12-31T23:59:59Z",
            "1.2.3",
            "12h",
            ".5",
            "99999999999999999999",
        ] {
            assert_eq!(TimeFormat::detect(value), None, "{value}");
        }
    }
}
