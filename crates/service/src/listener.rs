//! A listener for HTTP/1.1, with or without TLS, that limits its connections.
//!
//! There is a limit on the number of open connections, in total and per address. A client must send
//! the head of a request within a maximum time, and must receive a response at a minimum rate. After
//! each request, the other connections get a turn.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use moteseal_api::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::TlsFiles;
use crate::client_key::ClientKey;
use crate::descriptors;
use crate::log_limit::LogLimit;
use crate::paced_stream::PacedStream;
use crate::pool::{Held, Peer, Pool};
use crate::tls::{self, TlsAcceptor, TlsError};

/// The response to a connection above the limit. The listener sends it without reading the request,
/// so that rejecting a flood of connections is cheap.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/problem+json\r\ncontent-length: 138\r\n\r\n{\"type\":\"urn:moteseal:problem:Unavailable\",\"title\":\"Unavailable\",\"status\":503,\"detail\":\"too many connections are open; try again shortly\"}";

/// The maximum number of header fields in a request.
const MAX_HEADERS: usize = 64;

/// The pause after the operating system has failed to accept a connection. The most common cause is
/// that the process has no free file descriptor. It gets one when another connection closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the listener logs that it cannot accept a connection.
const ACCEPT_LOG: Duration = Duration::from_secs(10);

/// The limits of a listener's connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The maximum number of open connections. The listener rejects further connections with status
    /// 503. If the process may not open enough files, the number is lower.
    pub connections: usize,
    /// The share of [`connections`](Self::connections), in percent, that one address may use once
    /// half of the connections are in use; see [`Pool`].
    pub peer_percent: u8,
    /// The time within which the head of a request, or the TLS handshake, must arrive.
    pub head_time: Duration,
    /// The maximum length of a request's head, in bytes.
    pub head_bytes: usize,
    /// The maximum lifetime of a connection; `None` is unlimited.
    pub connection_time: Option<Duration>,
    /// The interval over which a client's receive rate is measured.
    pub write_stall: Duration,
    /// The minimum rate at which a client must receive a response, in bytes per second.
    pub write_rate: u64,
    /// How long requests in progress may take to finish when the service stops.
    pub stop_time: Duration,
}

/// The metrics that a listener updates.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    /// The number of open connections.
    pub open: Gauge,
    /// The number of connections rejected because too many were open.
    pub rejected: Counter,
}

/// Why a service cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process listens on the address.
    #[error(
        "{0} is in use by another process; stop it, or listen on another address \
         (port 0 selects a free port)"
    )]
    InUse(SocketAddr),
    /// The machine does not have the address.
    #[error("{0} is not an address of this machine; listen on 127.0.0.1 or 0.0.0.0")]
    NotLocal(SocketAddr),
    /// The user may not listen on the port.
    #[error("this user may not listen on {0}; use a port from 1024 on")]
    NotPermitted(SocketAddr),
    /// The operating system reported another error.
    #[error("cannot listen on {address}: {error}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The listener cannot use the TLS files.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ListenError {
    fn new(address: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotLocal(address),
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address),
            _ => Self::Io { address, error },
        }
    }

    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InUse(_) => "AddressInUse",
            Self::NotLocal(_) => "AddressNotLocal",
            Self::NotPermitted(_) => "PortNotPermitted",
            Self::Io { .. } => "ListenFailed",
            Self::Tls(error) => error.name(),
        }
    }

    /// Returns [`ErrorKind::Internal`] for [`Io`](Self::Io), otherwise [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(ListenError);

