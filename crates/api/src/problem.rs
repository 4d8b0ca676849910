//! Problems (RFC 9457): the body of every response that reports an error. The `type` of a problem
//! ends with the name of the error.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The prefix of every problem's `type`; the error's name follows.
pub const TYPE_PREFIX: &str = "urn:moteseal:problem:";

/// The name of an error, and the HTTP status of the response that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemType {
    name: &'static str,
    status: u16,
}

macro_rules! problem_types {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $status:literal;)+) => {
        impl ProblemType {
            $($(#[$doc])* pub const $constant: Self = Self::new($name, $status);)+

            /// The problems that a service defines itself (`spec/errors.md`). A service also
            /// reports verification errors as problems, under the names of those errors.
            pub const ALL: &[Self] = &[$(Self::$constant),+];
        }
    };
}

problem_types! {
    /// The route needs a credential, but the request has none, or an unknown or wrong one.
    UNAUTHORIZED = "Unauthorized", 401;
    /// The credential does not have the scope that the route needs, or it is bound to other devices
    /// or to another group.
    FORBIDDEN = "Forbidden", 403;
    /// Too many wrong passwords came from this address or for this user.
    TOO_MANY_FAILURES = "TooManyFailures", 429;
    /// The service cannot read its tokens or its users.
    CREDENTIALS_UNAVAILABLE = "CredentialsUnavailable", 503;
    /// The cloud has no such path, device or seal.
    NOT_FOUND = "NotFound", 404;
    /// The path does not support the method of the request.
    METHOD_NOT_ALLOWED = "MethodNotAllowed", 405;
    /// The request did not arrive in time.
    REQUEST_TIMEOUT = "RequestTimeout", 408;
    /// The request's body is longer than the service accepts.
    BODY_TOO_LARGE = "BodyTooLarge", 413;
    /// The request has more bundles than the service accepts.
    TOO_MANY_PARTS = "TooManyParts", 413;
    /// The body does not have the media type that the route expects.
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType", 415;
    /// The query or a parameter in the URL is malformed.
    BAD_QUERY = "BadQuery", 400;
    /// The request's body ended early or was interrupted.
    BAD_BODY = "BadBody", 400;
    /// The query selects more devices, epochs or events than one response may contain.
    QUERY_TOO_LARGE = "QueryTooLarge", 413;
    /// The service is already sending the maximum number of responses.
    TOO_MANY_REQUESTS = "TooManyRequests", 429;
    /// The service is overloaded or stopping.
    UNAVAILABLE = "Unavailable", 503;
    /// The cloud is still reading its store for the summary.
    SUMMARY_NOT_READY = "SummaryNotReady", 503;
    /// The disk of the store is full.
    STORE_FULL = "StoreFull", 507;
    /// The store failed for another reason.
    STORE_FAILED = "StoreFailed", 500;
    /// A part of an upload lacks its signature, or a level that must be kept.
    NOT_WHOLE = "NotWhole", 422;
    /// A part was pruned at a round, but its epoch has no manifest that determines this round.
    MANIFEST_MISSING = "ManifestMissing", 409;
    /// The urgent events of a device have reached the limit of the service.
    EVENT_QUOTA = "EventQuota", 422;
    /// The device signed two different seals under one index. The cloud stores and reports both:
    /// they are evidence against the device.
    EQUIVOCATION = "Equivocation", 409;
}

impl ProblemType {
    /// Creates the type of the error with this name, which is sent with this HTTP status.
    #[must_use]
    pub const fn new(name: &'static str, status: u16) -> Self {
        Self { name, status }
    }

    /// Returns the type of an error that an upload caused. The status is 400 if the body is
    /// malformed, 409 if the sender must first send something else, 413 if the upload exceeds a
    /// limit, 500 if the store failed, 503 if it is closed or unavailable, and 422 otherwise.
    #[must_use]
    pub fn of_upload(name: &'static str) -> Self {
        let status = match name {
            "PrevUnknown" | "UnknownRoster" | "ManifestMissing" => 409,
            "StoreDamaged" | "StoreFailed" => 500,
            "Closed" | "Unavailable" => 503,
            "TooManyParts" | "TooManyEvents" | "RunTooLong" => 413,
            "BadBody" => 400,
            _ => 422,
        };
        Self::new(name, status)
    }

    /// Returns the type of an error that stops a response or prevents it from starting. The status
    /// is 409 for an equivocation, 413 if the query exceeds a limit, 500 if the store failed, 503 if the store
    /// is closed or unavailable, and 422 otherwise.
    #[must_use]
    pub fn of_response(name: &'static str) -> Self {
        let status = match name {
            "Equivocation" => 409,
            "QueryTooLarge" => 413,
            "Closed" | "Unavailable" => 503,
            "StoreFailed" | "StoreDamaged" | "UnknownRoster" => 500,
            _ => 422,
        };
        Self::new(name, status)
    }

    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.status
    }
}

