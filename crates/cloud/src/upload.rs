//! Uploads: read within limits, verify everything, store all of it durably, only then acknowledge.
//!
//! A stranger gets bounded work: the length is judged before the body is read, the number of parts and events before anything
//! is hashed, and the first thing that is wrong ends the request with nothing stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Json};
use http_body_util::BodyExt;
use moteseal_api::problem::{name, upload_status, without_name};
use moteseal_api::{CBOR_SEQ, Conflict, Place, Problem, Receipt};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::seal::Statement;
use moteseal_core::seal::follow::Limits as SealLimits;
use moteseal_core::wire::stream::{Item, Select};
use moteseal_store::{Bundle, PutError};
use moteseal_verify::{Event, ReadError, StreamReader};
use tokio::sync::oneshot;
use tracing::warn;

use crate::refusal::Refusal;
use crate::service::Shared;

/// Uploads up to this length are verified where they are read: handing them to another thread would cost more than it frees.
const INLINE: usize = 64 << 10;
/// The same for events, whose levels are computed whether or not they are sent: about a nanosecond each.
const INLINE_EVENTS: u64 = 1 << 16;

/// How long a refused body is passed over.
const DRAIN: Duration = Duration::from_secs(2);

/// `PUT /v1/bundles`.
pub(crate) async fn bundles(State(shared): State<Arc<Shared>>, request: Request) -> Result<impl IntoResponse, Refusal> {
    let result = receive(&shared, request).await;
    if let Err(refusal) = &result {
        shared.metrics.refused_upload(refusal.problem().name());
    }
    result.map(Json)
}

async fn receive(shared: &Arc<Shared>, request: Request) -> Result<Receipt, Refusal> {
    let (head, body) = request.into_parts();
    media_type(&head.headers, CBOR_SEQ)?;
    let most = shared.limits.body_bytes;
    let length = content_length(&head.headers);
    if length.is_some_and(|length| length > most as u64) {
        return Err(drained(body, too_large(most)).await);
    }
    // As read, as verified, as stored. Without a length, room for the longest body is set aside.
    let kib = (3 * length.unwrap_or(most as u64)).div_ceil(1024);
    let kib = u32::try_from(kib).unwrap_or(u32::MAX).min(shared.most_upload_kib());
    let Ok(room) = Arc::clone(&shared.upload_kib).try_acquire_many_owned(kib) else {
        return Err(Refusal::busy("too many bytes of uploads are under way; try again shortly"));
    };
    let body = read(body, length, most, shared.limits.body_stall, shared.limits.body_time).await?;
    let bytes = body.len() as u64;
    let light = body.len() <= INLINE && weigh(shared, &body)? <= INLINE_EVENTS;
    let (bundles, _room) = if light {
        (judge(shared, &body)?, room)
    } else {
        let core = Arc::clone(&shared.verifiers).acquire_owned().await;
        let shared = Arc::clone(shared);
        // Core and room go along: a sender that hangs up frees neither before the work is done.
        let judged = tokio::task::spawn_blocking(move || {
            let _core = core;
            weigh(&shared, &body)?;
            judge(&shared, &body).map(|bundles| (bundles, room))
        });
        let failed = |_| Refusal::new(name::STORE_FAILED, 500, "verification failed unexpectedly; send the upload again");
        judged.await.map_err(failed)??
    };
    let receipt = store(shared, bundles).await?;
    shared.metrics.upload_bytes.increment(bytes);
    Ok(receipt)
}

/// Refuses a body that says it is something else. One that says nothing is taken at its bytes.
pub(crate) fn media_type(headers: &HeaderMap, expected: &str) -> Result<(), Refusal> {
    let Some(found) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let found = found.to_str().unwrap_or_default();
    if found.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Refusal::new(name::UNSUPPORTED_MEDIA_TYPE, 415, format!("the body must be {expected}")))
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(name::BODY_TOO_LARGE, 413, format!("a request may have {most} bytes; send less at once"))
}

/// Passes over the rest of a body for a moment: a sender that is cut off in the middle of it would see a torn connection and not
/// the refusal.
async fn drained(mut body: Body, refusal: Refusal) -> Refusal {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DRAIN, rest).await;
    refusal
}

