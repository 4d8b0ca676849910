//! Problems as responses (RFC 9457), each with what a client needs to do better.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use moteseal_api::problem::name;
use moteseal_api::{PROBLEM_JSON, Problem};

/// A problem on its way out. Boxed: the way that succeeds carries it around for nothing.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Problem>);

impl Refusal {
    pub(crate) fn new(name: &'static str, status: u16, detail: impl AsRef<str>) -> Self {
        Self(Box::new(Problem::new(name, status, detail)))
    }

    pub(crate) fn not_found(detail: impl AsRef<str>) -> Self {
        Self::new(name::NOT_FOUND, 404, detail)
    }

    pub(crate) fn bad_query(detail: impl AsRef<str>) -> Self {
        Self::new(name::BAD_QUERY, 400, detail)
    }

    /// The service does enough already; a second later it may not.
    pub(crate) fn busy(detail: impl AsRef<str>) -> Self {
        Self::new(name::UNAVAILABLE, 503, detail)
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// What a refused response was for, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) name: Cow<'static, str>,
    pub(crate) detail: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::from(self.0.to_json()));
        *response.status_mut() = status;
        response
            .extensions_mut()
            .insert(Reason { name: self.0.title.clone(), detail: self.0.detail.clone() });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        match self.0.status {
            401 => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The detail ends with the methods that the path has.
            405 => {
                let allowed = self
                    .0
                    .detail
                    .rsplit_once("use ")
                    .and_then(|(_, methods)| HeaderValue::from_str(methods).ok());
                headers.insert(ALLOW, allowed.unwrap_or(HeaderValue::from_static("GET")));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            408 | 413 => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            429 | 503 => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            507 => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
            }
            _ => {}
        }
        response
    }
}
