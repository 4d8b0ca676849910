//! Why a response ends early.

use moteseal_store::{ReadError, StoredSeal};

/// Why a response ends early.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) name: &'static str,
    pub(super) detail: String,
}

impl Stop {
    /// An error of a seal, whose device and index precede the detail.
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
