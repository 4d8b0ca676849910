//! The file of a device's own copy of its stream secret.

use moteseal_core::confidential::{KeyEncodingError, StreamSecret};
use moteseal_core::record::EpochNumber;
use zeroize::Zeroizing;

/// Returns the text of a device's file: the secret as 64 hexadecimal digits, a space, the base epoch
/// in decimal, a line feed.
#[must_use]
pub fn encode_stream_secret(secret: &StreamSecret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(96));
    for byte in secret.expose() {
        text.push(char::from_digit((byte >> 4).into(), 16).unwrap_or_default());
        text.push(char::from_digit((byte & 15).into(), 16).unwrap_or_default());
    }
    text.push(' ');
    text.push_str(&secret.base().to_string());
    text.push('\n');
    text
}

/// Reads the text of a device's file.
///
/// # Errors
/// `MalformedKey`.
pub fn decode_stream_secret(text: &str) -> Result<StreamSecret, KeyEncodingError> {
    let malformed = KeyEncodingError::MalformedKey;
    // A file that was cut short has no line feed: its base would be another one.
    let line = text.strip_suffix('\n').ok_or(malformed)?;
    let (digits, base) = line.split_once(' ').ok_or(malformed)?;
    if !base.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    let base: u64 = base.parse().map_err(|_| malformed)?;
    let mut secret = Zeroizing::new([0; 32]);
    let pairs = digits.as_bytes().chunks_exact(2);
    if digits.len() != 64 {
        return Err(malformed);
    }
    for (byte, pair) in secret.iter_mut().zip(pairs) {
        let digit = |place: usize| char::from(pair[place]).to_digit(16).ok_or(malformed);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).map_err(|_| malformed)?;
    }
    Ok(StreamSecret::new(*secret, EpochNumber(base)))
}
