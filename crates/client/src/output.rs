//! Writes verified rows as tables, CSV, JSON lines, Arrow IPC streams and Parquet, with named and
//! typed columns.
//!
//! Every format has the same columns: `epoch`, `epoch_start`, `device`, `index` (of the seal),
//! `seq` (the sequence number under that seal), and then the schema's fields. Text formats contain
//! exact values, to the last digit of their scale. Arrow and Parquet contain scaled values as
//! Float64, with the unit, divisor and offset in the column's metadata. A `time` field becomes an
//! absolute timestamp.
//!
//! A column is null in the rows in which it is encrypted and not readable. In Arrow and Parquet, the
//! metadata `moteseal.withheld` of the column names the reasons, separated by commas, such as
//! `NotCovered`. For all formats, the report names them ([`crate::DeviceReport::withheld`]).
//!
//! Arrow and Parquet need the feature `columnar`, which is on by default.
//!
//! Memory is bounded, because Arrow and Parquet rows are written in batches of a few thousand.

mod atomic_file;
#[cfg(feature = "columnar")]
mod batches;
#[cfg(feature = "columnar")]
mod columnar;
#[cfg(feature = "columnar")]
mod columns;
mod row_output;
mod text_formats;
mod urgent;

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use moteseal_core::schema::Schema;
use moteseal_verify::SchemaEntry;

pub use crate::error::OutputError;
pub use atomic_file::AtomicFile;
#[cfg(feature = "columnar")]
pub use batches::Batches;
pub use row_output::{RowOutput, RowSpool};
pub use urgent::UrgentText;

use crate::rows::{Rows, Sink};
#[cfg(feature = "columnar")]
use columnar::{Columnar, ColumnarFormat};
use text_formats::{Csv, JsonLines, Table};

/// The format in which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns, for people.
    Table,
    /// Comma-separated values (RFC 4180) with a header line.
    Csv,
    /// One JSON object per line.
    JsonLines,
    /// An Arrow IPC stream.
    #[cfg(feature = "columnar")]
    Arrow,
    /// A Parquet file.
    #[cfg(feature = "columnar")]
    Parquet,
}

impl Format {
    /// All formats, with the names that [`from_str`](FromStr::from_str) accepts.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("table", Self::Table),
        ("csv", Self::Csv),
        ("jsonl", Self::JsonLines),
        #[cfg(feature = "columnar")]
        ("arrow", Self::Arrow),
        #[cfg(feature = "columnar")]
        ("parquet", Self::Parquet),
    ];
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
    }
}

/// Writes verified rows in one format. Call [`finish`](Self::finish) at the end, because the output
/// is incomplete without it.
pub struct Writer<W: Write + Send> {
    format: Format,
    state: State<W>,
}

enum State<W: Write + Send> {
    /// No rows have arrived, so the columns are unknown.
    Waiting(W),
    Table(Table<W>),
    Csv(Box<Csv<W>>),
    JsonLines(JsonLines<W>),
    #[cfg(feature = "columnar")]
    Columnar(Box<Columnar<W>>),
    /// A previous call returned an error.
    Failed,
}

impl<W: Write + Send> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("format", &self.format).finish_non_exhaustive()
    }
}

impl<W: Write + Send> Writer<W> {
    /// Creates a writer to `out`, which should be buffered.
    #[must_use]
    pub const fn new(format: Format, out: W) -> Self {
        Self { format, state: State::Waiting(out) }
    }

    /// Starts the output of rows with this schema, whose columns sanitisers may have replaced.
    fn start(
        format: Format,
        out: W,
        schema: &Arc<SchemaEntry>,
        is_sanitised: bool,
    ) -> Result<State<W>, OutputError> {
        Ok(match format {
            Format::Table => State::Table(Table::new(out, schema, is_sanitised)?),
            Format::Csv => State::Csv(Box::new(Csv::new(out, schema, is_sanitised)?)),
            Format::JsonLines => State::JsonLines(JsonLines::new(out)),
            #[cfg(feature = "columnar")]
            Format::Arrow => {
                let format = ColumnarFormat::Arrow;
                State::Columnar(Box::new(Columnar::new(format, out, schema, is_sanitised)?))
            }
            #[cfg(feature = "columnar")]
            Format::Parquet => {
                let format = ColumnarFormat::Parquet;
                State::Columnar(Box::new(Columnar::new(format, out, schema, is_sanitised)?))
            }
        })
    }

    /// Writes the buffered rows and the end of the format.
    ///
    /// # Errors
    /// [`OutputError`] if the output cannot be written.
    pub fn finish(self) -> Result<(), OutputError> {
        match self.state {
            // No rows arrived, so the schema is unknown. Write an empty output with the columns
            // that all schemas have.
            State::Waiting(out) => match Self::start(self.format, out, &none()?, false)? {
                State::Waiting(_) | State::Failed => Ok(()),
                state => Self { format: self.format, state }.finish(),
            },
            State::Table(table) => table.finish(),
            State::Csv(csv) => csv.finish(),
            State::JsonLines(lines) => lines.finish(),
            #[cfg(feature = "columnar")]
            State::Columnar(columnar) => columnar.finish(),
            State::Failed => Ok(()),
        }
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        if let State::Waiting(_) = self.state {
            let State::Waiting(out) = std::mem::replace(&mut self.state, State::Failed) else {
                return Ok(());
            };
            self.state = Self::start(self.format, out, rows.schema(), rows.is_sanitised())?;
        }
        match &mut self.state {
            State::Table(table) => table.rows(rows),
            State::Csv(csv) => csv.rows(rows),
            State::JsonLines(lines) => lines.rows(rows),
            #[cfg(feature = "columnar")]
            State::Columnar(columnar) => columnar.rows(rows),
            State::Waiting(_) | State::Failed => Ok(()),
        }
    }
}

/// The columns that the rows of every schema have.
const COMMON: [&str; 5] = ["epoch", "epoch_start", "device", "index", "seq"];

/// Returns the names of the columns for a schema's fields. A column has the name of its field; if
/// that name is taken, underscores are appended until the name is unique.
fn field_names(schema: &Schema<'_>) -> Vec<String> {
    let mut taken: Vec<String> = COMMON.map(str::to_owned).to_vec();
    for field in schema.fields() {
        let mut name = field.name.to_owned();
        while taken.contains(&name) || (name != field.name && schema.field(&name).is_some()) {
            name.push('_');
        }
        taken.push(name);
    }
    taken.split_off(COMMON.len())
}

/// Returns the schema of an output without rows.
fn none() -> Result<Arc<SchemaEntry>, OutputError> {
    SchemaEntry::decode(Schema::OPAQUE.as_bytes()).map(Arc::new).map_err(OutputError::of)
}

/// Checks that rows have the schema for which the columns were created. Values of devices and values of
/// sanitisers are never in one table.
fn same_schema(
    columns: &SchemaEntry,
    is_sanitised: bool,
    rows: &Rows<'_>,
) -> Result<(), OutputError> {
    if is_sanitised != rows.is_sanitised() {
        return Err(OutputError::unfit(format_args!(
            "cannot write the rows: some readings of device {} have sanitised columns and others have \
             not; use --format jsonl",
            rows.name()
        )));
    }
    if columns.digest == rows.schema().digest {
        return Ok(());
    }
    Err(OutputError::unfit(format_args!(
        "cannot write the rows: device {} has other columns at {} than the rows before; ask for \
         devices and times with the same columns, or use --format jsonl",
        rows.name(),
        rows.start_text()
    )))
}
