//! Certificates of senders, which base stations sign (spec/broadcast.md, section 1). A network
//! accepts only senders with a valid certificate. [`Revocation`](crate::Revocation) ends a
//! certificate before it expires.

use core::fmt;
use moteseal_core::named_errors;

use crate::{KeyId, Revoked};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{
    Algorithm, KeyError, MAX_PUBLIC_KEY, MAX_SIGNATURE, PublicKey, SignatureError, Signer,
};

/// The maximum length in bytes of the payload of a request, certificate or revocation, which has
/// fields of fixed size and a key.
pub(crate) const MAX_PAYLOAD: usize = MAX_PUBLIC_KEY + 80;
/// The maximum length of the bytes that are signed for a request, certificate or revocation.
pub(crate) const MAX_MESSAGE: usize = MAX_PAYLOAD + 80;
/// The maximum length of a sender's request in bytes.
pub const MAX_REQUEST: usize = MAX_MESSAGE + MAX_SIGNATURE;
/// The maximum length of a sender's certificate in bytes.
pub const MAX_SENDER_CERTIFICATE: usize = MAX_MESSAGE + MAX_SIGNATURE;

named_errors! {
    /// Why a request, certificate, revocation or firmware manifest was rejected.
    SenderCertificateError {
        /// The bytes are not an object of the expected kind.
        Decode(error: DecodeError) => from,
        /// The object belongs to another network.
        WrongNetwork => "the object of the base station belongs to another network",
        /// The base station is not among the accepted ones.
        UnknownBaseStation => "the base station is not among the accepted ones",
        /// The signature's suite differs from the suite of the signer's key.
        AlgorithmMismatch => "the signature's suite differs from that of the signer's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => forward,
        /// The sender's key was rejected.
        Key(error: KeyError) => forward,
    }
}

impl From<BufferTooSmall> for SenderCertificateError {
    fn from(_: BufferTooSmall) -> Self {
        Self::Decode(DecodeError::FieldOutOfRange)
    }
}

named_errors! {
    /// Why an authentic certificate is currently not valid.
    NotInForce {
        /// Its period of validity has not begun.
        NotYetValid => "the certificate is not valid yet; check the clock",
        /// It has expired.
        Expired => "the certificate has expired; have the sender certified again",
        /// The base station has revoked it.
        Revoked => "the base station has revoked the certificate",
    }
}

/// Checks the suite and the signature of a signed object.
#[inline(never)]
pub(crate) fn check_signature(
    object: &Sign1<'_>,
    key: &PublicKey,
) -> Result<(), SenderCertificateError> {
    if object.header.algorithm != key.algorithm() {
        return Err(SenderCertificateError::AlgorithmMismatch);
    }
    let mut scratch = [0; MAX_MESSAGE];
    key.verify(object.message(&mut scratch)?, object.signature)
        .map_err(SenderCertificateError::Signature)
}

/// Reads the suite and the raw bytes of a sender's key.
fn read_key<'a>(reader: &mut Reader<'a>) -> Result<(i64, &'a [u8]), DecodeError> {
    Ok((reader.i64()?, reader.bytes()?))
}

/// Returns the key of suite `algorithm` with these raw bytes.
fn key_of(algorithm: Algorithm, bytes: &[u8]) -> Result<PublicKey, SenderCertificateError> {
    PublicKey::from_bytes(algorithm, bytes).map_err(SenderCertificateError::Key)
}

/// Defines the methods that sign a draft: `message` and `attach` sign in two steps, `issue` in one.
/// The draft's type must have a method `payload`.
macro_rules! signed {
    ($draft:ident, $typ:expr, $signer:literal) => {
        impl $draft<'_> {
            #[doc = concat!("Writes to `scratch` the bytes that ", $signer, " signs with its key of suite `algorithm`.")]
            ///
            /// # Errors
            /// [`IssueError`]; `FieldOutOfRange` if readers would reject a field.
            pub fn message<'o>(&self, algorithm: Algorithm, scratch: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
                let (mut header, mut payload) = ([0; _], [0; MAX_PAYLOAD]);
                Ok(sig_structure(scratch, protected(algorithm, $typ, &mut header)?, self.payload(&mut payload)?)?)
            }

            /// Writes the object with its signature to `out`.
            ///
            /// # Errors
            /// Same as [`message`](Self::message).
            pub fn attach<'o>(&self, algorithm: Algorithm, signature: &[u8], out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
                let (mut header, mut payload) = ([0; _], [0; MAX_PAYLOAD]);
                let header = protected(algorithm, $typ, &mut header)?;
                let mut out = Writer::new(out);
                Sign1::encode(&mut out, header, self.payload(&mut payload)?, signature)?;
                Ok(out.finish())
            }

            #[doc = concat!("Signs with ", $signer, "'s key and writes the object to `out`.")]
            ///
            /// # Errors
            /// [`IssueError`].
            pub fn issue<'o>(&self, signer: &dyn Signer, out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
                let mut scratch = [0; MAX_MESSAGE];
                let signature = signer.signature(self.message(signer.algorithm(), &mut scratch)?)?;
                self.attach(signer.algorithm(), &signature, out)
            }
        }
    };
}