/// Reads a whole body of at most `most` bytes, each next piece of it within `stall`, all of it within `time`.
pub(crate) async fn read(
    mut body: Body,
    length: Option<u64>,
    most: usize,
    stall: Duration,
    time: Duration,
) -> Result<Bytes, Refusal> {
    let slow = || Refusal::new(name::REQUEST_TIMEOUT, 408, "the body did not arrive in time; send it again, faster or in parts");
    let start = Instant::now();
    let mut whole: Option<Bytes> = None;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let left = time.checked_sub(start.elapsed()).ok_or_else(slow)?;
        let Some(frame) = tokio::time::timeout(stall.min(left), body.frame()).await.map_err(|_| slow())? else { break };
        let frame = frame.map_err(|error| Refusal::new(name::BAD_BODY, 400, format!("the body was torn: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = whole.as_ref().map_or(joined.len(), Bytes::len);
        if so_far + data.len() > most {
            return Err(drained(body, too_large(most)).await);
        }
        // The usual small body comes in one piece, which is not copied.
        match (whole.take(), joined.is_empty()) {
            (None, true) => whole = Some(data),
            (None, false) => joined.extend_from_slice(&data),
            (Some(first), _) => {
                let expected = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
                joined.reserve(expected.max(first.len() + data.len()));
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok(whole.unwrap_or_else(|| joined.into()))
}

/// Verifies a body: nothing comes out unless all of it is right.
fn judge(shared: &Shared, body: &[u8]) -> Result<Vec<Bundle>, Refusal> {
    let accepted: Mutex<Accepted> = Mutex::default();
    let known = |device, index| {
        let accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.digests.get(&(device, index)).copied().or_else(|| known(shared, device, index))
    };
    let limits = SealLimits { max_events: shared.limits.events };
    let mut reader = StreamReader::new(&shared.roster, limits).with_known(Box::new(known));
    let mut visit = |event: Event<'_>| -> Result<(), Refusal> {
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        if !whole(statement, &proven.part.select) {
            let detail = "an upload's part must carry every surviving level; send the whole bundle";
            return Err(refuse(name::NOT_WHOLE, detail, place(statement)));
        }
        let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.digests.insert((statement.device, statement.index), proven.seal.digest());
        let bundle = Bundle::from_proven(&proven);
        accepted.bundles.push(bundle.map_err(|error| refuse(error.name(), &error.to_string(), place(statement)))?);
        Ok(())
    };
    reader.feed(body, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(accepted.into_inner().unwrap_or_else(PoisonError::into_inner).bundles)
}

/// Judges an upload's weight, and what can be seen without hashing; returns the events that it covers. What does not decode is
/// left to the reader to name.
fn weigh(shared: &Shared, body: &[u8]) -> Result<u64, Refusal> {
    let (mut at, mut number, mut parts, mut events) = (0, 0, 0, 0);
    while let Ok((item, length)) = Item::decode(&body[at..]) {
        match item {
            Item::Part(part) => {
                parts += 1;
                events += u64::from(part.n);
                if parts > shared.limits.upload_parts {
                    let detail = format!("an upload may have {} bundles; send fewer at once", shared.limits.upload_parts);
                    return Err(Refusal::new(name::TOO_MANY_PARTS, 413, detail));
                }
                if events > u64::from(shared.limits.events) {
                    let detail = format!("an upload may cover {} events; send fewer at once", shared.limits.events);
                    return Err(refuse("TooManyEvents", &detail, Place { item: Some(number), ..Place::default() }));
                }
                if part.signature.is_none() {
                    let detail = "every part of an upload must carry its own signature";
                    return Err(refuse(name::NOT_WHOLE, detail, Place { item: Some(number), ..Place::default() }));
                }
            }
            Item::Schema(_) | Item::Open(_) | Item::End => {}
            Item::Problem { .. } | Item::Proof { .. } | Item::Explain { .. } => {
                let detail = format!("item {number} does not belong in an upload; send schema, open and part items only");
                return Err(Refusal::new(name::BAD_BODY, 400, detail));
            }
        }
        (at, number) = (at + length, number + 1);
    }
    Ok(events)
}

fn whole(statement: &Statement, select: &Select<'_>) -> bool {
    matches!(select, Select::Levels(mask) if *mask == statement.surviving())
}

fn refuse(name: &'static str, detail: &str, place: Place) -> Refusal {
    Problem::new(name, upload_status(name), detail).at(place).into()
}

fn place(statement: &Statement) -> Place {
    let index = Some(statement.index.0);
    Place { item: None, device: Some(statement.device.to_string()), first_index: index, last_index: index }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let name = error.name();
        let place = Place {
            item: Some(error.item as u64),
            device: error.device.map(|device| device.to_string()),
            first_index: error.run.map(|(first, _)| first.0),
            last_index: error.run.map(|(_, last)| last.0),
        };
        let status = upload_status(name);
        Problem::new(name, status, error.to_string()).at(place).into()
    }
}

/// What an upload has proven so far.
#[derive(Default)]
struct Accepted {
    bundles: Vec<Bundle>,
    digests: BTreeMap<(DeviceId, SealIndex), Digest>,
}

/// The digest of a stored seal, unless the device signed several under that index: then the sender must say which it means.
fn known(shared: &Shared, device: DeviceId, index: SealIndex) -> Option<Digest> {
    match &shared.store.seals_at(device, index).ok()?[..] {
        [only] => Some(only.key().digest),
        _ => None,
    }
}

/// Stores what was proven, and returns once it is durable.
async fn store(shared: &Shared, bundles: Vec<Bundle>) -> Result<Receipt, Refusal> {
    if bundles.is_empty() {
        return Ok(Receipt::default());
    }
    let (reply, stored) = oneshot::channel();
    let start = Instant::now();
    shared.metrics.store_queue.increment(1);
    let submitted = shared.store.submit(
        bundles,
        Box::new(move |result| {
            let _ = reply.send(result);
        }),
    );
    let result = match submitted {
        Ok(()) => stored.await.unwrap_or(Err(PutError::Closed)),
        Err(error) => Err(error),
    };
    shared.metrics.store_queue.decrement(1);
    shared.metrics.store_seconds.record(start.elapsed());
    let receipt = result.map_err(|error| {
        match error {
            PutError::Busy | PutError::Closed => {}
            _ => warn!(%error, "the store failed"),
        }
        let (name, status) = match error {
            PutError::Busy | PutError::Closed => (name::UNAVAILABLE, 503),
            PutError::DiskFull { .. } => (name::STORE_FULL, 507),
            _ => (name::STORE_FAILED, 500),
        };
        Refusal::new(name, status, without_name(error.name(), &error.to_string()))
    })?;
    shared.metrics.stored.increment(receipt.stored);
    shared.metrics.known.increment(receipt.known);
    shared.metrics.conflicts.increment(receipt.equivocations.len() as u64);
    for (device, index) in &receipt.equivocations {
        warn!(%device, %index, "the device signed different seals under one index");
    }
    let conflict = |(device, index): &(DeviceId, SealIndex)| Conflict { device: device.to_string(), index: index.0 };
    let conflicts = receipt.equivocations.iter().map(conflict).collect();
    Ok(Receipt { stored: receipt.stored, known: receipt.known, conflicts })
}
