//! Verifies urgent events on hosts (spec/objects.md, section 7), alone and in a stream
//! (spec/answers.md, section 9).
//!
//! [`Urgent`] is the proof that the device signed the event: only the check of the signature
//! creates one. It proves neither that the store has returned all urgent events, nor that a seal
//! covers the reading.

use std::fmt;
use std::sync::Arc;

use moteseal_core::cbor::{BufferTooSmall, DecodeError, item_length};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::error::Named;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{RecordError, SchemaError};
use moteseal_seal::stream::Item;
use moteseal_seal::{UrgentError, UrgentEvent};

use crate::event::SchemaEntry;

/// The first byte of a tagged `COSE_Sign1`, by which an event is told from the other items of a
/// stream, which are arrays.
const TAGGED: u8 = 0xd2;

/// An urgent event that its device signed, with the schema of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urgent {
    device: DeviceId,
    index: SealIndex,
    epoch: EpochNumber,
    seq: Sequence,
    digest: Digest,
    keys: Option<KeyCommitments>,
    schema: Arc<SchemaEntry>,
    bytes: Vec<u8>,
    record: Vec<u8>,
}

impl Urgent {
    /// Verifies a signed event with the key that the directory has for its device, index and epoch.
    ///
    /// # Errors
    /// [`UrgentRefused`]: the first check that fails, in the order of spec/objects.md, section 7,
    /// and spec/answers.md, section 9.
    pub fn open<D: Directory + ?Sized>(
        bytes: &[u8],
        schema: &Arc<SchemaEntry>,
        directory: &D,
    ) -> Result<Self, UrgentRefused> {
        let event = UrgentEvent::open(bytes, directory, &mut vec![0; bytes.len() + 64])?;
        if event.schema != schema.digest {
            return Err(UrgentRefused::SchemaUnknown);
        }
        let (first, last) = directory.epochs();
        if event.epoch < first || last.is_some_and(|last| event.epoch > last) {
            return Err(UrgentRefused::EpochOutOfRange);
        }
        if event.keys.map_or(0, |keys| keys.commitments().len()) != schema.encrypted {
            return Err(UrgentRefused::KeyCommitmentCount);
        }
        let is_record = match schema.framing {
            Framing::Fixed(size) => event.record.len() == usize::from(size.get()),
            Framing::Prefixed => true,
        };
        if !is_record {
            return Err(UrgentRefused::RecordLength);
        }
        if let Some(check) = &schema.check {
            check.check(event.record)?;
        }
        Ok(Self {
            device: event.device,
            index: event.index,
            epoch: event.epoch,
            seq: event.seq,
            digest: UrgentEvent::digest(bytes).map_err(UrgentError::Decode)?,
            keys: event.keys,
            schema: Arc::clone(schema),
            bytes: bytes.to_vec(),
            record: event.record.to_vec(),
        })
    }

    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the index of the seal in which the device placed the reading.
    #[must_use]
    pub const fn index(&self) -> SealIndex {
        self.index
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the place of the reading in the seal.
    #[must_use]
    pub const fn seq(&self) -> Sequence {
        self.seq
    }

    /// Returns the digest of the signed event. It does not depend on the signature.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the nonce and the commitments to the keys of the encrypted columns; `None` if the schema
    /// has no encrypted columns.
    #[must_use]
    pub const fn keys(&self) -> Option<&KeyCommitments> {
        self.keys.as_ref()
    }

    /// Returns the schema of the record.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.schema
    }

    /// Returns the record.
    #[must_use]
    pub fn record(&self) -> &[u8] {
        &self.record
    }

    /// Returns the signed event, a tagged `COSE_Sign1`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why an urgent event, or a stream of urgent events, is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrgentRefused {
    /// The event does not decode, or its device did not sign it.
    #[error(transparent)]
    Event(#[from] UrgentError),
    /// No schema item before the event has the schema that the event names.
    #[error("no schema item before the event has the schema that the event names")]
    SchemaUnknown,
    /// A schema item is not valid.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The event's epoch is outside the roster's epochs.
    #[error("the event's epoch is outside the roster's epochs")]
    EpochOutOfRange,
    /// The event does not state as many keys as its schema has encrypted columns.
    #[error(
        "the number of keys that the event states is not that of the schema's encrypted columns"
    )]
    KeyCommitmentCount,
    /// The record is not one record of the schema.
    #[error("the record of the event does not have the length that its schema determines")]
    RecordLength,
    /// A cell of the record is not a value of its column.
    #[error("a cell of the event's record is not a value of its column")]
    RecordValue,
    /// The stream has an item of another kind, or an item after its end.
    #[error("the stream has an item that is neither a schema nor an event")]
    UnknownItem,
    /// The stream has more events than the receiver accepts.
    #[error("the stream has too many events or schemas; send fewer at once")]
    TooManyParts,
    /// The stream ends before its end item.
    #[error("the stream ends before its end item")]
    Truncated,
}

