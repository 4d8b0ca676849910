//! Times and lengths of time on the command line.

use moteseal_device::import::TimeFormat;

/// A length of time in milliseconds: a number and a unit.
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

/// An instant in Unix milliseconds: RFC 3339, `YYYY-MM-DD HH:MM:SS` or `YYYY-MM-DD` (UTC).
pub(crate) fn instant(text: &str) -> Result<u64, String> {
    let format =
        TimeFormat::detect(text).filter(|format| !matches!(format, TimeFormat::UnixSeconds | TimeFormat::UnixMilliseconds));
    format
        .and_then(|format| format.parse(text))
        .ok_or_else(|| "a time such as 2026-01-31T12:00:00Z, or a day such as 2026-01-31".to_owned())
}
