//! The columns of one verified part: which of them are readable, and the decryption of its records.

use std::collections::BTreeMap;

use moteseal_core::confidential::{
    CipherError, EncryptedColumns, KeyAccessError, KeyCommitments, KeyRequest, KeyStream, SealKey,
};
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, FieldType, RecordError, Schema, Value, ValueError};
use moteseal_lanes::{Host, Recall};
use moteseal_seal::sample::Sample;
use moteseal_seal::{Authentic, Seal};
use moteseal_verify::{SchemaEntry, Urgent};

use super::{KeySource, Withheld};
use crate::sanitised::{Combined, Origin};

named_errors! {
    /// Why a device's verified record could not be decrypted. The device encrypted something that is
    /// not a record.
    PlaintextError {
        /// The record is not one of its schema.
        Record(error: RecordError) => from,
        /// The cipher failed.
        Cipher(error: CipherError) => from,
    }
}

impl From<ValueError> for PlaintextError {
    fn from(error: ValueError) -> Self {
        match error {
            ValueError::RecordTooShort => Self::Record(RecordError::RecordLength),
            _ => Self::Record(RecordError::RecordValue),
        }
    }
}

/// A column of verified rows.
///
/// A column has no method that reads values. [`readable`](Self::readable) and [`values`](Self::values) return
/// what reads them, unless the column is withheld:
///
/// ```
/// use moteseal_client::decrypt::Column;
///
/// fn value(column: &Column<'_>, record: &[u8]) -> Option<f64> {
///     column.readable().ok()?.read_f64(record).ok()?
/// }
/// ```
///
/// ```compile_fail,E0599
/// use moteseal_client::decrypt::Column;
///
/// fn value(column: &Column<'_>, record: &[u8]) -> Option<f64> {
///     column.read_f64(record).ok()?
/// }
/// ```
///
/// An [`Estimator`](crate::estimate::Estimator) takes rows and the name of a column. It gets the values as
/// above, and returns an error if the column is withheld. It accepts no column, and no field:
///
/// ```
/// use moteseal_client::estimate::Estimator;
/// use moteseal_client::{Rows, Sink};
///
/// fn take(estimator: &mut Estimator, rows: &Rows<'_>) -> bool {
///     estimator.rows(rows).is_ok()
/// }
/// ```
///
/// ```compile_fail,E0308
/// use moteseal_client::Sink;
/// use moteseal_client::decrypt::Column;
/// use moteseal_client::estimate::Estimator;
///
/// fn take(estimator: &mut Estimator, column: &Column<'_>) -> bool {
///     estimator.rows(column).is_ok()
/// }
/// ```
///
/// ```compile_fail,E0308
/// use moteseal_client::Sink;
/// use moteseal_client::decrypt::Column;
/// use moteseal_client::estimate::Estimator;
///
/// fn take(estimator: &mut Estimator, column: &Column<'_>) -> bool {
///     estimator.rows(&column.field().in_plaintext()).is_ok()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    field: Field<'a>,
    withheld: Option<Withheld>,
    origin: Origin<'a>,
}

/// The values of a column of verified rows. Code that reads values of every origin matches all variants.
#[derive(Clone, Copy, Debug)]
pub enum ColumnValues<'a> {
    /// The device's own values, which it signed.
    Device(Readable<'a>),
    /// Values by which a sanitiser replaced those of the device.
    Sanitised {
        /// Reads the values.
        values: Readable<'a>,
        /// The name of the sanitiser.
        by: &'a str,
        /// What the sanitiser did, in its words.
        policy: &'a str,
    },
    /// None: the values are not readable.
    Withheld(Withheld),
}

