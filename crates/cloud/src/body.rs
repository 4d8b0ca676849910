//! Bodies of requests on their way in: what they may be, how much, how fast, and what becomes of those that are refused.
//!
//! A body takes room for what it has sent, never for what it says it will; it must keep a minimum pace; and it holds none of the
//! places that requests are answered in. So whoever sends slowly, or nothing, holds a connection and what was sent, no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http_body_util::BodyExt;
use moteseal_api::problem::name;

use crate::refusal::Refusal;
use crate::service::Shared;
use crate::share::{Held, Peer};

/// How long a refused body is passed over.
const DRAIN: Duration = Duration::from_secs(2);

/// A place among the requests being answered at once.
pub(crate) fn request_place(shared: &Shared, peer: Peer) -> Result<Held, Refusal> {
    shared
        .requests
        .take(peer, 1)
        .ok_or_else(|| Refusal::busy("too many requests are under way; try again shortly"))
}

/// Refuses a body that says it is something else. One that says nothing is taken at its bytes.
fn media_type(headers: &HeaderMap, expected: &str) -> Result<(), Refusal> {
    let Some(found) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let found = found.to_str().unwrap_or_default();
    if found.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Refusal::new(name::UNSUPPORTED_MEDIA_TYPE, 415, format!("the body must be {expected}")))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(
        name::BODY_TOO_LARGE,
        413,
        format!("a request may have {most} bytes; send less at once"),
    )
}

fn slow() -> Refusal {
    Refusal::new(
        name::REQUEST_TIMEOUT,
        408,
        "the body did not arrive in time; send it again, faster or in parts",
    )
}

/// Passes over the rest of a body for a moment: a sender that is cut off in the middle of it would see a torn connection and not
/// the refusal. One that asks first (`Expect: 100-continue`) is not made to send it.
pub(crate) async fn drained(headers: &HeaderMap, mut body: Body, refusal: Refusal) -> Refusal {
    if !headers.contains_key(EXPECT) {
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(DRAIN, rest).await;
    }
    refusal
}

/// Reads a whole body of the media type `expected` and at most `most` bytes, at the pace that the limits ask. It holds the room
/// that comes with it for as long as that lives.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    peer: Peer,
    (headers, mut body): (&HeaderMap, Body),
    expected: &str,
    most: usize,
) -> Result<(Bytes, Held), Refusal> {
    if let Err(refusal) = media_type(headers, expected) {
        return Err(drained(headers, body, refusal).await);
    }
    if content_length(headers).is_some_and(|length| length > most as u64) {
        return Err(drained(headers, body, too_large(most)).await);
    }
    let full = || Refusal::busy("too many bytes of requests are under way; try again shortly");
    let Some(mut room) = shared.bodies.take(peer, 0) else {
        return Err(drained(headers, body, full()).await);
    };
    let limits = &shared.limits;
    let due = u128::from(limits.body_rate) * limits.body_stall.as_millis() / 1000;
    let start = Instant::now();
    let (mut since, mut came) = (start, 0_u128);
    let mut whole: Option<Bytes> = None;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let left = limits.body_time.checked_sub(start.elapsed()).ok_or_else(slow)?;
        let Some(judged_in) =
            limits.body_stall.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
        else {
            if came < due {
                return Err(slow());
            }
            (since, came) = (Instant::now(), 0);
            continue;
        };
        let frame = match tokio::time::timeout(left.min(judged_in), body.frame()).await {
            Err(_) => continue,
            Ok(None) => break,
            Ok(Some(frame)) => frame,
        };
        let frame = frame.map_err(|error| {
            Refusal::new(name::BAD_BODY, 400, format!("the body was torn: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        came += data.len() as u128;
        let so_far = whole.as_ref().map_or(joined.len(), Bytes::len);
        if so_far + data.len() > most {
            return Err(drained(headers, body, too_large(most)).await);
        }
        // Nobody waits for room, so nobody waits for others who do: whoever finds none comes again.
        if !room.grow(data.len() as u64) {
            return Err(drained(headers, body, full()).await);
        }
        // The usual small body comes in one piece, which is not copied.
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
