//! The file of a device's own copy of its stream secret.

use moteseal_core::confidential::{KeyEncodingError, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use zeroize::Zeroizing;

/// Returns the text of a device's file: the secret as 64 hexadecimal digits, a space, the base epoch
/// in decimal, a space, the device's id as 16 hexadecimal digits, a line feed.
#[must_use]
pub fn encode_stream_secret(device: DeviceId, secret: &StreamSecret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(128));
    for byte in secret.expose() {
        text.push(char::from_digit((byte >> 4).into(), 16).unwrap_or_default());
        text.push(char::from_digit((byte & 15).into(), 16).unwrap_or_default());
    }
    text.push(' ');
    text.push_str(&format!("{} {device}\n", secret.base()));
    text
}

/// Reads the text of a device's file. White space at the end does not matter: editors and copies change
/// it.
///
/// # Errors
/// `MalformedKey`.
pub fn decode_stream_secret(text: &str) -> Result<(DeviceId, StreamSecret), KeyEncodingError> {
    let malformed = KeyEncodingError::MalformedKey;
    let mut parts = text.trim_ascii_end().split(' ');
    let (Some(secret), Some(base), Some(device), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed);
    };
    if !base.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    let base: u64 = base.parse().map_err(|_| malformed)?;
    let device = DeviceId(*bytes_of(device)?);
    Ok((device, StreamSecret::new(*bytes_of(secret)?, EpochNumber(base))))
}

/// Reads hexadecimal digits.
fn bytes_of<const N: usize>(digits: &str) -> Result<Zeroizing<[u8; N]>, KeyEncodingError> {
    let malformed = KeyEncodingError::MalformedKey;
    let mut bytes = Zeroizing::new([0; N]);
    if digits.len() != 2 * N {
        return Err(malformed);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |place: usize| char::from(pair[place]).to_digit(16).ok_or(malformed);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).map_err(|_| malformed)?;
    }
    Ok(bytes)
}
