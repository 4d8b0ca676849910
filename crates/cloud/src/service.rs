//! A running cloud: it listens, serves connections, and stops in an orderly way.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::metrics::Gauge;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use moteseal_store::EpochStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::config::Config;
use crate::connection::Guarded;
use crate::limits::Limits;
use crate::metrics::{self, Metrics};
use crate::share::{Held, Peer, Pool};
use crate::token::Tokens;
use crate::{router, tls};

/// What one connection too many hears. It is sent without reading the request, so that a flood costs nothing.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/problem+json\r\ncontent-length: 138\r\n\r\n{\"type\":\"urn:moteseal:problem:Unavailable\",\"title\":\"Unavailable\",\"status\":503,\"detail\":\"too many connections are open; try again shortly\"}";

/// What every request is answered with.
pub(crate) struct Shared {
    pub(crate) roster: moteseal_verify::Roster,
    pub(crate) store: Arc<dyn EpochStore>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: AtomicBool,
    /// Requests being answered, from the last byte of their body on.
    pub(crate) requests: Arc<Pool>,
    /// Streamed answers.
    pub(crate) answers: Arc<Pool>,
    /// Bytes of long parts being sent.
    pub(crate) answer_bytes: Arc<Pool>,
    /// Bytes of bodies that are coming or have come.
    pub(crate) bodies: Arc<Pool>,
    /// Bytes of uploads being verified and stored, beside their bodies: as read, and as stored.
    pub(crate) bundles: Arc<Pool>,
    /// One permit a core: uploads too long to verify between other requests wait here.
    pub(crate) verifiers: Arc<Semaphore>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Why a cloud does not start: one line that names the thing and the way out.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// A cloud that listens and has not begun to serve.
pub struct Cloud {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Cloud {
    /// Checks the configuration and listens. Nothing is served before [`run`](Self::run).
    ///
    /// # Errors
    /// [`StartError`] if the address cannot be had, or a file of tokens or certificates cannot be used.
    pub async fn bind(config: Config, store: Arc<dyn EpochStore>) -> Result<Self, StartError> {
        let tokens = config.tokens.as_deref().map(Tokens::read).transpose().map_err(StartError)?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose().map_err(StartError)?;
        let listen = config.listen;
        let refused = |error: std::io::Error| {
            StartError(match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!(
                        "{listen} is in use by another process; stop it, or listen elsewhere (port 0 takes a free port)"
                    )
                }
                std::io::ErrorKind::AddrNotAvailable => {
                    format!(
                        "{listen} is no address of this machine; listen on 127.0.0.1 or 0.0.0.0"
                    )
                }
                std::io::ErrorKind::PermissionDenied => {
                    format!("this user may not listen on {listen}; take a port from 1024 on")
                }
                _ => format!("cannot listen on {listen}: {error}"),
            })
        };
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let limits = config.limits;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (percent, body) = (limits.peer_percent, limits.body_bytes as u64);
        let pool = |total: usize| Pool::new(total as u64, percent, 1);
        let shared = Shared {
            roster: config.roster,
            store,
            tokens,
            metrics: Metrics::new(),
            stopping: AtomicBool::new(false),
            requests: pool(limits.requests),
            answers: pool(limits.answers),
            answer_bytes: pool(limits.answer_bytes),
            // Whoever sends one body only can send the longest.
            bodies: Pool::new((limits.upload_bytes as u64 / 3).max(body), percent, body),
            bundles: pool(limits.upload_bytes / 3 * 2),
            verifiers: Arc::new(Semaphore::new(cores)),
            limits,
        };
        Ok(Self { listener, address, shared: Arc::new(shared), tls })
    }

    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Serves until `stop` is done; then takes no more connections, finishes the requests under way, for as long as
    /// [`Limits::stop_time`] allows, and returns.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let url = self.url();
        let Self { listener, shared, tls, .. } = self;
        info!(url = url, tls = tls.is_some(), tokens = shared.tokens.is_some(), "serving");
        let router = router::router(Arc::clone(&shared));
        let slots = Pool::new(shared.limits.connections as u64, shared.limits.peer_percent, 1);
        let (tell, told) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        let mut upkeep = tokio::time::interval(metrics::UPKEEP);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = upkeep.tick() => shared.metrics.upkeep(),
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        let peer = Peer::from(address.ip());
                        let Some(slot) = slots.take(peer, 1) else {
                            shared.metrics.connections_refused.increment(1);
                            if tls.is_none() {
                                // A fresh socket's buffer holds it; whoever floods us need not hear it.
                                let _ = stream.try_write(FULL);
                            }
                            continue;
                        };
                        debug!(peer = %address, "connected");
                        let told = told.clone();
                        connections.spawn(accept(stream, tls.clone(), Arc::clone(&shared), router.clone(), told, (peer, slot)));
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: others must close first.
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        shared.stopping.store(true, Ordering::Relaxed);
        info!(connections = connections.len(), "stopping");
        let _ = tell.send(());
        let finished = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(shared.limits.stop_time, finished).await.is_err() {
            warn!("requests were still under way when the time to stop was over");
            connections.shutdown().await;
        }
        info!("stopped");
    }
}

async fn accept(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    router: Router,
    told: watch::Receiver<()>,
    (peer, slot): (Peer, Held),
) {
    let _counted = Counted::new(&shared.metrics.connections);
    let _ = stream.set_nodelay(true);
    let stream = Guarded::new(stream, shared.limits.write_stall, shared.limits.write_rate);
    match tls {
        None => serve(stream, peer, &shared.limits, router, told).await,
        Some(tls) => {
            match tokio::time::timeout(shared.limits.head_time, tls.accept(stream)).await {
                Ok(Ok(stream)) => serve(stream, peer, &shared.limits, router, told).await,
                Ok(Err(error)) => debug!(%error, "no TLS"),
                Err(_) => debug!("no TLS in time"),
            }
        }
    }
    drop(slot);
}

/// One more in a gauge, for as long as it lives: connections also end by being dropped.
struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.increment(1);
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

async fn serve<T: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: T,
    peer: Peer,
    limits: &Limits,
    router: Router,
    mut told: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(64)
        .max_buf_size(128 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = told.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection failed");
    }
}

/// Done when the process is asked to stop: SIGTERM or SIGINT.
///
/// # Errors
/// If no signals can be received.
pub async fn stop_signal() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
