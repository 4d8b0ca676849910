//! The configuration of both ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{Config, ConfigBuilder, PskResolver};
use moteseal_core::record::DeviceId;
use rustls_pki_types::ServerName;
use zeroize::Zeroizing;

use crate::mqtt::named;

use super::certificate::{Authority, Certificates};
use super::engine::{self, Keys};
use super::{DtlsError, MAX_DATAGRAM};

/// The key of a device, as its session uses it. `Debug` does not print it.
#[derive(Clone)]
pub struct Psk {
    device: [u8; 8],
    key: Zeroizing<[u8; 32]>,
}

impl Psk {
    /// Creates the key of a device. The gateway and the device derive the key from the device's
    /// link secret ([`dtls_psk`](moteseal_core::link::LinkKey::dtls_psk)).
    #[must_use]
    pub const fn new(device: [u8; 8], key: Zeroizing<[u8; 32]>) -> Self {
        Self { device, key }
    }
}

impl std::fmt::Debug for Psk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Psk({}, secret)", DeviceId(self.device))
    }
}

type Resolve = dyn Fn(&[u8; 8]) -> Option<Zeroizing<[u8; 32]>> + Send + Sync;
type Current = dyn Fn() -> Arc<Certificates> + Send + Sync;

/// What a server accepts: pre-shared keys, certificates, or both.
#[derive(Default)]
pub struct ServerConfig {
    resolve: Option<Box<Resolve>>,
    certificates: Option<Box<Current>>,
    accepts_anonymous: bool,
}

impl ServerConfig {
    /// Creates a configuration that accepts nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts devices with pre-shared keys. `resolve` returns the key of a device, or `None` if
    /// the group has no such device. It should compute the key before it looks for the device, so
    /// that both cases take the same time.
    #[must_use]
    pub fn with_psk(
        mut self,
        resolve: impl Fn(&[u8; 8]) -> Option<Zeroizing<[u8; 32]>> + Send + Sync + 'static,
    ) -> Self {
        self.resolve = Some(Box::new(resolve));
        self
    }

    /// Presents a certificate, and accepts clients with a certificate of the authority.
    #[must_use]
    pub fn with_certificates(self, certificates: Certificates) -> Self {
        let certificates = Arc::new(certificates);
        self.with_current_certificates(move || Arc::clone(&certificates))
    }

    /// Like [`with_certificates`](Self::with_certificates), with certificates that may be renewed while the
    /// server runs. `current` is called in each handshake. Sessions do not change.
    #[must_use]
    pub fn with_current_certificates(
        mut self,
        current: impl Fn() -> Arc<Certificates> + Send + Sync + 'static,
    ) -> Self {
        self.certificates = Some(Box::new(current));
        self
    }

    /// Asks clients for no certificate. The identity of clients without a pre-shared key is then
    /// [`Anonymous`](super::Identity::Anonymous).
    #[must_use]
    pub const fn accept_anonymous(mut self) -> Self {
        self.accepts_anonymous = true;
        self
    }

    pub(super) fn build(self, handshake: Duration) -> Result<ServerKeys, DtlsError> {
        let psk = self.resolve.map(|resolve| {
            let resolver = Arc::new(Resolver::new(resolve));
            let config = psk_only(builder(handshake)).with_psk_server(None, resolver).build();
            config.map(|config| Keys::Psk(Arc::new(config))).map_err(internal)
        });
        let certificate = self.certificates.map(|current| {
            let config = builder(handshake).require_client_certificate(!self.accepts_anonymous);
            Ok((Arc::new(config.build().map_err(internal)?), current))
        });
        Ok(ServerKeys {
            psk: psk.transpose()?,
            certificate: certificate.transpose()?,
            accepts_anonymous: self.accepts_anonymous,
        })
    }
}

/// The credentials of a client.
pub struct ClientConfig {
    kind: Kind,
}

