//! `COSE_Sign1` (RFC 9052) with fully specified algorithms (RFC 9864) and a mandatory `typ` (RFC
//! 9596). The only other headers are the `vds` of a tree (RFC 9942), the content format of a signed
//! reading, and the statement (spec/objects.md, section 2).

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::digest::Digest;
use crate::signature::Algorithm;

const SIGN1_TAG: u64 = 18;
const LABEL_ALG: i64 = 1;
const LABEL_CRIT: i64 = 2;
const LABEL_CONTENT: i64 = 3;
const LABEL_TYP: i64 = 16;
const LABEL_VDS: i64 = 395;
const LABEL_STATEMENT: i64 = -70_001;
/// The number of RFC9162_SHA256 in the COSE registry of verifiable data structures (RFC 9942).
const VDS_RFC9162_SHA256: u64 = 1;

/// The kind of a signed object. The signature covers it, so an object of one kind is not accepted
/// as another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typ {
    /// A seal.
    Seal,
    /// An urgent event.
    Event,
    /// A signed reading. Its payload is detached.
    Reading,
    /// A device's certificate.
    Certificate,
    /// A group's roster.
    Roster,
    /// A coordinator's announcement of a round.
    Round,
    /// A coordinator's manifest of an epoch.
    Manifest,
    /// The head of a chain of broadcast messages.
    Chain,
    /// A sender's request for a certificate.
    SenderRequest,
    /// A sender's certificate.
    SenderCertificate,
    /// A base station's revocation: the lowest serial number that it still accepts.
    Revocation,
    /// A signed time.
    Time,
    /// The policy of a group's private sums.
    Policy,
    /// The manifest of a firmware image for motes.
    Firmware,
    /// The manifest of an agent's package.
    Agent,
    /// A grant of keys of confidential readings.
    Grant,
    /// A sanitiser's statement about the cells by which it replaced those of a column group.
    Sanitised,
}

impl Typ {
    /// Returns the value of the `typ` header.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seal => "moteseal-seal+cose",
            Self::Event => "moteseal-event+cose",
            Self::Reading => "moteseal-reading+cose",
            Self::Certificate => "moteseal-cert+cose",
            Self::Roster => "moteseal-roster+cose",
            Self::Round => "moteseal-round+cose",
            Self::Manifest => "moteseal-manifest+cose",
            Self::Chain => "moteseal-chain+cose",
            Self::SenderRequest => "moteseal-request+cose",
            Self::SenderCertificate => "moteseal-sender+cose",
            Self::Revocation => "moteseal-revocation+cose",
            Self::Time => "moteseal-time+cose",
            Self::Policy => "moteseal-policy+cose",
            Self::Firmware => "moteseal-firmware+cose",
            Self::Agent => "moteseal-agent+cose",
            Self::Grant => "moteseal-grant+cose",
            Self::Sanitised => "moteseal-sanitised+cose",
        }
    }
}

/// The protected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected<'a> {
    /// The signature's algorithm.
    pub algorithm: Algorithm,
    /// The kind of the object.
    pub typ: Typ,
    /// The content format (RFC 7252, section 12.3) of the payload of a signed reading.
    pub content: Option<u16>,
    /// Whether the payload is the root of an RFC 9162 tree.
    pub tree: bool,
    /// The statement, an encoded CBOR item.
    pub statement: Option<&'a [u8]>,
}

impl<'a> Protected<'a> {
    /// Creates a header without a statement.
    #[must_use]
    pub const fn new(algorithm: Algorithm, typ: Typ) -> Self {
        Self { algorithm, typ, content: None, tree: false, statement: None }
    }

    /// Writes the header map.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let others = [self.content.is_some(), self.tree, self.statement.is_some()];
        out.map(2 + others.into_iter().map(u64::from).sum::<u64>())?;
        out.int(LABEL_ALG)?.int(self.algorithm.cose())?;
        if let Some(content) = self.content {
            out.int(LABEL_CONTENT)?.uint(content)?;
        }
        out.int(LABEL_TYP)?.text(self.typ.as_str())?;
        if self.tree {
            out.int(LABEL_VDS)?.uint(VDS_RFC9162_SHA256)?;
        }
        if let Some(statement) = self.statement {
            out.int(LABEL_STATEMENT)?.raw(statement)?;
        }
        Ok(())
    }

    /// Reads a header map of an object of kind `typ`.
    ///
    /// # Errors
    /// `UnknownCritical`, `UnexpectedHeader`, `WrongType`, `UnknownAlgorithm`, `FieldOutOfRange`, or
    /// the errors of [`Reader::new`].
    pub fn decode(bytes: &'a [u8], typ: Typ) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let (mut algorithm, mut found_typ, mut tree, mut statement) = (None, None, false, None);
        let mut content = None;
        for _ in 0..reader.map()? {
            // A label may be a text string or an integer of any size (RFC 9052, section 1.5). All
            // known labels are integers of at most 64 bits.
            match reader.i64().map_err(|_| DecodeError::UnexpectedHeader)? {
                LABEL_ALG => algorithm = Some(reader.i64()?),
                LABEL_CONTENT if typ == Typ::Reading => content = Some(reader.uint()?),
                LABEL_TYP => found_typ = Some(reader.text()?),
                LABEL_VDS if reader.u64()? == VDS_RFC9162_SHA256 => tree = true,
                LABEL_STATEMENT => statement = Some(reader.raw()?),
                LABEL_CRIT => return Err(DecodeError::UnknownCritical),
                _ => return Err(DecodeError::UnexpectedHeader),
            }
        }
        if found_typ != Some(typ.as_str()) {
            return Err(DecodeError::WrongType);
        }
        let algorithm =
            algorithm.and_then(Algorithm::from_cose).ok_or(DecodeError::UnknownAlgorithm)?;
        let needs_statement = matches!(typ, Typ::Seal | Typ::Event | Typ::Reading);
        let needs_content = typ == Typ::Reading;
        if needs_statement != statement.is_some()
            || needs_content != content.is_some()
            || (tree && typ != Typ::Seal)
        {
            return Err(DecodeError::UnexpectedHeader);
        }
        Ok(Self { algorithm, typ, content, tree, statement })
    }
}

