//! Writes rows as text: tables, CSV and JSON lines. Values are exact.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use jiff::Timestamp;
use moteseal_core::schema::{Field, FieldType, Schema, Value};
use moteseal_verify::SchemaEntry;
use serde_json::value::RawValue;

use super::{COMMON, OutputError, field_names, same_schema};
use crate::decrypt::{Column, ColumnValues};
use crate::rows::Rows;
use crate::sanitised::Origin;

/// The number of rows of a table from which the widths of its columns are computed.
const MEASURED_ROWS: usize = 1000;

/// Formats a time in Unix milliseconds as RFC 3339. Returns an empty text for `None`, and after the
/// year 9999.
pub(super) fn instant(ms: Option<u64>) -> String {
    let time = ms
        .and_then(|ms| i64::try_from(ms).ok())
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// Writes a field's value of a record, in an epoch that starts at this time.
type ShowValue = fn(&Field<'_>, &[u8], Option<u64>) -> Result<String, OutputError>;

/// How the values of a text format are written.
#[derive(Clone, Copy)]
pub(super) struct Show {
    value: ShowValue,
    /// A null.
    null: &'static str,
    /// Writes which columns of rows are sanitised.
    origins: fn(&[Column<'_>]) -> String,
}

impl Show {
    pub(super) const TEXT: Self = Self { value: text, null: "", origins: origins_text };
    pub(super) const CELL: Self = Self { value: cell, null: "", origins: origins_cell };
    pub(super) const JSON: Self = Self { value: json, null: "null", origins: origins_json };

    /// Returns the value of a column in a record. A column that is not readable is null.
    pub(super) fn value(
        self,
        column: &Column<'_>,
        record: &[u8],
        start_ms: Option<u64>,
    ) -> Result<String, OutputError> {
        match column.values() {
            ColumnValues::Device(values) | ColumnValues::Sanitised { values, .. } => {
                (self.value)(values.field(), record, start_ms)
            }
            ColumnValues::Withheld(_) => Ok(self.null.to_owned()),
        }
    }
}

/// The name of the column that states which columns of a row are sanitised.
const ORIGIN: &str = "origin";

/// Returns the sanitised columns, each with its sanitiser and policy, as a text.
fn origins_text(columns: &[Column<'_>]) -> String {
    let origin = |column: &Column<'_>| match column.origin() {
        Origin::Device => None,
        origin => Some(format!("{} {origin}", column.field().name)),
    };
    escaped(&columns.iter().filter_map(origin).collect::<Vec<_>>().join("; "))
}

fn origins_cell(columns: &[Column<'_>]) -> String {
    unexecuted(origins_text(columns))
}

fn origins_json(columns: &[Column<'_>]) -> String {
    let origin = |column: &Column<'_>| match column.origin() {
        Origin::Device => None,
        Origin::Sanitised { by, policy } => {
            let (name, by, policy) = (quoted(column.field().name), quoted(by), quoted(policy));
            Some(format!("{name}:{{\"sanitised_by\":{by},\"policy\":{policy}}}"))
        }
    };
    let origins: Vec<String> = columns.iter().filter_map(origin).collect();
    escaped(&format!("{{{}}}", origins.join(",")))
}

/// Adds the column of origins to the names of the columns of rows, if their columns are sanitised.
fn with_origin(mut names: Vec<String>, is_sanitised: bool) -> Vec<String> {
    if is_sanitised {
        let mut name = ORIGIN.to_owned();
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

/// Returns a field's value as text. Null is the empty text.
fn text(field: &Field<'_>, record: &[u8], start_ms: Option<u64>) -> Result<String, OutputError> {
    Ok(match field.read(record).map_err(OutputError::of)? {
        Value::TimeMs(ms) => instant(start_ms.and_then(|start| start.checked_add(u64::from(ms)))),
        Value::Label(text) | Value::Text(text) => escaped(text),
        value => value.to_string(),
    })
}

/// Returns a field's value as the text of a cell of CSV.
fn cell(field: &Field<'_>, record: &[u8], start_ms: Option<u64>) -> Result<String, OutputError> {
    let text = text(field, record, start_ms)?;
    let is_text = matches!(field.kind, FieldType::Enum | FieldType::Text);
    Ok(if is_text { unexecuted(text) } else { text })
}

/// Returns a field's value as JSON.
fn json(field: &Field<'_>, record: &[u8], start_ms: Option<u64>) -> Result<String, OutputError> {
    // JSON has no NaN and no infinities. They become null.
    let number = |text: String| match RawValue::from_string(text) {
        Ok(number) => number.get().to_owned(),
        Err(_) => "null".to_owned(),
    };
    Ok(match field.read(record).map_err(OutputError::of)? {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Point { latitude, longitude } => {
            format!("{{\"lat\":{latitude},\"lon\":{longitude}}}")
        }
        value @ (Value::Integer(_) | Value::Float(_)) => number(value.to_string()),
        Value::Label(text) | Value::Text(text) => escaped(&quoted(text)),
        Value::Timestamp(_) | Value::TimeMs(_) => quoted(&text(field, record, start_ms)?),
        value => quoted(&value.to_string()),
    })
}

pub(super) fn schema_of(entry: &SchemaEntry) -> Result<Schema<'_>, OutputError> {
    Schema::decode(&entry.bytes).map_err(OutputError::of)
}

/// Calls `each` with the cells of every row: the common columns, followed by the fields as `show`
/// writes them. For a schema without fields, the last two cells are the record in hexadecimal and as
/// text. If columns are sanitised, the last cell states which.
fn cells(
    rows: &Rows<'_>,
    show: Show,
    each: &mut dyn FnMut(&[String]) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let schema = schema_of(rows.schema())?;
    let columns: Vec<Column<'_>> = rows.columns().collect();
    let (epoch, index) = (rows.statement().epoch.to_string(), rows.statement().index.to_string());
    let mut row = vec![epoch, instant(rows.start_ms()), rows.name().to_owned(), index];
    let common = row.len();
    let origins = rows.is_sanitised().then(|| (show.origins)(&columns));
    let mut result = Ok(());
    rows.for_each(|seq, _, record| {
        if result.is_err() {
            return;
        }
        row.truncate(common);
        row.push(seq.to_string());
        if schema.is_opaque() {
            row.push(hex::encode(record));
            row.push(readable(record));
        }
        for column in &columns {
            match show.value(column, record, rows.start_ms()) {
                Ok(shown) => row.push(shown),
                Err(error) => {
                    result = Err(error);
                    return;
                }
            }
        }
        row.extend(origins.clone());
        result = each(&row);
    });
    result
}

/// Returns a record as text. Returns an empty text if the record is not UTF-8 or contains control
/// characters.
pub(super) fn readable(record: &[u8]) -> String {
    let text = str::from_utf8(record).ok().filter(|text| !text.contains(char::is_control));
    escaped(text.unwrap_or_default())
}

/// Returns the names of the columns. If `units` is true, each name is followed by its unit in
/// brackets.
pub(super) fn names(entry: &SchemaEntry, units: bool) -> Result<Vec<String>, OutputError> {
    let schema = schema_of(entry)?;
    let mut names: Vec<String> = COMMON.map(str::to_owned).to_vec();
    if schema.is_opaque() {
        names.extend(["payload", "text"].map(str::to_owned));
    }
    for (field, mut name) in schema.fields().zip(field_names(&schema)) {
        if units && !field.unit.is_empty() {
            let _ = write!(name, " [{}]", field.unit);
        }
        names.push(name);
    }
    Ok(names)
}

/// Returns a text with the marks of Unicode's bidirectional algorithm escaped as in JSON
/// (`\u202e`). The names of columns come from devices, which may be hostile. The marks could make a
/// terminal or a spreadsheet show the name in another order.
pub(super) fn escaped(text: &str) -> String {
    let is_mark = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_mark(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns a name or a text for a cell of CSV. A spreadsheet takes a cell that begins with one of these
/// characters for a formula, even if the cell is quoted. An apostrophe makes it a text.
pub(super) fn unexecuted(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

/// Writes aligned columns. The widths are computed from the header and the first thousand rows.
pub(super) struct Table<W> {
    out: W,
    schema: Arc<SchemaEntry>,
    is_sanitised: bool,
    /// The header and the rows that are held until the widths are known.
    held: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
}

impl<W: Write> Table<W> {
    pub(super) fn new(
        out: W,
        schema: &Arc<SchemaEntry>,
        is_sanitised: bool,
    ) -> Result<Self, OutputError> {
        let names = with_origin(names(schema, true)?, is_sanitised);
        Ok(Self {
            out,
            schema: schema.clone(),
            is_sanitised,
            held: vec![names.iter().map(|name| escaped(name)).collect()],
            widths: None,
        })
    }

    pub(super) fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        same_schema(&self.schema, self.is_sanitised, rows)?;
        cells(rows, Show::TEXT, &mut |row| {
            if let Some(widths) = &self.widths {
                return line(&mut self.out, row, widths);
            }
            self.held.push(row.to_vec());
            if self.held.len() > MEASURED_ROWS {
                release(&mut self.out, &mut self.held, &mut self.widths)
            } else {
                Ok(())
            }
        })
    }

    pub(super) fn finish(mut self) -> Result<(), OutputError> {
        release(&mut self.out, &mut self.held, &mut self.widths)?;
        self.out.flush().map_err(OutputError::of)
    }
}

/// Computes the widths if they are unknown, and writes the held rows.
fn release(
    out: &mut impl Write,
    held: &mut Vec<Vec<String>>,
    widths: &mut Option<Vec<usize>>,
) -> Result<(), OutputError> {
    if widths.is_none() {
        let columns = held.first().map_or(0, Vec::len);
        let width = |column: usize| {
            held.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        *widths = Some((0..columns).map(|column| width(column).unwrap_or(0)).collect());
    }
    let widths = widths.as_deref().unwrap_or_default();
    held.drain(..).try_for_each(|row| line(out, &row, widths))
}

pub(super) fn line(
    out: &mut impl Write,
    row: &[String],
    widths: &[usize],
) -> Result<(), OutputError> {
    let mut text = String::new();
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        let gap = if column == 0 { "" } else { "  " };
        // Align the device's name and the start of the epoch on the left, and numbers on the right.
        let result = if matches!(column, 1 | 2) {
            write!(text, "{gap}{cell:<width$}")
        } else {
            write!(text, "{gap}{cell:>width$}")
        };
        result.map_err(OutputError::of)?;
    }
    writeln!(out, "{}", text.trim_end()).map_err(OutputError::of)
}

/// Writes comma-separated values.
pub(super) struct Csv<W: Write> {
    out: csv::Writer<W>,
    schema: Arc<SchemaEntry>,
    is_sanitised: bool,
}

impl<W: Write> Csv<W> {
    pub(super) fn new(
        out: W,
        schema: &Arc<SchemaEntry>,
        is_sanitised: bool,
    ) -> Result<Self, OutputError> {
        let mut out = csv::Writer::from_writer(out);
        let names = with_origin(names(schema, false)?, is_sanitised);
        out.write_record(names.iter().map(|name| unexecuted(escaped(name))))
            .map_err(OutputError::of)?;
        Ok(Self { out, schema: schema.clone(), is_sanitised })
    }

    pub(super) fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        same_schema(&self.schema, self.is_sanitised, rows)?;
        let is_opaque = schema_of(&self.schema)?.is_opaque();
        cells(rows, Show::CELL, &mut |row| match row {
            [cells @ .., text] if is_opaque => {
                let cells = cells.iter().cloned().chain([unexecuted(text.clone())]);
                self.out.write_record(cells).map_err(OutputError::of)
            }
            cells => self.out.write_record(cells).map_err(OutputError::of),
        })
    }

    pub(super) fn finish(mut self) -> Result<(), OutputError> {
        self.out.flush().map_err(OutputError::of)
    }
}

/// Returns a row as a line with a JSON object. The last `fields` cells are JSON.
pub(super) fn object(keys: &[String], fields: usize, row: &[String]) -> String {
    let mut text = String::with_capacity(128);
    for (column, (key, cell)) in keys.iter().zip(row).enumerate() {
        let is_json = matches!(column, 0 | 3 | 4) || column + fields >= row.len();
        let value = if is_json { cell.clone() } else { quoted(cell) };
        let _ = write!(text, "{}{key}:{value}", if column == 0 { "{" } else { "," });
    }
    text.push_str("}\n");
    text
}

/// Writes one JSON object per line. Rows of different schemas may follow each other.
pub(super) struct JsonLines<W> {
    out: W,
}

impl<W: Write> JsonLines<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out }
    }

    pub(super) fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let schema = schema_of(rows.schema())?;
        let fields = schema.fields().len() + usize::from(rows.is_sanitised());
        let names = with_origin(names(rows.schema(), false)?, rows.is_sanitised());
        let keys: Vec<String> = names.iter().map(|name| escaped(&quoted(name))).collect();
        cells(rows, Show::JSON, &mut |row| {
            self.out.write_all(object(&keys, fields, row).as_bytes()).map_err(OutputError::of)
        })
    }

    pub(super) fn finish(mut self) -> Result<(), OutputError> {
        self.out.flush().map_err(OutputError::of)
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
