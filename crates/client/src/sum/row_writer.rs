//! Writes the results of a query as a table, JSON lines, CSV or an Arrow stream. Each row is
//! flushed immediately, so that a reader can follow a query that runs for a long time.
//!
//! Values are exact: decimal numbers with all their digits, and `Decimal128` in Arrow. A row
//! without an accepted answer has no values. It has the name of the error and, if the fault was
//! localised, the edge.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
#[cfg(feature = "columnar")]
use std::sync::Arc;

#[cfg(feature = "columnar")]
use arrow_ipc::writer::StreamWriter;
#[cfg(feature = "columnar")]
use arrow_schema::SchemaRef;
use jiff::Timestamp;
use serde_json::{Value, json};

#[cfg(feature = "columnar")]
use super::arrow_rows::{arrow_schema, batches};
use super::group_result::{Bins, GroupResult, ResultValue};
use super::open_epochs::{Outcome, Row};
use super::row_values::{
    Error, MOST_DELTA, RowNames, counts, failure, groups, masked, reasons, results, silent,
    unheard, value,
};
use crate::error::OutputError;

/// The maximum number of silent sources whose names a table shows.
const NAMED: usize = 6;
/// The minimum width of a column of values. The header is written before the values are known; most
/// values fit into this width.
const VALUE_WIDTH: usize = 12;
/// The width of the column with the value of a group.
const GROUP_WIDTH: usize = 8;
/// The name of the error of a group whose results are withheld.
pub(super) const WITHHELD: &str = "TooFewReadings";
/// The width of a time in characters.
const INSTANT_WIDTH: usize = 20;

/// The format in which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Aligned columns, for people.
    Table,
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values (RFC 4180) with a header line.
    Csv,
    /// An Arrow IPC stream with a batch for each epoch.
    #[cfg(feature = "columnar")]
    Arrow,
}

/// Formats a time in Unix milliseconds as RFC 3339. Returns an empty text after the year 9999.
fn instant(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// Writes rows as they arrive. Call [`finish`](Self::finish) at the end, because an Arrow stream is
/// incomplete without it.
pub struct RowWriter<W: Write> {
    names: RowNames,
    state: State<W>,
}

enum State<W: Write> {
    Table {
        out: W,
        widths: Vec<usize>,
        has_header: bool,
        /// Whether the bounds of the bins of histograms were written, or there are none.
        has_bins: bool,
    },
    Json(W),
    Csv(Box<csv::Writer<W>>),
    #[cfg(feature = "columnar")]
    Arrow(SchemaRef, Box<StreamWriter<W>>),
}

impl<W: Write> std::fmt::Debug for RowWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter").finish_non_exhaustive()
    }
}

impl<W: Write> RowWriter<W> {
    /// Creates a writer to `out`. The header of a table is written with the first row; the header
    /// of CSV and Arrow is written by this function.
    ///
    /// # Errors
    /// [`OutputError`] if the header cannot be written.
    pub fn new(format: RowFormat, names: RowNames, out: W) -> Result<Self, OutputError> {
        let state = match format {
            RowFormat::Table => {
                let widths =
                    heads(&names).map(|head| head.chars().count().max(VALUE_WIDTH)).collect();
                State::Table { out, widths, has_header: false, has_bins: false }
            }
            RowFormat::JsonLines => State::Json(out),
            RowFormat::Csv => {
                let mut out = csv::Writer::from_writer(out);
                let heads = ["epoch", "start", "duration_ms"]
                    .into_iter()
                    .chain(names.group.as_deref())
                    .chain(names.cells.iter().map(|cell| cell.head.as_str()));
                let heads = heads.chain([
                    "participants",
                    "sources",
                    "silent",
                    "error",
                    "edge",
                    "unheard",
                    "readings",
                    "outside",
                    "masked",
                    "epsilon",
                    "reasons",
                ]);
                out.write_record(heads).and_then(|()| Ok(out.flush()?)).map_err(OutputError::of)?;
                State::Csv(Box::new(out))
            }
            #[cfg(feature = "columnar")]
            RowFormat::Arrow => {
                let schema = Arc::new(arrow_schema(&names));
                State::Arrow(
                    schema.clone(),
                    Box::new(StreamWriter::try_new(out, &schema).map_err(OutputError::of)?),
                )
            }
        };
        Ok(Self { names, state })
    }