impl<'a> Column<'a> {
    /// Returns the field. It does not read an encrypted column; [`readable`](Self::readable) does. Do not call
    /// [`Field::in_plaintext`] to read a record of the part: that states that the column was decrypted.
    #[must_use]
    pub const fn field(&self) -> &Field<'a> {
        &self.field
    }

    /// Returns why the column is not readable, or `None` if it is.
    #[must_use]
    pub const fn withheld(&self) -> Option<Withheld> {
        self.withheld
    }

    /// Returns who determined the values of the column.
    #[must_use]
    pub const fn origin(&self) -> Origin<'a> {
        self.origin
    }

    /// Returns what reads the device's own values.
    ///
    /// # Errors
    /// [`Withheld`] if the column is encrypted and there is no key for it, or if a sanitiser replaced
    /// its values: [`values`](Self::values) reads those.
    pub fn readable(&self) -> Result<Readable<'a>, Withheld> {
        match self.values() {
            ColumnValues::Device(values) => Ok(values),
            ColumnValues::Sanitised { .. } => Err(Withheld::Sanitised),
            ColumnValues::Withheld(withheld) => Err(withheld),
        }
    }

    /// Returns the values of the column, with their origin.
    #[must_use]
    pub const fn values(&self) -> ColumnValues<'a> {
        if let Some(withheld) = self.withheld {
            return ColumnValues::Withheld(withheld);
        }
        let values = Readable(self.field.in_plaintext());
        match self.origin {
            Origin::Device => ColumnValues::Device(values),
            Origin::Sanitised { by, policy } => ColumnValues::Sanitised { values, by, policy },
        }
    }
}

/// A column whose cells are not ciphertext in the records of one part: a plain column, or one that was
/// decrypted. Only [`Column::values`] and [`Column::readable`] return one, and none for a withheld column.
/// Estimates read values only through this type:
///
/// ```
/// use moteseal_client::decrypt::{Column, Readable};
///
/// fn reader<'a>(column: &Column<'a>) -> Option<Readable<'a>> {
///     column.readable().ok()
/// }
/// ```
///
/// ```compile_fail,E0423
/// use moteseal_client::decrypt::{Column, Readable};
///
/// fn reader<'a>(column: &Column<'a>) -> Option<Readable<'a>> {
///     Some(Readable(column.field().in_plaintext()))
/// }
/// ```
///
/// The type does not hide the ciphertext. A record that [`Rows::for_each`](crate::Rows::for_each) returns has
/// the cells of all shown columns, including withheld ones. A caller that applies [`Field::in_plaintext`] to the field of
/// a withheld column wrongly asserts that its cells are plaintext, and reads random values.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a>(Field<'a>);

impl<'a> Readable<'a> {
    pub(crate) const fn field(&self) -> &Field<'a> {
        &self.0
    }

    /// Returns the value in a record of the part.
    ///
    /// # Errors
    /// The errors of [`Field::read`].
    pub fn read<'r>(&self, record: &'r [u8]) -> Result<Value<'r>, ValueError>
    where
        'a: 'r,
    {
        self.0.read(record)
    }

    /// Returns the value in a record of the part as the nearest `f64`, or `None` for null.
    ///
    /// # Errors
    /// The errors of [`Field::read`].
    pub fn read_f64(&self, record: &[u8]) -> Result<Option<f64>, ValueError> {
        self.0.read_f64(record)
    }
}

/// What the keys of a reader open of the encrypted columns of one part, by the ids of the columns.
#[derive(Debug, Default)]
pub(crate) struct PartColumns(BTreeMap<u16, Result<SealKey, Withheld>>);

/// Where the records of a part are, as its signed statement states.
struct Place<'s> {
    device: DeviceId,
    epoch: EpochNumber,
    index: SealIndex,
    keys: Option<&'s KeyCommitments>,
}

impl PartColumns {
    /// Gets the keys of a verified seal.
    pub(crate) fn of_seal(
        seal: &Seal<Authentic>,
        entry: &SchemaEntry,
        keys: KeySource<'_>,
    ) -> Self {
        let statement = seal.statement();
        let place = Place {
            device: statement.device,
            epoch: statement.epoch,
            index: statement.index,
            keys: statement.keys.as_ref(),
        };
        Self::open(&place, entry, keys)
    }

