//! The text form of timestamps: RFC 3339.

use core::fmt;

use super::ValueError;

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00:00Z, displayed as RFC 3339 in UTC. Times before the year 0
/// or after the year 9999 are displayed as the number of milliseconds.
pub(super) struct Shown(pub(super) i64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0.div_euclid(DAY_MS), self.0.rem_euclid(DAY_MS));
        let (year, month, day) = date(days);
        if !(0..=9999).contains(&year) {
            return self.0.fmt(f);
        }
        let (seconds, ms) = (in_day / 1000, in_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match ms {
            0 => {}
            _ if ms % 100 == 0 => write!(f, ".{}", ms / 100)?,
            _ if ms % 10 == 0 => write!(f, ".{:02}", ms / 10)?,
            _ => write!(f, ".{ms:03}")?,
        }
        f.write_str("Z")
    }
}

/// Reads RFC 3339, such as `2026-03-01T07:00:00.5+01:00`, or a number of milliseconds since 1970.
pub(super) fn parse(text: &str) -> Result<i64, ValueError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| ValueError::OutOfRange);
    }
    let (date, ms, zone) = split(text.as_bytes()).ok_or(ValueError::NotATimestamp)?;
    let ms = ms?;
    let [year, month, day, hour, minute, second] = date;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date = (1..=12).contains(&month) && (1..=last).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return Err(ValueError::NotATimestamp);
    }
    let seconds = (hour * 60 + minute - zone) * 60 + second;
    Ok(days(year, month, day) * DAY_MS + seconds * 1000 + ms)
}

type Parts = ([i64; 6], Result<i64, ValueError>, i64);

/// Returns year, month, day, hour, minute and second; the milliseconds; and the minutes by which the
/// zone is ahead of UTC.
fn split(text: &[u8]) -> Option<Parts> {
    let mut parts = [0; 6];
    let mut rest = text;
    for (part, (width, before)) in
        parts.iter_mut().zip([(4, b""), (2, b"-"), (2, b"-"), (2, b"Tt "), (2, b":"), (2, b":")]
            as [(usize, &[u8]); 6])
    {
        if !before.is_empty() {
            let (first, after) = rest.split_first()?;
            rest = before.contains(first).then_some(after)?;
        }
        let (digits, after) = rest.split_at_checked(width)?;
        (*part, rest) = (number(digits)?, after);
    }
    let mut ms = Ok(0);
    if let [b'.', after @ ..] = rest {
        let length = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = after.split_at(length);
        if digits.is_empty() {
            return None;
        }
        let finer = digits.iter().skip(3).any(|&digit| digit != b'0');
        let at = |place: usize| digits.get(place).map_or(0, |digit| i64::from(digit - b'0'));
        ms = if finer {
            Err(ValueError::NotRepresentable)
        } else {
            Ok(at(0) * 100 + at(1) * 10 + at(2))
        };
        rest = after;
    }
    let zone = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    Some((parts, ms, zone))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })
}

/// The days from 0000-03-01 to 1970-01-01 in the Gregorian calendar.
const EPOCH_DAYS: i64 = 719_468;
/// The days in 400 years.
const ERA_DAYS: i64 = 146_097;

/// Returns the days from 1970-01-01 to a date. Years start in March, so that the leap day is the
/// last day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + in_era * 365 + in_era / 4 - in_era / 100 + in_year - EPOCH_DAYS
}

/// Returns year, month and day of a number of days from 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_DAYS;
    let (era, in_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    fn shown(ms: i64) -> String {
        Shown(ms).to_string()
    }

    #[test]
    fn times_are_read_and_shown_in_utc() {
        for (text, ms, canonical) in [
            ("1970-01-01T00:00:00Z", 0, ""),
            ("1969-12-31T23:59:59.999Z", -1, ""),
            ("2000-02-29T12:34:56.7Z", 951_827_696_700, ""),
            ("2026-03-01 07:00:00.50+01:00", 1_772_344_800_500, "2026-03-01T06:00:00.5Z"),
            ("2026-03-01t07:00:00.500000-00:30", 1_772_350_200_500, "2026-03-01T07:30:00.5Z"),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000, ""),
            ("9999-12-31T23:59:59.99Z", 253_402_300_799_990, ""),
            ("-62167219200001", -62_167_219_200_001, ""),
            ("253402300800000", 253_402_300_800_000, ""),
            ("1772344800500", 1_772_344_800_500, "2026-03-01T06:00:00.5Z"),
        ] {
            assert_eq!(parse(text), Ok(ms), "{text}");
            assert_eq!(shown(ms), if canonical.is_empty() { text } else { canonical });
        }
        assert_eq!(shown(i64::MIN), i64::MIN.to_string());
        assert_eq!(shown(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn each_day_has_one_date() {
        let mut previous = date(-720_000);
        for day in -719_999..2_940_000 {
            let (year, month, in_month) = date(day);
            assert_eq!(days(year, month, in_month), day);
            let follows = (year, month, in_month) == (previous.0, previous.1, previous.2 + 1)
                || (year, month, in_month) == (previous.0, previous.1 + 1, 1)
                || (year, month, in_month) == (previous.0 + 1, 1, 1);
            assert!(follows, "{previous:?} {year}-{month}-{in_month}");
            previous = (year, month, in_month);
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "-",
            "2026-03-01",
            "2026-03-01T07:00Z",
            "2026-03-01T07:00:00",
            "2026-03-01T07:00:00.Z",
            "2026-02-29T07:00:00Z",
            "2100-02-29T07:00:00Z",
            "2026-13-01T07:00:00Z",
            "2026-00-01T07:00:00Z",
            "2026-04-31T07:00:00Z",
            "2026-04-00T07:00:00Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T07:60:00Z",
            "2026-03-01T07:00:60Z",
            "2026-03-01T07:00:00+24:00",
            "2026-03-01T07:00:00+0100",
            "2026-03-01T07:00:00Z ",
            "2026-03-01T07:00:0\u{661}Z",
            "12345-03-01T07:00:00Z",
            "1.5",
        ] {
            assert_eq!(parse(text), Err(ValueError::NotATimestamp), "{text}");
        }
        assert_eq!(parse("2026-03-01T07:00:00.0001Z"), Err(ValueError::NotRepresentable));
        assert_eq!(parse("9223372036854775808"), Err(ValueError::OutOfRange));
    }
}
