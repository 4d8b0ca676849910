//! Verified rows. A sink receives them part by part.

use std::sync::Arc;

use moteseal_core::record::{DeviceId, Framing, Level, Sequence};
use moteseal_lanes::Recall;
use moteseal_seal::sample::{Choice, Sample, UniformSample};
use moteseal_seal::{Authentic, Statement};
use moteseal_verify::SchemaEntry;

use crate::decrypt::{Column, PartColumns, columns_of};
use crate::error::OutputError;
use crate::sanitised::{Combined, Origin};

/// What determined the events of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Determined<'a> {
    /// A query, for a uniform sample.
    Uniform(&'a UniformSample<'a>, Choice),
    /// A person: a query named the events, or a redactor left them in a proof.
    Chosen(&'a Sample<'a, Authentic>),
}

impl<'a> Determined<'a> {
    pub(crate) const fn sample(self) -> &'a Sample<'a, Authentic> {
        match self {
            Self::Uniform(uniform, _) => uniform.sample(),
            Self::Chosen(sample) => sample,
        }
    }
}

/// The verified events of one part: authentic, and not chosen by the store.
///
/// In the records, encrypted columns are plaintext if the reader has their keys, and ciphertext
/// otherwise. [`columns`](Self::columns) reads only plaintext.
#[derive(Debug)]
pub struct Rows<'a> {
    pub(crate) name: &'a str,
    pub(crate) statement: &'a Statement,
    pub(crate) start_ms: Option<u64>,
    pub(crate) events: Determined<'a>,
    /// The schema of the records.
    pub(crate) stored: &'a Arc<SchemaEntry>,
    /// The schema of the columns.
    pub(crate) schema: &'a Arc<SchemaEntry>,
    /// The names of the columns that the query asks for; empty for all.
    pub(crate) asked: &'a [String],
    pub(crate) engine: &'a Recall,
    pub(crate) access: &'a PartColumns,
    /// The records to read, one after the other; `None` if these are the sealed ones.
    pub(crate) replaced: Option<Replaced<'a>>,
    /// The records in which cells of sanitised groups stand, if the part has such groups.
    pub(crate) combined: Option<&'a Combined<'a>>,
}

/// The records to read instead of the sealed ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replaced<'a> {
    /// Decrypted records, each of the length of the sealed one.
    Decrypted(&'a [u8]),
    /// Records of another schema, delimited by the framing.
    Combined(&'a [u8], Framing),
}

/// Returns the record to read instead of a sealed one, and removes it from `replaced`.
fn readable<'a>(replaced: &mut Option<Replaced<'a>>, sealed: &'a [u8]) -> &'a [u8] {
    match replaced {
        None => sealed,
        Some(Replaced::Decrypted(rest)) => {
            let (record, after) = rest.split_at_checked(sealed.len()).unwrap_or_default();
            *rest = after;
            record
        }
        Some(Replaced::Combined(rest, framing)) => {
            let (record, after) = framing.split_first(rest).unwrap_or_default();
            *rest = after;
            record
        }
    }
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

    /// Returns the start of the epoch as RFC 3339 text, or `epoch N` if it is after the year 9999.
    pub(crate) fn start_text(&self) -> String {
        let start = self.start_ms.and_then(|ms| i64::try_from(ms).ok());
        let start = start.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        start.map_or_else(|| format!("epoch {}", self.statement.epoch), |start| start.to_string())
    }

    /// Returns the schema of the columns: that of the device, or the columns of it that the query asks
    /// for. The records are not records of this schema if column groups are hidden or not asked for;
    /// [`columns`](Self::columns) reads them.
    #[must_use]
    pub const fn schema(&self) -> &'a Arc<SchemaEntry> {
        self.schema
    }

    /// Returns the columns of the schema, in its order. They read the records that
    /// [`for_each`](Self::for_each) returns.
    pub fn columns(&self) -> impl Iterator<Item = Column<'a>> {
        let asked = self.asked;
        let is_asked = move |column: &Column<'_>| {
            asked.is_empty() || asked.iter().any(|name| name == column.field().name)
        };
        columns_of(self.stored, self.combined, self.access).filter(is_asked)
    }

    /// Returns the digest of the schema of the records that [`for_each`](Self::for_each) returns.
    #[cfg(feature = "columnar")]
    pub(crate) fn record_schema(&self) -> moteseal_core::digest::Digest {
        self.combined.map_or(self.stored.digest, |combined| combined.entry.digest)
    }

    /// Returns whether a sanitiser replaced columns of the rows.
    #[must_use]
    pub fn is_sanitised(&self) -> bool {
        self.combined.is_some() && self.columns().any(|column| column.origin() != Origin::Device)
    }

    /// Returns whether the device's schema has this column.
    pub(crate) fn has_column(&self, name: &str) -> bool {
        columns_of(self.stored, self.combined, self.access)
            .any(|column| column.field().name == name)
    }

    /// Returns the sealed records. Their encrypted columns are ciphertext.
    #[must_use]
    pub const fn sample(&self) -> &'a Sample<'a, Authentic> {
        self.events.sample()
    }

    /// Returns the records as a uniform sample, with the choice that determined it. Returns `None` if a
    /// query named the readings or a redactor left them in a proof: nothing may be estimated from them.
    #[must_use]
    pub const fn uniform(&self) -> Option<(&'a UniformSample<'a>, Choice)> {
        match self.events {
            Determined::Uniform(sample, choice) => Some((sample, choice)),
            Determined::Chosen(_) => None,
        }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.sample().len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the sequence number, level and record of every row, in ascending order of
    /// the sequence numbers. The cells of withheld columns are ciphertext: read values with
    /// [`columns`](Self::columns).
    pub fn for_each(&self, mut each: impl FnMut(Sequence, Level, &'a [u8])) {
        let mut replaced = self.replaced;
        self.sample().for_each(self.engine, |seq, level, sealed| {
            each(seq, level, readable(&mut replaced, sealed));
        });
    }

    /// Calls `each` with the sequence numbers and records of a few hundred rows at a time, in ascending
    /// order of the sequence numbers. This is efficient for columns. The records are those of
    /// [`for_each`](Self::for_each).
    pub fn for_each_chunk(&self, mut each: impl FnMut(&[Sequence], &[&'a [u8]])) {
        let (mut replaced, mut records) = (self.replaced, Vec::new());
        self.sample().for_each_chunk(self.engine, |chunk| {
            if replaced.is_none() {
                return each(chunk.seqs, chunk.records);
            }
            records.clear();
            records.extend(chunk.records.iter().map(|&sealed| readable(&mut replaced, sealed)));
            each(chunk.seqs, &records);
        });
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

/// Discards the rows, for a caller that only verifies.
#[derive(Clone, Copy, Debug)]
pub struct NoRows;

impl Sink for NoRows {
    fn rows(&mut self, _: &Rows<'_>) -> Result<(), OutputError> {
        Ok(())
    }
}
