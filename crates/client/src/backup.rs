//! Backups of a cloud while it runs: [`export()`] writes what a cloud stores into a folder
//! or a bucket of S3,
//! [`import()`] uploads it to a cloud, and [`check()`] verifies it offline (docs/backup.md).
//!
//! A backup consists of objects that are named by what they contain, and of an index, which is
//! written last. An object never changes: an export writes the objects of the blocks that have
//! changed since the last one, replaces the index, and then removes the objects that the new index
//! does not name. If it is killed at any time, the old index is still complete, and the next export
//! uses the objects that were written.
//!
//! The cloud is not trusted: everything is verified with the roster before it is written.

#[cfg(feature = "s3")]
mod bucket;
mod check;
mod content;
mod export;
mod import;
mod index;
mod place;

use std::fmt;

use moteseal_api::ErrorKind;
use moteseal_net::NetError;

pub use check::{Checked, check};
pub use export::{Exported, export};
pub use import::{Imported, import};
pub use index::{INDEX, Index};
pub use place::Place;

/// Why a backup was not written, read or uploaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The cloud could not be reached, or it refused a request.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The cloud or the backup belongs to another group than the roster.
    #[error("{whose} belongs to the group {group}; use the roster and the cloud of one group")]
    OtherGroup {
        /// The cloud or the backup.
        whose: String,
        /// The id of its group.
        group: String,
    },
    /// There is no index.
    #[error("{place} has no index.json, so it is no backup, or no export has finished")]
    NoIndex {
        /// The place of the backup.
        place: String,
    },
    /// The index or an object is not what it should be.
    #[error("{object}: {what}; restore it from another copy, or export again")]
    Damaged {
        /// The name of the object.
        object: String,
        /// What is wrong.
        what: String,
    },
    /// The address of a bucket is wrong, or an environment variable for S3.
    #[error("{address}: {what}; the form is s3://BUCKET[/PREFIX]")]
    Bucket {
        /// The address.
        address: String,
        /// What is wrong.
        what: String,
    },
    /// The server of a bucket refuses a request.
    #[error("cannot {action} {object}: {cause}")]
    BucketRefused {
        /// `read`, `write`, `list` or `remove`.
        action: &'static str,
        /// The address of the object.
        object: String,
        /// Why, and what to do.
        cause: String,
    },
    /// The server of a bucket does not answer, or failed.
    #[error("cannot {action} {object}: {cause}")]
    BucketUnreachable {
        /// `read`, `write`, `list` or `remove`.
        action: &'static str,
        /// The address of the object.
        object: String,
        /// The cause.
        cause: String,
    },
    /// A file could not be read or written, or an object of a bucket is too long.
    #[error("cannot {action} {object}: {cause}")]
    Io {
        /// `read`, `write`, `list` or `remove`.
        action: &'static str,
        /// The path, or the address.
        object: String,
        /// The cause.
        cause: String,
    },
}

impl BackupError {
    /// Returns the error's stable name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Net(error) => error.name(),
            Self::OtherGroup { .. } => "OtherGroup",
            Self::NoIndex { .. } => "NoIndex",
            Self::Damaged { .. } => "BackupDamaged",
            Self::Bucket { .. } => "BadAddress",
            Self::BucketRefused { .. } => "BucketRefused",
            Self::BucketUnreachable { .. } => "Unreachable",
            Self::Io { .. } => "BadFile",
        }
    }

    /// Returns the kind, from which a caller decides what to do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Net(error) => error.kind(),
            Self::OtherGroup { .. }
            | Self::NoIndex { .. }
            | Self::Bucket { .. }
            | Self::BucketRefused { .. } => ErrorKind::Usage,
            Self::BucketUnreachable { .. } => ErrorKind::Unreachable,
            Self::Damaged { .. } => ErrorKind::Refused,
            Self::Io { .. } => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(BackupError);

/// Something of a backup that was left out or is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the error.
    pub name: String,
    /// The seal, manifest, event or object.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.name)
    }
}

/// The maximum number of findings that are listed. Further ones are counted.
const FINDINGS: usize = 100;

/// Findings, of which only the first are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first findings.
    pub listed: Vec<Finding>,
    /// The number of all findings.
    pub count: u64,
}

impl Findings {
    fn add(&mut self, name: &str, what: impl Into<String>) {
        self.count += 1;
        if self.listed.len() < FINDINGS {
            self.listed.push(Finding { name: name.to_owned(), what: what.into() });
        }
    }
}