    /// Gets the keys of a verified urgent event.
    pub(crate) fn of_event(event: &Urgent, keys: KeySource<'_>) -> Self {
        let place = Place {
            device: event.device(),
            epoch: event.epoch(),
            index: event.index(),
            keys: event.keys(),
        };
        Self::open(&place, event.schema(), keys)
    }

    fn open(place: &Place<'_>, entry: &SchemaEntry, mut source: KeySource<'_>) -> Self {
        let (Some(source), Some(stated)) = (&mut source.0, place.keys) else {
            return Self::default();
        };
        // The device commits to the keys of all columns, also of those that are hidden.
        let Ok(schema) = Schema::decode(&entry.whole().bytes) else { return Self::default() };
        let mut found = BTreeMap::new();
        for ((field, column), commitment) in schema.encrypted_columns().zip(stated.commitments()) {
            let Some(suite) = field.suite else { continue };
            let Place { device, epoch, index, .. } = *place;
            let nonce = stated.nonce();
            let request = KeyRequest { device, column, epoch, index, suite, nonce };
            let key = source.seal_key(&request, commitment).and_then(|key| {
                key.check(commitment)?;
                let is_right = key.column() == column && key.suite() == suite;
                if is_right { Ok(key) } else { Err(KeyAccessError::WrongKey) }
            });
            found.insert(field.id, key.map_err(Withheld::Key));
        }
        Self(found)
    }

    /// Returns why a column of the part's schema is not readable, or `None` if it is.
    fn withheld(&self, field: &Field<'_>) -> Option<Withheld> {
        field.suite?;
        match self.0.get(&field.id) {
            Some(Ok(_)) => None,
            Some(Err(withheld)) => Some(*withheld),
            None => Some(Withheld::Encrypted),
        }
    }

    fn is_readable(&self, field: &Field<'_>) -> bool {
        field.suite.is_some() && self.withheld(field).is_none()
    }

    /// Returns what decrypts the records, which are those of the projection to the shown groups. Returns
    /// `None` if there is no key.
    fn decryption<'e>(&self, entry: &'e SchemaEntry) -> Option<Decryption<'e>> {
        let opens = |access: &Result<SealKey, Withheld>| access.is_ok();
        let has_key = self.0.values().any(opens);
        let schema = has_key.then(|| Schema::decode(&entry.bytes).ok())??;
        let key = |field: &Field<'_>| self.0.get(&field.id)?.as_ref().ok().cloned();
        let keys: Vec<_> = schema.encrypted_columns().map(|(field, _)| key(&field)).collect();
        // The other types have no invalid values.
        let is_checked = |kind: FieldType| {
            matches!(kind, FieldType::Bool | FieldType::Enum | FieldType::Point | FieldType::Text)
        };
        let checked = schema.fields().filter(|field| self.is_readable(field));
        let checked: Vec<_> = checked.filter(|field| is_checked(field.kind)).collect();
        let columns = EncryptedColumns::of(&schema);
        Some(Decryption { columns, keys, checked })
    }

    /// Decrypts the columns for which there are keys, and checks their values. Returns the records in
    /// the order of their sequence numbers, one after the other, or `None` if there is no key. Each
    /// record has the same length as before.
    pub(crate) fn decrypt(
        &self,
        entry: &SchemaEntry,
        sample: &Sample<'_, Authentic>,
        engine: &Recall,
    ) -> Result<Option<Vec<u8>>, (Sequence, PlaintextError)> {
        let Some(decryption) = self.decryption(entry) else { return Ok(None) };
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        sample.for_each(engine, |seq, _, record| {
            bytes.extend_from_slice(record);
            records.push((seq, record.len()));
        });
        decryption.apply_all(engine.host(), &records, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Decrypts the record of an urgent event as [`decrypt`](Self::decrypt) does.
    pub(crate) fn decrypt_event(&self, event: &Urgent) -> Result<Vec<u8>, PlaintextError> {
        let mut record = event.record().to_vec();
        match self.decryption(event.schema()) {
            Some(decryption) => {
                let mut streams = decryption.streams();
                decryption.apply(&mut streams, event.seq(), &mut record).map(|()| record)
            }
            None => Ok(record),
        }
    }
}

struct Decryption<'e> {
    columns: EncryptedColumns,
    /// The keys of the encrypted columns, in the order of the schema; `None` where there is no key.
    keys: Vec<Option<SealKey>>,
    /// The decrypted columns whose types have invalid values.
    checked: Vec<Field<'e>>,
}

