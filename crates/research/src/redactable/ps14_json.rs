//! PS14's message in JSON, as the motes of D5.3 send it (section 2.3.1 and figure 15):
//!
//! ```text
//! {"measurement_id":42,"1":"temp","2":"27,","tag":"<16>","s1":"<64>","s2":"<64>","stag":"<64>","Acc":"<64>","pk":"<64>"}
//! ```
//!
//! The members `1`, `2`, .. are the parts, `s1`, `s2`, .. and `stag` their witnesses, `Acc` the
//! accumulator and `pk` the modulus. `<64>` means 64 hexadecimal digits. A number is written in
//! words of 16 bits, the lowest word first, and each word with its highest digit first. The text has
//! no spaces, and each message has one spelling.
//!
//! D5.3 signs neither `measurement_id` nor the names of the parts, and here it is the same. A verifier
//! that takes the accumulator from `Acc` accepts forgeries: use [`Form::Mended`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use moteseal_core::named_errors;
use serde_json::{Map, Value};

use super::accumulator::{Element, Modulus};
use super::ps14::{PublicKey, Refused, Signed};

/// The bytes of a word.
const WORD: usize = 2;

/// Which members follow the witnesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `Acc` and `pk`, as in figure 15.
    WithKey,
    /// `Acc`: "the public key is not really needed in every packet" (section 2.3.1).
    WithAccumulator,
    /// None. The verifier has the accumulator with the public key.
    Mended,
}

named_errors! {
    /// Why a text is not a message or is refused.
    JsonError {
        /// The text is not a message in its only spelling.
        Spelling => "the text is not a message with a malleable signature in its only spelling",
        /// A part cannot be written without escapes.
        Escapes => "a part has a quotation mark, a backslash or a control character",
        /// There is no part with this number.
        NoSuchPart => "the message has no part with this number",
        /// The signature is refused.
        Signature(error: Refused) => from,
    }
}

/// A message with named parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the measurement, which is not signed.
    pub measurement_id: u32,
    /// The parts by their numbers, which are not signed.
    pub parts: BTreeMap<u32, (String, Element)>,
    /// The tag.
    pub tag: Vec<u8>,
    /// The witness of the tag.
    pub tag_witness: Element,
    /// The accumulator that the message states.
    pub accumulator: Option<Element>,
    /// The modulus that the message states.
    pub modulus: Option<Modulus>,
}

impl Message {
    /// Numbers the parts of a signed set from 1, in this order, and adds what the form needs.
    ///
    /// # Errors
    /// `NoSuchPart` if the set has not exactly these parts; `Escapes`.
    pub fn new(
        measurement_id: u32,
        signed: &Signed,
        order: &[&str],
        form: Form,
        key: &PublicKey,
    ) -> Result<Self, JsonError> {
        let mut parts = BTreeMap::new();
        for (number, part) in (1..).zip(order) {
            if part.chars().any(|c| c == '"' || c == '\\' || c.is_control()) {
                return Err(JsonError::Escapes);
            }
            let witness = signed.parts.get(part.as_bytes()).ok_or(JsonError::NoSuchPart)?;
            parts.insert(number, ((*part).to_owned(), witness.clone()));
        }
        if parts.len() != signed.parts.len() {
            return Err(JsonError::NoSuchPart);
        }
        Ok(Self {
            measurement_id,
            parts,
            tag: signed.tag.clone(),
            tag_witness: signed.tag_witness.clone(),
            accumulator: (form != Form::Mended).then(|| key.accumulator().clone()),
            modulus: (form == Form::WithKey).then(|| key.modulus().clone()),
        })
    }

