//! Handles uploads of bundles: reads an upload within the limits, verifies all of it, stores it
//! durably, and then acknowledges it.
//!
//! The work that an unknown sender can cause is bounded. The length is checked while the body
//! arrives ([`crate::request_body`]). The number of parts, the number of claimed events and the
//! signature are checked before events are hashed. The first error ends the request, and then no
//! bundle of the upload is stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, Request, State};
use axum::response::IntoResponse;
use moteseal_api::{CBOR_SEQ, Conflict, Place, Problem, ProblemType, Receipt, paths};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_seal::Statement;
use moteseal_seal::follow::Limits as SealLimits;
use moteseal_seal::sample::Manifest;
use moteseal_seal::stream::Item;
use moteseal_service::{Held, Peer};
use moteseal_store::{Bundle, ReadError as StoreError};
use moteseal_verify::{Bundles, Event, Proven, ReadError, StreamReader, manifest};
use serde::Deserialize;

use crate::access::Grant;
use crate::ingest::{Acknowledged, INLINE, Room, acknowledge, on_verifier, stored};
use crate::refusal::Refusal;
use crate::request_body;
use crate::response::Manifests;
use crate::state::Shared;
use crate::streaming::unreadable;
use crate::summary::Mark;
use crate::turns::Turn;

/// A short upload that claims up to this many events is verified on the thread that received it.
/// The cloud computes the level of every claimed event, even if the event was not sent. This takes
/// about a nanosecond per event.
const INLINE_EVENTS: u64 = 1 << 16;
/// A short upload with up to this many parts is verified on the thread that received it. Each part
/// has a signature. In the slowest suite, one signature takes about as long as the largest inline
/// body with the largest number of inline events.
const INLINE_PARTS: usize = 1;
/// A short upload with up to this many items is verified on the thread that received it. One bundle
/// has a schema, an open item, a part and an end item. An open item can cause a read of the store.
const INLINE_ITEMS: usize = 4;

/// The query parameters of an upload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// Whether the sender states that no manifest lists these seals, now or later.
    #[serde(default)]
    late: bool,
}

/// When a bundle may lack levels that its device kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    /// If the manifest of its epoch is stored, from the manifest's round on.
    ByManifest,
    /// Also if its epoch has no manifest.
    Late,
    /// Always, because another cloud has the same levels. What a set of clouds stores must not depend
    /// on the order in which they received it.
    Copied,
}

/// Handles `PUT /v1/bundles`.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Extension(grant): Extension<Grant>,
    options: Result<Parameters<Options>, QueryRejection>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    let receipt = match options {
        Ok(Parameters(options)) => receive(&shared, peer, (options, grant), request).await,
        Err(error) => Err(Refusal::bad_query(error.body_text())),
    };
    acknowledge(&shared, receipt)
}

async fn receive(
    shared: &Arc<Shared>,
    peer: Peer,
    (options, grant): (Options, Grant),
    request: Request,
) -> Result<Acknowledged<Receipt>, Refusal> {
    let (head, body) = request.into_parts();
    let (body, room) =
        request_body::read(shared, peer, (&head.headers, body), CBOR_SEQ, shared.limits.body_bytes)
            .await?;
    // The body may have taken a while to arrive.
    grant.check_current(shared)?;
    let _place = request_body::place(shared, peer)?;
    let bytes = body.len() as u64;
    let pruned = if options.late { Pruned::Late } else { Pruned::ByManifest };
    let (bundles, _room) = verified(shared, peer, (pruned, grant), body, Some(room)).await?;
    let receipt = store(shared, peer, bundles).await?;
    shared.metrics.upload_bytes.increment(bytes);
    Ok(receipt)
}

/// Verifies a stream of bundles. `room` counts the memory of `body`. The bundles must be dropped, or
/// passed to the store, before the returned memory is.
pub(crate) async fn verified(
    shared: &Arc<Shared>,
    peer: Peer,
    (pruned, grant): (Pruned, Grant),
    body: Bytes,
    room: Option<Held>,
) -> Result<(Vec<Bundle>, Room), Refusal> {
    // The upload needs memory for two copies in addition to the body: one in the reader and one in
    // the store. The request waits for the memory of both copies together, and later for no other
    // memory. Requests therefore cannot block each other.
    let more = shared.bundles.wait(peer, 2 * body.len() as u64).await;
    // The verification may read from the store.
    let is_inline = !shared.store.waits() && is_cheap(&body);
    let verified = if is_inline { verify_inline(shared, (pruned, &grant), &body)? } else { None };
    if let Some(bundles) = verified {
        return Ok((bundles, (room, more)));
    }
    let work = move |shared: &Shared, turn: &Turn| {
        let events = u64::from(shared.limits.events);
        let verified = verify(shared, (pruned, &grant), &body, events, || turn.pause())?;
        Ok((verified, (room, more)))
    };
    on_verifier(shared, peer, work).await
}

