//! Converts rows to Arrow record batches.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, StringBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int64Type, TimestampMillisecondType, UInt64Type,
};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{
    DataType, Field as ArrowField, Fields, Schema as ArrowSchema, SchemaRef, TimeUnit,
};
use moteseal_core::digest::Digest;
use moteseal_core::record::Sequence;
use moteseal_core::schema::{Decimal, Field, FieldType, Schema, Value, ValueError};
use moteseal_verify::SchemaEntry;

use super::{OutputError, field_names, same_schema};
use crate::rows::Rows;
use crate::sanitised::Origin;

/// The maximum number of rows in a batch.
const BATCH: usize = 8192;

/// The Arrow type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int64,
    UInt64,
    Float64,
    Instant,
    Bool,
    Text,
    Point,
}

impl Kind {
    fn of(field: &Field<'_>) -> Self {
        match field.kind {
            FieldType::Time | FieldType::Timestamp => Self::Instant,
            FieldType::Bool => Self::Bool,
            FieldType::Enum | FieldType::Text => Self::Text,
            FieldType::Point => Self::Point,
            _ if !field.kind.is_integer() || field.divisor != 1 || field.offset != 0 => {
                Self::Float64
            }
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
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::Point => DataType::Struct(point_fields()),
        }
    }
}

/// Returns the fields of a point, in degrees.
fn point_fields() -> Fields {
    ["lat", "lon"].map(|name| ArrowField::new(name, DataType::Float64, true)).into_iter().collect()
}

fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// The values of one column of a batch.
struct Values<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Values<T> {
    fn new() -> Self {
        Self { values: Vec::with_capacity(BATCH), nulls: NullBufferBuilder::new(BATCH) }
    }

    fn push_n(&mut self, value: Option<T::Native>, count: usize) {
        self.values.resize(self.values.len() + count, value.unwrap_or_default());
        match value {
            Some(_) => self.nulls.append_n_non_nulls(count),
            None => self.nulls.append_n_nulls(count),
        }
    }

    /// Appends `count` default values, and returns them for the caller to overwrite.
    fn extend(&mut self, count: usize) -> &mut [T::Native] {
        let length = self.values.len();
        self.push_n(Some(T::Native::default()), count);
        &mut self.values[length..]
    }

    /// Appends the value of a field from each record. `of` converts its raw value.
    fn push(
        &mut self,
        field: &Field<'_>,
        records: &[&[u8]],
        of: impl Fn(i128) -> T::Native,
    ) -> Result<(), ValueError> {
        let Some(null) = field.null() else {
            return field.raws(records, self.extend(records.len()), of);
        };
        for record in records {
            let raw = field.raw(record)?;
            self.push_n((raw != null).then(|| of(raw)), 1);
        }
        Ok(())
    }

    fn push_nulls(&mut self, count: usize) {
        self.push_n(None, count);
    }

    fn take(&mut self) -> PrimitiveArray<T> {
        let nulls = self.nulls.finish();
        PrimitiveArray::new(take(&mut self.values).into(), nulls)
    }
}

/// Returns the elements of a column and leaves the column empty, with the same capacity.
fn take<T>(column: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(column.len());
    let mut taken = std::mem::replace(column, room);
    // The caller may keep the batch. Release unused memory, because the last batch may be small.
    taken.shrink_to_fit();
    taken
}

/// The values of a field.
enum Column {
    Int64(Values<Int64Type>),
    UInt64(Values<UInt64Type>),
    Float64(Values<Float64Type>),
    Instant(Values<TimestampMillisecondType>),
    Bool(BooleanBuilder),
    Text { labels: Vec<String>, texts: StringBuilder },
    Point { latitude: Values<Float64Type>, longitude: Values<Float64Type> },
}

