//! Readings in JSON with a signature as their last member, as the RERUM project's motes send them
//! over CoAP (deliverable D5.3, sections 2.1.4.5 and 2.2.2).
//!
//! ```text
//! {"measurement_id":42,"signed_chip_temp":27800}
//! {"measurement_id":42,"signed_chip_temp":27800,"signature":"<64 characters of base64url>"}
//! ```
//!
//! D5.3 does not state which bytes are signed. Here the signature covers the first line: the text of
//! the second line without its last member, cut out textually. The text is parsed only after the
//! signature has been verified, so no two parsers can disagree about it. D5.3 states base64url, but
//! its figure 4 has a character `+` of base64. Here every signature has exactly one spelling:
//! base64url without padding, unused bits zero.
//!
//! It is for comparison only. A signed reading does not show whether readings before it are missing,
//! or whether it is old. An ECDSA signature `(r, s)` also has the valid form `(r, n - s)`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The text between the signed text and the signature.
const MEMBER: &str = ",\"signature\":\"";
/// The text after the signature.
const END: &str = "\"}";

/// A message of 430 bytes with the malleable signature of D5.3 (figure 15, without spaces). It shows
/// only the size: its parts `s1` and `Acc` equal those of another message of D5.3.
pub const MALLEABLY_SIGNED: &str = concat!(
    r#"{"measurement_id":42,"1":"temp","2":"27,","tag":"0000f42d8ccff646","#,
    r#""s1":"3eeb40c758de81a8ebe6bc3f07f4c3d65bb469f1356adc020602a8cee8810006","#,
    r#""s2":"4dbbdd4281a84ce4f6353af78e9e4750685f4297438bb036769425c734910000","#,
    r#""stag":"82b56719aefc02795f835aee45ddc4b5792e2f9ff6c47b6d8957dcfe4e540008","#,
    r#""Acc":"3c27c776524e9ddd590b5b6a25a0d3b339bc09f6497a86af40699e6e9aac000f","#,
    r#""pk":"bba15a4ed441b4ecc32dc46f9809e2c32927a215181b19aec21f6806b7260014"}"#,
);

/// A reading of the mote's chip temperature.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The number of the measurement.
    pub measurement_id: u32,
    /// The temperature in thousandths of a degree Celsius.
    pub signed_chip_temp: i32,
}

/// Why a signed reading is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The text has no signature as its last member.
    Unsigned,
    /// The signature is not base64url in its only spelling, or has the wrong length.
    Spelling,
    /// The signature is not valid.
    Signature,
    /// The signed text is not a reading: a member is missing, unknown, of another type, or occurs
    /// twice.
    Content,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsigned => "the message has no signature as its last member",
            Self::Spelling => "the signature is not base64url, or has the wrong length",
            Self::Signature => "the signature is not valid",
            Self::Content => "the signed text is not a reading",
        })
    }
}

impl std::error::Error for Refused {}

impl Reading {
    /// Returns the message without a signature.
    #[must_use]
    pub fn unsigned(&self) -> String {
        let Self { measurement_id, signed_chip_temp } = self;
        format!("{{\"measurement_id\":{measurement_id},\"signed_chip_temp\":{signed_chip_temp}}}")
    }

    /// Returns the message with a signature. `sign` gets the signed bytes, which are
    /// [`unsigned`](Self::unsigned).
    pub fn signed<const N: usize>(&self, sign: impl FnOnce(&[u8]) -> [u8; N]) -> String {
        let mut text = self.unsigned();
        let signature = sign(text.as_bytes());
        text.pop();
        text + MEMBER + &URL_SAFE_NO_PAD.encode(signature) + END
    }

    /// Verifies and then parses a message whose signature has `N` bytes. `verify` gets the signed
    /// bytes and the signature.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open<const N: usize>(
        message: &[u8],
        verify: impl FnOnce(&[u8], &[u8; N]) -> bool,
    ) -> Result<Self, Refused> {
        let (mut text, signature) = cut(message).ok_or(Refused::Unsigned)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Spelling)?;
        let signature = signature.try_into().map_err(|_| Refused::Spelling)?;
        text.push(b'}');
        if !verify(&text, &signature) {
            return Err(Refused::Signature);
        }
        serde_json::from_slice(&text).map_err(|_| Refused::Content)
    }
}