impl Decryption<'_> {
    /// Decrypts records that lie one after the other; `records` has their sequence numbers and lengths.
    fn apply_all(
        &self,
        host: Host,
        records: &[(Sequence, usize)],
        bytes: &mut [u8],
    ) -> Result<(), (Sequence, PlaintextError)> {
        let Some((first, size)) = records.first().copied() else { return Ok(()) };
        let is_fixed = self.columns.fixed_cells().all(|cell| cell.is_some());
        if is_fixed && records.iter().all(|(_, length)| *length == size) {
            let sequences: Vec<_> = records.iter().map(|(seq, _)| *seq).collect();
            host.apply_key_streams(&self.columns, &sequences, (size, bytes), &self.keys)
                .map_err(|error| (first, error.into()))?;
            if self.checked.is_empty() {
                return Ok(());
            }
            let records = sequences.into_iter().zip(bytes.chunks_exact(size));
            for (seq, record) in records {
                for field in &self.checked {
                    field.in_plaintext().read(record).map_err(|error| (seq, error.into()))?;
                }
            }
            return Ok(());
        }
        let (mut streams, mut rest) = (self.streams(), bytes);
        for (seq, length) in records {
            let (record, later) = rest.split_at_mut(*length);
            self.apply(&mut streams, *seq, record).map_err(|error| (*seq, error))?;
            rest = later;
        }
        Ok(())
    }

    fn streams(&self) -> Vec<Option<KeyStream>> {
        self.keys.iter().map(|key| key.clone().map(KeyStream::new)).collect()
    }

    /// Decrypts one record; `streams` are those of the columns.
    fn apply(
        &self,
        streams: &mut [Option<KeyStream>],
        seq: Sequence,
        record: &mut [u8],
    ) -> Result<(), PlaintextError> {
        let decrypted = self.columns.decrypt(seq, record, streams)?;
        for field in &self.checked {
            decrypted.read(field)?;
        }
        Ok(())
    }
}

/// Returns the columns of a stream's schema, with what `access` opens of them. `entry` is the schema of
/// the part's records; `combined` has the records to read instead if groups are sanitised. A column of a
/// hidden group has no values.
pub(crate) fn columns_of<'a>(
    entry: &'a SchemaEntry,
    combined: Option<&'a Combined<'a>>,
    access: &PartColumns,
) -> impl Iterator<Item = Column<'a>> {
    // The entry has been decoded before, so this does not fail.
    let schema = Schema::decode(&entry.whole().bytes).ok().into_iter();
    let shown = entry.shown();
    let columns = schema.flat_map(move |schema| schema.fields().zip(schema.columns(shown)));
    columns.map(move |(field, column)| {
        let (shown, origin) = match combined {
            Some(combined) => combined.column(field.id).unzip(),
            None => (column.shown().ok(), Some(Origin::Device)),
        };
        let (withheld, origin) = match (&shown, origin) {
            (Some(shown), Some(origin)) => (access.withheld(shown), origin),
            _ => (Some(Withheld::Hidden), Origin::Device),
        };
        Column { field: shown.unwrap_or(field), withheld, origin }
    })
}