    /// Writes a row and flushes it.
    ///
    /// # Errors
    /// [`OutputError`] if the row cannot be written.
    pub fn row(&mut self, row: &Row) -> Result<(), OutputError> {
        let names = &self.names;
        match &mut self.state {
            State::Table { out, widths, has_header, has_bins } => {
                let mut text = String::new();
                if !std::mem::replace(has_header, true) {
                    let _ = write!(text, "{:<INSTANT_WIDTH$}", "epoch");
                    if let Some(group) = &names.group {
                        let _ = write!(text, "  {group:>GROUP_WIDTH$}");
                    }
                    for (head, width) in heads(names).zip(&*widths) {
                        let _ = write!(text, "  {head:>width$}");
                    }
                    text.push_str("  participants  silent\n");
                }
                if !std::mem::replace(has_bins, true) && !histogram_bins(&mut text, names, row) {
                    *has_bins = false;
                }
                lines(&mut text, names, widths, row);
                writeln!(out, "{}", text.trim_end())
                    .and_then(|()| out.flush())
                    .map_err(OutputError::of)
            }
            State::Json(out) => writeln!(out, "{}", object(names, row))
                .and_then(|()| out.flush())
                .map_err(OutputError::of),
            State::Csv(out) => {
                let Error { name: error, edges, .. } = failure(row).unwrap_or_default();
                for group in groups(row) {
                    let mut cells = vec![
                        row.epoch.to_string(),
                        instant(row.start_ms),
                        row.duration_ms.to_string(),
                    ];
                    if names.group.is_some() {
                        cells.push(group_name(group));
                    }
                    cells.extend(names.cells.iter().map(|cell| {
                        value(group, cell.item)
                            .map(|value| cell.part.text(value))
                            .unwrap_or_default()
                    }));
                    cells.extend([
                        row.participants.count().to_string(),
                        row.members.count().to_string(),
                        silent(row).collect::<Vec<_>>().join(" "),
                        if is_withheld(group) { WITHHELD } else { error }.to_owned(),
                        edges.join("; "),
                        unheard(row).collect::<Vec<_>>().join(" "),
                    ]);
                    let results = results(group);
                    cells.push(results.map(|group| group.count.to_string()).unwrap_or_default());
                    cells.push(results.map(|group| group.outside.to_string()).unwrap_or_default());
                    cells.push(masked(row).collect::<Vec<_>>().join(" "));
                    cells
                        .push(names.epsilon.map(|epsilon| epsilon.to_string()).unwrap_or_default());
                    cells.push(stated(row).collect::<Vec<_>>().join(" "));
                    out.write_record(cells).map_err(OutputError::of)?;
                }
                out.flush().map_err(OutputError::of)
            }
            #[cfg(feature = "columnar")]
            State::Arrow(schema, out) => batches(schema, names, row)?
                .iter()
                .try_for_each(|batch| out.write(batch))
                .and_then(|()| out.flush())
                .map_err(OutputError::of),
        }
    }

    /// Writes the end of the format.
    ///
    /// # Errors
    /// [`OutputError`] if the end cannot be written.
    pub fn finish(self) -> Result<(), OutputError> {
        match self.state {
            State::Table { mut out, .. } | State::Json(mut out) => {
                out.flush().map_err(OutputError::of)
            }
            State::Csv(mut out) => out.flush().map_err(OutputError::of),
            #[cfg(feature = "columnar")]
            State::Arrow(_, mut out) => {
                out.finish().map_err(OutputError::of)?;
                out.get_mut().flush().map_err(OutputError::of)
            }
        }
    }
}

/// Returns the reasons of a row as texts, such as `mote1=NoReading`.
pub(super) fn stated(row: &Row) -> impl Iterator<Item = String> + use<'_> {
    reasons(row).map(|(name, reason)| format!("{name}={reason}"))
}

