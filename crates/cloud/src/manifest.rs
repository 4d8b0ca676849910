//! Manifests on their way in and out: `/v1/manifests` (spec/formats.md, section 8.1).
//!
//! One is verified with the key that the roster certifies for the coordinator, made durable, then acknowledged. Two of one epoch
//! are both kept, and both given: which of them is right is not for the cloud to say.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, Request, State};
use axum::http::Response;
use axum::response::IntoResponse;
use moteseal_api::problem::{name, upload_status};
use moteseal_api::{COSE, ManifestReceipt, Problem};
use moteseal_core::record::EpochNumber;
use moteseal_store::{EpochStore, ManifestKey, ReadError, StoredManifest};
use moteseal_verify::{ManifestError, manifest, write};
use serde::Deserialize;
use tokio::sync::mpsc;
use tracing::warn;

use crate::body;
use crate::query::{AHEAD, Outgoing, Piece, answer_permit, respond, unreadable};
use crate::refusal::Refusal;
use crate::service::Shared;
use crate::share::Peer;
use crate::upload::{INLINE, answered, apart, stored};

/// `PUT /v1/manifests`.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    answered(&shared, receive(&shared, peer, request).await)
}

async fn receive(
    shared: &Arc<Shared>,
    peer: Peer,
    request: Request,
) -> Result<ManifestReceipt, Refusal> {
    let (head, body) = request.into_parts();
    let (body, room) =
        body::read(shared, peer, (&head.headers, body), COSE, shared.limits.body_bytes).await?;
    let _place = body::request_place(shared, peer)?;
    // As it is verified, and as it is stored; the body has its own room.
    let more = shared.bundles.wait(peer, 2 * body.len() as u64).await;
    let bytes = body.len() as u64;
    let (manifest, _room) = if body.len() <= INLINE {
        (judge(shared, &body)?, (room, more))
    } else {
        apart(shared, move |shared: &Shared| Ok((judge(shared, &body)?, (room, more)))).await?
    };
    let receipt =
        stored(shared, |reply| shared.store.submit_manifests(vec![manifest], reply)).await?;
    shared.metrics.upload_bytes.increment(bytes);
    shared.metrics.manifests_stored.increment(receipt.stored);
    shared.metrics.manifests_known.increment(receipt.known);
    shared.metrics.manifests_doubled.increment(receipt.doubled.len() as u64);
    for epoch in &receipt.doubled {
        warn!(%epoch, "the coordinator signed different manifests of one epoch");
    }
    Ok(ManifestReceipt {
        stored: receipt.stored,
        known: receipt.known,
        conflict: !receipt.doubled.is_empty(),
    })
}

fn judge(shared: &Shared, body: &[u8]) -> Result<StoredManifest, Refusal> {
    Ok(StoredManifest::new(&manifest::open(body, &shared.roster)?, body))
}

impl From<ManifestError> for Refusal {
    fn from(error: ManifestError) -> Self {
        Problem::new(error.name(), upload_status(error.name()), error.to_string()).into()
    }
}

/// What may stand behind the `?` of the list of manifests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    since: Option<u64>,
    until: Option<u64>,
}

/// `GET /v1/manifests`.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    span: Result<Parameters<Span>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Parameters(span) = span.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let (since, until) = (EpochNumber(span.since.unwrap_or(0)), span.until.map(EpochNumber));
    if until.is_some_and(|until| until <= since) {
        return Err(Refusal::bad_query("the range of epochs is empty: until must be above since"));
    }
    let most = shared.limits.query_epochs;
    if until.map_or(u64::MAX, |until| until.0) - since.0 > most {
        return Err(Refusal::new(
            name::QUERY_TOO_LARGE,
            413,
            format!("a query may span {most} epochs; ask for fewer at once"),
        ));
    }
    let permit = answer_permit(&shared, peer)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (producer, working) = (Arc::clone(&shared), Arc::clone(&permit));
    tokio::task::spawn_blocking(move || {
        produce(&producer, since, until, &send);
        drop(working);
    });
    respond(receive, permit).await
}

fn produce(
    shared: &Shared,
    since: EpochNumber,
    until: Option<EpochNumber>,
    send: &mpsc::Sender<Piece>,
) {
    let mut outgoing = Outgoing::new(shared, send);
    for manifest in Manifests::new(&*shared.store, since, until) {
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

/// The manifests of a range of epochs, one after the other: ascending by epoch, of one epoch by digest.
pub(crate) struct Manifests<'s> {
    store: &'s dyn EpochStore,
    since: EpochNumber,
    until: Option<EpochNumber>,
    after: Option<ManifestKey>,
    done: bool,
}

impl<'s> Manifests<'s> {
    pub(crate) fn new(
        store: &'s dyn EpochStore,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Self {
        Self { store, since, until, after: None, done: false }
    }
}

impl Iterator for Manifests<'_> {
    type Item = Result<StoredManifest, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        // A manifest names every seal of its epoch, so that one is as long as a page of anything else.
        let next = self
            .store
            .manifests(self.since, self.until, self.after, 1)
            .map(|mut found| found.pop())
            .transpose();
        self.done = !matches!(next, Some(Ok(_)));
        self.after = next.as_ref().and_then(|next| next.as_ref().ok()).map(StoredManifest::key);
        next
    }
}
