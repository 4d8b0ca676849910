//! Sanitised columns of verified rows: their origin, which of them a reader accepts, and the records in
//! which the new cells stand (spec/sanitised.md).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use moteseal_core::record::Framing;
use moteseal_core::schema::{Field, FieldType, Groups, MAX_SCHEMA, Schema, ValueError};
use moteseal_verify::{Proven, Sanitised, SanitisedError, SchemaEntry};

use crate::rejection::Rejection;

/// Who determined the values of a column of verified rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// The device, which signed them.
    Device,
    /// A sanitiser, which replaced the device's values and signed its own.
    Sanitised {
        /// The name of the sanitiser.
        by: &'a str,
        /// What the sanitiser did, in its words.
        policy: &'a str,
    },
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Sanitised { by, policy } => write!(f, "sanitised by {by}: {policy}"),
        }
    }
}

/// The sanitisers whose values a reader accepts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Accepted {
    #[default]
    None,
    /// Those with these names.
    Named(BTreeSet<String>),
    /// All of them, for a program that passes the values on with their statements.
    All,
}

impl Accepted {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// Refuses the sanitised columns of a part if their sanitiser is not accepted.
    pub(crate) fn check(&self, proven: &Proven<'_>, of: &[Sanitised]) -> Result<(), Rejection> {
        let Some(refused) = of.iter().find(|sanitised| !self.has(sanitised.by())) else {
            return Ok(());
        };
        let statement = proven.seal.statement();
        let schema = Schema::decode(&refused.schema().bytes).unwrap_or(Schema::OPAQUE);
        let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
        Err(Rejection::ColumnSanitised {
            device: statement.device,
            index: statement.index,
            columns: names.join(", "),
            by: refused.by().to_owned(),
        })
    }
}

/// Returns the groups of sanitised cells.
pub(crate) fn groups(of: &[Sanitised]) -> Groups {
    of.iter().fold(Groups::NONE, |groups, sanitised| groups.with(sanitised.group()))
}

/// Returns the schema of the columns to present: `presented`, in which sanitised columns have their new
/// types.
pub(crate) fn with_new_types(
    presented: &Arc<SchemaEntry>,
    sanitised: &[Sanitised],
) -> Arc<SchemaEntry> {
    if sanitised.is_empty() {
        return Arc::clone(presented);
    }
    let (schema, new) = (decoded(presented), NewFields::of(sanitised));
    let fields: Vec<Field<'_>> =
        schema.fields().map(|field| new.of_id(field.id).map_or(field, |(_, new)| new)).collect();
    encoded(&fields).unwrap_or_else(|| Arc::clone(presented))
}

fn decoded(entry: &SchemaEntry) -> Schema<'_> {
    // The entry has been decoded before.
    Schema::decode(&entry.bytes).unwrap_or(Schema::OPAQUE)
}

fn encoded(fields: &[Field<'_>]) -> Option<Arc<SchemaEntry>> {
    let mut buffer = vec![0; MAX_SCHEMA];
    let schema = Schema::encode(fields, &mut buffer).ok()?;
    SchemaEntry::decode(schema.as_bytes()).ok().map(Arc::new)
}

/// The fields of sanitised cells, with the place of their cells among those of a part.
struct NewFields<'a>(Vec<(usize, Field<'a>)>);

impl<'a> NewFields<'a> {
    fn of(sanitised: &'a [Sanitised]) -> Self {
        let fields = sanitised.iter().enumerate().flat_map(|(place, sanitised)| {
            decoded(sanitised.schema()).fields().map(move |field| (place, field))
        });
        Self(fields.collect())
    }

    fn of_id(&self, id: u16) -> Option<(usize, Field<'a>)> {
        self.0.iter().find(|(_, field)| field.id == id).copied()
    }
}

/// The records of a part in which the cells of sanitised groups have the places of the hidden ones.
#[derive(Debug)]
pub(crate) struct Combined<'s> {
    /// The schema of the records: the shown columns and the sanitised columns.
    pub(crate) entry: Arc<SchemaEntry>,
    /// The records, framed as the schema states.
    pub(crate) records: Vec<u8>,
    sanitised: &'s [Sanitised],
}

impl<'s> Combined<'s> {
    /// Combines the records of a part, whose schema is `stored`, with sanitised cells. `each_record`
    /// passes the records in ascending order of their sequence numbers.
    ///
    /// # Errors
    /// [`ValueError`], which records that have been checked do not cause.
    pub(crate) fn new(
        stored: &SchemaEntry,
        sanitised: &'s [Sanitised],
        each_record: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Result<Self, ValueError> {
        let (whole, new) = (decoded(stored.whole()), NewFields::of(sanitised));
        let mut sources: Vec<(Option<usize>, Field<'_>)> = Vec::new();
        let mut fields: Vec<Field<'_>> = Vec::new();
        for (field, column) in whole.fields().zip(whole.columns(stored.shown())) {
            match (column.shown(), new.of_id(field.id)) {
                (Ok(shown), _) => {
                    sources.push((None, shown));
                    fields.push(field.in_group(0));
                }
                (Err(_), Some((place, new))) => {
                    sources.push((Some(place), new));
                    fields.push(new);
                }
                (Err(_), None) => {}
            }
        }
        let entry = encoded(&fields).ok_or(ValueError::RecordTooShort)?;
        // A record has its cells that are not texts first.
        sources.sort_by_key(|(_, field)| field.kind == FieldType::Text);
        let mut cells: Vec<_> = sanitised.iter().map(Sanitised::records).collect();
        let (mut records, mut record, mut result) = (Vec::new(), Vec::new(), Ok(()));
        each_record(&mut |stored| {
            let new: Vec<&[u8]> =
                cells.iter_mut().map(|cells| cells.next().unwrap_or_default()).collect();
            record.clear();
            for (source, field) in &sources {
                let of = source.map_or(stored, |place| new[place]);
                match field.cell(of) {
                    Ok(cell) => record.extend_from_slice(cell),
                    Err(error) => result = Err(error),
                }
            }
            if entry.framing == Framing::Prefixed {
                let length = u16::try_from(record.len()).unwrap_or(u16::MAX);
                records.extend_from_slice(&length.to_be_bytes());
            }
            records.extend_from_slice(&record);
        });
        result.map(|()| Self { entry, records, sanitised })
    }

    /// Returns the field that reads a column of the records, and its origin. Returns `None` if the
    /// column is not in the records.
    pub(crate) fn column(&self, id: u16) -> Option<(Field<'_>, Origin<'_>)> {
        let field = decoded(&self.entry).field_with_id(id)?;
        let has = |sanitised: &&Sanitised| decoded(sanitised.schema()).field_with_id(id).is_some();
        let origin = self.sanitised.iter().find(has).map_or(Origin::Device, |sanitised| {
            Origin::Sanitised { by: sanitised.by(), policy: &sanitised.statement().policy }
        });
        Some((field, origin))
    }
}

/// Returns the rejection of sanitised cells of a part.
pub(crate) fn refused(proven: &Proven<'_>) -> impl Fn(SanitisedError) -> Rejection + use<> {
    let statement = proven.seal.statement();
    let (device, index) = (Some(statement.device), Some(statement.index));
    move |error| Rejection::Sanitised { error, device, index }
}

impl From<SanitisedError> for Rejection {
    fn from(error: SanitisedError) -> Self {
        Self::Sanitised { error, device: None, index: None }
    }
}
