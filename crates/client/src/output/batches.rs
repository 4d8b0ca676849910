//! Verified rows in memory, as Arrow record batches: for programs that go on with them, such as the Python package.
//!
//! Nothing is copied on the way out: a batch shares its columns with whoever takes it. What is held is all that was asked for.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::columns::Columns;
use super::{OutputError, none};
use crate::rows::{Rows, Sink};

/// Collects rows. They are the caller's once the answer they belong to is verified to its end, and not before.
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
    /// A collection of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many rows there are.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, and all rows in the order they came; without rows the columns that every table has.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn finish(mut self) -> Result<(SchemaRef, Vec<RecordBatch>), OutputError> {
        let mut columns = match self.columns {
            Some(columns) => columns,
            None => Columns::new(&none()?)?,
        };
        self.batches.extend(columns.take()?);
        Ok((Arc::clone(columns.schema()), self.batches))
    }
}

impl Sink for Batches {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let Self { columns, batches, rows: number } = self;
        let columns = match columns {
            Some(columns) => columns,
            None => columns.insert(Columns::new(rows.schema())?),
        };
        if !columns.is_of(rows.schema()) {
            return Err(OutputError::unfit(format_args!(
                "device {} has other columns from epoch {} on, and a table has one kind of rows; ask for devices and epochs of one \
                 schema at a time",
                rows.name(),
                rows.statement().epoch
            )));
        }
        *number += rows.len() as usize;
        columns.rows(rows, &mut |batch| {
            batches.push(batch);
            Ok(())
        })
    }
}
