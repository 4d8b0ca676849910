//! The columns that a query asks for (`spec/answers.md`, section 4.6). The response must show exactly
//! the column groups that have them, so that a store can neither withhold a column nor send more.

use std::sync::Arc;

use moteseal_api::{Query, groups_of};
use moteseal_core::digest::Digest;
use moteseal_core::schema::{Field, Groups, MAX_SCHEMA, Schema};
use moteseal_verify::{Proven, SchemaEntry};

use crate::rejection::Rejection;

/// The columns that a query asks for, and what they are in the newest schema.
#[derive(Debug, Default)]
pub(super) struct AskedColumns {
    names: Vec<String>,
    newest: Option<Newest>,
}

/// The newest schema.
#[derive(Debug)]
struct Newest {
    digest: Digest,
    /// The groups that the query asks for.
    groups: Groups,
    /// The schema that has only the columns that the query asks for, or the whole schema.
    presented: Arc<SchemaEntry>,
}

impl AskedColumns {
    /// Returns the names of the columns; empty if the query asks for all.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Checks that a part of an answer shows the groups that the query asks for, and no others. The
    /// groups `sanitised` are shown by a sanitiser.
    pub(super) fn check(
        &mut self,
        query: &Query,
        proven: &Proven<'_>,
        sanitised: Groups,
    ) -> Result<(), Rejection> {
        let statement = proven.seal.statement();
        let (device, index) = (statement.device, statement.index);
        let entry = proven.schema.whole();
        if self.newest.as_ref().is_none_or(|newest| newest.digest != entry.digest) {
            let schema = Schema::decode(&entry.bytes).unwrap_or(Schema::OPAQUE);
            let has = |name: &&String| schema.field(name).is_some();
            if let Some(column) = query.columns.iter().find(|name| !has(name)) {
                let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
                let (column, known) = (column.clone(), names.join(", "));
                let epoch = statement.epoch;
                return Err(Rejection::UnknownColumn { device, index, epoch, column, known });
            }
            self.names.clone_from(&query.columns);
            self.newest = Some(Newest {
                digest: entry.digest,
                groups: groups_of(&schema, &query.columns),
                presented: Arc::new(presented(entry, &schema, &query.columns)),
            });
        }
        let Some(newest) = &self.newest else { return Ok(()) };
        let (asked, shown) = (newest.groups, proven.schema.shown().union(sanitised));
        if asked == shown {
            return Ok(());
        }
        if asked.is_subset(shown) {
            return Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) });
        }
        let lacking = asked.without(shown);
        let schema = Schema::decode(&entry.bytes).unwrap_or(Schema::OPAQUE);
        let is_lacking = |field: &Field<'_>| {
            let is_asked =
                query.columns.is_empty() || query.columns.iter().any(|name| name == field.name);
            is_asked && lacking.contains(field.group)
        };
        let columns: Vec<&str> =
            schema.fields().filter(is_lacking).map(|field| field.name).collect();
        Err(Rejection::ColumnWithheld { device, index, columns: columns.join(", ") })
    }

    /// Returns the schema of the columns to present of records of this schema.
    pub(super) fn presented(&self, entry: &Arc<SchemaEntry>) -> Arc<SchemaEntry> {
        let whole = entry.whole();
        match &self.newest {
            Some(newest) if newest.digest == whole.digest => Arc::clone(&newest.presented),
            _ if self.names.is_empty() && whole.digest == entry.digest => Arc::clone(entry),
            _ => {
                let schema = Schema::decode(&whole.bytes).unwrap_or(Schema::OPAQUE);
                Arc::new(presented(whole, &schema, &self.names))
            }
        }
    }
}

/// Returns the schema that has only the columns `names`, in their order in the schema.
fn presented(entry: &SchemaEntry, schema: &Schema<'_>, names: &[String]) -> SchemaEntry {
    if names.is_empty() {
        return entry.clone();
    }
    let is_asked = |field: &Field<'_>| names.iter().any(|name| name == field.name);
    let fields: Vec<Field<'_>> =
        schema.fields().filter(is_asked).map(|field| field.in_group(0)).collect();
    let mut buffer = vec![0; MAX_SCHEMA];
    // Columns of a valid schema are a valid schema.
    let encoded = Schema::encode(&fields, &mut buffer);
    let presented = encoded.ok().and_then(|schema| SchemaEntry::decode(schema.as_bytes()).ok());
    presented.unwrap_or_else(|| entry.clone())
}
