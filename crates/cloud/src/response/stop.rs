//! The error that ends a response early.

use moteseal_store::{ReadError, StoredSeal};

/// The error that ends a response early.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) name: &'static str,
    pub(super) detail: String,
}

impl Stop {
    /// Creates an error about a seal. The detail starts with the seal's device and index.
    pub(super) fn at(name: &'static str, seal: &StoredSeal, detail: &str) -> Self {
        let statement = seal.seal().statement();
        Self {
            name,
            detail: format!("device {}, index {}: {detail}", statement.device, statement.index),
        }
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self { name: error.name(), detail: error.to_string() }
    }
}