/// Returns how many sources of a row have stated each reason, such as `3 refuse: BudgetSpent`.
fn counted_reasons(row: &Row) -> Vec<String> {
    let mut counts = BTreeMap::<&str, u32>::new();
    for (_, reason) in reasons(row) {
        *counts.entry(reason).or_default() += 1;
    }
    let text = |(reason, count): (&str, u32)| match count {
        1 => format!("1 refuses: {reason}"),
        count => format!("{count} refuse: {reason}"),
    };
    counts.into_iter().map(text).collect()
}

/// Returns the headers of a table's value columns, such as `AVG(temperature) [Cel]`.
fn heads(names: &RowNames) -> impl Iterator<Item = String> + use<'_> {
    names.items.iter().zip(&names.units).map(|(item, unit)| match unit.as_str() {
        "" => item.clone(),
        unit => format!("{item} [{unit}]"),
    })
}

/// Returns the value of a group's column as text; empty if there is none.
pub(super) fn group_name(group: Option<&GroupResult>) -> String {
    let name = group.and_then(|group| group.name);
    name.map(|name| name.to_string()).unwrap_or_default()
}

/// Returns whether the results of a group are withheld because it has too few readings.
pub(super) fn is_withheld(group: Option<&GroupResult>) -> bool {
    group.is_some_and(|group| group.results.is_none())
}

/// Appends the bounds of the bins of each histogram to `text`, a line for each. Returns whether the row
/// has results.
fn histogram_bins(text: &mut String, names: &RowNames, row: &Row) -> bool {
    let groups = groups(row);
    let Some(group) = groups.iter().find(|group| results(**group).is_some()) else { return false };
    for (item, name) in names.items.iter().enumerate() {
        if let Some(ResultValue::Histogram(histogram)) = value(*group, item) {
            let bounds: Vec<String> =
                histogram.bins.iter().map(|(bin, _)| bin.to_string()).collect();
            let _ = writeln!(text, "# bins of {name}: {}", bounds.join("  "));
        }
    }
    true
}

/// Returns a value as a table shows it. A histogram is a picture, followed by its numbers.
fn shown(value: &ResultValue) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let ResultValue::Histogram(Bins { bins, .. }) = value else { return value.to_string() };
    let most = bins.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let bar = |(_, count): &(_, i64)| match usize::try_from(*count * 8 / most) {
        Ok(eighths) if *count > 0 => BARS[eighths.clamp(1, 8) - 1],
        _ => ' ',
    };
    format!("{} {value}", bins.iter().map(bar).collect::<String>())
}

/// Appends the lines of a row of a table to `text`: one for each group.
fn lines(text: &mut String, names: &RowNames, widths: &[usize], row: &Row) {
    for (number, group) in groups(row).into_iter().enumerate() {
        let epoch = if number == 0 {
            instant(row.start_ms)
        } else {
            text.push('\n');
            String::new()
        };
        let _ = write!(text, "{epoch:<INSTANT_WIDTH$}");
        if names.group.is_some() {
            let _ = write!(text, "  {:>GROUP_WIDTH$}", group_name(group));
        }
        for (item, width) in widths.iter().enumerate() {
            let value = value(group, item).map_or_else(|| "-".to_owned(), shown);
            let _ = write!(text, "  {value:>width$}");
        }
        if number == 0 {
            about(text, row);
        }
        if is_withheld(group) {
            text.push_str(if number == 0 && !text.ends_with("  ") { "; " } else { "  " });
            text.push_str("withheld: too few readings");
        }
    }
}

