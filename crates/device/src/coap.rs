//! Serves the resources of a running device over CoAP, with or without DTLS.
//!
//! The resources are those of [`Resources`]. Requests are answered on the task of each socket, so they
//! do not delay the readings.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "tls")]
use std::time::Duration;
use std::time::Instant;

use moteseal_core::signature::Signer;
use moteseal_net::coap::config::{Config, Limits};
use moteseal_net::coap::{ExchangeId, Owner, Request, Response, Security, Service, Socket};
use moteseal_net::health::NodeHealth;
use moteseal_verify::Roster;
use tokio::sync::watch;
#[cfg(feature = "tls")]
use {moteseal_core::record::DeviceId, moteseal_net::dtls, zeroize::Zeroizing};

use crate::published::Published;
use crate::resources::Resources;
use crate::sensors::Sensed;

/// The maximum length of the body of a request, in bytes. Only the policy of health takes one.
const MAX_BODY: usize = 1024;
/// The bounds on what clients can make a device store.
const LIMITS: Limits = Limits {
    peers: 1024,
    incoming: 4,
    outgoing: 8,
    remembered: 16,
    remembered_bytes: 4 << 10,
    observers: 256,
    observers_of_network: 64,
    observers_of_peer: 8,
    upload_bytes: 64 << 10,
    // The seals of an epoch have at most 1 MiB (MAX_ENDED). Clients that fetch the same ones share them.
    representation_bytes: 4 << 20,
};

/// Returns the DTLS of a device's server: it accepts clients with the pre-shared key that is derived from
/// the device's link secret ([`dtls_psk`](moteseal_core::link::LinkKey::dtls_psk)).
///
/// # Errors
/// [`DtlsError`](dtls::DtlsError) if the library rejects the configuration.
#[cfg(feature = "tls")]
pub fn security(device: DeviceId, psk: Zeroizing<[u8; 32]>) -> Result<Security, dtls::DtlsError> {
    let config =
        dtls::ServerConfig::new().with_psk(move |of| (*of == device.0).then(|| psk.clone()));
    let limits = dtls::Limits {
        sessions: 256,
        handshakes: 64,
        handshakes_per_network: 16,
        idle: Duration::from_secs(3600),
        ..dtls::Limits::default()
    };
    Ok(Security::Server(Box::new(dtls::Server::new(config, limits, Instant::now())?)))
}

/// A device's sockets for clients.
#[derive(Debug)]
pub struct CoapServer<K> {
    resources: Arc<Mutex<Resources<K>>>,
    sockets: Vec<Socket>,
    health: Option<Arc<NodeHealth>>,
}

impl<K: Signer + Send + 'static> CoapServer<K> {
    /// Creates a server without sockets.
    #[must_use]
    pub fn new(resources: Resources<K>) -> Self {
        Self { resources: Arc::new(Mutex::new(resources)), sockets: Vec::new(), health: None }
    }

    /// Serves the device's health on all sockets too. Call this before [`listen`](Self::listen).
    #[must_use]
    pub fn with_health(self, health: Arc<NodeHealth>) -> Self {
        Self { health: Some(health), ..self }
    }

    /// Listens on an address, and returns the address of the socket. May be called for several
    /// addresses.
    ///
    /// # Errors
    /// The operating system's error if the address cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn listen(&mut self, address: SocketAddr, security: Security) -> io::Result<SocketAddr> {
        let config =
            Config { body_limit: Arc::new(|_, _| MAX_BODY), limits: LIMITS, ..Config::default() };
        let served = Served(Arc::clone(&self.resources), self.health.clone());
        let socket = Socket::listen(address, security, config, |_| Box::new(served))?;
        if let Some(health) = &self.health {
            health.attach(socket.handle().clone());
        }
        let address = socket.handle().address();
        self.sockets.push(socket);
        Ok(address)
    }

    /// Serves what is published, and notifies the observers, until the publisher is dropped. `rosters`
    /// reports the later versions of the roster.
    pub async fn serve(
        self,
        mut published: Published,
        mut rosters: Option<watch::Receiver<Arc<Roster>>>,
    ) {
        loop {
            let paths = tokio::select! {
                // An urgent event precedes the reading that it contains.
                biased;
                changed = published.events.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let events = Arc::clone(&published.events.borrow_and_update());
                    lock(&self.resources).take_events(&events)
                }
                Ok(()) = published.reading.changed() => {
                    let Some(sensed) = published.reading.borrow_and_update().clone() else { continue };
                    lock(&self.resources).take_reading(Instant::now(), Sensed::clone(&sensed))
                }
                Ok(()) = published.ended.changed() => {
                    let ended = published.ended.borrow_and_update().clone();
                    lock(&self.resources).take_ended(ended.as_ref())
                }
                Some(roster) = next(&mut rosters) => {
                    lock(&self.resources).load(&roster);
                    continue;
                }
            };
            for socket in &self.sockets {
                for path in &paths {
                    let resources = Arc::clone(&self.resources);
                    let representation = move |request: &Request| {
                        Some(lock(&resources).respond(Instant::now(), request))
                    };
                    socket.handle().notify(path.clone(), Box::new(representation)).await;
                }
            }
        }
    }
}

/// Waits for the next version of the roster. Waits forever if there will be none.
async fn next(rosters: &mut Option<watch::Receiver<Arc<Roster>>>) -> Option<Arc<Roster>> {
    if let Some(rosters) = rosters
        && rosters.changed().await.is_ok()
    {
        return Some(Arc::clone(&rosters.borrow_and_update()));
    }
    std::future::pending().await
}

fn lock<K>(resources: &Mutex<Resources<K>>) -> MutexGuard<'_, Resources<K>> {
    // A panic while the lock was held leaves the resources as they were before or after one change.
    resources.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of a socket.
struct Served<K>(Arc<Mutex<Resources<K>>>, Option<Arc<NodeHealth>>);

impl<K: Signer + Send + 'static> Service for Served<K> {
    fn request(&mut self, _: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        let health = self.1.as_ref();
        if let Some(response) = health.and_then(|of| of.respond(Instant::now(), owner, &request)) {
            return Some(response);
        }
        Some(lock(&self.0).respond(Instant::now(), &request))
    }
}
