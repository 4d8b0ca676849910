//! Why a stream is refused, and where: what [`StreamReader`](crate::StreamReader) returns.

use std::fmt;

use moteseal_core::cbor::DecodeError;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::schema::SchemaError;
use moteseal_seal::SealError;
use moteseal_seal::follow::{OpenError, PartError};

use crate::manifest::ManifestError;

/// Why a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// An item does not decode.
    Decode(DecodeError),
    /// A schema does not decode.
    Schema(SchemaError),
    /// An open item cannot be followed.
    Open(OpenError),
    /// A part cannot be a part of any seal.
    Part(PartError),
    /// A manifest is not the coordinator's, or none of this group.
    Manifest(ManifestError),
    /// A run is not proven.
    Seal(SealError),
    /// The stream ends, or goes to another device, within a run.
    Unsigned,
    /// A run of more parts, events or bytes than a run may have.
    RunTooLong,
    /// More bundles than this receiver takes at once: so many.
    TooManyParts(usize),
    /// Bundles that together claim more events than this receiver takes at once: so many.
    TooManyEvents(u64),
    /// A part without a signature of its own, among bundles.
    NotWhole,
    /// An item that is no schema, open, part or end, among bundles.
    NoBundle,
}

/// Why a stream is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// What is wrong.
    pub kind: ReadErrorKind,
    /// The number of the item, from 0.
    pub item: usize,
    /// The device that the stream was at.
    pub device: Option<DeviceId>,
    /// First and last index of the run in question.
    pub run: Option<(SealIndex, SealIndex)>,
}

impl ReadError {
    /// The error's name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match &self.kind {
            ReadErrorKind::Decode(error) => error.name(),
            ReadErrorKind::Schema(error) => error.name(),
            ReadErrorKind::Open(error) => error.name(),
            ReadErrorKind::Part(error) => error.name(),
            ReadErrorKind::Manifest(error) => error.name(),
            ReadErrorKind::Seal(error) => error.name(),
            ReadErrorKind::Unsigned => "Unsigned",
            ReadErrorKind::RunTooLong => "RunTooLong",
            ReadErrorKind::TooManyParts(_) => "TooManyParts",
            ReadErrorKind::TooManyEvents(_) => "TooManyEvents",
            ReadErrorKind::NotWhole => "NotWhole",
            ReadErrorKind::NoBundle => "BadBody",
        }
    }
}

impl fmt::Display for ReadErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::Schema(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Part(error) => error.fmt(f),
            Self::Manifest(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::Unsigned => f.write_str(
                "Unsigned: the stream ends, or goes elsewhere, before a signature proves its parts",
            ),
            Self::RunTooLong => f.write_str(
                "RunTooLong: more parts, events or bytes than may come under one signature",
            ),
            Self::TooManyParts(most) => {
                write!(f, "TooManyParts: at most {most} bundles are taken at once; send fewer")
            }
            Self::TooManyEvents(most) => {
                write!(
                    f,
                    "TooManyEvents: bundles that cover at most {most} events are taken at once; send fewer"
                )
            }
            Self::NotWhole => f.write_str("NotWhole: a bundle's part must carry its own signature"),
            Self::NoBundle => {
                f.write_str("BadBody: among bundles stand schema, open and part items only")
            }
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (item {}", self.kind, self.item)?;
        if let Some(device) = self.device {
            write!(f, ", device {device}")?;
        }
        match self.run {
            Some((first, last)) if first == last => write!(f, ", index {first})"),
            Some((first, last)) => write!(f, ", indices {first} to {last})"),
            None => f.write_str(")"),
        }
    }
}

impl std::error::Error for ReadError {}