impl UrgentRefused {
    /// Returns the error's name: spec/errors.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event(error) => error.name(),
            Self::SchemaUnknown => "SchemaUnknown",
            Self::Schema(error) => error.name(),
            Self::EpochOutOfRange => "EpochOutOfRange",
            Self::KeyCommitmentCount => "KeyCommitmentCount",
            Self::RecordLength => "RecordLength",
            Self::RecordValue => "RecordValue",
            Self::UnknownItem => "UnknownItem",
            Self::TooManyParts => "TooManyParts",
            Self::Truncated => "Truncated",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl From<RecordError> for UrgentRefused {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::RecordLength => Self::RecordLength,
            _ => Self::RecordValue,
        }
    }
}

impl From<DecodeError> for UrgentRefused {
    fn from(error: DecodeError) -> Self {
        Self::Event(UrgentError::Decode(error))
    }
}

impl From<BufferTooSmall> for UrgentRefused {
    fn from(error: BufferTooSmall) -> Self {
        Self::Event(UrgentError::Buffer(error))
    }
}

/// An item of a stream that was rejected, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentStreamError {
    /// The number of the item in the stream, from 0.
    pub item: usize,
    /// Why it was rejected.
    pub error: UrgentRefused,
}

impl UrgentStreamError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.error.name()
    }
}

impl fmt::Display for UrgentStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {}: {}", self.item, self.error)
    }
}

impl std::error::Error for UrgentStreamError {}

/// The verified events of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrgentStream {
    /// The events, in the order of the stream.
    pub events: Vec<Urgent>,
    /// The number of events that are void, because the roster has ended the key that signed them.
    /// Only an answer may have them.
    pub void: usize,
}

/// Reads a stream of urgent events: schema items, events, and an end item. Only an answer
/// (`is_answer`) must have an end item and may have void events. Verifies each event. Calls `pause`
/// after each event. The stream has at most `most` events and as many schemas.
///
/// # Errors
/// [`UrgentStreamError`]: the first item that is rejected.
pub fn read<D: Directory + ?Sized>(
    stream: &[u8],
    directory: &D,
    (most, is_answer): (usize, bool),
    pause: &mut dyn FnMut(),
) -> Result<UrgentStream, UrgentStreamError> {
    let (mut read, mut schemas, mut has_ended) = (UrgentStream::default(), Vec::new(), false);
    let (mut rest, mut item) = (stream, 0);
    while !rest.is_empty() {
        let at = |error: UrgentRefused| UrgentStreamError { item, error };
        if has_ended {
            return Err(at(UrgentRefused::UnknownItem));
        }
        let length = item_length(rest).map_err(|error| at(error.into()))?;
        let (bytes, tail) = rest.split_at(length);
        if bytes.first() == Some(&TAGGED) {
            if read.events.len() + read.void == most {
                return Err(at(UrgentRefused::TooManyParts));
            }
            match one(bytes, &schemas, directory) {
                Err(error) if is_answer && error.name() == "KeyEnded" => read.void += 1,
                event => read.events.push(event.map_err(at)?),
            }
            pause();
        } else {
            match Item::decode(bytes).map_err(|error| at(error.into()))?.0 {
                Item::Schema(_) if schemas.len() == most => {
                    return Err(at(UrgentRefused::TooManyParts));
                }
                Item::Schema(schema) => {
                    let entry = SchemaEntry::decode(schema).map_err(|error| at(error.into()))?;
                    schemas.push(Arc::new(entry));
                }
                Item::End => has_ended = true,
                _ => return Err(at(UrgentRefused::UnknownItem)),
            }
        }
        (rest, item) = (tail, item + 1);
    }
    if is_answer && !has_ended {
        return Err(UrgentStreamError { item, error: UrgentRefused::Truncated });
    }
    Ok(read)
}

/// Verifies an event whose schema is one of `schemas`.
fn one<D: Directory + ?Sized>(
    bytes: &[u8],
    schemas: &[Arc<SchemaEntry>],
    directory: &D,
) -> Result<Urgent, UrgentRefused> {
    // Before the signature is checked, the schema's digest is only a claim, which selects the
    // schema with which the event is compared.
    let claimed = UrgentEvent::claimed_schema(bytes).map_err(UrgentError::Decode)?;
    let schema = schemas.iter().rev().find(|schema| schema.digest == claimed);
    Urgent::open(bytes, schema.ok_or(UrgentRefused::SchemaUnknown)?, directory)
}
