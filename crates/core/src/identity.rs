//! Key files and certificates.
//!
//! A private key is stored as PKCS#8 and a public key as SubjectPublicKeyInfo, both in PEM, as
//! `openssl pkey` writes them ([`decode_secret_pem`], [`decode_public_pem`]). On hosts, a public key
//! can also be read from a certificate request (`decode_request_pem`). A certificate is
//! signed by the operator and states that a device's seals from a given index on are signed with a
//! given key (spec/objects.md, section 3).

use core::fmt;

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::cose::{Protected, Sign1, Typ, sig_structure};
use crate::digest::{self, Digest};
use crate::record::{DeviceId, GroupId, NetworkId, SealIndex};
use crate::signature::{
    Algorithm, KeyError, MAX_PUBLIC_KEY, MAX_SIGNATURE, PublicKey, SignError, SignatureError,
    Signer,
};

mod der;
mod pem;
#[cfg(feature = "host")]
mod request;

pub use der::{
    MAX_DER, decode_public_der, decode_secret_der, encode_public_der, encode_secret_der,
};
#[cfg(feature = "host")]
pub use pem::decode_request_pem;
pub use pem::{
    MAX_PEM, decode_public_pem, decode_secret_pem, encode_public_pem, encode_secret_pem,
};
#[cfg(feature = "host")]
pub use request::{MAX_REQUEST, decode_request_der};

/// Length of the longest certificate payload: the public key, six other fields, and the head of the
/// array.
const MAX_PAYLOAD: usize = MAX_PUBLIC_KEY + 48;
/// Length of the longest protected header without a statement.
const MAX_HEADER: usize = 32;
/// Length of the longest message that is signed for a certificate.
const MAX_MESSAGE: usize = MAX_PAYLOAD + MAX_HEADER + 32;
/// Length of the longest certificate, signature included.
pub const MAX_CERTIFICATE: usize = MAX_MESSAGE + MAX_SIGNATURE;

named_errors! {
    /// Why a certificate was rejected.
    CertificateError {
        /// The bytes are not a certificate.
        Decode(error: DecodeError) => from,
        /// The certificate is not signed with the signature suite of the operator's key.
        AlgorithmMismatch =>
            "the certificate is not signed with the signature suite of the operator's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
        /// The certified key was rejected.
        Key(error: KeyError) => from,
    }
}

named_errors! {
    /// Why a certificate or roster was not issued.
    IssueError {
        /// A buffer is too small.
        BufferTooSmall => "the item does not fit the buffer",
        /// The draft has a value that readers reject.
        FieldOutOfRange => "a value is outside its range",
        /// The signing key is not the key that the draft names.
        WrongKey => "the signing key differs from the key that the draft names",
        /// The signer failed.
        Sign(error: SignError) => from,
    }
}

impl From<BufferTooSmall> for IssueError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// A certificate that the operator has signed. [`Certificate::open`] checks the signature.
/// [`Certificate::decode`] does not: use it only for bytes that have been checked before.
#[derive(Clone, Copy)]
pub struct Certificate<'a> {
    sign1: Sign1<'a>,
    /// The group.
    pub group: GroupId,
    /// The device.
    pub device: DeviceId,
    /// The operator's serial number of the certificate.
    pub serial: u64,
    /// The signature suite of the certified key.
    pub algorithm: Algorithm,
    /// The certified key, raw (spec/objects.md, section 3).
    pub key_bytes: &'a [u8],
    /// The first seal index under this key.
    pub first_index: SealIndex,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate and checks the operator's signature and the certified key.
    ///
    /// # Errors
    /// [`CertificateError`]: the first check that fails.
    pub fn open(bytes: &'a [u8], operator: &PublicKey) -> Result<Self, CertificateError> {
        let certificate = Self::decode(bytes)?;
        // Check the length of the key first: the message buffer has room only for keys of valid
        // length.
        if certificate.key_bytes.len() != certificate.algorithm.public_key_length() {
            return Err(CertificateError::Key(KeyError::KeyLength));
        }
        if certificate.key_bytes.len() > MAX_PUBLIC_KEY {
            return Err(CertificateError::Key(KeyError::UnknownAlgorithm));
        }
        if certificate.sign1.header.algorithm != operator.algorithm() {
            return Err(CertificateError::AlgorithmMismatch);
        }
        let mut scratch = [0; MAX_MESSAGE];
        let message = certificate
            .sign1
            .message(&mut scratch)
            .map_err(|_| CertificateError::Key(KeyError::KeyLength))?;
        operator
            .verify(message, certificate.sign1.signature)
            .map_err(CertificateError::Signature)?;
        certificate.key().map_err(CertificateError::Key)?;
        Ok(certificate)
    }

    /// Reads a certificate that has been checked before.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a certificate. This cannot happen for bytes that have
    /// been checked before.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let sign1 = Sign1::decode(bytes, Typ::Certificate)?;
        let mut reader = Reader::new(sign1.payload)?;
        reader.array(7)?;
        reader.version()?;
        let group = GroupId(reader.fixed()?);
        let device = DeviceId(reader.fixed()?);
        let serial = reader.u64()?;
        let algorithm = reader.i64()?;
        let key_bytes = reader.bytes()?;
        let first_index = SealIndex(reader.uint()?);
        let algorithm = Algorithm::from_cose(algorithm).ok_or(DecodeError::UnknownAlgorithm)?;
        Ok(Self { sign1, group, device, serial, algorithm, key_bytes, first_index })
    }

    /// Returns the certified key.
    ///
    /// # Errors
    /// [`KeyError`] if the key is invalid. A certificate that [`open`](Self::open) returned has a
    /// valid key.
    pub fn key(&self) -> Result<PublicKey, KeyError> {
        PublicKey::from_bytes(self.algorithm, self.key_bytes)
    }

    /// Returns the digest of the signed object. The `prev` of a device's first seal is the digest
    /// of its first certificate.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.sign1.digest()
    }
}

