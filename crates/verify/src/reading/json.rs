//! The JSON formats. Names and units have a small set of characters, and bytes are base64url, so they
//! have no escapes. In the values of texts, `"` and `\` follow a `\`; there is no other escape, because
//! texts have no control characters.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::record::DeviceId;
use moteseal_core::schema::is_secondary_unit;

use super::pack::{MAX_VALUES, is_plain};
use super::{Measured, Measurement, Number, Pack};

/// The name of the time in a JSON object. No column has a name that begins with an underscore.
const TIME: &str = "_time";
/// The version of a SenML pack with secondary units (RFC 9193).
pub(super) const SECONDARY_UNITS: u8 = 26;

/// A text as the value of a member.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for character in self.0.chars() {
            if matches!(character, '"' | '\\') {
                f.write_str("\\")?;
            }
            f.write_char(character)?;
        }
        f.write_str("\"")
    }
}

/// Returns a flat object of the columns.
pub(super) fn object(pack: &Pack) -> String {
    let mut out = String::from("{");
    if let Some(ms) = pack.unix_ms {
        let _ = write!(out, "\"{TIME}\":{},", Number::seconds(ms));
    }
    for Measurement { name, value, .. } in &pack.values {
        let _ = match value {
            Measured::Number(_) | Measured::Boolean(_) => write!(out, "\"{name}\":{value},"),
            value => write!(out, "\"{name}\":{},", Quoted(&value.to_string())),
        };
    }
    out.pop();
    out.push('}');
    out
}

/// Returns a SenML pack.
pub(super) fn pack(pack: &Pack) -> String {
    let mut out = String::from("[{");
    if pack.values.iter().any(|value| is_secondary_unit(&value.unit)) {
        let _ = write!(out, "\"bver\":{SECONDARY_UNITS},");
    }
    let _ = write!(out, "\"bn\":\"{}\",", pack.base_name());
    if let Some(ms) = pack.unix_ms {
        let _ = write!(out, "\"bt\":{},", Number::seconds(ms));
    }
    for (at, Measurement { name, unit, value }) in pack.values.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ",{" });
        let _ = write!(out, "\"n\":\"{name}\"");
        if !unit.is_empty() {
            let _ = write!(out, ",\"u\":\"{unit}\"");
        }
        let _ = match value {
            Measured::Number(number) => write!(out, ",\"v\":{number}}}"),
            Measured::Text(text) => write!(out, ",\"vs\":{}}}", Quoted(text)),
            Measured::Boolean(value) => write!(out, ",\"vb\":{value}}}"),
            Measured::Data(_) => write!(out, ",\"vd\":\"{value}\"}}"),
        };
    }
    out.push(']');
    out
}

/// Reads a flat object.
pub(super) fn read_object(text: &str, device: DeviceId) -> Option<Pack> {
    let mut reader = Text(text);
    let mut pack = Pack { device, unix_ms: None, values: Vec::new() };
    for (name, token) in reader.members()? {
        let value = match token {
            Token::Number(number) if name == TIME => {
                pack.unix_ms = Some(number.to_ms()?);
                continue;
            }
            Token::Number(number) => Measured::Number(number),
            Token::Boolean(value) => Measured::Boolean(value),
            Token::Text(text) => Measured::Text(text),
        };
        pack.values.push(Measurement { name: name.to_owned(), unit: String::new(), value });
    }
    reader.0.is_empty().then_some(pack)
}

/// Reads a SenML pack.
pub(super) fn read_pack(text: &str, device: DeviceId) -> Option<Pack> {
    let mut reader = Text(text);
    let mut pack = Pack { device, unix_ms: None, values: Vec::new() };
    reader.skip("[")?;
    loop {
        let (mut name, mut unit, mut value) = (None, String::new(), None);
        for (label, token) in reader.members()? {
            match (label, token) {
                // The caller compares the base name and the version.
                ("bver", Token::Number(_)) | ("bn", Token::Text(_)) => {}
                ("bt", Token::Number(number)) => pack.unix_ms = Some(number.to_ms()?),
                ("n", Token::Text(text)) => name = Some(text),
                ("u", Token::Text(text)) => unit = text,
                ("v", Token::Number(number)) => value = Some(Measured::Number(number)),
                ("vs", Token::Text(text)) => value = Some(Measured::Text(text)),
                ("vb", Token::Boolean(is)) => value = Some(Measured::Boolean(is)),
                ("vd", Token::Text(text)) => {
                    value = Some(Measured::Data(URL_SAFE_NO_PAD.decode(text).ok()?));
                }
                _ => return None,
            }
        }
        pack.values.push(Measurement { name: name?, unit, value: value? });
        if reader.skip(",").is_none() {
            reader.skip("]")?;
            return reader.0.is_empty().then_some(pack);
        }
    }
}

/// A value of a member.
enum Token {
    Number(Number),
    Boolean(bool),
    Text(String),
}

/// The rest of a text.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn skip(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Reads a text without escapes.
    fn name(&mut self) -> Option<&'a str> {
        self.skip("\"")?;
        let (text, rest) = self.0.split_once('"')?;
        self.0 = rest;
        is_plain(text).then_some(text)
    }

    /// Reads a text.
    fn text(&mut self) -> Option<String> {
        self.skip("\"")?;
        let mut text = String::new();
        let mut characters = self.0.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => text.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
                character => text.push(character),
            }
        }
        self.0 = characters.as_str();
        Some(text)
    }

    fn token(&mut self) -> Option<Token> {
        if self.0.starts_with('"') {
            return self.text().map(Token::Text);
        }
        for (text, value) in [("true", true), ("false", false)] {
            if self.skip(text).is_some() {
                return Some(Token::Boolean(value));
            }
        }
        let is_end = |byte: char| !(byte.is_ascii_digit() || byte == '-' || byte == '.');
        let (number, rest) = self.0.split_at(self.0.find(is_end)?);
        self.0 = rest;
        Number::parse(number).map(Token::Number)
    }

    /// Reads the members of an object. Refuses a repeated name.
    fn members(&mut self) -> Option<Vec<(&'a str, Token)>> {
        let mut members: Vec<(&str, Token)> = Vec::new();
        self.skip("{")?;
        loop {
            let name = self.name()?;
            // A reading has a time and its values.
            if members.len() > MAX_VALUES || members.iter().any(|(known, _)| *known == name) {
                return None;
            }
            self.skip(":")?;
            members.push((name, self.token()?));
            if self.skip(",").is_none() {
                self.skip("}")?;
                return Some(members);
            }
        }
    }
}
