//! Imports recorded readings: converts the rows of a table with a header to records of a stream
//! schema, each with its time.
//!
//! Values are converted exactly or rejected ([`Field::write`]). Every error states the file and
//! what to do. Where it applies, it also states the line, the column and the value. This module
//! seals nothing.

mod table;
mod time;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::record::MAX_PAYLOAD;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema, SchemaError, ValueError};

use moteseal_verify::Calendar;
pub use table::Delimiter;
use table::{Table, TableError};
pub use time::{TimeFormat, display_ms};

/// The source of the times of rows.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The name of a column with the times, as Unix seconds, Unix milliseconds, RFC 3339, or
    /// `YYYY-MM-DD[ HH:MM:SS]` in UTC. The first row determines the format for all rows.
    Column(String),
    /// The table contains no times. Its first row is at `start_ms`, and the interval between rows
    /// is `every_ms`.
    Every {
        /// The time of the first row, in milliseconds since 1970.
        start_ms: u64,
        /// The interval between rows, in milliseconds.
        every_ms: u64,
    },
}

/// The settings for importing a table.
#[derive(Clone, Debug)]
pub struct Import {
    /// The columns to seal, as `name:unit:type[/divisor][+offset][?]` ([`Field::parse`]). The names
    /// must be those in the table's header. An empty cell of a nullable column is null.
    pub columns: Vec<String>,
    /// If this is set, only this column is sealed: its text becomes opaque records, unchanged.
    pub opaque: Option<String>,
    /// The source of the times.
    pub clock: Clock,
    /// If this is set, each time is recorded in a field of type `time`, as milliseconds since the
    /// start of its epoch. The field has the name of the time column, or `time` if there is no time
    /// column or a sealed column has its name. The value is the calendar of the group's epochs.
    pub keep_time: Option<Calendar>,
    /// The delimiter of columns; `None` detects it from the header.
    pub delimiter: Option<Delimiter>,
    /// Whether to skip rows that lack a value, instead of rejecting the table.
    pub skip_incomplete: bool,
    /// Whether to sort rows by time, instead of rejecting a table whose times go back.
    pub sort: bool,
    /// The latest accepted time, in milliseconds since 1970. The limit protects against wrong times
    /// in the future: after the device has sealed a time, it can never seal an earlier one.
    pub latest_ms: Option<u64>,
}

/// The readings of one device, ordered by time.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The stream schema, encoded.
    pub schema: Vec<u8>,
    /// The delimiter of the columns.
    pub delimiter: Delimiter,
    /// The format of the times, if the table contains times.
    pub time_format: Option<TimeFormat>,
    /// The number of rows that were skipped because they lacked a value.
    pub skipped: u64,
    records: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    unix_ms: u64,
    start: usize,
    length: u16,
}

impl Recording {
    /// Returns the number of readings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no readings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the readings in order, each as its time in milliseconds since 1970 and its record.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u8])> + DoubleEndedIterator {
        self.rows
            .iter()
            .map(|row| (row.unix_ms, &self.records[row.start..row.start + usize::from(row.length)]))
    }
}

/// Why a table was not imported.
#[derive(Debug)]
pub struct ImportError {
    /// The path of the file, as given.
    pub file: PathBuf,
    /// The line with the error, counted from 1, if the error is in one line.
    pub line: Option<u64>,
    /// The error.
    pub kind: ImportErrorKind,
}

