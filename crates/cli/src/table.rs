//! Stores in a keyspace of Cassandra, which the options of a store name by a URL instead of a file.

use std::path::Path;

use moteseal_api::NamedError as _;
use moteseal_table::{Access, Address, OpenError, Options, TableStore};

use crate::failure::{Exit, Failure};

/// Returns the address if `store` is a URL and not a path.
pub(crate) fn address(store: &Path) -> Result<Option<Address>, Failure> {
    let Some(text) = store.to_str().filter(|text| Address::is_address(text)) else {
        return Ok(None);
    };
    let address = Address::parse(text).map_err(|error| failure(&error.into()))?;
    Ok(Some(address))
}

/// Opens a store in a keyspace.
pub(crate) fn open(address: &Address, access: Access) -> Result<TableStore, Failure> {
    TableStore::open(address, Options { access, ..Options::default() })
        .map_err(|error| failure(&error))
}

pub(crate) fn failure(error: &OpenError) -> Failure {
    Failure::named(error.kind().into(), error.named())
}

/// Returns the failure of a read of an open store.
pub(crate) fn unreadable(store: &Path, error: &moteseal_store::ReadError) -> Failure {
    let exit: Exit = error.kind().into();
    Failure::new(exit, format_args!("{}: {}: {error}", store.display(), error.name()))
}
