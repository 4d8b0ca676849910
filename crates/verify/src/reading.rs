//! Signed single readings: the representations that a device serves, and their verification
//! (spec/objects.md, section 7.2).
//!
//! A representation is a SenML pack (RFC 8428) or a flat JSON object. Each has one spelling, and
//! nothing of it is parsed before its signature is verified.

mod envelope;
mod json;
mod number;
mod pack;
mod senml;

pub use envelope::{MULTIPART, join, multipart};
pub use number::Number;
pub use pack::{Measured, Measurement, OPAQUE, Pack, column_name};

use moteseal_core::cbor::DecodeError;
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_seal::{ReadingFormat, SignedReading, SignedReadingError};

use envelope::Envelope;

/// A reading whose signature is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The digest of the roster that the device uses.
    pub roster: Digest,
    /// The device that signed the reading.
    pub device: DeviceId,
    /// The seal that covers the reading.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The sequence number of the reading under that seal.
    pub seq: Sequence,
    /// The format of the signed representation.
    pub format: ReadingFormat,
    /// What was measured.
    pub pack: Pack,
}

impl Reading {
    /// Verifies a response of the content format `number` (RFC 7252, section 12.3).
    ///
    /// # Errors
    /// [`ReadingError`].
    pub fn open(
        number: u16,
        bytes: &[u8],
        directory: &(impl Directory + ?Sized),
    ) -> Result<Self, ReadingError> {
        let Envelope { format, representation, object } = Envelope::open(number, bytes)?;
        let mut scratch = vec![0; object.len() + representation.len() + 64];
        let signed =
            SignedReading::open(&object, (format, &representation), directory, &mut scratch)?;
        let pack = Pack::decode(format, &representation, signed.device)?;
        Ok(Self {
            roster: signed.roster,
            device: signed.device,
            index: signed.index,
            epoch: signed.epoch,
            seq: signed.seq,
            format,
            pack,
        })
    }
}

named_errors! {
    /// Why a response was rejected.
    ReadingError {
        /// The response is not a multipart message of a representation and a signature.
        Decode(error: DecodeError) => from,
        /// The response has a content format that is not one of a reading.
        UnknownFormat => "the response has a content format that is not one of a signed reading",
        /// The response has no signature, or not in its place, or not in its only spelling.
        NoSignature => "the response has no signature in the place and spelling that it must have; \
            request ?sig=cose or ?sig=json",
        /// The signature was rejected.
        Signed(error: SignedReadingError) => from,
        /// The representation is signed, but not in the only spelling of a reading.
        MalformedReading => "the signed text is not a reading in its only spelling",
    }
}