/// Returns whether a body is short and has few parts and items, so that its verification does not
/// delay other requests. The number of events that it claims is checked later.
fn is_cheap(body: &[u8]) -> bool {
    if body.len() > INLINE {
        return false;
    }
    let (mut at, mut parts, mut items) = (0, 0, 0);
    // The loop ends at the end of the body, or at an item that verification rejects.
    while let Some(Ok((item, length))) = body.get(at..).map(Item::decode) {
        at += length;
        items += 1;
        parts += usize::from(matches!(item, Item::Part(_)));
        if parts > INLINE_PARTS || items > INLINE_ITEMS {
            return false;
        }
    }
    true
}

/// Verifies a short body on this thread. Returns `None` without a result if its bundles claim so
/// many events ([`INLINE_EVENTS`]) that other requests would have to wait.
fn verify_inline(
    shared: &Shared,
    (pruned, grant): (Pruned, &Grant),
    body: &[u8],
) -> Result<Option<Vec<Bundle>>, Refusal> {
    let most = INLINE_EVENTS.min(u64::from(shared.limits.events));
    match verify(shared, (pruned, grant), body, most, || ()) {
        Err(refusal) if refusal.problem().name() == "TooManyEvents" && most == INLINE_EVENTS => {
            Ok(None)
        }
        verified => verified.map(Some),
    }
}

/// Verifies a body whose bundles may claim at most `events` events in total, and returns the
/// bundles. Calls `pause` after each bundle.
fn verify(
    shared: &Shared,
    (pruned, grant): (Pruned, &Grant),
    body: &[u8],
    events: u64,
    pause: impl Fn(),
) -> Result<Vec<Bundle>, Refusal> {
    let accepted: Mutex<Accepted> = Mutex::default();
    let unavailable = Mutex::new(None);
    let known = |device, index| {
        let accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = || match known(shared, device, index) {
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Closed)) => {
                unavailable.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                None
            }
            // If the row is damaged, the sender can state the predecessor's digest.
            known => known.ok().flatten(),
        };
        accepted.digests.get(&(device, index)).copied().or_else(known)
    };
    let limits = SealLimits { max_events: shared.limits.events };
    let roster = shared.roster();
    let mut reader = StreamReader::new(&*roster, limits)
        .with_known(Box::new(known))
        .of_bundles(Bundles { parts: shared.limits.upload_parts, events });
    let mut ended = Ended { pruned, rounds: BTreeMap::new() };
    let mut visit = |event: Event<'_>| -> Result<(), Refusal> {
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        grant
            .check_device(&roster, statement.device)
            .map_err(|refusal| refusal.at(place(statement)))?;
        if !proven.is_whole() {
            ended
                .whole(shared, &proven)
                .map_err(|(of, detail)| refuse(of, detail, place(statement)))?;
        }
        let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.digests.insert((statement.device, statement.index), proven.seal.digest());
        let bundle = Bundle::from_proven(&proven);
        accepted.bundles.push(bundle.map_err(|error| {
            let of = ProblemType::of_upload(error.name());
            refuse(of, error.to_string(), place(statement))
        })?);
        drop(accepted);
        pause();
        Ok(())
    };
    let read = reader.feed(body, &mut visit).and_then(|()| reader.finish(&mut visit));
    if let Err(refusal) = read {
        let unavailable = unavailable.into_inner().unwrap_or_else(PoisonError::into_inner);
        return Err(unavailable.map_or(refusal, unreadable));
    }
    Ok(accepted.into_inner().unwrap_or_else(PoisonError::into_inner).bundles)
}

fn refuse(of: ProblemType, detail: String, place: Place) -> Refusal {
    Problem::new(of, detail).at(place).into()
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
        let place = Place {
            item: Some(error.item as u64),
            device: error.device.map(|device| device.to_string()),
            first_index: error.run.map(|(first, _)| first.0),
            last_index: error.run.map(|(_, last)| last.0),
        };
        refuse(ProblemType::of_upload(error.name()), error.to_string(), place)
    }
}

/// The round of each epoch in an upload. It is read from the epoch's stored manifests once per
/// upload, and is `None` if the epoch has no manifest.
struct Ended {
    pruned: Pruned,
    rounds: BTreeMap<EpochNumber, Option<Round>>,
}

