//! Import of recorded readings: a table with a header becomes records of a stream schema, each with
//! its time.
//!
//! Values are converted exactly or rejected ([`Field::write`]). Every error names the file, the
//! line, the column, the value and the remedy. Nothing is sealed here.

mod table;
mod time;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::record::MAX_PAYLOAD;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema, SchemaError, ValueError};

pub use table::Delimiter;
use table::{Table, TableError};
pub use time::{TimeFormat, display_ms};

/// Where the times of rows come from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// A column of Unix seconds or milliseconds, RFC 3339, or `YYYY-MM-DD[ HH:MM:SS]` in UTC; the
    /// first row decides which.
    Column(String),
    /// The table has no times. Its rows are `every_ms` milliseconds apart, starting at `start_ms`
    /// (Unix).
    Every {
        /// The first row's time (Unix, ms).
        start_ms: u64,
        /// The interval between rows in milliseconds.
        every_ms: u64,
    },
}

/// How to import a table.
#[derive(Clone, Debug)]
pub struct Import {
    /// The columns to seal, as `name:unit:type[/divisor][+offset]` ([`Field::parse`]). The names
    /// are those in the table's header.
    pub columns: Vec<String>,
    /// Seal this one column's text unchanged as opaque records, instead of columns.
    pub opaque: Option<String>,
    /// Where the times come from.
    pub clock: Clock,
    /// Record each time in a field of type `time`, as milliseconds since the start of its epoch;
    /// the value is the length of epochs in milliseconds.
    pub keep_time: Option<u64>,
    /// The delimiter of columns; `None` detects it from the header.
    pub delimiter: Option<Delimiter>,
    /// Skip rows that lack a value, instead of rejecting them.
    pub skip_incomplete: bool,
    /// Sort rows by time, instead of rejecting a time before the previous row's.
    pub sort: bool,
    /// Reject times after this one (Unix, ms): after a wrong future time is sealed, the device can
    /// never seal earlier times.
    pub latest_ms: Option<u64>,
}

/// The readings of one device, ordered by time.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The stream schema, encoded.
    pub schema: Vec<u8>,
    /// The delimiter of the columns.
    pub delimiter: Delimiter,
    /// The format of the times, if the table has any.
    pub time_format: Option<TimeFormat>,
    /// Rows that were skipped because they lacked a value.
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
    /// The number of readings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Times (Unix, ms) and records, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u8])> + DoubleEndedIterator {
        self.rows
            .iter()
            .map(|row| (row.unix_ms, &self.records[row.start..row.start + usize::from(row.length)]))
    }
}

/// Why a table was not imported.
#[derive(Debug)]
pub struct ImportError {
    /// The file, as given.
    pub file: PathBuf,
    /// The line with the error, from 1, if one line is wrong.
    pub line: Option<u64>,
    /// What is wrong.
    pub kind: ImportErrorKind,
}

