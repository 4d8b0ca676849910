//! Converts Python values to a query: the devices, the range of time, and the selection of
//! readings.

use jiff::Timestamp;
use jiff::civil::Date;
use moteseal_api::{ErrorKind, Query};
use moteseal_client::pinned::PinFile;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::sample::readings::MAX_RUNS;
use moteseal_seal::sample::{Choice, Rate, ReadingRun, Readings};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDate, PyDateTime, PyFloat, PyInt, PyString, PyTzInfo};

use crate::failure::Problem;
use crate::roster::Roster;

/// Returns the ids of the devices that an argument names; without it, of all devices in the roster.
pub(crate) fn devices(
    roster: &Roster,
    devices: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Vec<DeviceId>> {
    let names = devices.map(|devices| names(devices, "devices", DEVICE_NAMES)).transpose()?;
    if names.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::new(
            ErrorKind::Usage,
            "BadQuery",
            "devices: no device is given; pass at least one name, or omit devices to select all devices",
        )
        .raise(py));
    }
    roster.named(names.as_deref()).map_err(|problem| problem.raise(py))
}

/// Returns the columns that an argument names; without it, none, which means all columns.
pub(crate) fn columns(columns: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Vec<String>> {
    let Some(columns) = columns else { return Ok(Vec::new()) };
    let names = names(columns, "columns", "a column's name or an iterable of names")?;
    if names.is_empty() {
        return Err(Problem::new(
            ErrorKind::Usage,
            "BadQuery",
            "columns: no column is given; pass at least one name, or omit columns to select all columns",
        )
        .raise(py));
    }
    Ok(names)
}

/// Returns the first epoch of a range of time, and the epoch after the last one if it has an end.
pub(crate) fn epochs(
    roster: &Roster,
    since: Option<&Bound<'_, PyAny>>,
    until: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<(EpochNumber, Option<EpochNumber>)> {
    let calendar = roster.roster.calendar();
    let since = since
        .map(|since| instant(since, "since"))
        .transpose()?
        .map_or(0, |since| calendar.epoch_of(since.floor_ms()).0);
    let until = until
        .map(|until| instant(until, "until"))
        .transpose()?
        .map(|until| calendar.epoch_from(until.ceil_ms()).0);
    if until.is_some_and(|until| until <= since) {
        return Err(Problem::new(
            ErrorKind::Usage,
            "BadQuery",
            "the time range is empty: until must be after since",
        )
        .raise(py));
    }
    Ok((EpochNumber(since), until.map(EpochNumber)))
}

/// Returns the query for a selection of these columns of these devices' readings, after the same checks
/// that the cloud makes. Without columns, all are selected.
pub(crate) fn query(
    roster: &Roster,
    devices: Option<&Bound<'_, PyAny>>,
    (since, until): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    choice: Choice,
    columns: Vec<String>,
    py: Python<'_>,
) -> PyResult<Query> {
    let devices = self::devices(roster, devices, py)?;
    let (since, until) = epochs(roster, since, until, py)?;
    let query = Query { devices, since, until, choice, columns };
    // The messages of this check contain devices' ids: replace them with the names.
    query.clone().check().map_err(|error| {
        let problem = Problem::new(ErrorKind::Usage, "BadQuery", error);
        query
            .devices
            .iter()
            .fold(problem, |problem, device| problem.about(Some(*device), &roster.roster))
            .raise(py)
    })
}

pub(crate) fn wrong_type(what: &str, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    match found.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("{what}: expected {expected}, got {name}")),
        Err(error) => error,
    }
}

const DEVICE_NAMES: &str = "a device's name or an iterable of names";

/// Converts the argument `what`: a name, or an iterable of names.
pub(crate) fn names(given: &Bound<'_, PyAny>, what: &str, expected: &str) -> PyResult<Vec<String>> {
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(vec![name.extract()?]);
    }
    if given.is_instance_of::<PyBytes>() {
        return Err(wrong_type(what, expected, given));
    }
    let each = given.try_iter().map_err(|_| wrong_type(what, expected, given))?;
    let names = each.map(|name| {
        let name = name?;
        name.cast::<PyString>()
            .map_err(|_| wrong_type(what, expected, &name))
            .and_then(|name| name.extract())
    });
    names.collect()
}

/// A point in time in Unix microseconds, rounded down, and whether it was rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant {
    micros: u128,
    more: bool,
}

impl Instant {
    fn floor_ms(self) -> u64 {
        u64::try_from(self.micros / 1000).unwrap_or(u64::MAX)
    }

