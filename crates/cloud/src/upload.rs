//! Uploads: read within limits, verify everything, store all of it durably, only then acknowledge.
//!
//! A stranger gets bounded work: the length is judged while the body comes ([`crate::body`]), each part's number, claimed events
//! and signature before its events are hashed, and the first thing that is wrong ends the request with nothing stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, Request, State};
use axum::response::{IntoResponse, Json};
use moteseal_api::problem::{name, upload_status, without_name};
use moteseal_api::{CBOR_SEQ, Conflict, Place, Problem, Receipt, paths};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_seal::Statement;
use moteseal_seal::follow::Limits as SealLimits;
use moteseal_seal::sample::Manifest;
use moteseal_store::{Bundle, PutError, Reply};
use moteseal_verify::{Bundles, Event, Proven, ReadError, StreamReader, manifest};
use serde::Deserialize;
use tokio::sync::oneshot;
use tracing::warn;

use crate::body;
use crate::manifest::Manifests;
use crate::refusal::Refusal;
use crate::service::Shared;
use crate::share::Peer;

/// Uploads up to this length are verified where they are read: handing them to another thread would cost more than it frees.
pub(crate) const INLINE: usize = 64 << 10;
/// The same for events, whose levels are computed whether or not they are sent: about a nanosecond each.
const INLINE_EVENTS: u64 = 1 << 16;

/// What may stand behind the `?` of an upload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sent {
    /// No manifest lists these seals, and none will.
    #[serde(default)]
    late: bool,
}

/// `PUT /v1/bundles`.
pub(crate) async fn bundles(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    sent: Result<Parameters<Sent>, QueryRejection>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    let receipt = match sent {
        Ok(Parameters(sent)) => receive(&shared, peer, sent, request).await,
        Err(error) => Err(Refusal::bad_query(error.body_text())),
    };
    answered(&shared, receipt)
}

/// The answer to an upload; one that is refused is counted.
pub(crate) fn answered<T>(shared: &Shared, result: Result<T, Refusal>) -> Result<Json<T>, Refusal> {
    if let Err(refusal) = &result {
        shared.metrics.refused_upload(refusal.problem().name());
    }
    result.map(Json)
}

/// Verifies on a thread where it may take its time, of which there is one a core. What the work holds it keeps until it is done: a
/// sender that hangs up frees nothing before.
pub(crate) async fn apart<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let core = Arc::clone(&shared.verifiers).acquire_owned().await;
    let shared = Arc::clone(shared);
    let judged = tokio::task::spawn_blocking(move || {
        let _core = core;
        work(&shared)
    });
    let failed = |_| {
        Refusal::new(
            name::STORE_FAILED,
            500,
            "verification failed unexpectedly; send the upload again",
        )
    };
    judged.await.map_err(failed)?
}

async fn receive(
    shared: &Arc<Shared>,
    peer: Peer,
    sent: Sent,
    request: Request,
) -> Result<Receipt, Refusal> {
    let (head, body) = request.into_parts();
    let (body, room) =
        body::read(shared, peer, (&head.headers, body), CBOR_SEQ, shared.limits.body_bytes).await?;
    let _place = body::request_place(shared, peer)?;
    // As the reader holds it, and as it is stored; the body has its own room. Nobody who has this waits for more.
    let more = shared.bundles.wait(peer, 2 * body.len() as u64).await;
    let bytes = body.len() as u64;
    let light = if body.len() <= INLINE { light(shared, sent, &body)? } else { None };
    let (bundles, _room) = if let Some(bundles) = light {
        (bundles, (room, more))
    } else {
        let work = move |shared: &Shared| {
            Ok((judge(shared, sent, &body, u64::from(shared.limits.events))?, (room, more)))
        };
        apart(shared, work).await?
    };
    let receipt = store(shared, bundles).await?;
    shared.metrics.upload_bytes.increment(bytes);
    Ok(receipt)
}

/// Verifies a short body, unless its bundles claim so many events that other requests would wait: then there is `None`, for at
/// most as much work as a light one makes.
fn light(shared: &Shared, sent: Sent, body: &[u8]) -> Result<Option<Vec<Bundle>>, Refusal> {
    let most = INLINE_EVENTS.min(u64::from(shared.limits.events));
    match judge(shared, sent, body, most) {
        Err(refusal) if refusal.problem().name() == "TooManyEvents" && most == INLINE_EVENTS => {
            Ok(None)
        }
        judged => judged.map(Some),
    }
}

/// Verifies a body of bundles that claim at most `events` together: nothing comes out unless all of it is right.
fn judge(shared: &Shared, sent: Sent, body: &[u8], events: u64) -> Result<Vec<Bundle>, Refusal> {
    let accepted: Mutex<Accepted> = Mutex::default();
    let known = |device, index| {
        let accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.digests.get(&(device, index)).copied().or_else(|| known(shared, device, index))
    };
    let limits = SealLimits { max_events: shared.limits.events };
    let mut reader = StreamReader::new(&shared.roster, limits)
        .with_known(Box::new(known))
        .of_bundles(Bundles { parts: shared.limits.upload_parts, events });
    let mut ended = Ended { late: sent.late, rounds: BTreeMap::new() };
    let mut visit = |event: Event<'_>| -> Result<(), Refusal> {
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        if !proven.is_whole() {
            ended
                .whole(shared, &proven)
                .map_err(|(name, detail)| refuse(name, &detail, place(statement)))?;
        }
        let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.digests.insert((statement.device, statement.index), proven.seal.digest());
        let bundle = Bundle::from_proven(&proven);
        accepted.bundles.push(
            bundle.map_err(|error| refuse(error.name(), &error.to_string(), place(statement)))?,
        );
        Ok(())
    };
    reader.feed(body, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(accepted.into_inner().unwrap_or_else(PoisonError::into_inner).bundles)
}

