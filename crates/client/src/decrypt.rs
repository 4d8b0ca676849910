//! Decrypts the encrypted columns of verified rows (spec/confidential.md).
//!
//! A reader passes the keys that it has to [`Session::with_keys`](crate::Session::with_keys) or
//! [`Get::keys`](crate::Get::keys): those of grants, or those of a device's own stream secret
//! ([`DeviceKeys`]). Nothing is decrypted before the seal of its record has been verified. A column
//! whose key is missing is withheld: its cells are null in every output, and [`Withheld`] states why.

mod device_keys;
#[cfg(feature = "grants")]
mod key_files;
mod key_set;
mod part;

pub use device_keys::DeviceKeys;
#[cfg(feature = "grants")]
pub use key_files::{ColumnKeyFiles, OpenKeys};
pub use key_set::KeySet;
pub use moteseal_core::confidential::{KeyRequest, SealKeys};
#[cfg(feature = "grants")]
pub use moteseal_grant::Passphrase;
pub use part::{Column, ColumnValues, PlaintextError, Readable};

pub(crate) use part::{PartColumns, columns_of};

use std::fmt;

use moteseal_core::confidential::KeyAccessError;

/// Why the cells of a column are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Withheld {
    /// The reader gave no keys.
    #[error("the column is encrypted; to read it, use a grant of its owner")]
    Encrypted,
    /// The keys that the reader gave do not open the column.
    #[error(transparent)]
    Key(#[from] KeyAccessError),
    /// The column's group is hidden: its cells are not in the proof.
    #[error("the cells of the column are not in the proof; ask for a proof that shows them")]
    Hidden,
    /// A sanitiser replaced the device's values of the column.
    #[error(
        "a sanitiser replaced the values of the column, and only those of the device are wanted"
    )]
    Sanitised,
}

impl Withheld {
    /// Returns the stable name (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Encrypted => "Encrypted",
            Self::Key(error) => error.name(),
            Self::Hidden => "ColumnHidden",
            Self::Sanitised => "ColumnSanitised",
        }
    }
}

/// An encrypted or hidden column of which rows are null, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldColumn {
    /// The name of the column.
    pub column: String,
    /// Why its cells are null.
    pub reason: Withheld,
    /// The number of seals of which they are null.
    pub seals: u64,
    /// The number of rows in which they are null.
    pub rows: u64,
}

/// The keys of a reader, if there are any.
pub(crate) struct KeySource<'k>(Option<&'k mut dyn SealKeys>);

impl<'k> KeySource<'k> {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new(keys: &'k mut dyn SealKeys) -> Self {
        Self(Some(keys))
    }

    pub(crate) fn reborrow(&mut self) -> KeySource<'_> {
        match &mut self.0 {
            Some(keys) => KeySource(Some(&mut **keys)),
            None => KeySource(None),
        }
    }
}

impl fmt::Debug for KeySource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "keys" } else { "no keys" })
    }
}
