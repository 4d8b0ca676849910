//! Keys in PEM (RFC 7468): `PRIVATE KEY` and `PUBLIC KEY`. On hosts also requests for
//! certificates: `CERTIFICATE REQUEST`.

use pem_rfc7468::LineEnding;
use zeroize::Zeroizing;

use super::der::{
    MAX_DER, decode_public_der, decode_secret_der, encode_public_der, encode_secret_der,
};
#[cfg(feature = "host")]
use super::request::{MAX_REQUEST, decode_request_der};
use crate::signature::{KeyError, PublicKey, SecretKey};

const SECRET: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";
/// The labels of a certificate request: that of RFC 7468, and the older one that
/// `openssl req -newhdr` writes.
#[cfg(feature = "host")]
const REQUEST: [&str; 2] = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];

/// Length of the longest key in PEM that this module writes.
pub const MAX_PEM: usize = if cfg!(feature = "host") { 2048 } else { 320 };

/// Length of the longest file with a request: room for the PEM of [`MAX_REQUEST`] bytes and for text
/// before it, such as `openssl req -text` writes.
#[cfg(feature = "host")]
const MAX_REQUEST_PEM: usize = 4 * MAX_REQUEST;

/// Decodes one PEM block, which must have one of these labels.
fn decode<'b>(pem: &[u8], labels: &[&str], buffer: &'b mut [u8]) -> Result<&'b [u8], KeyError> {
    let (found, der) =
        pem_rfc7468::decode(pem, buffer).map_err(|_| match pem_rfc7468::decode_label(pem) {
            // A key of another kind may be too long for the buffer or have headers. Report the
            // wrong label instead of the decoding error.
            Ok(found) if !labels.contains(&found) => KeyError::WrongPemLabel,
            _ => KeyError::MalformedPem,
        })?;
    if labels.contains(&found) { Ok(der) } else { Err(KeyError::WrongPemLabel) }
}

fn encode<'o>(der: &[u8], label: &str, out: &'o mut [u8]) -> Result<&'o str, KeyError> {
    pem_rfc7468::encode(label, LineEnding::LF, der, out).map_err(|_| KeyError::BufferTooSmall)
}

/// Reads a private key from one unencrypted `PRIVATE KEY` block.
///
/// # Errors
/// `MalformedPem`, `WrongPemLabel`, or the errors of [`decode_secret_der`].
pub fn decode_secret_pem(pem: &[u8]) -> Result<SecretKey, KeyError> {
    let mut buffer = Zeroizing::new([0; MAX_DER]);
    decode_secret_der(decode(pem, &[SECRET], &mut *buffer)?)
}

/// Reads a public key from one `PUBLIC KEY` block.
///
/// # Errors
/// `MalformedPem`, `WrongPemLabel`, or the errors of [`decode_public_der`].
pub fn decode_public_pem(pem: &[u8]) -> Result<PublicKey, KeyError> {
    let mut buffer = [0; MAX_DER];
    decode_public_der(decode(pem, &[PUBLIC], &mut buffer)?)
}

/// Reads the public key from one `CERTIFICATE REQUEST` or `NEW CERTIFICATE REQUEST` block, and
/// verifies the signature of the request.
///
/// # Errors
/// `MalformedPem`, `WrongPemLabel`, or the errors of [`decode_request_der`]. A file of more than
/// 32 KiB is `RequestTooLong`.
#[cfg(feature = "host")]
pub fn decode_request_pem(pem: &[u8]) -> Result<PublicKey, KeyError> {
    if pem.len() > MAX_REQUEST_PEM {
        return Err(match pem_rfc7468::decode_label(pem) {
            Ok(label) if REQUEST.contains(&label) => KeyError::RequestTooLong,
            Ok(_) => KeyError::WrongPemLabel,
            Err(_) => KeyError::MalformedPem,
        });
    }
    let mut buffer = [0; MAX_REQUEST_PEM];
    decode_request_der(decode(pem, &REQUEST, &mut buffer)?)
}

/// Writes a private key to `out` ([`MAX_PEM`] bytes suffice). The caller must zero it after use.
///
/// # Errors
/// `BufferTooSmall`.
pub fn encode_secret_pem<'o>(key: &SecretKey, out: &'o mut [u8]) -> Result<&'o str, KeyError> {
    let mut buffer = Zeroizing::new([0; MAX_DER]);
    encode(encode_secret_der(key, &mut *buffer)?, SECRET, out)
}

/// Writes a public key to `out` ([`MAX_PEM`] bytes suffice).
///
/// # Errors
/// `BufferTooSmall`.
pub fn encode_public_pem<'o>(key: &PublicKey, out: &'o mut [u8]) -> Result<&'o str, KeyError> {
    let mut buffer = [0; MAX_DER];
    encode(encode_public_der(key, &mut buffer)?, PUBLIC, out)
}
