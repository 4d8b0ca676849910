//! Urgent events, which are signed individually and sent at once (spec/objects.md, section 7). The
//! signed object has no salt and no counters. The event is also part of the epoch's seal. The
//! urgent form is never part of a sample.

use crate::seal::{SealError, verify_by_roster};
use crate::statement::{encode_keys, read_version};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::cose::{self, Protected, Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, MAX_PAYLOAD, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::Groups;
use moteseal_core::signature::Algorithm;

/// Maximum length of the protected header of an urgent event in bytes.
const MAX_HEADER: usize = 512;

/// An event that cannot wait for the end of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentEvent<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that the device uses.
    pub roster: Digest,
    /// The device.
    pub device: DeviceId,
    /// The seal that will cover the event.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The sequence number of the event under that seal.
    pub seq: Sequence,
    /// The digest of the stream schema.
    pub schema: Digest,
    /// The nonce and the commitments of the seal; `None` if the schema has no encrypted columns.
    pub keys: Option<KeyCommitments>,
    /// The record.
    pub record: &'a [u8],
}

impl<'a> UrgentEvent<'a> {
    fn protected<'b>(
        &self,
        algorithm: Algorithm,
        buffer: &'b mut [u8; MAX_HEADER],
    ) -> Result<&'b [u8], BufferTooSmall> {
        let mut text = [0; MAX_HEADER];
        let mut out = Writer::new(&mut text);
        let (fields, version) = if self.keys.is_some() { (9, 2u8) } else { (8, 1) };
        out.array(fields)?
            .uint(version)?
            .bytes(&self.group.0)?
            .bytes(&self.roster.0)?
            .bytes(&self.device.0)?;
        out.uint(self.index.0)?.uint(self.epoch.0)?.uint(self.seq.0)?.bytes(&self.schema.0)?;
        encode_keys(&mut out, self.keys.as_ref(), Groups::NONE)?;
        let statement = Some(&*out.finish());
        let mut out = Writer::new(buffer);
        Protected { statement, ..Protected::new(algorithm, Typ::Event) }.encode(&mut out)?;
        Ok(out.finish())
    }

    /// Writes the bytes to sign to `buffer`, which must be at least 576 bytes longer than the
    /// record.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'b>(
        &self,
        algorithm: Algorithm,
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], BufferTooSmall> {
        let mut header = [0; MAX_HEADER];
        cose::sig_structure(buffer, self.protected(algorithm, &mut header)?, self.record)
    }

    /// Writes the signed object.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(
        &self,
        out: &mut Writer<'_>,
        algorithm: Algorithm,
        signature: &[u8],
    ) -> Result<(), BufferTooSmall> {
        let mut header = [0; MAX_HEADER];
        Sign1::encode(out, self.protected(algorithm, &mut header)?, self.record, signature)
    }

    /// Reads a signed object and verifies it with the key that the directory has for the device and
    /// index in the object. `scratch` must be at least 64 bytes longer than `bytes`.
    ///
    /// # Errors
    /// [`UrgentError`].
    pub fn open(
        bytes: &'a [u8],
        directory: &(impl Directory + ?Sized),
        scratch: &mut [u8],
    ) -> Result<Self, UrgentError> {
        let object = Sign1::decode(bytes, Typ::Event)?;
        let event = Self::decode(&object)?;
        if event.group != directory.group() {
            return Err(UrgentError::WrongGroup);
        }
        let message = object.message(scratch)?;
        let place = (event.device, event.index, event.epoch);
        verify_by_roster(&object, message, directory, place, UrgentError::UnknownDevice)?;
        Ok(event)
    }

    /// Returns the digest of a signed object: SHA-256 of the bytes that are signed. It does not
    /// depend on the signature. Nothing is verified.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn digest(bytes: &[u8]) -> Result<Digest, DecodeError> {
        Ok(Sign1::decode(bytes, Typ::Event)?.digest())
    }

    /// Returns the device that a signed object names, if it decodes. Nothing is verified.
    #[must_use]
    pub fn claimed_device(bytes: &[u8]) -> Option<DeviceId> {
        Some(UrgentEvent::decode(&Sign1::decode(bytes, Typ::Event).ok()?).ok()?.device)
    }

    /// Returns the device, the seal index and the epoch that a signed object names, if it decodes.
    /// Nothing is verified.
    #[must_use]
    pub fn claimed_place(bytes: &[u8]) -> Option<(DeviceId, SealIndex, EpochNumber)> {
        let object = Sign1::decode(bytes, Typ::Event).ok()?;
        let event = UrgentEvent::decode(&object).ok()?;
        Some((event.device, event.index, event.epoch))
    }

    /// Returns the seal index, the epoch, the sequence number and the record of a signed object, if
    /// it decodes. Nothing is verified: this is for a device that reads its own events.
    #[must_use]
    pub fn claimed(bytes: &'a [u8]) -> Option<(SealIndex, EpochNumber, Sequence, &'a [u8])> {
        let event = Self::decode(&Sign1::decode(bytes, Typ::Event).ok()?).ok()?;
        Some((event.index, event.epoch, event.seq, event.record))
    }

    /// Returns the digest of the schema that a signed object names. Nothing is verified.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn claimed_schema(bytes: &[u8]) -> Result<Digest, DecodeError> {
        Ok(UrgentEvent::decode(&Sign1::decode(bytes, Typ::Event)?)?.schema)
    }

    fn decode(object: &Sign1<'a>) -> Result<Self, DecodeError> {
        let mut reader =
            Reader::new(object.header.statement.ok_or(DecodeError::UnexpectedHeader)?)?;
        let optional = read_version(&mut reader, 8, false)?;
        if object.payload.len() > MAX_PAYLOAD {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self {
            group: GroupId(reader.fixed()?),
            roster: Digest(reader.fixed()?),
            device: DeviceId(reader.fixed()?),
            index: SealIndex(reader.uint()?),
            epoch: EpochNumber(reader.u64()?),
            seq: Sequence(reader.u64()?),
            schema: Digest(reader.fixed()?),
            keys: optional.decode(&mut reader)?.0,
            record: object.payload,
        })
    }
}

named_errors! {
    /// Why an urgent event was rejected.
    UrgentError {
        /// The bytes are not an urgent event.
        Decode(error: DecodeError) => from,
        /// The event belongs to another group.
        WrongGroup => "the event belongs to another group",
        /// The roster does not list the device, or has no key of the device for this index.
        UnknownDevice => "the roster has no key for this device and index",
        /// The signature was rejected.
        Seal(error: SealError) => from,
        /// The scratch buffer is too small.
        Buffer(error: BufferTooSmall) => from,
    }
}
