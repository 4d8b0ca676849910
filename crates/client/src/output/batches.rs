//! Verified rows in memory, as Arrow record batches, for programs that process them further, such
//! as the Python package.
//!
//! All requested rows are held in memory. Returning the batches does not copy the rows.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::columns::{Columns, with_schema};
use super::{OutputError, none};
use crate::rows::{Rows, Sink};

/// Collects rows. Use the rows only after the whole answer has been verified.
#[derive(Default)]
pub struct Batches {
    columns: Option<Columns>,
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Batches {
    /// Creates an empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the columns, and all rows in the order in which they arrived. If there are no rows,
    /// the columns are those that every schema has.
    ///
    /// # Errors
    /// [`OutputError`] if the last batch cannot be built.
    pub fn finish(mut self) -> Result<(SchemaRef, Vec<RecordBatch>), OutputError> {
        let mut columns = match self.columns {
            Some(columns) => columns,
            None => Columns::new(&none()?, false)?,
        };
        self.batches.extend(columns.take()?);
        let schema = columns.final_schema();
        if Arc::ptr_eq(&schema, columns.schema()) {
            return Ok((schema, self.batches));
        }
        let batches = self.batches.iter().map(|batch| with_schema(&schema, batch));
        let batches = batches.collect::<Result<_, _>>()?;
        Ok((schema, batches))
    }
}

impl Sink for Batches {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let Self { columns, batches, rows: number } = self;
        let columns = match columns {
            Some(columns) => columns,
            None => columns.insert(Columns::new(rows.schema(), rows.is_sanitised())?),
        };
        if !columns.is_of(rows.schema()) {
            return Err(OutputError::unfit(format_args!(
                "device {} has other columns at {} than the rows before, and all rows of a table have \
                 the same columns; ask for devices and times with the same columns",
                rows.name(),
                rows.start_text()
            )));
        }
        *number += rows.len() as usize;
        columns.rows(rows, &mut |batch| {
            batches.push(batch);
            Ok(())
        })
    }
}