/// What is wrong with a table or with the request to import it.
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
        /// Why.
        error: SchemaError,
    },
    /// No columns are given.
    #[error("name the columns to seal with --column NAME:UNIT:TYPE[/DIVISOR][+OFFSET]")]
    NoColumns,
    /// The table has no such column.
    #[error("there is no column {name:?}; the file has {}", .columns.join(", "))]
    UnknownColumn {
        /// The name.
        name: String,
        /// The table's columns.
        columns: Vec<String>,
    },
    /// A row has a different number of columns than the header.
    #[error(
        "{found} columns, but the header has {expected}; if the detected delimiter is wrong, \
         give --delimiter"
    )]
    Width {
        /// Columns in the row.
        found: usize,
        /// Columns in the header.
        expected: usize,
    },
    /// A value cannot be recorded in its field.
    #[error("column {column}: {value:?} does not fit {spec}: {}", .error.named())]
    Value {
        /// The column.
        column: String,
        /// The field, as specified.
        spec: String,
        /// The value.
        value: String,
        /// Why.
        error: ValueError,
    },
    /// A row lacks a value.
    #[error("column {column}: no value; --skip-incomplete skips rows like this")]
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
    #[error("column {column}: {value:?} is not a time{}", expected_time(*.expected))]
    Time {
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// The format of the first row; `None` if this is the first row.
        expected: Option<TimeFormat>,
    },
    /// A time is before the one in the previous row.
    #[error(
        "times go back: {} is before {} in line {before_line}; sort the file by time, or give \
         --sort",
        display_ms(*.unix_ms), display_ms(*.before_ms)
    )]
    ClockGoesBack {
        /// The time (Unix, ms).
        unix_ms: u64,
        /// The previous row's time (Unix, ms).
        before_ms: u64,
        /// The previous row's line.
        before_line: u64,
    },
    /// A time is in the future.
    #[error(
        "{} is in the future; after it is sealed, no earlier reading can follow: correct the \
         clock, or give --allow-future",
        display_ms(*.unix_ms)
    )]
    Future {
        /// The time (Unix, ms).
        unix_ms: u64,
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

/// The end of the message about a time that cannot be parsed: the accepted formats, or that of the
/// first row.
fn expected_time(first_row: Option<TimeFormat>) -> String {
    match first_row {
        None => {
            "; use Unix seconds or milliseconds, RFC 3339, or YYYY-MM-DD HH:MM:SS (UTC)".to_owned()
        }
        Some(format) => format!(" in the format of the first row, {format}"),
    }
}

impl ImportError {
    /// [`Internal`](ErrorKind::Internal) if the machine failed to read the file, otherwise
    /// [`Usage`](ErrorKind::Usage).
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

/// A column of the table, and its field in the schema.
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

    /// Imports a table; errors call it `name`.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn read(&self, name: &Path, from: impl Read) -> Result<Recording, ImportError> {
        let mut line = None;
        self.rows(from, &mut line).map_err(|kind| ImportError { file: name.to_owned(), line, kind })
    }

    fn rows(&self, from: impl Read, line: &mut Option<u64>) -> Result<Recording, ImportErrorKind> {
        let mut table = Table::open(from, self.delimiter).map_err(|error| match error {
            TableError::Io(error) => ImportErrorKind::Io(error),
            TableError::Empty => ImportErrorKind::Empty,
            error => ImportErrorKind::Table(error),
        })?;
        let find = |name: &str| {
            table.columns().iter().position(|column| column == name).ok_or_else(|| {
                ImportErrorKind::UnknownColumn {
                    name: name.to_owned(),
                    columns: table.columns().to_vec(),
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
        let mut fields = specs.clone();
        let time_name = match &self.clock {
            Clock::Column(name) if specs.iter().all(|field| field.name != name) => name.as_str(),
            _ => "time",
        };
        if let Some(epoch_ms) = self.keep_time {
            if epoch_ms > u64::from(u32::MAX) + 1 {
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
            self.keep_time.and_then(|epoch_ms| Some((epoch_ms, schema.fields().next()?)));

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
        let mut record = vec![0; schema.record_size().unwrap_or(0)];
        let (mut before, mut count) = (None, 0u64);
        while let Some(row) = table.next_row().map_err(|(at, error)| {
            *line = at;
            match error {
                TableError::Io(error) => ImportErrorKind::Io(error),
                error => ImportErrorKind::Table(error),
            }
        })? {
            *line = Some(row.line());
            // A skipped row still counts towards the time.
            let place = count;
            count += 1;
            if row.len() != width {
                return Err(ImportErrorKind::Width { found: row.len(), expected: width });
            }
            let needed = wanted.iter().map(|wanted| wanted.column).chain(time_column).chain(opaque);
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
                        value: value.to_owned(),
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
                return Err(ImportErrorKind::Future { unix_ms });
            }
            if let Some((before_ms, before_line)) =
                before.filter(|&(before_ms, _)| unix_ms < before_ms && !self.sort)
            {
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
                for Wanted { column, field } in &wanted {
                    let value = row.number(*column);
                    field.write(&value, &mut record).map_err(|error| ImportErrorKind::Value {
                        column: names[*column].clone(),
                        spec: field.to_string(),
                        value: row.value(*column).to_owned(),
                        error,
                    })?;
                }
                if let Some((epoch_ms, field)) = &time_field {
                    #[allow(clippy::cast_possible_truncation)]
                    let since = (unix_ms % epoch_ms) as u32;
                    record[field.start()..field.start() + 4].copy_from_slice(&since.to_be_bytes());
                }
                recording.records.extend_from_slice(&record);
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
