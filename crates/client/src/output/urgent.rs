//! Writes urgent events as text, one after the other as they arrive, with the columns of rows.

use std::sync::Arc;

use moteseal_verify::{Roster, SchemaEntry, Urgent};

use super::text_formats::{
    Show, escaped, instant, line, names, object, quoted, readable, schema_of, unexecuted,
};
use super::{Format, OutputError};
use crate::decrypt::{Column, KeySource, PartColumns, SealKeys, columns_of};

/// The minimum widths of the common columns of a table, in characters. Later events may need more
/// than the first one.
const WIDTHS: [usize; 5] = [8, 20, 12, 6, 6];

/// Converts urgent events to text. `Debug` shows only the format.
pub struct UrgentText<'a> {
    roster: &'a Roster,
    format: Format,
    /// The schema of the columns that were written last.
    schema: Option<Arc<SchemaEntry>>,
    widths: Vec<usize>,
    keys: KeySource<'a>,
}

impl std::fmt::Debug for UrgentText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UrgentText").field("format", &self.format).finish_non_exhaustive()
    }
}

impl<'a> UrgentText<'a> {
    /// Creates the text of events in a format.
    ///
    /// # Errors
    /// [`OutputError`] if the format is not a text format.
    pub fn new(format: Format, roster: &'a Roster) -> Result<Self, OutputError> {
        if !matches!(format, Format::Table | Format::Csv | Format::JsonLines) {
            return Err(OutputError::unfit(
                "urgent events are written as a table, CSV or JSON lines; choose one of them with --format",
            ));
        }
        Ok(Self { roster, format, schema: None, widths: Vec::new(), keys: KeySource::NONE })
    }

    /// Sets the keys that decrypt the encrypted columns of events. Without keys, these columns are null.
    #[must_use]
    pub fn with_keys(self, keys: &'a mut dyn SealKeys) -> Self {
        Self { keys: KeySource::new(keys), ..self }
    }

    /// Returns the lines of an event, with a header before the first event. In a table, a header
    /// also precedes an event with other columns.
    ///
    /// # Errors
    /// [`OutputError`] if the event does not have the columns of a CSV output, or if its record
    /// cannot be decrypted or read.
    pub fn event(&mut self, event: &Urgent) -> Result<String, OutputError> {
        let schema = schema_of(event.schema())?;
        let access = PartColumns::of_event(event, self.keys.reborrow());
        let columns: Vec<Column<'_>> = columns_of(event.schema(), None, &access).collect();
        let record = access.decrypt_event(event).map_err(|error| {
            let (device, error) = (event.device(), error.named());
            OutputError::of(format_args!("device {device} encrypted an invalid record: {error}"))
        })?;
        let start_ms = self.roster.epoch_start_ms(event.epoch());
        let device = self.roster.device(event.device());
        let mut row = vec![
            event.epoch().to_string(),
            instant(start_ms),
            device.map_or_else(|| event.device().to_string(), |device| device.name.clone()),
            event.index().to_string(),
            event.seq().to_string(),
        ];
        let is_opaque = schema.is_opaque();
        if is_opaque {
            row.extend([hex::encode(&record), readable(&record)]);
        }
        let show: Show = match self.format {
            Format::JsonLines => Show::JSON,
            Format::Csv => Show::CELL,
            _ => Show::TEXT,
        };
        for column in &columns {
            row.push(show.value(column, &record, start_ms)?);
        }
        let is_new = self.schema.as_ref().is_none_or(|known| known.digest != event.schema().digest);
        let is_first = self.schema.is_none();
        self.schema = Some(Arc::clone(event.schema()));
        match self.format {
            Format::JsonLines => {
                let keys = names(event.schema(), false)?;
                let keys: Vec<String> = keys.iter().map(|name| escaped(&quoted(name))).collect();
                Ok(object(&keys, columns.len(), &row))
            }
            Format::Csv => {
                if is_new && !is_first {
                    return Err(OutputError::unfit(
                        "an urgent event has other columns than the ones before; use --format jsonl",
                    ));
                }
                let mut out = csv::Writer::from_writer(Vec::new());
                if is_first {
                    let header = names(event.schema(), false)?;
                    out.write_record(header.iter().map(|name| unexecuted(escaped(name))))
                        .map_err(OutputError::of)?;
                }
                if let (true, Some(text)) = (is_opaque, row.last_mut()) {
                    *text = unexecuted(std::mem::take(text));
                }
                out.write_record(&row).map_err(OutputError::of)?;
                let bytes = out.into_inner().map_err(OutputError::of)?;
                String::from_utf8(bytes).map_err(OutputError::of)
            }
            _ => {
                let mut out = Vec::new();
                if is_new {
                    let header: Vec<String> =
                        names(event.schema(), true)?.iter().map(|name| escaped(name)).collect();
                    let least = WIDTHS.into_iter().chain(std::iter::repeat(0));
                    let width = |(name, cell): (&String, &String)| {
                        name.chars().count().max(cell.chars().count())
                    };
                    let needed = header.iter().zip(&row).map(width);
                    self.widths =
                        needed.zip(least).map(|(width, least)| width.max(least)).collect();
                    line(&mut out, &header, &self.widths)?;
                }
                line(&mut out, &row, &self.widths)?;
                String::from_utf8(out).map_err(OutputError::of)
            }
        }
    }
}
