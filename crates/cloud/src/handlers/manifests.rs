//! Uploads and listings of manifests: `/v1/manifests` (`spec/coordinator.md`, section 3).
//!
//! The cloud verifies a manifest with the coordinator's key from the roster, makes it durable, and
//! then acknowledges it. If a coordinator signed several manifests of one epoch, the cloud stores
//! and serves all of them and does not choose between them.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, Request, State};
use axum::http::Response;
use axum::response::IntoResponse;
use moteseal_api::{COSE, ManifestReceipt, ProblemType};
use moteseal_core::record::EpochNumber;
use moteseal_service::{Held, Peer};
use moteseal_store::StoredManifest;
use moteseal_verify::{ManifestError, manifest, write};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::access::Grant;
use crate::ingest::{Acknowledged, INLINE, acknowledge, on_verifier, stored};
use crate::refusal::Refusal;
use crate::request_body;
use crate::response::Manifests;
use crate::state::Shared;
use crate::streaming::{AHEAD, Outgoing, Piece, respond, response_permit, unreadable};
use crate::summary::Mark;
use crate::turns::Turn;

/// Handles `PUT /v1/manifests`.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Extension(grant): Extension<Grant>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    acknowledge(&shared, receive(&shared, peer, &grant, request).await)
}

async fn receive(
    shared: &Arc<Shared>,
    peer: Peer,
    grant: &Grant,
    request: Request,
) -> Result<Acknowledged<ManifestReceipt>, Refusal> {
    let (head, body) = request.into_parts();
    if let Err(refusal) = grant.check_manifests(&shared.roster()) {
        return Err(request_body::drain(&head.headers, body, refusal).await);
    }
    let (body, room) =
        request_body::read(shared, peer, (&head.headers, body), COSE, shared.limits.body_bytes)
            .await?;
    grant.check_current(shared)?;
    let _place = request_body::place(shared, peer)?;
    let bytes = body.len() as u64;
    let receipt = verify_and_store(shared, peer, body, Some(room)).await?;
    shared.metrics.upload_bytes.increment(bytes);
    Ok(receipt)
}

/// Verifies a manifest and returns once it is durable. `room` counts the memory of `body`.
pub(crate) async fn verify_and_store(
    shared: &Arc<Shared>,
    peer: Peer,
    body: Bytes,
    room: Option<Held>,
) -> Result<Acknowledged<ManifestReceipt>, Refusal> {
    // The upload needs memory for two copies in addition to the body: one that is verified and one
    // for the store.
    let more = shared.bundles.wait(peer, 2 * body.len() as u64).await;
    let (manifest, _room) = if body.len() <= INLINE {
        (verify(shared, &body)?, (room, more))
    } else {
        // A manifest has only one signature, so the thread need not pause.
        let work = move |shared: &Shared, _: &Turn| Ok((verify(shared, &body)?, (room, more)));
        on_verifier(shared, peer, work).await?
    };
    let manifests = vec![manifest];
    let mark = Mark::of_manifests(&shared.summaries, &manifests);
    let submit = |reply| shared.store.submit_manifests(manifests, reply);
    let receipt = stored(shared, peer, &shared.metrics.manifests, mark, submit).await?;
    let answer = ManifestReceipt {
        stored: receipt.stored,
        known: receipt.known,
        queued: receipt.queued,
        conflict: !receipt.doubled.is_empty(),
    };
    Ok((answer, receipt.position))
}

fn verify(shared: &Shared, body: &[u8]) -> Result<StoredManifest, Refusal> {
    Ok(StoredManifest::new(&manifest::open(body, &*shared.roster())?, body))
}

impl From<ManifestError> for Refusal {
    fn from(error: ManifestError) -> Self {
        Self::new(ProblemType::of_upload(error.name()), error.to_string())
    }
}

/// The query parameters of the listing of manifests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    since: Option<u64>,
    until: Option<u64>,
}

/// Handles `GET /v1/manifests`.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    span: Result<Parameters<Span>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Parameters(span) = span.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let (since, until) = (EpochNumber(span.since.unwrap_or(0)), span.until.map(EpochNumber));
    if until.is_some_and(|until| until <= since) {
        return Err(Refusal::bad_query("the range of epochs is empty; until must be above since"));
    }
    let most = shared.limits.query_epochs;
    if until.map_or(u64::MAX, |until| until.0) - since.0 > most {
        return Err(Refusal::new(
            ProblemType::QUERY_TOO_LARGE,
            format!("a query may span at most {most} epochs; request fewer at once"),
        ));
    }
    let permit = response_permit(&shared, peer)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (producer, working) = (Arc::clone(&shared), Arc::clone(&permit));
    tokio::task::spawn_blocking(move || {
        produce(&producer, since, until, &send);
        drop(working);
    });
    respond(receive, permit, shared.roster().version()).await
}

fn produce(
    shared: &Shared,
    since: EpochNumber,
    until: Option<EpochNumber>,
    send: &mpsc::Sender<Piece>,
) {
    let mut outgoing = Outgoing::new(shared, send);
    let roster = shared.roster();
    for manifest in Manifests::new(&*shared.store, &roster, since, until) {
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => return outgoing.stop(unreadable(error).problem()),
        };
        if outgoing.item(|piece| write::manifest(piece, manifest.bytes())).is_err() {
            return;
        }
    }
    let _ = outgoing.item(write::end);
    let _ = outgoing.flush();
}
