//! Certificate requests in DER: `CertificationRequest` (PKCS#10, RFC 2986) of the three suites.
//!
//! A request contains a public key and a signature that was made with the secret key. The reader
//! verifies the signature and returns the public key. It checks the structure of the subject and of
//! the attributes and ignores their values: the operator names the devices.
//!
//! The signature is raw for Ed25519 (RFC 8410) and ML-DSA-44 (RFC 9881), and an `ECDSA-Sig-Value`
//! with SHA-256 for P-256 (RFC 5758).

use super::der::{BIT_STRING, CONTEXT_0_CONSTRUCTED, Der, INTEGER, SEQUENCE, identifier, octets};
use crate::signature::{Algorithm, KeyError, PublicKey, SignatureError};

/// Length of the longest certificate request in DER that is accepted. A request of ML-DSA-44 without
/// attributes has about 3,800 bytes.
pub const MAX_REQUEST: usize = 8192;

const OBJECT_IDENTIFIER: u8 = 0x06;
const SET: u8 = 0x31;
/// The bits of a tag that are all set if more bytes of the tag follow.
const LONG_TAG: u8 = 0x1f;

/// Returns the contents of the `AlgorithmIdentifier` of a signature.
const fn signature_identifier(algorithm: Algorithm) -> &'static [u8] {
    match algorithm {
        // 1.2.840.10045.4.3.2, ecdsa-with-SHA256
        Algorithm::Esp256 => &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
        // These suites have one identifier for keys and signatures.
        Algorithm::Ed25519 | Algorithm::MlDsa44 => identifier(algorithm),
    }
}

/// Reads the public key of a certificate request and verifies that the request is signed with the
/// secret key that belongs to it.
///
/// # Errors
/// `RequestTooLong`, `MalformedRequest`, `UnknownAlgorithm`, `KeyLength`, `InvalidPublicKey`,
/// `AlgorithmMismatch` or `RequestNotAuthentic`.
pub fn decode_request_der(der: &[u8]) -> Result<PublicKey, KeyError> {
    if der.len() > MAX_REQUEST {
        return Err(KeyError::RequestTooLong);
    }
    decode(der).map_err(|error| match error {
        KeyError::MalformedDer => KeyError::MalformedRequest,
        error => error,
    })
}

fn decode(der: &[u8]) -> Result<PublicKey, KeyError> {
    let mut outer = Der(der);
    let mut request = outer.sequence()?;
    outer.end()?;
    let unread = request.0;
    let mut info = request.sequence()?;
    // The signature covers the whole element, with its head.
    let signed = &unread[..unread.len() - request.0.len()];
    let algorithm = request.take(SEQUENCE)?;
    let signature = octets(request.take(BIT_STRING)?)?;
    request.end()?;

    if info.take(INTEGER)? != [0] {
        return Err(KeyError::MalformedDer);
    }
    check_name(info.sequence()?)?;
    let key = info.public_key()?;
    check_attributes(Der(info.take(CONTEXT_0_CONSTRUCTED)?))?;
    info.end()?;

    if algorithm != signature_identifier(key.algorithm()) {
        return Err(KeyError::AlgorithmMismatch);
    }
    let verified = match key.algorithm() {
        Algorithm::Esp256 => key.verify(signed, &ecdsa_signature(signature)?),
        Algorithm::Ed25519 | Algorithm::MlDsa44 => key.verify(signed, signature),
    };
    match verified {
        // `HighS` is the result for a valid signature whose s is in the upper half. Other programs
        // do not normalise s, and a request is not identified by its bytes: accept both.
        Ok(()) | Err(SignatureError::HighS) => Ok(key),
        Err(_) => Err(KeyError::RequestNotAuthentic),
    }
}

/// Checks the structure of a `Name`: each relative name has at least one attribute, which has a type
/// and a value.
fn check_name(mut name: Der<'_>) -> Result<(), KeyError> {
    while !name.0.is_empty() {
        let mut relative = Der(name.take(SET)?);
        loop {
            let mut attribute = relative.sequence()?;
            attribute.take(OBJECT_IDENTIFIER)?;
            skip(&mut attribute)?;
            attribute.end()?;
            if relative.0.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Checks the structure of the attributes of a request: each has a type and at least one value.
fn check_attributes(mut attributes: Der<'_>) -> Result<(), KeyError> {
    while !attributes.0.is_empty() {
        let mut attribute = attributes.sequence()?;
        attribute.take(OBJECT_IDENTIFIER)?;
        let mut values = Der(attribute.take(SET)?);
        attribute.end()?;
        loop {
            skip(&mut values)?;
            if values.0.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Reads an element of any type. Tags of more than one byte are rejected: no attribute uses them.
fn skip(der: &mut Der<'_>) -> Result<(), KeyError> {
    let tag = *der.0.first().ok_or(KeyError::MalformedDer)?;
    if tag & LONG_TAG == LONG_TAG {
        return Err(KeyError::MalformedDer);
    }
    der.take(tag).map(drop)
}

/// Reads an `ECDSA-Sig-Value` (RFC 3279, section 2.2.3) of P-256 and returns `r || s`.
fn ecdsa_signature(der: &[u8]) -> Result<[u8; 64], KeyError> {
    let mut outer = Der(der);
    let mut pair = outer.sequence()?;
    outer.end()?;
    let mut signature = [0; 64];
    for half in signature.chunks_exact_mut(32) {
        let bytes = unsigned(pair.take(INTEGER)?)?;
        let start = half.len().checked_sub(bytes.len()).ok_or(KeyError::MalformedDer)?;
        half[start..].copy_from_slice(bytes);
    }
    pair.end()?;
    Ok(signature)
}

/// Returns the bytes of a positive integer without the leading zero byte. An integer must have the
/// shortest encoding.
fn unsigned(contents: &[u8]) -> Result<&[u8], KeyError> {
    match contents {
        [0, rest @ ..] if rest.first().is_some_and(|&byte| byte >= 0x80) => Ok(rest),
        [1..=0x7f, ..] => Ok(contents),
        _ => Err(KeyError::MalformedDer),
    }
}
