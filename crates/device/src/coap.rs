//! Serves the newest reading of a running device over CoAP, with or without DTLS.
//!
//! The resources are those of [`Sensors`]. Requests are answered on the task of each socket, so they
//! do not delay the readings.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "tls")]
use std::time::Duration;
use std::time::Instant;

use moteseal_core::signature::Signer;
use moteseal_net::coap::config::{Config, Limits};
use moteseal_net::coap::{
    Code, ExchangeId, Format, Owner, Request, Response, Security, Service, Socket,
};
use moteseal_verify::Roster;
use tokio::sync::watch;
#[cfg(feature = "tls")]
use {moteseal_core::record::DeviceId, moteseal_net::dtls, zeroize::Zeroizing};

use crate::sensors::{CORE, Sensed, Sensors};

/// The maximum length of the body of a request, in bytes. No resource takes one.
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
    representation_bytes: 1 << 20,
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
    sensors: Arc<Mutex<Sensors<K>>>,
    sockets: Vec<Socket>,
}

impl<K: Signer + Send + 'static> CoapServer<K> {
    /// Creates a server without sockets.
    #[must_use]
    pub fn new(sensors: Sensors<K>) -> Self {
        Self { sensors: Arc::new(Mutex::new(sensors)), sockets: Vec::new() }
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
        let resources = Resources(Arc::clone(&self.sensors));
        let socket = Socket::listen(address, security, config, |_| Box::new(resources))?;
        let address = socket.handle().address();
        self.sockets.push(socket);
        Ok(address)
    }

    /// Serves the readings that `newest` reports, and notifies the observers, until the sender of
    /// `newest` is dropped. `rosters` reports the later versions of the roster.
    pub async fn serve(
        self,
        mut newest: watch::Receiver<Option<Arc<Sensed>>>,
        mut rosters: Option<watch::Receiver<Arc<Roster>>>,
    ) {
        let paths: Vec<String> = lock(&self.sensors).paths().collect();
        loop {
            tokio::select! {
                changed = newest.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let Some(sensed) = newest.borrow_and_update().clone() else { continue };
                    lock(&self.sensors).take(Instant::now(), Sensed::clone(&sensed));
                    for socket in &self.sockets {
                        for path in &paths {
                            let sensors = Arc::clone(&self.sensors);
                            let representation = move |request: &Request| {
                                lock(&sensors).respond(Instant::now(), request)
                            };
                            socket.handle().notify(path.clone(), Box::new(representation)).await;
                        }
                    }
                }
                Some(roster) = next(&mut rosters) => lock(&self.sensors).load(&roster),
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

fn lock<K>(sensors: &Mutex<Sensors<K>>) -> MutexGuard<'_, Sensors<K>> {
    // A panic while the lock was held leaves the sensors as they were before or after one reading.
    sensors.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resources of a device. Other resources, such as urgent events, are added in
/// [`request`](Service::request).
struct Resources<K>(Arc<Mutex<Sensors<K>>>);

impl<K: Signer + Send + 'static> Service for Resources<K> {
    fn request(&mut self, _: ExchangeId, _: Owner, request: Request) -> Option<Response> {
        let mut sensors = lock(&self.0);
        if request.path == CORE {
            return Some(match request.code {
                Code::GET => Response::content(Format::LINKS, sensors.links(&request.query)),
                _ => Response::new(Code::METHOD_NOT_ALLOWED),
            });
        }
        let response = sensors.respond(Instant::now(), &request);
        Some(response.unwrap_or_else(|| Response::new(Code::NOT_FOUND)))
    }
}
