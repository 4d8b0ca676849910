//! A cloud that listens for CoAP: the paths, bodies and problems of the HTTP contract, in requests that
//! go block by block.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, COSE, JSON};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::Options;
use crate::coap::socket::NoService;
use crate::coap::{
    Address, Code, Config, Format, Request, RequestError, Response, Security, Socket, To,
    first_responding,
};
#[cfg(feature = "tls")]
use crate::dtls;
use crate::error::NetError;
use crate::link::LinkError;
use crate::mqtt::Backoff;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 8 << 20;

/// The key with which a device authenticates to a cloud over CoAP.
#[derive(Clone)]
pub struct DeviceKey {
    /// The device.
    pub device: [u8; 8],
    /// The link secret that the device shares with the cloud, or with the gateway in front of it.
    pub secret: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKey(secret)")
    }
}

/// The connection to a cloud over CoAP. It is opened with the first request.
pub(super) struct Cloud {
    address: Address,
    options: Options,
    /// The connection, and the number of successive attempts that failed.
    socket: Mutex<(Option<Arc<Socket>>, u32)>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Converts the error of an address or a session.
fn of_link(url: &str, error: LinkError) -> NetError {
    match error {
        LinkError::BadAddress { url, cause, .. } => NetError::BadAddress { url, cause },
        LinkError::BadFile { path, cause } => NetError::BadFile { path, cause },
        error => NetError::Unreachable { url: url.to_owned(), cause: error.to_string() },
    }
}

impl Cloud {
    pub(super) fn new(base: &str, options: &Options) -> Result<Self, NetError> {
        let bad =
            |cause: &str| NetError::BadAddress { url: base.to_owned(), cause: cause.to_owned() };
        let address = Address::parse(base).map_err(|error| of_link(base, error))?;
        if !address.is_server() {
            return Err(bad("it must end after the port"));
        }
        if options.credential.is_some() {
            return Err(bad(
                "tokens and passwords are for http and https; use a device's link secret or a client certificate",
            ));
        }
        if !address.is_secure && (options.identity.is_some() || options.device_key.is_some()) {
            return Err(bad("a certificate or a link secret needs coaps"));
        }
        #[cfg(not(feature = "tls"))]
        if address.is_secure {
            return Err(bad("this program is built without DTLS"));
        }
        let cloud = Self { address, options: options.clone(), socket: Mutex::default() };
        #[cfg(feature = "tls")]
        if cloud.address.is_secure {
            // Files are read now, so that a mistake in them is reported before anything is sent.
            drop(cloud.credentials()?);
        }
        Ok(cloud)
    }

    #[cfg(feature = "tls")]
    fn credentials(&self) -> Result<dtls::ClientConfig, NetError> {
        let url = self.address.url();
        if let Some(DeviceKey { device, secret }) = &self.options.device_key {
            let key = moteseal_core::link::LinkKey::dtls_psk(secret);
            return Ok(dtls::ClientConfig::psk(dtls::Psk::new(*device, key)));
        }
        let Some(ca) = &self.options.ca else {
            let cause =
                "coaps needs a device's link secret, or the certificate authority of the cloud";
            return Err(NetError::BadAddress { url: url.to_owned(), cause: cause.to_owned() });
        };
        let authority = dtls::Authority::load(ca, std::time::SystemTime::now)
            .map_err(|error| of_link(url, error))?;
        let config = match &self.options.identity {
            None => dtls::ClientConfig::anonymous(authority, &self.address.host),
            Some(identity) => {
                let own = dtls::Certificates::load(&identity.certificate, &identity.key, authority)
                    .map_err(|error| of_link(url, error))?;
                dtls::ClientConfig::certificates(own, &self.address.host)
            }
        };
        config.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, cause: &dyn fmt::Display) -> NetError {
        NetError::Unreachable { url: self.address.url().to_owned(), cause: cause.to_string() }
    }