/// Appends the participants of a row to the first line of the row.
fn about(text: &mut String, row: &Row) {
    let part = format!("{}/{}", row.participants.count(), row.members.count());
    let _ = write!(text, "  {part:>12}  ");
    let silent_count = row.claimed_silent.count();
    if let Some(Error { message, edges, forgotten, .. }) = failure(row) {
        let verdict = match row.outcome {
            Outcome::Missing(_) => "missing",
            Outcome::Withheld(_) => "withheld",
            _ => "refused",
        };
        let _ = write!(text, "{verdict}: {message}");
        if !edges.is_empty() {
            let _ = write!(text, "; {}", edges.join(", "));
        }
        if !forgotten.is_empty() {
            let _ = write!(text, "; forgotten by {}", forgotten.join(", "));
        }
        if !row.not_authentic.is_empty() {
            let names = row.not_authentic.join(", ");
            let _ = write!(text, "; frames of {names} are not authentic: check the link secret");
        }
        for reason in counted_reasons(row) {
            let _ = write!(text, "; {reason}");
        }
    } else {
        let named = if silent_count as usize > NAMED {
            format!("{silent_count} sources")
        } else {
            silent(row).collect::<Vec<_>>().join(", ")
        };
        let not_reported = Some(row.unheard())
            .filter(|count| *count > 0)
            .map(|count| format!("{count} not reported"));
        let masked = Some(row.masked.count())
            .filter(|count| *count > 0)
            .map(|count| format!("{count} masked"));
        let outside = counts(row)
            .filter(|(_, outside)| *outside > 0)
            .map(|(_, outside)| format!("{outside} outside the range"));
        let parts: Vec<String> = Some(named)
            .filter(|named| !named.is_empty())
            .into_iter()
            .chain(masked)
            .chain(not_reported)
            .chain(row.not_authentic.iter().map(|name| format!("{name}: check the link secret")))
            .chain(counted_reasons(row))
            .chain(outside)
            .collect();
        text.push_str(&parts.join("; "));
    }
}

/// Converts a value to JSON. Exact numbers are texts.
fn to_json(value: &ResultValue) -> Value {
    match value {
        ResultValue::Number(number) => number.to_string().into(),
        ResultValue::Noisy(number, within) => {
            json!({ "value": number.to_string(), "within": within.to_string() })
        }
        ResultValue::Bin(bin) => json!({
            "low": bin.low.map(|low| low.to_string()),
            "high": bin.high.map(|high| high.to_string()),
        }),
        ResultValue::Histogram(Bins { bins, within }) => {
            let bins = bins.iter().map(|(bin, count)| {
                json!({
                    "low": bin.low.map(|low| low.to_string()),
                    "high": bin.high.map(|high| high.to_string()),
                    "count": count,
                })
            });
            let bins: Vec<Value> = bins.collect();
            match within {
                0 => json!({ "bins": bins }),
                within => json!({ "bins": bins, "within": within }),
            }
        }
    }
}

/// Converts a row to JSON. The keys are stable.
fn object(names: &RowNames, row: &Row) -> Value {
    let shown: Vec<Value> = groups(row)
        .into_iter()
        .map(|group| {
            let item = |(at, name): (usize, &String)| {
                (name.clone(), value(group, at).map_or(Value::Null, to_json))
            };
            let values = results(group)
                .map(|_| names.items.iter().enumerate().map(item).collect())
                .map_or(Value::Null, Value::Object);
            json!({
                "group": group.and_then(|group| group.name).map(|name| name.to_string()),
                "readings": results(group).map(|results| results.count),
                "outside": results(group).map(|results| results.outside),
                "results": values,
                "error": is_withheld(group).then_some(WITHHELD),
            })
        })
        .collect();
    let accepted = matches!(row.outcome, Outcome::Accepted(_));
    let (results, groups) = match &names.group {
        None => (shown.first().map_or(Value::Null, |shown| shown["results"].clone()), Value::Null),
        Some(_) => (Value::Null, if accepted { shown.into() } else { Value::Null }),
    };
    let error = failure(row).map(|Error { name, message, edges, forgotten }| {
        json!({
            "name": name,
            "message": message,
            "edge": edges.first(),
            "edges": edges,
            "forgotten": forgotten,
        })
    });
    let privacy =
        names.epsilon.map(|epsilon| json!({ "epsilon": epsilon.to_string(), "delta": MOST_DELTA }));
    json!({
        "query": row.query.to_string(),
        "epoch": row.epoch,
        "start": instant(row.start_ms),
        "duration_ms": row.duration_ms,
        "participants": row.participants.count(),
        "sources": row.members.count(),
        "silent": silent(row).collect::<Vec<_>>(),
        "unheard": unheard(row).collect::<Vec<_>>(),
        "not_authentic": row.not_authentic,
        "masked": masked(row).collect::<Vec<_>>(),
        "readings": counts(row).map(|counts| counts.0),
        "outside": counts(row).map(|counts| counts.1),
        "results": results,
        "groups": groups,
        "privacy": privacy,
        "reasons": reasons(row).collect::<BTreeMap<_, _>>(),
        "error": error,
    })
}
