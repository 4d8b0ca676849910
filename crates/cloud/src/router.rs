//! The routes, and the steps that apply to every request: the check of the credential, the limit
//! on requests in progress, the metrics and the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Response, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use moteseal_api::{JSON, paths};
use moteseal_core::record::DeviceId;
use moteseal_service::log_limit::cut;
use moteseal_service::{ClientKey, Peer, monitor};
use tokio::sync::OwnedMutexGuard;
use tracing::{debug, info, warn};

use crate::access::{self, Grant};
use crate::coap::SessionDevice;
use crate::handlers::{bundles, events, listings, manifests, query, summary};
use crate::queue;
use crate::refusal::{Reason, Refusal};
use crate::request_body;
use crate::rights::Scope;
use crate::state::{Finding, Shared};

/// The HTTP contract as an OpenAPI 3.1 document.
pub const OPENAPI: &str = include_str!("openapi.json");

/// How long the answer of `GET /readyz` remains valid.
const READINESS: Duration = Duration::from_secs(1);

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(paths::BUNDLES, put(bundles::put))
        .route(paths::DEVICES, get(listings::devices))
        .route(paths::SEALS, get(listings::seals))
        .route(paths::BUNDLE, get(query::bundle))
        .route(paths::EXPLAIN, get(query::explain))
        .route(paths::QUERY, post(query::query))
        .route(paths::MANIFESTS, put(manifests::put).get(manifests::list))
        .route(paths::EVENTS, put(events::put).get(events::list))
        .route(paths::SUMMARY, get(summary::summary))
        .route(paths::SUMMARY_DEVICES, get(summary::devices))
        .route(paths::SUMMARY_SEALS, get(summary::seals))
        .route(paths::SUMMARY_MANIFESTS, get(summary::manifests))
        .route(paths::OPENAPI, get(openapi))
        .route(paths::METRICS, get(render_metrics))
        .route(paths::HEALTHZ, get(|| async { monitor::alive() }))
        .route(paths::READYZ, get(ready))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(&shared), gate))
        // Each handler limits the length of the body that it reads.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

/// Returns the scope that a credential needs for a route, or `None` if the route needs no
/// credential because it reveals no data.
fn scope(route: &str, method: &Method) -> Option<Scope> {
    match route {
        paths::BUNDLES => Some(Scope::Write),
        paths::MANIFESTS | paths::EVENTS if method == Method::PUT => Some(Scope::Write),
        paths::OPENAPI | paths::HEALTHZ | paths::READYZ => None,
        _ => Some(Scope::Read),
    }
}

/// Returns whether the handler of a route reserves its own place among the requests in progress,
/// because it reads a body or waits for events.
fn takes_own_place(route: &str, method: &Method) -> bool {
    match route {
        paths::BUNDLES | paths::QUERY | paths::EVENTS => true,
        paths::MANIFESTS => method == Method::PUT,
        _ => false,
    }
}

/// Returns whether a path is that of the listing of a device's seals.
fn lists_seals_of(uri: &Uri, device: DeviceId) -> bool {
    uri.path() == paths::SEALS.replace("{device}", &device.to_string())
}

