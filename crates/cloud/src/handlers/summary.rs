//! Summaries of what the cloud stores (`spec/summaries.md`), by which other clouds and backups find
//! what they lack. Summaries are not signed and prove nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use axum::response::{IntoResponse, Json};
use moteseal_api::summary::Summary;
use moteseal_api::{ProblemType, parse_device};
use moteseal_core::roster::Directory as _;
use moteseal_service::Peer;
use serde::{Deserialize, Serialize};

use crate::handlers::events;
use crate::parameters;
use crate::refusal::Refusal;
use crate::state::Shared;
use crate::streaming::{counted, unreadable};
use crate::summary::{NoSummary, Summaries};

/// How long a request waits while the store is read. After that, the client repeats the request,
/// and the store is read in the meantime.
const WAIT: Duration = Duration::from_secs(2);

/// The query parameters of the summary and of its devices.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    after: Option<String>,
}

/// The query parameters of a page of blocks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    from: Option<u64>,
}

/// Handles `GET /v1/summary`.
pub(crate) async fn summary(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    after: Result<Query<After>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(After { after }) = after.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let roster = shared.roster();
    respond(&shared, peer, move |summaries| {
        // The changes are read first: what is stored in between is a change of the next response.
        let (changes, more, cursor) = summaries.changes(after.as_deref());
        let (totals, last_event) = (summaries.totals(), summaries.last_event());
        Summary {
            group: roster.group().to_string(),
            roster_version: roster.version(),
            seals: totals.seals,
            manifests: totals.manifests,
            events: totals.events,
            events_cursor: last_event.map(events::cursor),
            changes,
            more,
            cursor,
        }
    })
    .await
}

/// Handles `GET /v1/summary/devices`.
pub(crate) async fn devices(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    after: Result<Query<After>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(After { after }) = after.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let parse = |text: &str| {
        parse_device(text)
            .ok_or_else(|| Refusal::bad_query("after must be a device id of 16 hexadecimal digits"))
    };
    let after = after.as_deref().map(parse).transpose()?;
    respond(&shared, peer, move |summaries| summaries.devices(after)).await
}

/// Handles `GET /v1/summary/devices/{device}`.
pub(crate) async fn seals(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<String>, PathRejection>,
    from: Result<Query<From>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Path(text) = path.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let Query(From { from }) = from.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let device = parameters::device(&shared, &text)?;
    respond(&shared, peer, move |summaries| summaries.seals(device, from.unwrap_or(0))).await
}

/// Handles `GET /v1/summary/manifests`.
pub(crate) async fn manifests(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    from: Result<Query<From>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(From { from }) = from.map_err(|error| Refusal::bad_query(error.body_text()))?;
    respond(&shared, peer, move |summaries| summaries.manifests(from.unwrap_or(0))).await
}

/// Responds with what `read` returns, once the fingerprints are up to date.
async fn respond<T: Serialize + Send + 'static>(
    shared: &Arc<Shared>,
    peer: Peer,
    read: impl FnOnce(&Summaries) -> T + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let busy = |_| Refusal::busy("the store is being read for the summary; try again shortly");
    let page = tokio::time::timeout(WAIT, refreshed(shared, read)).await.map_err(busy)??;
    counted(shared, peer, Json(page).into_response())
}

/// Brings the fingerprints up to date, on a thread that may block, and calls `read`. Reading the
/// store continues if the caller no longer waits. Only one thread reads it at a time.
pub(crate) async fn refreshed<T: Send + 'static>(
    shared: &Arc<Shared>,
    read: impl FnOnce(&Summaries) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let turn = Arc::clone(&shared.summary_turn).lock_owned().await;
    let shared = Arc::clone(shared);
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        match shared.summaries.refresh(&*shared.store, shared.has_other_writers()) {
            Ok(()) => Ok(read(&shared.summaries)),
            Err(NoSummary::Read(error)) => Err(unreadable(error)),
            Err(NoSummary::TooManyBlocks) => Err(Refusal::new(
                ProblemType::STORE_FAILED,
                "the store is too large for summaries; it cannot be followed or exported",
            )),
        }
    });
    work.await.map_err(|_| {
        Refusal::new(ProblemType::STORE_FAILED, "reading the store failed unexpectedly; try again")
    })?
}
