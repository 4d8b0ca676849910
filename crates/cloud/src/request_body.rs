//! Reads request bodies, and checks their media type, their length and the rate at which they
//! arrive.
//!
//! A body occupies memory for the bytes that have arrived, not for its declared length. It must
//! arrive at a minimum rate, and a request does not count as in progress before its body has
//! arrived. A client that sends slowly or stops sending therefore occupies one connection and the
//! memory for the bytes that it sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use moteseal_api::ProblemType;
use moteseal_service::{Held, Peer};

use crate::refusal::Refusal;
use crate::state::Shared;

/// For how long the rest of a rejected body is read and discarded.
const DRAIN: Duration = Duration::from_secs(2);

/// Reserves a place among the requests in progress. Fails if no place is free, because the service
/// is then overloaded.
pub(crate) fn place(shared: &Shared, peer: Peer) -> Result<Held, Refusal> {
    shared
        .requests
        .take(peer, 1)
        .ok_or_else(|| Refusal::busy("too many requests are in progress; try again shortly"))
}

/// Rejects a body that does not have the media type `expected` or that has a content coding, such as
/// gzip (RFC 9110, section 8.4). A request without `Content-Type` is accepted.
fn media_type(headers: &HeaderMap, expected: &str) -> Result<(), Refusal> {
    let is_identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        return Err(Refusal::new(
            ProblemType::UNSUPPORTED_MEDIA_TYPE,
            "the body has a content coding, which this service does not decode; send the body \
             without Content-Encoding",
        ));
    }
    let Some(found) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let found = found.to_str().unwrap_or_default();
    if found.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Refusal::new(ProblemType::UNSUPPORTED_MEDIA_TYPE, format!("the body must be {expected}")))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(
        ProblemType::BODY_TOO_LARGE,
        format!("the body of this request may have at most {most} bytes; send less at once"),
    )
}

fn slow() -> Refusal {
    Refusal::new(
        ProblemType::REQUEST_TIMEOUT,
        "the body did not arrive in time; send it again, faster or in several requests",
    )
}

/// Reads and discards the rest of a rejected body for up to [`DRAIN`]. Without this, a client that
/// is still sending would see a broken connection instead of the response. If the client waits for
/// permission to send (`Expect: 100-continue`), nothing is read.
pub(crate) async fn drain(headers: &HeaderMap, mut body: Body, refusal: Refusal) -> Refusal {
    if !headers.contains_key(EXPECT) {
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(DRAIN, rest).await;
    }
    refusal
}

/// Reads a whole body. The body must have the media type `expected`, have at most `most` bytes, and
/// arrive at the rate that the limits require. Its memory counts against the peer until the
/// returned [`Held`] is dropped.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    peer: Peer,
    (headers, mut body): (&HeaderMap, Body),
    expected: &str,
    most: usize,
) -> Result<(Bytes, Held), Refusal> {
    if let Err(refusal) = media_type(headers, expected) {
        return Err(drain(headers, body, refusal).await);
    }
    if content_length(headers).is_some_and(|length| length > most as u64) {
        return Err(drain(headers, body, too_large(most)).await);
    }
    let full = || Refusal::busy("the memory for request bodies is full; try again shortly");
    let Some(mut room) = shared.bodies.take(peer, 0) else {
        return Err(drain(headers, body, full()).await);
    };
    let limits = &shared.limits;
    let due = u128::from(limits.body_rate) * limits.body_stall.as_millis() / 1000;
    let start = Instant::now();
    let (mut since, mut arrived) = (start, 0_u128);
    let mut whole: Option<Bytes> = None;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let left = limits.body_time.checked_sub(start.elapsed()).ok_or_else(slow)?;
        let Some(check_in) =
            limits.body_stall.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
        else {
            if arrived < due {
                return Err(slow());
            }
            (since, arrived) = (Instant::now(), 0);
            continue;
        };
        let frame = match tokio::time::timeout(left.min(check_in), body.frame()).await {
            Err(_) => continue,
            Ok(None) => break,
            Ok(Some(frame)) => frame,
        };
        let frame = frame.map_err(|error| {
            Refusal::new(ProblemType::BAD_BODY, format!("the body was interrupted: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        arrived += data.len() as u128;
        let so_far = whole.as_ref().map_or(joined.len(), Bytes::len);
        if so_far + data.len() > most {
            return Err(drain(headers, body, too_large(most)).await);
        }
        // Never block on memory: reject the request and let the client retry.
        if !room.grow(data.len() as u64) {
            return Err(drain(headers, body, full()).await);
        }
        // Most bodies arrive in one piece. A single piece is not copied.
        match (whole.take(), joined.is_empty()) {
            (None, true) => whole = Some(data),
            (None, false) => joined.extend_from_slice(&data),
            (Some(first), _) => {
                joined.reserve(first.len() + data.len());
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok((whole.unwrap_or_else(|| joined.into()), room))
}
