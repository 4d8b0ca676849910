//! The JSON formats. No text in them needs an escape: names and units have a small set of characters,
//! and bytes are base64url. The reader thus refuses every escape.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::record::DeviceId;
use moteseal_core::schema::is_secondary_unit;

use super::pack::is_plain;
use super::{Measured, Measurement, Number, Pack};

/// The name of the time in a JSON object. No column has a name that begins with an underscore.
const TIME: &str = "_time";
/// The version of a SenML pack with secondary units (RFC 9193).
pub(super) const SECONDARY_UNITS: u8 = 26;

/// Returns a flat object of the columns.
pub(super) fn object(pack: &Pack) -> String {
    let mut out = String::from("{");
    if let Some(ms) = pack.unix_ms {
        let _ = write!(out, "\"{TIME}\":{},", Number::seconds(ms));
    }
    for Measurement { name, value, .. } in &pack.values {
        match value {
            Measured::Number(number) => drop(write!(out, "\"{name}\":{number},")),
            value => drop(write!(out, "\"{name}\":\"{value}\",")),
        }
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
            Measured::Text(text) => write!(out, ",\"vs\":\"{text}\"}}"),
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
            Token::Text(text) => Measured::Text(text.to_owned()),
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
        let (mut name, mut unit, mut value) = (None, "", None);
        for (label, token) in reader.members()? {
            match (label, token) {
                // The caller compares the base name and the version.
                ("bver", Token::Number(_)) | ("bn", Token::Text(_)) => {}
                ("bt", Token::Number(number)) => pack.unix_ms = Some(number.to_ms()?),
                ("n", Token::Text(text)) => name = Some(text),
                ("u", Token::Text(text)) => unit = text,
                ("v", Token::Number(number)) => value = Some(Measured::Number(number)),
                ("vs", Token::Text(text)) => value = Some(Measured::Text(text.to_owned())),
                ("vd", Token::Text(text)) => {
                    value = Some(Measured::Data(URL_SAFE_NO_PAD.decode(text).ok()?));
                }
                _ => return None,
            }
        }
        let (name, unit) = (name?.to_owned(), unit.to_owned());
        pack.values.push(Measurement { name, unit, value: value? });
        if reader.skip(",").is_none() {
            reader.skip("]")?;
            return reader.0.is_empty().then_some(pack);
        }
    }
}

/// A value of a member.
enum Token<'a> {
    Number(Number),
    Text(&'a str),
}

/// The rest of a text.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn skip(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Reads a text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        self.skip("\"")?;
        let (text, rest) = self.0.split_once('"')?;
        self.0 = rest;
        is_plain(text).then_some(text)
    }

    fn token(&mut self) -> Option<Token<'a>> {
        if self.0.starts_with('"') {
            return self.text().map(Token::Text);
        }
        let is_end = |byte: char| !(byte.is_ascii_digit() || byte == '-' || byte == '.');
        let (number, rest) = self.0.split_at(self.0.find(is_end)?);
        self.0 = rest;
        Number::parse(number).map(Token::Number)
    }

    /// Reads the members of an object. Refuses a repeated name.
    fn members(&mut self) -> Option<Vec<(&'a str, Token<'a>)>> {
        let mut members: Vec<(&str, Token<'_>)> = Vec::new();
        self.skip("{")?;
        loop {
            let name = self.text()?;
            // No reading has more members than a schema has fields, with the time.
            if members.len() > 80 || members.iter().any(|(known, _)| *known == name) {
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
