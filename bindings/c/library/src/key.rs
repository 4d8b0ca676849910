//! Signing keys, for motes without a secure element.

use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::signature::{KeyPair as _, SecretKey, Signer as _};

use crate::boundary::{Opaque, begin, begun, buffer, bytes, call, checked, fixed, put, wipe};
use crate::device::{MOTESEAL_SIGNATURE, algorithm, number_of};
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// A secret signing key. Declare it as `moteseal_signing_key key = {0};` and end it with
/// `moteseal_signing_key_wipe`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_signing_key {
    opaque: [u64; 32],
}

impl Opaque for moteseal_signing_key {
    type Value = SecretKey;
    const MARK: u32 = 0x6d73_6b01;
}

/// Begins a signing key from its secret bytes. Wipe your own copy of the bytes.
///
/// @param algorithm_number  `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
/// @param secret, length  32 bytes: the Ed25519 secret (RFC 8032), or the P-256 scalar, big-endian.
/// @return `UnknownAlgorithm`, `KeyLength`, `InvalidSecretKey`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_signing_key_from_bytes(
    key: *mut moteseal_signing_key,
    algorithm_number: u8,
    secret: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        checked(key)?;
        // SAFETY: the caller keeps the header's contract.
        let secret = unsafe { bytes(secret, length)? };
        let value = SecretKey::from_bytes(algorithm(algorithm_number)?, secret)?;
        // SAFETY: as above.
        unsafe { begin(key, value) }
    })
}

/// Begins a signing key from a key file: one PEM block of unencrypted PKCS#8, as `moteseal key new`
/// and `openssl genpkey` write it.
///
/// @return `MalformedPem`, `WrongPemLabel`, `MalformedDer`, `UnknownAlgorithm`, `InvalidSecretKey`,
///         `KeyPairMismatch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_signing_key_from_pem(
    key: *mut moteseal_signing_key,
    pem: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        checked(key)?;
        // SAFETY: the caller keeps the header's contract.
        let value = decode_secret_pem(unsafe { bytes(pem, length)? })?;
        // SAFETY: as above.
        unsafe { begin(key, value) }
    })
}

/// Reads a public key file: one PEM block of a SubjectPublicKeyInfo, as `moteseal key new` and
/// `openssl pkey -pubout` write it.
///
/// @param out, capacity  Receives the raw key: `MOTESEAL_MAX_PUBLIC_KEY` bytes suffice.
/// @param key_algorithm  Receives `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
/// @return `MalformedPem`, `WrongPemLabel`, `MalformedDer`, `UnknownAlgorithm`, `InvalidPublicKey`,
///         `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_public_key_from_pem(
    pem: *const u8,
    pem_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
    key_algorithm: *mut u8,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        checked(key_algorithm)?;
        // SAFETY: the caller keeps the header's contract.
        let (pem, out) = unsafe { (bytes(pem, pem_length)?, buffer(out, capacity)?) };
        let key = decode_public_pem(pem)?;
        let (number, raw) = (number_of(key.algorithm())?, key.to_bytes());
        out.get_mut(..raw.len()).ok_or(Error::BufferTooSmall)?.copy_from_slice(&raw);
        // SAFETY: as above.
        unsafe {
            put(length, raw.len())?;
            put(key_algorithm, number)
        }
    })
}

/// Returns the raw public key: 32 bytes for Ed25519, 65 bytes for P-256.
///
/// @return `NotBegun`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_signing_key_public(
    key: *const moteseal_signing_key,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (key, out) = unsafe { (begun(key)?, buffer(out, capacity)?) };
        let public = key.public_key().to_bytes();
        out.get_mut(..public.len()).ok_or(Error::BufferTooSmall)?.copy_from_slice(&public);
        // SAFETY: as above.
        unsafe { put(length, public.len()) }
    })
}

/// Signs a message. Signing is deterministic: it needs no randomness, and the same message always
/// gives the same signature.
///
/// @param signature  `MOTESEAL_SIGNATURE` bytes.
/// @return `NotBegun`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sign(
    key: *const moteseal_signing_key,
    message: *const u8,
    message_length: usize,
    signature: *mut u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (key, message, out) = unsafe {
            (begun(key)?, bytes(message, message_length)?, buffer(signature, MOTESEAL_SIGNATURE)?)
        };
        key.sign(message, out)?;
        Ok(())
    })
}

/// Overwrites a signing key with zeros. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_signing_key_wipe(key: *mut moteseal_signing_key) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(key) };
}

/// Changes an ECDSA signature from a secure element into the form that verifiers accept: `s` in the
/// lower half of the curve's order. Both forms are valid ECDSA signatures of the same message;
/// about half of the signatures that most secure elements return have the other form.
///
/// @param signature  `MOTESEAL_SIGNATURE` bytes, `r` then `s`, big-endian; changed in place.
/// @return `MalformedSignature` if `r` or `s` is 0 or not below the order; `UnknownAlgorithm` if
///         P-256 is not built in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_esp256_normalize(signature: *mut u8) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract; the bytes are read before they are
        // written.
        let raw: [u8; MOTESEAL_SIGNATURE] = unsafe { *fixed(signature)? };
        let normal = normalized(&raw)?;
        // SAFETY: as above; bytes need no alignment.
        unsafe { put(signature.cast(), normal) }
    })
}

#[cfg(feature = "esp256")]
fn normalized(raw: &[u8; MOTESEAL_SIGNATURE]) -> Result<[u8; MOTESEAL_SIGNATURE], Error> {
    let parsed = p256::ecdsa::Signature::from_slice(raw).map_err(|_| Error::MalformedSignature)?;
    Ok(parsed.normalize_s().to_bytes().into())
}

#[cfg(not(feature = "esp256"))]
fn normalized(_: &[u8; MOTESEAL_SIGNATURE]) -> Result<[u8; MOTESEAL_SIGNATURE], Error> {
    Err(Error::UnknownAlgorithm)
}