/// The content of a sender's request for a certificate. The sender signs it with the key that is to
/// be certified. [`MAX_REQUEST`] bytes suffice for the signed request.
#[derive(Clone, Copy, Debug)]
pub struct SenderRequestDraft<'k> {
    /// The sender.
    pub sender: DeviceId,
    /// The key.
    pub key: &'k PublicKey,
}

impl SenderRequestDraft<'_> {
    fn payload<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
        let mut out = Writer::new(out);
        out.array(4)?
            .uint(1u8)?
            .bytes(&self.sender.0)?
            .int(self.key.algorithm().cose())?
            .bytes(&self.key.to_bytes())?;
        Ok(out.finish())
    }
}

signed!(SenderRequestDraft, Typ::SenderRequest, "the sender");

/// A verified request. The signature proves that the requester has the secret key. The base
/// station's operator must check who the requester is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderRequest {
    /// The sender.
    pub sender: DeviceId,
    /// The key.
    pub key: PublicKey,
}

impl SenderRequest {
    /// Reads a request and checks that it is signed with the key that it contains.
    ///
    /// # Errors
    /// [`SenderCertificateError`].
    pub fn open(bytes: &[u8]) -> Result<Self, SenderCertificateError> {
        let object = Sign1::decode(bytes, Typ::SenderRequest)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(4)?;
        reader.version()?;
        let sender = DeviceId(reader.fixed()?);
        let (algorithm, key) = read_key(&mut reader)?;
        let key =
            key_of(Algorithm::from_cose(algorithm).ok_or(DecodeError::UnknownAlgorithm)?, key)?;
        check_signature(&object, &key)?;
        Ok(Self { sender, key })
    }
}

/// The content of a certificate, before the base station signs it. [`MAX_SENDER_CERTIFICATE`] bytes
/// suffice for the signed certificate.
#[derive(Clone, Copy, Debug)]
pub struct SenderCertificateDraft<'k> {
    /// The network.
    pub network: NetworkId,
    /// The base station's id: [`KeyId::of`] the key that signs the certificate.
    pub base: KeyId,
    /// The serial number that the base station gives the certificate. It must be below `u64::MAX`,
    /// so that the certificate can be revoked.
    pub serial: u64,
    /// The sender.
    pub sender: DeviceId,
    /// The sender's key.
    pub key: &'k PublicKey,
    /// The first second of the period of validity, in Unix time.
    pub not_before: u64,
    /// The first second after the period of validity, in Unix time; `u64::MAX` for no end.
    pub not_after: u64,
}

impl SenderCertificateDraft<'_> {
    fn payload<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
        if self.serial == u64::MAX || self.not_before >= self.not_after {
            return Err(IssueError::FieldOutOfRange);
        }
        let mut out = Writer::new(out);
        out.array(9)?
            .uint(1u8)?
            .bytes(&self.network.0)?
            .bytes(&self.base.0)?
            .uint(self.serial)?
            .bytes(&self.sender.0)?;
        out.int(self.key.algorithm().cose())?
            .bytes(&self.key.to_bytes())?
            .uint(self.not_before)?
            .uint(self.not_after)?;
        Ok(out.finish())
    }
}

signed!(SenderCertificateDraft, Typ::SenderCertificate, "the base station");

/// A verified certificate of a sender. Either [`open`](Self::open) has just checked its signature,
/// or the signature was checked before the certificate was stored and [`reopen`](Self::reopen) read
/// it back.
#[derive(Clone, Copy)]
pub struct SenderCertificate<'a> {
    object: Sign1<'a>,
    /// The network.
    pub network: NetworkId,
    /// The base station.
    pub base: KeyId,
    /// The serial number that the base station gave the certificate.
    pub serial: u64,
    /// The sender.
    pub sender: DeviceId,
    /// The suite of the sender's key.
    pub algorithm: Algorithm,
    /// The raw bytes of the sender's key.
    pub key_bytes: &'a [u8],
    /// The first second of the period of validity, in Unix time.
    pub not_before: u64,
    /// The first second after the period of validity, in Unix time; `u64::MAX` for no end.
    pub not_after: u64,
}

