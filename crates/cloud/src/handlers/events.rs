//! Uploads and listings of urgent events: `/v1/events` (`spec/answers.md`, section 9).
//!
//! The cloud verifies each event with the device's key from the roster, makes it durable, and then
//! acknowledges it. Clients read the events in the order in which they were stored. A client that
//! has read all of them can wait for the next one. The number of clients that wait is limited, and
//! no address can use all places.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use axum::response::IntoResponse;
use moteseal_api::{
    CBOR_SEQ, CURSOR, EventConflict, EventReceipt, Place, Problem, ProblemType, ROSTER_VERSION,
    parse_device, parse_digest,
};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::{Directory as _, NoKey};
use moteseal_seal::UrgentEvent;
use moteseal_service::{Held, Peer};
use moteseal_store::{Reply, StoredUrgent, UrgentLimits, UrgentPage, UrgentPlace};
use moteseal_verify::urgent::{self, UrgentStreamError};
use moteseal_verify::{Roster, write};
use tokio::time::Instant;

use crate::access::Grant;
use crate::ingest::{Acknowledged, INLINE, acknowledge, on_verifier, stored};
use crate::refusal::Refusal;
use crate::request_body;
use crate::state::Shared;
use crate::streaming::{counted, unreadable};
use crate::summary::Mark;
use crate::turns::Turn;

/// The maximum number of events in one upload.
const UPLOAD_EVENTS: usize = 1024;
/// A short upload with up to this many bytes is verified on the thread that received it. It has a
/// few signatures only.
const INLINE_BYTES: usize = 2048;
/// The maximum size of an upload of urgent events, in bytes.
const UPLOAD_BYTES: usize = 8 << 20;
/// The maximum time for which a client may wait, in seconds.
const MOST_WAIT: u64 = 60;
/// What one answer may contain, and how many events it may pass over.
const PAGE: UrgentLimits = UrgentLimits { read: 4096, events: 512, bytes: 1 << 20 };

const _: () = assert!(INLINE_BYTES <= INLINE, "short uploads are verified inline");

/// Handles `PUT /v1/events`.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Extension(grant): Extension<Grant>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    acknowledge(&shared, receive(&shared, peer, grant, request).await)
}

async fn receive(
    shared: &Arc<Shared>,
    peer: Peer,
    grant: Grant,
    request: Request,
) -> Result<Acknowledged<EventReceipt>, Refusal> {
    let (head, body) = request.into_parts();
    let most = UPLOAD_BYTES.min(shared.limits.body_bytes);
    let (body, room) =
        request_body::read(shared, peer, (&head.headers, body), CBOR_SEQ, most).await?;
    let _place = request_body::place(shared, peer)?;
    grant.check_current(shared)?;
    let bytes = body.len() as u64;
    let receipt = verify_and_store(shared, peer, grant, body, Some(room)).await?;
    shared.metrics.upload_bytes.increment(bytes);
    Ok(receipt)
}

/// Verifies urgent events and returns once they are durable. `room` counts the memory of `body`.
pub(crate) async fn verify_and_store(
    shared: &Arc<Shared>,
    peer: Peer,
    grant: Grant,
    body: Bytes,
    room: Option<Held>,
) -> Result<Acknowledged<EventReceipt>, Refusal> {
    // The upload needs memory for two copies in addition to the body: one that is verified and one
    // for the store.
    let more = shared.bundles.wait(peer, 2 * body.len() as u64).await;
    let (events, _room) = if body.len() <= INLINE_BYTES && !shared.store.waits() {
        (verify(shared, &grant, &body, &mut || ())?, (room, more))
    } else {
        let work = move |shared: &Shared, turn: &Turn| {
            Ok((verify(shared, &grant, &body, &mut || turn.pause())?, (room, more)))
        };
        on_verifier(shared, peer, work).await?
    };
    if events.is_empty() {
        return Ok((EventReceipt::default(), None));
    }
    let mark = Mark::of_events(&shared.summaries);
    let urgent = shared.urgent.clone();
    let submit = |reply: Reply| {
        let reply: Reply = Box::new(move |result| {
            let is_new = result.as_ref().is_ok_and(|receipt| receipt.stored > 0);
            reply(result);
            if is_new {
                urgent.send_modify(|count| *count = count.wrapping_add(1));
            }
        });
        shared.store.submit_urgent(events, reply)
    };
    let receipt = stored(shared, peer, &shared.metrics.events, mark, submit).await?;
    let conflicts = receipt.doubled_events.iter().map(|(device, index, seq)| EventConflict {
        device: device.to_string(),
        index: index.0,
        seq: seq.0,
    });
    let answer = EventReceipt {
        stored: receipt.stored,
        known: receipt.known,
        queued: receipt.queued,
        conflicts: conflicts.collect(),
    };
    Ok((answer, receipt.position))
}

