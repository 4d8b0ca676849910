//! Signed single readings: a representation of a device's newest reading, with a detached signature
//! (spec/objects.md, section 7.2). The reading is also part of the epoch's seal, in the place that the
//! signature states. The signed form is never part of a sample.

use crate::seal::{SealError, verify_by_roster};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::cose::{self, Protected, Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::signature::Algorithm;

/// Maximum length of the protected header of a signed reading in bytes.
const MAX_HEADER: usize = 256;
/// The maximum length of a representation, in bytes.
pub const MAX_REPRESENTATION: usize = 1 << 17;
/// A signed object is at most this many bytes longer than its signature.
pub const READING_OVERHEAD: usize = MAX_HEADER + 16;

/// The format of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadingFormat {
    /// A JSON object, `application/json`.
    Json,
    /// A SenML pack in JSON, `application/senml+json` (RFC 8428).
    SenmlJson,
    /// A SenML pack in CBOR, `application/senml+cbor` (RFC 8428).
    SenmlCbor,
}

impl ReadingFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Json, Self::SenmlJson, Self::SenmlCbor];

    /// Returns the number of the content format (RFC 7252, section 12.3).
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Json => 50,
            Self::SenmlJson => 110,
            Self::SenmlCbor => 112,
        }
    }

    /// Returns the format with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.number() == number)
    }
}

/// A representation of one reading, and where the reading is in the device's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedReading<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that the device uses.
    pub roster: Digest,
    /// The device.
    pub device: DeviceId,
    /// The seal that covers the reading.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The sequence number of the reading under that seal.
    pub seq: Sequence,
    /// The format of the representation.
    pub format: ReadingFormat,
    /// The representation, exactly as transmitted.
    pub representation: &'a [u8],
}

impl<'a> SignedReading<'a> {
    fn protected<'b>(
        &self,
        algorithm: Algorithm,
        buffer: &'b mut [u8; MAX_HEADER],
    ) -> Result<&'b [u8], BufferTooSmall> {
        let mut text = [0; MAX_HEADER];
        let mut out = Writer::new(&mut text);
        out.array(7)?
            .uint(1u8)?
            .bytes(&self.group.0)?
            .bytes(&self.roster.0)?
            .bytes(&self.device.0)?;
        out.uint(self.index.0)?.uint(self.epoch.0)?.uint(self.seq.0)?;
        let statement = Some(&*out.finish());
        let content = Some(self.format.number());
        let mut out = Writer::new(buffer);
        Protected { content, statement, ..Protected::new(algorithm, Typ::Reading) }
            .encode(&mut out)?;
        Ok(out.finish())
    }

    /// Writes the bytes to sign to `buffer`, which must be at least 320 bytes longer than the
    /// representation.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'b>(
        &self,
        algorithm: Algorithm,
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], BufferTooSmall> {
        let mut header = [0; MAX_HEADER];
        cose::sig_structure(buffer, self.protected(algorithm, &mut header)?, self.representation)
    }

    /// Writes the signed object, which does not contain the representation. It is at most
    /// [`READING_OVERHEAD`] bytes longer than the signature.
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
        Sign1::encode_detached(out, self.protected(algorithm, &mut header)?, signature)
    }

    /// Reads a signed object and verifies it, together with a representation of the format `format`,
    /// with the key that the directory has for the device and index in the object. `scratch` must be
    /// at least 64 bytes longer than `bytes` and the representation together.
    ///
    /// # Errors
    /// [`SignedReadingError`].
    pub fn open(
        bytes: &'a [u8],
        (format, representation): (ReadingFormat, &'a [u8]),
        directory: &(impl Directory + ?Sized),
        scratch: &mut [u8],
    ) -> Result<Self, SignedReadingError> {
        let object = Sign1::decode_detached(bytes, Typ::Reading, representation)?;
        let reading = Self::decode(&object, format)?;
        if object.header.content != Some(format.number()) {
            return Err(SignedReadingError::WrongFormat);
        }
        if reading.group != directory.group() {
            return Err(SignedReadingError::WrongGroup);
        }
        let message = object.message(scratch)?;
        let place = (reading.device, reading.index, reading.epoch);
        verify_by_roster(&object, message, directory, place, SignedReadingError::UnknownDevice)?;
        Ok(reading)
    }

    fn decode(object: &Sign1<'a>, format: ReadingFormat) -> Result<Self, DecodeError> {
        let mut reader =
            Reader::new(object.header.statement.ok_or(DecodeError::UnexpectedHeader)?)?;
        reader.array(7)?;
        reader.version()?;
        if object.payload.len() > MAX_REPRESENTATION {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self {
            group: GroupId(reader.fixed()?),
            roster: Digest(reader.fixed()?),
            device: DeviceId(reader.fixed()?),
            index: SealIndex(reader.uint()?),
            epoch: EpochNumber(reader.u64()?),
            seq: Sequence(reader.u64()?),
            format,
            representation: object.payload,
        })
    }
}

named_errors! {
    /// Why a signed reading was rejected.
    SignedReadingError {
        /// The bytes are not the signature of a reading.
        Decode(error: DecodeError) => from,
        /// The signature covers a representation of another format.
        WrongFormat => "the signature covers a representation of another format",
        /// The reading belongs to another group.
        WrongGroup => "the reading belongs to another group",
        /// The roster does not list the device, or has no key of the device for this index.
        UnknownDevice => "the roster has no key for this device and index",
        /// The signature was rejected.
        Seal(error: SealError) => from,
        /// The scratch buffer is too small.
        Buffer(error: BufferTooSmall) => from,
    }
}