impl Column {
    fn new(field: &Field<'_>) -> Self {
        match Kind::of(field) {
            Kind::Int64 => Self::Int64(Values::new()),
            Kind::UInt64 => Self::UInt64(Values::new()),
            Kind::Float64 => Self::Float64(Values::new()),
            Kind::Instant => Self::Instant(Values::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Text => Self::Text {
                labels: field.labels.iter().map(str::to_owned).collect(),
                texts: StringBuilder::new(),
            },
            Kind::Point => Self::Point { latitude: Values::new(), longitude: Values::new() },
        }
    }

    /// Appends the value of the field from each record.
    // Each kind can represent every raw value of its field types. The raw value of a float is its
    // bits, as an unsigned integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn push(
        &mut self,
        field: &Field<'_>,
        records: &[&[u8]],
        start_ms: Option<u64>,
    ) -> Result<(), ValueError> {
        match self {
            Self::Int64(column) => column.push(field, records, |raw| raw as i64),
            Self::UInt64(column) => column.push(field, records, |raw| raw as u64),
            Self::Float64(column) => {
                let (divisor, offset) = (field.divisor, i128::from(field.offset));
                match field.kind {
                    FieldType::F32 => {
                        column.push(field, records, |bits| f32::from_bits(bits as u32).into())
                    }
                    FieldType::F64 => {
                        column.push(field, records, |bits| f64::from_bits(bits as u64))
                    }
                    _ => column.push(field, records, |raw| {
                        Decimal { numerator: raw + offset, divisor }.to_f64()
                    }),
                }
            }
            Self::Instant(column) if field.kind == FieldType::Timestamp => {
                column.push(field, records, |ms| ms as i64)
            }
            Self::Instant(column) => {
                let start = start_ms.and_then(|start| i64::try_from(start).ok());
                if let Some(start) =
                    start.filter(|start| start.checked_add(u32::MAX.into()).is_some())
                {
                    return column.push(field, records, |ms| start + ms as i64);
                }
                for record in records {
                    let raw = field.raw(record)?;
                    let ms = start.and_then(|start| start.checked_add(raw as i64));
                    column.push_n(ms.filter(|_| field.null() != Some(raw)), 1);
                }
                Ok(())
            }
            Self::Bool(column) => {
                for record in records {
                    let value = field.read(record)?;
                    column.append_option(match value {
                        Value::Bool(value) => Some(value),
                        _ => None,
                    });
                }
                Ok(())
            }
            // The labels are those of the named field.
            Self::Text { labels, texts } if field.kind == FieldType::Enum => {
                for record in records {
                    let raw = field.raw(record)?;
                    if field.null() == Some(raw) {
                        texts.append_null();
                        continue;
                    }
                    let label = usize::try_from(raw).ok().and_then(|raw| labels.get(raw));
                    texts.append_value(label.ok_or(ValueError::RecordValue)?);
                }
                Ok(())
            }
            Self::Text { texts, .. } => {
                for record in records {
                    texts.append_option(match field.read(record)? {
                        Value::Text(text) => Some(text),
                        _ => None,
                    });
                }
                Ok(())
            }
            Self::Point { latitude, longitude } => {
                for record in records {
                    let (north, east) = match field.read(record)? {
                        Value::Point { latitude, longitude } => {
                            (Some(latitude.to_f64()), Some(longitude.to_f64()))
                        }
                        _ => (None, None),
                    };
                    latitude.push_n(north, 1);
                    longitude.push_n(east, 1);
                }
                Ok(())
            }
        }
    }

    /// Appends `count` nulls.
    fn push_nulls(&mut self, count: usize) {
        match self {
            Self::Int64(column) => column.push_nulls(count),
            Self::UInt64(column) => column.push_nulls(count),
            Self::Float64(column) => column.push_nulls(count),
            Self::Instant(column) => column.push_nulls(count),
            Self::Bool(column) => column.append_nulls(count),
            Self::Text { texts, .. } => (0..count).for_each(|_| texts.append_null()),
            Self::Point { latitude, longitude } => {
                latitude.push_nulls(count);
                longitude.push_nulls(count);
            }
        }
    }

