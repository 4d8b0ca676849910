//! The results of a query as Arrow record batches. Values are `Decimal128`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Decimal128Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef, TimeUnit};

use super::group_result::{GroupResult, ResultValue};
use super::open_epochs::Row;
use super::row_values::{
    MOST_DELTA, Part, RowNames, failure, groups, masked, results, silent, unheard, value,
};
use super::row_writer::{WITHHELD, group_name, is_withheld, stated};
use crate::error::OutputError;

/// The maximum number of digits of an Arrow decimal.
const DIGITS: u8 = 38;

/// Returns the Arrow schema of a query's rows.
pub(super) fn arrow_schema(names: &RowNames) -> ArrowSchema {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let mut fields = vec![
        ArrowField::new("epoch", DataType::UInt64, false),
        ArrowField::new("start", time, false),
        ArrowField::new("duration_ms", DataType::UInt32, false),
    ];
    if let Some(group) = &names.group {
        fields.push(ArrowField::new(group, DataType::Utf8, true));
    }
    for cell in &names.cells {
        let unit = names.units.get(cell.item).cloned().unwrap_or_default();
        let kind = match cell.part {
            Part::Counts => {
                DataType::List(Arc::new(ArrowField::new("item", DataType::Int64, true)))
            }
            _ => DataType::Decimal128(DIGITS, cell.places),
        };
        let metadata = HashMap::from([("unit".to_owned(), unit)]);
        fields.push(ArrowField::new(&cell.head, kind, true).with_metadata(metadata));
    }
    let name = Arc::new(ArrowField::new("item", DataType::Utf8, true));
    fields.extend([
        ArrowField::new("participants", DataType::UInt32, false),
        ArrowField::new("sources", DataType::UInt32, false),
        ArrowField::new("silent", DataType::List(Arc::clone(&name)), false),
        ArrowField::new("error", DataType::Utf8, true),
        ArrowField::new("edge", DataType::Utf8, true),
        ArrowField::new("unheard", DataType::List(Arc::clone(&name)), false),
        ArrowField::new("readings", DataType::UInt32, true),
        ArrowField::new("outside", DataType::UInt32, true),
        ArrowField::new("masked", DataType::List(Arc::clone(&name)), false),
        ArrowField::new("reasons", DataType::List(name), false),
    ]);
    let privacy = names.epsilon.iter().flat_map(|epsilon| {
        [("epsilon".to_owned(), epsilon.to_string()), ("delta".to_owned(), MOST_DELTA.to_string())]
    });
    ArrowSchema::new(fields).with_metadata(privacy.collect::<HashMap<_, _>>())
}

/// Converts a row to batches: one of one row for each group.
pub(super) fn batches(
    schema: &SchemaRef,
    names: &RowNames,
    row: &Row,
) -> Result<Vec<RecordBatch>, OutputError> {
    groups(row).into_iter().map(|group| batch(schema, names, row, group)).collect()
}

/// Returns a column with one list of texts.
fn list(texts: impl Iterator<Item: AsRef<str>>) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new());
    texts.for_each(|text| list.values().append_value(text));
    list.append(true);
    Arc::new(list.finish())
}

fn batch(
    schema: &SchemaRef,
    names: &RowNames,
    row: &Row,
    group: Option<&GroupResult>,
) -> Result<RecordBatch, OutputError> {
    let start = i64::try_from(row.start_ms).unwrap_or(i64::MAX);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![row.epoch])),
        Arc::new(TimestampMillisecondArray::from(vec![start]).with_timezone("UTC")),
        Arc::new(UInt32Array::from(vec![row.duration_ms])),
    ];
    if names.group.is_some() {
        let name = group.map(|_| group_name(group));
        columns.push(Arc::new(StringArray::from(vec![name])));
    }
    for cell in &names.cells {
        let value = value(group, cell.item);
        if cell.part == Part::Counts {
            let mut counts = ListBuilder::new(Int64Builder::new());
            if let Some(ResultValue::Histogram(histogram)) = value {
                histogram.bins.iter().for_each(|(_, count)| counts.values().append_value(*count));
            }
            counts.append(value.is_some());
            columns.push(Arc::new(counts.finish()));
            continue;
        }
        let value = value.and_then(|value| cell.part.number(value));
        // A value with more digits than the column's precision cannot be written.
        let unfit = || {
            OutputError::unfit(format_args!(
                "{} has more than {DIGITS} digits; write JSON or CSV",
                cell.head
            ))
        };
        let digits = value.map(|value| value.digits().ok_or_else(unfit)).transpose()?;
        let array = Decimal128Array::from(vec![digits])
            .with_precision_and_scale(DIGITS, cell.places)
            .map_err(OutputError::of)?;
        array.validate_decimal_precision(DIGITS).map_err(|_| unfit())?;
        columns.push(Arc::new(array));
    }
    let failure = failure(row);
    let edge =
        failure.as_ref().map(|failure| failure.edges.join("; ")).filter(|edges| !edges.is_empty());
    columns.extend([
        Arc::new(UInt32Array::from(vec![row.participants.count()])) as ArrayRef,
        Arc::new(UInt32Array::from(vec![row.members.count()])),
        list(silent(row)),
        Arc::new(StringArray::from(vec![
            failure.as_ref().map(|failure| failure.name).or(is_withheld(group).then_some(WITHHELD)),
        ])),
        Arc::new(StringArray::from(vec![edge])),
        list(unheard(row)),
        Arc::new(UInt32Array::from(vec![results(group).map(|results| results.count)])),
        Arc::new(UInt32Array::from(vec![results(group).map(|results| results.outside)])),
        list(masked(row)),
        list(stated(row)),
    ]);
    RecordBatch::try_new(schema.clone(), columns).map_err(OutputError::of)
}
