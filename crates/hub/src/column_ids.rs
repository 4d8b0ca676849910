//! The ids of the columns of a device, which stay the same for ever.
//!
//! Without `#ID`, the id of a column is its position. If a column is inserted before others, or
//! removed, the ids would name other columns of the same stream from then on, and no reader would
//! notice. The state folder of each device therefore has a file with the id of each name that the
//! device has ever used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::schema::Schema;
use moteseal_files::PRIVATE;

/// The name of the file in the state folder of a device.
pub const FILE: &str = "columns.json";
/// The maximum length of the file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Why the columns of a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnIdError {
    /// A column has another id than before, or the id of another column.
    #[error("{what}; columns keep their ids; write columns = [{columns}]")]
    Changed {
        /// What has changed.
        what: String,
        /// The columns with ids that are right.
        columns: String,
    },
    /// The file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is damaged.
    #[error(
        "{}: the file with the ids of the columns is damaged; restore it, or move it away if the columns have not changed",
        .0.display()
    )]
    Damaged(PathBuf),
}

impl ColumnIdError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "ColumnIdChanged",
            Self::Io { .. } => "ColumnIdsFailed",
            Self::Damaged(_) => "ColumnIdsDamaged",
        }
    }

    /// Returns the error's kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Internal,
            Self::Changed { .. } | Self::Damaged(_) => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(ColumnIdError);

/// The ids of columns, by name.
type Ids = BTreeMap<String, u16>;

/// Checks that the columns of a schema have the ids that the file in a state folder states. Writes
/// nothing.
///
/// # Errors
/// [`ColumnIdError`].
pub fn check(state: &Path, schema: &Schema<'_>) -> Result<(), ColumnIdError> {
    known(&read(&state.join(FILE))?, schema).map(drop)
}

/// Like [`check`], and adds the columns that are new to the file. When this function returns, the file
/// is durable.
///
/// # Errors
/// [`ColumnIdError`].
pub fn record(state: &Path, schema: &Schema<'_>) -> Result<(), ColumnIdError> {
    let path = state.join(FILE);
    let before = read(&path)?;
    let ids = known(&before, schema)?;
    if ids == before {
        return Ok(());
    }
    let bytes = serde_json::to_vec_pretty(&ids).map_err(io::Error::from);
    let written = bytes.and_then(|bytes| {
        moteseal_files::create_folder(state)?;
        moteseal_files::replace(&path, &bytes, PRIVATE)
    });
    written.map_err(|error| ColumnIdError::Io { path, error })
}

fn read(path: &Path) -> Result<Ids, ColumnIdError> {
    let failed = |error| ColumnIdError::Io { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ids::new()),
        Err(error) => return Err(failed(error)),
        Ok(file) => file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?,
    };
    let ids = serde_json::from_slice(&bytes).ok().filter(|_| bytes.len() as u64 <= MAX_FILE);
    ids.ok_or_else(|| ColumnIdError::Damaged(path.to_owned()))
}

/// Returns the ids of all columns: those of earlier configurations, and those of the schema.
fn known(before: &Ids, schema: &Schema<'_>) -> Result<Ids, ColumnIdError> {
    let mut ids = before.clone();
    for field in schema.fields() {
        let (name, id) = (field.name, field.id);
        let owner = before.iter().find(|(_, of)| **of == id);
        let what = match (before.get(name), owner) {
            (Some(was), _) if *was != id => {
                format!("column {name} had the id {was} and now has {id}")
            }
            (None, Some((owner, _))) => {
                format!("column {name} is new and has the id {id} of the column {owner}")
            }
            _ => {
                ids.insert(name.to_owned(), id);
                continue;
            }
        };
        return Err(ColumnIdError::Changed { what, columns: suggested(before, schema) });
    }
    Ok(ids)
}

/// Returns the columns of a schema with their ids of before. New columns get ids that no column has.
fn suggested(before: &Ids, schema: &Schema<'_>) -> String {
    let mut highest = before.values().copied().max().unwrap_or(0);
    let fields = schema.fields().map(|mut field| {
        field.id = before.get(field.name).copied().unwrap_or_else(|| {
            highest = highest.saturating_add(1);
            highest
        });
        // The hub adds the mark of relayed columns itself.
        field.relayed = false;
        format!("\"{field}\"")
    });
    fields.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Settings};

    fn schema(columns: &[&str]) -> Vec<u8> {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Mapping::new(&Settings { columns, ..Settings::default() }).unwrap().schema().to_vec()
    }

    fn recorded(state: &Path, columns: &[&str]) -> Result<(), ColumnIdError> {
        record(state, &Schema::decode(&schema(columns)).unwrap())
    }

    #[test]
    fn a_column_keeps_its_id_and_no_other_column_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("kitchen");
        recorded(&state, &["temperature:Cel:i16/100?", "battery:%EL:u8?"]).unwrap();
        // Another unit or type, and a new column at the end, change no id.
        recorded(&state, &["temperature:K:i32/100?", "battery:%EL:u8?", "state::bool?"]).unwrap();
        for (columns, part) in [
            (
                &["humidity:%RH:u16?", "temperature:K:i32?", "battery:%EL:u8?"][..],
                "columns = [\"humidity:%RH:u16?#4\", \"temperature:K:i32?#1\", \"battery:%EL:u8?#2\"]",
            ),
            (&["battery:%EL:u8?"][..], "column battery had the id 2 and now has 1"),
            (&["pressure:hPa:u16"][..], "has the id 1 of the column temperature"),
        ] {
            let error = recorded(&state, columns).unwrap_err();
            assert_eq!(error.name(), "ColumnIdChanged");
            assert!(error.to_string().contains(part), "{error}");
        }
        // The columns of the message are accepted, also after a restart. The id of a column that is
        // no longer used is not used again.
        recorded(&state, &["humidity:%RH:u16?#4", "temperature:K:i32?#1"]).unwrap();
        assert!(recorded(&state, &["pressure:hPa:u16#2"]).is_err());
        let schema = schema(&["battery:%EL:u8?#2"]);
        check(&state, &Schema::decode(&schema).unwrap()).unwrap();
        std::fs::write(state.join(FILE), "{").unwrap();
        assert_eq!(recorded(&state, &["a::u8"]).unwrap_err().name(), "ColumnIdsDamaged");
    }
}