    /// Returns the connection. Opens one if there is none: the name is resolved and the credentials
    /// are read.
    async fn socket(&self) -> Result<Arc<Socket>, NetError> {
        let mut connection = self.socket.lock().await;
        if let Some(socket) = &connection.0 {
            return Ok(Arc::clone(socket));
        }
        let addresses = self.address.resolve().await;
        let addresses = addresses.map_err(|error| of_link(self.address.url(), error))?;
        let request = Request::new(Code::GET, "/.well-known/core");
        let open = |server| self.open(server);
        let socket = first_responding(&addresses, connection.1, &request, open).await;
        let none = || self.unreachable(&format!("none of {} addresses responds", addresses.len()));
        match socket.and_then(|socket| socket.ok_or_else(none)) {
            Ok(socket) => {
                let socket = Arc::new(socket);
                connection.0 = Some(Arc::clone(&socket));
                Ok(socket)
            }
            Err(error) => {
                connection.1 = connection.1.saturating_add(1);
                Err(error)
            }
        }
    }

    /// Forgets a connection over which the cloud does not respond.
    async fn forget(&self, socket: &Arc<Socket>) {
        let mut connection = self.socket.lock().await;
        if connection.0.take_if(|newest| Arc::ptr_eq(newest, socket)).is_some() {
            connection.1 = 0;
        }
    }

    fn open(&self, server: SocketAddr) -> Result<Socket, NetError> {
        let security = Security::Plain;
        #[cfg(feature = "tls")]
        let security = if self.address.is_secure {
            let client = dtls::Client::new(self.credentials()?, server, std::time::Instant::now());
            Security::Client(Box::new(client.map_err(|error| self.unreachable(&error))?))
        } else {
            security
        };
        let server_name = self.address.server_name();
        let config = Config { response_limit: MAX_RESPONSE, server_name, ..Config::default() };
        Socket::connect(server, security, Backoff::default(), config, |_| Box::new(NoService))
            .map_err(|error| self.unreachable(&error))
    }

    /// Returns the address of a path, for messages.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}/{}", self.address.url().trim_end_matches('/'), path.trim_start_matches('/'))
    }

    pub(super) fn base(&self) -> &str {
        self.address.url()
    }

    /// Sends a request and waits for its whole response.
    pub(super) async fn send(
        &self,
        code: Code,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response, NetError> {
        let socket = self.socket().await?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let arguments = query.split('&').filter(|argument| !argument.is_empty());
        let mut request = Request::new(code, format!("/{}", path.trim_start_matches('/')));
        request.query = arguments.map(str::to_owned).collect();
        if let Some((media_type, body)) = body {
            request = request.with_body(format(media_type), body);
        }
        let sent = socket.handle().request(To::Server, request, self.patience()).await;
        if matches!(sent, Err(RequestError::SessionEnded | RequestError::NoResponse)) {
            self.forget(&socket).await;
        }
        sent.map_err(|error| match (error, &*socket.handle().status().borrow()) {
            (
                RequestError::SessionEnded | RequestError::NoResponse,
                crate::coap::socket::Status::Down { error, .. },
            ) => self.unreachable(&describe(error)),
            (error, _) => self.unreachable(&error),
        })
    }

    fn patience(&self) -> Duration {
        self.options.idle_timeout.max(self.options.patience)
    }
}

#[cfg(feature = "tls")]
fn describe(error: &crate::coap::socket::SessionError) -> String {
    error.to_string()
}

#[cfg(not(feature = "tls"))]
fn describe(error: &crate::coap::socket::SessionError) -> String {
    match *error {}
}

/// Returns the content format of a media type.
fn format(media_type: &str) -> Format {
    match media_type {
        CBOR_SEQ => Format::CBOR_SEQ,
        JSON => Format::JSON,
        COSE => Format::COSE_SIGN1,
        _ => Format::OCTETS,
    }
}

/// Returns the media type of a content format.
pub(super) fn media_type(format: Option<Format>) -> &'static str {
    match format {
        Some(Format::CBOR_SEQ) => CBOR_SEQ,
        Some(Format::JSON) => JSON,
        Some(Format::TEXT) => "text/plain",
        _ => "",
    }
}

/// Returns the HTTP status that corresponds to a response code.
pub(super) fn status(code: Code) -> u16 {
    match code {
        Code::CONTENT | Code::CHANGED | Code::VALID => 200,
        Code::CREATED => 201,
        Code::REQUEST_ENTITY_INCOMPLETE => 408,
        _ => u16::from(code.class()) * 100 + u16::from(code.0 & 31),
    }
}