    fn take(&mut self) -> ArrayRef {
        match self {
            Self::Int64(column) => Arc::new(column.take()),
            Self::UInt64(column) => Arc::new(column.take()),
            Self::Float64(column) => Arc::new(column.take()),
            Self::Instant(column) => Arc::new(in_utc(column.take())),
            Self::Bool(column) => Arc::new(column.finish()),
            Self::Text { texts, .. } => Arc::new(texts.finish()),
            Self::Point { latitude, longitude } => {
                let parts: [ArrayRef; 2] =
                    [latitude, longitude].map(|part| Arc::new(part.take()) as _);
                // Both parts of a point are null, or none.
                let nulls = parts[0].nulls().cloned();
                Arc::new(StructArray::new(point_fields(), parts.to_vec(), nulls))
            }
        }
    }
}

fn in_utc(
    instants: PrimitiveArray<TimestampMillisecondType>,
) -> PrimitiveArray<TimestampMillisecondType> {
    instants.with_timezone("UTC")
}

/// The column of device names. The same name is usually repeated many times.
struct Names {
    /// The number zero, followed by the end of each name in `bytes`.
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Names {
    fn new() -> Self {
        let mut ends = Vec::with_capacity(BATCH + 1);
        ends.push(0);
        Self { ends, bytes: Vec::new() }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    fn push_n(&mut self, name: &str, count: usize) -> Result<(), OutputError> {
        let start = self.bytes.len();
        let length = count * name.len();
        // This checks that the end of the last name fits into an `i32`. The casts below are then
        // lossless, because the ends of the other names are smaller.
        i32::try_from(start + length).map_err(OutputError::of)?;
        self.ends.extend((1..=count).map(|names| (start + names * name.len()) as i32));
        // Append the name once, and then double the appended bytes until there are enough. A few
        // long copies are faster than many short ones.
        self.bytes.reserve(length);
        self.bytes.extend_from_slice(&name.as_bytes()[..name.len().min(length)]);
        while self.bytes.len() < start + length {
            let there = self.bytes.len() - start;
            self.bytes.extend_from_within(start..start + there.min(length - there));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<StringArray, OutputError> {
        let ends = take(&mut self.ends);
        self.ends.push(0);
        StringArray::try_new(OffsetBuffer::new(ends.into()), take(&mut self.bytes).into(), None)
            .map_err(OutputError::of)
    }
}

/// Collects rows into batches.
pub(super) struct Columns {
    entry: Arc<SchemaEntry>,
    /// Whether sanitisers replaced columns of the rows.
    is_sanitised: bool,
    /// The digest of the schema of the records that `fields` read. It is another one than that of
    /// `entry` if columns are hidden or not asked for.
    stored: Digest,
    schema: SchemaRef,
    epoch: Values<UInt64Type>,
    epoch_start: Values<TimestampMillisecondType>,
    device: Names,
    index: Values<UInt64Type>,
    seq: Values<UInt64Type>,
    /// The records themselves, if the schema has no fields.
    payload: Option<BinaryBuilder>,
    /// The fields and their columns. The names and units of the fields are removed, because
    /// `schema` contains them.
    fields: Vec<(Field<'static>, Column)>,
    /// For each field, why rows are null although their readings are not.
    withheld: Vec<BTreeSet<&'static str>>,
    /// For each field, the sanitisers that replaced its values, with their policies.
    sanitised: Vec<BTreeSet<String>>,
    /// The number of rows that are not in a batch yet.
    length: usize,
}

impl Columns {
    pub(super) fn new(entry: &Arc<SchemaEntry>, is_sanitised: bool) -> Result<Self, OutputError> {
        let schema = Schema::decode(&entry.bytes).map_err(OutputError::of)?;
        let mut columns = vec![
            ArrowField::new("epoch", DataType::UInt64, false),
            ArrowField::new("epoch_start", instant_type(), true),
            ArrowField::new("device", DataType::Utf8, false),
            ArrowField::new("index", DataType::UInt64, false),
            ArrowField::new("seq", DataType::UInt64, false),
        ];
        let opaque = schema.is_opaque();
        if opaque {
            columns.push(ArrowField::new("payload", DataType::Binary, false));
        }
        // In version 1 of a schema, the ids are the positions.
        let has_ids = schema.as_bytes().get(1) == Some(&2);
        for (field, name) in schema.fields().zip(field_names(&schema)) {
            let mut metadata = HashMap::from([
                ("unit".to_owned(), field.unit.to_owned()),
                ("divisor".to_owned(), field.divisor.to_string()),
                ("offset".to_owned(), field.offset.to_string()),
            ]);
            if has_ids {
                metadata.insert("id".to_owned(), field.id.to_string());
            }
            if field.relayed {
                metadata.insert("relayed".to_owned(), "true".to_owned());
            }
            columns.push(
                ArrowField::new(name, Kind::of(&field).data_type(), true).with_metadata(metadata),
            );
        }
        let withheld = schema.fields().map(|_| BTreeSet::new()).collect();
        let sanitised = schema.fields().map(|_| BTreeSet::new()).collect();
        let metadata = HashMap::from([("moteseal.schema".to_owned(), entry.digest.to_string())]);
        Ok(Self {
            entry: entry.clone(),
            is_sanitised,
            stored: entry.digest,
            schema: Arc::new(ArrowSchema::new_with_metadata(columns, metadata)),
            epoch: Values::new(),
            epoch_start: Values::new(),
            device: Names::new(),
            index: Values::new(),
            seq: Values::new(),
            payload: opaque.then(BinaryBuilder::new),
            fields: schema.fields().map(|field| (field.unnamed(), Column::new(&field))).collect(),
            withheld,
            sanitised,
            length: 0,
        })
    }

    pub(super) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the metadata of fields depends on the rows.
    pub(super) fn depends_on_rows(&self) -> bool {
        self.is_sanitised || self.entry.encrypted > 0
    }

    /// Returns the schema after all rows. The metadata `moteseal.withheld` of a field states, separated
    /// by commas, why rows are null because the column is encrypted. The metadata `moteseal.origin` of a
    /// field whose values a sanitiser replaced names the sanitiser and its policy.
    pub(super) fn final_schema(&self) -> SchemaRef {
        if self.withheld.iter().all(BTreeSet::is_empty)
            && self.sanitised.iter().all(BTreeSet::is_empty)
        {
            return Arc::clone(&self.schema);
        }
        let common = self.schema.fields().len() - self.withheld.len();
        let stated = self.withheld.iter().zip(&self.sanitised);
        let stated = (0..common).map(|_| None).chain(stated.map(Some));
        let fields = self.schema.fields().iter().zip(stated).map(|(field, stated)| {
            let Some((reasons, sanitised)) = stated else { return Arc::clone(field) };
            let mut metadata = field.metadata().clone();
            if !reasons.is_empty() {
                let reasons: Vec<&str> = reasons.iter().copied().collect();
                metadata.insert("moteseal.withheld".to_owned(), reasons.join(","));
            }
            if !sanitised.is_empty() {
                let origins: Vec<&str> = sanitised.iter().map(String::as_str).collect();
                metadata.insert("moteseal.origin".to_owned(), origins.join("; "));
            }
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        });
        let fields: Fields = fields.collect();
        Arc::new(ArrowSchema::new_with_metadata(fields, self.schema.metadata().clone()))
    }

    /// Returns whether the columns were created for this schema.
    pub(super) fn is_of(&self, schema: &SchemaEntry) -> bool {
        self.entry.digest == schema.digest
    }

    /// Appends rows, and calls `out` with each full batch.
    pub(super) fn rows(
        &mut self,
        rows: &Rows<'_>,
        out: &mut dyn FnMut(RecordBatch) -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        same_schema(&self.entry, self.is_sanitised, rows)?;
        if self.stored != rows.record_schema() {
            self.stored = rows.record_schema();
            for ((field, _), column) in self.fields.iter_mut().zip(rows.columns()) {
                *field = column.field().unnamed();
            }
        }
        let (mut result, mut new) = (Ok(()), 0);
        let mut withheld = vec![false; self.fields.len()];
        if self.depends_on_rows() && !rows.is_empty() {
            let stated = self.withheld.iter_mut().zip(&mut self.sanitised).zip(&mut withheld);
            for (((reasons, sanitised), is_withheld), column) in stated.zip(rows.columns()) {
                *is_withheld = column.withheld().is_some();
                reasons.extend(column.withheld().map(|reason| reason.name()));
                match column.origin() {
                    Origin::Device => {}
                    origin => _ = sanitised.insert(origin.to_string()),
                }
            }
        }
        rows.for_each_chunk(|mut seqs, mut records| {
            while result.is_ok() && !seqs.is_empty() {
                let count = seqs.len().min(BATCH - self.length);
                let part = (&withheld[..], rows.start_ms());
                result = self.push(&seqs[..count], &records[..count], part);
                (seqs, records) = (&seqs[count..], &records[count..]);
                new += count;
                if result.is_ok() && self.length == BATCH {
                    result = self
                        .repeat(rows, std::mem::take(&mut new))
                        .and_then(|()| self.take()?.map_or(Ok(()), &mut *out));
                }
            }
        });
        result.and_then(|()| self.repeat(rows, new))
    }

    /// Appends the values that differ from row to row. The fields that are `withheld` are null.
    fn push(
        &mut self,
        seqs: &[Sequence],
        records: &[&[u8]],
        (withheld, start_ms): (&[bool], Option<u64>),
    ) -> Result<(), OutputError> {
        self.length += seqs.len();
        for (out, seq) in self.seq.extend(seqs.len()).iter_mut().zip(seqs) {
            *out = seq.0;
        }
        if let Some(payload) = &mut self.payload {
            for record in records {
                payload.append_value(record);
            }
        }
        for ((field, column), is_withheld) in self.fields.iter_mut().zip(withheld) {
            if *is_withheld {
                column.push_nulls(records.len());
            } else {
                column.push(&field.in_plaintext(), records, start_ms).map_err(OutputError::of)?;
            }
        }
        Ok(())
    }

    /// Appends `count` times the values that all rows of a part share.
    fn repeat(&mut self, rows: &Rows<'_>, count: usize) -> Result<(), OutputError> {
        self.epoch.push_n(Some(rows.statement().epoch.0), count);
        self.index.push_n(Some(rows.statement().index.0.into()), count);
        self.epoch_start.push_n(rows.start_ms().and_then(|ms| i64::try_from(ms).ok()), count);
        self.device.push_n(rows.name(), count)
    }

    /// Returns the rows that are not in a batch yet as a batch, or `None` if there are none.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>, OutputError> {
        if std::mem::take(&mut self.length) == 0 {
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.epoch.take()),
            Arc::new(in_utc(self.epoch_start.take())),
            Arc::new(self.device.take()?),
            Arc::new(self.index.take()),
            Arc::new(self.seq.take()),
        ];
        if let Some(payload) = &mut self.payload {
            columns.push(Arc::new(payload.finish()));
        }
        columns.extend(self.fields.iter_mut().map(|(_, column)| column.take()));
        RecordBatch::try_new(self.schema.clone(), columns).map(Some).map_err(OutputError::of)
    }
}

/// Returns a batch with a schema that differs only in its metadata.
pub(super) fn with_schema(
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<RecordBatch, OutputError> {
    RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec()).map_err(OutputError::of)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow_array::Array;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_batch_has_the_names_that_were_pushed(
            batches in prop::collection::vec(
                prop::collection::vec(("\\PC{0,9}", 0_usize..40), 0..5),
                1..4,
            ),
        ) {
            let mut names = Names::new();
            for batch in batches {
                for (name, count) in &batch {
                    names.push_n(name, *count).unwrap();
                }
                let expected = batch
                    .iter()
                    .flat_map(|(name, count)| std::iter::repeat_n(name.as_str(), *count));
                let taken = names.take().unwrap();
                prop_assert_eq!(&taken, &StringArray::from_iter_values(expected));
                prop_assert!(taken.nulls().is_none());
            }
        }
    }
}
