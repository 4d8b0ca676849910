//! The tests of the foundation that all protocols share.

#![allow(clippy::unwrap_used, missing_docs)]

mod cbor;
mod confidential_keys;
mod confidential_records;
mod health;
mod key_files;
mod participation;
mod provision;
mod reference;
#[cfg(feature = "host")]
mod requests;
mod roster;
mod roster_owners;
mod roster_sanitisers;
mod schema;
mod schema_2;
mod signatures;
mod signed_time;
