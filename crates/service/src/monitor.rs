//! The pages `/metrics`, `/healthz` and `/readyz`.
//!
//! [`Monitor`] serves these pages on their own listener, for services without another HTTP
//! interface. A service that has an HTTP interface uses [`metrics_page`], [`alive`] and [`ready`]
//! in its own routes.

use std::convert::Infallible;
use std::future::ready as done;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use moteseal_api::paths;

use crate::listener::{ConnectionLimits, ListenError, Listener};

/// The limits of a monitor's listener. They are low because the pages are short and have few
/// clients.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 32,
    peer_percent: 50,
    head_time: Duration::from_secs(10),
    head_bytes: 16 << 10,
    connection_time: Some(Duration::from_secs(60)),
    write_stall: Duration::from_secs(30),
    write_rate: 1 << 10,
    stop_time: Duration::ZERO,
};

/// A service whose state a [`Monitor`] publishes.
pub trait Monitored: Send + Sync + 'static {
    /// Returns all metrics in Prometheus' text format ([`Table::render`](crate::Table::render)).
    fn metrics(&self) -> String;

    /// Returns why the service is not ready, or `None` if it is ready.
    fn trouble(&self) -> Option<&'static str>;
}

/// A listener for `/metrics`, `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct Monitor(Listener);

impl Monitor {
    /// Listens on `address`; port 0 selects a free port.
    ///
    /// # Errors
    /// [`ListenError`] if the process cannot listen on that address.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        Listener::bind(address, None).await.map(Self)
    }

    /// Returns the address of the monitor, with the actual port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Serves the pages until the future is dropped.
    pub async fn serve<M: Monitored>(self, monitored: Arc<M>) {
        let service = service_fn(move |request: Request<Incoming>| {
            done(Ok::<_, Infallible>(respond(&request, &*monitored)))
        });
        self.0.serve(service, &LIMITS, None, std::future::pending()).await;
    }
}

fn respond(request: &Request<Incoming>, monitored: &impl Monitored) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match request.uri().path() {
        paths::METRICS => metrics_page(monitored.metrics()),
        paths::HEALTHZ => alive(),
        paths::READYZ => match monitored.trouble() {
            Some(trouble) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
            None => ready(),
        },
        _ => text(StatusCode::NOT_FOUND, "not found; try /metrics, /healthz or /readyz\n"),
    }
}

/// Returns the response for `/metrics`.
#[must_use]
pub fn metrics_page(rendered: String) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, rendered);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}

/// Returns the response for `/healthz` while the process runs.
#[must_use]
pub fn alive() -> Response<Full<Bytes>> {
    text(StatusCode::OK, "alive\n")
}

/// Returns the response for `/readyz` while the service is ready.
#[must_use]
pub fn ready() -> Response<Full<Bytes>> {
    text(StatusCode::OK, "ready\n")
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