/// Verifies the events of a body, and checks that the credential permits them and that their devices
/// stay within their limit.
fn verify(
    shared: &Shared,
    grant: &Grant,
    body: &[u8],
    pause: &mut dyn FnMut(),
) -> Result<Vec<StoredUrgent>, Refusal> {
    let roster = shared.roster();
    let read = urgent::read(body, &*roster, (UPLOAD_EVENTS, false), pause)?;
    let events: Vec<StoredUrgent> = read.events.iter().map(StoredUrgent::from).collect();
    let mut bytes: BTreeMap<DeviceId, u64> = BTreeMap::new();
    for event in &events {
        *bytes.entry(event.key().device).or_default() += event.counted_bytes();
    }
    for (device, more) in bytes {
        let place = || Place { device: Some(device.to_string()), ..Place::default() };
        grant.check_device(&roster, device).map_err(|refusal| refusal.at(place()))?;
        let used = shared.store.urgent_bytes(device).map_err(unreadable)?;
        // An upload that is repeated must succeed, so a device may exceed its limit by one upload.
        if used >= shared.limits.event_bytes {
            let most = shared.limits.event_bytes;
            let detail = format!(
                "device {device} has stored {used} bytes of urgent events, and {more} more exceed \
                 its limit of {most}; raise the limit event_bytes of the service"
            );
            return Err(Problem::new(ProblemType::EVENT_QUOTA, detail).at(place()).into());
        }
    }
    Ok(events)
}

impl From<UrgentStreamError> for Refusal {
    fn from(error: UrgentStreamError) -> Self {
        let place = Place { item: Some(error.item as u64), ..Place::default() };
        Problem::new(ProblemType::of_upload(error.name()), error.to_string()).at(place).into()
    }
}

/// The query parameters of a listing of urgent events.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    since: EpochNumber,
    /// The selected devices; empty for all devices.
    devices: HashSet<DeviceId>,
    after: Option<UrgentPlace>,
    wait: Duration,
}

impl Selection {
    /// Parses a query. A parameter `device` may occur several times.
    fn parse(query: &str, most_devices: usize) -> Result<Self, Refusal> {
        let mut selection = Self::default();
        let bad = |name: &str, what: &str| {
            Refusal::bad_query(format!("{name} must be {what}; see /openapi.json"))
        };
        let mut seen = HashSet::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if name != "device" && !seen.insert(name) {
                return Err(bad(name, "given once"));
            }
            match name {
                "since" => {
                    let since = u64::from_str(value).map_err(|_| bad("since", "an epoch"))?;
                    selection.since = EpochNumber(since);
                }
                "device" => {
                    let device = parse_device(value)
                        .ok_or_else(|| bad("device", "sixteen hexadecimal digits"))?;
                    selection.devices.insert(device);
                    if selection.devices.len() > most_devices {
                        return Err(Refusal::new(
                            ProblemType::QUERY_TOO_LARGE,
                            format!("a query may name at most {most_devices} devices"),
                        ));
                    }
                }
                "after" => {
                    let place = parse_cursor(value)
                        .ok_or_else(|| bad("after", "the cursor of an earlier answer"))?;
                    selection.after = Some(place);
                }
                "wait" => {
                    let wait = u64::from_str(value).ok().filter(|wait| *wait <= MOST_WAIT);
                    let wait =
                        wait.ok_or_else(|| bad("wait", "a number of seconds from 0 to 60"))?;
                    selection.wait = Duration::from_secs(wait);
                }
                _ => return Err(Refusal::bad_query(format!("there is no parameter {name:?}"))),
            }
        }
        Ok(selection)
    }
}

/// Parses the cursor of a place: the number of the event, a hyphen, and its digest in hexadecimal
/// digits.
fn parse_cursor(text: &str) -> Option<UrgentPlace> {
    let (number, digest) = text.split_once('-')?;
    Some(UrgentPlace { number: number.parse().ok()?, digest: parse_digest(digest)? })
}

pub(crate) fn cursor(place: UrgentPlace) -> String {
    format!("{}-{}", place.number, place.digest)
}

/// Handles `GET /v1/events`.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Extension(grant): Extension<Grant>,
    RawQuery(query): RawQuery,
) -> Result<Response<Body>, Refusal> {
    let query = query.unwrap_or_default();
    let selection = Arc::new(Selection::parse(&query, shared.limits.query_devices)?);
    let until = Instant::now() + selection.wait;
    let mut changes = shared.urgent.subscribe();
    let mut after = selection.after;
    let mut waiting = None;
    loop {
        changes.mark_unchanged();
        // Only a request that reads the store counts as in progress.
        let (page, roster) = {
            let _place = match &waiting {
                None => Some(request_body::place(&shared, peer)?),
                // An event wakes many clients at once. They read the store one after the other.
                Some(_) => shared.requests.wait(peer, 1).await,
            };
            read(&shared, &selection, after).await?
        };
        // The credential may have been revoked while the client waited.
        grant.check_current(&shared)?;
        let is_over = Instant::now() >= until || shared.stopping.load(Ordering::Relaxed);
        if !page.page.events.is_empty() || page.page.has_more || is_over {
            let last = page.page.last.or(after);
            return counted(&shared, peer, page.response(last, &roster)?);
        }
        // The events that were passed over need not be read again.
        after = page.page.last.or(after);
        if waiting.is_none() {
            let place = shared.waiters.take(peer, 1).ok_or_else(|| {
                Refusal::new(
                    ProblemType::TOO_MANY_REQUESTS,
                    "too many clients wait for urgent events; ask without wait, or try again later",
                )
            })?;
            waiting = Some(place);
        }
        let _ = tokio::time::timeout_at(until, changes.changed()).await;
    }
}

