//! Summaries of what the cloud stores (`spec/summaries.md`), by which other clouds and backups find
//! what they lack. Summaries are not signed and prove nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
use tracing::warn;

use crate::handlers::events;
use crate::parameters;
use crate::refusal::Refusal;
use crate::state::{Finding, Shared};
use crate::streaming::{counted, unreadable};
use crate::summary::{Ended, NoSummary, Reading, Summaries};

/// How long a request waits while the store is read. After that, the client repeats the request,
/// and the store is read in the meantime.
const WAIT: Duration = Duration::from_secs(2);
/// The maximum length of a token of a demand for fresh fingerprints.
const TOKEN_BYTES: usize = 64;

/// The query parameters of the summary and of its devices.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    after: Option<String>,
    fresh: Option<String>,
}

/// The query parameters of a page of blocks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    from: Option<u64>,
    fresh: Option<String>,
}

/// Handles `GET /v1/summary`.
pub(crate) async fn summary(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    after: Result<Query<After>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(After { after, fresh }) =
        after.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let roster = shared.roster();
    respond(&shared, peer, fresh, move |summaries| {
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
    let Query(After { after, fresh }) =
        after.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let parse = |text: &str| {
        parse_device(text)
            .ok_or_else(|| Refusal::bad_query("after must be a device id of 16 hexadecimal digits"))
    };
    let after = after.as_deref().map(parse).transpose()?;
    respond(&shared, peer, fresh, move |summaries| summaries.devices(after)).await
}

/// Handles `GET /v1/summary/devices/{device}`.
pub(crate) async fn seals(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<String>, PathRejection>,
    from: Result<Query<From>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Path(text) = path.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let Query(From { from, fresh }) =
        from.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let device = parameters::device(&shared, &text)?;
    respond(&shared, peer, fresh, move |summaries| summaries.seals(device, from.unwrap_or(0))).await
}

/// Handles `GET /v1/summary/manifests`.
pub(crate) async fn manifests(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    from: Result<Query<From>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(From { from, fresh }) =
        from.map_err(|error| Refusal::bad_query(error.body_text()))?;
    respond(&shared, peer, fresh, move |summaries| summaries.manifests(from.unwrap_or(0))).await
}

/// Responds with what `read` returns, once the fingerprints are up to date. With a token `fresh`, they
/// have everything that was stored before the first request with this token.
async fn respond<T: Serialize + Send + 'static>(
    shared: &Arc<Shared>,
    peer: Peer,
    fresh: Option<String>,
    read: impl FnOnce(&Summaries) -> T + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let fresh = fresh.as_deref();
    let is_token = |token: &str| {
        (1..=TOKEN_BYTES).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if !fresh.is_none_or(is_token) {
        return Err(Refusal::bad_query("fresh must be 1 to 64 letters and digits"));
    }
    let reading = |_| {
        let detail = "the store is being read for the summary; try again shortly";
        Refusal::new(ProblemType::SUMMARY_NOT_READY, detail)
    };
    let page = refreshed(shared, fresh, read);
    let page = tokio::time::timeout(WAIT, page).await.map_err(reading)??;
    counted(shared, peer, Json(page).into_response())
}

/// Brings the fingerprints up to date, and calls `read`. The first call waits until the whole store was
/// read, and each call with a new token `fresh`.
pub(crate) async fn refreshed<T: Send + 'static>(
    shared: &Arc<Shared>,
    fresh: Option<&str>,
    read: impl FnOnce(&Summaries) -> T + Send + 'static,
) -> Result<T, Refusal> {
    usable(shared, fresh).await?;
    updated(shared, read).await
}

/// Waits until there are fingerprints that a request can use. Starts to read the whole store if that
/// is due. Reading continues if the caller no longer waits.
async fn usable(shared: &Arc<Shared>, fresh: Option<&str>) -> Result<(), Refusal> {
    let mut ends = shared.summaries.ends();
    loop {
        let plan = shared.summaries.plan(shared.has_other_writers(), fresh, Instant::now());
        let plan = plan.map_err(refusal)?;
        if let Some(reading) = plan.reading {
            let shared = Arc::clone(shared);
            tokio::task::spawn_blocking(move || run(&shared, reading));
        }
        if plan.is_ready {
            return Ok(());
        }
        if ends.changed().await.is_err() {
            return Err(refusal(NoSummary::Interrupted));
        }
        let ended = ends.borrow_and_update().clone();
        if let Some(Ended { began, result: Err(error) }) = ended
            && plan.since.is_none_or(|since| began >= since)
        {
            return Err(refusal(error));
        }
    }
}

/// Reads the whole store.
fn run(shared: &Shared, reading: Reading) {
    if let Err(error) = reading.run(&*shared.store, Instant::now)
        && shared.findings_log.allows(Finding::Failure)
    {
        let refusal = refusal(error);
        let (name, detail) = (refusal.problem().name(), &refusal.problem().detail);
        warn!(name, detail, "reading the store for the summary failed");
    }
}

/// Adds what this process has stored to the fingerprints, on a thread that may block, and calls
/// `read`. Only one thread does this at a time.
async fn updated<T: Send + 'static>(
    shared: &Arc<Shared>,
    read: impl FnOnce(&Summaries) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let turn = Arc::clone(&shared.summary_turn).lock_owned().await;
    let shared = Arc::clone(shared);
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        shared.summaries.refresh(&*shared.store).map_err(refusal)?;
        Ok(read(&shared.summaries))
    });
    work.await.map_err(|_| refusal(NoSummary::Interrupted))?
}

/// Returns the problem that reports why there is no summary.
fn refusal(error: NoSummary) -> Refusal {
    match error {
        NoSummary::Read(error) => unreadable(error),
        NoSummary::Interrupted => Refusal::new(
            ProblemType::STORE_FAILED,
            "reading the store failed unexpectedly; try again",
        ),
        NoSummary::TooManyBlocks => Refusal::new(
            ProblemType::STORE_FAILED,
            "the store has more blocks than the limit summary_blocks, so it cannot be followed or exported; \
             start the cloud with a higher limit",
        ),
    }
}
