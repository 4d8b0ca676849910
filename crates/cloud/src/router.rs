//! The routes, and what every request passes on its way to one: a place among the requests at once, its token, the count, the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Response};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use moteseal_api::problem::name;
use moteseal_api::{JSON, paths};
use tracing::{debug, info, warn};

use crate::refusal::{Reason, Refusal};
use crate::service::Shared;
use crate::share::Peer;
use crate::token::{Scope, Verdict};
use crate::{body, listing, manifest, query, upload};

/// The contract, as OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(paths::BUNDLES, put(upload::bundles))
        .route(paths::DEVICES, get(listing::devices))
        .route(paths::SEALS, get(listing::seals))
        .route(paths::BUNDLE, get(query::bundle))
        .route(paths::EXPLAIN, get(query::explain))
        .route(paths::QUERY, post(query::query))
        .route(paths::MANIFESTS, put(manifest::put).get(manifest::list))
        .route(paths::OPENAPI, get(openapi))
        .route(paths::METRICS, get(render_metrics))
        .route(paths::HEALTHZ, get(|| async { "alive\n" }))
        .route(paths::READYZ, get(ready))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(&shared), gate))
        // Bodies are limited where they are read, by what the route is for.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

/// Which token a route needs; `None` for those that tell nothing about data.
fn scope(route: &str, method: &Method) -> Option<Scope> {
    match route {
        paths::BUNDLES => Some(Scope::Write),
        paths::MANIFESTS if method == Method::PUT => Some(Scope::Write),
        paths::OPENAPI | paths::HEALTHZ | paths::READYZ => None,
        _ => Some(Scope::Read),
    }
}

/// Whether requests of a route have a body that is read.
fn has_body(route: &str, method: &Method) -> bool {
    match route {
        paths::BUNDLES | paths::QUERY => true,
        paths::MANIFESTS => method == Method::PUT,
        _ => false,
    }
}

async fn gate(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    matched: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let start = Instant::now();
    let route = matched.as_ref().map_or("other", MatchedPath::as_str);
    let method = request.method().clone();
    let uri = request.uri().clone();
    let refused = |refusal: Refusal| refusal.into_response();
    let mut response = match allowed(&shared, route, &request) {
        Err(refusal) => {
            let (head, body) = request.into_parts();
            refused(body::drained(&head.headers, body, refusal).await)
        }
        // Whether the service is well can be asked however much it does.
        Ok(()) if scope(route, &method).is_none() => next.run(request).await,
        // Their handlers take a place once the body is there: one that is slow to come holds up nobody.
        Ok(()) if has_body(route, &method) => next.run(request).await,
        Ok(()) => match body::request_place(&shared, peer) {
            Err(refusal) => refused(refusal),
            Ok(_place) => next.run(request).await,
        },
    };
    if shared.stopping.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let (status, took) = (response.status().as_u16(), start.elapsed());
    shared.metrics.request(route, status, took);
    let (path, took_us) = (uri.path(), u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    match (status, response.extensions().get::<Reason>()) {
        (500.., Some(Reason { name, detail })) => {
            warn!(%method, path, status, %name, detail, took_us, "failed")
        }
        (_, Some(Reason { name, detail })) => {
            info!(%method, path, status, %name, detail, took_us, "refused")
        }
        _ => debug!(%method, path, status, took_us, "answered"),
    }
    response
}

fn allowed(shared: &Shared, route: &str, request: &Request) -> Result<(), Refusal> {
    let (Some(tokens), Some(scope)) = (&shared.tokens, scope(route, request.method())) else {
        return Ok(());
    };
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match tokens.judge(authorization, scope) {
        Verdict::Allowed => Ok(()),
        Verdict::Unknown => Err(Refusal::new(
            name::UNAUTHORIZED,
            401,
            "send a known token as \"Authorization: Bearer TOKEN\"",
        )),
        Verdict::OtherScope => {
            let needed = if scope == Scope::Read { "read" } else { "write" };
            Err(Refusal::new(
                name::FORBIDDEN,
                403,
                format!("this token is not for that; use one that may {needed}"),
            ))
        }
    }
}

async fn no_such_path() -> Refusal {
    Refusal::not_found("there is nothing at this path; /openapi.json lists what there is")
}

async fn no_such_method(matched: Option<MatchedPath>, method: Method) -> Refusal {
    let route = matched.as_ref().map_or("", MatchedPath::as_str);
    let allowed = paths::ALL
        .iter()
        .filter(|(path, _)| *path == route)
        .map(|(_, method)| method.to_uppercase());
    let allowed: Vec<String> = allowed.collect();
    Refusal::new(
        name::METHOD_NOT_ALLOWED,
        405,
        format!("{method} means nothing here; use {}", allowed.join(", ")),
    )
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], OPENAPI)
}

async fn render_metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.render())
}

async fn ready(State(shared): State<Arc<Shared>>) -> Result<&'static str, Refusal> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Refusal::busy("the service is stopping"));
    }
    let store = Arc::clone(&shared.store);
    let read = tokio::task::spawn_blocking(move || store.devices(None, 1)).await;
    match read {
        Ok(Ok(_)) => Ok("ready\n"),
        Ok(Err(error)) => Err(Refusal::busy(error.to_string())),
        Err(_) => Err(Refusal::busy("the store does not answer")),
    }
}