    fn ceil_ms(self) -> u64 {
        u64::try_from((self.micros + u128::from(self.more)).div_ceil(1000)).unwrap_or(u64::MAX)
    }
}

/// Converts a time: a `datetime` with a time zone, a `date` (the start of that day, UTC), Unix
/// milliseconds, or RFC 3339 text.
fn instant(time: &Bound<'_, PyAny>, what: &str) -> PyResult<Instant> {
    let py = time.py();
    let early = || PyValueError::new_err(format!("{what}: times before 1970 are not supported"));
    let of = |micros: i128, more| {
        u128::try_from(micros).map(|micros| Instant { micros, more }).map_err(|_| early())
    };
    if time.is_instance_of::<PyBool>() {
        return Err(wrong_type(what, EXPECTED_TIME, time));
    }
    if time.is_instance_of::<PyInt>() {
        let ms: i128 = time.extract().map_err(|_| {
            PyValueError::new_err(format!(
                "{what}: the number of Unix milliseconds exceeds 64 bits"
            ))
        })?;
        return of(ms.saturating_mul(1000), false);
    }
    if let Ok(text) = time.cast::<PyString>() {
        let text: String = text.extract()?;
        let nanos = text.parse::<Timestamp>().map(Timestamp::as_nanosecond).ok();
        let nanos = nanos.or_else(|| {
            let day = text.parse::<Date>().ok().filter(|_| text.len() == "2026-01-31".len())?;
            Some(
                i128::from(day.since(Date::constant(1970, 1, 1)).ok()?.get_days())
                    * 86_400_000_000_000,
            )
        });
        let nanos = nanos.ok_or_else(|| {
            PyValueError::new_err(format!(
                "{what}: {text:?} is not a time; use RFC 3339 with a zone (2026-01-31T12:00:00Z) or a day (2026-01-31)"
            ))
        })?;
        return of(nanos.div_euclid(1000), nanos.rem_euclid(1000) > 0);
    }
    let utc = PyTzInfo::utc(py)?;
    let start = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    let since = if let Ok(time) = time.cast::<PyDateTime>() {
        if time.getattr("tzinfo")?.is_none() || time.call_method0("utcoffset")?.is_none() {
            return Err(PyValueError::new_err(format!(
                "{what}: the datetime has no time zone; add one, such as tzinfo=datetime.timezone.utc"
            )));
        }
        time.sub(start)?
    } else if time.is_instance_of::<PyDate>() {
        time.sub(PyDate::new(py, 1970, 1, 1)?)?
    } else {
        return Err(wrong_type(what, EXPECTED_TIME, time));
    };
    let part = |name: &str| since.getattr(name)?.extract::<i128>();
    of((part("days")? * 86_400 + part("seconds")?) * 1_000_000 + part("microseconds")?, false)
}

const EXPECTED_TIME: &str =
    "a datetime with a time zone, a date, Unix milliseconds (int) or an RFC 3339 text";

/// Converts the amount of readings. Exactly one of the amounts must be given.
pub(crate) fn choice(
    rate: Option<&Bound<'_, PyAny>>,
    at_most: Option<&Bound<'_, PyAny>>,
    sample: Option<&Bound<'_, PyAny>>,
    seed: Option<&Bound<'_, PyAny>>,
    readings: Option<&Bound<'_, PyAny>>,
) -> PyResult<Choice> {
    if let Some(readings) = readings {
        if rate.is_some() || at_most.is_some() || sample.is_some() {
            return Err(PyValueError::new_err(
                "rate, at_most, sample and readings exclude each other; pass only one of them",
            ));
        }
        return named(readings);
    }
    let at_most = at_most.map(|most| number::<u64>(most, "at_most")).transpose()?;
    let sample = sample.map(|count| number::<u32>(count, "sample")).transpose()?;
    if seed.is_some() && sample.is_none() {
        return Err(PyValueError::new_err(
            "seed: allowed only with a sample; set its size with sample=100",
        ));
    }
    match (rate, at_most, sample) {
        (Some(rate), None, None) => Ok(Choice::Rate(self::rate(rate)?)),
        (None, Some(0), None) => {
            Err(PyValueError::new_err("at_most: expected at least 1 reading per epoch"))
        }
        (None, Some(most), None) => Ok(Choice::AtMost(most)),
        (None, None, Some(0)) => {
            Err(PyValueError::new_err("sample: expected at least 1 reading per epoch"))
        }
        (None, None, Some(count)) => Ok(Choice::Sample { count, seed: self::seed(seed)? }),
        (None, None, None) => Err(PyValueError::new_err(
            "the amount is missing: pass rate=\"1/8\", at_most=100, sample=100 or readings=[(12, 7)]; rate=1 means all readings",
        )),
        _ => Err(PyValueError::new_err(
            "rate, at_most and sample exclude each other; pass only one of them",
        )),
    }
}

