//! Problems as HTTP responses (RFC 9457), with the header fields that tell a client how to proceed.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use moteseal_api::{PROBLEM_JSON, Place, Problem, ProblemType};

/// A problem and the header fields that belong to it. The content is boxed, so that a `Result`
/// stays small.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Content>);

#[derive(Debug)]
struct Content {
    problem: Problem,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The schemes of authentication that a service accepts (RFC 9110, section 11.6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenges {
    pub(crate) bearer: bool,
    pub(crate) basic: bool,
}

impl Refusal {
    pub(crate) fn new(of: ProblemType, detail: impl Into<String>) -> Self {
        Problem::new(of, detail).into()
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::NOT_FOUND, detail)
    }

    pub(crate) fn bad_query(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::BAD_QUERY, detail)
    }

    /// Creates the problem of an overloaded service. The client should retry after a second.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::UNAVAILABLE, detail)
    }

    /// Creates the problem of a request without a valid credential.
    pub(crate) fn unauthorized(detail: impl Into<String>, challenges: Challenges) -> Self {
        let mut refusal = Self::new(ProblemType::UNAUTHORIZED, detail);
        let of = |challenge| (WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        if challenges.bearer {
            refusal.0.headers.push(of("Bearer"));
        }
        if challenges.basic {
            refusal.0.headers.push(of(r#"Basic realm="moteseal", charset="UTF-8""#));
        }
        refusal
    }

    /// Creates a problem that ends after `wait`.
    pub(crate) fn later(of: ProblemType, detail: impl Into<String>, wait: Duration) -> Self {
        let mut refusal = Self::new(of, detail);
        let seconds = wait.as_millis().div_ceil(1000);
        refusal.0.headers =
            vec![(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)))];
        refusal
    }

    /// Creates the problem for a request whose path does not support its method. `allowed` lists
    /// the supported methods, in upper case.
    pub(crate) fn method_not_allowed(detail: impl Into<String>, allowed: &str) -> Self {
        let mut refusal = Self::new(ProblemType::METHOD_NOT_ALLOWED, detail);
        refusal
            .0
            .headers
            .extend(HeaderValue::from_str(allowed).ok().map(|allowed| (ALLOW, allowed)));
        refusal
    }

    /// Adds the position in an upload.
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.0.problem.place = Some(place);
        self
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.0.problem
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let header = match problem.status {
            // The rest of the body is not read, so the connection cannot carry another request.
            408 | 413 => Some((CONNECTION, "close")),
            429 | 503 => Some((RETRY_AFTER, "1")),
            507 => Some((RETRY_AFTER, "60")),
            _ => None,
        };
        let header = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
        Self(Box::new(Content { problem, headers: header.into_iter().collect() }))
    }
}

/// The name and detail of the problem that a response reports, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) name: Cow<'static, str>,
    pub(crate) detail: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let Content { problem, headers } = *self.0;
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::from(problem.to_json()));
        *response.status_mut() = status;
        response.extensions_mut().insert(Reason { name: problem.title, detail: problem.detail });
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        for (name, value) in headers {
            response.headers_mut().append(name, value);
        }
        response
    }
}
