//! The tests of the foundation that all protocols share.

#![allow(clippy::unwrap_used, missing_docs)]

mod cbor;
mod key_files;
mod provision;
mod reference;
mod roster;
mod schema;
mod signatures;
