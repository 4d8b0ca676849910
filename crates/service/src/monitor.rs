//! The pages `/metrics`, `/healthz` and `/readyz`.
//!
//! [`Monitor`] serves these pages on their own listener, for services without another HTTP
//! interface. A service that has an HTTP interface uses [`MetricsPage`], [`alive`] and [`ready`]
//! in its own routes.

use std::convert::Infallible;
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
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

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

/// Appends metrics in Prometheus' text format.
pub type MoreMetrics = Box<dyn Fn(&mut String) + Send + Sync>;

/// A listener for `/metrics`, `/healthz` and `/readyz`.
pub struct Monitor {
    listener: Listener,
    more: Option<MoreMetrics>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Monitor {
    /// Listens on `address`; port 0 selects a free port.
    ///
    /// # Errors
    /// [`ListenError`] if the process cannot listen on that address.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        Ok(Self { listener: Listener::bind(address, None).await?, more: None })
    }

    /// Appends further metrics to those of the service.
    #[must_use]
    pub fn with_more(self, more: MoreMetrics) -> Self {
        Self { more: Some(more), ..self }
    }

    /// Returns the address of the monitor, with the actual port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves the pages until the future is dropped.
    pub async fn serve<M: Monitored>(self, monitored: Arc<M>) {
        let page = Arc::new(MetricsPage::default());
        let shown = Arc::new(Shown { monitored, more: self.more });
        let service = service_fn(move |request: Request<Incoming>| {
            let (shown, page) = (Arc::clone(&shown), Arc::clone(&page));
            async move { Ok::<_, Infallible>(respond(&request, shown, &page).await) }
        });
        self.listener.serve(service, &LIMITS, None, std::future::pending()).await;
    }
}

/// What the pages show.
struct Shown<M> {
    monitored: Arc<M>,
    more: Option<MoreMetrics>,
}

impl<M: Monitored> Shown<M> {
    fn metrics(&self) -> String {
        let mut page = self.monitored.metrics();
        self.more.iter().for_each(|more| more(&mut page));
        page
    }
}

async fn respond<M: Monitored>(
    request: &Request<Incoming>,
    shown: Arc<Shown<M>>,
    page: &MetricsPage,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match request.uri().path() {
        paths::METRICS => page.get(move || shown.metrics()).await,
        paths::HEALTHZ => alive(),
        paths::READYZ => match shown.monitored.trouble() {
            Some(trouble) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
            None => ready(),
        },
        _ => text(StatusCode::NOT_FOUND, "not found; try /metrics, /healthz or /readyz\n"),
    }
}

/// The page `/metrics`. It renders the metrics on a thread that may block, once at a time, so that
/// any number of requests occupies at most one core and delays no other requests.
#[derive(Debug, Default)]
pub struct MetricsPage {
    /// The newest page, and when its rendering started.
    newest: Arc<Mutex<Newest>>,
}

type Newest = Option<(Instant, Bytes)>;

impl MetricsPage {
    /// Returns the response for `/metrics`. `render` returns all metrics in Prometheus' text format
    /// ([`Table::render`](crate::Table::render)). The page contains everything that was counted
    /// before this call: requests that wait at the same time share the next rendering.
    pub async fn get(
        &self,
        render: impl FnOnce() -> String + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let asked = Instant::now();
        let newest = Arc::clone(&self.newest).lock_owned().await;
        let page = match &*newest {
            Some((start, page)) if *start > asked => Some(page.clone()),
            // The thread keeps the lock until the page is rendered. If the request is cancelled, a
            // second rendering can therefore not start earlier.
            _ => {
                let start = Instant::now();
                tokio::task::spawn_blocking(move || rendered(newest, start, render)).await.ok()
            }
        };
        let Some(page) = page else {
            return text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be rendered\n");
        };
        let mut response = text(StatusCode::OK, page);
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
        );
        response
    }
}

/// Renders a page and makes it the newest one. `start` is when its rendering started.
fn rendered(
    mut newest: OwnedMutexGuard<Newest>,
    start: Instant,
    render: impl FnOnce() -> String,
) -> Bytes {
    let page = Bytes::from(render());
    *newest = Some((start, page.clone()));
    page
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

/// Returns a response with plain text in UTF-8.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    /// Finding B3 of the review.
    #[tokio::test]
    async fn requests_that_wait_share_one_rendering_that_is_newer_than_they_are() {
        let page = Arc::new(MetricsPage::default());
        let renderings = Arc::new(AtomicUsize::new(0));
        let mut requests = JoinSet::new();
        for _ in 0..100 {
            let (page, renderings) = (Arc::clone(&page), Arc::clone(&renderings));
            requests.spawn(async move {
                let response = page
                    .get(move || {
                        std::thread::sleep(Duration::from_millis(100));
                        renderings.fetch_add(1, Ordering::SeqCst).to_string()
                    })
                    .await;
                assert_eq!(response.status(), StatusCode::OK);
            });
        }
        requests.join_all().await;
        assert_eq!(renderings.load(Ordering::SeqCst), 2, "the first one, and one for all others");
        let counted = Arc::clone(&renderings);
        let _ = page.get(move || counted.fetch_add(1, Ordering::SeqCst).to_string()).await;
        assert_eq!(renderings.load(Ordering::SeqCst), 3, "a later request gets a new page");
    }

    /// Finding B3 of the review. A client closes its connection while its page is rendered.
    #[tokio::test]
    async fn a_cancelled_request_does_not_let_a_second_rendering_start() {
        let page = Arc::new(MetricsPage::default());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let render = || {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(100));
                running.fetch_sub(1, Ordering::SeqCst);
                String::new()
            }
        };
        for _ in 0..3 {
            let cancelled = tokio::time::timeout(Duration::from_millis(20), page.get(render()));
            assert!(cancelled.await.is_err());
        }
        assert_eq!(page.get(render()).await.status(), StatusCode::OK);
        assert_eq!(most.load(Ordering::SeqCst), 1, "renderings at the same time");
    }
}