enum Kind {
    Psk(Psk),
    Certificate(Certificates, ServerName<'static>),
    Anonymous(Authority, ServerName<'static>),
}

impl ClientConfig {
    /// Authenticates both ends by the pre-shared key of a device.
    #[must_use]
    pub const fn psk(psk: Psk) -> Self {
        Self { kind: Kind::Psk(psk) }
    }

    /// Presents a certificate, and accepts a server with a certificate of the authority for this
    /// name, which is a DNS name or an IP address.
    ///
    /// # Errors
    /// `NotTrusted` if `server` is not a name.
    pub fn certificates(certificates: Certificates, server: &str) -> Result<Self, DtlsError> {
        Ok(Self { kind: Kind::Certificate(certificates, server_name(server)?) })
    }

    /// Presents no certificate, and accepts a server with a certificate of the authority for this
    /// name.
    ///
    /// # Errors
    /// `NotTrusted` if `server` is not a name.
    pub fn anonymous(authority: Authority, server: &str) -> Result<Self, DtlsError> {
        Ok(Self { kind: Kind::Anonymous(authority, server_name(server)?) })
    }

    pub(super) fn build(self, handshake: Duration) -> Result<ClientKeys, DtlsError> {
        match self.kind {
            Kind::Psk(psk) => {
                let device = psk.device;
                let identity = DeviceId(device).to_string().into_bytes();
                let resolver = Resolver::new(Box::new(move |_: &[u8; 8]| Some(psk.key.clone())));
                let config = psk_only(builder(handshake));
                let config = config.with_psk_client(identity, Arc::new(resolver)).build();
                let keys = Keys::Psk(Arc::new(config.map_err(internal)?));
                Ok(ClientKeys { keys, device: Some(device), server: None })
            }
            Kind::Certificate(certificates, name) => {
                let config = builder(handshake).build().map_err(internal)?;
                let keys = Keys::Certificate(Arc::new(config), certificates.pair());
                let server = Some((certificates.into_authority(), name));
                Ok(ClientKeys { keys, device: None, server })
            }
            Kind::Anonymous(authority, name) => {
                let config = builder(handshake).build().map_err(internal)?;
                // The library needs a certificate even if it never sends it.
                let own = rcgen::generate_simple_self_signed(Vec::new())
                    .map_err(|error| DtlsError::Protocol { cause: error.to_string() })?;
                let pair = dimpl::DtlsCertificate {
                    certificate: own.cert.der().to_vec(),
                    private_key: own.signing_key.serialize_der(),
                };
                let keys = Keys::Certificate(Arc::new(config), pair);
                Ok(ClientKeys { keys, device: None, server: Some((authority, name)) })
            }
        }
    }
}

/// What a server needs at run time.
pub(super) struct ServerKeys {
    psk: Option<Keys>,
    certificate: Option<(Arc<Config>, Box<Current>)>,
    pub(super) accepts_anonymous: bool,
}

impl ServerKeys {
    /// Returns the pre-shared keys, if the server has them.
    pub(super) fn psk(&self) -> Option<Keys> {
        self.psk.clone()
    }

    /// Returns the current certificate and its key, if the server has one.
    pub(super) fn certificate(&self) -> Option<Keys> {
        let (config, current) = self.certificate.as_ref()?;
        Some(Keys::Certificate(Arc::clone(config), current().pair()))
    }

    /// Returns the authority whose certificates clients may present now.
    pub(super) fn authority(&self) -> Option<Authority> {
        let (_, current) = self.certificate.as_ref()?;
        Some(current().authority())
    }
}

/// What a client needs at run time.
pub(super) struct ClientKeys {
    pub(super) keys: Keys,
    /// The client's device, if it has a pre-shared key.
    pub(super) device: Option<[u8; 8]>,
    /// The authority and the name of the server, if it presents a certificate.
    pub(super) server: Option<(Authority, ServerName<'static>)>,
}

/// Looks up keys for the library.
struct Resolver(AssertUnwindSafe<Box<Resolve>>);

impl Resolver {
    fn new(resolve: Box<Resolve>) -> Self {
        Self(AssertUnwindSafe(resolve))
    }
}

impl PskResolver for Resolver {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        let device = named(identity);
        let key = (self.0)(&device.unwrap_or_default())?;
        engine::note_device(device?);
        Some(key.to_vec())
    }
}

fn server_name(server: &str) -> Result<ServerName<'static>, DtlsError> {
    let name = ServerName::try_from(server.to_owned());
    name.map_err(|_| DtlsError::NotTrusted { cause: format!("{server:?} is not a server's name") })
}

fn builder(handshake: Duration) -> ConfigBuilder {
    Config::builder()
        .with_crypto_provider(engine::provider())
        .mtu(MAX_DATAGRAM)
        .max_queue_rx(engine::QUEUE)
        .flight_retries(6)
        .handshake_timeout(handshake)
        .use_server_cookie(true)
}

fn psk_only(builder: ConfigBuilder) -> ConfigBuilder {
    builder.dtls12_cipher_suites(&[Dtls12CipherSuite::PSK_AES128_CCM_8]).dtls13_cipher_suites(&[])
}

fn internal(error: dimpl::Error) -> DtlsError {
    DtlsError::Protocol { cause: error.to_string() }
}
