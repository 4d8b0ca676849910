//! Rows as Arrow record batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampMillisecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef, TimeUnit};
use moteseal_core::schema::{Field, FieldType, Schema, Value};
use moteseal_verify::SchemaEntry;

use super::{OutputError, field_names, same_schema};
use crate::rows::Rows;

/// Rows a batch.
const BATCH: usize = 8192;

/// How a field's values are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int64,
    UInt64,
    Float64,
    Instant,
}

impl Kind {
    fn of(field: &Field<'_>) -> Self {
        match field.kind {
            FieldType::Time => Self::Instant,
            _ if !field.kind.is_integer() || field.divisor != 1 || field.offset != 0 => Self::Float64,
            FieldType::U64 => Self::UInt64,
            _ => Self::Int64,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::UInt64 => DataType::UInt64,
            Self::Float64 => DataType::Float64,
            Self::Instant => instant_type(),
        }
    }
}

fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

enum Builder {
    Int64(Int64Builder),
    UInt64(UInt64Builder),
    Float64(Float64Builder),
    Instant(TimestampMillisecondBuilder),
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int64 => Self::Int64(Int64Builder::new()),
            Kind::UInt64 => Self::UInt64(UInt64Builder::new()),
            Kind::Float64 => Self::Float64(Float64Builder::new()),
            Kind::Instant => Self::Instant(instants()),
        }
    }

    fn push(&mut self, field: &Field<'_>, record: &[u8], start_ms: Option<u64>) -> Result<(), OutputError> {
        match self {
            Self::Int64(builder) => {
                let raw = field.raw(record).map_err(OutputError::of)?;
                builder.append_option(i64::try_from(raw).ok());
            }
            Self::UInt64(builder) => {
                let raw = field.raw(record).map_err(OutputError::of)?;
                builder.append_option(u64::try_from(raw).ok());
            }
            Self::Float64(builder) => builder.append_value(field.read_f64(record).map_err(OutputError::of)?),
            Self::Instant(builder) => {
                let Value::TimeMs(ms) = field.read(record).map_err(OutputError::of)? else { return Ok(()) };
                builder.append_option(start_ms.and_then(|start| i64::try_from(start.checked_add(u64::from(ms))?).ok()));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::UInt64(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::Instant(builder) => Arc::new(builder.finish()),
        }
    }
}

fn instants() -> TimestampMillisecondBuilder {
    TimestampMillisecondBuilder::new().with_timezone("UTC")
}

/// Collects rows into batches.
pub(super) struct Columns {
    entry: Arc<SchemaEntry>,
    schema: SchemaRef,
    epoch: UInt64Builder,
    epoch_start: TimestampMillisecondBuilder,
    device: StringBuilder,
    index: UInt64Builder,
    seq: UInt64Builder,
    /// Opaque records.
    payload: Option<BinaryBuilder>,
    fields: Vec<Builder>,
}

impl Columns {
    pub(super) fn new(entry: &Arc<SchemaEntry>) -> Result<Self, OutputError> {
        let schema = Schema::decode(&entry.bytes).map_err(OutputError::of)?;
        let mut columns = vec![
            ArrowField::new("epoch", DataType::UInt64, false),
            ArrowField::new("epoch_start", instant_type(), true),
            ArrowField::new("device", DataType::Utf8, false),
            ArrowField::new("index", DataType::UInt64, false),
            ArrowField::new("seq", DataType::UInt64, false),
        ];
        let opaque = schema.record_size().is_none();
        if opaque {
            columns.push(ArrowField::new("payload", DataType::Binary, false));
        }
        for (field, name) in schema.fields().zip(field_names(&schema)) {
            let metadata = HashMap::from([
                ("unit".to_owned(), field.unit.to_owned()),
                ("divisor".to_owned(), field.divisor.to_string()),
                ("offset".to_owned(), field.offset.to_string()),
            ]);
            columns.push(ArrowField::new(name, Kind::of(&field).data_type(), true).with_metadata(metadata));
        }
        let metadata = HashMap::from([("moteseal.schema".to_owned(), entry.digest.to_string())]);
        Ok(Self {
            entry: entry.clone(),
            schema: Arc::new(ArrowSchema::new_with_metadata(columns, metadata)),
            epoch: UInt64Builder::new(),
            epoch_start: instants(),
            device: StringBuilder::new(),
            index: UInt64Builder::new(),
            seq: UInt64Builder::new(),
            payload: opaque.then(BinaryBuilder::new),
            fields: schema.fields().map(|field| Builder::new(Kind::of(&field))).collect(),
        })
    }

    pub(super) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether rows of this schema have these columns.
    pub(super) fn is_of(&self, schema: &SchemaEntry) -> bool {
        self.entry.digest == schema.digest
    }

    /// Takes rows, and hands out each batch that is full.
    pub(super) fn rows(
        &mut self,
        rows: &Rows<'_>,
        out: &mut dyn FnMut(RecordBatch) -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        same_schema(&self.entry, rows)?;
        let entry = self.entry.clone();
        let schema = Schema::decode(&entry.bytes).map_err(OutputError::of)?;
        let fields: Vec<Field<'_>> = schema.fields().collect();
        let start = rows.start_ms().and_then(|ms| i64::try_from(ms).ok());
        let (mut result, mut new) = (Ok(()), 0);
        rows.for_each(|seq, _, record| {
            if result.is_err() {
                return;
            }
            self.seq.append_value(seq.0);
            new += 1;
            if let Some(payload) = &mut self.payload {
                payload.append_value(record);
            }
            for (builder, field) in self.fields.iter_mut().zip(&fields) {
                if let Err(error) = builder.push(field, record, rows.start_ms()) {
                    result = Err(error);
                    return;
                }
            }
            if self.seq.len() >= BATCH {
                self.repeat(rows, start, std::mem::take(&mut new));
                result = self.take().and_then(|batch| batch.map_or(Ok(()), &mut *out));
            }
        });
        self.repeat(rows, start, new);
        result
    }

    /// Appends what is the same in all rows of a part, `count` times.
    fn repeat(&mut self, rows: &Rows<'_>, start: Option<i64>, count: usize) {
        self.epoch.append_value_n(rows.statement().epoch.0, count);
        self.index.append_value_n(rows.statement().index.0.into(), count);
        match start {
            Some(start) => self.epoch_start.append_value_n(start, count),
            None => self.epoch_start.append_nulls(count),
        }
        self.device.append_value_n(rows.name(), count);
    }

    /// The rows that no batch has taken yet.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>, OutputError> {
        if self.seq.is_empty() {
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.epoch.finish()),
            Arc::new(self.epoch_start.finish()),
            Arc::new(self.device.finish()),
            Arc::new(self.index.finish()),
            Arc::new(self.seq.finish()),
        ];
        if let Some(payload) = &mut self.payload {
            columns.push(Arc::new(payload.finish()));
        }
        columns.extend(self.fields.iter_mut().map(Builder::finish));
        RecordBatch::try_new(self.schema.clone(), columns).map(Some).map_err(OutputError::of)
    }
}