fn refuse(name: &'static str, detail: &str, place: Place) -> Refusal {
    Problem::new(name, upload_status(name), detail).at(place).into()
}

fn place(statement: &Statement) -> Place {
    let index = Some(statement.index.0);
    Place {
        item: None,
        device: Some(statement.device.to_string()),
        first_index: index,
        last_index: index,
    }
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

/// The rounds at which the epochs of an upload ended, as far as they were looked up; `None` for those without a manifest.
struct Ended {
    /// The sender says that no manifest lists what it sends, and none will.
    late: bool,
    rounds: BTreeMap<EpochNumber, Option<Round>>,
}

impl Ended {
    /// Whether a part that lacks surviving levels may be stored: it is whole with regard to the round of its epoch's manifest (of
    /// several, which are all kept as evidence, to that of one), or it is late. Of late seals nobody says what must be kept, and what
    /// is kept never grows less: whoever has more of one can still send it.
    fn whole(
        &mut self,
        shared: &Shared,
        proven: &Proven<'_>,
    ) -> Result<(), (&'static str, String)> {
        let statement = proven.seal.statement();
        let from = proven.whole_from().filter(|_| shared.roster.budget().is_some());
        let Some(from) = from else {
            return Err((
                name::NOT_WHOLE,
                "an upload's part must carry every surviving level; send the whole bundle"
                    .to_owned(),
            ));
        };
        let epoch = statement.epoch;
        let round = match self.rounds.entry(epoch) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => *entry.insert(round_of(shared, epoch)?),
        };
        match round {
            Some(round) if from <= round => Ok(()),
            Some(_) if !is_listed(shared, epoch, statement.device, &proven.seal.digest())? => {
                Ok(())
            }
            Some(round) => {
                let detail = format!(
                    "epoch {epoch} ended at round {round}, and the part lacks levels from there on; send them all"
                );
                Err((name::NOT_WHOLE, detail))
            }
            None if self.late => Ok(()),
            None => {
                let detail = format!(
                    "the part holds the levels from round {from} on, and there is no manifest of epoch {epoch} that says so; \
                     send the manifest first, to {}; where there will be none, send the part to {}",
                    paths::MANIFESTS,
                    paths::LATE_BUNDLES
                );
                Err((name::MANIFEST_MISSING, detail))
            }
        }
    }
}

/// The manifests of an epoch, one after the other.
fn each_manifest(
    shared: &Shared,
    epoch: EpochNumber,
    mut visit: impl FnMut(&Manifest<'_>),
) -> Result<(), (&'static str, String)> {
    let until = epoch.0.checked_add(1).map(EpochNumber);
    for manifest in Manifests::new(&*shared.store, epoch, until) {
        let manifest = manifest.map_err(|error| (error.name(), error.to_string()))?;
        if let Ok(manifest) = manifest::open(manifest.bytes(), &shared.roster) {
            visit(&manifest);
        }
    }
    Ok(())
}

/// The highest round that a manifest of an epoch says.
fn round_of(shared: &Shared, epoch: EpochNumber) -> Result<Option<Round>, (&'static str, String)> {
    let mut round = None;
    each_manifest(shared, epoch, |manifest| round = round.max(Some(manifest.round())))?;
    Ok(round)
}

/// Whether a manifest of an epoch lists a seal.
fn is_listed(
    shared: &Shared,
    epoch: EpochNumber,
    device: DeviceId,
    seal: &Digest,
) -> Result<bool, (&'static str, String)> {
    let mut listed = false;
    each_manifest(shared, epoch, |manifest| {
        listed |= manifest
            .devices()
            .any(|(of, mut seals)| of == device && seals.any(|digest| digest == *seal));
    })?;
    Ok(listed)
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
    let receipt = stored(shared, |reply| shared.store.submit(bundles, reply)).await?;
    shared.metrics.stored.increment(receipt.stored);
    shared.metrics.known.increment(receipt.known);
    shared.metrics.conflicts.increment(receipt.equivocations.len() as u64);
    for (device, index) in &receipt.equivocations {
        warn!(%device, %index, "the device signed different seals under one index");
    }
    let conflict = |(device, index): &(DeviceId, SealIndex)| Conflict {
        device: device.to_string(),
        index: index.0,
    };
    let conflicts = receipt.equivocations.iter().map(conflict).collect();
    Ok(Receipt { stored: receipt.stored, known: receipt.known, conflicts })
}

/// Waits until what `submit` hands in is durable.
pub(crate) async fn stored(
    shared: &Shared,
    submit: impl FnOnce(Reply) -> Result<(), PutError>,
) -> Result<moteseal_store::Receipt, Refusal> {
    let (reply, stored) = oneshot::channel();
    let start = Instant::now();
    shared.metrics.store_queue.increment(1);
    let submitted = submit(Box::new(move |result| {
        let _ = reply.send(result);
    }));
    let result = match submitted {
        Ok(()) => stored.await.unwrap_or(Err(PutError::Closed)),
        Err(error) => Err(error),
    };
    shared.metrics.store_queue.decrement(1);
    shared.metrics.store_seconds.record(start.elapsed());
    result.map_err(|error| {
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
    })
}
