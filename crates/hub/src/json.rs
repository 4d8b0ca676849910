//! Reading single values of JSON messages by JSON Pointer (RFC 6901).
//!
//! A message is checked once and is not turned into a tree. Each pointer reads the message up to its
//! value. Numbers keep their decimal text, so that 21.30 is not rounded on its way into a column.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum number of levels of a pointer.
const MAX_LEVELS: usize = 16;

/// A JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// Parses a pointer: empty for the whole message, or `/` before the name of each level, in which
    /// `~1` stands for `/` and `~0` for `~`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let levels: Option<Vec<String>> =
            text.strip_prefix('/')?.split('/').map(unescape).collect();
        levels.filter(|levels| levels.len() <= MAX_LEVELS).map(Self)
    }

    /// Returns the value at this pointer, or `None` if the message has none. If an object has a
    /// name twice, the last one counts.
    pub(crate) fn find<'a>(&self, message: &'a RawValue) -> Option<&'a RawValue> {
        let mut value = message;
        for level in &self.0 {
            let mut reader = serde_json::Deserializer::from_str(value.get());
            value = reader.deserialize_any(Step(level)).ok()??;
        }
        Some(value)
    }
}

fn unescape(level: &str) -> Option<String> {
    let mut text = String::with_capacity(level.len());
    let mut characters = level.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            character => character,
        });
    }
    Some(text)
}

/// Reads one level: the member of an object with this name, or the element of an array at this
/// place.
struct Step<'p>(&'p str);

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Name(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        // An index has no leading zeros (RFC 6901, section 4).
        let index = self.0.parse::<usize>().ok().filter(|index| index.to_string() == self.0);
        let (mut found, mut place) = (None, 0);
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if Some(place) == index {
                found = Some(element);
            }
            place += 1;
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Compares the name of a member.
struct Name<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// A message: JSON, or text that is not JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

/// A value of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The digits of a number as the message has them.
    Number(&'a str),
    Text(Cow<'a, str>),
    /// An object or an array.
    Nested,
}

impl<'a> Payload<'a> {
    /// Reads a message. Returns `None` if it is not text in UTF-8.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        Some(serde_json::from_str(text).map_or(Self::Text(text), Self::Json))
    }

    /// Returns the value at a pointer, or `None` if there is none.
    pub(crate) fn value(&self, pointer: &Pointer) -> Option<Scalar<'a>> {
        match self {
            Self::Json(message) => pointer.find(message).map(scalar),
            Self::Text(text) if pointer.0.is_empty() => Some(Scalar::Text(Cow::Borrowed(text))),
            Self::Text(_) => None,
        }
    }
}

fn scalar(value: &RawValue) -> Scalar<'_> {
    let text = value.get().trim();
    match text.as_bytes().first() {
        Some(b'n') => Scalar::Null,
        Some(b't') => Scalar::Bool(true),
        Some(b'f') => Scalar::Bool(false),
        Some(b'"') => match serde_json::from_str::<Cow<'_, str>>(text) {
            Ok(text) => Scalar::Text(Cow::Owned(text.into_owned())),
            // The message was checked before, so the string is valid.
            Err(_) => Scalar::Nested,
        },
        Some(b'{' | b'[') | None => Scalar::Nested,
        Some(_) => Scalar::Number(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn value<'a>(message: &'a str, pointer: &str) -> Option<Scalar<'a>> {
        Payload::read(message.as_bytes()).unwrap().value(&Pointer::parse(pointer).unwrap())
    }

    /// RFC 6901, section 5.
    #[test]
    fn finds_the_values_of_the_examples_of_the_standard() {
        let message = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8}"#;
        for (pointer, number) in [
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ] {
            assert_eq!(value(message, pointer), Some(Scalar::Number(number)), "{pointer}");
        }
        assert_eq!(value(message, "/foo/0"), Some(Scalar::Text("bar".into())));
        assert_eq!(value(message, "/foo"), Some(Scalar::Nested));
        assert_eq!(value(message, ""), Some(Scalar::Nested));
        for missing in ["/foo/2", "/foo/00", "/foo/-", "/foo/0/x", "/bar", "/ /x"] {
            assert_eq!(value(message, missing), None, "{missing}");
        }
        for wrong in ["foo", "/~", "/~2", "#/foo"] {
            assert_eq!(Pointer::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keeps_the_digits_of_a_number() {
        let message = r#"{"a": 21.30, "b": {"c": -1e-3}, "d": 123456789012345678901234567890}"#;
        assert_eq!(value(message, "/a"), Some(Scalar::Number("21.30")));
        assert_eq!(value(message, "/b/c"), Some(Scalar::Number("-1e-3")));
        assert_eq!(value(message, "/d"), Some(Scalar::Number("123456789012345678901234567890")));
    }

    #[test]
    fn a_message_that_is_not_json_is_one_text() {
        assert_eq!(value(" on\n", ""), Some(Scalar::Text("on".into())));
        assert_eq!(value("21.5", ""), Some(Scalar::Number("21.5")));
        assert_eq!(value("{\"a\": 1", "/a"), None);
        assert!(Payload::read(b"\xff").is_none());
    }

    #[test]
    fn the_last_of_two_members_with_the_same_name_counts() {
        assert_eq!(value(r#"{"a": 1, "a": true}"#, "/a"), Some(Scalar::Bool(true)));
        assert_eq!(value(r#"{"\u0061": null}"#, "/a"), Some(Scalar::Null));
    }

    #[test]
    fn a_deeply_nested_message_needs_no_deep_stack() {
        let deep = "[".repeat(30_000) + &"]".repeat(30_000);
        for message in [format!("{{\"deep\": {deep}, \"n\": 1}}"), deep.clone()] {
            assert!(matches!(Payload::read(message.as_bytes()), Some(Payload::Json(_))));
            assert_eq!(value(&message, ""), Some(Scalar::Nested));
            assert_eq!(value(&message, "/x"), None);
        }
        let message = format!("{{\"deep\": {deep}, \"n\": 1, \"last\": [{deep}, 2]}}");
        assert_eq!(value(&message, "/n"), Some(Scalar::Number("1")));
        assert_eq!(value(&message, "/deep/0/0"), Some(Scalar::Nested));
        assert_eq!(value(&message, "/last/1"), Some(Scalar::Number("2")));
    }
}