/// The errors of a table, and of the request to import it. Errors are logged, and the values of encrypted
/// columns must not leave the process, so errors do not have them. A table without a header, or with
/// shifted cells, has these values in other places: if a column is encrypted, errors have neither names of
/// the header nor a time that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// The file cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// The file is empty.
    #[error(
        "the file is empty; it needs a header line with the columns' names, then a line for each \
         reading"
    )]
    Empty,
    /// The file has only a header.
    #[error("there are no readings below the header")]
    NoRows,
    /// The text is not a table.
    #[error("{0}")]
    Table(TableError),
    /// A column specification is invalid.
    #[error("--column {spec}: {}", .error.named())]
    Spec {
        /// The specification.
        spec: String,
        /// Why the specification is invalid.
        error: SchemaError,
    },
    /// No columns are given.
    #[error("name the columns to seal with --column NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?]")]
    NoColumns,
    /// The table has no such column.
    #[error("there is no column {name:?}; {}", header(.columns.as_deref()))]
    UnknownColumn {
        /// The name that was not found.
        name: String,
        /// The names of the table's columns; `None` if a column is encrypted.
        columns: Option<Vec<String>>,
    },
    /// A row has a different number of columns than the header.
    #[error(
        "{found} columns, but the header has {expected}; if the detected delimiter is wrong, \
         give --delimiter"
    )]
    Width {
        /// The number of columns in the row.
        found: usize,
        /// The number of columns in the header.
        expected: usize,
    },
    /// A value cannot be recorded in its field.
    #[error("column {column}: {} does not fit {spec}: {}", quoted(.value.as_deref()), .error.named())]
    Value {
        /// The column.
        column: String,
        /// The field, as specified.
        spec: String,
        /// The value; `None` if the column is encrypted.
        value: Option<String>,
        /// Why the value cannot be recorded.
        error: ValueError,
    },
    /// A row lacks a value.
    #[error(
        "column {column}: no value; declare the column as nullable (?), or skip rows like this with \
         --skip-incomplete"
    )]
    Missing {
        /// The column.
        column: String,
    },
    /// An opaque record is longer than 65,535 bytes.
    #[error("column {column}: {length} bytes, but a record has at most {MAX_PAYLOAD}; shorten it")]
    TooLong {
        /// The column.
        column: String,
        /// The record's length in bytes.
        length: usize,
    },
    /// A time cannot be parsed.
    #[error(
        "column {column}: {} is not a time{}",
        quoted(.value.as_deref()), expected_time(*.expected)
    )]
    Time {
        /// The column.
        column: String,
        /// The value; `None` if a column is encrypted.
        value: Option<String>,
        /// The format of the first row's time; `None` if the value is in the first row.
        expected: Option<TimeFormat>,
    },
    /// The time of a row is before the time of the previous row.
    #[error(
        "times go back: {} is before {} in line {before_line}; sort the file by time, or give \
         --sort",
        display_time(*.unix_ms), display_time(*.before_ms)
    )]
    ClockGoesBack {
        /// The time of the row, in milliseconds since 1970; `None` if the time's column is encrypted.
        unix_ms: Option<u64>,
        /// The time of the previous row, in milliseconds since 1970, if it may be shown.
        before_ms: Option<u64>,
        /// The line of the previous row.
        before_line: u64,
    },
    /// A time is in the future.
    #[error(
        "{} is in the future, and after it is sealed, the device can seal no earlier reading; \
         correct its time or this machine's clock, or give --allow-future",
        display_time(*.unix_ms)
    )]
    Future {
        /// The time, in milliseconds since 1970; `None` if the time's column is encrypted.
        unix_ms: Option<u64>,
    },
    /// Epochs are too long for the 4 bytes of a `time` field.
    #[error("--keep-time allows epochs of at most 49 days; use shorter epochs or omit it")]
    EpochTooLong,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for ImportError {}

/// Returns a value in quotes, if it may be shown.
fn quoted(value: Option<&str>) -> String {
    value.map_or_else(|| "the value".to_owned(), |value| format!("{value:?}"))
}

/// Returns a time as text, if it may be shown.
fn display_time(unix_ms: Option<u64>) -> String {
    unix_ms.map_or_else(|| "the time".to_owned(), display_ms)
}

/// Returns what the header has, if it may be shown.
fn header(columns: Option<&[String]>) -> String {
    columns.map_or_else(
        || "compare it with the first line of the file, which has the columns' names".to_owned(),
        |columns| format!("the file has {}", columns.join(", ")),
    )
}

/// Returns the end of the message about a time that cannot be parsed. It names the accepted
/// formats, or the format of the first row.
fn expected_time(first_row: Option<TimeFormat>) -> String {
    match first_row {
        None => {
            "; use Unix seconds or milliseconds, RFC 3339, or YYYY-MM-DD HH:MM:SS (UTC)".to_owned()
        }
        Some(format) => format!(" in the format of the first row, {format}"),
    }
}

impl ImportError {
    /// Returns [`Internal`](ErrorKind::Internal) if the machine failed to read the file, and
    /// [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.kind {
            ImportErrorKind::Io(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => ErrorKind::Usage,
                _ => ErrorKind::Internal,
            },
            _ => ErrorKind::Usage,
        }
    }
}