/// Splits a message into the text before the last member, and the spelling of the signature. The
/// last member begins at the last occurrence of its name: a spelling of a signature contains no
/// quotation mark.
fn cut(message: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let message = message.strip_suffix(END.as_bytes())?;
    let quote = message.iter().rposition(|byte| *byte == b'"')?;
    let (text, signature) = message.split_at_checked(quote + 1)?;
    Some((text.strip_suffix(MEMBER.as_bytes())?.to_vec(), signature))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::secp192r1::{SIGNATURE, SecretKey};

    const READING: Reading = Reading { measurement_id: 42, signed_chip_temp: 27_800 };

    fn key() -> SecretKey {
        SecretKey::from_bytes(&[7; 24]).unwrap()
    }

    fn open(message: &str) -> Result<Reading, Refused> {
        let key = key();
        Reading::open(message.as_bytes(), |text, signature: &[u8; SIGNATURE]| {
            key.public().verify(text, signature)
        })
    }

    /// Signs a text that need not be a reading.
    fn signed(text: &str) -> String {
        let signature = URL_SAFE_NO_PAD.encode(key().sign(text.as_bytes()));
        text.strip_suffix('}').unwrap().to_owned() + MEMBER + &signature + END
    }

    #[test]
    fn messages_have_the_lengths_of_table_19() {
        assert_eq!(READING.unsigned(), r#"{"measurement_id":42,"signed_chip_temp":27800}"#);
        assert_eq!(READING.unsigned().len(), 46);
        assert_eq!(READING.signed(|text| key().sign(text)).len(), 125);
        assert_eq!(MALLEABLY_SIGNED.len(), 430);
        // A signature of the product's suites has 64 bytes.
        assert_eq!(READING.signed(|_| [0; 64]).len(), 147);
    }

    #[test]
    fn a_signed_reading_opens() {
        let message = READING.signed(|text| key().sign(text));
        assert_eq!(message, signed(&READING.unsigned()));
        assert_eq!(open(&message), Ok(READING));
        let other = Reading { measurement_id: u32::MAX, signed_chip_temp: -40_000 };
        assert_eq!(open(&other.signed(|text| key().sign(text))), Ok(other));
    }

    #[test]
    fn a_message_with_any_changed_byte_is_refused() {
        let message = READING.signed(|text| key().sign(text)).into_bytes();
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            let result = Reading::open(&changed, |text, signature: &[u8; SIGNATURE]| {
                // Verification takes most of the time, and a changed text is never valid.
                text == READING.unsigned().as_bytes() && key().public().verify(text, signature)
            });
            assert!(result.is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let message = READING.signed(|text| key().sign(text));
        let spelled = URL_SAFE_NO_PAD.encode(key().sign(READING.unsigned().as_bytes()));
        for (wrong, why) in [
            (spelled.replace('_', "/").replace('-', "+"), Refused::Spelling),
            (format!("{spelled}="), Refused::Spelling),
            (format!("{spelled}AAAA"), Refused::Spelling),
            (format!("\\u00{:x}{}", spelled.as_bytes()[0], &spelled[1..]), Refused::Spelling),
            (spelled[4..].to_owned(), Refused::Spelling),
            (String::new(), Refused::Spelling),
        ] {
            assert_ne!(wrong, spelled, "the signature has none of the letters that differ");
            assert_eq!(open(&message.replace(&spelled, &wrong)), Err(why), "{wrong}");
        }
        for spaced in [
            message.replace(",\"signature\"", ", \"signature\""),
            message.replace("\":\"", "\": \""),
            message.clone() + " ",
            READING.unsigned(),
            r#"{"signature":"","measurement_id":42}"#.to_owned(),
        ] {
            assert_eq!(open(&spaced), Err(Refused::Unsigned), "{spaced}");
        }
        // A signature of 64 bytes ends with a character of which four bits are unused.
        let long = READING.signed(|_| [0; 64]);
        let changed = long.replace("A\"}", "B\"}");
        let accept = |message: &str| Reading::open(message.as_bytes(), |_, _: &[u8; 64]| true);
        assert_eq!((accept(&long), accept(&changed)), (Ok(READING), Err(Refused::Spelling)));
    }

    #[test]
    fn signed_text_that_is_not_one_reading_is_refused() {
        for text in [
            r#"{"measurement_id":42,"measurement_id":43,"signed_chip_temp":27800}"#,
            r#"{"measurement_id":42,"signed_chip_temp":27800,"signature":"x"}"#,
            r#"{"measurement_id":42,"signed_chip_temp":27800,"\u0073ignature":"x"}"#,
            r#"{"measurement_id":42,"signed_chip_temp":27800,"signed_chip_temp":27800}"#,
            r#"{"measurement_id":42}"#,
            r#"{"measurement_id":42,"signed_chip_temp":27800.5}"#,
            r#"{"measurement_id":42,"signed_chip_temp":27800}}"#,
            "{}",
            "}",
        ] {
            assert_eq!(open(&signed(text)), Err(Refused::Content), "{text}");
        }
    }

    #[test]
    fn a_text_is_not_parsed_before_its_signature_is_verified() {
        let garbage = signed("garbage}");
        let refuse = |_: &[u8], _: &[u8; SIGNATURE]| false;
        assert_eq!(Reading::open(garbage.as_bytes(), refuse), Err(Refused::Signature));
    }
}
