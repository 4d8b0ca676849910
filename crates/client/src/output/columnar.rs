//! Writes rows as an Arrow IPC stream or a Parquet file.
//!
//! Both formats begin with the metadata of the columns. If a schema has encrypted columns, their
//! metadata states why rows are null, which is known after the last row. The rows of such a schema are
//! held in a temporary file until then. The metadata also names the sanitisers of columns.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek as _, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use moteseal_verify::SchemaEntry;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::OutputError;
use super::columns::{Columns, with_schema};
use crate::rows::Rows;

/// The two formats.
#[derive(Clone, Copy, Debug)]
pub(super) enum ColumnarFormat {
    Arrow,
    Parquet,
}

/// Writes batches in one of the formats.
enum Batches<W: Write + Send> {
    Arrow(Box<StreamWriter<W>>),
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> Batches<W> {
    fn new(format: ColumnarFormat, out: W, schema: &SchemaRef) -> Result<Self, OutputError> {
        Ok(match format {
            ColumnarFormat::Arrow => {
                let writer = StreamWriter::try_new(out, schema).map_err(OutputError::of)?;
                Self::Arrow(Box::new(writer))
            }
            ColumnarFormat::Parquet => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let writer = ArrowWriter::try_new(out, Arc::clone(schema), Some(properties));
                Self::Parquet(Box::new(writer.map_err(OutputError::of)?))
            }
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), OutputError> {
        match self {
            Self::Arrow(writer) => writer.write(batch).map_err(OutputError::of),
            Self::Parquet(writer) => writer.write(batch).map_err(OutputError::of),
        }
    }

    fn finish(self) -> Result<(), OutputError> {
        match self {
            Self::Arrow(mut writer) => writer.finish().map_err(OutputError::of),
            Self::Parquet(writer) => {
                let mut out = writer.into_inner().map_err(OutputError::of)?;
                out.flush().map_err(OutputError::of)
            }
        }
    }
}

enum Target<W: Write + Send> {
    Final(Batches<W>),
    /// The batches are held, because the metadata of the columns is not known yet.
    Held {
        held: Batches<BufWriter<File>>,
        file: File,
        out: W,
    },
}

/// Writes the rows of one schema.
pub(super) struct Columnar<W: Write + Send> {
    format: ColumnarFormat,
    columns: Columns,
    target: Target<W>,
}

impl<W: Write + Send> Columnar<W> {
    pub(super) fn new(
        format: ColumnarFormat,
        out: W,
        schema: &Arc<SchemaEntry>,
        is_sanitised: bool,
    ) -> Result<Self, OutputError> {
        let columns = Columns::new(schema, is_sanitised)?;
        let target = if columns.depends_on_rows() {
            let failed = |error| OutputError::temporary(&error);
            let file = tempfile::tempfile().map_err(failed)?;
            let buffer = BufWriter::new(file.try_clone().map_err(failed)?);
            let held = Batches::new(ColumnarFormat::Arrow, buffer, columns.schema())?;
            Target::Held { held, file, out }
        } else {
            Target::Final(Batches::new(format, out, columns.schema())?)
        };
        Ok(Self { format, columns, target })
    }

    pub(super) fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let Self { columns, target, .. } = self;
        columns.rows(rows, &mut |batch| match target {
            Target::Final(batches) => batches.write(&batch),
            Target::Held { held, .. } => held.write(&batch),
        })
    }

    pub(super) fn finish(self) -> Result<(), OutputError> {
        let Self { format, mut columns, target } = self;
        let last = columns.take()?;
        match target {
            Target::Final(mut batches) => {
                last.map_or(Ok(()), |batch| batches.write(&batch))?;
                batches.finish()
            }
            Target::Held { mut held, mut file, out } => {
                last.map_or(Ok(()), |batch| held.write(&batch))?;
                held.finish()?;
                file.rewind().map_err(|error| OutputError::temporary(&error))?;
                let schema = columns.final_schema();
                let mut batches = Batches::new(format, out, &schema)?;
                let held = StreamReader::try_new(BufReader::new(file), None);
                for batch in held.map_err(OutputError::of)? {
                    let batch = batch.map_err(OutputError::of)?;
                    batches.write(&with_schema(&schema, &batch)?)?;
                }
                batches.finish()
            }
        }
    }
}
