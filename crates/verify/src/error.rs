//! The errors of [`StreamReader`](crate::StreamReader): why a stream is rejected, and where.

use moteseal_core::cbor::DecodeError;
use moteseal_core::error::Named;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::schema::SchemaError;
use moteseal_seal::SealError;
use moteseal_seal::follow::{OpenError, PartError};

use crate::manifest::ManifestError;

/// Why a stream is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// An item does not decode.
    #[error(transparent)]
    Decode(DecodeError),
    /// A schema does not decode.
    #[error(transparent)]
    Schema(SchemaError),
    /// An open item does not fit the roster or the known seals.
    #[error(transparent)]
    Open(OpenError),
    /// A part cannot belong to any seal.
    #[error(transparent)]
    Part(PartError),
    /// A manifest is not signed by the coordinator, or is of another group.
    #[error(transparent)]
    Manifest(ManifestError),
    /// A run is not proven.
    #[error(transparent)]
    Seal(SealError),
    /// The stream ends, or changes to another device, within a run.
    #[error("the stream ends, or changes to another device, before a signature proves its parts")]
    Unsigned,
    /// A run has more parts, events or bytes than a run may have.
    #[error("there are more parts, events or bytes than one signature may cover")]
    RunTooLong,
    /// The stream has more bundles than this receiver accepts at once. The field is the maximum.
    #[error("at most {0} bundles are accepted at once; send fewer")]
    TooManyParts(usize),
    /// The bundles together claim more events than this receiver accepts at once; the field is the
    /// maximum.
    #[error("bundles that cover at most {0} events are accepted at once; send fewer")]
    TooManyEvents(u64),
    /// A stream of bundles contains a part without its own signature.
    #[error("every part of a bundle must have its own signature")]
    NotWhole,
    /// A stream of bundles contains an item other than schema, open, part and end.
    #[error("only schema, open, part and end items may occur among bundles")]
    NoBundle,
    /// A proof starts with another item than its query.
    #[error("the file does not start with a query; `moteseal get --proof` writes proofs")]
    NotAProof,
    /// The end item of an answer is not the last one.
    #[error("there are more bytes after the end item")]
    Trailing,
}

/// Why a stream is rejected, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (item {item}{})", at(*device, *run))]
pub struct ReadError {
    /// What is wrong.
    pub kind: ReadErrorKind,
    /// The position of the rejected item in the stream, from 0.
    pub item: usize,
    /// The device to which the item belongs, if it is known.
    pub device: Option<DeviceId>,
    /// The first and the last index of the rejected run, if it is known.
    pub run: Option<(SealIndex, SealIndex)>,
}

impl ReadErrorKind {
    /// Returns the stable name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Decode(error) => error.name(),
            Self::Schema(error) => error.name(),
            Self::Open(error) => error.name(),
            Self::Part(error) => error.name(),
            Self::Manifest(error) => error.name(),
            Self::Seal(error) => error.name(),
            Self::Unsigned => "Unsigned",
            Self::RunTooLong => "RunTooLong",
            Self::TooManyParts(_) => "TooManyParts",
            Self::TooManyEvents(_) => "TooManyEvents",
            Self::NotWhole => "NotWhole",
            Self::NoBundle => "BadBody",
            Self::NotAProof => "NotAProof",
            Self::Trailing => "TrailingBytes",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(&self) -> Named<'static, &Self> {
        Named { name: self.name(), error: self }
    }
}

impl ReadError {
    /// Returns the stable name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(&self) -> Named<'static, &Self> {
        Named { name: self.name(), error: self }
    }
}

/// Returns `, device D, index I`, or the part of it that is known.
fn at(device: Option<DeviceId>, run: Option<(SealIndex, SealIndex)>) -> String {
    let device = device.map_or_else(String::new, |device| format!(", device {device}"));
    match run {
        Some((first, last)) if first == last => format!("{device}, index {first}"),
        Some((first, last)) => format!("{device}, indices {first} to {last}"),
        None => device,
    }
}