/// A column of the table that is sealed, and its field in the schema.
struct Wanted<'s> {
    column: usize,
    field: Field<'s>,
}

impl Import {
    /// Imports a file.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn file(&self, path: &Path) -> Result<Recording, ImportError> {
        let io = |error| ImportError {
            file: path.to_owned(),
            line: None,
            kind: ImportErrorKind::Io(error),
        };
        let file = File::open(path).map_err(io)?;
        self.read(path, BufReader::with_capacity(1 << 16, file))
    }

    /// Imports a table from a reader. Errors use `name` as the file's path.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn read(&self, name: &Path, from: impl Read) -> Result<Recording, ImportError> {
        let mut line = None;
        self.rows(from, &mut line).map_err(|kind| ImportError { file: name.to_owned(), line, kind })
    }

    fn rows(&self, from: impl Read, line: &mut Option<u64>) -> Result<Recording, ImportErrorKind> {
        // Specifications that are wrong may be meant for encrypted columns.
        let is_secret =
            self.specs().map_or(true, |specs| specs.iter().any(|of| of.suite.is_some()));
        let mut table = Table::open(from, self.delimiter).map_err(|error| match error {
            TableError::Io(error) => ImportErrorKind::Io(error),
            TableError::Empty => ImportErrorKind::Empty,
            TableError::DuplicateColumn(_) if is_secret => {
                ImportErrorKind::Table(TableError::DuplicateColumn(None))
            }
            error => ImportErrorKind::Table(error),
        })?;
        let find = |name: &str| {
            table.columns().iter().position(|column| column == name).ok_or_else(|| {
                ImportErrorKind::UnknownColumn {
                    name: name.to_owned(),
                    columns: (!is_secret).then(|| table.columns().to_vec()),
                }
            })
        };
        let time_column = match &self.clock {
            Clock::Column(name) => Some(find(name)?),
            Clock::Every { .. } => None,
        };
        let opaque = self.opaque.as_deref().map(find).transpose()?;

        let specs: Vec<Field<'_>> = self.specs()?;
        let columns: Vec<usize> =
            specs.iter().map(|field| find(field.name)).collect::<Result<_, _>>()?;
        let is_secret_time = match &self.clock {
            Clock::Column(name) => specs.iter().any(|of| of.name == name && of.suite.is_some()),
            Clock::Every { .. } => false,
        };
        let shown_time = |unix_ms: u64| (!is_secret_time).then_some(unix_ms);
        let mut fields = specs.clone();
        let time_name = match &self.clock {
            Clock::Column(name) if specs.iter().all(|field| field.name != name) => name.as_str(),
            _ => "time",
        };
        if let Some(calendar) = &self.keep_time {
            if calendar.longest_ms() > u64::from(u32::MAX) + 1 {
                return Err(ImportErrorKind::EpochTooLong);
            }
            fields.insert(0, Field::new(time_name, "", FieldType::Time));
        }
        if opaque.is_some() {
            fields.clear();
        } else if specs.is_empty() {
            return Err(ImportErrorKind::NoColumns);
        }
        let mut buffer = vec![0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer).map_err(|error| {
            ImportErrorKind::Spec { spec: self.columns.join(" --column "), error }
        })?;
        let shift = usize::from(self.keep_time.is_some());
        let wanted = schema
            .fields()
            .skip(shift)
            .zip(columns)
            .map(|(field, column)| Wanted { column, field });
        let wanted: Vec<Wanted<'_>> = wanted.collect();
        let time_field =
            self.keep_time.as_ref().and_then(|calendar| Some((calendar, schema.fields().next()?)));

        let mut recording = Recording {
            schema: schema.as_bytes().to_vec(),
            delimiter: table.delimiter(),
            time_format: None,
            skipped: 0,
            records: Vec::new(),
            rows: Vec::new(),
        };
        let width = table.columns().len();
        let names = table.columns().to_vec();
        let mut record =
            if opaque.is_some() { Vec::new() } else { vec![0; schema.longest_record()] };
        let (mut before, mut count) = (None, 0u64);
        while let Some(row) = table.next_row().map_err(|(at, error)| {
            *line = at;
            match error {
                TableError::Io(error) => ImportErrorKind::Io(error),
                error => ImportErrorKind::Table(error),
            }
        })? {
            *line = Some(row.line());
            // Without a time column, the time depends on the row's number, so count skipped rows as
            // well.
            let place = count;
            count += 1;
            if row.len() != width {
                return Err(ImportErrorKind::Width { found: row.len(), expected: width });
            }
            let needed = wanted.iter().filter(|wanted| !wanted.field.nullable);
            let needed = needed.map(|wanted| wanted.column).chain(time_column).chain(opaque);
            if let Some(column) = needed
                .into_iter()
                .find(|&column| row.value(column).is_empty() && Some(column) != opaque)
            {
                if self.skip_incomplete {
                    recording.skipped += 1;
                    continue;
                }
                return Err(ImportErrorKind::Missing { column: names[column].clone() });
            }
            let unix_ms = match (&self.clock, time_column) {
                (Clock::Every { start_ms, every_ms }, _) => {
                    start_ms.saturating_add(every_ms.saturating_mul(place))
                }
                (Clock::Column(column), at) => {
                    let value = row.value(at.unwrap_or(0));
                    let expected = recording.time_format;
                    let fail = || ImportErrorKind::Time {
                        column: column.clone(),
                        value: (!is_secret).then(|| value.to_owned()),
                        expected,
                    };
                    let format = match expected {
                        Some(format) => format,
                        None => *recording
                            .time_format
                            .insert(TimeFormat::detect(value).ok_or_else(fail)?),
                    };
                    format.parse(value).ok_or_else(fail)?
                }
            };
            if self.latest_ms.is_some_and(|latest| unix_ms > latest) {
                return Err(ImportErrorKind::Future { unix_ms: shown_time(unix_ms) });
            }
            if let Some((before_ms, before_line)) =
                before.filter(|&(before_ms, _)| unix_ms < before_ms && !self.sort)
            {
                let (unix_ms, before_ms) = (shown_time(unix_ms), shown_time(before_ms));
                return Err(ImportErrorKind::ClockGoesBack { unix_ms, before_ms, before_line });
            }
            before = Some((unix_ms, row.line()));

            let start = recording.records.len();
            if let Some(column) = opaque {
                let value = row.value(column).as_bytes();
                if value.len() > MAX_PAYLOAD {
                    return Err(ImportErrorKind::TooLong {
                        column: names[column].clone(),
                        length: value.len(),
                    });
                }
                recording.records.extend_from_slice(value);
            } else {
                record.fill(0);
                for Wanted { column, field } in &wanted {
                    let value = match field.kind {
                        kind if kind.is_numeric() => row.number(*column),
                        _ => row.value(*column).into(),
                    };
                    field.write(&value, &mut record).map_err(|error| ImportErrorKind::Value {
                        column: names[*column].clone(),
                        spec: field.to_string(),
                        value: field.suite.is_none().then(|| row.value(*column).to_owned()),
                        error,
                    })?;
                }
                if let Some((calendar, field)) = &time_field {
                    #[allow(clippy::cast_possible_truncation)]
                    let since = (unix_ms
                        - calendar.start_ms(calendar.epoch_of(unix_ms)).unwrap_or(0))
                        as u32;
                    record[field.start()..field.start() + 4].copy_from_slice(&since.to_be_bytes());
                }
                let length = schema.record_length(&record).unwrap_or(0);
                recording.records.extend_from_slice(&record[..length]);
            }
            #[allow(clippy::cast_possible_truncation)]
            let length = (recording.records.len() - start) as u16;
            recording.rows.push(Row { unix_ms, start, length });
        }
        if recording.is_empty() {
            *line = None;
            return Err(ImportErrorKind::NoRows);
        }
        if self.sort {
            recording.rows.sort_by_key(|row| row.unix_ms);
        }
        Ok(recording)
    }

    fn specs(&self) -> Result<Vec<Field<'_>>, ImportErrorKind> {
        let parse = |spec: &'_ String| -> Result<(), ImportErrorKind> {
            Field::parse(spec)
                .map(drop)
                .map_err(|error| ImportErrorKind::Spec { spec: spec.clone(), error })
        };
        self.columns.iter().try_for_each(parse)?;
        Ok(self.columns.iter().filter_map(|spec| Field::parse(spec).ok()).collect())
    }
}
