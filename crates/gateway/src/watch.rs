//! `/metrics`, `/healthz` and `/readyz`, on a listener of their own.
//!
//! Whoever connects gets bounded work: so many connections at once, so much time for each.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use moteseal_api::paths;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::error::ServiceError;

/// Connections at once; others wait.
const CONNECTIONS: usize = 32;
/// A connection is closed after this time, whatever it does.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// A request's head must be there in this time.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// What is watched.
pub(crate) trait Watched: Send + Sync + 'static {
    /// All metrics, as text.
    fn metrics(&self) -> String;

    /// Why it is not ready, if it is not.
    fn trouble(&self) -> Option<&'static str>;
}

/// Where it is shown.
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens there, if it is to be shown anywhere.
    ///
    /// # Errors
    /// `Listen`.
    pub(crate) async fn bind(address: Option<SocketAddr>) -> Result<Option<Self>, ServiceError> {
        let Some(address) = address else { return Ok(None) };
        let failed = |error| ServiceError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }

    /// The address, with the port that was taken where any would do.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve<W: Watched>(self, watched: Arc<W>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let watched = Arc::clone(&watched);
                    connections.spawn(async move {
                        let _place = place;
                        let service = service_fn(|request: Request<Incoming>| {
                            let response = answer(&request, &*watched);
                            async { Ok::<_, Infallible>(response) }
                        });
                        let connection = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(HEAD_TIME)
                            .max_buf_size(16 << 10)
                            .serve_connection(TokioIo::new(stream), service);
                        // Who breaks off or is too slow has no answer; there is nobody to tell.
                        let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

fn answer(request: &Request<Incoming>, watched: &impl Watched) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    match request.uri().path() {
        paths::METRICS => {
            let mut metrics = text(StatusCode::OK, watched.metrics());
            let prometheus = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            metrics.headers_mut().insert(CONTENT_TYPE, prometheus);
            metrics
        }
        paths::HEALTHZ => text(StatusCode::OK, "alive\n"),
        paths::READYZ => match watched.trouble() {
            Some(trouble) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
            None => text(StatusCode::OK, "ready\n"),
        },
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
