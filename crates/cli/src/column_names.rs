//! The names of encrypted columns, which grants identify by their ids.

use std::collections::BTreeMap;
use std::path::Path;

use moteseal_core::confidential::ColumnId;
use moteseal_core::schema::Schema;
use moteseal_grant::Owner;
use moteseal_seal::stream::Item;

use crate::failure::Failure;
use crate::files;

/// Names of columns by their ids.
///
/// An id is a digest of the column's description, so a schema that has not been verified cannot give an
/// id a wrong name.
#[derive(Debug, Default)]
pub(crate) struct ColumnNames(BTreeMap<ColumnId, String>);

impl ColumnNames {
    /// Adds the columns of an owner.
    pub(crate) fn add_owner(&mut self, owner: &Owner) {
        let columns = owner.streams().iter().flat_map(moteseal_grant::Stream::columns);
        self.0.extend(columns.map(|column| (column.id, column.name.clone())));
    }

    /// Adds the columns of the schemas in a bundle or a proof.
    pub(crate) fn add_schemas(&mut self, path: &Path) -> Result<(), Failure> {
        let bytes = files::read(path)?;
        let (mut rest, mut is_empty) = (&bytes[..], true);
        while let Ok((item, length)) = Item::decode(rest) {
            rest = &rest[length..];
            if let Item::Schema(schema) = item
                && let Ok(schema) = Schema::decode(schema)
            {
                let columns = schema.encrypted_columns();
                self.0.extend(columns.map(|(field, id)| (id, field.name.to_owned())));
                is_empty = false;
            }
        }
        if is_empty {
            let what =
                "it has no schema; name a bundle (.mseal) or a proof (.mproof) of the devices";
            return Err(Failure::usage(what).about(path));
        }
        Ok(())
    }

    /// Returns the name of a column.
    pub(crate) fn get(&self, id: ColumnId) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// Returns the name of a column, or its id if the name is not known.
    pub(crate) fn text(&self, id: ColumnId) -> String {
        self.get(id).map_or_else(|| id.to_string(), str::to_owned)
    }
}
