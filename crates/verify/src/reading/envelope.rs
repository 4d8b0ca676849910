//! How a representation and its signature are transmitted together: as a multipart message (RFC
//! 8710), or as the last member of a JSON object. What is signed is a part of the received bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::cbor::{DecodeError, Reader, head};
use moteseal_seal::{MAX_REPRESENTATION, ReadingFormat};

use super::ReadingError;

/// The content format `application/multipart-core` (RFC 8710).
pub const MULTIPART: u16 = 62;
/// The content format `application/cose; cose-type="cose-sign1"`.
const COSE_SIGN1: u16 = 18;
/// What precedes the signature in a JSON object, and what follows it.
const MEMBER: (&[u8], &[u8]) = (b",\"signature\":\"", b"\"}");

/// A representation and its signature, as received. Nothing is verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub(super) format: ReadingFormat,
    pub(super) representation: Cow<'a, [u8]>,
    pub(super) object: Cow<'a, [u8]>,
}

impl<'a> Envelope<'a> {
    /// Separates a response into its representation and its signature.
    pub(super) fn open(number: u16, bytes: &'a [u8]) -> Result<Self, ReadingError> {
        match number {
            MULTIPART => Self::split(bytes),
            _ if number == ReadingFormat::Json.number() => Self::cut(bytes),
            _ if ReadingFormat::from_number(number).is_some() => Err(ReadingError::NoSignature),
            _ => Err(ReadingError::UnknownFormat),
        }
    }

    /// Separates a multipart message.
    fn split(bytes: &'a [u8]) -> Result<Self, ReadingError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(4)?;
        let number: u16 = reader.uint()?;
        let format = ReadingFormat::from_number(number);
        // The JSON form has its signature inside.
        let format = format.filter(|format| *format != ReadingFormat::Json);
        let format = format.ok_or(DecodeError::FieldOutOfRange)?;
        let representation = reader.bytes()?.into();
        if reader.uint::<u16>()? != COSE_SIGN1 {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        Ok(Self { format, representation, object: reader.bytes()?.into() })
    }

    /// Cuts the last member out of a JSON text. The text is not parsed.
    fn cut(text: &'a [u8]) -> Result<Self, ReadingError> {
        let cut = || {
            let rest = text.strip_suffix(MEMBER.1)?;
            let start = rest.iter().rposition(|byte| *byte == b'"')? + 1;
            let (rest, signature) = rest.split_at(start);
            let object = URL_SAFE_NO_PAD.decode(signature).ok()?;
            let rest = rest.strip_suffix(MEMBER.0)?;
            Some(([rest, b"}"].concat(), object))
        };
        let (representation, object) = cut().ok_or(ReadingError::NoSignature)?;
        Ok(Self {
            format: ReadingFormat::Json,
            representation: representation.into(),
            object: object.into(),
        })
    }
}

/// Returns the multipart message of a representation and the signed object that covers it.
#[must_use]
pub fn multipart(format: ReadingFormat, representation: &[u8], object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(representation.len() + object.len() + 32);
    let mut add = |major, argument: usize, content: &[u8]| {
        let (bytes, length) = head(major, argument as u64);
        out.extend_from_slice(&bytes[..length]);
        out.extend_from_slice(content);
    };
    add(4, 4, &[]);
    for (number, content) in [(format.number(), representation), (COSE_SIGN1, object)] {
        add(0, number.into(), &[]);
        add(2, content.len(), content);
    }
    out
}

/// Returns the JSON object `text` with the signed object that covers it as its last member. Returns
/// `None` if `text` is not an object with at least one member, or too long.
#[must_use]
pub fn join(text: &[u8], object: &[u8]) -> Option<Vec<u8>> {
    let rest = text.strip_suffix(b"}").filter(|rest| rest.len() > 1)?;
    if text.len() > MAX_REPRESENTATION {
        return None;
    }
    let signature = URL_SAFE_NO_PAD.encode(object);
    Some([rest, MEMBER.0, signature.as_bytes(), MEMBER.1].concat())
}