impl<'a> SenderCertificate<'a> {
    /// Reads a certificate and checks that it is for this network, that the base station with the
    /// key `base` signed it, and that the sender's key is valid. Call [`check`](Self::check) for
    /// the dates and the revocation.
    ///
    /// # Errors
    /// [`SenderCertificateError`]. `WrongNetwork` and `UnknownBaseStation` are detected without a
    /// signature check.
    pub fn open(
        bytes: &'a [u8],
        network: NetworkId,
        base: &PublicKey,
    ) -> Result<Self, SenderCertificateError> {
        Self::open_any(bytes, network, core::slice::from_ref(base))
            .map(|(certificate, _)| certificate)
    }

    /// Does the same as [`open`](Self::open) for several accepted base stations, and also returns
    /// the index in `bases` of the base station that signed. Checks at most one signature.
    ///
    /// # Errors
    /// [`SenderCertificateError`].
    pub fn open_any(
        bytes: &'a [u8],
        network: NetworkId,
        bases: &[PublicKey],
    ) -> Result<(Self, usize), SenderCertificateError> {
        let certificate = Self::decode(bytes)?;
        if certificate.network != network {
            return Err(SenderCertificateError::WrongNetwork);
        }
        let (place, base) = bases
            .iter()
            .enumerate()
            .find(|(_, base)| KeyId::of(base) == certificate.base)
            .ok_or(SenderCertificateError::UnknownBaseStation)?;
        check_signature(&certificate.object, base)?;
        key_of(certificate.algorithm, certificate.key_bytes)?;
        Ok((certificate, place))
    }

    /// Reads a certificate without checking its signature. A node uses this to find out whether it
    /// needs the certificate at all.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a certificate.
    pub fn peek(bytes: &[u8]) -> Result<SenderClaim, DecodeError> {
        let SenderCertificate { network, base, serial, sender, key_bytes, .. } =
            SenderCertificate::decode(bytes)?;
        Ok(SenderClaim { network, base, serial, sender, key: KeyId::of_bytes(key_bytes) })
    }

    /// Reads a certificate without checking its signature. Use it only for a sender's own
    /// certificate, or for a certificate that was verified earlier and then stored where no other
    /// party can write.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a certificate.
    pub fn reopen(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let object = Sign1::decode(bytes, Typ::SenderCertificate)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(9)?;
        reader.version()?;
        let (network, base) = (NetworkId(reader.fixed()?), KeyId(reader.fixed()?));
        let (serial, sender) = (reader.u64()?, DeviceId(reader.fixed()?));
        let (algorithm, key_bytes) = read_key(&mut reader)?;
        let (not_before, not_after) = (reader.u64()?, reader.u64()?);
        let algorithm = Algorithm::from_cose(algorithm).ok_or(DecodeError::UnknownAlgorithm)?;
        // A certificate with the serial `u64::MAX` could not be revoked, so this serial is invalid.
        if not_before >= not_after || serial == u64::MAX {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self {
            object,
            network,
            base,
            serial,
            sender,
            algorithm,
            key_bytes,
            not_before,
            not_after,
        })
    }

    /// Returns the sender's key.
    ///
    /// # Errors
    /// Never fails for a certificate from [`open`](Self::open), which has checked the key.
    pub fn key(&self) -> Result<PublicKey, KeyError> {
        PublicKey::from_bytes(self.algorithm, self.key_bytes)
    }

    /// Checks that the certificate is not revoked and is valid at `now`, in seconds of Unix time.
    /// `revoked` is what the certificate's base station has revoked. If `now` is `None`, only the
    /// revocation is checked.
    ///
    /// # Errors
    /// [`NotInForce`].
    pub fn check(&self, now: Option<u64>, revoked: &Revoked) -> Result<(), NotInForce> {
        if revoked.contains(self.serial) {
            return Err(NotInForce::Revoked);
        }
        match now {
            Some(now) if now < self.not_before => Err(NotInForce::NotYetValid),
            // A `not_after` of `u64::MAX` means no end, so the certificate is valid even at `now ==
            // u64::MAX`.
            Some(now) if now >= self.not_after && self.not_after != u64::MAX => {
                Err(NotInForce::Expired)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for SenderCertificate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderCertificate")
            .field("network", &self.network)
            .field("base", &self.base)
            .field("serial", &self.serial)
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}

/// The unverified content of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderClaim {
    /// The claimed network.
    pub network: NetworkId,
    /// The claimed base station.
    pub base: KeyId,
    /// The claimed serial.
    pub serial: u64,
    /// The claimed sender.
    pub sender: DeviceId,
    /// The id of the claimed sender's key.
    pub key: KeyId,
}

pub(crate) use signed;