/// A listening socket that does not serve connections yet.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on `address` (port 0 selects a free port), with TLS if `tls` is given.
    ///
    /// # Errors
    /// [`ListenError`] if the process cannot use the address or the TLS files.
    pub async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Self, ListenError> {
        let tls = tls.map(tls::acceptor).transpose()?;
        let failed = |error| ListenError::new(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, tls })
    }

    /// Returns the address of the listener, with the actual port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the listener uses TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the URL of the service.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls() { "https" } else { "http" }, self.address)
    }

    /// Calls `service` for each request until `stop` completes. Each request has the [`Peer`] of
    /// its connection as an extension, and the [`ClientKey`] if the client has presented a
    /// certificate.
    ///
    /// When `stop` has completed, the listener accepts no more connections, lets requests in
    /// progress finish within [`ConnectionLimits::stop_time`], and returns.
    pub async fn serve<S, B>(
        self,
        service: S,
        limits: &ConnectionLimits,
        metrics: Option<&ConnectionMetrics>,
        stop: impl Future<Output = ()> + Send,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let Self { listener, tls, .. } = self;
        let most = descriptors::connections(limits.connections);
        if most < limits.connections {
            warn!(
                connections = most,
                wanted = limits.connections,
                "the limit on open files permits fewer connections; raise it, for example with ulimit -n"
            );
        }
        let places = Pool::new(most as u64, limits.peer_percent, 1);
        let accept_log = LogLimit::new(1, ACCEPT_LOG);
        let (stop_sender, stop_receiver) = watch::channel(());
        let limits = Arc::new(limits.clone());
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        let peer = Peer::from(address.ip());
                        let Some(place) = places.take(peer, 1) else {
                            if let Some(metrics) = metrics {
                                metrics.rejected.increment(1);
                            }
                            if tls.is_none() {
                                // The send buffer of a new socket has room for this response. If
                                // the write fails, the client does not learn why the connection
                                // was closed, which is harmless.
                                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
                            }
                            continue;
                        };
                        debug!(peer = %address, "connected");
                        let open = metrics.map(|metrics| Counted::new(&metrics.open));
                        let connection = Connection {
                            peer,
                            limits: Arc::clone(&limits),
                            stop: stop_receiver.clone(),
                            _place: place,
                            _open: open,
                        };
                        connections.spawn(connection.run(stream, tls.clone(), service.clone()));
                    }
                    Err(error) => {
                        if accept_log.allows(()) {
                            warn!(%error, "cannot accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        info!(connections = connections.len(), "stopping");
        let _ = stop_sender.send(());
        let finished = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.stop_time, finished).await.is_err() {
            warn!("closing connections whose requests did not finish in time");
            connections.shutdown().await;
        }
        info!("stopped");
    }
}

/// Increments a gauge when it is created and decrements it when it is dropped. A connection's task
/// can be dropped at any time, so the gauge must not depend on the task running to its end.
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

/// One connection, with the values that count it while it is open.
struct Connection {
    peer: Peer,
    limits: Arc<ConnectionLimits>,
    stop: watch::Receiver<()>,
    _place: Held,
    _open: Option<Counted>,
}

impl Connection {
    async fn run<S, B>(self, stream: TcpStream, tls: Option<TlsAcceptor>, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let limits = Arc::clone(&self.limits);
        let _ = stream.set_nodelay(true);
        let stream = PacedStream::new(stream, limits.write_stall, limits.write_rate);
        let Some(tls) = tls else { return self.serve(stream, None, service).await };
        match tokio::time::timeout(limits.head_time, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let client = tls::client_key(&stream);
                self.serve(stream, client, service).await;
            }
            Ok(Err(error)) => debug!(%error, "the TLS handshake failed"),
            Err(_) => debug!("the TLS handshake timed out"),
        }
    }

    async fn serve<T, S, B>(mut self, stream: T, client: Option<ClientKey>, service: S)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let peer = self.peer;
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            client.map(|client| request.extensions_mut().insert(client));
            let response = service.call(request);
            async {
                let response = response.await;
                // A client may send many requests without waiting for their responses. Without this
                // pause, hyper would serve many of them before another connection gets a turn.
                tokio::task::yield_now().await;
                response
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_headers(MAX_HEADERS)
            .max_buf_size(self.limits.head_bytes)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let life = self.limits.connection_time.unwrap_or(Duration::MAX);
        let served = async {
            tokio::select! {
                ended = connection.as_mut() => ended,
                _ = self.stop.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        match tokio::time::timeout(life, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "the connection failed"),
            Err(_) => debug!("closed a connection at the end of its maximum lifetime"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Finding B3 of the review. Four clients send many requests without waiting for the responses.
    /// A client that connects after them waits for few of these requests.
    #[tokio::test]
    async fn pipelined_requests_alternate_with_those_of_other_connections() {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), None).await.unwrap();
        let address = listener.address();
        let (served, before) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, seen) = (Arc::clone(&served), Arc::clone(&before));
        let service = service_fn(move |request: Request<Incoming>| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            if request.uri().path() == "/other" {
                seen.store(number, Ordering::SeqCst);
            }
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
        });
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = TcpStream::connect(address).await.unwrap();
            let requests = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
            client.write_all(&requests).await.unwrap();
            clients.push(client);
        }
        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(b"GET /other HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let serve = tokio::spawn(async move {
            let limits = ConnectionLimits {
                connections: 8,
                peer_percent: 100,
                head_time: Duration::from_secs(10),
                head_bytes: 16 << 10,
                connection_time: None,
                write_stall: Duration::from_secs(10),
                write_rate: 1,
                stop_time: Duration::ZERO,
            };
            listener.serve(service, &limits, None, std::future::pending()).await;
        });
        assert!(other.read(&mut [0; 64]).await.unwrap() > 0);
        let before = before.load(Ordering::SeqCst);
        assert!(before <= 16, "{before} requests were served first");
        serve.abort();
    }
}