/// A page and the schemas of its events.
struct Page {
    page: UrgentPage,
    schemas: BTreeMap<Digest, Vec<u8>>,
}

/// Reads the next page on a thread that may block.
async fn read(
    shared: &Arc<Shared>,
    selection: &Arc<Selection>,
    after: Option<UrgentPlace>,
) -> Result<(Page, Arc<Roster>), Refusal> {
    let (shared, selection) = (Arc::clone(shared), Arc::clone(selection));
    let read = tokio::task::spawn_blocking(move || {
        let roster = shared.roster();
        let select = |device: DeviceId, epoch: EpochNumber| {
            epoch >= selection.since
                && (selection.devices.is_empty() || selection.devices.contains(&device))
        };
        let mut page = shared.store.urgent(after, PAGE, &select).map_err(unreadable)?;
        page.events.retain(|(_, bytes)| !is_void(&roster, bytes));
        let mut schemas = BTreeMap::new();
        for (key, bytes) in &page.events {
            let damaged =
                || Refusal::new(ProblemType::new("StoreDamaged", 500), format!("{key} is damaged"));
            let digest = UrgentEvent::claimed_schema(bytes).map_err(|_| damaged())?;
            if let Entry::Vacant(entry) = schemas.entry(digest) {
                let schema = shared.store.schema(&digest).map_err(unreadable)?;
                entry.insert(schema.ok_or_else(damaged)?);
            }
        }
        Ok((Page { page, schemas }, roster))
    });
    let failed = |_| {
        Refusal::new(ProblemType::STORE_FAILED, "reading the store failed unexpectedly; try again")
    };
    read.await.map_err(failed)?
}

/// Returns whether the roster has ended the key of an event. Such an event is not served, like a
/// seal of that key.
fn is_void(roster: &Roster, bytes: &[u8]) -> bool {
    let place = UrgentEvent::claimed_place(bytes);
    place.is_some_and(|(device, index, epoch)| {
        roster.with_key(device, index, epoch, &mut |_| {}) == Err(NoKey::Ended)
    })
}

impl Page {
    /// Returns the response: for each event its schema, unless an earlier event has the same one,
    /// and the event.
    fn response(
        self,
        last: Option<UrgentPlace>,
        roster: &Roster,
    ) -> Result<Response<Body>, Refusal> {
        let (mut body, mut schema) = (Vec::new(), None);
        for (_, bytes) in &self.page.events {
            let digest = UrgentEvent::claimed_schema(bytes).ok();
            if schema != digest {
                let encoded = digest.and_then(|digest| self.schemas.get(&digest));
                encoded.into_iter().for_each(|encoded| write::schema(&mut body, encoded));
                schema = digest;
            }
            body.extend_from_slice(bytes);
        }
        write::end(&mut body);
        let mut response = Response::new(Body::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CBOR_SEQ));
        headers.insert(ROSTER_VERSION, HeaderValue::from(roster.version()));
        if let Some(last) = last {
            let value = HeaderValue::from_str(&cursor(last)).map_err(|_| {
                Refusal::new(ProblemType::STORE_FAILED, "the cursor cannot be sent")
            })?;
            headers.insert(CURSOR, value);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_other_texts_are_not_cursors() {
        let place = UrgentPlace { number: u64::MAX, digest: Digest([0xab; 32]) };
        assert_eq!(parse_cursor(&cursor(place)), Some(place));
        for text in ["", "1", "-", "1-", "-ab", "1-ab", "x-y", &cursor(place)[1..9]] {
            assert_eq!(parse_cursor(text), None, "{text}");
        }
    }

    #[test]
    fn a_query_names_each_parameter_once_and_devices_up_to_the_limit() {
        let parse =
            |query: &str| Selection::parse(query, 2).map_err(|error| error.problem().status);
        let all = parse("since=3&device=0123456789abcdef&device=00000000000000ff&wait=60").unwrap();
        assert_eq!((all.since.0, all.devices.len(), all.wait.as_secs()), (3, 2, 60));
        assert_eq!(parse("").unwrap(), Selection::default());
        for (query, status) in [
            ("since=x", 400),
            ("since=1&since=2", 400),
            ("device=12", 400),
            ("wait=61", 400),
            ("wait=-1", 400),
            ("after=7", 400),
            ("limit=7", 400),
            ("device=0000000000000001&device=0000000000000002&device=0000000000000003", 413),
        ] {
            assert_eq!(parse(query).unwrap_err(), status, "{query}");
        }
    }
}
