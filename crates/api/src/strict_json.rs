//! JSON without repeated names. RFC 8259 leaves open which value of a repeated name counts, so two
//! programs could read two different queries from one text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value whose objects have no repeated names.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the name \"{name}\" is repeated")));
            }
            let Strict(value) = map.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

/// Parses a JSON text, and rejects repeated names.
///
/// # Errors
/// The parser's error, which states the place.
pub fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(text).map(|Strict(value)| value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_repeated_name_is_an_error_at_every_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"b":[{"a":1,"\u0061":2}]}"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("the name \"a\" is repeated"), "{error}");
        }
    }

    #[test]
    fn other_texts_have_the_usual_value() {
        for text in
            ["null", "-1", "18446744073709551615", "0.5", r#"{"a":[true,{"b":"\u00e9"}],"b":{}}"#]
        {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), usual);
        }
        assert!(parse(b"{} x").is_err() && parse(b"\"\xff\"").is_err());
    }
}