async fn gate(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    (client, session): (Option<Extension<ClientKey>>, Option<Extension<SessionDevice>>),
    matched: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let start = Instant::now();
    let route = matched.as_ref().map_or("other", MatchedPath::as_str);
    let method = request.method().clone();
    let uri = request.uri().clone();
    let own = session.as_ref().map(|Extension(SessionDevice(device))| *device);
    let allowed = match scope(route, &method) {
        None => Ok(Grant::Open),
        // A device may see which of its seals are stored, to continue an upload.
        Some(Scope::Read) if own.is_some_and(|device| lists_seals_of(&uri, device)) => {
            Ok(Grant::Open)
        }
        Some(scope) => {
            let client = client.map(|Extension(client)| client);
            let session = session.map(|Extension(session)| session);
            access::check(&shared, peer, (client, session), request.headers(), scope).await
        }
    };
    let user = allowed.as_ref().ok().and_then(Grant::user).map(str::to_owned);
    let allowed = match allowed {
        Ok(grant) => {
            let scope = scope(route, &method).filter(|_| route != paths::METRICS);
            let request = (scope, route == paths::SEALS, request.headers());
            queue::admit(&shared, peer, request).await.map(|()| grant)
        }
        Err(refusal) => Err(refusal),
    };
    let mut response = match allowed {
        Err(refusal) => {
            let (head, body) = request.into_parts();
            request_body::drain(&head.headers, body, refusal).await.into_response()
        }
        // Routes that need no credential are served at any load. They include the health checks.
        Ok(_) if scope(route, &method).is_none() => next.run(request).await,
        // These handlers reserve a place among the requests in progress once the body has arrived,
        // or while they read the store, so that a slow body or a client that waits for events does
        // not occupy a place.
        Ok(grant) if takes_own_place(route, &method) => {
            request.extensions_mut().insert(grant);
            next.run(request).await
        }
        Ok(_) => match request_body::place(&shared, peer) {
            Err(refusal) => refusal.into_response(),
            Ok(_place) => next.run(request).await,
        },
    };
    if shared.stopping.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let (status, took) = (response.status().as_u16(), start.elapsed());
    shared.metrics.request(route, status, took);
    let (path, took_us) = (cut(uri.path()), u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    let user = user.as_deref();
    match (status, response.extensions().get::<Reason>()) {
        (_, None) => debug!(%peer, user, %method, %path, status, took_us, "served"),
        (500 | 507, Some(_)) if !shared.findings_log.allows(Finding::Failure) => {}
        (status, Some(_)) if !matches!(status, 500 | 507) && !shared.log.allows(peer) => {}
        (500.., Some(Reason { name, detail })) => {
            warn!(%peer, user, %method, %path, status, %name, detail = %cut(detail), took_us, "failed");
        }
        (_, Some(Reason { name, detail })) => {
            info!(%peer, user, %method, %path, status, %name, detail = %cut(detail), took_us, "rejected");
        }
    }
    response
}

async fn no_such_path() -> Refusal {
    Refusal::not_found("there is nothing at this path; /openapi.json lists the paths")
}

async fn no_such_method(matched: Option<MatchedPath>, method: Method) -> Refusal {
    let route = matched.as_ref().map_or("", MatchedPath::as_str);
    let allowed = paths::ALL
        .iter()
        .filter(|(path, _)| *path == route)
        .map(|(_, method)| method.to_uppercase());
    let allowed = allowed.collect::<Vec<String>>().join(", ");
    Refusal::method_not_allowed(
        format!("this path does not support {method}; use {allowed}"),
        &allowed,
    )
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], OPENAPI)
}

async fn render_metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let of = Arc::clone(&shared);
    let render = move || {
        let mut page = of.metrics.render();
        if let Some(more) = of.queue.get().and_then(|queue| queue.metrics.as_ref()) {
            more(&mut page);
        }
        page
    };
    shared.metrics_page.get(render).await
}

/// Anybody may ask, and the store may be on other machines. So the answer is known for a while, and one request at
/// a time reads the store; meanwhile others get the previous answer.
async fn ready(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, Refusal> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Refusal::busy("the service is stopping"));
    }
    let last = shared.readiness();
    if let Some((at, readiness)) = &last
        && at.elapsed() < READINESS
    {
        return readiness.clone().map(|()| monitor::ready()).map_err(Refusal::busy);
    }
    let readiness = match Arc::clone(&shared.readiness_turn).try_lock_owned() {
        Ok(turn) => tokio::spawn(ask(shared, turn)).await.unwrap_or_else(|_| unresponsive()),
        Err(_) => last.map_or_else(unresponsive, |(_, readiness)| readiness),
    };
    readiness.map(|()| monitor::ready()).map_err(Refusal::busy)
}

fn unresponsive() -> Result<(), String> {
    Err("the store has not responded yet".to_owned())
}

/// Finds out whether the store responds.
async fn ask(shared: Arc<Shared>, _turn: OwnedMutexGuard<()>) -> Result<(), String> {
    let store = Arc::clone(&shared.store);
    // A cloud that only accepts uploads goes on while the store of the others cannot be reached.
    let serves = shared.queue.get().is_none_or(|queue| queue.reached.is_some());
    let read = move || {
        store.accepts()?;
        if serves { store.devices(None, 1).map(drop) } else { Ok(()) }
    };
    let readiness = match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => unresponsive(),
    };
    shared.set_readiness(readiness.clone());
    readiness
}
