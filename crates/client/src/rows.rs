//! Verified rows. A sink receives them part by part.

use std::sync::Arc;

use moteseal_core::record::{DeviceId, Level, Sequence};
use moteseal_lanes::Recall;
use moteseal_seal::Statement;
use moteseal_seal::sample::{Choice, Chunk, UniformSample};
use moteseal_verify::SchemaEntry;

use crate::error::OutputError;

/// The requested events of one part: authentic, and not chosen by the store.
#[derive(Debug)]
pub struct Rows<'a> {
    pub(crate) name: &'a str,
    pub(crate) statement: &'a Statement,
    pub(crate) start_ms: Option<u64>,
    pub(crate) sample: &'a UniformSample<'a>,
    pub(crate) schema: &'a Arc<SchemaEntry>,
    pub(crate) engine: &'a Recall,
    pub(crate) choice: Choice,
}

impl<'a> Rows<'a> {
    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.statement.device
    }

    /// Returns the device's name in the roster.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the statement that the device signed for the part.
    #[must_use]
    pub const fn statement(&self) -> &'a Statement {
        self.statement
    }

    /// Returns the start of the epoch in Unix milliseconds, or `None` if it is 2^64 or more.
    #[must_use]
    pub const fn start_ms(&self) -> Option<u64> {
        self.start_ms
    }

    /// Returns the schema of the records.
    #[must_use]
    pub const fn schema(&self) -> &'a Arc<SchemaEntry> {
        self.schema
    }

    /// Returns the sample, for estimators.
    #[must_use]
    pub const fn sample(&self) -> &'a UniformSample<'a> {
        self.sample
    }

    /// Returns the choice of the query.
    #[must_use]
    pub const fn choice(&self) -> Choice {
        self.choice
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.sample.sample().len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the sequence number, level and record of every row, in ascending order of
    /// the sequence numbers.
    pub fn for_each(&self, each: impl FnMut(Sequence, Level, &'a [u8])) {
        self.sample.sample().for_each(self.engine, each);
    }

    /// Calls `each` with a few hundred rows at a time, in ascending order of the sequence numbers.
    /// This is efficient for columns.
    pub fn for_each_chunk(&self, each: impl FnMut(&Chunk<'_, 'a>)) {
        self.sample.sample().for_each_chunk(self.engine, each);
    }
}

/// Receives verified rows.
pub trait Sink {
    /// Receives the rows of one part, which may be empty.
    ///
    /// # Errors
    /// [`OutputError`] if the sink fails. The session then stops.
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError>;
}

impl<F: FnMut(&Rows<'_>) -> Result<(), OutputError>> Sink for F {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self(rows)
    }
}