impl fmt::Debug for Certificate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("group", &self.group)
            .field("device", &self.device)
            .field("serial", &self.serial)
            .field("algorithm", &self.algorithm)
            .field("first_index", &self.first_index)
            .finish_non_exhaustive()
    }
}

/// The content of a certificate to issue.
///
/// Signing has two steps, so that the private key can be in another program or device:
/// [`message`](Self::message) returns the bytes to sign, and [`attach`](Self::attach) adds the
/// signature. [`issue`](Self::issue) does both with a local key.
#[derive(Clone, Copy, Debug)]
pub struct CertificateDraft<'k> {
    /// The group.
    pub group: GroupId,
    /// The device.
    pub device: DeviceId,
    /// The operator's serial number of the certificate.
    pub serial: u64,
    /// The key to certify.
    pub key: &'k PublicKey,
    /// The first seal index under this key.
    pub first_index: SealIndex,
}

impl CertificateDraft<'_> {
    fn payload<'s>(&self, scratch: &'s mut [u8; MAX_PAYLOAD]) -> Result<&'s [u8], BufferTooSmall> {
        let mut out = Writer::new(scratch);
        out.array(7)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.device.0)?.uint(self.serial)?;
        out.int(self.key.algorithm().cose())?
            .bytes(&self.key.to_bytes())?
            .uint(self.first_index.0)?;
        Ok(out.finish())
    }

    /// Writes to `scratch` the bytes that an operator's key of suite `operator` must sign
    /// ([`MAX_CERTIFICATE`] bytes suffice).
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'s>(
        &self,
        operator: Algorithm,
        scratch: &'s mut [u8],
    ) -> Result<&'s [u8], BufferTooSmall> {
        let (mut header, mut payload) = ([0; MAX_HEADER], [0; MAX_PAYLOAD]);
        sig_structure(
            scratch,
            protected(operator, Typ::Certificate, &mut header)?,
            self.payload(&mut payload)?,
        )
    }

    /// Writes the certificate with its signature to `out` ([`MAX_CERTIFICATE`] bytes suffice).
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn attach<'o>(
        &self,
        operator: Algorithm,
        signature: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let (mut header, mut payload) = ([0; MAX_HEADER], [0; MAX_PAYLOAD]);
        let header = protected(operator, Typ::Certificate, &mut header)?;
        let mut out = Writer::new(out);
        Sign1::encode(&mut out, header, self.payload(&mut payload)?, signature)?;
        Ok(out.finish())
    }

    /// Signs with the operator's key and writes the certificate to `out` ([`MAX_CERTIFICATE`] bytes
    /// suffice).
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue<'o>(
        &self,
        operator: &dyn Signer,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        let mut scratch = [0; MAX_MESSAGE];
        let signature = operator.signature(self.message(operator.algorithm(), &mut scratch)?)?;
        Ok(self.attach(operator.algorithm(), &signature, out)?)
    }
}

/// Encodes a protected header without a statement.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn protected(
    algorithm: Algorithm,
    typ: Typ,
    buffer: &mut [u8; MAX_HEADER],
) -> Result<&[u8], BufferTooSmall> {
    let mut out = Writer::new(buffer);
    Protected::new(algorithm, typ).encode(&mut out)?;
    Ok(out.finish())
}

impl NetworkId {
    /// Returns the id of the network that belongs to a base station. A base station that joins an
    /// existing network uses the id of that network instead.
    #[must_use]
    pub fn of(base: &PublicKey) -> Self {
        Self(digest::short(&[b"moteseal/1/network\0", &base.to_bytes()]))
    }
}