/// A decoded `COSE_Sign1` whose signature has not been verified.
#[derive(Clone, Copy, Debug)]
pub struct Sign1<'a> {
    /// The protected header.
    pub header: Protected<'a>,
    /// The protected header's bytes, as signed.
    pub protected: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// The signature's bytes.
    pub signature: &'a [u8],
}

impl<'a> Sign1<'a> {
    /// Reads a tagged `COSE_Sign1` of kind `typ`.
    ///
    /// # Errors
    /// The errors of [`Protected::decode`]; `UnexpectedHeader` if the unprotected header is not
    /// empty.
    pub fn decode(bytes: &'a [u8], typ: Typ) -> Result<Self, DecodeError> {
        Self::read(bytes, typ, None)
    }

    /// Reads a tagged `COSE_Sign1` of kind `typ` whose payload is detached (nil). `payload` is the
    /// payload, which was received separately.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    pub fn decode_detached(
        bytes: &'a [u8],
        typ: Typ,
        payload: &'a [u8],
    ) -> Result<Self, DecodeError> {
        Self::read(bytes, typ, Some(payload))
    }

    fn read(bytes: &'a [u8], typ: Typ, detached: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        if reader.tag()? != SIGN1_TAG {
            return Err(DecodeError::UnexpectedType);
        }
        reader.array(4)?;
        let protected = reader.bytes()?;
        if reader.map()? != 0 {
            return Err(DecodeError::UnexpectedHeader);
        }
        let payload = match detached {
            None => reader.bytes()?,
            Some(payload) => match reader.optional(|reader| reader.raw())? {
                None => payload,
                Some(_) => return Err(DecodeError::UnexpectedType),
            },
        };
        let signature = reader.bytes()?;
        Ok(Self { header: Protected::decode(protected, typ)?, protected, payload, signature })
    }

    /// Writes a tagged `COSE_Sign1`.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(
        out: &mut Writer<'_>,
        protected: &[u8],
        payload: &[u8],
        signature: &[u8],
    ) -> Result<(), BufferTooSmall> {
        out.tag(SIGN1_TAG)?.array(4)?.bytes(protected)?.map(0)?.bytes(payload)?.bytes(signature)?;
        Ok(())
    }

    /// Writes a tagged `COSE_Sign1` whose payload is detached.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode_detached(
        out: &mut Writer<'_>,
        protected: &[u8],
        signature: &[u8],
    ) -> Result<(), BufferTooSmall> {
        out.tag(SIGN1_TAG)?.array(4)?.bytes(protected)?.map(0)?.null()?.bytes(signature)?;
        Ok(())
    }

    /// Writes the `Sig_structure` (the bytes that are signed) to `scratch`. The length of `scratch`
    /// must be at least the length of the protected header and the payload, plus 32 bytes.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'s>(&self, scratch: &'s mut [u8]) -> Result<&'s [u8], BufferTooSmall> {
        sig_structure(scratch, self.protected, self.payload)
    }

    /// Returns the digest of this object: SHA-256 of its `Sig_structure`.
    #[must_use]
    pub fn digest(&self) -> Digest {
        use crate::cbor::head;
        let (protected_head, a) = head(2, self.protected.len() as u64);
        let (payload_head, b) = head(2, self.payload.len() as u64);
        Digest::of(&[
            b"\x84\x6aSignature1",
            &protected_head[..a],
            self.protected,
            b"\x40",
            &payload_head[..b],
            self.payload,
        ])
    }
}

/// Writes `["Signature1", protected, h'', payload]` (RFC 9052, section 4.4).
///
/// # Errors
/// [`BufferTooSmall`].
pub fn sig_structure<'s>(
    scratch: &'s mut [u8],
    protected: &[u8],
    payload: &[u8],
) -> Result<&'s [u8], BufferTooSmall> {
    let mut out = Writer::new(scratch);
    out.array(4)?.text("Signature1")?.bytes(protected)?.bytes(&[])?.bytes(payload)?;
    Ok(out.finish())
}