    /// Writes the text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = format!("{{\"measurement_id\":{}", self.measurement_id);
        let mut member = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = write!(text, ",\"{name}\":\"{value}\"");
        };
        for (number, (part, _)) in &self.parts {
            member(&number.to_string(), part);
        }
        member("tag", &hex::encode(&self.tag));
        for (number, (_, witness)) in &self.parts {
            member(&format!("s{number}"), &words(witness.as_bytes()));
        }
        member("stag", &words(self.tag_witness.as_bytes()));
        if let Some(accumulator) = &self.accumulator {
            member("Acc", &words(accumulator.as_bytes()));
        }
        if let Some(modulus) = &self.modulus {
            member("pk", &words(&modulus.to_bytes()));
        }
        text + "}"
    }

    /// Reads a text whose numbers are elements modulo a modulus.
    ///
    /// # Errors
    /// `Spelling`, or `Signature` with `Number`.
    pub fn from_json(text: &str, modulus: &Modulus) -> Result<Self, JsonError> {
        let members: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| JsonError::Spelling)?;
        let string = |name: &str| members.get(name)?.as_str();
        let element = |name: &str| {
            let bytes = bytes_of(string(name).ok_or(JsonError::Spelling)?, modulus.length());
            modulus
                .element(&bytes.ok_or(JsonError::Spelling)?)
                .ok_or(JsonError::Signature(Refused::Number))
        };
        let optional = |name: &str| members.contains_key(name).then(|| element(name)).transpose();
        let stated = string("pk").map(|digits| {
            let bytes = bytes_of(digits, modulus.length()).ok_or(JsonError::Spelling)?;
            Modulus::from_bytes(&bytes).ok_or(JsonError::Spelling)
        });
        let mut parts = BTreeMap::new();
        for name in members.keys() {
            if let Ok(number) = name.parse::<u32>() {
                let part = string(name).ok_or(JsonError::Spelling)?.to_owned();
                parts.insert(number, (part, element(&format!("s{number}"))?));
            }
        }
        let message = Self {
            measurement_id: members
                .get("measurement_id")
                .and_then(Value::as_u64)
                .and_then(|id| id.try_into().ok())
                .ok_or(JsonError::Spelling)?,
            parts,
            tag: string("tag")
                .and_then(|digits| hex::decode(digits).ok())
                .ok_or(JsonError::Spelling)?,
            tag_witness: element("stag")?,
            accumulator: optional("Acc")?,
            modulus: stated.transpose()?,
        };
        // This refuses other members, members that occur twice, another order, spaces and escapes.
        if message.to_json() == text { Ok(message) } else { Err(JsonError::Spelling) }
    }

    /// Returns the set that is signed.
    #[must_use]
    pub fn signed(&self) -> Signed {
        let parts = self.parts.values().cloned();
        Signed {
            tag: self.tag.clone(),
            tag_witness: self.tag_witness.clone(),
            parts: parts.map(|(part, witness)| (part.into_bytes(), witness)).collect(),
        }
    }

    /// Verifies the message with the accumulator of the public key.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, key: &PublicKey) -> Result<(), Refused> {
        key.verify(&self.signed())
    }

    /// Verifies the message as D5.3 does, with the accumulator that the message states. **This accepts
    /// forgeries.**
    ///
    /// # Errors
    /// [`Refused`]; `Number` if the message states no accumulator.
    pub fn verify_as_d5_3(&self, modulus: &Modulus) -> Result<(), Refused> {
        let accumulator = self.accumulator.clone().ok_or(Refused::Number)?;
        PublicKey::new(modulus.clone(), accumulator, self.tag.len())?.verify(&self.signed())
    }
}

/// Removes a part from the text of a message, without parsing its numbers (figure 14).
///
/// # Errors
/// `NoSuchPart`.
pub fn redact(text: &str, number: u32) -> Result<String, JsonError> {
    let mut text = text.to_owned();
    for name in [number.to_string(), format!("s{number}")] {
        let member = format!(",\"{name}\":\"");
        let start = text.find(&member).ok_or(JsonError::NoSuchPart)?;
        let value = start + member.len();
        let length = text[value..].find('"').ok_or(JsonError::NoSuchPart)?;
        text.replace_range(start..=value + length, "");
    }
    Ok(text)
}

/// Writes a big-endian number in words of 16 bits, the lowest word first.
fn words(number: &[u8]) -> String {
    let padded = [&[0; WORD][..number.len() % WORD], number].concat();
    padded.chunks(WORD).rev().map(hex::encode).collect()
}

/// Reads a number that [`words`] wrote, as big-endian bytes of this length.
fn bytes_of(digits: &str, length: usize) -> Option<Vec<u8>> {
    let bytes = hex::decode(digits).ok()?;
    let number = bytes.rchunks(WORD).collect::<Vec<_>>().concat();
    let (padding, number) = number.split_at_checked(number.len().checked_sub(length)?)?;
    padding.iter().all(|byte| *byte == 0).then(|| number.to_vec())
}
