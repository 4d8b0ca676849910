//! Parses times and durations on the command line.

use std::time::{SystemTime, UNIX_EPOCH};

use moteseal_core::record::EpochNumber;
use moteseal_device::import::{TimeFormat, display_ms};
use moteseal_verify::{Calendar, Roster};

/// Parses a duration, a number with a unit, and returns it in milliseconds.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("a number and a unit: 500ms, 30s, 15m, 1h or 1d".to_owned()),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(length) if length > 0 => Ok(length),
        _ => Err("a number above 0 and a unit: 500ms, 30s, 15m, 1h or 1d".to_owned()),
    }
}

/// Parses an instant and returns it in Unix milliseconds. Accepts RFC 3339, `YYYY-MM-DD HH:MM:SS`
/// and `YYYY-MM-DD` (UTC).
pub(crate) fn instant(text: &str) -> Result<u64, String> {
    let format = TimeFormat::detect(text)
        .filter(|format| !matches!(format, TimeFormat::UnixSeconds | TimeFormat::UnixMilliseconds));
    format.and_then(|format| format.parse(text)).ok_or_else(|| {
        "a time from 1970 on, for example 2026-01-31T12:00:00Z, or a day, for example 2026-01-31"
            .to_owned()
    })
}

/// Describes the time that a range of epochs covers, from the start of the first to the end of the
/// last.
pub(crate) fn span(roster: &Roster, first: EpochNumber, last: EpochNumber) -> String {
    format!("{} to {}", start(roster, first), start(roster, EpochNumber(last.0.saturating_add(1))))
}

/// Describes the start of an epoch.
pub(crate) fn start(roster: &Roster, epoch: EpochNumber) -> String {
    roster.epoch_start_ms(epoch).map_or_else(|| format!("epoch {epoch}"), display_ms)
}

/// The start or the end of a range of epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// A Unix instant, in milliseconds.
    Instant(u64),
    /// A time this long before now, in milliseconds.
    Ago(u64),
    /// An epoch by its number.
    Epoch(u64),
}

/// Parses `2026-01-31T12:00:00Z`, `2026-01-31`, `@4711` (an epoch number) or `-7d` (seven days
/// ago).
pub(crate) fn when(text: &str) -> Result<When, String> {
    if let Some(number) = text.strip_prefix('@') {
        return number
            .parse()
            .map(When::Epoch)
            .map_err(|_| "an epoch's number after the @".to_owned());
    }
    if let Some(ago) = text.strip_prefix('-') {
        return duration(ago).map(When::Ago).map_err(|error| format!("after the minus, {error}"));
    }
    instant(text)
        .map(When::Instant)
        .map_err(|error| format!("{error}, -7d for seven days ago, or @N for epoch N"))
}

impl When {
    /// Returns the epoch that contains this instant.
    pub(crate) fn epoch(self, calendar: &Calendar) -> EpochNumber {
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
        };
        match self {
            Self::Instant(unix_ms) => calendar.epoch_of(unix_ms),
            Self::Ago(ms) => calendar.epoch_of(now().saturating_sub(ms)),
            Self::Epoch(number) => EpochNumber(number),
        }
    }

    /// Returns the first epoch that does not start before this instant: the exclusive end of a
    /// range that ends at this instant.
    pub(crate) fn epoch_after(self, calendar: &Calendar) -> EpochNumber {
        match self {
            Self::Instant(unix_ms) => calendar.epoch_from(unix_ms),
            other => other.epoch(calendar),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form_of_a_time() {
        assert_eq!(when("@7"), Ok(When::Epoch(7)));
        assert_eq!(when("-2h"), Ok(When::Ago(7_200_000)));
        assert_eq!(when("1970-01-02"), Ok(When::Instant(86_400_000)));
        assert_eq!(when("1970-01-01T01:00:00+01:00"), Ok(When::Instant(0)));
        for wrong in ["", "@", "@x", "-7", "-d", "tomorrow", "17"] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_contains_every_epoch_that_it_overlaps() {
        let (from, to) = (When::Instant(1500), When::Instant(2500));
        let calendar = Calendar::constant(1000);
        let range = (from.epoch(&calendar), to.epoch_after(&calendar));
        assert_eq!(range, (EpochNumber(1), EpochNumber(3)));
        assert_eq!(When::Instant(3000).epoch_after(&calendar), EpochNumber(3));
    }
}
