//! Refusals: RFC 9457 problems whose `type` is the error's name.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What the `type` of every problem starts with; the error's name follows.
pub const TYPE_PREFIX: &str = "urn:moteseal:problem:";

/// The names of problems that a service has beside those of verification (spec/errors.md).
pub mod name {
    /// 401: the route needs a bearer token, and there is none or an unknown one.
    pub const UNAUTHORIZED: &str = "Unauthorized";
    /// 403: the token is not for this.
    pub const FORBIDDEN: &str = "Forbidden";
    /// 404: no such path, device or seal.
    pub const NOT_FOUND: &str = "NotFound";
    /// 405: the path has other methods.
    pub const METHOD_NOT_ALLOWED: &str = "MethodNotAllowed";
    /// 408: the request did not arrive in time.
    pub const REQUEST_TIMEOUT: &str = "RequestTimeout";
    /// 413: the request's body is longer than the service takes.
    pub const BODY_TOO_LARGE: &str = "BodyTooLarge";
    /// 413: more bundles in one request than the service takes.
    pub const TOO_MANY_PARTS: &str = "TooManyParts";
    /// 415: the body is of another media type.
    pub const UNSUPPORTED_MEDIA_TYPE: &str = "UnsupportedMediaType";
    /// 400: the query or a parameter of the path is malformed.
    pub const BAD_QUERY: &str = "BadQuery";
    /// 400: the request's body ended early or was torn.
    pub const BAD_BODY: &str = "BadBody";
    /// 413: the query asks for more devices, epochs or events than the service answers at once.
    pub const QUERY_TOO_LARGE: &str = "QueryTooLarge";
    /// 429: as many answers are being sent as the service sends at once.
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
    /// 503: too much at once, or stopping.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// 507: the store's disk is full.
    pub const STORE_FULL: &str = "StoreFull";
    /// 500: the store failed.
    pub const STORE_FAILED: &str = "StoreFailed";
    /// 422: an upload's part lacks its signature or a surviving level.
    pub const NOT_WHOLE: &str = "NotWhole";
    /// 409: a part of the levels from a round on, and no manifest of its epoch.
    pub const MANIFEST_MISSING: &str = "ManifestMissing";
    /// 409: two different seals under one index: evidence against the device, kept and reported.
    pub const EQUIVOCATION: &str = "Equivocation";
}

/// Where in an upload the problem lies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The item's number in the body, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// The device, as sixteen hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The first seal index of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_index: Option<u32>,
    /// The last seal index of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_index: Option<u32>,
}

/// A refusal (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// [`TYPE_PREFIX`] and the error's name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The error's name.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong and what to do, in one line.
    pub detail: String,
    /// Where in an upload.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Problem {
    /// A problem called `name`. The detail does not begin with that name; where it does, as errors' texts do, the name is cut off.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, status: u16, detail: impl AsRef<str>) -> Self {
        let title = name.into();
        let detail = without_name(&title, detail.as_ref()).to_owned();
        Self { kind: format!("{TYPE_PREFIX}{title}"), title, status, detail, place: None }
    }

    /// The same problem, at a place.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// The error's name, from its type.
    #[must_use]
    pub fn name(&self) -> &str {
        self.kind.strip_prefix(TYPE_PREFIX).unwrap_or(&self.kind)
    }

    /// The body of the response.
    #[must_use]
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always encode")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (HTTP {})", self.name(), self.detail, self.status)
    }
}

impl std::error::Error for Problem {}

/// An error's text without its name and the colon behind it.
#[must_use]
pub fn without_name<'t>(name: &str, text: &'t str) -> &'t str {
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text)
}

/// The status of an upload that fails verification: 400 where it holds what does not belong in it, 409 where the sender
/// can mend it by sending more, 413 where a limit is passed, else 422.
#[must_use]
pub fn upload_status(name: &str) -> u16 {
    match name {
        "PrevUnknown" | "UnknownRoster" | name::MANIFEST_MISSING => 409,
        "StoreDamaged" | name::STORE_FAILED => 500,
        name::TOO_MANY_PARTS | "TooManyEvents" | "RunTooLong" => 413,
        name::BAD_BODY => 400,
        _ => 422,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The specification has every name, and the status that comes with it.
    #[test]
    fn every_name_is_specified() {
        let source = include_str!("problem.rs");
        let specified = include_str!("../../../spec/errors.md");
        let mut found = 0;
        for pair in source.lines().collect::<Vec<_>>().windows(2) {
            let Some((_, value)) = pair[1]
                .trim()
                .strip_prefix("pub const ")
                .and_then(|line| line.split_once(": &str = \""))
            else {
                continue;
            };
            let name = value.trim_end_matches("\";");
            if name.starts_with("urn:") {
                continue;
            }
            found += 1;
            let status: String = pair[0].chars().filter(char::is_ascii_digit).take(3).collect();
            // What a problem is called may also be what an answer is refused with, in a table of its own.
            let start = format!("| `{name}` | {status} |");
            assert!(
                specified.lines().any(|line| line.starts_with(&start)),
                "spec/errors.md does not have {start}"
            );
        }
        assert_eq!(found, 18);
    }

    #[test]
    fn problems_read_back_with_and_without_a_place() {
        let bare = Problem::new(name::NOT_FOUND, 404, "no such device; see /v1/devices");
        assert_eq!(
            bare.to_json(),
            r#"{"type":"urn:moteseal:problem:NotFound","title":"NotFound","status":404,"detail":"no such device; see /v1/devices"}"#
        );
        assert_eq!(
            Problem::new("NoOpen", 422, "NoOpen: a part").to_string(),
            "NoOpen: a part (HTTP 422)"
        );
        let placed = Problem::new("NotAuthentic".to_owned(), 422, "x").at(Place {
            item: Some(2),
            device: Some("0123456789abcdef".into()),
            first_index: Some(3),
            last_index: Some(5),
        });
        let read: Problem = serde_json::from_str(&placed.to_json()).unwrap();
        assert_eq!(
            (read.name(), read.place.as_ref().unwrap().last_index),
            ("NotAuthentic", Some(5))
        );
        let read: Problem = serde_json::from_str(&bare.to_json()).unwrap();
        assert_eq!(read.name(), "NotFound");
    }
}
