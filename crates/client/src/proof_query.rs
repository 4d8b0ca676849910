//! The first item of a proof: the query as JSON, with the digest of the roster under which the
//! response was verified. The digest only serves to report that a wrong roster was given; no check
//! depends on it.

use moteseal_api::{Query, strict_json};
use moteseal_verify::Roster;
use serde_json::Value;

/// Encodes the first item of a proof.
pub(crate) fn encode(query: &Query, roster: &Roster) -> String {
    let mut text: Value = serde_json::from_str(&query.to_json()).unwrap_or_default();
    if let Some(text) = text.as_object_mut() {
        text.insert("roster".to_owned(), roster.digest().to_string().into());
    }
    text.to_string()
}

/// Decodes the first item of a proof: the query, and the roster's digest if there is one.
///
/// # Errors
/// A message that states what is wrong with the item.
pub(crate) fn decode(text: &str) -> Result<(Query, Option<String>), String> {
    let mut text = strict_json::parse(text.as_bytes())
        .map_err(|error| format!("its query is not JSON ({error})"))?;
    let object = text.as_object_mut().ok_or("its query is not an object")?;
    let roster = match object.remove("roster") {
        None => None,
        Some(Value::String(digest))
            if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            Some(digest)
        }
        Some(_) => return Err("its roster is not a digest".to_owned()),
    };
    let query =
        Query::from_value(text).map_err(|error| format!("its query is invalid ({error})"))?;
    Ok((query, roster))
}