/// Converts readings: a list of (index, seq) or (index, seq, count).
fn named(readings: &Bound<'_, PyAny>) -> PyResult<Choice> {
    const EXPECTED: &str = "a list of (index, seq) or (index, seq, count)";
    let wrong = |_| wrong_type("readings", EXPECTED, readings);
    let mut runs = Vec::new();
    for one in readings.try_iter().map_err(wrong)? {
        let one = one?;
        let (index, first, count) = match one.extract::<(u32, u32)>() {
            Ok((index, first)) => (index, first, 1),
            Err(_) => one.extract::<(u32, u32, u32)>().map_err(wrong)?,
        };
        runs.push(ReadingRun { index: SealIndex(index), first, count });
    }
    runs.sort_unstable_by_key(|run| (run.index, run.first));
    Readings::new(&runs).map(Choice::Readings).ok_or_else(|| {
        PyValueError::new_err(format!(
            "readings: name every reading once, in 1 to {MAX_RUNS} runs of consecutive readings"
        ))
    })
}

/// Converts a whole number that is not negative.
pub(crate) fn number<T: TryFrom<u64>>(value: &Bound<'_, PyAny>, what: &str) -> PyResult<T> {
    if value.is_instance_of::<PyBool>() || !value.is_instance_of::<PyInt>() {
        return Err(wrong_type(what, "a whole number (int)", value));
    }
    let fits = value.extract::<u64>().ok().and_then(|number| T::try_from(number).ok());
    fits.ok_or_else(|| PyValueError::new_err(format!("{what}: {value} is negative or too large")))
}

/// Converts a rate: `1`, `0.125`, `"1/8"` or a `Fraction`.
pub(crate) fn rate(rate: &Bound<'_, PyAny>) -> PyResult<Rate> {
    let wrong = || wrong_type("rate", "a number, a Fraction or a text such as \"1/8\"", rate);
    let text = if rate.is_instance_of::<PyBool>() {
        return Err(wrong());
    } else if let Ok(text) = rate.cast::<PyString>() {
        text.extract::<String>()?
    } else if rate.is_instance_of::<PyFloat>() {
        rate.extract::<f64>()?.to_string()
    } else {
        let part = |name: &str| rate.getattr(name).and_then(|part| Ok(part.str()?.to_string()));
        let (numerator, denominator) = part("numerator")
            .and_then(|above| Ok((above, part("denominator")?)))
            .map_err(|_| wrong())?;
        format!("{numerator}/{denominator}")
    };
    text.trim().parse().map_err(|error| PyValueError::new_err(format!("rate: {text}: {error}")))
}

/// Converts a seed: 32 bytes, or their 64 hexadecimal digits. Without a seed, draws a random one.
pub(crate) fn seed(seed: Option<&Bound<'_, PyAny>>) -> PyResult<[u8; 32]> {
    let mut bytes = [0; 32];
    let Some(seed) = seed else {
        getrandom::fill(&mut bytes).map_err(|error| {
            PyValueError::new_err(format!("seed: the system did not provide random bytes: {error}"))
        })?;
        return Ok(bytes);
    };
    let wrong = || PyValueError::new_err("seed: expected 32 bytes or 64 hexadecimal digits");
    if let Ok(given) = seed.cast::<PyBytes>() {
        bytes = given.as_bytes().try_into().map_err(|_| wrong())?;
    } else if let Ok(text) = seed.cast::<PyString>() {
        hex::decode_to_slice(text.extract::<String>()?, &mut bytes).map_err(|_| wrong())?;
    } else {
        return Err(wrong_type("seed", "bytes or hexadecimal digits", seed));
    }
    Ok(bytes)
}

/// Converts the choice of the file for pinned seals: True means the file in the user's state
/// directory, False means no file.
pub(crate) fn pin_file(pinned_seals: Option<&Bound<'_, PyAny>>) -> PyResult<PinFile> {
    let Some(given) = pinned_seals else { return Ok(PinFile::Default) };
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(if flag.is_true() { PinFile::Default } else { PinFile::None });
    }
    given
        .extract()
        .map(PinFile::At)
        .map_err(|_| wrong_type("pinned_seals", "True, False or a path", given))
}
