//! The results of a query as Arrow record batches. Values are `Decimal128`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Decimal128Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef, TimeUnit};

use super::open_epochs::Row;
use super::row_values::{RowNames, counts, failure, masked, silent, unheard, values};
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
    for ((item, unit), places) in names.items.iter().zip(&names.units).zip(&names.places) {
        let metadata = HashMap::from([("unit".to_owned(), unit.clone())]);
        fields.push(
            ArrowField::new(item, DataType::Decimal128(DIGITS, *places), true)
                .with_metadata(metadata),
        );
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
        ArrowField::new("masked", DataType::List(name), false),
    ]);
    ArrowSchema::new(fields)
}

/// Converts a row to a batch of one row.
pub(super) fn batch(
    schema: &SchemaRef,
    names: &RowNames,
    row: &Row,
) -> Result<RecordBatch, OutputError> {
    let start = i64::try_from(row.start_ms).unwrap_or(i64::MAX);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![row.epoch])),
        Arc::new(TimestampMillisecondArray::from(vec![start]).with_timezone("UTC")),
        Arc::new(UInt32Array::from(vec![row.duration_ms])),
    ];
    for (item, places) in names.places.iter().enumerate() {
        let value = values(row).get(item).copied().flatten();
        // A value with more digits than the column's precision cannot be written.
        let unfit = || {
            OutputError::unfit(format_args!(
                "{} has more than {DIGITS} digits; write JSON or CSV",
                names.items[item]
            ))
        };
        let digits = value.map(|value| value.digits().ok_or_else(unfit)).transpose()?;
        let array = Decimal128Array::from(vec![digits])
            .with_precision_and_scale(DIGITS, *places)
            .map_err(OutputError::of)?;
        array.validate_decimal_precision(DIGITS).map_err(|_| unfit())?;
        columns.push(Arc::new(array));
    }
    let (mut silents, mut unheards) =
        (ListBuilder::new(StringBuilder::new()), ListBuilder::new(StringBuilder::new()));
    silent(row).for_each(|name| silents.values().append_value(name));
    unheard(row).for_each(|name| unheards.values().append_value(name));
    let mut maskeds = ListBuilder::new(StringBuilder::new());
    masked(row).for_each(|name| maskeds.values().append_value(name));
    maskeds.append(true);
    silents.append(true);
    unheards.append(true);
    let failure = failure(row);
    let edge =
        failure.as_ref().map(|failure| failure.edges.join("; ")).filter(|edges| !edges.is_empty());
    columns.extend([
        Arc::new(UInt32Array::from(vec![row.participants.count()])) as ArrayRef,
        Arc::new(UInt32Array::from(vec![row.members.count()])),
        Arc::new(silents.finish()),
        Arc::new(StringArray::from(vec![failure.as_ref().map(|failure| failure.name)])),
        Arc::new(StringArray::from(vec![edge])),
        Arc::new(unheards.finish()),
        Arc::new(UInt32Array::from(vec![counts(row).map(|counts| counts.0)])),
        Arc::new(UInt32Array::from(vec![counts(row).map(|counts| counts.1)])),
        Arc::new(maskeds.finish()),
    ]);
    RecordBatch::try_new(schema.clone(), columns).map_err(OutputError::of)
}