impl Ended {
    /// Checks that the cloud may store a part that lacks some of the levels that its device kept.
    ///
    /// The part must have every level from the round of its epoch's manifest on. If the epoch has
    /// several manifests, the highest round counts. A late seal, which no manifest lists, may lack
    /// any levels, because nothing determines which of its levels must be kept. The store never
    /// drops levels, so a client that has more levels of a seal can send them later.
    fn whole(&mut self, shared: &Shared, proven: &Proven<'_>) -> Result<(), (ProblemType, String)> {
        let statement = proven.seal.statement();
        let has_budget = shared.roster().budget(statement.epoch).is_some();
        let from = proven.whole_from().filter(|_| has_budget);
        let Some(from) = from else {
            return Err((
                ProblemType::NOT_WHOLE,
                "a part of an upload must have every level that its device kept; send the whole \
                 bundle"
                    .to_owned(),
            ));
        };
        if self.pruned == Pruned::Copied {
            return Ok(());
        }
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
                    "epoch {epoch} ended at round {round}, but the part lacks a level from that round \
                     on; send all of these levels"
                );
                Err((ProblemType::NOT_WHOLE, detail))
            }
            None if self.pruned == Pruned::Late => Ok(()),
            None => {
                let detail = format!(
                    "the part has only the levels from round {from} on, and epoch {epoch} has no \
                     manifest yet; send the manifest first, to {}; if the epoch will have no \
                     manifest, send the part to {}",
                    paths::MANIFESTS,
                    paths::LATE_BUNDLES
                );
                Err((ProblemType::MANIFEST_MISSING, detail))
            }
        }
    }
}

/// Calls `visit` for each stored manifest of an epoch.
fn each_manifest(
    shared: &Shared,
    epoch: EpochNumber,
    mut visit: impl FnMut(&Manifest<'_>),
) -> Result<(), (ProblemType, String)> {
    let until = epoch.0.checked_add(1).map(EpochNumber);
    let roster = shared.roster();
    for manifest in Manifests::new(&*shared.store, &roster, epoch, until) {
        let manifest =
            manifest.map_err(|error| (ProblemType::of_upload(error.name()), error.to_string()))?;
        if let Ok(manifest) = manifest::open(manifest.bytes(), &*roster) {
            visit(&manifest);
        }
    }
    Ok(())
}

/// Returns the highest round in the manifests of an epoch, or `None` if the epoch has no manifest.
fn round_of(shared: &Shared, epoch: EpochNumber) -> Result<Option<Round>, (ProblemType, String)> {
    let mut round = None;
    each_manifest(shared, epoch, |manifest| round = round.max(Some(manifest.round())))?;
    Ok(round)
}

/// Returns whether a manifest of an epoch lists a seal.
fn is_listed(
    shared: &Shared,
    epoch: EpochNumber,
    device: DeviceId,
    seal: &Digest,
) -> Result<bool, (ProblemType, String)> {
    let mut listed = false;
    each_manifest(shared, epoch, |manifest| {
        listed |= manifest
            .devices()
            .any(|(of, mut seals)| of == device && seals.any(|digest| digest == *seal));
    })?;
    Ok(listed)
}

/// The bundles of an upload that have been verified so far.
#[derive(Default)]
struct Accepted {
    bundles: Vec<Bundle>,
    digests: BTreeMap<(DeviceId, SealIndex), Digest>,
}

/// Returns the digest of a stored seal. Returns `None` if the device signed several seals under
/// that index, because the sender must then state the predecessor's digest in `prev`.
fn known(
    shared: &Shared,
    device: DeviceId,
    index: SealIndex,
) -> Result<Option<Digest>, StoreError> {
    Ok(match &shared.store.seals_at(device, index)?[..] {
        [only] => Some(only.key().digest),
        _ => None,
    })
}

/// Stores verified bundles and returns once they are durable.
pub(crate) async fn store(
    shared: &Arc<Shared>,
    peer: Peer,
    bundles: Vec<Bundle>,
) -> Result<Acknowledged<Receipt>, Refusal> {
    if bundles.is_empty() {
        return Ok((Receipt::default(), None));
    }
    let mark = Mark::of_bundles(&shared.summaries, &bundles);
    let submit = |reply| shared.store.submit(bundles, reply);
    let receipt = stored(shared, peer, &shared.metrics.bundles, mark, submit).await?;
    let conflict = |(device, index): &(DeviceId, SealIndex)| Conflict {
        device: device.to_string(),
        index: index.0,
    };
    let conflicts = receipt.equivocations.iter().map(conflict).collect();
    let position = receipt.position;
    let (stored, known, queued) = (receipt.stored, receipt.known, receipt.queued);
    Ok((Receipt { stored, known, queued, conflicts }, position))
}