/// The position of a problem in an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The number of the stream item in the body, from 0.
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

/// A problem (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// [`TYPE_PREFIX`], followed by the error's name.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// The error's name.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong and what to do, in one line, without the error's name.
    pub detail: String,
    /// The position of the problem in an upload, if it has one.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Problem {
    /// Creates a problem of type `of`. `detail` is a message for people, without the error's name.
    #[must_use]
    pub fn new(of: ProblemType, detail: impl Into<String>) -> Self {
        let ProblemType { name, status } = of;
        Self {
            type_uri: format!("{TYPE_PREFIX}{name}"),
            title: name.into(),
            status,
            detail: detail.into(),
            place: None,
        }
    }

    /// Adds the position in an upload to the problem.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Returns the error's name, taken from the problem's type.
    #[must_use]
    pub fn name(&self) -> &str {
        self.type_uri.strip_prefix(TYPE_PREFIX).unwrap_or(&self.type_uri)
    }

    /// Returns the problem as JSON, which is the body of the response.
    #[must_use]
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always encode")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (HTTP {})", self.detail, self.status)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_cause_of_a_stopped_response_determines_its_status() {
        for (name, status) in [
            ("Equivocation", 409),
            ("QueryTooLarge", 413),
            ("Closed", 503),
            ("StoreDamaged", 500),
            ("RateUnavailable", 422),
        ] {
            let problem = ProblemType::of_response(name);
            assert_eq!((problem.name(), problem.status()), (name, status));
        }
    }

    #[test]
    fn the_specification_lists_every_type_with_its_status() {
        let specified = include_str!("../../../spec/errors.md");
        for problem in ProblemType::ALL {
            // The name may also be in other tables of spec/errors.md, without a status.
            let start = format!("| `{}` | {} |", problem.name, problem.status);
            assert!(
                specified.lines().any(|line| line.starts_with(&start)),
                "spec/errors.md does not have {start}"
            );
        }
        assert_eq!(ProblemType::ALL.len(), 22);
    }

    #[test]
    fn the_types_of_uploads_and_responses_agree_with_the_constants() {
        for problem in ProblemType::ALL {
            let of_upload = ProblemType::of_upload(problem.name);
            let of_response = ProblemType::of_response(problem.name);
            assert!(of_upload.status == 422 || of_upload == *problem, "{of_upload:?}");
            assert!(of_response.status == 422 || of_response == *problem, "{of_response:?}");
        }
    }

    #[test]
    fn problems_decode_with_and_without_a_place() {
        let bare = Problem::new(ProblemType::NOT_FOUND, "no such device; see /v1/devices");
        assert_eq!(
            bare.to_json(),
            r#"{"type":"urn:moteseal:problem:NotFound","title":"NotFound","status":404,"detail":"no such device; see /v1/devices"}"#
        );
        assert_eq!(
            Problem::new(ProblemType::of_upload("NoOpen"), "a part").to_string(),
            "a part (HTTP 422)"
        );
        let placed = Problem::new(ProblemType::of_upload("NotAuthentic"), "x").at(Place {
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
